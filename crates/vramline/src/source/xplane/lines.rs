//! Second pass, outer part: cuts the lines of the planes that matter into blocks and has them decoded.
//!
//! One thread reads and cuts; the others decode; when all of them are busy the reader decodes too, so that no core
//! idles and no more than a few blocks are ever held. What the blocks gave is then put into one history: times on one
//! axis, names in one table, events in order.

use std::io;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};

use super::decode::{self, Decoded, Decoder, OpenScope, Tally};
use super::index::{Index, Plane, PlaneRole};
use super::walk::{self, Head, Next};
use super::wire::decode_varint;
use crate::event::{History, Mark, Pool, PoolId};
use crate::names::{Name, Names};
use crate::source::input::Stream;
use crate::units::{Nanos, Picos};

/// Lines are decoded in runs of about this many bytes.
const BLOCK: usize = 2 << 20;

/// An event longer than this is none of ours.
const LONGEST_EVENT: u64 = 16 << 20;

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
    bytes: Vec<u8>,
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
    let mut cutter = Cutter {
        lines: Vec::new(),
        spare: Vec::new(),
        sender: (workers > 0).then_some(sender),
        own: Decoder::new(names),
        own_done: Vec::new(),
        blocks: 0,
        skipped_events: 0,
        malformed_lines: 0,
    };
    std::thread::scope(|threads| {
        let receiver = &receiver;
        let handles: Vec<_> =
            (1..=workers).map(|number| threads.spawn(move || work(number, receiver, names))).collect();
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

fn work(number: usize, receiver: &Mutex<Receiver<Block<'_>>>, names: &Names) -> (Tally, Vec<Done>) {
    let mut decoder = Decoder::new(names);
    let mut done = Vec::new();
    loop {
        let received = match receiver.lock() {
            Ok(receiver) => receiver.recv(),
            Err(_) => break,
        };
        let Ok(block) = received else { break };
        let decoded = decoder.block(block.plane, &block.bytes);
        done.push(Done { number: block.number, line: block.line, worker: number, decoded });
    }
    (decoder.tally, done)
}

struct Cutter<'a> {
    lines: Vec<Line>,
    spare: Vec<u8>,
    sender: Option<SyncSender<Block<'a>>>,
    own: Decoder<'a>,
    own_done: Vec<Done>,
    blocks: usize,
    skipped_events: u64,
    malformed_lines: u64,
}

impl<'a> Cutter<'a> {
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
        let mut block = std::mem::take(&mut self.spare);
        loop {
            // Events first, as many as the window holds: this loop sees every event of the file.
            let left = usize::try_from(end.saturating_sub(stream.position())).unwrap_or(usize::MAX);
            let window = stream.window();
            let whole = whole_events(window.get(..left).unwrap_or(window));
            if whole > 0 {
                block.extend_from_slice(window.get(..whole).unwrap_or_default());
                stream.skip(whole as u64)?;
                if block.len() >= BLOCK {
                    self.dispatch(number, plane, &mut block);
                }
            }
            match walk::next(stream, end)? {
                Next::Field(4, Head::Length(length)) if length > LONGEST_EVENT => {
                    self.skipped_events += 1;
                    stream.skip(length)?;
                }
                Next::Field(4, Head::Length(length)) => {
                    // An event at the edge of the window.
                    let wanted = usize::try_from(length).unwrap_or(usize::MAX);
                    if stream.ensure(wanted)? < wanted {
                        break;
                    }
                    block.push(0x22);
                    push_varint(&mut block, length);
                    block.extend_from_slice(stream.window().get(..wanted).unwrap_or_default());
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
        if !block.is_empty() {
            self.dispatch(number, plane, &mut block);
        }
        self.spare = block;
        if self.blocks > first_block {
            self.lines.push(line);
        }
        Ok(())
    }

    /// Hands a block to a worker or, when all are busy, decodes it here.
    fn dispatch(&mut self, line: usize, plane: &'a Plane, bytes: &mut Vec<u8>) {
        let number = self.blocks;
        self.blocks += 1;
        let mut block = Block { number, line, plane, bytes: std::mem::take(bytes) };
        if let Some(sender) = &self.sender {
            match sender.try_send(block) {
                Ok(()) => {
                    bytes.reserve(BLOCK);
                    return;
                }
                Err(TrySendError::Full(back) | TrySendError::Disconnected(back)) => block = back,
            }
        }
        let decoded = self.own.block(plane, &block.bytes);
        self.own_done.push(Done { number, line, worker: 0, decoded });
        *bytes = block.bytes;
        bytes.clear();
    }
}

/// The length of the run of whole events at the front of a window.
fn whole_events(window: &[u8]) -> usize {
    let mut at = 0usize;
    while let Some(&0x22) = window.get(at) {
        let rest = window.get(at + 1..).unwrap_or_default();
        let Ok(Some((length, digits))) = decode_varint(rest) else { break };
        let Some(next) =
            usize::try_from(length).ok().and_then(|length| length.checked_add(at + 1 + digits)).filter(|&next| next <= window.len())
        else {
            break;
        };
        at = next;
    }
    at
}

fn push_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// One history of what the decoders found.
fn merge(done: Vec<Done>, tallies: Vec<Tally>, lines: &[Line], history: &mut History) {
    // Workers numbered their names and pools on their own.
    let mut pool_maps = Vec::new();
    let mut name_maps: Vec<Vec<Name>> = Vec::new();
    let mut pool_names: Vec<Name> = Vec::new();
    for tally in tallies {
        let name_map: Vec<Name> = tally.own_names.iter().map(|(_, text)| history.names.intern(text)).collect();
        let settle = |name: Name| settled(name, &name_map);
        let mut pool_map = Vec::new();
        for (name, pool) in tally.pools {
            let name = settle(name);
            let at = pool_names.iter().position(|known| *known == name).unwrap_or_else(|| {
                pool_names.push(name);
                history.pools.push(Pool { name: history.names.get(name).to_owned(), ..Pool::default() });
                pool_names.len() - 1
            });
            pool_map.push(PoolId(u16::try_from(at).unwrap_or(u16::MAX)));
            if let Some(known) = history.pools.get_mut(at) {
                known.limit = known.limit.max(pool.limit);
                known.lifetime_peak = known.lifetime_peak.max(pool.lifetime_peak);
            }
        }
        for (name, time) in tally.op_times {
            let known = history.op_times.entry(settle(name)).or_default();
            known.calls = known.calls.saturating_add(time.calls);
            known.total += time.total;
        }
        history.recorder.host_events += tally.host_events;
        history.recorder.bare_events += tally.bare_events;
        pool_maps.push(pool_map);
        name_maps.push(name_map);
    }

    let timestamp = |done: &Done| lines.get(done.line).map_or(0, |line| line.timestamp);
    let origin = done
        .iter()
        .filter(|done| !done.decoded.events.is_empty() || !done.decoded.marks.is_empty())
        .map(timestamp)
        .min()
        .unwrap_or(0);
    history.origin = Nanos(origin);
    history.events.reserve(done.iter().map(|done| done.decoded.events.len()).sum());
    let mut open: Vec<OpenScope> = Vec::new();
    let mut open_line = usize::MAX;
    for done in done {
        let shift = timestamp(&done).saturating_sub(origin).saturating_mul(1000);
        let line_name = lines.get(done.line).map_or(&b""[..], |line| &line.name);
        let thread = history.names.intern(&String::from_utf8_lossy(line_name));
        let no_names = Vec::new();
        let name_map = name_maps.get(done.worker).unwrap_or(&no_names);
        let no_pools = Vec::new();
        let pool_map = pool_maps.get(done.worker).unwrap_or(&no_pools);
        let mut decoded = done.decoded;
        if done.line != open_line {
            open.clear();
            open_line = done.line;
        }
        for &i in &decoded.unnamed {
            let i = i as usize;
            if let Some(context) = decode::enclosing(&open, decoded.events.time(i)) {
                decoded.events.set_context(i, context);
            }
        }
        let last = decoded.events.len().checked_sub(1).map_or(Picos(i64::MIN), |last| decoded.events.time(last));
        decode::join_open(&mut open, decoded.open, last);
        let on_axis = |time: Picos| Picos(time.0.saturating_add(shift));
        decoded.events.settle(
            on_axis,
            |name| settled(name, name_map),
            |pool| pool_map.get(usize::from(pool.0)).copied().unwrap_or(pool),
            thread,
        );
        history.events.append(decoded.events);
        for (pool, time, peak) in decoded.first_peaks {
            let known = pool_map.get(usize::from(pool.0)).and_then(|id| history.pools.get_mut(usize::from(id.0)));
            if let Some(known) = known
                && known.first_lifetime_peak.is_none_or(|first| (on_axis(time), peak) < first)
            {
                known.first_lifetime_peak = Some((on_axis(time), peak));
            }
        }
        history.marks.extend(decoded.marks.into_iter().map(|mark| Mark {
            name: settled(mark.name, name_map),
            kind: mark.kind,
            thread,
            begin: on_axis(mark.begin),
            length: mark.length,
        }));
    }
    history.events.sort_by_time();
    history.marks.sort_by_key(|mark| mark.begin);
}

fn settled(name: Name, map: &[Name]) -> Name {
    match decode::own_name(name) {
        Some(own) => map.get(own.0 as usize).copied().unwrap_or(Name::EMPTY),
        None => name,
    }
}
