//! What was said, made into failures: who speaks of which.
//!
//! A pool writes its dump line by line while others write too. Each speaker has one dump open at a time.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::dump::Dump;
use super::echo::{self, Echo};
use super::library;
use super::lines::{Message, Speaker};
use super::refusals::{DEADLY_LINES, Refusals};
use super::said::{Refused, Said, Sentence, TensorError};
use super::sentences::failure_of;
use crate::failure::{
    Buffer, Dialect, Failure, Failures, Platform, ProgramNeed, SizeRange, Witness, narrow, rounded,
    size_of_tensor, sizes_of_tensor,
};
use crate::units::{Bytes, plural};

/// Failures are kept up to this many; a log with more repeats itself.
const MOST_FAILURES: usize = 10_000;

/// So many dumps can be open at once.
const MOST_OPEN: usize = 64;

/// Buffers of an executable's peak that are kept; XLA writes fifteen.
const MOST_BUFFERS: usize = 256;

/// Among so many of the last failures is the one that an error line belongs to.
const NEAR: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Collector {
    open: FxHashMap<Speaker, Dump>,
    order: VecDeque<Speaker>,
    failures: Failures,
    kept_chunks: usize,
    left_out: u64,
    /// The launcher's mark before each failure of the list.
    tags: Vec<Vec<u8>>,
    /// Refusals of the driver that belong to nothing yet.
    refusals: Refusals,
    /// The last request that the program was said to do without: an error may follow that tells the same.
    last_soft: Option<LastSoft>,
    /// The last failure after which the program said that it goes on: it may die of it all the same.
    survived: Option<Survived>,
    /// What XLA said of a program whose failure has not come yet.
    program: Option<ProgramNeed>,
    host_kills: u64,
    on_chip: u64,
    /// Where pinned memory of the host was refused last: the next line may say why.
    host_refused: Option<u64>,
    /// The failure that XLA's list of buffers belongs to, and the buffer it is at.
    buffers_of: Option<usize>,
    buffer: Option<Buffer>,
    /// The failure of CUDA's asynchronous pool that goes on.
    asynchronous: Option<usize>,
    /// The error line that was heard last, where it names no op: the next line may.
    nameless: Option<Nameless>,
}

/// A program that goes on after a failure says so within so many lines.
const RETRY_LINES: u64 = 8;

/// A request that the program was said to do without, and what the driver refused for it.
#[derive(Debug)]
struct LastSoft {
    allocator: Option<String>,
    requested: SizeRange,
    refusals: Refusals,
    line: u64,
}

/// A program that says it goes on, and dies within so many lines, did not.
const RELAPSE_LINES: u64 = 40;

/// A failure after which the program said that it goes on.
#[derive(Debug)]
struct Survived {
    failure: Failure,
    tag: Vec<u8>,
    line: u64,
}

/// Where the failure of an error line is kept.
#[derive(Debug)]
enum Nameless {
    /// In the dump of a speaker.
    Open(Speaker),
    /// In the list.
    Listed(usize),
}

impl Collector {
    /// Whether a dump is being told: its end is worth waiting for.
    pub(crate) fn is_within(&self) -> bool {
        self.open.values().any(|dump| dump.has_dump && !dump.is_list_ended)
    }

    pub(crate) fn take(&mut self, messages: &mut Vec<Message>) {
        for message in messages.drain(..) {
            self.hear(message);
        }
    }

