//! Turns the parts of a snapshot into a history: the lifetime of each block, its device, and the place that requested it.
//!
//! A device is one pool, because the allocator counts by device. "In use" is PyTorch's "allocated": a block leaves it with
//! the request to free it, even if another stream still uses it.
//!
//! If the history of a device is empty or too short to contain the peak, the blocks of the final state are kept too: the snapshot has
//! no other information about it.

use rustc_hash::FxHashMap;

use super::lanes::{self, Gathering};
use super::layout::{Change, Counters, Layout};
use super::owners::is_driver_call;
use super::place;
use super::reading::{Annotation, Reading, Segment, State};
use super::value::{ABSENT, Action, Entry, NO_STACK, NO_TIME, Values, key};
use crate::event::{
    Batch, Cached, Caching, DumpBlock, DumpState, Event, Events, Framework, History, Kind, Line, Mark,
    MarkKind, ModuleCall, OPTIMIZER_STEP, OutOfMemory, Pool, PoolId, StreamUse,
};
use crate::names::Name;
use crate::stack::{Stack, Stacks};
use crate::units::{Bytes, Nanos, Picos, plural};
use crate::warning::Warnings;

const PICOS_PER_MICRO: i64 = 1_000_000;

/// The stacks and names of tracebacks that were added already.
struct Places {
    known: Vec<Option<(Stack, Name)>>,
    frames: Vec<Option<Name>>,
}

impl Places {
    fn new(values: &Values) -> Places {
        Places { known: vec![None; values.stacks.len()], frames: Vec::new() }
    }

    /// The stack and the name of a traceback.
    fn of(&mut self, list: u32, values: &mut Values, stacks: &mut Stacks) -> (Stack, Name) {
        if list == NO_STACK {
            return (Stack::EMPTY, Name::EMPTY);
        }
        if let Some(&Some(known)) = self.known.get(list as usize) {
            return known;
        }
        let mut stack = Stack::EMPTY;
        // Files have the innermost frame first.
        for &frame in values.stacks.frames(list).iter().rev() {
            if self.frames.len() <= frame as usize {
                self.frames.resize(frame as usize + 1, None);
            }
            let known = self.frames.get(frame as usize).copied().flatten();
            let name = known.unwrap_or_else(|| {
                let text = values.stacks.get(frame).map(|frame| place::text(frame, &values.names));
                values.names.intern(&text.unwrap_or_default())
            });
            if let Some(slot) = self.frames.get_mut(frame as usize) {
                *slot = Some(name);
            }
            stack = stacks.push(stack, name);
        }
        let found = (stack, place::name_of(list, &values.stacks, &mut values.names));
        if let Some(slot) = self.known.get_mut(list as usize) {
            *slot = Some(found);
        }
        found
    }
}

/// Converts timestamps to the time axis of a history. Without timestamps, entries are numbered.
struct Clock {
    origin: Option<i64>,
    last: Picos,
    count: i64,
}

impl Clock {
    fn at(&self, time_us: i64) -> Picos {
        let since = time_us.saturating_sub(self.origin.unwrap_or(time_us));
        Picos(since.saturating_mul(PICOS_PER_MICRO))
    }

    /// The time of the next entry of a device; it never goes backwards, even if the clock was set back.
    fn next(&mut self, entry: &Entry) -> Picos {
        self.count += 1;
        let time = match (self.origin, entry.time_us) {
            (Some(_), NO_TIME) => self.last,
            (Some(_), time) => self.at(time),
            (None, _) => Picos(self.count.saturating_mul(1000)),
        };
        self.last = self.last.max(time);
        self.last
    }
}

/// Segments of each device, by its number.
fn by_device(segments: &mut [Segment]) -> impl Fn(u32) -> std::ops::Range<usize> + use<> {
    segments.sort_by_key(|segment| segment.device);
    let devices: Vec<u32> = segments.iter().map(|segment| segment.device).collect();
    move |device| {
        devices.partition_point(|&other| other < device)..devices.partition_point(|&other| other <= device)
    }
}

/// The devices that have entries or segments, in order.
fn devices(traces: &[Vec<std::ops::Range<u32>>], segments: &[Segment]) -> Vec<u32> {
    let traced = (0u32..).zip(traces).filter(|(_, ranges)| !ranges.is_empty()).map(|(device, _)| device);
    let mut devices: Vec<u32> = traced.chain(segments.iter().map(|segment| segment.device)).collect();
    devices.sort_unstable();
    devices.dedup();
    devices
}

