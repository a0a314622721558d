//! Extracts the parts of a snapshot from the values of its pickle: segments with their blocks, traces, settings, annotations.
//!
//! Layouts differ between versions. A field that a version does not write is `None`; an unknown field is
//! ignored. A file whose shared values unpack to far more than its size is refused.

use std::ops::Range;

use super::fault::Fault;
use super::value::{NO_STACK, Value, Values, Word, key};
use crate::names::Name;
use crate::pages::Page;

/// The state of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// In use.
    Allocated,
    /// Freed, but another stream may still read it.
    Pending,
    /// Free.
    Inactive,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// In a free block, the value of its last owner.
    pub(crate) requested: Option<u64>,
    pub(crate) state: State,
    /// The word for the state in the file.
    pub(crate) word: Name,
    /// Whether the file contains the address.
    pub(crate) has_address: bool,
    pub(crate) stack: u32,
}

impl Block {
    /// Whether the program holds it.
    pub(crate) fn is_in_use(&self) -> bool {
        self.state == State::Allocated
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) device: u32,
    pub(crate) address: u64,
    pub(crate) total: u64,
    pub(crate) allocated: Option<u64>,
    pub(crate) active: Option<u64>,
    pub(crate) requested: Option<u64>,
    pub(crate) stream: Option<i64>,
    pub(crate) kind: Name,
    pub(crate) pool: Option<(i64, i64)>,
    pub(crate) is_expandable: Option<bool>,
    pub(crate) stack: u32,
    pub(crate) blocks: Vec<Block>,
}

/// A mark that the program or PyTorch itself set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Annotation {
    pub(crate) name: Name,
    pub(crate) stage: Name,
    pub(crate) device: Option<i64>,
    pub(crate) time_us: Option<i64>,
}

/// The settings that decide how blocks are split.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// Blocks of this size and more are not split.
    pub(crate) max_split: Option<u64>,
    /// Divisions between powers of two, for requests below 2 MiB, from there below 4 MiB, and so on.
    pub(crate) divisions: Vec<u64>,
}

/// A snapshot, unpickled.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) values: Values,
    pub(crate) segments: Vec<Segment>,
    /// Entries of each device, by its number.
    pub(crate) traces: Vec<Vec<Range<u32>>>,
    pub(crate) annotations: Vec<Annotation>,
    pub(crate) settings: Settings,
    /// The top of the pickle.
    pub(crate) top: Word,
    /// Memory that was needed only while reading.
    pub(crate) room: Vec<Page>,
}

impl Reading {
    pub(crate) fn of(mut values: Values, top: Word, room: Vec<Page>) -> Result<Reading, Fault> {
        if let Value::Opaque(name) = top.value() {
            return Err(Fault::Calls(values.names.get(name).to_owned()));
        }
        let is_snapshot = values.get(top, key::SEGMENTS).is_some();
        // Older versions wrote the list of segments alone.
        let listed = if is_snapshot { values.get(top, key::SEGMENTS) } else { Some(top) };
        let Some(list) = listed.filter(|&list| matches!(list.value(), Value::List(_))) else {
            return Err(Fault::Foreign(what_is(&values, top)));
        };
        let mut segments = Vec::new();
        for word in values.items(list).ok_or(Fault::Shape("segments"))?.to_vec() {
            match segment(&mut values, word)? {
                Some(segment) => segments.push(segment),
                None if is_snapshot => return Err(Fault::Shape("segments")),
                None => return Err(Fault::Foreign(what_is(&values, top))),
            }
        }
        if segments.is_empty() && !is_snapshot {
            return Err(Fault::Foreign("an empty list".to_owned()));
        }
        let mut traces = Vec::new();
        if let Some(devices) = values.get(top, key::DEVICE_TRACES) {
            for word in values.items(devices).ok_or(Fault::Shape("device_traces"))?.to_vec() {
                traces.push(values.entry_ranges(word).ok_or(Fault::Shape("device_traces"))?);
            }
        }
        let mut annotations = Vec::new();
        if let Some(list) = values.get(top, key::EXTERNAL_ANNOTATIONS) {
            let words = values.items(list).unwrap_or_default().to_vec();
            values.spend(words.len())?;
            annotations.extend(words.into_iter().filter_map(|word| annotation(&values, word)));
        }
        let settings = settings(&values, top);
        Ok(Reading { values, segments, traces, annotations, settings, top, room })
    }
}

fn what_is(values: &Values, top: Word) -> String {
    match top.value() {
        Value::Dict(_) => {
            let keys = values.items(top).unwrap_or_default().chunks_exact(2).filter_map(|pair| {
                match pair.first()?.value() {
                    Value::Text(name) => Some(format!("'{}'", values.names.get(name))),
                    _ => None,
                }
            });
            let some: Vec<String> = keys.take(4).collect();
            if some.is_empty() {
                return "a dictionary".to_owned();
            }
            format!("a dictionary with {}", some.join(", "))
        }
        Value::List(_) => "a list".to_owned(),
        Value::Tuple(_) => "a tuple".to_owned(),
        Value::Text(_) => "a string".to_owned(),
        Value::Int(_) | Value::Big(_) | Value::Float(_) | Value::Bool(_) => "a number".to_owned(),
        Value::Frame(_) => "a frame".to_owned(),
        Value::None | Value::Other | Value::Opaque(_) => "something else".to_owned(),
    }
}

fn name_of(word: Option<Word>) -> Name {
    match word.map(Word::value) {
        Some(Value::Text(name)) => name,
        _ => Name::EMPTY,
    }
}

