//! First pass: what the planes are called and what their numbers mean.
//!
//! Lines come before the tables that explain them, so this pass jumps over every line and reads only the tables, and
//! those only of planes that matter. It decides, once for each table entry, how the second pass treats an event or a
//! stat, so that the second pass only looks numbers up.

use std::io;
use std::ops::Range;

use rustc_hash::FxHashMap;

use super::walk::{self, Head, Next};
use crate::event::{Framework, Hardware, History, Region, Vendor};
use crate::names::{Name, Names};
use crate::source::input::Stream;
use crate::source::wire::{Cursor, Value};
use crate::units::{Bytes, Nanos};

/// What a plane is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlaneRole {
    /// Host threads: memory events, ops, steps.
    Host,
    /// A device's streams: kernel times.
    Device,
    /// Facts about the profile in stats; no lines.
    Facts,
    /// Anything else, which is skipped.
    Other,
}

impl PlaneRole {
    fn of(name: &[u8]) -> PlaneRole {
        match name {
            b"/host:CPU" => PlaneRole::Host,
            b"Task Environment" | b"/host:metadata" => PlaneRole::Facts,
            _ if name.starts_with(b"/device:GPU:") => PlaneRole::Device,
            _ => PlaneRole::Other,
        }
    }
}

/// How the second pass treats an event, by its metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Alloc,
    Free,
    /// An op that ran, `name:Type`; the entry's name is the op's.
    Op,
    /// An API call that makes tensors.
    Api,
    /// A call of a JAX function.
    Jit,
    /// Frequent and of no use: not looked into.
    Noise,
    /// May be a step: its stats tell.
    Other,
}

/// An entry of a plane's event table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventEntry {
    pub(crate) class: Class,
    pub(crate) name: Name,
}

/// What a stat says, by its name on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatKind {
    AllocatorName,
    DeviceOrdinal,
    BytesReserved,
    BytesAllocated,
    BytesAvailable,
    Fragmentation,
    PeakBytesInUse,
    RequestedBytes,
    AllocationBytes,
    Address,
    TfOp,
    RunId,
    RegionType,
    DataType,
    Shape,
    StepNumber,
    FunctionCall,
    Other,
}

impl StatKind {
    /// How many there are.
    pub(crate) const COUNT: usize = StatKind::Other as usize + 1;
}

impl StatKind {
    fn of(name: &[u8]) -> StatKind {
        match name {
            b"allocator_name" => StatKind::AllocatorName,
            b"index_on_host" | b"device_ordinal" => StatKind::DeviceOrdinal,
            b"bytes_reserved" => StatKind::BytesReserved,
            b"bytes_allocated" => StatKind::BytesAllocated,
            b"bytes_available" => StatKind::BytesAvailable,
            b"fragmentation" => StatKind::Fragmentation,
            b"peak_bytes_in_use" => StatKind::PeakBytesInUse,
            b"requested_bytes" => StatKind::RequestedBytes,
            b"allocation_bytes" => StatKind::AllocationBytes,
            b"addr" => StatKind::Address,
            b"tf_op" => StatKind::TfOp,
            b"id" => StatKind::RunId,
            b"region_type" => StatKind::RegionType,
            b"data_type" => StatKind::DataType,
            b"shape" => StatKind::Shape,
            b"step_num" => StatKind::StepNumber,
            b"tf_function_call" => StatKind::FunctionCall,
            _ => StatKind::Other,
        }
    }
}

/// An entry of a plane's stat table. Stats refer to entries both for what they say and, as `ref`, for their value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StatEntry {
    pub(crate) kind: StatKind,
    pub(crate) name: Name,
    /// What the name means as the value of a `region_type`.
    pub(crate) region: Region,
}

/// The purpose of an allocation, by TensorFlow's word for it.
pub(crate) fn region_of(text: &[u8]) -> Region {
    match text {
        b"output" => Region::Output,
        b"temp" => Region::Temp,
        b"persist" => Region::Persist,
        b"dynamic" => Region::Dynamic,
        _ => Region::Unknown,
    }
}

