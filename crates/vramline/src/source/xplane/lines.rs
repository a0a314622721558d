//! Second pass, outer part: has the lines of the planes that matter decoded, on all cores.
//!
//! A line is one thread's events, one after another, and lines differ in size by a thousand times. Each worker takes
//! the largest line that is left, reads it in pieces and decodes them in place; when others have run out of lines it
//! hands pieces to them. What they found is then put into one history: times on one axis, names in one table, events
//! in order. No more than a few pieces are ever held.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use rustc_hash::FxHashMap;

use super::decode::{self, Decoded, Decoder, OpenScope, Tally};
use super::index::{Index, Plane, PlaneRole};
use super::walk::{self, Head, Next};
use crate::event::{self, Batch, Events, History, Mark, Pool, PoolId};
use crate::names::{Name, Names};
use crate::source::input::{Input, LARGE_PIECE, Stream};
use crate::source::wire::{Cursor, short_varint_at};
use crate::units::{Nanos, Picos, plural};
use crate::worker;

/// A longer event is not a memory event.
const LONGEST_EVENT: u64 = 16 << 20;

/// A tag and a length.
const LONGEST_HEADER: usize = 20;

/// More workers than this do not help: reading is the limit then.
const MOST_WORKERS: usize = 8;

/// Files larger than this hold many memory events, if they hold any.
const LARGE_FILE: u64 = 32 << 20;

/// A worker for less than this costs more than it saves.
const WORTH_A_WORKER: u64 = 1 << 20;

/// What a line says of itself.
#[derive(Clone, Default)]
struct Line {
    name: Vec<u8>,
    timestamp: i64,
}

/// A line to be read.
struct Task<'a> {
    number: usize,
    plane: &'a Plane,
    range: Range<u64>,
}

/// A piece of a line to be decoded.
struct Piece<'a> {
    line: usize,
    number: usize,
    plane: &'a Plane,
    buffer: Vec<u8>,
    used: Range<usize>,
}

/// A piece that was decoded.
struct Done {
    line: usize,
    number: usize,
    worker: usize,
    decoded: Decoded,
}

/// What one worker found.
#[derive(Default)]
struct WorkerOutput {
    tally: Tally,
    done: Vec<Done>,
    lines: Vec<(usize, Line)>,
    skipped_events: u64,
    malformed_lines: u64,
    failure: Option<io::Error>,
}

/// Reads every line that matters into `history`.
pub(crate) fn read(input: &Input, index: &Index, history: &mut History) -> io::Result<()> {
    let mut found = gather(input, index, &history.names);
    let sum = |count: fn(&WorkerOutput) -> u64| found.iter().map(count).fold(0, u64::saturating_add);
    let skipped = sum(|found| found.skipped_events);
    if skipped > 0 {
        let text = format!(
            "{} larger than {LONGEST_EVENT} bytes",
            plural(skipped, "event was skipped because it is", "events were skipped because they are")
        );
        history.warnings.add("huge-event", text, "");
    }
    let malformed = sum(|found| found.malformed_lines).saturating_add(sum(|found| found.tally.malformed));
    if malformed > 0 {
        history.warnings.add(
            "malformed",
            plural(
                malformed,
                "event or line violates the format and was skipped",
                "events or lines violate the format and were skipped",
            ),
            "the file was damaged after it was written: record it again if figures look wrong",
        );
    }
    let failure = found.iter_mut().find_map(|found| found.failure.take());
    merge(found, history);
    failure.map_or(Ok(()), Err)
}

fn gather(input: &Input, index: &Index, names: &Names) -> Vec<WorkerOutput> {
    let lines =
        index.planes.iter().flat_map(|plane| plane.lines.iter().map(move |range| (plane, range.clone())));
    let mut tasks: Vec<Task<'_>> =
        lines.enumerate().map(|(number, (plane, range))| Task { number, plane, range }).collect();
    let size = |task: &Task<'_>| task.range.end - task.range.start;
    let total = tasks.iter().map(size).fold(0, u64::saturating_add);
    let is_seekable = input.is_seekable();
    if is_seekable {
        tasks.sort_by_key(size);
    } else {
        // Forward only, and by one worker.
        tasks.reverse();
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let useful = usize::try_from(total / WORTH_A_WORKER).unwrap_or(usize::MAX).saturating_add(1);
    let queue = Queue {
        work: Mutex::new(Work { tasks, ..Work::default() }),
        changed: Condvar::new(),
        idle: AtomicUsize::new(0),
        most_readers: if is_seekable { usize::MAX } else { 1 },
    };
    std::thread::scope(|threads| {
        let queue = &queue;
        let work = move |number: usize| Worker::new(number, input, queue, names).run();
        let others: Vec<_> = (1..cores.min(MOST_WORKERS).min(useful))
            .map(|number| threads.spawn(move || work(number)))
            .collect();
        let mut found = vec![work(0)];
        found.extend(others.into_iter().map(worker::joined));
        found
    })
}

/// What is left to do, shared by the workers.
struct Queue<'a> {
    work: Mutex<Work<'a>>,
    changed: Condvar,
    /// Workers that wait for a piece.
    idle: AtomicUsize,
    most_readers: usize,
}

