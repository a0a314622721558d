//! What happened, when, in which pool: the history that a profiler recorded.
//!
//! Events are kept in columns, one vector a field, with names interned, because traces hold tens of millions of
//! them. A history holds facts as the source told them; pairing, peaks and roles are the business of
//! [`crate::trace`]. Constraint: a field the source did not tell is `None`, never zero.

use crate::names::{Name, Names};
use crate::units::{Bytes, Nanos, Picos, Span};
use crate::warning::Warnings;

/// Which framework wrote a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framework {
    /// TensorFlow.
    TensorFlow,
    /// JAX.
    Jax,
}

impl Framework {
    /// The word used in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Framework::TensorFlow => "tensorflow",
            Framework::Jax => "jax",
        }
    }

    /// The name as people write it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Framework::TensorFlow => "TensorFlow",
            Framework::Jax => "JAX",
        }
    }
}

/// What an event did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Bytes were handed out.
    Alloc,
    /// Bytes came back.
    Free,
}

/// For what purpose the framework asked, where it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Region {
    /// The source does not say.
    #[default]
    Unknown,
    /// A tensor that the op returns.
    Output,
    /// Scratch of the op.
    Temp,
    /// State that outlives the op.
    Persist,
    /// Memory whose size is known only at run time.
    Dynamic,
}

/// The element type of a tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Dtype {
    #[default]
    Unknown,
    Bool,
    I4,
    I8,
    I16,
    I32,
    I64,
    U4,
    U8,
    U16,
    U32,
    U64,
    F8E4M3,
    F8E5M2,
    F16,
    Bf16,
    F32,
    F64,
    C64,
    C128,
    Quantized,
    Text,
    Resource,
    Variant,
}

impl Dtype {
    /// The name as frameworks print it; empty where unknown.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Dtype::Unknown => "",
            Dtype::Bool => "bool",
            Dtype::I4 => "int4",
            Dtype::I8 => "int8",
            Dtype::I16 => "int16",
            Dtype::I32 => "int32",
            Dtype::I64 => "int64",
            Dtype::U4 => "uint4",
            Dtype::U8 => "uint8",
            Dtype::U16 => "uint16",
            Dtype::U32 => "uint32",
            Dtype::U64 => "uint64",
            Dtype::F8E4M3 => "float8_e4m3",
            Dtype::F8E5M2 => "float8_e5m2",
            Dtype::F16 => "float16",
            Dtype::Bf16 => "bfloat16",
            Dtype::F32 => "float32",
            Dtype::F64 => "float64",
            Dtype::C64 => "complex64",
            Dtype::C128 => "complex128",
            Dtype::Quantized => "quantized",
            Dtype::Text => "string",
            Dtype::Resource => "resource",
            Dtype::Variant => "variant",
        }
    }

    /// Whether models keep their weights in such numbers.
    #[must_use]
    pub fn is_floating(self) -> bool {
        use Dtype::{Bf16, C64, C128, F8E4M3, F8E5M2, F16, F32, F64};
        matches!(self, F8E4M3 | F8E5M2 | F16 | Bf16 | F32 | F64 | C64 | C128)
    }

    /// Whether this is a handle to something else rather than a tensor's data.
    #[must_use]
    pub fn is_handle(self) -> bool {
        matches!(self, Dtype::Resource | Dtype::Variant)
    }
}

/// The number of a pool within its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolId(pub u16);

/// One memory event, as it enters and leaves the columns.
#[derive(Clone, Copy, Debug)]
pub struct Event {
    /// When.
    pub time: Picos,
    /// Allocation or free.
    pub kind: Kind,
    /// In which pool.
    pub pool: PoolId,
    /// Where the block begins.
    pub address: Option<u64>,
    /// What the caller asked for.
    pub requested: Option<Bytes>,
    /// What the allocator took for it: the request, rounded, plus what it did not split off.
    pub chunk: Option<Bytes>,
    /// Bytes in use in the pool after the event, by the allocator's own count.
    pub in_use: Option<Bytes>,
    /// Share of the free bytes outside the largest free block, by the allocator's own count.
    pub fragmentation: Option<f64>,
    /// The op that asked (on a free: the op that ran then); empty where not told.
    pub op: Name,
    /// The tensor's shape, as the framework writes it; empty where not told.
    pub shape: Name,
    /// Where no op is told: the innermost named scope of the thread around the event; empty where there is none.
    pub context: Name,
    /// The thread, as the profiler names it.
    pub thread: Name,
    /// The executor's run this belongs to; 0 where none.
    pub run: i64,
    /// The purpose.
    pub region: Region,
    /// The element type.
    pub dtype: Dtype,
}