/// A table by id. Ids are small and dense in practice but may be any number.
#[derive(Debug)]
pub(crate) struct IdTable<T> {
    dense: Vec<Option<T>>,
    sparse: FxHashMap<u64, T>,
}

impl<T> Default for IdTable<T> {
    fn default() -> Self {
        IdTable { dense: Vec::new(), sparse: FxHashMap::default() }
    }
}

impl<T: Copy> IdTable<T> {
    const DENSE: u64 = 1 << 16;

    /// A later entry of the same id replaces an earlier one, as protobuf maps do.
    fn insert(&mut self, id: u64, entry: T) {
        match usize::try_from(id) {
            Ok(at) if id < Self::DENSE => {
                if at >= self.dense.len() {
                    self.dense.resize(at.saturating_add(1), None);
                }
                if let Some(slot) = self.dense.get_mut(at) {
                    *slot = Some(entry);
                }
            }
            _ => {
                self.sparse.insert(id, entry);
            }
        }
    }

    #[inline(always)]
    pub(crate) fn get(&self, id: u64) -> Option<T> {
        match usize::try_from(id).ok().and_then(|at| self.dense.get(at)) {
            Some(entry) => *entry,
            None if self.sparse.is_empty() => None,
            None => self.sparse.get(&id).copied(),
        }
    }

    fn is_empty(&self) -> bool {
        self.dense.is_empty() && self.sparse.is_empty()
    }
}

/// What the first pass knows of a plane.
#[derive(Debug)]
pub(crate) struct Plane {
    pub(crate) role: PlaneRole,
    pub(crate) events: IdTable<EventEntry>,
    pub(crate) stats: IdTable<StatEntry>,
    /// Its lines: where each begins and how long it is.
    pub(crate) lines: Vec<Range<u64>>,
    /// Entries that may hold a compiled program: where each begins and ends.
    pub(crate) programs: Vec<Range<u64>>,
    facts: Vec<Vec<u8>>,
}

/// What the first pass found.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// Every plane, in the order of the file.
    pub(crate) planes: Vec<Plane>,
    /// Where the file ends too early, if it does.
    pub(crate) cut_at: Option<u64>,
    /// Where the first bytes stand that are no message.
    pub(crate) malformed_at: Option<u64>,
    /// Whether the cut took away the tables of host threads whose lines are there.
    pub(crate) lost_tables: bool,
}

/// More programs than these are not looked at.
const MOST_PROGRAMS: usize = 1 << 16;

/// More facts than these about one plane are not read.
const MOST_FACTS: usize = 1024;
const LONGEST_FACT: u64 = 1 << 16;

/// Reads the index; facts about the process and the profiler go into `history`.
pub(crate) fn read(stream: &mut Stream, history: &mut History) -> io::Result<Index> {
    let mut index = Index::default();
    loop {
        let at = stream.position();
        match walk::next(stream, u64::MAX)? {
            // At the top, the end of the file is the end of the message, if it falls between two fields.
            Next::Cut if stream.window().is_empty() && at == stream.position() => break,
            Next::End => break,
            Next::Cut => {
                index.cut_at.get_or_insert(at);
                break;
            }
            Next::Malformed => {
                index.malformed_at.get_or_insert(at);
                break;
            }
            Next::Field(1, Head::Length(length)) => {
                let end = stream.position().saturating_add(length);
                read_plane(stream, end, &mut index, history)?;
                skip_to(stream, end, &mut index)?;
            }
            Next::Field(number @ 2..=4, Head::Length(length)) => {
                let end = stream.position().saturating_add(length);
                let text = String::from_utf8_lossy(&walk::text(stream, length)?).into_owned();
                match number {
                    4 if history.host.is_empty() => history.host = text,
                    4 => {}
                    _ => history.warnings.add("profiler", format!("the profiler reported: {text}"), ""),
                }
                skip_to(stream, end, &mut index)?;
            }
            Next::Field(_, Head::Length(length)) => {
                let end = stream.position().saturating_add(length);
                skip_to(stream, end, &mut index)?;
            }
            Next::Field(..) => {}
        }
    }
    index.lost_tables = index
        .planes
        .iter()
        .any(|plane| plane.role == PlaneRole::Host && !plane.lines.is_empty() && plane.events.is_empty());
    Ok(index)
}