/// A history that allocates and frees less than this share of what is in use at its end, one part in so many, does not know the peak
/// if it also has fewer events than there are blocks.
const LEAST_SHARE: u64 = 20;

/// Whether a device has too few events to know its peak, because they cover almost none of the memory in use.
fn is_too_short(segments: &[Segment], events: usize, moved: u64) -> bool {
    let in_use = || segments.iter().flat_map(|segment| &segment.blocks).filter(|block| block.is_in_use());
    if segments.is_empty() || events == 0 {
        return !segments.is_empty();
    }
    let held = in_use().fold(0u64, |sum, block| sum.saturating_add(block.size));
    events < in_use().count() && moved.saturating_mul(LEAST_SHARE) < held
}

/// What a device held when the snapshot was taken.
fn cached_at_end(segments: &[Segment]) -> Cached {
    let mut cached = Cached::default();
    for segment in segments {
        let of = |state: State| {
            let blocks = segment.blocks.iter().filter(|block| block.state == state);
            blocks.map(|block| Bytes(block.size)).sum::<Bytes>()
        };
        let (allocated, pending) = (of(State::Allocated), of(State::Pending));
        let active = allocated + pending;
        // Blocks fill their segment. In a damaged snapshot the larger figure is used, so that the parts add up.
        let total = Bytes(segment.total).max(active);
        cached.reserved += total;
        cached.active += active;
        cached.allocated += allocated;
        cached.pending += pending;
        *match (segment.is_expandable == Some(true), active) {
            (true, _) => &mut cached.expandable,
            (false, Bytes::ZERO) => &mut cached.whole_segments,
            (false, _) => &mut cached.split_remainders,
        } += total.saturating_sub(active);
    }
    cached
}

/// The blocks that a device had in use when the snapshot was taken.
fn blocks_at_end(
    segments: &[Segment],
    places: &mut Places,
    values: &mut Values,
    stacks: &mut Stacks,
) -> Vec<DumpBlock> {
    let in_use = segments.iter().flat_map(|segment| &segment.blocks).filter(|block| block.is_in_use());
    in_use
        .map(|block| {
            let (stack, op) = places.of(block.stack, values, stacks);
            let requested = block.requested.unwrap_or(block.size).min(block.size);
            let address = block.has_address.then_some(block.address);
            DumpBlock { address, requested: Bytes(requested), size: Bytes(block.size), op, stack }
        })
        .collect()
}