    fn hear(&mut self, message: Message) {
        if self.buffers_of.is_some() && !matches!(message.said, Said::Stat(..)) {
            self.hear_buffers(&message);
        }
        let nameless = self.nameless.take();
        match &message.said {
            Said::Node(op) => self.name(nameless, op),
            Said::Soft { allocator, requested } => {
                self.hear_soft(allocator.as_ref(), *requested, message.line);
            }
            Said::SeeLogs(requested) => self.hear_see_logs(&message, *requested),
            Said::DriverRefused(refused) => self.refusals.add(witness(&message), message.line, *refused),
            // Pinned memory of the host: programs go on with less.
            Said::HostRefused => self.host_refused = Some(message.line),
            Said::NoHandle(name) => self.hear_no_handle(name, &message),
            Said::Died => {
                self.refusals.died(message.line);
                self.relapse(message.line);
            }
            Said::Retried => self.hear_retried(&message),
            Said::HostKilled => self.host_kills += 1,
            Said::OnChip => self.on_chip += 1,
            // The smallest budget is what binds.
            Said::Program(program) => {
                let is_tighter = |known: ProgramNeed| program.budget.high < known.budget.high;
                if self.program.is_none_or(is_tighter) {
                    self.program = Some(*program);
                }
            }
            Said::RanOut { allocator, requested, rounded, end, op } => {
                self.close(&message.speaker);
                let mut dump = Dump::new(witness(&message));
                dump.failure.allocator.clone_from(allocator);
                dump.failure.rounded = rounded.map(SizeRange::exact);
                dump.failure.requested = *requested;
                if let Some(rounded) = rounded {
                    let least = Bytes(rounded.0.saturating_sub(crate::failure::GRANULE - 1));
                    narrow(&mut dump.failure.requested, Some(SizeRange { low: least, high: *rounded }));
                }
                dump.failure.end = *end;
                dump.failure.op.clone_from(op);
                blame(&mut dump.failure, self.refused_for(*requested));
                dump.failure.program = self.program;
                self.begin(message.speaker, dump);
            }
            Said::DumpFor(name) => {
                let is_new = self.open.get(&message.speaker).is_none_or(|dump| {
                    dump.has_dump || dump.failure.allocator.as_ref().is_some_and(|known| known != name)
                });
                if is_new {
                    self.close(&message.speaker);
                    let mut dump = Dump::new(witness(&message));
                    dump.failure.allocator = Some(name.clone());
                    self.begin(message.speaker.clone(), dump);
                }
                if let Some(dump) = self.open.get_mut(&message.speaker) {
                    dump.has_dump = true;
                    dump.failure.allocator = Some(name.clone());
                }
            }
            Said::TensorError(_) | Said::OpFailed(_) | Said::JaxError { .. } | Said::Sentence(_) => {
                self.hear_error(message);
            }
            Said::AsyncFailed { .. }
            | Said::AsyncDevice { .. }
            | Said::AsyncReserved(_)
            | Said::AsyncUsed(_) => {
                self.hear_async(&message);
            }
            Said::PeakBuffers
            | Said::BufferBegins
            | Said::BufferSize(_)
            | Said::BufferOperator(_)
            | Said::BufferLabel(_)
            | Said::BufferShape(_) => {
                if matches!(message.said, Said::PeakBuffers) {
                    self.buffers_of = self.failures.list.len().checked_sub(1);
                }
            }
            _ => self.hear_dump(&message),
        }
    }

    /// Names the op of an error line.
    fn name(&mut self, nameless: Option<Nameless>, op: &str) {
        let failure = match nameless {
            Some(Nameless::Open(speaker)) => self.open.get_mut(&speaker).map(|dump| &mut dump.failure),
            Some(Nameless::Listed(at)) => self.failures.list.get_mut(at),
            None => None,
        };
        if let Some(failure) = failure.filter(|failure| failure.op.is_none()) {
            failure.op = Some(op.to_owned());
        }
    }

    /// A line of a dump. One whose begin is missing is a dump all the same.
    fn hear_dump(&mut self, message: &Message) {
        if !self.open.contains_key(&message.speaker) {
            let is_begin = matches!(
                message.said,
                Said::Bin(_)
                    | Said::BinFor
                    | Said::Region(_)
                    | Said::Chunk { .. }
                    | Said::Pool { .. }
                    | Said::Summary
                    | Said::SumTotal(_)
            );
            if !is_begin {
                return;
            }
            self.begin(message.speaker.clone(), Dump::new(witness(message)));
        }
        if let Some(dump) = self.open.get_mut(&message.speaker) {
            dump.hear(&message.said, &mut self.failures.names);
        }
    }

    fn begin(&mut self, speaker: Speaker, dump: Dump) {
        if self.open.len() >= MOST_OPEN
            && let Some(oldest) = self.order.pop_front()
        {
            self.close(&oldest);
        }
        self.order.push_back(speaker.clone());
        self.open.insert(speaker, dump);
    }

    fn close(&mut self, speaker: &Speaker) {
        let Some(dump) = self.open.remove(speaker) else { return };
        self.order.retain(|open| open != speaker);
        let failure = dump.concluded(&mut self.failures.warnings, &mut self.kept_chunks);
        self.add(failure, speaker.tag.clone());
    }

