//! What happened, when, in which pool: the history that a profiler recorded.
//!
//! Events are kept in columns, one vector a field, with names interned, because traces hold tens of millions of
//! them. A history holds facts as the source told them; pairing, peaks and roles are the business of
//! [`crate::trace`]. Constraint: a field the source did not tell is `None`, never zero.

pub mod caching;

use std::cmp::Reverse;
use std::collections::binary_heap::{BinaryHeap, PeekMut};
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;

pub use crate::dtype::Dtype;
use crate::executable::Executable;
use crate::names::{Name, Names};
use crate::pages::{Page, zeros};
use crate::stack::{Stack, Stacks};
use crate::units::{Bytes, Nanos, Picos, Span};
use crate::warning::Warnings;
pub use caching::{Cached, Caching, OutOfMemory, StreamUse};

/// Which framework wrote a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framework {
    /// TensorFlow.
    TensorFlow,
    /// JAX.
    Jax,
    /// PyTorch.
    PyTorch,
}

impl Framework {
    /// The word used in JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Framework::TensorFlow => "tensorflow",
            Framework::Jax => "jax",
            Framework::PyTorch => "pytorch",
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
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
    /// Share of the free bytes outside the largest free block, by the allocator's own count. Readers may leave it out
    /// where the pool's count is not the highest so far.
    pub fragmentation: Option<f32>,
    /// The op that asked (on a free: the op that ran then); empty where not told.
    pub op: Name,
    /// The tensor's shape, as the framework writes it; empty where not told.
    pub shape: Name,
    /// Where no op is told: the innermost named scope of the thread around the event; empty where there is none.
    pub context: Name,
    /// The executor's run this belongs to; 0 where none. Sources that tell call stacks have no runs and keep the number
    /// of the [`Stack`] here.
    pub run: i64,
    /// The purpose.
    pub region: Region,
    /// The element type.
    pub dtype: Dtype,
}

impl Event {
    /// An event of which nothing else is known.
    #[must_use]
    pub fn bare(time: Picos, kind: Kind) -> Event {
        Event {
            time,
            kind,
            pool: PoolId(0),
            address: None,
            requested: None,
            chunk: None,
            in_use: None,
            fragmentation: None,
            op: Name::EMPTY,
            shape: Name::EMPTY,
            context: Name::EMPTY,
            run: 0,
            region: Region::Unknown,
            dtype: Dtype::Unknown,
        }
    }
}

/// What stands in a column of integers for "not told". No real address or size comes near it.
const ABSENT: u64 = u64::MAX;

/// Pool, kind, region, element type, and whether the name is an op's or a scope's, in one word.
#[derive(Clone, Copy, Debug)]
struct Traits(u32);

impl Traits {
    const FREE: u32 = 1;
    const SCOPE: u32 = 2;
    const REGION_AT: u32 = 2;
    const DTYPE_AT: u32 = 8;
    const POOL_AT: u32 = 16;

    #[inline]
    fn of(event: &Event) -> Traits {
        let free = if event.kind == Kind::Free { Traits::FREE } else { 0 };
        let scope = if event.op.is_empty() && !event.context.is_empty() { Traits::SCOPE } else { 0 };
        let region = (event.region as u32) << Traits::REGION_AT;
        let dtype = (event.dtype as u32) << Traits::DTYPE_AT;
        Traits(free | scope | region | dtype | u32::from(event.pool.0) << Traits::POOL_AT)
    }

    #[inline]
    fn is(self, flag: u32) -> bool {
        self.0 & flag != 0
    }

    #[inline]
    fn pool(self) -> PoolId {
        PoolId((self.0 >> Traits::POOL_AT) as u16)
    }

    fn with_pool(self, pool: PoolId) -> Traits {
        Traits(self.0 & ((1 << Traits::POOL_AT) - 1) | u32::from(pool.0) << Traits::POOL_AT)
    }

    fn region(self) -> Region {
        match self.0 >> Traits::REGION_AT & 7 {
            1 => Region::Output,
            2 => Region::Temp,
            3 => Region::Persist,
            4 => Region::Dynamic,
            _ => Region::Unknown,
        }
    }

    fn dtype(self) -> Dtype {
        Dtype::ALL.get((self.0 >> Traits::DTYPE_AT & 0xff) as usize).copied().unwrap_or_default()
    }
}