#[derive(Default)]
struct Work<'a> {
    /// The next one last.
    tasks: Vec<Task<'a>>,
    pieces: Vec<Piece<'a>>,
    /// Workers that are reading a line, and may hand out pieces.
    readers: usize,
    /// Buffers to be filled again: fresh memory costs more than decoding does.
    spare: Vec<Vec<u8>>,
    /// Whether a worker has panicked: nothing more is worth doing, and what the others wait for may never come.
    is_abandoned: bool,
}

enum Job<'a> {
    Read(Task<'a>),
    Decode(Piece<'a>),
}

impl<'a> Queue<'a> {
    /// The next job, or `None` when no more can come. `was_reading` ends the caller's turn as a reader.
    fn next(&self, was_reading: bool) -> Option<Job<'a>> {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        if was_reading {
            work.readers -= 1;
            self.changed.notify_all();
        }
        loop {
            if work.is_abandoned {
                return None;
            }
            if let Some(piece) = work.pieces.pop() {
                return Some(Job::Decode(piece));
            }
            if work.readers < self.most_readers
                && let Some(task) = work.tasks.pop()
            {
                work.readers += 1;
                return Some(Job::Read(task));
            }
            if work.readers == 0 {
                return None;
            }
            self.idle.fetch_add(1, Ordering::Relaxed);
            work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Whether somebody waits for a piece.
    fn wants_pieces(&self) -> bool {
        self.idle.load(Ordering::Relaxed) > 0
    }

    fn hand_out(&self, piece: Piece<'a>) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        work.pieces.push(piece);
        self.changed.notify_one();
    }

    fn spare_buffer(&self) -> Vec<u8> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner).spare.pop().unwrap_or_default()
    }

    fn give_back(&self, buffer: Vec<u8>) {
        self.work.lock().unwrap_or_else(PoisonError::into_inner).spare.push(buffer);
    }
}

/// Lets the others go when the worker that has this panics.
struct Alarm<'a, 'q>(&'q Queue<'a>);

impl Drop for Alarm<'_, '_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.work.lock().unwrap_or_else(PoisonError::into_inner).is_abandoned = true;
            self.0.changed.notify_all();
        }
    }
}

struct Worker<'a, 'q> {
    number: usize,
    input: &'q Input,
    queue: &'q Queue<'a>,
    decoder: Decoder<'q>,
    found: WorkerOutput,
    stream: Option<Stream>,
}

impl<'a, 'q> Worker<'a, 'q> {
    fn new(number: usize, input: &'q Input, queue: &'q Queue<'a>, names: &'q Names) -> Self {
        let events = if input.length() > LARGE_FILE { Batch::for_many() } else { Batch::default() };
        let decoder = Decoder::new(names, events);
        Worker { number, input, queue, decoder, found: WorkerOutput::default(), stream: None }
    }

    fn run(mut self) -> WorkerOutput {
        let _alarm = Alarm(self.queue);
        let mut was_reading = false;
        while let Some(job) = self.queue.next(was_reading) {
            was_reading = matches!(job, Job::Read(_));
            match job {
                Job::Read(task) => {
                    if let Err(error) = self.read(&task) {
                        self.found.failure = Some(error);
                    }
                }
                Job::Decode(piece) => {
                    let used = piece.buffer.get(piece.used.clone()).unwrap_or_default();
                    let (decoded, _) = self.decoder.block(piece.plane, used);
                    self.keep(piece.line, piece.number, decoded);
                    self.queue.give_back(piece.buffer);
                }
            }
        }
        self.found.tally = self.decoder.tally;
        self.found
    }

    fn keep(&mut self, line: usize, number: usize, decoded: Decoded) {
        self.found.done.push(Done { line, number, worker: self.number, decoded });
    }

