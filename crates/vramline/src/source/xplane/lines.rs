//! Second pass, outer part: cuts the lines of the planes that matter into blocks and has them decoded.
//!
//! One thread reads and cuts; the others decode; when all of them are busy the reader decodes too, so that no core
//! idles and no more than a few blocks are ever held. What the blocks gave is then put into one history: times on one
//! axis, names in one table, events in order.

use std::io;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use super::decode::{self, Decoded, Decoder, OpenScope, Tally};
use super::index::{Index, Plane, PlaneRole};
use super::walk::{self, Head, Next};
use super::wire::{Cursor, short_varint_at};
use crate::event::{Batch, Events, History, Mark, Pool, PoolId};
use crate::names::{Name, Names};
use crate::source::input::Stream;
use crate::units::{Nanos, Picos};

/// Lines are decoded in runs of about this many bytes.
const BLOCK: usize = 2 << 20;

/// A run of events at least so long is handed over with the stream's buffer; shorter ones are copied together.
const WORTH_TAKING: usize = 128 << 10;

/// An event longer than this is none of ours.
const LONGEST_EVENT: u64 = 16 << 20;

/// A tag and a length.
const LONGEST_HEADER: usize = 20;

/// More decoders than this do not help: reading is the limit then.
const MOST_WORKERS: usize = 7;

struct Line {
    name: Vec<u8>,
    timestamp: i64,
}

struct Block<'a> {
    number: usize,
    line: usize,
    plane: &'a Plane,
    buffer: Vec<u8>,
    used: Range<usize>,
}

impl Block<'_> {
    fn bytes(&self) -> &[u8] {
        self.buffer.get(self.used.clone()).unwrap_or_default()
    }
}

struct Done {
    number: usize,
    line: usize,
    worker: usize,
    decoded: Decoded,
}

/// What all decoders found.
struct Gathered {
    lines: Vec<Line>,
    tallies: Vec<Tally>,
    done: Vec<Done>,
    skipped_events: u64,
    malformed_lines: u64,
    /// Why reading stopped early, if it did.
    failure: io::Result<()>,
}

/// Reads every line that matters into `history`.
pub(crate) fn read(stream: &mut Stream, index: &Index, history: &mut History) -> io::Result<()> {
    let Gathered { lines, tallies, mut done, skipped_events, malformed_lines, failure } =
        gather(stream, index, &history.names);
    if skipped_events > 0 {
        let text = format!("{skipped_events} events larger than {LONGEST_EVENT} bytes were skipped");
        history.warnings.add("huge-event", text, "");
    }
    let malformed = tallies.iter().map(|tally| tally.malformed).sum::<u64>().saturating_add(malformed_lines);
    if malformed > 0 {
        history.warnings.add(
            "malformed",
            format!("{malformed} events or lines are not as the format says and were skipped"),
            "the file was damaged after it was written; record again if figures look wrong",
        );
    }
    done.sort_unstable_by_key(|done| done.number);
    merge(done, tallies, &lines, history);
    failure
}

fn gather(stream: &mut Stream, index: &Index, names: &Names) -> Gathered {
    let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get() - 1).min(MOST_WORKERS);
    let (sender, receiver) = sync_channel::<Block<'_>>(workers.max(1));
    let receiver = Mutex::new(receiver);
    let used = Mutex::new(Vec::new());
    let mut cutter = Cutter {
        lines: Vec::new(),
        copy: Vec::new(),
        used: &used,
        sender: (workers > 0).then_some(sender),
        own: Decoder::new(names),
        own_done: Vec::new(),
        blocks: 0,
        skipped_events: 0,
        malformed_lines: 0,
    };
    std::thread::scope(|threads| {
        let (receiver, used) = (&receiver, &used);
        let handles: Vec<_> =
            (1..=workers).map(|number| threads.spawn(move || work(number, receiver, used, names))).collect();
        let failure = cutter.read(stream, index);
        // Closing the channel ends the workers.
        cutter.sender = None;
        let mut tallies = vec![cutter.own.tally];
        let mut done = cutter.own_done;
        for handle in handles {
            if let Ok((tally, mut blocks)) = handle.join() {
                tallies.push(tally);
                done.append(&mut blocks);
            }
        }
        let Cutter { lines, skipped_events, malformed_lines, .. } = cutter;
        Gathered { lines, tallies, done, skipped_events, malformed_lines, failure }
    })
}