/// Values that few events have, by the index of the event, apart from the columns.
#[derive(Clone, Debug)]
struct Sparse<T>(Vec<(u32, T)>);

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Sparse(Vec::new())
    }
}

impl<T: Copy> Sparse<T> {
    /// Events come in order, so that what is kept is sorted.
    #[cold]
    fn push(&mut self, at: usize, value: T) {
        self.0.extend(u32::try_from(at).map(|at| (at, value)));
    }

    fn get(&self, at: usize) -> Option<T> {
        let found = self.0.binary_search_by_key(&at, |&(at, _)| at as usize).ok()?;
        self.0.get(found).map(|&(_, value)| value)
    }
}

/// A size as half a word; what needs more, which is hardly any block, stands apart.
#[derive(Clone, Copy)]
struct HalfSize(u32);

impl HalfSize {
    const ABSENT: u32 = u32::MAX;
    const APART: u32 = u32::MAX - 1;

    #[inline]
    fn of(size: Option<Bytes>, at: usize, apart: &mut Sparse<Bytes>) -> HalfSize {
        let Some(size) = size else { return HalfSize(HalfSize::ABSENT) };
        if size.0 < u64::from(HalfSize::APART) {
            return HalfSize(size.0 as u32);
        }
        apart.push(at, size);
        HalfSize(HalfSize::APART)
    }

    #[inline]
    fn told(self, at: usize, apart: &Sparse<Bytes>) -> Option<Bytes> {
        match self.0 {
            HalfSize::ABSENT => None,
            HalfSize::APART => apart.get(at),
            size => Some(Bytes(u64::from(size))),
        }
    }
}

/// Two halves in one word.
#[inline]
fn word(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

#[inline]
fn low(word: u64) -> u32 {
    word as u32
}

#[inline]
fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The columns of a segment, each of words, in the order in which they stand in its page.
#[derive(Clone, Copy)]
enum Column {
    Time,
    Address,
    InUse,
    /// What was asked for, and the chunk, each a [`HalfSize`].
    Sizes,
    /// The op or, where [`Traits::SCOPE`] says so, the scope around the event; and the shape.
    Names,
    /// [`Traits`], and the number of the run among the batch's.
    Traits,
}

impl Column {
    const COUNT: usize = 6;
}

/// Events in one segment: what fits a page, less a few, because columns a whole number of small pages apart would
/// contend for the same lines of the cache.
const SEGMENT: usize = 43_608;
const _: () = assert!(SEGMENT * Column::COUNT <= Page::WORDS);

/// A stretch of events in columns: index `i` of every column is the same event.
#[derive(Clone, Debug)]
struct Segment {
    page: Page,
    len: usize,
    /// Told at every event, kept where a pool reaches a new height.
    fragmentation: Sparse<f32>,
    requested: Sparse<Bytes>,
    chunk: Sparse<Bytes>,
    /// The threads, each from an index on; in order once the batches are merged.
    threads: Vec<(u32, Name)>,
    /// The runs of the batch, by number; there once the batches are merged.
    runs: Arc<[i64]>,
}

impl Segment {
    fn new(page: Page) -> Segment {
        Segment {
            page,
            len: 0,
            fragmentation: Sparse::default(),
            requested: Sparse::default(),
            chunk: Sparse::default(),
            threads: Vec::new(),
            runs: Arc::default(),
        }
    }

    #[inline(always)]
    fn push(&mut self, event: &Event, run: u32) {
        let at = self.len;
        if at >= SEGMENT {
            return;
        }
        if let Some(value) = event.fragmentation {
            self.fragmentation.push(at, value);
        }
        let requested = HalfSize::of(event.requested, at, &mut self.requested);
        let chunk = HalfSize::of(event.chunk, at, &mut self.chunk);
        let op = if event.op.is_empty() { event.context } else { event.op };
        self.set(Column::Time, at, event.time.0.cast_unsigned());
        self.set(Column::Address, at, event.address.unwrap_or(ABSENT));
        self.set(Column::InUse, at, event.in_use.map_or(ABSENT, |bytes| bytes.0));
        self.set(Column::Sizes, at, word(requested.0, chunk.0));
        self.set(Column::Names, at, word(op.0, event.shape.0));
        self.set(Column::Traits, at, word(Traits::of(event).0, run));
        self.len += 1;
    }

    #[inline(always)]
    fn set(&mut self, column: Column, at: usize, word: u64) {
        if let Some(slot) = self.page.words_mut().get_mut(column as usize * SEGMENT + at) {
            *slot = word;
        }
    }

    #[inline(always)]
    fn get(&self, column: Column, at: usize) -> u64 {
        self.page.words().get(column as usize * SEGMENT + at).copied().unwrap_or_default()
    }

    /// Part of a column.
    fn part(&self, column: Column, part: Range<usize>) -> &[u64] {
        let begin = column as usize * SEGMENT;
        self.page.words().get(begin + part.start..begin + part.end.min(self.len)).unwrap_or_default()
    }

    fn change(&mut self, column: Column, part: Range<usize>, change: impl Fn(u64) -> u64) {
        let begin = column as usize * SEGMENT;
        let words = self.page.words_mut().get_mut(begin + part.start..begin + part.end.min(self.len));
        words.unwrap_or_default().iter_mut().for_each(|word| *word = change(*word));
    }
}

/// Numbers for the runs of the executor, which are few and random. Zero, which is none, has the number zero.
#[derive(Clone, Debug)]
struct Runs {
    ids: Vec<i64>,
    numbers: FxHashMap<i64, u32>,
    last: (i64, u32),
}

impl Default for Runs {
    fn default() -> Self {
        Runs { ids: vec![0], numbers: FxHashMap::default(), last: (0, 0) }
    }
}

impl Runs {
    #[inline]
    fn number(&mut self, id: i64) -> u32 {
        if id == 0 {
            return 0;
        }
        // A thread works on one run for a while.
        if id != self.last.0 {
            self.last = (id, self.find(id));
        }
        self.last.1
    }

    #[cold]
    fn find(&mut self, id: i64) -> u32 {
        // There are no more runs than events, and no more events than a place can tell apart.
        let next = u32::try_from(self.ids.len()).unwrap_or(0);
        let ids = &mut self.ids;
        *self.numbers.entry(id).or_insert_with(|| {
            ids.push(id);
            next
        })
    }
}

/// The events that one reader thread found, in the order in which it found them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Batch {
    segments: Vec<Segment>,
    len: usize,
    runs: Runs,
    is_for_many: bool,
    /// Room that a reader has done with: it need not be asked of the kernel again.
    spare: Vec<Page>,
}

