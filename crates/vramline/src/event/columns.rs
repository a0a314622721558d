//! Memory events in columns: what one reader thread found, packed into six words an event.

use std::ops::Range;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Dtype, Event, ExecutorRun, Kind, PoolId, Region};
use crate::names::Name;
use crate::pages::Page;
use crate::stack::Stack;
use crate::units::{Bytes, Picos};

/// The value for "unknown" in a column of integers. No real address or size comes near it.
const ABSENT: u64 = u64::MAX;

/// Pool, kind, region, element type, and what the event's name and number mean, in half a word.
#[derive(Clone, Copy, Debug)]
struct Traits(u32);

impl Traits {
    const FREE: u32 = 1;
    /// The name is that of a scope, not of an op.
    const SCOPE: u32 = 1 << 1;
    const REGION_AT: u32 = 2;
    /// The number is that of a stack, not of a run.
    const STACK: u32 = 1 << 5;
    /// The second name is that of a module's call, not a shape.
    const MODULE: u32 = 1 << 6;
    const DTYPE_AT: u32 = 8;
    const POOL_AT: u32 = 16;

    #[inline]
    fn of(event: &Event) -> Traits {
        let free = if event.kind == Kind::Free { Traits::FREE } else { 0 };
        let scope = if event.op.is_empty() && !event.context.is_empty() { Traits::SCOPE } else { 0 };
        let stack = if event.stack.is_empty() { 0 } else { Traits::STACK };
        let module = if event.module.is_empty() { 0 } else { Traits::MODULE };
        let region = (event.region as u32) << Traits::REGION_AT;
        let dtype = (event.dtype as u32) << Traits::DTYPE_AT;
        Traits(free | scope | stack | module | region | dtype | u32::from(event.pool.0) << Traits::POOL_AT)
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
pub(super) enum Column {
    Time,
    Address,
    InUse,
    /// The requested bytes and the chunk size, each a [`HalfSize`].
    Sizes,
    /// The op or, where [`Traits::SCOPE`] says so, the scope around the event; and the shape.
    Names,
    /// [`Traits`], and a number: of the stack where [`Traits::STACK`] says so, else of the run among the batch's.
    Traits,
}

impl Column {
    const COUNT: usize = 6;
}

/// Events in one segment: what fits a page, less a few, because columns a whole number of small pages apart would
/// contend for the same lines of the cache.
pub(super) const SEGMENT: usize = 43_608;
const _: () = assert!(SEGMENT * Column::COUNT <= Page::WORDS);

/// A stretch of events in columns: index `i` of every column is the same event.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    page: Page,
    len: usize,
    /// Told at every event, kept where a pool reaches a new height.
    fragmentation: Sparse<f32>,
    requested: Sparse<Bytes>,
    chunk: Sparse<Bytes>,
    /// The threads, each from an index on; in order once the batches are merged.
    threads: Vec<(u32, Name)>,
    /// The runs of the batch, by number; there once the batches are merged.
    runs: Arc<[Option<ExecutorRun>]>,
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
    fn push(&mut self, event: &Event, number: u32) {
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
        let shape = if event.module.is_empty() { event.shape } else { event.module };
        self.set(Column::Names, at, word(op.0, shape.0));
        self.set(Column::Traits, at, word(Traits::of(event).0, number));
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

    /// How many events are in it.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Part of a column.
    #[inline]
    pub(super) fn part(&self, column: Column, part: Range<usize>) -> &[u64] {
        let begin = column as usize * SEGMENT;
        self.page.words().get(begin + part.start..begin + part.end.min(self.len)).unwrap_or_default()
    }

    fn change(&mut self, column: Column, part: Range<usize>, change: impl Fn(u64) -> u64) {
        let begin = column as usize * SEGMENT;
        let words = self.page.words_mut().get_mut(begin + part.start..begin + part.end.min(self.len));
        words.unwrap_or_default().iter_mut().for_each(|word| *word = change(*word));
    }
}

/// Small numbers for the runs of the executor, which are few, with random numbers of their own. None has the number zero.
#[derive(Clone, Debug)]
struct Runs {
    by_number: Vec<Option<ExecutorRun>>,
    numbers: FxHashMap<ExecutorRun, u32>,
    last: (Option<ExecutorRun>, u32),
}

impl Default for Runs {
    fn default() -> Self {
        Runs { by_number: vec![None], numbers: FxHashMap::default(), last: (None, 0) }
    }
}

impl Runs {
    #[inline]
    fn number(&mut self, run: Option<ExecutorRun>) -> u32 {
        let Some(run) = run else { return 0 };
        // A thread works on one run for a while.
        if Some(run) != self.last.0 {
            self.last = (Some(run), self.find(run));
        }
        self.last.1
    }

    #[cold]
    fn find(&mut self, run: ExecutorRun) -> u32 {
        // There are no more runs than events, and no more events than a place can tell apart.
        let next = u32::try_from(self.by_number.len()).unwrap_or(0);
        let by_number = &mut self.by_number;
        *self.numbers.entry(run).or_insert_with(|| {
            by_number.push(Some(run));
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
        let number = match event.stack {
            Stack::EMPTY => self.runs.number(event.executor_run),
            stack => stack.number(),
        };
        if self.segments.last().is_none_or(|segment| segment.len >= SEGMENT) {
            self.expand();
        }
        if let Some(segment) = self.segments.last_mut() {
            segment.push(event, number);
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

    /// The columns, with what the batch knows of all of them.
    pub(super) fn into_segments(self) -> impl Iterator<Item = Segment> {
        let runs: Arc<[Option<ExecutorRun>]> = self.runs.by_number.into();
        self.segments.into_iter().map(move |mut segment| {
            segment.runs = Arc::clone(&runs);
            // A reader's pieces of one thread need not follow each other.
            segment.threads.sort_unstable_by_key(|&(start, _)| start);
            segment
        })
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

/// A view of one event. Works for any index; past the end, every field is unknown.
#[derive(Clone, Copy, Debug)]
pub struct EventRef<'a> {
    segment: Option<&'a Segment>,
    at: usize,
}

impl<'a> EventRef<'a> {
    #[inline(always)]
    pub(super) fn new(segment: Option<&'a Segment>, at: usize) -> EventRef<'a> {
        EventRef { segment, at }
    }
}

impl EventRef<'_> {
    #[inline(always)]
    fn get(self, column: Column, absent: u64) -> u64 {
        self.segment.map_or(absent, |segment| segment.get(column, self.at))
    }

    #[inline(always)]
    fn traits(self) -> Traits {
        self.traits_and_number().0
    }

    /// The number is that of a stack where [`Traits::STACK`] says so, else that of a run.
    #[inline(always)]
    fn traits_and_number(self) -> (Traits, u32) {
        const NONE: u32 = Traits::FREE | (u16::MAX as u32) << Traits::POOL_AT;
        let both = self.get(Column::Traits, word(NONE, 0));
        (Traits(low(both)), high(both))
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
    pub(crate) fn is_alloc(self) -> bool {
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

    /// The bytes that the event requested or freed.
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

    /// The executor's run of the event, if the source contains runs.
    #[must_use]
    #[inline]
    pub(crate) fn executor_run(self) -> Option<ExecutorRun> {
        match self.traits_and_number() {
            (traits, _) if traits.is(Traits::STACK) => None,
            (_, number) => self.segment?.runs.get(number as usize).copied().flatten(),
        }
    }

    /// The call stack of the event; empty if the source contains no stacks.
    #[must_use]
    #[inline]
    pub fn stack(self) -> Stack {
        match self.traits_and_number() {
            (traits, number) if traits.is(Traits::STACK) => Stack(number),
            _ => Stack::EMPTY,
        }
    }

    /// The shape at the event.
    #[must_use]
    #[inline]
    pub fn shape(self) -> Name {
        if self.traits().is(Traits::MODULE) { Name::EMPTY } else { Name(high(self.get(Column::Names, 0))) }
    }

    /// What ran when the event happened, as PyTorch's allocator was told; empty where it was not.
    #[must_use]
    pub fn module(self) -> Name {
        if self.traits().is(Traits::MODULE) { Name(high(self.get(Column::Names, 0))) } else { Name::EMPTY }
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

    /// The op of the event or, if it is unknown, the named scope around it.
    #[must_use]
    #[inline]
    pub(crate) fn op_or_scope(self) -> Name {
        Name(low(self.get(Column::Names, 0)))
    }

    /// Whether [`EventRef::op_or_scope`] is a scope.
    #[must_use]
    #[inline]
    pub(crate) fn is_scope(self) -> bool {
        self.traits().is(Traits::SCOPE)
    }

    /// The op of the event; empty if it is unknown.
    #[must_use]
    pub fn op(self) -> Name {
        if self.is_scope() { Name::EMPTY } else { self.op_or_scope() }
    }

    /// The named scope around the event, if the op is unknown.
    #[must_use]
    pub fn context(self) -> Name {
        if self.is_scope() { self.op_or_scope() } else { Name::EMPTY }
    }

    /// The block of the event: its size or, if only that is known, the requested bytes.
    #[must_use]
    pub fn size(self) -> Option<Bytes> {
        self.chunk().or_else(|| self.requested())
    }
}

#[inline]
fn told(value: u64) -> Option<u64> {
    (value != ABSENT).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Events;

    fn at(time: i64) -> Event {
        Event {
            address: u64::try_from(time).ok(),
            requested: Some(Bytes(1)),
            executor_run: ExecutorRun::new(time),
            region: Region::Output,
            dtype: Dtype::F32,
            ..Event::bare(Picos(time), Kind::Alloc)
        }
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
            assert!(traits.is(Traits::FREE) && !traits.is(Traits::SCOPE) && !traits.is(Traits::STACK));
            let with_stack = Traits::of(&Event { stack: Stack(9), ..event }).with_pool(PoolId(3));
            assert_eq!((with_stack.pool(), with_stack.region()), (PoolId(3), Region::Dynamic));
            assert!(with_stack.is(Traits::STACK));
        }
    }

    #[test]
    fn shapes_and_modules_are_never_taken_for_each_other() {
        let mut batch = Batch::default();
        batch.push(&Event { shape: Name(7), ..at(0) });
        batch.push(&Event { module: Name(8), ..at(1) });
        let length = batch.len();
        let events = Events::merge(vec![batch], &[vec![(0, 0..length)]]);
        assert_eq!((events.at(0).shape(), events.at(0).module()), (Name(7), Name::EMPTY));
        assert_eq!((events.at(1).shape(), events.at(1).module()), (Name::EMPTY, Name(8)));
    }

    #[test]
    fn runs_and_stacks_are_never_taken_for_each_other() {
        let runs = [i64::MIN, 0, 7, 7, -1];
        let mut batch = Batch::default();
        for (time, run) in (0..).zip(runs) {
            batch.push(&Event { executor_run: ExecutorRun::new(run), ..at(time) });
        }
        for (time, stack) in (5..).zip([1, u32::MAX]) {
            batch.push(&Event { executor_run: None, stack: Stack(stack), ..at(time) });
        }
        let events = Events::merge(vec![batch], &[vec![(0, 0..7)]]);
        let found: Vec<_> = events.iter().map(|event| (event.executor_run(), event.stack())).collect();
        let of_runs = runs.map(|run| (ExecutorRun::new(run), Stack::EMPTY));
        let of_stacks = [1, u32::MAX].map(|stack| (None, Stack(stack)));
        assert_eq!(found, [&of_runs[..], &of_stacks[..]].concat());
        assert_eq!((events.at(7).executor_run(), events.at(7).stack()), (None, Stack::EMPTY));
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