/// Events in columns. Index `i` of every column is the same event.
#[derive(Clone, Debug, Default)]
pub struct Events {
    time: Vec<Picos>,
    address: Vec<u64>,
    requested: Vec<u64>,
    chunk: Vec<u64>,
    in_use: Vec<u64>,
    fragmentation: Vec<f64>,
    run: Vec<i64>,
    op: Vec<Name>,
    shape: Vec<Name>,
    context: Vec<Name>,
    thread: Vec<Name>,
    pool: Vec<PoolId>,
    kind: Vec<Kind>,
    region: Vec<Region>,
    dtype: Vec<Dtype>,
}

/// What stands in a column of integers for "not told". No real address or size comes near it.
const ABSENT: u64 = u64::MAX;

fn told(value: Option<&u64>) -> Option<u64> {
    value.copied().filter(|&value| value != ABSENT)
}

/// Does the same to every column.
macro_rules! each_column {
    ($events:expr, $column:ident => $do:expr) => {{
        each_column!(@ $events, $column => $do; time address requested chunk in_use fragmentation run
                     op shape context thread pool kind region dtype);
    }};
    (@ $events:expr, $column:ident => $do:expr; $($field:ident)*) => {$({
        let $column = &mut $events.$field;
        $do;
    })*};
}

impl Events {
    /// How many events there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.time.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.time.is_empty()
    }

    /// Appends one event.
    pub fn push(&mut self, event: &Event) {
        self.time.push(event.time);
        self.address.push(event.address.unwrap_or(ABSENT));
        self.requested.push(event.requested.map_or(ABSENT, |bytes| bytes.0));
        self.chunk.push(event.chunk.map_or(ABSENT, |bytes| bytes.0));
        self.in_use.push(event.in_use.map_or(ABSENT, |bytes| bytes.0));
        self.fragmentation.push(event.fragmentation.unwrap_or(f64::NAN));
        self.run.push(event.run);
        self.op.push(event.op);
        self.shape.push(event.shape);
        self.context.push(event.context);
        self.thread.push(event.thread);
        self.pool.push(event.pool);
        self.kind.push(event.kind);
        self.region.push(event.region);
        self.dtype.push(event.dtype);
    }

    /// When event `i` happened. Like every accessor here it answers for any index; past the end, with "not told".
    #[must_use]
    pub fn time(&self, i: usize) -> Picos {
        self.time.get(i).copied().unwrap_or_default()
    }

    /// Whether event `i` is an allocation.
    #[must_use]
    pub fn is_alloc(&self, i: usize) -> bool {
        self.kind.get(i) == Some(&Kind::Alloc)
    }

    /// The pool of event `i`.
    #[must_use]
    pub fn pool(&self, i: usize) -> PoolId {
        self.pool.get(i).copied().unwrap_or(PoolId(u16::MAX))
    }

    /// The address of event `i`.
    #[must_use]
    pub fn address(&self, i: usize) -> Option<u64> {
        told(self.address.get(i))
    }

    /// What event `i` asked for or gave back.
    #[must_use]
    pub fn requested(&self, i: usize) -> Option<Bytes> {
        told(self.requested.get(i)).map(Bytes)
    }

    /// What the allocator took for it.
    #[must_use]
    pub fn chunk(&self, i: usize) -> Option<Bytes> {
        told(self.chunk.get(i)).map(Bytes)
    }

    /// The block of event `i`: what the allocator took or, where only that is told, what was asked for.
    #[must_use]
    pub fn size(&self, i: usize) -> Option<Bytes> {
        self.chunk(i).or_else(|| self.requested(i))
    }

    /// Bytes in use after event `i`, by the allocator's own count.
    #[must_use]
    pub fn in_use(&self, i: usize) -> Option<Bytes> {
        told(self.in_use.get(i)).map(Bytes)
    }

    /// Fragmentation after event `i`, by the allocator's own count.
    #[must_use]
    pub fn fragmentation(&self, i: usize) -> Option<f64> {
        self.fragmentation.get(i).copied().filter(|value| value.is_finite())
    }

    /// The executor's run of event `i`; 0 where none.
    #[must_use]
    pub fn run(&self, i: usize) -> i64 {
        self.run.get(i).copied().unwrap_or(0)
    }

    /// The op of event `i`.
    #[must_use]
    pub fn op(&self, i: usize) -> Name {
        self.op.get(i).copied().unwrap_or(Name::EMPTY)
    }

    /// The shape at event `i`.
    #[must_use]
    pub fn shape(&self, i: usize) -> Name {
        self.shape.get(i).copied().unwrap_or(Name::EMPTY)
    }

    /// The named scope around event `i`, where no op is told.
    #[must_use]
    pub fn context(&self, i: usize) -> Name {
        self.context.get(i).copied().unwrap_or(Name::EMPTY)
    }

    /// The thread of event `i`.
    #[must_use]
    pub fn thread(&self, i: usize) -> Name {
        self.thread.get(i).copied().unwrap_or(Name::EMPTY)
    }

    /// The purpose of event `i`.
    #[must_use]
    pub fn region(&self, i: usize) -> Region {
        self.region.get(i).copied().unwrap_or_default()
    }

    /// The element type at event `i`.
    #[must_use]
    pub fn dtype(&self, i: usize) -> Dtype {
        self.dtype.get(i).copied().unwrap_or_default()
    }

    /// Reserves room for `more` events, so that appending chunk after chunk does not copy the columns again and again.
    pub(crate) fn reserve(&mut self, more: usize) {
        each_column!(self, column => column.reserve_exact(more));
    }

    /// Appends another set of events and gives its memory back column by column.
    pub(crate) fn append(&mut self, mut other: Events) {
        macro_rules! move_columns {
            ($($field:ident)*) => {$( self.$field.append(&mut std::mem::take(&mut other.$field)); )*};
        }
        move_columns!(time address requested chunk in_use fragmentation run op shape context thread pool kind region dtype);
    }

    /// Rewrites what a reader could not know when it decoded a chunk.
    pub(crate) fn settle(
        &mut self,
        time: impl Fn(Picos) -> Picos,
        name: impl Fn(Name) -> Name,
        pool: impl Fn(PoolId) -> PoolId,
        thread: Name,
    ) {
        self.time.iter_mut().for_each(|value| *value = time(*value));
        self.op.iter_mut().for_each(|value| *value = name(*value));
        self.shape.iter_mut().for_each(|value| *value = name(*value));
        self.context.iter_mut().for_each(|value| *value = name(*value));
        self.pool.iter_mut().for_each(|value| *value = pool(*value));
        self.thread.fill(thread);
    }

    /// Names the scope around event `i`, which lay outside the chunk that the event was decoded from.
    pub(crate) fn set_context(&mut self, i: usize, context: Name) {
        if let Some(value) = self.context.get_mut(i) {
            *value = context;
        }
    }

    /// Puts the events in order of time; events of one moment keep the order in which they were pushed.
    ///
    /// Threads are recorded one after another, each nearly in order, so the stable sort finds a few long runs. Two
    /// threads share the columns out between them: this is a third of the time that a large trace takes.
    pub(crate) fn sort_by_time(&mut self) {
        if self.time.is_sorted() {
            return;
        }
        let Ok(count) = u32::try_from(self.len()) else { return };
        let mut order: Vec<(Picos, u32)> = self.time.iter().copied().zip(0..count).collect();
        order.sort_by_key(|&(time, _)| time);
        let order: Vec<u32> = order.into_iter().map(|(_, i)| i).collect();
        self.permute(&order);
    }

    /// Event `order[i]` becomes event `i`.
    pub(crate) fn permute(&mut self, order: &[u32]) {
        fn gather<T: Copy>(column: &mut Vec<T>, order: &[u32]) {
            let sorted = order.iter().filter_map(|&i| column.get(i as usize).copied()).collect();
            *column = sorted;
        }
        let Events { time, address, requested, chunk, in_use, fragmentation, run, op, shape, context, thread, pool, kind, region, dtype } =
            self;
        std::thread::scope(|threads| {
            threads.spawn(move || {
                gather(time, order);
                gather(address, order);
                gather(requested, order);
                gather(op, order);
                gather(shape, order);
                gather(pool, order);
                gather(kind, order);
            });
            gather(chunk, order);
            gather(in_use, order);
            gather(fragmentation, order);
            gather(run, order);
            gather(thread, order);
            gather(context, order);
            gather(region, order);
            gather(dtype, order);
        });
    }
}