impl Batch {
    /// A batch of which it is known that it will hold many events.
    pub(crate) fn for_many() -> Batch {
        Batch { is_for_many: true, ..Batch::default() }
    }

    /// Takes room that is of no other use, whatever is in it.
    pub(crate) fn give(&mut self, pages: impl IntoIterator<Item = Page>) {
        self.spare.extend(pages);
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, event: &Event) {
        let run = self.runs.number(event.run);
        if self.segments.last().is_none_or(|segment| segment.len >= SEGMENT) {
            self.expand();
        }
        if let Some(segment) = self.segments.last_mut() {
            segment.push(event, run);
            self.len += 1;
        }
    }

    /// Most traces fill little of their first page, so that this one is not taken whole.
    #[cold]
    fn expand(&mut self) {
        let new = || if self.segments.is_empty() && !self.is_for_many { Page::new() } else { Page::large() };
        let page = self.spare.pop().unwrap_or_else(new);
        self.segments.push(Segment::new(page));
    }

    pub(crate) fn time(&self, at: usize) -> Picos {
        let segment = self.segments.get(at / SEGMENT);
        segment.map_or(Picos(0), |segment| Picos(segment.get(Column::Time, at % SEGMENT).cast_signed()))
    }

    /// Names the scope around event `at`, which its reader could not see.
    pub(crate) fn set_context(&mut self, at: usize, context: Name) {
        let Some(segment) = self.segments.get_mut(at / SEGMENT) else { return };
        let part = at % SEGMENT..at % SEGMENT + 1;
        segment.change(Column::Names, part.clone(), |names| word(context.0, high(names)));
        segment.change(Column::Traits, part, |traits| traits | u64::from(Traits::SCOPE));
    }