/// The history of a snapshot.
pub(crate) fn history(reading: Reading) -> History {
    let allocator = lanes::settings(&reading);
    let Reading { mut values, mut segments, traces, annotations, settings, mut room, .. } = reading;
    room.extend(values.forget_values());
    let of_device = by_device(&mut segments);
    let actions: Vec<Action> = values.kinds().iter().map(super::value::Kind::action).collect();
    let action = |entry: &Entry| actions.get(entry.kind as usize).copied().unwrap_or(Action::Other);
    let is_completion = |entry: &Entry| action(entry) == Action::FreeCompleted;
    let mut history = History { framework: Some(Framework::PyTorch), ..History::default() };
    let modules = modules(&values, &mut history.module_calls);
    let mut places = Places::new(&values);
    let origin = first_time(&traces, &values);
    history.wall_clock_zero = origin.map(|micros| Nanos(micros.saturating_mul(1000)));
    let in_order = traces.iter().flatten().is_sorted_by_key(|range| range.start);
    let mut batch = Batch::default();
    batch.give(room);
    let mut lines: Vec<Line> = Vec::new();
    let mut wrong = Wrong::default();
    for device in devices(&traces, &segments) {
        let mine = segments.get(of_device(device)).unwrap_or_default();
        let ranges = traces.get(device as usize).map_or(&[][..], Vec::as_slice);
        let Ok(id) = u16::try_from(history.pools.len()) else { break };
        let entry = |number: u32| values.entries.get(number);
        let backwards = ranges.iter().rev().flat_map(|range| range.clone().rev()).filter_map(entry);
        let mut driver_calls: Vec<(Entry, Action)> = Vec::new();
        let backwards = backwards.map(|entry| (entry, action(&entry))).inspect(|&(entry, action)| {
            if is_driver_call(action) {
                driver_calls.push((entry, action));
            }
        });
        let mut layout = Layout::before(mine.iter(), backwards, &settings);
        let is_from_start = layout.is_from_start();
        let begin = batch.len();
        let mut clock = Clock { origin, last: Picos(0), count: 0 };
        let mut caching = Caching::default();
        let mut gathering = Gathering::new(mine, &layout, allocator.clone(), &driver_calls, &values);
        // A free that completes at once is a single event.
        let mut completes_at_once = None;
        let mut numbers = ranges.iter().flat_map(Clone::clone).peekable();
        let (mut peak, mut moved) = (0, 0u64);
        // Blocks from before the trace count too.
        caching.see(&layout.now, None);
        while let Some(number) = numbers.next() {
            let Some(entry) = values.entries.get(number) else { continue };
            if in_order && number.is_multiple_of(1 << 16) {
                batch.give(values.entries.forget_before(number));
            }
            let time = clock.next(&entry);
            let action = action(&entry);
            let change = layout.step(&entry, action);
            let (kind, requested, size) = match change {
                Change::Alloc { size } => (Kind::Alloc, entry.size, size),
                Change::Free { requested, size } => (Kind::Free, requested, size),
                Change::Nothing => {
                    if action != Action::FreeCompleted || completes_at_once != Some(number) {
                        gathering.note(batch.len() - begin, &entry, action, &values);
                    }
                    if action == Action::Oom {
                        let place = places.of(entry.stack, &mut values, &mut history.stacks);
                        caching.failures.push(failed(&entry, time, &layout.now, place));
                    }
                    caching.see(&layout.now, Some(time));
                    continue;
                }
            };
            let mut event = Event {
                pool: PoolId(id),
                module: modules.get(entry.kind as usize).copied().unwrap_or(Name::EMPTY),
                address: Some(entry.address),
                requested: Some(Bytes(requested)),
                chunk: Some(Bytes(size)),
                in_use: Some(Bytes(layout.now.allocated)),
                ..Event::bare(time, kind)
            };
            if action == Action::FreeRequested {
                let next = numbers.peek().copied();
                let following = next.and_then(|next| values.entries.get(next));
                let is_done = |next: &Entry| next.address == entry.address && is_completion(next);
                completes_at_once = next.filter(|_| following.as_ref().is_some_and(is_done));
                if completes_at_once.is_none() {
                    gathering.let_go(batch.len() - begin, &entry);
                }
            }
            if kind == Kind::Alloc {
                gathering.allocated(batch.len() - begin, &entry, &values);
                (event.stack, event.op) = places.of(entry.stack, &mut values, &mut history.stacks);
            }
            batch.push(&event);
            moved = moved.saturating_add(size);
            if layout.now.allocated > peak {
                peak = layout.now.allocated;
                caching.at_peak = cached(&layout.now);
            }
            caching.see(&layout.now, Some(time));
        }
        caching.at_end = cached(&layout.now);
        caching.streams = streams(mine);
        if is_too_short(mine, batch.len() - begin, moved) {
            let entries = ranges.iter().map(|range| range.len() as u64).sum();
            let blocks = blocks_at_end(mine, &mut places, &mut values, &mut history.stacks);
            caching.at_end = cached_at_end(mine);
            let all = mine.iter().flat_map(|segment| &segment.blocks);
            let free_blocks = all.filter(|block| block.state == State::Inactive).count() as u64;
            caching.state = Some(DumpState { entries, blocks, free_blocks });
        }
        caching.calls = gathering.finish();
        wrong.contradictions += layout.contradictions;
        wrong.differences += layout.differences(mine.iter());
        lines.push(vec![(0, begin..batch.len())]);
        history.pools.push(Pool {
            name: format!("cuda:{device}"),
            from_start: Some(is_from_start),
            caching: Some(caching),
            ..Pool::default()
        });
    }
    history.marks = marks(&annotations, origin, &values);
    history.events = Events::merge(vec![batch], &lines);
    wrong.has_times = origin.is_some() || history.events.is_empty();
    wrong.warn(&values, &mut history.warnings);
    history.names = values.names;
    history
}

/// What ran, by the kind of an entry: the text that the program or the recorder set, else the compiled region.
fn modules(values: &Values, calls: &mut FxHashMap<Name, ModuleCall>) -> Vec<Name> {
    let of_kind = |kind: &super::value::Kind| {
        let metadata = kind.user_metadata.filter(|name| !name.is_empty());
        let (name, call) = match (metadata, kind.compile_context) {
            (Some(name), _) => (name, ModuleCall::of_metadata(values.names.get(name))),
            (None, Some(name)) => (name, ModuleCall::of_region(values.names.get(name))),
            (None, None) => (Name::EMPTY, None),
        };
        call.map_or(Name::EMPTY, |call| {
            calls.entry(name).or_insert(call);
            name
        })
    };
    values.kinds().iter().map(of_kind).collect()
}