/// Moves to `end`, which may lie behind the end of the file.
fn skip_to(stream: &mut Stream, end: u64, index: &mut Index) -> io::Result<()> {
    let left = end.saturating_sub(stream.position());
    if stream.skip(left)? < left {
        index.cut_at.get_or_insert(stream.position());
    }
    Ok(())
}

fn read_plane(stream: &mut Stream, end: u64, index: &mut Index, history: &mut History) -> io::Result<()> {
    let mut plane = Plane {
        role: PlaneRole::Other,
        events: IdTable::default(),
        stats: IdTable::default(),
        lines: Vec::new(),
        programs: Vec::new(),
        facts: Vec::new(),
    };
    let mut name: Option<Vec<u8>> = None;
    loop {
        let at = stream.position();
        // Before the name is known anything may matter.
        let wanted = name.is_none() || plane.role != PlaneRole::Other;
        match walk::next(stream, end)? {
            Next::End => break,
            Next::Cut => {
                index.cut_at.get_or_insert(at);
                break;
            }
            Next::Malformed => {
                index.malformed_at.get_or_insert(at);
                break;
            }
            Next::Field(2, Head::Length(length)) => {
                let text = walk::text(stream, length)?;
                plane.role = PlaneRole::of(&text);
                name = Some(text);
            }
            Next::Field(3, Head::Length(length)) => {
                if wanted {
                    plane.lines.push(stream.position()..stream.position().saturating_add(length));
                }
                stream.skip(length)?;
            }
            Next::Field(4, Head::Length(length)) if wanted && plane.role != PlaneRole::Facts => {
                let entry_end = stream.position().saturating_add(length);
                if let Some((id, text)) = read_entry(stream, entry_end)? {
                    plane.events.insert(id, classify(&text, history));
                }
                skip_to(stream, entry_end, index)?;
            }
            Next::Field(4, Head::Length(length)) if plane.role == PlaneRole::Facts => {
                let begin = stream.position();
                if plane.programs.len() < MOST_PROGRAMS {
                    plane.programs.push(begin..begin.saturating_add(length));
                }
                skip_to(stream, begin.saturating_add(length), index)?;
            }
            Next::Field(5, Head::Length(length)) if wanted => {
                let entry_end = stream.position().saturating_add(length);
                if let Some((id, text)) = read_entry(stream, entry_end)? {
                    let name = history.names.intern(&String::from_utf8_lossy(&text));
                    plane
                        .stats
                        .insert(id, StatEntry { kind: StatKind::of(&text), name, region: region_of(&text) });
                }
                skip_to(stream, entry_end, index)?;
            }
            Next::Field(6, Head::Length(length)) if wanted && length <= LONGEST_FACT => {
                let fact = walk::text(stream, length)?;
                if plane.facts.len() < MOST_FACTS {
                    plane.facts.push(fact);
                }
            }
            Next::Field(_, Head::Length(length)) => {
                stream.skip(length)?;
            }
            Next::Field(..) => {}
        }
    }
    if !matches!(plane.role, PlaneRole::Host | PlaneRole::Device) {
        plane.lines = Vec::new();
    }
    if plane.role == PlaneRole::Other {
        plane = Plane { events: IdTable::default(), stats: IdTable::default(), ..plane };
    }
    history.recorder.has_host_threads |= plane.role == PlaneRole::Host && !plane.lines.is_empty();
    history.recorder.has_gpu |= plane.role == PlaneRole::Device;
    take_facts(&plane, history);
    if plane.role == PlaneRole::Device && history.hardware.len() < MOST_FACTS {
        history.hardware.extend(name.and_then(|name| hardware(&plane, &name, &history.names)));
    }
    index.planes.push(plane);
    Ok(())
}

