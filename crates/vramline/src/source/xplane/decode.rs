//! Second pass, inner part: the events of one block of one line, decoded into columns, whatever their form.
//!
//! A block is a run of whole events of one line. Blocks are decoded by several threads in any order, so nothing here
//! depends on what another block holds: times are offsets from the line's start, texts that stand inline get names
//! of the decoder's own table, and scopes that reach over a block's edge are reported for the caller to join.

use std::io::Read;
use std::ops::Range;

use flate2::read::GzDecoder;

use super::index::{Class, Plane, PlaneRole, StatKind, region_of};
use super::quick::Templates;
use crate::event::{Batch, Dtype, Event, ExecutorRun, Kind, MarkKind, OpTime, Pool, PoolId, Region};
use crate::names::{Name, Names};
use crate::source::wire::{Cursor, Malformed, Value, signed};
use crate::units::{Bytes, Picos, Span};

/// A name with this bit set is from the decoder's own table.
const OWN: u32 = 1 << 31;

/// A `compressed_str` unpacks to at most this much.
const LONGEST_UNPACKED: u64 = 1 << 16;

/// Open scopes deeper than this are not followed.
const DEEPEST: usize = 64;

/// A named stretch of a thread's time, with times as offsets from the line's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenScope {
    pub(crate) name: Name,
    end: Picos,
}

/// A mark, with its time as an offset from the line's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawMark {
    pub(crate) name: Name,
    pub(crate) kind: MarkKind,
    pub(crate) begin: Picos,
    pub(crate) length: Span,
}

/// What one block held.
#[derive(Debug)]
pub(crate) struct Decoded {
    /// Its events, in the decoder's batch.
    pub(crate) events: Range<usize>,
    pub(crate) marks: Vec<RawMark>,
    /// Scopes still open at the end of the block, outermost first.
    pub(crate) open: Vec<OpenScope>,
    /// Allocations (in the decoder's batch) that no scope inside the block encloses, though one of an earlier may.
    pub(crate) unnamed: Vec<usize>,
    /// For each pool of the block, its first event with a high-water mark, and that mark.
    pub(crate) first_peaks: Vec<(PoolId, Picos, Bytes)>,
    /// The pools of the block, with the highest count of each so far.
    pub(super) pools: Vec<(Name, PoolId, Bytes)>,
}

/// Figures that a pool tells with every event, though they only matter where its count reaches a new height.
pub(super) struct Counts {
    pub(super) reserved: Option<Bytes>,
    pub(super) available: Option<Bytes>,
    pub(super) peak: Option<Bytes>,
}

/// The innermost of `scopes` that is open at `time`.
pub(crate) fn enclosing(scopes: &[OpenScope], time: Picos) -> Option<Name> {
    scopes.iter().rev().find(|scope| scope.end > time).map(|scope| scope.name)
}

/// Joins the scopes open before a block with those open after it.
pub(crate) fn join_open(before: &mut Vec<OpenScope>, after: Vec<OpenScope>, time: Picos) {
    before.retain(|scope| scope.end > time);
    before.extend(after);
    before.truncate(DEEPEST);
}

/// What a decoder gathers over all its blocks.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) events: Batch,
    pub(crate) own_names: Names,
    pub(crate) pools: Vec<(Name, Pool)>,
    /// Time by op, for names of the planes' tables.
    op_times: Vec<OpTime>,
    /// Time by op, for names of the decoder's own table.
    own_op_times: Vec<OpTime>,
    pub(crate) bare_events: u64,
    pub(crate) malformed: u64,
}

impl Tally {
    fn add_time(&mut self, op: Name, length: Span) {
        let (times, at) = match own_name(op) {
            Some(own) => (&mut self.own_op_times, own.0 as usize),
            None => (&mut self.op_times, op.0 as usize),
        };
        if at >= times.len() {
            times.resize(at.saturating_add(1), OpTime::default());
        }
        if let Some(time) = times.get_mut(at) {
            time.calls += 1;
            time.total += length;
        }
    }

    /// Time by op, for every op that was timed.
    pub(crate) fn op_times(&self) -> impl Iterator<Item = (Name, OpTime)> {
        let of_tables = (0..).map(Name).zip(self.op_times.iter().copied());
        let of_own = (0..).map(|number| own(Name(number))).zip(self.own_op_times.iter().copied());
        of_tables.chain(of_own).filter(|(_, time)| time.calls > 0)
    }
}