    /// Rewrites what a reader could not know when it decoded the events `range`: on which axis the times are, the
    /// thread and, unless the reader's numbers happen to be right already, names and pools.
    pub(crate) fn settle(
        &mut self,
        range: Range<usize>,
        shift: i64,
        thread: Name,
        name: &Option<impl Fn(Name) -> Name>,
        pool: &Option<impl Fn(PoolId) -> PoolId>,
    ) {
        let mut begin = range.start;
        while begin < range.end {
            let end = range.end.min((begin / SEGMENT + 1) * SEGMENT);
            let Some(segment) = self.segments.get_mut(begin / SEGMENT) else { return };
            let part = begin % SEGMENT..begin % SEGMENT + (end - begin);
            segment.threads.extend(u32::try_from(part.start).map(|start| (start, thread)));
            if let Some(name) = name {
                let name = |half: u32| name(Name(half)).0;
                segment
                    .change(Column::Names, part.clone(), |names| word(name(low(names)), name(high(names))));
            }
            if let Some(pool) = pool {
                segment.change(Column::Traits, part.clone(), |traits| {
                    let settled = Traits(low(traits));
                    word(settled.with_pool(pool(settled.pool())).0, high(traits))
                });
            }
            if shift != 0 {
                let shifted = |time: u64| time.cast_signed().saturating_add(shift).cast_unsigned();
                segment.change(Column::Time, part, shifted);
            }
            begin = end;
        }
    }
}

/// Memory events in order of time.
///
/// Each reader thread leaves its columns as they are; the order is a list of places in them. Copying the columns into
/// one sorted set would cost more than reading them did.
#[derive(Clone, Debug, Default)]
pub struct Events {
    segments: Vec<Segment>,
    /// Each a [`Place`].
    order: Vec<u32>,
    /// Stretches of events of one moment each, in order.
    ties: Vec<Range<usize>>,
}

/// With fewer events a thread costs more than it saves.
pub(crate) const WORTH_A_THREAD: usize = 1 << 16;

/// The events of one thread: ranges of batches, in order of time or nearly so.
pub(crate) type Line = Vec<(usize, Range<usize>)>;

/// Where an event stands: the segment in the upper bits, the index in the lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place(u32);

impl Place {
    const INDEX_BITS: u32 = 16;

    /// `None` where there are more events than a place can tell apart: nearly three billion.
    fn new(segment: usize, index: usize) -> Option<Place> {
        let segment =
            u32::try_from(segment).ok().filter(|segment| segment >> (32 - Place::INDEX_BITS) == 0)?;
        let index = u32::try_from(index).ok().filter(|index| index >> Place::INDEX_BITS == 0)?;
        Some(Place(segment << Place::INDEX_BITS | index))
    }

    #[inline]
    fn segment(self) -> usize {
        (self.0 >> Place::INDEX_BITS) as usize
    }

    #[inline]
    fn index(self) -> usize {
        (self.0 & ((1 << Place::INDEX_BITS) - 1)) as usize
    }
}

/// Stretches of events of one moment.
#[derive(Default)]
struct Ties(Vec<Range<usize>>);

impl Ties {
    /// Event `at` is of the same moment as the one before it, if there is one.
    #[cold]
    fn note(&mut self, at: usize) {
        match self.0.last_mut() {
            Some(tie) if tie.end == at => tie.end += 1,
            _ => self.0.extend(at.checked_sub(1).map(|before| before..at + 1)),
        }
    }
}

/// The end of the part of a range at whose indices something holds; where it does, it does at all before.
fn range_until(range: &Range<usize>, holds: impl Fn(usize) -> bool) -> usize {
    let Range { mut start, mut end } = *range;
    while start < end {
        let middle = start + (end - start) / 2;
        if holds(middle) {
            start = middle + 1;
        } else {
            end = middle;
        }
    }
    start
}

/// One event where it stands. Answers for any index; past the end, with "not told".
#[derive(Clone, Copy, Debug)]
pub struct EventRef<'a> {
    segment: Option<&'a Segment>,
    at: usize,
}