/// What the events tell of a pool apart from single allocations.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// The allocator's name, as the framework gives it.
    pub name: String,
    /// Bytes the pool may hold: in use plus available. `None` where the source tells neither.
    pub limit: Option<Bytes>,
    /// The highest in-use figure since the process began, also before the recording.
    pub lifetime_peak: Option<Bytes>,
    /// The same high-water mark as the pool's first event told it, with that event's time.
    pub first_lifetime_peak: Option<(Picos, Bytes)>,
}

/// A stretch of time that the source marks as one call of the training program.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// What the source calls it.
    pub name: Name,
    /// Which sort of mark.
    pub kind: MarkKind,
    /// The thread it is on: marks nest within a thread.
    pub thread: Name,
    /// When it began.
    pub begin: Picos,
    /// How long it took.
    pub length: Span,
}

/// Where a [`Mark`] comes from, best evidence first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// The program named its step, with this number.
    Step(i64),
    /// A call of a compiled TensorFlow function.
    Function,
    /// A call of a compiled JAX function.
    Jit,
}

/// Time that an op took, summed over its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpTime {
    /// How many calls.
    pub calls: u64,
    /// All of them together.
    pub total: Span,
}

/// What a source shows of the way it was recorded: evidence for why something is missing.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// The profiler's host tracer level, where the source keeps it.
    pub host_tracer_level: Option<u64>,
    /// Whether there are any host threads in the source.
    pub has_host_threads: bool,
    /// How many events there are on host threads, memory events included.
    pub host_events: u64,
    /// Whether the source shows work on a GPU.
    pub has_gpu: bool,
    /// Whether host threads show driver calls of the stream-ordered allocator.
    pub calls_malloc_async: bool,
    /// Whether host threads show TensorFlow ops.
    pub shows_tf_ops: bool,
    /// Whether Python frames were traced.
    pub has_python_frames: bool,
    /// Memory events without an address or a size, which were left out.
    pub bare_events: u64,
}