fn work(number: usize, receiver: &Mutex<Receiver<Block<'_>>>, used: &Mutex<Vec<Vec<u8>>>, names: &Names) -> (Tally, Vec<Done>) {
    let mut decoder = Decoder::new(names);
    let mut done = Vec::new();
    loop {
        let received = match receiver.lock() {
            Ok(receiver) => receiver.recv(),
            Err(_) => break,
        };
        let Ok(block) = received else { break };
        let decoded = decoder.block(block.plane, block.bytes());
        done.push(Done { number: block.number, line: block.line, worker: number, decoded });
        // Fresh memory costs more than decoding does: blocks go round.
        if let Ok(mut used) = used.lock() {
            used.push(block.buffer);
        }
    }
    (decoder.tally, done)
}

struct Cutter<'a, 'u> {
    lines: Vec<Line>,
    /// Events of a short line, or from the edge of the stream's window, put together.
    copy: Vec<u8>,
    /// Blocks that were decoded, to be filled again.
    used: &'u Mutex<Vec<Vec<u8>>>,
    sender: Option<SyncSender<Block<'a>>>,
    own: Decoder<'a>,
    own_done: Vec<Done>,
    blocks: usize,
    skipped_events: u64,
    malformed_lines: u64,
}

impl<'a> Cutter<'a, '_> {
    fn read(&mut self, stream: &mut Stream, index: &'a Index) -> io::Result<()> {
        let mut planes = index.planes.iter();
        loop {
            match walk::next(stream, u64::MAX)? {
                Next::Field(1, Head::Length(length)) => {
                    let end = stream.position().saturating_add(length);
                    // The file may have grown since the first pass; what that did not see has no tables.
                    let Some(plane) = planes.next() else { break };
                    if plane.wants_lines() {
                        self.plane(stream, end, plane)?;
                    }
                    stream.skip(end.saturating_sub(stream.position()))?;
                }
                Next::Field(_, Head::Length(length)) => {
                    stream.skip(length)?;
                }
                Next::Field(..) => {}
                Next::End | Next::Cut | Next::Malformed => break,
            }
        }
        Ok(())
    }

    fn plane(&mut self, stream: &mut Stream, end: u64, plane: &'a Plane) -> io::Result<()> {
        loop {
            match walk::next(stream, end)? {
                Next::Field(3, Head::Length(length)) => {
                    let line_end = stream.position().saturating_add(length);
                    self.line(stream, line_end, plane)?;
                    stream.skip(line_end.saturating_sub(stream.position()))?;
                }
                Next::Field(_, Head::Length(length)) => {
                    stream.skip(length)?;
                }
                Next::Field(..) => {}
                Next::End | Next::Cut | Next::Malformed => return Ok(()),
            }
        }
    }

    fn line(&mut self, stream: &mut Stream, end: u64, plane: &'a Plane) -> io::Result<()> {
        let mut line = Line { name: Vec::new(), timestamp: 0 };
        let number = self.lines.len();
        let first_block = self.blocks;
        let mut block = std::mem::take(&mut self.copy);
        loop {
            // Events first, as many as the window holds: this loop sees every event of the file.
            let left = usize::try_from(end.saturating_sub(stream.position())).unwrap_or(usize::MAX);
            let window = stream.window();
            let whole = whole_events(window.get(..left).unwrap_or(window));
            if whole >= WORTH_TAKING && block.is_empty() {
                let (buffer, used) = stream.take(whole, self.spare_buffer());
                self.dispatch(number, plane, buffer, used);
            } else if whole > 0 {
                block.extend_from_slice(window.get(..whole).unwrap_or_default());
                stream.skip(whole as u64)?;
                if block.len() >= BLOCK {
                    self.dispatch_copy(number, plane, &mut block);
                }
            }
            // The next one may stand at the edge of the window: move the window, and go on as before.
            let held = stream.window().len();
            let wanted = event_length(stream.window()).unwrap_or(LONGEST_HEADER);
            if held < wanted.min(left.saturating_sub(whole))
                && wanted as u64 <= LONGEST_EVENT
                && stream.ensure(wanted)? > held
            {
                continue;
            }
            match walk::next(stream, end)? {
                Next::Field(4, Head::Length(length)) if length > LONGEST_EVENT => {
                    self.skipped_events += 1;
                    stream.skip(length)?;
                }
                Next::Field(2, Head::Length(length)) => line.name = walk::text(stream, length)?,
                Next::Field(11, Head::Length(length)) => {
                    let text = walk::text(stream, length)?;
                    if line.name.is_empty() {
                        line.name = text;
                    }
                }
                Next::Field(3, Head::Varint(value)) => line.timestamp = super::wire::signed(value),
                Next::Field(_, Head::Length(length)) => {
                    stream.skip(length)?;
                }
                Next::Field(..) => {}
                Next::End | Next::Cut => break,
                Next::Malformed => {
                    self.malformed_lines += 1;
                    break;
                }
            }
            // Derived lines of a device repeat what its streams show.
            if plane.role == PlaneRole::Device && !line.name.is_empty() && !line.name.starts_with(b"Stream #") {
                block.clear();
                break;
            }
        }
        self.dispatch_copy(number, plane, &mut block);
        self.copy = block;
        if self.blocks > first_block {
            self.lines.push(line);
        }
        Ok(())
    }

    fn spare_buffer(&self) -> Vec<u8> {
        self.used.lock().ok().and_then(|mut used| used.pop()).unwrap_or_default()
    }

    /// Has the events that were put together decoded, if there are any.
    fn dispatch_copy(&mut self, line: usize, plane: &'a Plane, copy: &mut Vec<u8>) {
        if !copy.is_empty() {
            let used = 0..copy.len();
            let mut spare = self.spare_buffer();
            spare.clear();
            self.dispatch(line, plane, std::mem::replace(copy, spare), used);
        }
    }

    /// Hands a block to a worker or, when all are busy, decodes it here.
    fn dispatch(&mut self, line: usize, plane: &'a Plane, buffer: Vec<u8>, used: Range<usize>) {
        let number = self.blocks;
        self.blocks += 1;
        let mut block = Block { number, line, plane, buffer, used };
        if let Some(sender) = &self.sender {
            match sender.try_send(block) {
                Ok(()) => return,
                Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => block = back,
            }
        }
        let decoded = self.own.block(plane, block.bytes());
        self.own_done.push(Done { number, line, worker: 0, decoded });
        if let Ok(mut used) = self.used.lock() {
            used.push(block.buffer);
        }
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

/// One history of what the decoders found.
fn merge(done: Vec<Done>, tallies: Vec<Tally>, lines: &[Line], history: &mut History) {
    let translations: Vec<Translation> = tallies.iter().map(|tally| translate(tally, history)).collect();
    let mut batches: Vec<Batch> = tallies.into_iter().map(|tally| tally.events).collect();
    let timestamp = |done: &Done| lines.get(done.line).map_or(0, |line| line.timestamp);
    let origin = done
        .iter()
        .filter(|done| !done.decoded.events.is_empty() || !done.decoded.marks.is_empty())
        .map(timestamp)
        .min()
        .unwrap_or(0);
    history.origin = Nanos(origin);
    let mut runs: Vec<Vec<(usize, Range<usize>)>> = Vec::new();
    let mut open: Vec<OpenScope> = Vec::new();
    let mut open_line = usize::MAX;
    for done in done {
        let shift = timestamp(&done).saturating_sub(origin).saturating_mul(1000);
        let (Some(translation), Some(batch)) = (translations.get(done.worker), batches.get_mut(done.worker)) else {
            continue;
        };
        let line_name = lines.get(done.line).map_or(&b""[..], |line| &line.name);
        let thread = history.names.intern(&String::from_utf8_lossy(line_name));
        if done.line != open_line {
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
        batch.settle(events.clone(), shift, thread, names, pools);
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
        let name = history.names.get(translation.name(*name)).to_owned();
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
    history.recorder.host_events += tally.host_events;
    history.recorder.bare_events += tally.bare_events;
    translation
}
