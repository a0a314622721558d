//! Writes a snapshot as JSON with the snapshot's own keys, to compare it with Python's unpickled one.
//!
//! Frames are repeated wherever they are referenced, as in `json.dumps` of the unpickled snapshot. Keys that are
//! not read are not written; an integer of more than 128 bits is null.

use std::io::{self, Write};

use serde_json::{Value as Json, json};

use super::reading::{Reading, Segment};
use super::value::{ABSENT, Action, NO_STACK, NO_TIME, Value, Values, Word, key};
use crate::names::Name;

/// The largest depth, the same as when reading.
const DEEPEST: usize = 70;
/// Values of the settings that are written.
const MOST_SETTINGS: usize = 10_000;

type Object = serde_json::Map<String, Json>;

pub(crate) fn write(reading: &mut Reading, out: &mut dyn Write) -> io::Result<()> {
    let Reading { values, segments, traces, annotations, top, .. } = reading;
    let texts = Texts { values };
    write!(out, "{{\"segments\":[")?;
    for (number, segment) in segments.iter().enumerate() {
        separate(out, number)?;
        write!(out, "{}", Json::Object(texts.segment(segment)))?;
    }
    write!(out, "],\n\"device_traces\":[")?;
    for (device, ranges) in traces.iter().enumerate() {
        separate(out, device)?;
        write!(out, "[")?;
        for (number, entry) in ranges.iter().flat_map(Clone::clone).enumerate() {
            separate(out, number)?;
            write!(out, "{}", Json::Object(texts.entry(entry)))?;
        }
        write!(out, "]")?;
    }
    write!(out, "]")?;
    if let Some(settings) = values.get(*top, key::ALLOCATOR_SETTINGS) {
        let mut left = MOST_SETTINGS;
        write!(out, ",\n\"allocator_settings\":{}", texts.any(settings, DEEPEST, &mut left))?;
    }
    if values.get(*top, key::EXTERNAL_ANNOTATIONS).is_some() {
        write!(out, ",\n\"external_annotations\":[")?;
        for (number, one) in annotations.iter().enumerate() {
            separate(out, number)?;
            let mut object = Object::new();
            texts.put_text(&mut object, "stage", Some(one.stage));
            texts.put_text(&mut object, "name", Some(one.name));
            put(&mut object, "device", one.device);
            put(&mut object, "time_us", one.time_us);
            write!(out, "{}", Json::Object(object))?;
        }
        write!(out, "]")?;
    }
    writeln!(out, "}}")
}

fn separate(out: &mut dyn Write, number: usize) -> io::Result<()> {
    if number > 0 { writeln!(out, ",") } else { Ok(()) }
}

fn put(object: &mut Object, key: &str, value: Option<impl Into<Json>>) {
    if let Some(value) = value {
        object.insert(key.to_owned(), value.into());
    }
}

struct Texts<'a> {
    values: &'a Values,
}