/// Everything that one source tells: the sink that a reader fills.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The table behind every [`Name`] here.
    pub names: Names,
    /// The pools, by [`PoolId`].
    pub pools: Vec<Pool>,
    /// The memory events, in order of time.
    pub events: Events,
    /// Calls of the training program, in order of time.
    pub marks: Vec<Mark>,
    /// Time by op.
    pub op_times: rustc_hash::FxHashMap<Name, OpTime>,
    /// The source's clock at [`Picos`] zero.
    pub origin: Nanos,
    /// The wall-clock time of the source clock's zero, where the source tells it.
    pub wall_clock_zero: Option<Nanos>,
    /// The framework, where the source shows it.
    pub framework: Option<Framework>,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: Option<u64>,
    /// How it was recorded.
    pub recorder: Recorder,
    /// What went wrong on the way.
    pub warnings: Warnings,
}

impl History {
    /// The facts of a pool.
    #[must_use]
    pub fn pool(&self, id: PoolId) -> Option<&Pool> {
        self.pools.get(usize::from(id.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: i64) -> Event {
        Event {
            time: Picos(time),
            kind: Kind::Alloc,
            pool: PoolId(0),
            address: u64::try_from(time).ok(),
            requested: Some(Bytes(1)),
            chunk: None,
            in_use: None,
            fragmentation: None,
            op: Name::EMPTY,
            shape: Name::EMPTY,
            context: Name::EMPTY,
            thread: Name::EMPTY,
            run: time,
            region: Region::Output,
            dtype: Dtype::F32,
        }
    }

    #[test]
    fn sorting_moves_whole_events() {
        let mut events = Events::default();
        for time in [5, 1, 3, 2, 4] {
            events.push(&at(time));
        }
        events.sort_by_time();
        for i in 0..5 {
            let expected = i64::try_from(i).unwrap() + 1;
            assert_eq!(events.time(i), Picos(expected));
            assert_eq!(events.run(i), expected);
            assert_eq!(events.address(i), u64::try_from(expected).ok());
        }
    }

    #[test]
    fn what_was_not_told_is_none() {
        let mut events = Events::default();
        events.push(&at(0));
        assert_eq!(events.chunk(0), None);
        assert_eq!(events.in_use(0), None);
        assert_eq!(events.fragmentation(0), None);
        assert_eq!(events.requested(0), Some(Bytes(1)));
        assert_eq!(events.requested(1), None);
    }
}