impl EventRef<'_> {
    #[inline(always)]
    fn get(self, column: Column, absent: u64) -> u64 {
        self.segment.map_or(absent, |segment| segment.get(column, self.at))
    }

    #[inline(always)]
    fn traits(self) -> Traits {
        const NONE: u32 = Traits::FREE | (u16::MAX as u32) << Traits::POOL_AT;
        Traits(low(self.get(Column::Traits, word(NONE, 0))))
    }

    /// When the event happened.
    #[must_use]
    #[inline]
    pub fn time(self) -> Picos {
        Picos(self.get(Column::Time, 0).cast_signed())
    }

    /// Whether the event is an allocation.
    #[must_use]
    #[inline]
    pub fn is_alloc(self) -> bool {
        !self.traits().is(Traits::FREE)
    }

    /// The pool of the event.
    #[must_use]
    #[inline]
    pub fn pool(self) -> PoolId {
        self.traits().pool()
    }

    /// The address of the event.
    #[must_use]
    #[inline]
    pub fn address(self) -> Option<u64> {
        told(self.get(Column::Address, ABSENT))
    }

    /// What the event asked for or gave back.
    #[must_use]
    #[inline]
    pub fn requested(self) -> Option<Bytes> {
        let segment = self.segment?;
        HalfSize(low(segment.get(Column::Sizes, self.at))).told(self.at, &segment.requested)
    }

    /// What the allocator took for it.
    #[must_use]
    #[inline]
    pub fn chunk(self) -> Option<Bytes> {
        let segment = self.segment?;
        HalfSize(high(segment.get(Column::Sizes, self.at))).told(self.at, &segment.chunk)
    }

    /// Bytes in use after the event, by the allocator's own count.
    #[must_use]
    #[inline]
    pub fn in_use(self) -> Option<Bytes> {
        told(self.get(Column::InUse, ABSENT)).map(Bytes)
    }

    /// Fragmentation after the event, by the allocator's own count; kept only where a pool reaches a new height.
    #[must_use]
    pub fn fragmentation(self) -> Option<f32> {
        self.segment?.fragmentation.get(self.at).filter(|value| value.is_finite())
    }

    /// The executor's run of the event; 0 where none.
    #[must_use]
    #[inline]
    pub fn run(self) -> i64 {
        let number = high(self.get(Column::Traits, 0)) as usize;
        self.segment.and_then(|segment| segment.runs.get(number)).copied().unwrap_or(0)
    }

    /// The call stack of the event, in a source that tells stacks.
    #[must_use]
    pub fn stack(self) -> Stack {
        Stack(u32::try_from(self.run()).unwrap_or(0))
    }

    /// The shape at the event.
    #[must_use]
    #[inline]
    pub fn shape(self) -> Name {
        Name(high(self.get(Column::Names, 0)))
    }

    /// The thread of the event.
    #[must_use]
    pub fn thread(self) -> Name {
        let threads = self.segment.map_or(&[][..], |segment| &segment.threads);
        let after = threads.partition_point(|&(start, _)| start as usize <= self.at);
        after.checked_sub(1).and_then(|at| threads.get(at)).map_or(Name::EMPTY, |&(_, thread)| thread)
    }

    /// The purpose of the event.
    #[must_use]
    #[inline]
    pub fn region(self) -> Region {
        self.traits().region()
    }

    /// The element type at the event.
    #[must_use]
    #[inline]
    pub fn dtype(self) -> Dtype {
        self.traits().dtype()
    }

    /// The op of the event or, where none is told, the named scope around it.
    #[must_use]
    #[inline]
    pub fn op_or_scope(self) -> Name {
        Name(low(self.get(Column::Names, 0)))
    }

    /// Whether [`EventRef::op_or_scope`] is a scope.
    #[must_use]
    #[inline]
    pub fn is_scope(self) -> bool {
        self.traits().is(Traits::SCOPE)
    }

    /// The op of the event; empty where none is told.
    #[must_use]
    pub fn op(self) -> Name {
        if self.is_scope() { Name::EMPTY } else { self.op_or_scope() }
    }

    /// The named scope around the event, where no op is told.
    #[must_use]
    pub fn context(self) -> Name {
        if self.is_scope() { self.op_or_scope() } else { Name::EMPTY }
    }

    /// The block of the event: what the allocator took or, where only that is told, what was asked for.
    #[must_use]
    pub fn size(self) -> Option<Bytes> {
        self.chunk().or_else(|| self.requested())
    }
}

impl Events {
    /// Puts the events of batches in order. Events of one moment keep the order of the lines.
    pub(crate) fn merge(batches: Vec<Batch>, lines: &[Line]) -> Events {
        let mut bases = Vec::new();
        let mut segments: Vec<Segment> = Vec::new();
        for batch in batches {
            bases.push(segments.len());
            let runs: Arc<[i64]> = batch.runs.ids.into();
            for mut segment in batch.segments {
                segment.runs = Arc::clone(&runs);
                // A reader's pieces of one thread need not follow each other.
                segment.threads.sort_unstable_by_key(|&(start, _)| start);
                segments.push(segment);
            }
        }
        let mut events = Events { segments, ..Events::default() };
        // Where some thread is out of order by itself, everything is put in order from scratch.
        (events.order, events.ties) =
            events.merged_by_two(&bases, lines).unwrap_or_else(|| events.sorted(&bases, lines));
        events
    }