/// An entry of a map from id to metadata: the id and the name. `None` where it has no id.
fn read_entry(stream: &mut Stream, end: u64) -> io::Result<Option<(u64, Vec<u8>)>> {
    let mut key = None;
    let mut own_id = None;
    let mut name = Vec::new();
    loop {
        match walk::next(stream, end)? {
            Next::Field(1, Head::Varint(id)) => key = Some(id),
            Next::Field(2, Head::Length(length)) => {
                let value_end = stream.position().saturating_add(length);
                loop {
                    match walk::next(stream, value_end)? {
                        Next::Field(1, Head::Varint(id)) => own_id = Some(id),
                        Next::Field(2, Head::Length(length)) => name = walk::text(stream, length)?,
                        Next::Field(_, Head::Length(length)) => {
                            stream.skip(length)?;
                        }
                        Next::Field(..) => {}
                        Next::End => break,
                        Next::Cut | Next::Malformed => return Ok(None),
                    }
                }
            }
            Next::Field(_, Head::Length(length)) => {
                stream.skip(length)?;
            }
            Next::Field(..) => {}
            Next::End => break,
            Next::Cut | Next::Malformed => return Ok(None),
        }
    }
    // A key of zero is left out on the wire.
    Ok(Some((key.or(own_id).unwrap_or(0), name)))
}

fn classify(text: &[u8], history: &mut History) -> EventEntry {
    let recorder = &mut history.recorder;
    let (class, shown) = match text {
        b"MemoryAllocation" => (Class::Alloc, text),
        b"MemoryDeallocation" => (Class::Free, text),
        // `$file.py:12 function`
        [b'$', ..] => (Class::Noise, &b""[..]),
        b"cuMemAllocAsync" | b"cudaMallocAsync" | b"cuMemAllocFromPoolAsync" | b"cudaMallocFromPoolAsync" => {
            recorder.calls_malloc_async = true;
            (Class::Noise, &b""[..])
        }
        b"tf.constant" | b"convert_to_tensor" => (Class::Api, text),
        _ if text.starts_with(b"PjitFunction(") => (Class::Jit, text),
        _ if text.starts_with(b"ThreadpoolListener::") || text.starts_with(b"ExecutorState::") => {
            (Class::Noise, &b""[..])
        }
        _ => match op_part(text) {
            Some(op) => {
                recorder.shows_tf_ops = true;
                (Class::Op, op)
            }
            None => (Class::Other, text),
        },
    };
    EventEntry { class, name: history.names.intern(&String::from_utf8_lossy(shown)) }
}

/// `scope/MatMul:MatMul` is the op `scope/MatMul`. C++ names (`a::b`) and sentences are none.
fn op_part(text: &[u8]) -> Option<&[u8]> {
    let colon = text.iter().rposition(|&byte| byte == b':')?;
    let (op, kind) = (text.get(..colon)?, text.get(colon + 1..)?);
    let is_type = kind.first().is_some_and(|byte| byte.is_ascii_uppercase() || *byte == b'_')
        && kind.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
    let is_op =
        !op.is_empty() && op.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_./\\->".contains(byte));
    (is_type && is_op).then_some(op)
}

/// A stat of a plane: the number of its name, and its value as far as it is a whole number, or text or bytes.
fn fact_of(fact: &[u8]) -> (u64, Option<u64>, Option<&[u8]>) {
    let (mut id, mut number, mut bytes) = (0, None, None);
    let mut cursor = Cursor(fact);
    while let Ok(Some((field, value))) = cursor.field() {
        match (field, value) {
            (1, Value::Varint(value)) => id = value,
            (3 | 4, Value::Varint(value)) => number = Some(value),
            (5 | 6, Value::Bytes(value)) => bytes = Some(value),
            _ => {}
        }
    }
    (id, number, bytes)
}