    fn read(&mut self, task: &Task<'a>) -> io::Result<()> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.input.stream(LARGE_PIECE)?,
        };
        stream.go_to(task.range.start)?;
        let read = self.line(&mut stream, task);
        self.stream = Some(stream);
        read
    }

    fn line(&mut self, stream: &mut Stream, task: &Task<'a>) -> io::Result<()> {
        let &Task { number: line_number, plane, ref range } = task;
        let mut line = Line::default();
        let mut pieces = 0;
        loop {
            // Events first, as many as the window holds: this loop sees every event of the file.
            let left = usize::try_from(range.end.saturating_sub(stream.position())).unwrap_or(usize::MAX);
            let window = stream.window();
            let window = window.get(..left).unwrap_or(window);
            let whole = if self.queue.wants_pieces() && window.len() < left {
                let whole = whole_events(window);
                if whole > 0 {
                    let (buffer, used) = stream.take(whole, self.queue.spare_buffer());
                    self.queue.hand_out(Piece { line: line_number, number: pieces, plane, buffer, used });
                }
                whole
            } else {
                let (decoded, whole) = self.decoder.block(plane, window);
                if whole > 0 {
                    self.keep(line_number, pieces, decoded);
                    stream.skip(whole as u64)?;
                }
                whole
            };
            pieces += usize::from(whole > 0);
            // The next one may stand at the edge of the window: move the window, and go on as before.
            let held = stream.window().len();
            let wanted = event_length(stream.window()).unwrap_or(LONGEST_HEADER);
            if held < wanted.min(left.saturating_sub(whole))
                && wanted as u64 <= LONGEST_EVENT
                && stream.ensure(wanted)? > held
            {
                continue;
            }
            match walk::next(stream, range.end)? {
                Next::Field(4, Head::Length(length)) if length > LONGEST_EVENT => {
                    self.found.skipped_events += 1;
                    stream.skip(length)?;
                }
                Next::Field(2, Head::Length(length)) => line.name = walk::text(stream, length)?,
                Next::Field(11, Head::Length(length)) => {
                    let text = walk::text(stream, length)?;
                    if line.name.is_empty() {
                        line.name = text;
                    }
                }
                Next::Field(3, Head::Varint(value)) => line.timestamp = crate::source::wire::signed(value),
                Next::Field(_, Head::Length(length)) => {
                    stream.skip(length)?;
                }
                Next::Field(..) => {}
                Next::End | Next::Cut => break,
                Next::Malformed => {
                    self.found.malformed_lines += 1;
                    break;
                }
            }
            // Derived lines of a device repeat what its streams show.
            if plane.role == PlaneRole::Device && !line.name.is_empty() && !line.name.starts_with(b"Stream #")
            {
                break;
            }
        }
        if pieces > 0 {
            self.found.lines.push((line_number, line));
        }
        Ok(())
    }
}

/// The length of the run of whole events at the front of a window.
fn whole_events(window: &[u8]) -> usize {
    let mut at = 0usize;
    while window.get(at) == Some(&0x22)
        && let Some((length, begin)) = short_varint_at(window, at + 1)
        && let Some(next) = usize::try_from(length).ok().and_then(|length| begin.checked_add(length))
        && next <= window.len()
    {
        at = next;
    }
    at
}

/// The length of the event that begins here, tag and all; `None` where none does or its length is not at hand.
#[inline]
fn event_length(bytes: &[u8]) -> Option<usize> {
    let mut cursor = Cursor(bytes.strip_prefix(&[0x22])?);
    let length = usize::try_from(cursor.varint().ok()?).ok()?;
    (bytes.len() - cursor.0.len()).checked_add(length)
}

/// How a decoder's own numbers translate into the history's.
struct Translation {
    names: Vec<Name>,
    pools: Vec<PoolId>,
}

impl Translation {
    fn name(&self, name: Name) -> Name {
        match decode::own_name(name) {
            Some(own) => self.names.get(own.0 as usize).copied().unwrap_or(Name::EMPTY),
            None => name,
        }
    }

    /// Whether no name needs a change.
    fn keeps_names(&self) -> bool {
        self.names.len() <= 1
    }

    /// Whether no pool needs a change.
    fn keeps_pools(&self) -> bool {
        self.pools.iter().zip(0..).all(|(pool, number)| pool.0 == number)
    }

    fn pool(&self, pool: PoolId) -> PoolId {
        self.pools.get(usize::from(pool.0)).copied().unwrap_or(pool)
    }
}

/// The name of a line's thread. Threads that the program starts may all be called "python": those after the first are numbered.
fn thread_of(name: &str, named: &mut FxHashMap<String, usize>, history: &mut History) -> Name {
    let count = named.entry(name.to_owned()).or_insert(0);
    *count += 1;
    if *count == 1 { history.names.intern(name) } else { history.names.intern(&format!("{name} ({count})")) }
}