    /// Merges lines that are each in order, on two cores: one takes the earlier half of the time, one the later. `None`
    /// where a line is not in order.
    fn merged_by_two(&self, bases: &[usize], lines: &[Line]) -> Option<(Vec<u32>, Vec<Range<usize>>)> {
        let length = |line: &Line| line.iter().map(|(_, range)| range.len()).sum::<usize>();
        let count = lines.iter().map(length).sum();
        let mut order = zeros(count);
        if count < WORTH_A_THREAD {
            let ties = self.merged(bases, lines, &mut order)?;
            return Some((order, ties));
        }
        let time = |batch: usize, at: usize| Events::place(bases, batch, at).map(|place| self.time_of(place));
        let longest = lines.iter().max_by_key(|line| length(line))?;
        let (batch, range) = longest.get(longest.len() / 2)?;
        let middle = time(*batch, range.start)?;
        let mut halves = [Vec::new(), Vec::new()];
        for line in lines {
            let [mut earlier, mut later] = [Line::new(), Line::new()];
            for (batch, range) in line {
                let until = range_until(range, |at| time(*batch, at).is_some_and(|time| time <= middle));
                earlier.push((*batch, range.start..until));
                later.push((*batch, until..range.end));
            }
            halves.iter_mut().zip([earlier, later]).for_each(|(half, line)| half.push(line));
        }
        let [earlier, later] = halves;
        let cut = earlier.iter().map(length).sum();
        let (early_places, late_places) = order.split_at_mut_checked(cut)?;
        let (mut ties, late_ties) = std::thread::scope(|threads| {
            let late_ties = threads.spawn(|| self.merged(bases, &later, late_places));
            Some((self.merged(bases, &earlier, early_places)?, late_ties.join().ok()??))
        })?;
        // A line that is not in order may have been cut anywhere.
        let is_cut = |at: Option<&u32>, is_right: fn(&Picos, &Picos) -> bool| {
            at.is_none_or(|&place| is_right(&self.time_of(Place(place)), &middle))
        };
        if !is_cut(early_places.last(), Picos::le) || !is_cut(order.get(cut), Picos::gt) {
            return None;
        }
        ties.extend(late_ties.into_iter().map(|tie| tie.start + cut..tie.end + cut));
        Some((order, ties))
    }