/// What the stats of a device's plane, `/device:GPU:0`, say about it.
fn hardware(plane: &Plane, name: &[u8], names: &Names) -> Option<Hardware> {
    let ordinal = std::str::from_utf8(name).ok()?.strip_prefix("/device:GPU:")?.parse::<u32>().ok()?;
    let mut told = Hardware { device: format!("GPU:{ordinal}"), ..Hardware::default() };
    let (mut major, mut minor) = (None, None);
    for fact in &plane.facts {
        let (id, number, bytes) = fact_of(fact);
        let Some(entry) = plane.stats.get(id) else { continue };
        match names.get(entry.name) {
            "device_vendor" => {
                told.vendor = bytes.and_then(|text| std::str::from_utf8(text).ok()).and_then(Vendor::told);
            }
            "memory_size" => told.memory = number.map(Bytes),
            "compute_cap_major" => major = number,
            "compute_cap_minor" => minor = number,
            _ => {}
        }
    }
    told.compute = major.zip(minor);
    Some(told).filter(|told| told.vendor.is_some() || told.compute.is_some() || told.memory.is_some())
}

/// Facts about the process and the profiler, from the stats of a plane.
fn take_facts(plane: &Plane, history: &mut History) {
    for fact in &plane.facts {
        let (id, number, bytes) = fact_of(fact);
        let Some(entry) = plane.stats.get(id) else { continue };
        match history.names.get(entry.name) {
            "process_id" => history.pid = history.pid.or(number),
            "jax_version" | "jaxlib_version" => history.framework = Some(Framework::Jax),
            "profile_start_time" => {
                history.wall_clock_zero = number.and_then(|ns| i64::try_from(ns).ok()).map(Nanos);
            }
            "profile_options" => history.recorder.host_tracer_level = bytes.and_then(host_tracer_level),
            _ => {}
        }
    }
}

/// `host_tracer_level` of a serialized `ProfileOptions`; a level of zero is left out on the wire.
fn host_tracer_level(options: &[u8]) -> Option<u64> {
    let mut cursor = Cursor(options);
    let mut level = 0;
    while let Some((field, value)) = cursor.field().ok()? {
        if let (2, Value::Varint(value)) = (field, value) {
            level = value;
        }
    }
    Some(level)
}

impl Plane {
    /// The text of a `ref`, as a name.
    #[inline]
    pub(crate) fn reference(&self, id: u64) -> Name {
        self.stats.get(id).map_or(Name::EMPTY, |entry| entry.name)
    }

    /// The text of a `ref`.
    pub(crate) fn reference_text<'n>(&self, id: u64, names: &'n Names) -> &'n str {
        names.get(self.reference(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_are_told_from_cpp_names() {
        let op = |text: &'static str| op_part(text.as_bytes()).map(|op| std::str::from_utf8(op).unwrap());
        assert_eq!(op("StatefulPartitionedCall/adam/Add:AddV2"), Some("StatefulPartitionedCall/adam/Add"));
        assert_eq!(op("a/MatMul:_MklMatMul"), Some("a/MatMul"));
        assert_eq!(op("IteratorGetNextOp::DoCompute"), None);
        assert_eq!(op("EagerLocalExecute: Cast"), None);
        assert_eq!(op("Iterator::Root::Prefetch"), None);
        assert_eq!(op("XlaModule:"), None);
    }

    #[test]
    fn ids_may_be_any_number() {
        let mut table = IdTable::default();
        for id in [0, 7, 65_535, 65_536, u64::MAX] {
            table.insert(id, id);
            table.insert(id, id.wrapping_add(1));
            assert_eq!(table.get(id), Some(id.wrapping_add(1)));
        }
        assert_eq!(table.get(6), None);
        assert_eq!(table.get(70_000), None);
    }
}