impl Texts<'_> {
    fn put_text(&self, object: &mut Object, key: &str, name: Option<Name>) {
        put(object, key, name.map(|name| self.values.names.get(name)));
    }

    fn put_frames(&self, object: &mut Object, key: &str, list: u32) {
        if list != NO_STACK {
            object.insert(key.to_owned(), self.frames(list));
        }
    }

    fn frames(&self, list: u32) -> Json {
        let numbers = self.values.stacks.frames(list).iter();
        Json::Array(numbers.map(|&frame| self.frame(frame)).collect())
    }

    fn frame(&self, number: u32) -> Json {
        let names = &self.values.names;
        self.values.stacks.get(number).map_or(Json::Null, |frame| {
            json!({"name": names.get(frame.function), "filename": names.get(frame.file), "line": frame.line})
        })
    }

    fn segment(&self, segment: &Segment) -> Object {
        let mut object = Object::new();
        put(&mut object, "device", Some(segment.device));
        put(&mut object, "address", Some(segment.address));
        put(&mut object, "total_size", Some(segment.total));
        put(&mut object, "allocated_size", segment.allocated);
        put(&mut object, "active_size", segment.active);
        put(&mut object, "requested_size", segment.requested);
        put(&mut object, "stream", segment.stream);
        self.put_text(&mut object, "segment_type", Some(segment.kind).filter(|kind| !kind.is_empty()));
        put(&mut object, "segment_pool_id", segment.pool.map(|(one, other)| json!([one, other])));
        put(&mut object, "is_expandable", segment.is_expandable);
        self.put_frames(&mut object, "frames", segment.stack);
        let blocks = segment.blocks.iter().map(|block| {
            let mut object = Object::new();
            put(&mut object, "address", block.has_address.then_some(block.address));
            put(&mut object, "size", Some(block.size));
            put(&mut object, "requested_size", block.requested);
            self.put_text(&mut object, "state", Some(block.word));
            self.put_frames(&mut object, "frames", block.stack);
            Json::Object(object)
        });
        object.insert("blocks".to_owned(), Json::Array(blocks.collect()));
        object
    }

    fn entry(&self, number: u32) -> Object {
        let mut object = Object::new();
        let Some(entry) = self.values.entries.get(number) else { return object };
        let Some(kind) = self.values.kind(entry.kind) else { return object };
        self.put_text(&mut object, "action", Some(kind.action));
        let address = if kind.action() == Action::Oom { "device_free" } else { "addr" };
        put(&mut object, address, Some(entry.address).filter(|&address| address != ABSENT));
        put(&mut object, "size", Some(entry.size).filter(|&size| size != ABSENT));
        put(&mut object, "stream", kind.stream);
        put(&mut object, "time_us", Some(entry.time_us).filter(|&time| time != NO_TIME));
        self.put_text(&mut object, "compile_context", kind.compile_context);
        self.put_text(&mut object, "user_metadata", kind.user_metadata);
        put(&mut object, "pool_id", kind.pool.map(|(one, other)| json!([one, other])));
        self.put_frames(&mut object, "frames", entry.stack);
        let forward = &self.values.forward;
        if let Some(&(_, stack)) =
            forward.binary_search_by_key(&number, |&(entry, _)| entry).ok().and_then(|at| forward.get(at))
        {
            self.put_frames(&mut object, "forward_frames", stack);
        }
        object
    }

    /// Any plain value, up to the bound on the number of values.
    fn any(&self, word: Word, deepest: usize, left: &mut usize) -> Json {
        let (Some(deeper), Some(less)) = (deepest.checked_sub(1), left.checked_sub(1)) else {
            return Json::Null;
        };
        *left = less;
        let values = self.values;
        match word.value() {
            Value::Bool(value) => Json::Bool(value),
            Value::Int(value) => json!(value),
            Value::Big(_) => values.integer(word).map_or(Json::Null, |value| {
                u64::try_from(value).map_or_else(|_| json!(i64::try_from(value).ok()), |value| json!(value))
            }),
            Value::Float(number) => json!(values.real(number)),
            Value::Text(name) => json!(values.names.get(name)),
            Value::Frame(number) => self.frame(number),
            Value::Tuple(_) | Value::List(_) => match (values.items(word), values.stack_of(word)) {
                (_, Some(stack)) => self.frames(stack),
                (Some(items), _) => items.iter().map(|&item| self.any(item, deeper, left)).collect(),
                (None, None) => Json::Null,
            },
            Value::Dict(_) => {
                let mut object = Object::new();
                for pair in values.items(word).unwrap_or_default().chunks_exact(2) {
                    let &[key, value] = pair else { continue };
                    let key = match key.value() {
                        Value::Text(name) => values.names.get(name).to_owned(),
                        _ => self.any(key, deeper, left).to_string(),
                    };
                    object.insert(key, self.any(value, deeper, left));
                }
                Json::Object(object)
            }
            Value::None | Value::Other | Value::Opaque(_) => Json::Null,
        }
    }
}