    fn add(&mut self, failure: Failure, tag: Vec<u8>) -> Option<usize> {
        if self.failures.list.len() >= MOST_FAILURES {
            self.left_out += 1;
            return None;
        }
        // What told that something failed, and nothing else, told of this.
        let last = self.failures.list.last().zip(self.tags.last());
        let is_told = last.is_some_and(|(last, known)| {
            echo::may_be_one(known, &tag) && echo::compare(last, &failure) == Echo::Better
        });
        if is_told {
            self.failures.list.pop();
            self.tags.pop();
        }
        self.failures.list.push(failure);
        self.tags.push(tag);
        Some(self.failures.list.len() - 1)
    }

    fn hear_soft(&mut self, allocator: Option<&String>, requested: SizeRange, line: u64) {
        self.count_soft();
        // What the driver refused was for this.
        let refusals = std::mem::take(&mut self.refusals);
        self.last_soft = Some(LastSoft { allocator: allocator.cloned(), requested, refusals, line });
    }

    /// The last request that the program could do without did no harm.
    fn count_soft(&mut self) {
        if let Some(LastSoft { allocator, requested, mut refusals, .. }) = self.last_soft.take() {
            let soft = &mut self.failures.soft;
            soft.add(allocator.as_ref(), Some(requested));
            refusals.forget(soft);
        }
    }

    /// What the driver had refused for a request that an error line tells; also where it was said to do no harm first.
    fn refused_for(&mut self, requested: Option<SizeRange>) -> Option<Refused> {
        let is_it = |soft: &LastSoft| requested.is_some_and(|told| told.and(soft.requested).is_some());
        let soft = self.last_soft.take_if(|soft| is_it(soft)).and_then(|mut soft| soft.refusals.take());
        soft.or_else(|| self.refusals.take())
    }

    /// The program says that it goes on after this failure, if there is one.
    fn survive(&mut self, told: Option<(Failure, Vec<u8>)>, line: u64) {
        if let Some(before) = self.survived.take() {
            self.failures.soft.add(None, before.failure.requested.or(before.failure.rounded));
        }
        self.survived = told.map(|(failure, tag)| Survived { failure, tag, line });
    }

    /// The program died: of what it said to go on after, if that was just before.
    fn relapse(&mut self, line: u64) {
        let is_near = |survived: &mut Survived| line.saturating_sub(survived.line) <= RELAPSE_LINES;
        if let Some(Survived { failure, tag, .. }) = self.survived.take_if(is_near) {
            self.add(failure, tag);
        }
    }

    /// What failed just before did no harm.
    fn hear_retried(&mut self, message: &Message) {
        let Some(last) = self.failures.list.last() else { return };
        let line = last.witnesses.last().and_then(|witness| witness.line).unwrap_or(0);
        // Said of one that was told to be survived already.
        let is_told = self.survived.as_ref().is_some_and(|survived| survived.line >= line);
        if !is_told && echo::is_sentence(last) && message.line.saturating_sub(line) <= RETRY_LINES {
            let failure = self.failures.list.pop();
            let tag = self.tags.pop();
            self.survive(failure.zip(tag), message.line);
        }
    }

    /// The last word of a failure whose dump was told; until 2017 the only one that says how much was asked for.
    fn hear_see_logs(&mut self, message: &Message, requested: SizeRange) {
        let is_it = |failure: &Failure| {
            failure.requested.is_none_or(|known| known.and(requested).is_some()) && failure.dialect.is_bfc()
        };
        if self.open.get(&message.speaker).is_none_or(|dump| !is_it(&dump.failure)) {
            self.close(&message.speaker);
            self.begin(message.speaker.clone(), Dump::new(witness(message)));
        }
        if let Some(dump) = self.open.get_mut(&message.speaker) {
            narrow(&mut dump.failure.requested, Some(requested));
            blame(&mut dump.failure, self.refusals.take());
        }
    }