/// The earliest time of any entry.
fn first_time(traces: &[Vec<std::ops::Range<u32>>], values: &Values) -> Option<i64> {
    let first = |ranges: &Vec<std::ops::Range<u32>>| {
        let numbers = ranges.iter().flat_map(Clone::clone);
        numbers
            .filter_map(|number| values.entries.get(number))
            .map(|entry| entry.time_us)
            .find(|&time| time != NO_TIME)
    };
    traces.iter().filter_map(first).min()
}

fn failed(entry: &Entry, time: Picos, now: &Counters, (stack, op): (Stack, Name)) -> OutOfMemory {
    OutOfMemory {
        time,
        asked: told(entry.size),
        device_free: told(entry.address),
        allocated: Bytes(now.allocated),
        reserved: Bytes(now.reserved),
        op,
        stack,
    }
}

fn told(number: u64) -> Option<Bytes> {
    (number != ABSENT).then_some(Bytes(number))
}

fn cached(now: &Counters) -> Cached {
    Cached {
        reserved: Bytes(now.reserved),
        active: Bytes(now.active),
        allocated: Bytes(now.allocated),
        pending: Bytes(now.pending()),
        whole_segments: Bytes(now.whole),
        split_remainders: Bytes(now.split),
        expandable: Bytes(now.expandable),
    }
}

impl Caching {
    /// Keeps the highest counts.
    #[inline]
    fn see(&mut self, now: &Counters, time: Option<Picos>) {
        if now.reserved > self.reserved_peak.0 {
            self.reserved_peak = Bytes(now.reserved);
            self.reserved_peak_time = time;
            self.at_reserved_peak = cached(now);
        }
        self.split_peak = self.split_peak.max(Bytes(now.split));
        self.active_peak = self.active_peak.max(Bytes(now.active));
    }
}

/// The streams and private pools of the segments, the largest first.
fn streams(segments: &[Segment]) -> Vec<StreamUse> {
    let mut uses: std::collections::BTreeMap<((i64, i64), i64), StreamUse> =
        std::collections::BTreeMap::new();
    for segment in segments {
        let pool = segment.pool.unwrap_or_default();
        let stream = segment.stream.unwrap_or(0);
        let empty = StreamUse {
            stream,
            private_pool: (pool != (0, 0)).then_some(pool),
            segments: 0,
            expandable_segments: 0,
            reserved: Bytes::ZERO,
            allocated: Bytes::ZERO,
            active: Bytes::ZERO,
        };
        let used = uses.entry((pool, stream)).or_insert(empty);
        let of = |is_counted: fn(State) -> bool| {
            let blocks = segment.blocks.iter().filter(|block| is_counted(block.state));
            blocks.map(|block| Bytes(block.size)).sum::<Bytes>()
        };
        used.segments += 1;
        used.expandable_segments += u64::from(segment.is_expandable == Some(true));
        used.reserved += Bytes(segment.total);
        used.allocated += of(|state| state == State::Allocated);
        used.active += of(|state| state != State::Inactive);
    }
    let mut uses: Vec<StreamUse> = uses.into_values().collect();
    uses.sort_by_key(|used| std::cmp::Reverse(used.reserved));
    uses
}

/// The step number in the name of an annotation: `## step 3 ##`, `ProfilerStep#3`.
fn step_number(name: &str) -> Option<i64> {
    let is_step = !name.starts_with("Optimizer.") && name.to_ascii_lowercase().contains("step");
    let mut numbers = name.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    let number = numbers.next().filter(|_| is_step && numbers.next().is_none())?;
    number.parse().ok()
}