/// One history of what the workers found.
fn merge(found: Vec<WorkerOutput>, history: &mut History) {
    let mut done: Vec<Done> = Vec::new();
    let mut batches: Vec<Batch> = Vec::new();
    let mut translations: Vec<Translation> = Vec::new();
    let mut lines: FxHashMap<usize, Line> = FxHashMap::default();
    for mut found in found {
        translations.push(translate(&found.tally, history));
        batches.push(std::mem::take(&mut found.tally.events));
        lines.extend(found.lines);
        done.append(&mut found.done);
    }
    done.sort_unstable_by_key(|done| (done.line, done.number));
    let timestamp = |done: &Done| lines.get(&done.line).map_or(0, |line| line.timestamp);
    let origin = done
        .iter()
        .filter(|done| !done.decoded.events.is_empty() || !done.decoded.marks.is_empty())
        .map(timestamp)
        .min()
        .unwrap_or(0);
    history.origin = Nanos(origin);
    let mut runs: Vec<crate::event::Line> = Vec::new();
    let mut open: Vec<OpenScope> = Vec::new();
    let mut open_line = usize::MAX;
    let mut named: FxHashMap<String, usize> = FxHashMap::default();
    let mut thread = Name::EMPTY;
    for done in done {
        let shift = timestamp(&done).saturating_sub(origin).saturating_mul(1000);
        let (Some(translation), Some(batch)) = (translations.get(done.worker), batches.get_mut(done.worker))
        else {
            continue;
        };
        if done.line != open_line {
            let line_name = lines.get(&done.line).map_or(&b""[..], |line| &line.name);
            thread = thread_of(&String::from_utf8_lossy(line_name), &mut named, history);
            open.clear();
            open_line = done.line;
            runs.push(Vec::new());
        }
        let Decoded { events, marks, open: still_open, unnamed, first_peaks, .. } = done.decoded;
        for at in unnamed {
            if let Some(context) = decode::enclosing(&open, batch.time(at)) {
                batch.set_context(at, context);
            }
        }
        let last = events.end.checked_sub(1).filter(|_| !events.is_empty());
        decode::join_open(&mut open, still_open, last.map_or(Picos(i64::MIN), |last| batch.time(last)));
        let names = (!translation.keeps_names()).then_some(|name| translation.name(name));
        let pools = (!translation.keeps_pools()).then_some(|pool| translation.pool(pool));
        batch.settle(events.clone(), shift, thread, &names, &pools);
        let on_axis = |time: Picos| Picos(time.0.saturating_add(shift));
        for (pool, time, peak) in first_peaks {
            if let Some(known) = history.pools.get_mut(usize::from(translation.pool(pool).0))
                && known.first_lifetime_peak.is_none_or(|first| (on_axis(time), peak) < first)
            {
                known.first_lifetime_peak = Some((on_axis(time), peak));
            }
        }
        history.marks.extend(marks.into_iter().map(|mark| Mark {
            name: translation.name(mark.name),
            kind: mark.kind,
            thread,
            begin: on_axis(mark.begin),
            length: mark.length,
        }));
        if let Some(run) = runs.last_mut() {
            run.push((done.worker, events));
        }
    }
    history.events = Events::merge(batches, &runs);
    history.marks.sort_by_key(|mark| mark.begin);
}

/// Moves what a decoder gathered into the history, and says how its numbers translate.
fn translate(tally: &Tally, history: &mut History) -> Translation {
    let names = tally.own_names.iter().map(|(_, text)| history.names.intern(text)).collect();
    let mut translation = Translation { names, pools: Vec::new() };
    for (name, pool) in &tally.pools {
        let name = event::pool_name(history.names.get(translation.name(*name)));
        let at = history.pools.iter().position(|known| known.name == name).unwrap_or_else(|| {
            history.pools.push(Pool { name, ..Pool::default() });
            history.pools.len() - 1
        });
        translation.pools.push(PoolId(u16::try_from(at).unwrap_or(u16::MAX)));
        if let Some(known) = history.pools.get_mut(at) {
            known.limit = known.limit.max(pool.limit);
            known.lifetime_peak = known.lifetime_peak.max(pool.lifetime_peak);
        }
    }
    for (name, time) in tally.op_times() {
        let known = history.op_times.entry(translation.name(name)).or_default();
        known.calls = known.calls.saturating_add(time.calls);
        known.total += time.total;
    }
    history.recorder.bare_events += tally.bare_events;
    translation
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_worker_that_has_panicked() {
        let queue = Queue {
            // One worker reads: others wait for its pieces.
            work: Mutex::new(Work { readers: 1, ..Work::default() }),
            changed: Condvar::new(),
            idle: AtomicUsize::new(0),
            most_readers: 1,
        };
        let panic = std::thread::scope(|threads| {
            let waiting = threads.spawn(|| queue.next(false).is_none());
            let reading = threads.spawn(|| {
                let _alarm = Alarm(&queue);
                std::panic::panic_any("a bug in a decoder");
            });
            assert!(worker::joined(waiting));
            reading.join().unwrap_err()
        });
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"a bug in a decoder"));
    }
}