/// Decodes blocks, one after another.
pub(crate) struct Decoder<'a> {
    names: &'a Names,
    pub(crate) tally: Tally,
    unpacked: String,
    pub(super) templates: Templates,
}

#[derive(Clone, Copy)]
enum Stat<'a> {
    Double(f64),
    Uint(u64),
    Int(i64),
    Text(&'a [u8]),
    Ref(u64),
    Packed(&'a [u8]),
}

impl<'a> Decoder<'a> {
    /// `names` holds every text of the planes' tables; what is decoded goes into `events`.
    pub(crate) fn new(names: &'a Names, events: Batch) -> Self {
        let tally = Tally { events, ..Tally::default() };
        Decoder { names, tally, unpacked: String::new(), templates: Templates::default() }
    }

    /// Decodes the run of whole events at the front of a slice; says how long it is.
    pub(crate) fn block(&mut self, plane: &Plane, bytes: &[u8]) -> (Decoded, usize) {
        let begin = self.tally.events.len();
        let mut out = Decoded {
            events: begin..begin,
            marks: Vec::new(),
            open: Vec::new(),
            unnamed: Vec::new(),
            first_peaks: Vec::new(),
            pools: Vec::new(),
        };
        self.templates.begin(plane);
        let mut at = 0;
        loop {
            if let Some(next) = self.quick_event(plane, bytes, at, &mut out) {
                at = next;
                continue;
            }
            let rest = bytes.get(at..).unwrap_or_default();
            let Some((event, length)) = next_event(rest) else { break };
            let done = match plane.role {
                PlaneRole::Host => self.host_event(plane, event, &mut out),
                _ => self.device_event(plane, event),
            };
            self.tally.malformed += u64::from(done.is_err());
            at += length;
        }
        out.events.end = self.tally.events.len();
        (out, at)
    }

    pub(super) fn op_event(&mut self, op: Name, begin: Picos, duration: i64, out: &mut Decoded) {
        let length = Span(u64::try_from(duration).unwrap_or(0));
        self.tally.add_time(op, length);
        open_scope(out, op, begin, length);
    }

    /// Puts a memory event into the batch. `counts` is there at least for the first event of a pool in a block, and
    /// wherever the pool's count is higher than before in that block: the limit does not change, and every high-water
    /// mark is told first by such an event.
    #[inline(always)]
    pub(super) fn keep(
        &mut self,
        mut event: Event,
        pool_name: Name,
        counts: Option<Counts>,
        out: &mut Decoded,
    ) {
        let known = out.pools.iter_mut().find(|(name, ..)| *name == pool_name);
        event.pool = match (known, &counts) {
            (Some((_, pool, _)), None) => *pool,
            _ => self.note_height(&event, pool_name, counts, out),
        };
        if event.kind == Kind::Alloc && event.op.is_empty() {
            match enclosing(&out.open, event.time) {
                Some(context) => event.context = context,
                None => out.unnamed.push(self.tally.events.len()),
            }
        }
        self.tally.events.push(&event);
    }

    /// Adds the figures of a pool at a new maximum.
    #[cold]
    fn note_height(
        &mut self,
        event: &Event,
        pool_name: Name,
        counts: Option<Counts>,
        out: &mut Decoded,
    ) -> PoolId {
        let counts = counts.unwrap_or(Counts { reserved: None, available: None, peak: None });
        let limit = match (event.in_use, counts.available) {
            (Some(in_use), Some(available)) => Some(in_use + available + counts.reserved.unwrap_or_default()),
            _ => None,
        };
        let id = self.pool(pool_name, limit, counts.peak);
        let level = event.in_use.unwrap_or_default();
        match out.pools.iter_mut().find(|(name, ..)| *name == pool_name) {
            Some((_, _, highest)) => *highest = level.max(*highest),
            None => out.pools.push((pool_name, id, level)),
        }
        if let Some(peak) = counts.peak {
            note_first_peak(&mut out.first_peaks, id, event.time, peak);
        }
        id
    }

    fn host_event(&mut self, plane: &Plane, bytes: &[u8], out: &mut Decoded) -> Result<(), Malformed> {
        let head = EventHead::read(bytes)?;
        let Some(entry) = plane.events.get(head.metadata) else { return Ok(()) };
        let begin = Picos(head.offset);
        let length = Span(u64::try_from(head.duration).unwrap_or(0));
        match entry.class {
            Class::Noise => {}
            Class::Alloc => self.memory_event(plane, &head, Kind::Alloc, out)?,
            Class::Free => self.memory_event(plane, &head, Kind::Free, out)?,
            Class::Op => self.op_event(entry.name, begin, head.duration, out),
            Class::Api => open_scope(out, entry.name, begin, length),
            Class::Jit => {
                open_scope(out, entry.name, begin, length);
                out.marks.push(RawMark { name: entry.name, kind: MarkKind::Jit, begin, length });
            }
            Class::Other => {
                if let Some(kind) = self.step_of(plane, head.stats)? {
                    out.marks.push(RawMark { name: entry.name, kind, begin, length });
                }
            }
        }
        Ok(())
    }

    /// Whether the stats of an event make it a step.
    fn step_of(&mut self, plane: &Plane, stats: Cursor<'_>) -> Result<Option<MarkKind>, Malformed> {
        let mut found = None;
        let mut stats = Stats(stats);
        while let Some((id, value)) = stats.next()? {
            match plane.stats.get(id).map(|entry| entry.kind) {
                Some(StatKind::StepNumber) => {
                    if let Some(number) = self.integer(plane, value) {
                        return Ok(Some(MarkKind::Step(number)));
                    }
                }
                Some(StatKind::FunctionCall) => found = Some(MarkKind::Function),
                _ => {}
            }
        }
        Ok(found)
    }

    /// A kernel: its time goes to the op that launched it.
    fn device_event(&mut self, plane: &Plane, bytes: &[u8]) -> Result<(), Malformed> {
        let head = EventHead::read(bytes)?;
        let mut stats = Stats(head.stats);
        while let Some((id, value)) = stats.next()? {
            let is_op = plane.stats.get(id).is_some_and(|entry| entry.kind == StatKind::TfOp);
            let (true, Stat::Ref(id)) = (is_op, value) else { continue };
            // `scope/op:Type`; for code that XLA compiled, `XlaModule:`.
            let text = plane.reference_text(id, self.names);
            let op = text.rsplit_once(':').map_or(text, |(op, _)| op);
            let name = match self.names.find(op) {
                Some(name) => name,
                None => own(self.tally.own_names.intern(op)),
            };
            self.tally.add_time(name, Span(u64::try_from(head.duration).unwrap_or(0)));
            break;
        }
        Ok(())
    }

    fn memory_event(
        &mut self,
        plane: &Plane,
        head: &EventHead<'_>,
        kind: Kind,
        out: &mut Decoded,
    ) -> Result<(), Malformed> {
        let mut event = Event::bare(Picos(head.offset), kind);
        let (mut reserved, mut available, mut peak) = (None, None, None);
        let mut pool_name = Name::EMPTY;
        let mut stats = Stats(head.stats);
        while let Some((id, value)) = stats.next()? {
            let Some(entry) = plane.stats.get(id) else { continue };
            match entry.kind {
                StatKind::AllocatorName => pool_name = self.name(plane, value),
                StatKind::DeviceOrdinal if pool_name.is_empty() => {
                    pool_name = match self.integer(plane, value) {
                        Some(ordinal) => own(self.tally.own_names.intern(&format!("TPU:{ordinal}"))),
                        None => Name::EMPTY,
                    };
                }
                StatKind::BytesReserved => reserved = self.size(plane, value),
                StatKind::BytesAllocated => event.in_use = self.size(plane, value),
                StatKind::BytesAvailable => available = self.size(plane, value),
                StatKind::Fragmentation => event.fragmentation = self.fraction(plane, value),
                StatKind::PeakBytesInUse => peak = self.size(plane, value),
                StatKind::RequestedBytes => event.requested = self.size(plane, value),
                StatKind::AllocationBytes => event.chunk = self.size(plane, value),
                StatKind::Address => event.address = self.integer(plane, value).map(i64::cast_unsigned),
                StatKind::TfOp => event.op = self.name(plane, value),
                StatKind::RunId => {
                    event.executor_run = self.integer(plane, value).and_then(ExecutorRun::new);
                }
                StatKind::RegionType => event.region = self.region(plane, value),
                StatKind::DataType => {
                    event.dtype = self.integer(plane, value).map_or(Dtype::Unknown, dtype_of);
                }
                StatKind::Shape => event.shape = self.name(plane, value),
                _ => {}
            }
        }
        // Nothing to count and nothing to pair: not worth a row.
        if event.in_use.is_none() && event.chunk.is_none() && event.requested.is_none() {
            // A TPU's frees tell the address only.
            if event.address.is_none() {
                self.tally.bare_events += 1;
                return Ok(());
            }
        }
        self.keep(event, pool_name, Some(Counts { reserved, available, peak }), out);
        Ok(())
    }

    fn pool(&mut self, name: Name, limit: Option<Bytes>, peak: Option<Bytes>) -> PoolId {
        let pools = &mut self.tally.pools;
        let at = match pools.iter().rposition(|(known, _)| *known == name) {
            Some(at) => at,
            // No program has sixty thousand allocators; a file that says so gets its last ones in one.
            None if pools.len() >= usize::from(u16::MAX) => pools.len() - 1,
            None => {
                pools.push((name, Pool::default()));
                pools.len() - 1
            }
        };
        if let Some((_, pool)) = pools.get_mut(at) {
            pool.limit = pool.limit.max(limit);
            pool.lifetime_peak = pool.lifetime_peak.max(peak);
        }
        PoolId(u16::try_from(at).unwrap_or(u16::MAX))
    }

    #[inline(always)]
    fn name(&mut self, plane: &Plane, value: Stat<'_>) -> Name {
        if let Stat::Ref(id) = value { plane.reference(id) } else { self.inline_name(plane, value) }
    }

    #[cold]
    fn inline_name(&mut self, plane: &Plane, value: Stat<'_>) -> Name {
        self.unpack(plane, value);
        match self.names.find(&self.unpacked) {
            Some(name) => name,
            None => own(self.tally.own_names.intern(&self.unpacked)),
        }
    }

    /// Any value as text, into `self.unpacked`.
    #[cold]
    fn unpack(&mut self, plane: &Plane, value: Stat<'_>) {
        self.unpacked.clear();
        match value {
            Stat::Text(text) => self.unpacked.push_str(&String::from_utf8_lossy(text)),
            Stat::Ref(id) => self.unpacked.push_str(plane.reference_text(id, self.names)),
            Stat::Int(value) => self.unpacked.push_str(&value.to_string()),
            Stat::Uint(value) => self.unpacked.push_str(&value.to_string()),
            Stat::Double(value) => self.unpacked.push_str(&value.to_string()),
            Stat::Packed(bytes) => {
                let mut text = Vec::new();
                // What unpacks before an error or the limit is taken.
                let _ = GzDecoder::new(bytes).take(LONGEST_UNPACKED).read_to_end(&mut text);
                self.unpacked.push_str(&String::from_utf8_lossy(&text));
            }
        }
    }

    #[inline(always)]
    fn integer(&mut self, plane: &Plane, value: Stat<'_>) -> Option<i64> {
        match value {
            Stat::Int(value) => Some(value),
            Stat::Uint(value) => Some(value.cast_signed()),
            _ => self.odd_integer(plane, value),
        }
    }

    /// An integer in a form that no writer is known to choose.
    #[cold]
    fn odd_integer(&mut self, plane: &Plane, value: Stat<'_>) -> Option<i64> {
        if let Stat::Double(value) = value {
            #[expect(clippy::cast_possible_truncation, reason = "float to int casts saturate")]
            return value.is_finite().then_some(value as i64);
        }
        self.unpack(plane, value);
        let text = self.unpacked.trim();
        text.parse().ok().or_else(|| text.parse::<u64>().ok().map(u64::cast_signed))
    }

    /// A number of bytes. Old writers give those of a free as a negative number.
    #[inline(always)]
    fn size(&mut self, plane: &Plane, value: Stat<'_>) -> Option<Bytes> {
        self.integer(plane, value).map(|value| Bytes(value.unsigned_abs()))
    }

    #[inline]
    fn fraction(&mut self, plane: &Plane, value: Stat<'_>) -> Option<f32> {
        // Writers give six digits; zero has no decimal point in their text, so it comes as an integer.
        #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "six digits")]
        match value {
            Stat::Double(value) => Some(value as f32),
            Stat::Int(value) => Some(value as f32),
            Stat::Uint(value) => Some(value as f32),
            Stat::Text(_) | Stat::Ref(_) | Stat::Packed(_) => {
                self.unpack(plane, value);
                self.unpacked.trim().parse().ok()
            }
        }
    }

    fn region(&mut self, plane: &Plane, value: Stat<'_>) -> Region {
        self.unpack(plane, value);
        region_of(self.unpacked.as_bytes())
    }
}

fn note_first_peak(firsts: &mut Vec<(PoolId, Picos, Bytes)>, pool: PoolId, time: Picos, peak: Bytes) {
    match firsts.iter_mut().find(|(known, ..)| *known == pool) {
        Some((_, first, mark)) if time < *first => (*first, *mark) = (time, peak),
        Some(_) => {}
        None => firsts.push((pool, time, peak)),
    }
}

fn open_scope(out: &mut Decoded, name: Name, begin: Picos, length: Span) {
    while out.open.last().is_some_and(|scope| scope.end <= begin) {
        out.open.pop();
    }
    if length > Span(0) && out.open.len() < DEEPEST {
        out.open.push(OpenScope { name, end: begin.after(length) });
    }
}

fn own(name: Name) -> Name {
    if name.is_empty() { name } else { Name(name.0 | OWN) }
}

/// The name in a decoder's own table, if it is from there.
pub(crate) fn own_name(name: Name) -> Option<Name> {
    (name.0 & OWN != 0).then_some(Name(name.0 & !OWN))
}

/// The event that begins a slice, and its length with tag and all; `None` where none does, or it is not whole.
fn next_event(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let mut cursor = Cursor(bytes.strip_prefix(&[0x22])?);
    let length = cursor.varint().ok()?;
    let event = cursor.take(length).ok()?;
    Some((event, bytes.len() - cursor.0.len()))
}

/// The scalar fields of an `XEvent`, and the whole of it, where its stats are.
struct EventHead<'a> {
    metadata: u64,
    offset: i64,
    duration: i64,
    stats: Cursor<'a>,
}