/// The steps of the program as marks: annotated steps or, if there are none, the updates of its optimizer, each
/// from the end of the one before to its own end.
fn marks(annotations: &[Annotation], origin: Option<i64>, values: &Values) -> Vec<Mark> {
    let Some(origin) = origin else { return Vec::new() };
    let clock = Clock { origin: Some(origin), last: Picos(0), count: 0 };
    let at = |annotation: &Annotation| annotation.time_us.map(|time| clock.at(time));
    let name = |annotation: &Annotation| values.names.get(annotation.name);
    let is_update = |one: &Annotation| name(one).starts_with(OPTIMIZER_STEP) && one.stage == key::END;
    let mut updates: Vec<Picos> = annotations.iter().filter(|one| is_update(one)).filter_map(at).collect();
    updates.sort_unstable();
    let mut open: FxHashMap<Name, Picos> = FxHashMap::default();
    let mut marks = Vec::new();
    for one in annotations {
        let (Some(number), Some(time)) = (step_number(name(one)), at(one)) else { continue };
        if one.stage == key::START {
            open.insert(one.name, time);
        } else if let Some(begin) = open.remove(&one.name) {
            let next = updates.get(updates.partition_point(|&update| update < begin));
            let trains = next.is_some_and(|&update| update <= time);
            let kind = if trains { MarkKind::Update(number) } else { MarkKind::Step(number) };
            marks.push(Mark { name: one.name, kind, thread: Name::EMPTY, begin, length: time.since(begin) });
        }
    }
    if marks.is_empty() {
        marks =
            updates_of_first(annotations, at, is_update, |one| name(one).starts_with("Optimizer.zero_grad#"));
    }
    // Steps that end before the first entry have no figures.
    marks.retain(|mark| mark.begin.after(mark.length) > Picos(0));
    marks.sort_by_key(|mark| mark.begin);
    marks
}

/// A program with several optimizers or devices has an update for each; only the first one counts.
fn updates_of_first(
    annotations: &[Annotation],
    at: impl Fn(&Annotation) -> Option<Picos>,
    is_update: impl Fn(&Annotation) -> bool,
    is_zeroing: impl Fn(&Annotation) -> bool,
) -> Vec<Mark> {
    let Some(first) = annotations.iter().find(|one| is_update(one)) else { return Vec::new() };
    let is_alike =
        |one: &&Annotation| one.name == first.name && one.device == first.device && one.stage == key::END;
    // The first step begins with its first annotated part.
    let zeroed = annotations.iter().find(|one| is_zeroing(one) && one.stage == key::START).and_then(&at);
    let zeroed = zeroed.filter(|&zeroed| at(first).is_some_and(|end| zeroed < end));
    let mut begin = zeroed.unwrap_or(Picos(0));
    let mut marks = Vec::new();
    for (number, end) in (0..).zip(annotations.iter().filter(is_alike).filter_map(&at)) {
        let kind = MarkKind::Update(number);
        marks.push(Mark { name: first.name, kind, thread: Name::EMPTY, begin, length: end.since(begin) });
        begin = begin.max(end);
    }
    marks
}

/// Contradictions in a snapshot.
#[derive(Default)]
struct Wrong {
    has_times: bool,
    contradictions: u64,
    differences: u64,
}

impl Wrong {
    fn warn(&self, values: &Values, warnings: &mut Warnings) {
        if !self.has_times {
            warnings.add(
                "no-times",
                "the entries of this snapshot have no timestamps; Vramline numbers them, one nanosecond each",
                "PyTorch 2.1 and newer write timestamps",
            );
        }
        if self.contradictions > 0 {
            warnings.add(
                "entries-disagree",
                format!(
                    "{} earlier entries: a block without a segment, or one that is freed twice",
                    plural(
                        self.contradictions,
                        "entry of the trace contradicts",
                        "entries of the trace contradict"
                    )
                ),
                "record without skip_actions; figures of blocks that are missing from the trace may be wrong",
            );
        }
        if self.differences > 0 {
            warnings.add(
                "end-disagrees",
                format!(
                    "{} from the blocks that the snapshot lists",
                    plural(self.differences, "block at the end of the trace differs", "blocks at the end of the trace differ")
                ),
                "dump the snapshot while the history is still being recorded, otherwise it misses what happens in between",
            );
        }
        if values.odd_numbers > 0 {
            warnings.add(
                "odd-numbers",
                plural(
                    values.odd_numbers,
                    "size or address is invalid and was skipped",
                    "sizes or addresses are invalid and were skipped",
                ),
                "",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_known_by_their_names() {
        assert_eq!(step_number("## step 12 ##"), Some(12));
        assert_eq!(step_number("ProfilerStep#3"), Some(3));
        for other in ["Optimizer.step#Adam.step", "step", "step 1 of 2", "forward 3", ""] {
            assert_eq!(step_number(other), None, "{other}");
        }
    }
}