    /// An error line: of a failure whose dump was there, or one that is told by nothing else.
    fn hear_error(&mut self, message: Message) {
        let witness = witness(&message);
        let tag = message.speaker.tag;
        match message.said {
            Said::TensorError(error) => self.hear_tensor_error(error, witness, tag),
            Said::OpFailed(op) => {
                let is_it = |failure: &Failure| {
                    failure.dialect.is_bfc() && failure.op.as_ref().is_none_or(|known| *known == op)
                };
                let known = match self.told(is_it) {
                    Some(speaker) => self.open.get_mut(&speaker).map(|dump| &mut dump.failure),
                    None => self.near(is_it).and_then(|at| self.failures.list.get_mut(at)),
                };
                if let Some(failure) = known {
                    failure.op = Some(op);
                    return;
                }
                let mut failure = Failure::new(Dialect::TensorFlowError);
                failure.witnesses.push(witness);
                failure.op = Some(op);
                blame(&mut failure, self.refusals.take());
                self.add(failure, tag);
            }
            Said::JaxError { requested, allocator, device, executable } => {
                let is_it = |failure: &Failure| {
                    let is_pool = match (&failure.allocator, &allocator) {
                        (Some(known), Some(name)) => known == name,
                        _ => true,
                    };
                    let is_size = failure.requested.is_none_or(|known| known.and(requested).is_some());
                    let is_device = match (&failure.device, &device) {
                        (Some(known), Some(device)) => known == device,
                        _ => true,
                    };
                    let is_kind = failure.dialect.is_bfc() || failure.dialect == Dialect::CudaMallocAsync;
                    is_kind && failure.shape.is_none() && is_pool && is_size && is_device
                };
                // The list of its buffers follows.
                if let Some(speaker) = self.told(is_it) {
                    self.close(&speaker);
                }
                let at = self.near(is_it).or_else(|| {
                    let mut new = Failure::new(Dialect::JaxError);
                    new.witnesses.push(witness);
                    self.add(new, tag)
                });
                self.buffers_of = None;
                let (program, refused) = (self.program, self.refused_for(Some(requested)));
                if let Some(failure) = at.and_then(|at| self.failures.list.get_mut(at)) {
                    narrow(&mut failure.requested, Some(requested));
                    if failure.rounded.is_none()
                        && failure.dialect.is_bfc()
                        && let Some(requested) = failure.requested
                    {
                        let (low, high) = (rounded(requested.low), rounded(requested.high));
                        failure.rounded = Some(SizeRange { low, high });
                    }
                    failure.allocator = failure.allocator.take().or(allocator);
                    failure.device = failure.device.take().or(device);
                    failure.executable = failure.executable.take().or(executable);
                    failure.program = failure.program.or(program);
                    blame(failure, refused);
                }
            }
            Said::Sentence(sentence) => self.hear_sentence(&sentence, witness, tag),
            _ => {}
        }
    }

    fn hear_tensor_error(&mut self, error: TensorError, witness: Witness, tag: Vec<u8>) {
        let TensorError { shape, dtype, device, allocator, op } = error;
        let size = dtype.as_ref().and_then(|dtype| size_of_tensor(&shape, dtype));
        let is_it = |failure: &Failure| {
            let is_pool = match (&failure.allocator, &allocator) {
                (Some(known), Some(name)) => known.starts_with(name.as_str()),
                _ => true,
            };
            let is_size = match (failure.requested, size) {
                (Some(known), Some(size)) => known.and(SizeRange::exact(size)).is_some(),
                // Without a type it must be of one that there is.
                (Some(known), None) if dtype.is_none() => sizes_of_tensor(&shape)
                    .into_iter()
                    .any(|size| known.and(SizeRange::exact(size)).is_some()),
                _ => true,
            };
            let agree = |known: &Option<String>, told: &Option<String>| {
                known.as_ref().zip(told.as_ref()).is_none_or(|(known, told)| known == told)
            };
            let is_same =
                failure.shape.as_ref().is_none_or(|known| *known == shape) && agree(&failure.dtype, &dtype);
            let is_kind = failure.dialect.is_bfc() || failure.dialect == Dialect::CudaMallocAsync;
            is_kind && failure.dialect != Dialect::JaxError && is_pool && is_size && is_same
        };
        let mut new = Failure::new(Dialect::TensorFlowError);
        let mut is_new = false;
        let mut place;
        let failure = if let Some(speaker) = self.told(is_it) {
            place = Some(Nameless::Open(speaker.clone()));
            self.open.get_mut(&speaker).map(|dump| &mut dump.failure)
        } else {
            let near = self.near(is_it);
            place = near.map(Nameless::Listed);
            near.and_then(|at| self.failures.list.get_mut(at))
        }
        .unwrap_or_else(|| {
            is_new = true;
            &mut new
        });
        // A shape and a rounded size have one element size between them.
        let size = size.or_else(|| {
            let known = failure.requested.filter(|_| dtype.is_none())?;
            let mut fitting = sizes_of_tensor(&shape)
                .into_iter()
                .filter(|size| known.and(SizeRange::exact(*size)).is_some());
            fitting.next().filter(|_| fitting.next().is_none())
        });
        narrow(&mut failure.requested, size.map(SizeRange::exact));
        if failure.rounded.is_none() && failure.dialect.is_bfc() {
            failure.rounded = size.map(rounded).map(SizeRange::exact);
        }
        failure.allocator = failure.allocator.take().or(allocator);
        failure.op = failure.op.take().or(op);
        let is_nameless = failure.op.is_none();
        failure.shape = Some(shape);
        failure.dtype = failure.dtype.take().or(dtype);
        failure.device = failure.device.take().or(device);
        if is_new {
            new.witnesses.push(witness);
            let refused = self.refused_for(new.requested);
            blame(&mut new, refused);
            place = self.add(new, tag).map(Nameless::Listed);
        }
        self.nameless = place.filter(|_| is_nameless);
    }