    /// Merges lines that are each in order, a stretch at a time: threads take turns, but not at every event. `None`
    /// where a line is not in order. Fills `order`, and gives the ties in it.
    fn merged(&self, bases: &[usize], lines: &[Line], order: &mut [u32]) -> Option<Vec<Range<usize>>> {
        let mut ties = Ties::default();
        let mut order = order.iter_mut();
        let count = order.len();
        let is_filled = |(_, range): &&(usize, Range<usize>)| !range.is_empty();
        let reversed = |line: &Line| line.iter().rev().filter(is_filled).cloned().collect();
        let mut rest: Vec<Line> = lines.iter().map(reversed).collect();
        let head = |line: &Line| {
            let (batch, range) = line.last()?;
            Some(self.time_of(Events::place(bases, *batch, range.start)?))
        };
        let firsts = rest.iter().enumerate();
        let mut heads: BinaryHeap<_> =
            firsts.filter_map(|(number, line)| Some(Reverse((head(line)?, number)))).collect();
        let mut next = heads.pop();
        let mut last = Picos(i64::MIN);
        while let Some(Reverse((_, number))) = next {
            let limit = heads.peek().map_or((Picos(i64::MAX), usize::MAX), |Reverse(head)| *head);
            let line = rest.get_mut(number)?;
            // One range may span several segments, and a stretch several ranges.
            'stretch: while let Some((batch, range)) = line.last_mut() {
                let first = Events::place(bases, *batch, range.start)?;
                let segment = self.segments.get(first.segment())?;
                let times = segment.part(Column::Time, first.index()..first.index() + range.len());
                if times.is_empty() {
                    return None;
                }
                for (place, &time) in (first.0..).map(Place).zip(times) {
                    let time = Picos(time.cast_signed());
                    if (time, number) > limit {
                        break 'stretch;
                    }
                    if time <= last {
                        if time < last {
                            return None;
                        }
                        ties.note(count - order.len());
                    }
                    last = time;
                    *order.next()? = place.0;
                    range.start += 1;
                }
                if range.start >= range.end {
                    line.pop();
                }
            }
            // This line waits in the place of the one whose turn it is.
            next = match (head(line), heads.peek_mut()) {
                (Some(time), Some(mut first)) => {
                    Some(std::mem::replace(&mut *first, Reverse((time, number))))
                }
                (Some(time), None) => Some(Reverse((time, number))),
                (None, first) => first.map(PeekMut::pop),
            };
        }
        order.next().is_none().then_some(ties.0)
    }

    /// The events of lines in order of time, from any order.
    fn sorted(&self, bases: &[usize], lines: &[Line]) -> (Vec<u32>, Vec<Range<usize>>) {
        let ranges = lines.iter().flatten();
        let mut order: Vec<u32> = ranges
            .flat_map(|(batch, range)| range.clone().filter_map(|at| Events::place(bases, *batch, at)))
            .map(|place| place.0)
            .collect();
        let time = |&place: &u32| self.time_of(Place(place));
        order.sort_by_key(time);
        let mut ties = Ties::default();
        for (at, pair) in order.windows(2).enumerate() {
            if let [one, other] = pair
                && time(one) == time(other)
            {
                ties.note(at + 1);
            }
        }
        (order, ties.0)
    }

    fn place(bases: &[usize], batch: usize, at: usize) -> Option<Place> {
        Place::new(bases.get(batch)?.checked_add(at / SEGMENT)?, at % SEGMENT)
    }

    #[inline]
    fn time_of(&self, place: Place) -> Picos {
        self.event(place).time()
    }

    #[inline]
    fn event(&self, place: Place) -> EventRef<'_> {
        EventRef { segment: self.segments.get(place.segment()), at: place.index() }
    }

    /// How many events there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Event `i`.
    #[must_use]
    #[inline]
    pub fn at(&self, i: usize) -> EventRef<'_> {
        match self.order.get(i) {
            Some(&place) => self.event(Place(place)),
            None => EventRef { segment: None, at: 0 },
        }
    }

    /// Every event, in order of time.
    pub fn iter(&self) -> impl Iterator<Item = EventRef<'_>> {
        (0..self.len()).map(|i| self.at(i))
    }

    /// When event `i` happened.
    #[must_use]
    #[inline]
    pub fn time(&self, i: usize) -> Picos {
        self.at(i).time()
    }

    /// The first event that is not before `time`; how many there are where all are.
    #[must_use]
    pub(crate) fn first_from(&self, time: Picos) -> usize {
        self.order.partition_point(|&place| self.time_of(Place(place)) < time)
    }

    /// The first event after `time`; how many there are where none is.
    #[must_use]
    pub(crate) fn first_after(&self, time: Picos) -> usize {
        self.order.partition_point(|&place| self.time_of(Place(place)) <= time)
    }

    /// Every event, in no particular order: the shortest way through all of them.
    pub(crate) fn unordered(&self) -> impl Iterator<Item = EventRef<'_>> {
        self.segments
            .iter()
            .flat_map(|segment| (0..segment.len).map(move |at| EventRef { segment: Some(segment), at }))
    }

    /// Stretches of events of one moment each, in order.
    pub(crate) fn ties(&self) -> &[Range<usize>] {
        &self.ties
    }

    /// Puts the events `begin..begin + order.len()` into another order: `order[i]` becomes the `i`th of them.
    pub(crate) fn reorder(&mut self, begin: usize, order: &[usize]) {
        let places: Vec<u32> = order.iter().filter_map(|&event| self.order.get(event).copied()).collect();
        if let Some(part) = self.order.get_mut(begin..begin.saturating_add(places.len())) {
            part.copy_from_slice(&places);
        }
    }
}

#[inline]
fn told(value: u64) -> Option<u64> {
    (value != ABSENT).then_some(value)
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
    /// Whether the source begins before the pool's first allocation, where the source itself proves it.
    pub from_start: Option<bool>,
    /// What the allocator kept from the driver, where the source tells.
    pub caching: Option<Caching>,
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
    /// From the end of one update by the optimizer to the end of the next, counted.
    Update(i64),
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
    /// Whether the source shows work on a GPU.
    pub has_gpu: bool,
    /// Whether host threads show driver calls of the stream-ordered allocator.
    pub calls_malloc_async: bool,
    /// Whether host threads show TensorFlow ops.
    pub shows_tf_ops: bool,
    /// Memory events without an address or a size, which were left out.
    pub bare_events: u64,
}