/// Looks up several keys in one pass over a dictionary.
fn lookup<const N: usize>(values: &Values, dict: Word, keys: [Name; N]) -> Option<[Option<Word>; N]> {
    if !matches!(dict.value(), Value::Dict(_)) {
        return None;
    }
    let mut found = [None; N];
    for pair in values.items(dict)?.chunks_exact(2) {
        let &[key, value] = pair else { continue };
        let Value::Text(key) = key.value() else { continue };
        if let Some(slot) = keys.iter().position(|&known| known == key).and_then(|at| found.get_mut(at)) {
            *slot = Some(value);
        }
    }
    Some(found)
}

fn signed(values: &Values, word: Option<Word>) -> Option<i64> {
    let value = values.integer(word?)?;
    i64::try_from(value).ok().or_else(|| Some(u64::try_from(value).ok()?.cast_signed()))
}

fn segment(values: &mut Values, dict: Word) -> Result<Option<Segment>, Fault> {
    let keys = [
        key::DEVICE,
        key::ADDRESS,
        key::TOTAL_SIZE,
        key::ALLOCATED_SIZE,
        key::ACTIVE_SIZE,
        key::REQUESTED_SIZE,
        key::STREAM,
        key::SEGMENT_TYPE,
        key::SEGMENT_POOL_ID,
        key::IS_EXPANDABLE,
        key::FRAMES,
        key::BLOCKS,
    ];
    let Some(
        [
            device,
            address,
            total,
            allocated,
            active,
            requested,
            stream,
            kind,
            pool,
            expandable,
            frames,
            blocks,
        ],
    ) = lookup(values, dict, keys)
    else {
        return Ok(None);
    };
    let number = |word: Option<Word>| word.and_then(|word| values.unsigned(word));
    let (Some(address), Some(total), Some(blocks)) = (number(address), number(total), blocks) else {
        return Ok(None);
    };
    let Some(listed) = values.items(blocks) else { return Ok(None) };
    let mut segment = Segment {
        device: number(device).and_then(|device| u32::try_from(device).ok()).unwrap_or(0),
        address,
        total,
        allocated: number(allocated),
        active: number(active),
        requested: number(requested),
        stream: signed(values, stream),
        kind: name_of(kind),
        pool: pool.and_then(|pool| values.pair(pool)),
        is_expandable: match expandable.map(Word::value) {
            Some(Value::Bool(is)) => Some(is),
            _ => None,
        },
        stack: frames.and_then(|frames| values.stack_of(frames)).unwrap_or(NO_STACK),
        blocks: Vec::new(),
    };
    let listed = listed.to_vec();
    values.spend(listed.len() + 1)?;
    let mut next = address;
    for word in listed {
        let Some(block) = block(values, word, next) else { return Ok(None) };
        next = block.address.saturating_add(block.size);
        segment.blocks.push(block);
    }
    Ok(Some(segment))
}

fn block(values: &Values, dict: Word, next: u64) -> Option<Block> {
    let keys = [key::ADDRESS, key::SIZE, key::REQUESTED_SIZE, key::STATE, key::FRAMES, key::HISTORY];
    let [address, size, requested, state, frames, history] = lookup(values, dict, keys)?;
    // The first versions stored the history in the block, the last owner first.
    let owner = history.and_then(|history| values.items(history)?.first().copied());
    let owner = owner.and_then(|owner| lookup(values, owner, [key::REAL_SIZE, key::FRAMES]));
    let [real_size, old_frames] = owner.unwrap_or_default();
    let number = |word: Option<Word>| values.unsigned(word?);
    let word = name_of(state);
    let told = number(address);
    Some(Block {
        address: told.unwrap_or(next),
        size: number(size)?,
        requested: number(requested).or_else(|| number(real_size)),
        state: match word {
            key::ACTIVE_ALLOCATED => State::Allocated,
            key::ACTIVE_PENDING_FREE | key::ACTIVE_AWAITING_FREE => State::Pending,
            _ => State::Inactive,
        },
        word,
        has_address: told.is_some(),
        stack: frames.or(old_frames).and_then(|frames| values.stack_of(frames)).unwrap_or(NO_STACK),
    })
}

fn annotation(values: &Values, dict: Word) -> Option<Annotation> {
    let [name, stage, device, time] =
        lookup(values, dict, [key::NAME, key::STAGE, key::DEVICE, key::TIME_US])?;
    Some(Annotation {
        name: name_of(name),
        stage: name_of(stage),
        device: signed(values, device),
        time_us: signed(values, time),
    })
}

fn settings(values: &Values, top: Word) -> Settings {
    let Some(settings) = values.get(top, key::ALLOCATOR_SETTINGS) else { return Settings::default() };
    let max_split = values.get(settings, key::MAX_SPLIT_SIZE).and_then(|word| values.unsigned(word));
    let divisions = values.get(settings, key::DIVISIONS);
    // Keys are powers of two of MiB, as text: "1", "2", "4" ...
    let of_power = |power: u32| {
        let name = values.names.find(&(1u32 << power).to_string())?;
        values.unsigned(values.get(divisions?, name)?)
    };
    Settings {
        // A value of all ones means "no limit", signed or unsigned.
        max_split: max_split.filter(|&size| size != u64::MAX && size != i64::MAX.cast_unsigned()),
        divisions: (0..16).map(|power| of_power(power).unwrap_or(0)).collect(),
    }
}