    /// A failure in a sentence of its own, unless it is the echo of one that was told: each handler that passes an error on prints it.
    fn hear_sentence(&mut self, sentence: &Sentence, witness: Witness, tag: Vec<u8>) {
        let mut failure = failure_of(sentence, witness);
        if sentence.is_survived {
            let line = failure.witnesses.first().and_then(|witness| witness.line).unwrap_or(0);
            self.survive(Some((failure, tag)), line);
            return;
        }
        // The error of a dump that is not told to its end yet.
        let is_open = |speaker: &Speaker| echo::may_be_one(&speaker.tag, &tag);
        let line = failure.witnesses.first().and_then(|witness| witness.line);
        let is_of_host = self.host_refused.zip(line).is_some_and(|(refused, line)| line == refused + 1);
        if echo::is_bare(&failure) && (is_of_host || self.open.keys().any(is_open)) {
            return;
        }
        let from = self.failures.list.len().saturating_sub(NEAR);
        let near = self.failures.list.get_mut(from..).unwrap_or_default().iter_mut();
        let tags = self.tags.get(from..).unwrap_or_default();
        for (known, known_tag) in near.zip(tags).rev() {
            if !echo::may_be_one(known_tag, &tag) {
                continue;
            }
            match echo::compare(known, &failure) {
                Echo::Other => {}
                Echo::Known => return,
                Echo::Better => {
                    failure.witnesses.splice(..0, std::mem::take(&mut known.witnesses));
                    failure.refused = known.refused;
                    *known = failure;
                    return;
                }
            }
        }
        blame(&mut failure, self.refusals.take());
        self.add(failure, tag);
    }

    /// A library that could not start, where memory was short just before.
    fn hear_no_handle(&mut self, name: &'static str, message: &Message) {
        let is_soft = |soft: &LastSoft| message.line.saturating_sub(soft.line) <= DEADLY_LINES;
        if self.refusals.are_near(message.line) || self.last_soft.as_ref().is_some_and(is_soft) {
            let sentence = Sentence { is_inferred: true, ..library::bare(name, Platform::Cuda) };
            self.hear_sentence(&sentence, witness(message), message.speaker.tag.clone());
        }
    }

    /// The last speaker whose failure is that, and whose list of chunks is told or has not begun. It stays open: another
    /// thread's error may come between its lines.
    fn told(&self, is_it: impl Fn(&Failure) -> bool) -> Option<Speaker> {
        let is_it = |dump: &Dump| dump.is_told() && is_it(&dump.failure);
        self.order.iter().rev().find(|speaker| self.open.get(speaker).is_some_and(is_it)).cloned()
    }

    /// Which of the last failures is that.
    fn near(&self, is_it: impl Fn(&Failure) -> bool) -> Option<usize> {
        let from = self.failures.list.len().saturating_sub(NEAR);
        let near = self.failures.list.get(from..).unwrap_or_default();
        near.iter().rposition(is_it).map(|at| from + at)
    }

    fn hear_async(&mut self, message: &Message) {
        if let Said::AsyncFailed { allocator, requested } = &message.said {
            let mut failure = Failure::new(Dialect::CudaMallocAsync);
            failure.witnesses.push(witness(message));
            failure.allocator.clone_from(allocator);
            failure.requested = Some(SizeRange::exact(*requested));
            // How the driver rounds is not told; it is never less.
            failure.rounded = failure.requested;
            self.asynchronous = self.add(failure, message.speaker.tag.clone());
            return;
        }
        let Some(failure) = self.asynchronous.and_then(|at| self.failures.list.get_mut(at)) else { return };
        match message.said {
            Said::AsyncDevice { free, total } => {
                failure.memory.free = Some(SizeRange::exact(free));
                failure.memory.total = Some(SizeRange::exact(total));
                failure.unallocated = failure.memory.free;
            }
            Said::AsyncReserved(bytes) => failure.pool = Some(SizeRange::exact(bytes)),
            Said::AsyncUsed(bytes) => failure.in_use = Some(SizeRange::exact(bytes)),
            _ => {}
        }
        failure.free = failure.pool.zip(failure.in_use).map(|(pool, in_use)| pool.minus(in_use));
    }