/// Everything that one source tells: the sink that a reader fills.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The table behind every [`Name`] here.
    pub names: Names,
    /// The table behind every [`Stack`] here.
    pub stacks: Stacks,
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
    /// The same moment on the monotonic clock, which nobody sets; only a recording knows it.
    pub monotonic_zero: Option<Nanos>,
    /// The framework, where the source shows it.
    pub framework: Option<Framework>,
    /// Compiled programs that ran, where the source has them.
    pub executables: Vec<Executable>,
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

/// The device that a pool is on, by the name the frameworks give it; empty where that does not tell.
#[must_use]
pub fn device_of(pool: &str) -> String {
    if pool.contains("host") {
        return "HOST".to_owned();
    }
    let number = |rest: &str| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        (!digits.is_empty()).then_some(digits)
    };
    if let Some(ordinal) =
        pool.strip_prefix("GPU_").or_else(|| pool.strip_prefix("gpu_async_")).and_then(number)
    {
        return format!("GPU:{ordinal}");
    }
    if let Some(ordinal) = pool.strip_prefix("cuda:").and_then(number) {
        return format!("GPU:{ordinal}");
    }
    if pool.starts_with("TPU:") {
        return pool.to_owned();
    }
    if pool.contains("cpu") {
        return "CPU:0".to_owned();
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(time: i64) -> Event {
        Event {
            address: u64::try_from(time).ok(),
            requested: Some(Bytes(1)),
            run: time,
            region: Region::Output,
            dtype: Dtype::F32,
            ..Event::bare(Picos(time), Kind::Alloc)
        }
    }

    #[test]
    fn the_order_spans_batches_and_segments() {
        let count = SEGMENT + 3;
        let mut batches = vec![Batch::default(), Batch::default()];
        for time in 0..2 * count {
            batches[time % 2].push(&at(i64::try_from(time).unwrap()));
        }
        batches[1].settle(count - 4..count, 0, Name(3), &Some(|_| Name(5)), &None::<fn(PoolId) -> PoolId>);
        // The second line is given in two parts, the later one first: it is not in order by itself.
        let lines = [vec![(0, 0..count)], vec![(1, 9..count), (1, 0..9)]];
        let mut events = Events::merge(batches, &lines);
        assert!((0..2 * count).all(|i| events.at(i).run() == i64::try_from(i).unwrap()));
        let settled =
            (0..events.len()).filter(|&i| events.at(i).thread() == Name(3) && events.at(i).op() == Name(5));
        assert_eq!(settled.collect::<Vec<_>>(), (0..4).map(|k| 2 * (count - 4 + k) + 1).collect::<Vec<_>>());
        events.reorder(2, &[3, 2]);
        assert_eq!((1..5).map(|i| events.at(i).run()).collect::<Vec<_>>(), [1, 3, 2, 4]);
        assert_eq!(Place::new(1 << 16, 0), None);
    }

    #[test]
    fn traits_keep_what_was_put_in() {
        for dtype in Dtype::ALL {
            let event =
                Event { kind: Kind::Free, pool: PoolId(65_535), region: Region::Dynamic, dtype, ..at(0) };
            let traits = Traits::of(&event);
            assert_eq!(
                (traits.dtype(), traits.pool(), traits.region()),
                (dtype, PoolId(65_535), Region::Dynamic)
            );
            assert!(traits.is(Traits::FREE) && !traits.is(Traits::SCOPE));
            assert_eq!(traits.with_pool(PoolId(3)).pool(), PoolId(3));
        }
    }

    #[test]
    fn what_was_not_told_is_none() {
        let mut batch = Batch::default();
        batch.push(&at(0));
        batch.push(&Event { context: Name(7), ..at(1) });
        let events = Events::merge(vec![batch], &[vec![(0, 0..2)]]);
        assert_eq!(events.at(0).chunk(), None);
        assert_eq!(events.at(0).in_use(), None);
        assert_eq!(events.at(0).fragmentation(), None);
        assert_eq!(events.at(0).requested(), Some(Bytes(1)));
        assert_eq!((events.at(0).op(), events.at(0).context()), (Name::EMPTY, Name::EMPTY));
        assert_eq!((events.at(1).op(), events.at(1).context()), (Name::EMPTY, Name(7)));
        assert_eq!(events.at(1).region(), Region::Output);
        assert_eq!(events.at(2).requested(), None);
    }
}