impl<'a> EventHead<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut head = EventHead { metadata: 0, offset: 0, duration: 0, stats: Cursor(bytes) };
        let mut cursor = Cursor(bytes);
        while let Some((field, value)) = cursor.field()? {
            match (field, value) {
                (1, Value::Varint(value)) => head.metadata = value,
                (2, Value::Varint(value)) => head.offset = signed(value),
                (3, Value::Varint(value)) => head.duration = signed(value),
                _ => {}
            }
        }
        Ok(head)
    }
}

/// The stats of an event, one after another, whatever their form.
struct Stats<'a>(Cursor<'a>);

impl<'a> Stats<'a> {
    /// The next stat that has a value: its metadata id and the value.
    fn next(&mut self) -> Result<Option<(u64, Stat<'a>)>, Malformed> {
        while let Some((field, value)) = self.0.field()? {
            if let (4, Value::Bytes(bytes)) = (field, value)
                && let Some(stat) = read_stat(bytes)?
            {
                return Ok(Some(stat));
            }
        }
        Ok(None)
    }
}

/// A stat's id and value; `None` where it has no value.
fn read_stat(bytes: &[u8]) -> Result<Option<(u64, Stat<'_>)>, Malformed> {
    let mut cursor = Cursor(bytes);
    let mut id = 0;
    let mut stat = None;
    while let Some((field, value)) = cursor.field()? {
        match (field, value) {
            (1, Value::Varint(value)) => id = value,
            (2, Value::Fixed64(bits)) => stat = Some(Stat::Double(f64::from_bits(bits))),
            (3, Value::Varint(value)) => stat = Some(Stat::Uint(value)),
            (4, Value::Varint(value)) => stat = Some(Stat::Int(signed(value))),
            (5 | 6, Value::Bytes(text)) => stat = Some(Stat::Text(text)),
            (7, Value::Varint(id)) => stat = Some(Stat::Ref(id)),
            (8, Value::Bytes(packed)) => stat = Some(Stat::Packed(packed)),
            _ => {}
        }
    }
    Ok(stat.map(|stat| (id, stat)))
}

/// TensorFlow's `DataType` numbers. References to variables are a hundred more.
pub(super) fn dtype_of(number: i64) -> Dtype {
    match number % 100 {
        1 => Dtype::F32,
        2 => Dtype::F64,
        3 => Dtype::I32,
        4 => Dtype::U8,
        5 => Dtype::I16,
        6 => Dtype::I8,
        7 => Dtype::Text,
        8 => Dtype::C64,
        9 => Dtype::I64,
        10 => Dtype::Bool,
        11..=13 | 15 | 16 => Dtype::Quantized,
        14 => Dtype::Bf16,
        17 => Dtype::U16,
        18 => Dtype::C128,
        19 => Dtype::F16,
        20 => Dtype::Resource,
        21 => Dtype::Variant,
        22 => Dtype::U32,
        23 => Dtype::U64,
        24 => Dtype::F8E5M2,
        25 => Dtype::F8E4M3,
        29 => Dtype::I4,
        30 => Dtype::U4,
        _ => Dtype::Unknown,
    }
}