    fn hear_buffers(&mut self, message: &Message) {
        let Some(failure) = self.buffers_of.and_then(|at| self.failures.list.get_mut(at)) else { return };
        match &message.said {
            Said::BufferBegins => {
                failure.buffers.extend(self.buffer.take());
                if failure.buffers.len() >= MOST_BUFFERS {
                    self.buffers_of = None;
                }
            }
            Said::BufferSize(size) => {
                let (operator, label, shape) = Default::default();
                self.buffer = Some(Buffer { size: *size, operator, label, shape });
            }
            Said::BufferOperator(text) => {
                self.buffer.iter_mut().for_each(|buffer| buffer.operator.clone_from(text));
            }
            Said::BufferLabel(text) => {
                self.buffer.iter_mut().for_each(|buffer| buffer.label.clone_from(text));
            }
            Said::BufferShape(text) => {
                self.buffer.iter_mut().for_each(|buffer| buffer.shape.clone_from(text));
            }
            _ => {
                failure.buffers.extend(self.buffer.take());
                self.buffers_of = None;
            }
        }
    }

    /// Two streams in one log may be out of order: what the driver refused is told after the error that it led to.
    fn blame_the_last(&mut self) {
        let Some(last) = self.failures.list.last_mut().filter(|last| last.refused.is_none()) else { return };
        let line = last.witnesses.last().and_then(|witness| witness.line).unwrap_or(0);
        if let Some(requested) = last.requested
            && self.refusals.are_of(requested, line)
        {
            blame(last, self.refusals.take());
        }
    }

    /// Ends at the last line of the log.
    pub(crate) fn finish(mut self, last_line: u64) -> Failures {
        for speaker in self.order.clone() {
            self.close(&speaker);
        }
        if let (Some(failure), Some(buffer)) =
            (self.buffers_of.and_then(|at| self.failures.list.get_mut(at)), self.buffer.take())
        {
            failure.buffers.push(buffer);
        }
        self.count_soft();
        self.survive(None, 0);
        self.blame_the_last();
        if let Some(failure) = self.refusals.conclude(last_line, &mut self.failures.soft) {
            self.add(failure, Vec::new());
        }
        // Dumps end when the next begins, so that threads may be out of order.
        self.failures.list.sort_by_key(|failure| failure.witnesses.first().and_then(|witness| witness.line));
        // A dump of which not even the pool is known is a log's torn edge.
        let is_edge = |failure: &Failure| {
            let is_error = matches!(failure.dialect, Dialect::TensorFlowError | Dialect::JaxError);
            failure.dialect.is_bfc()
                && !is_error
                && failure.requested.is_none()
                && failure.sums.is_none()
                && failure.limit.is_none()
                && failure.in_use.is_none()
        };
        let before = self.failures.list.len();
        self.failures.list.retain(|failure| !is_edge(failure));
        let warnings = &mut self.failures.warnings;
        if self.failures.list.len() < before {
            warnings.add(
                "torn-dump",
                "the log contains only a part of a dump, too little to use",
                "pass the whole log, from the line 'ran out of memory trying to allocate' on",
            );
        }
        if self.left_out > 0 {
            warnings.add(
                "many-failures",
                format!(
                    "the log contains {} that Vramline did not keep",
                    plural(self.left_out, "more failure", "more failures")
                ),
                "",
            );
        }
        if self.host_kills > 0 {
            warnings.add(
                "host-memory",
                "the system killed a process because host memory was full; this is not GPU memory",
                "give the job more host memory, or load less data at once: fewer workers, smaller buffers",
            );
        }
        if self.on_chip > 0 {
            warnings.add(
                "on-chip-memory",
                "a kernel requested more on-chip memory (shared memory, vmem) than the device has; device memory is not full",
                "use smaller blocks or fewer stages for that kernel",
            );
        }
        self.failures
    }
}

/// Says of a failure what the driver had refused before it.
fn blame(failure: &mut Failure, refused: Option<Refused>) {
    let Some(refused) = refused else { return };
    failure.refused = failure.refused.or(Some(refused.bytes));
    failure.platform = failure.platform.or(refused.platform);
}

fn witness(message: &Message) -> Witness {
    Witness { line: Some(message.line), time: message.time.clone(), ..Witness::default() }
}
