//! What was said, made into failures: who speaks of which, and whether a list of chunks is whole.
//!
//! A pool writes its dump line by line while others write too. Each speaker has one dump open at a time. A list of
//! chunks counts only where it is proved whole: its begin and its end were seen, the chunks fill their regions without a
//! gap, and no other line contradicts their sums.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::lines::{Message, Speaker};
use super::said::{Said, Stat, Torch};
use crate::failure::{
    BINS, Bin, Buffer, Chunk, Dialect, Failure, Failures, Layout, Region, SizeRange, Tag, Witness, bin_of,
    narrow, rounded, size_of_tensor,
};
use crate::units::Bytes;

/// Chunks are kept up to this many over all failures; of later ones only their sums.
const MOST_CHUNKS: usize = 1 << 20;

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
    harmless: u64,
    /// The failure that XLA's list of buffers belongs to, and the buffer it is at.
    buffers_of: Option<usize>,
    buffer: Option<Buffer>,
    /// The failure of CUDA's asynchronous pool that goes on.
    asynchronous: Option<usize>,
    /// The error line that was heard last, where it names no op: the next line may.
    nameless: Option<Nameless>,
}

/// Where the failure of an error line is kept.
#[derive(Debug)]
enum Nameless {
    /// In the dump of a speaker.
    Open(Speaker),
    /// In the list.
    Listed(usize),
}

/// A dump that is being told.
#[derive(Debug)]
struct Dump {
    failure: Failure,
    bins: [Option<Bin>; BINS],
    regions: Vec<(Bytes, Region)>,
    is_list_begun: bool,
    is_list_ended: bool,
    is_broken: bool,
    is_in_stats: bool,
    /// Where the line of a dump that says nothing else would go on.
    has_dump: bool,
    sum_total: Option<SizeRange>,
}

impl Dump {
    fn new(message: &Message) -> Dump {
        let mut failure = Failure::new(Dialect::Bfc);
        failure.witnesses.push(witness(message));
        Dump {
            failure,
            bins: [None; BINS],
            regions: Vec::new(),
            is_list_begun: false,
            is_list_ended: false,
            is_broken: false,
            is_in_stats: false,
            has_dump: false,
            sum_total: None,
        }
    }
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
            Said::RanOut { allocator, requested, rounded, end, op } => {
                self.close(&message.speaker);
                let mut dump = Dump::new(&message);
                dump.failure.allocator.clone_from(allocator);
                dump.failure.rounded = rounded.map(SizeRange::exact);
                dump.failure.requested = *requested;
                if let Some(rounded) = rounded {
                    let least = Bytes(rounded.0.saturating_sub(crate::failure::GRANULE - 1));
                    narrow(&mut dump.failure.requested, Some(SizeRange { low: least, high: *rounded }));
                }
                dump.failure.end = *end;
                dump.failure.op.clone_from(op);
                self.begin(message.speaker, dump);
            }
            Said::DumpFor(name) => {
                let is_new = self.open.get(&message.speaker).is_none_or(|dump| {
                    dump.has_dump || dump.failure.allocator.as_ref().is_some_and(|known| known != name)
                });
                if is_new {
                    self.close(&message.speaker);
                    let mut dump = Dump::new(&message);
                    dump.failure.allocator = Some(name.clone());
                    self.begin(message.speaker.clone(), dump);
                }
                if let Some(dump) = self.open.get_mut(&message.speaker) {
                    dump.has_dump = true;
                    dump.failure.allocator = Some(name.clone());
                }
            }
            Said::Harmless => self.harmless += 1,
            Said::TensorError { .. } | Said::JaxError { .. } | Said::Torch(_) => self.hear_error(message),
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
                Said::Bin(_) | Said::BinFor | Said::Region(_) | Said::Chunk { .. } | Said::Pool { .. }
            );
            if !is_begin {
                return;
            }
            self.begin(message.speaker.clone(), Dump::new(message));
        }
        let names = &mut self.failures.names;
        let Some(dump) = self.open.get_mut(&message.speaker) else { return };
        let failure = &mut dump.failure;
        let is_consistent = match &message.said {
            Said::Bin(bin) => {
                dump.has_dump = true;
                let slot = dump.bins.get_mut(bin.number);
                let is_new = slot.as_ref().is_some_and(|slot| slot.is_none());
                if let Some(slot) = slot {
                    *slot = Some(*bin);
                }
                is_new
            }
            Said::BinFor => {
                dump.has_dump = true;
                dump.is_list_begun = dump.regions.is_empty();
                true
            }
            Said::Region(size) => {
                dump.has_dump = true;
                dump.regions.push((*size, Region::default()));
                true
            }
            Said::Chunk { dialect, address, size, in_use, tag, op } => {
                dump.has_dump = true;
                // Free chunks of the oldest dialect look like those of the next.
                failure.dialect = match (failure.dialect, *dialect) {
                    (Dialect::Bfc, found) => found,
                    (Dialect::BfcA | Dialect::BfcB, found @ (Dialect::BfcA | Dialect::BfcB)) => {
                        found.max(failure.dialect)
                    }
                    (known, _) => known,
                };
                let op = op.as_ref().map_or(crate::names::Name::EMPTY, |op| names.intern(op));
                let chunk =
                    Chunk { address: *address, size: *size, requested: None, in_use: *in_use, tag: *tag, op };
                match dump.regions.last_mut() {
                    Some((_, region)) => {
                        region.chunks.push(chunk);
                        true
                    }
                    None => false,
                }
            }
            Said::Summary => {
                dump.is_list_ended = true;
                true
            }
            Said::SumTotal(total) => narrow(&mut dump.sum_total, Some(*total)),
            Said::Pool { pool, limit, available } => {
                dump.has_dump = true;
                narrow(&mut failure.pool, Some(*pool))
                    && narrow(&mut failure.limit, Some(*limit))
                    && narrow(&mut failure.unallocated, Some(*available))
            }
            Said::Memory { largest, unallocated, pool, limit } => {
                narrow(&mut failure.pool, Some(*pool))
                    && narrow(&mut failure.limit, *limit)
                    && narrow(&mut failure.unallocated, Some(*unallocated))
                    && narrow(&mut failure.largest_free, *largest)
            }
            Said::Stats => {
                dump.is_in_stats = true;
                true
            }
            Said::Stat(stat, told) if dump.is_in_stats => match stat {
                Stat::Limit => narrow(&mut failure.limit, Some(*told)),
                Stat::InUse => narrow(&mut failure.in_use, Some(*told)),
                Stat::MaxInUse => narrow(&mut failure.peak_in_use, Some(*told)),
                Stat::NumAllocs => {
                    failure.allocs = told.value().map(|count| count.0);
                    true
                }
                // Nothing wrote it before 2026: it is zero there.
                Stat::LargestFreeBlock | Stat::Other => true,
            },
            Said::Occupancy => {
                dump.is_in_stats = false;
                true
            }
            _ => true,
        };
        // Lines of two dumps in one: none of it can be trusted to be of one pool.
        dump.is_broken |= !is_consistent;
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
        let failure = self.concluded(dump);
        self.add(failure);
    }

    fn add(&mut self, failure: Failure) -> Option<usize> {
        if self.failures.list.len() >= MOST_FAILURES {
            self.left_out += 1;
            return None;
        }
        self.failures.list.push(failure);
        Some(self.failures.list.len() - 1)
    }

    /// The failure that a dump tells of, with what its lines say together.
    fn concluded(&mut self, dump: Dump) -> Failure {
        let Dump { mut failure, bins, regions, is_list_begun, is_list_ended, is_broken, sum_total, .. } =
            dump;
        let told: Vec<Bin> = bins.iter().flatten().copied().collect();
        if is_broken {
            // Two dumps in one: only what the first line says is of one failure.
            let line = failure.witnesses.first().and_then(|witness| witness.line).unwrap_or(0);
            self.failures.warnings.add(
                "mixed-dump",
                format!(
                    "the dump from line {line} on holds lines of another, or lines that contradict each other"
                ),
                "",
            );
            failure.limit = None;
            failure.pool = None;
            failure.unallocated = None;
            failure.in_use = None;
            failure.largest_free = None;
            failure.peak_in_use = None;
            failure.allocs = None;
            return failure;
        }
        narrow(&mut failure.in_use, sum_total);
        let in_all_bins = (told.len() == BINS).then(|| told.iter().map(|bin| bin.chunks).sum::<u64>());
        let has_begin = is_list_begun || in_all_bins.is_some();
        if has_begin && is_list_ended && regions.iter().all(|(size, region)| fills(*size, region)) {
            let regions = regions.into_iter().map(|(_, region)| region).collect();
            let layout = Layout { regions, has_borders: true };
            let sums = layout.sums(failure.end);
            let counted = layout.chunks().filter(|chunk| chunk.tag != Tag::Gap).count() as u64;
            let fits = |told: Option<SizeRange>, exact: Bytes| {
                told.is_none_or(|told| told.and(SizeRange::exact(exact)).is_some())
            };
            let is_proved = in_all_bins.is_none_or(|count| count == counted)
                && bins_agree(&told, &layout)
                && fits(failure.pool, sums.pool)
                && fits(failure.in_use, sums.in_use);
            if is_proved {
                failure.set_sums(sums);
                self.kept_chunks += layout.chunks().count();
                if self.kept_chunks <= MOST_CHUNKS {
                    failure.layout = Some(layout);
                }
            } else {
                let line = failure.witnesses.first().and_then(|witness| witness.line).unwrap_or(0);
                self.failures.warnings.add(
                    "chunks-disagree",
                    format!("the list of chunks of the dump from line {line} on does not add up to what its other lines say"),
                    "lines are missing, or of another dump; its sums are left out",
                );
            }
        }
        if let Some(sums) = &failure.sums {
            // Each bin's own sum is known to the byte: only what was asked for is rounded.
            let of_bin = |bin: &Bin| {
                let exact = sums.in_use_of_bin.get(bin.number).copied().unwrap_or_default();
                SizeRange { low: bin.requested.low, high: bin.requested.high.min(exact) }
            };
            if told.len() == BINS {
                failure.requested_in_use =
                    Some(told.iter().map(of_bin).fold(SizeRange::exact(Bytes::ZERO), SizeRange::plus));
            }
        } else if told.len() == BINS {
            let sum = |of: fn(&Bin) -> SizeRange| {
                told.iter().map(of).fold(SizeRange::exact(Bytes::ZERO), SizeRange::plus)
            };
            narrow(&mut failure.in_use, Some(sum(|bin| bin.in_use)));
            failure.requested_in_use = Some(sum(|bin| bin.requested));
        }
        failure.bins = told;
        if let (Some(pool), Some(unallocated)) = (failure.pool, failure.unallocated) {
            narrow(&mut failure.limit, Some(pool.plus(unallocated)));
        }
        if let (Some(pool), Some(limit)) = (failure.pool, failure.limit) {
            narrow(&mut failure.unallocated, Some(limit.minus(pool)));
        }
        // Without tags every free chunk can be used.
        if failure.free.is_none()
            && matches!(failure.dialect, Dialect::BfcA | Dialect::BfcB | Dialect::BfcC)
            && let (Some(pool), Some(in_use)) = (failure.pool, failure.in_use)
        {
            failure.free = Some(pool.minus(in_use));
        }
        failure
    }

    /// An error line: of a failure whose dump was there, or one that is told by nothing else.
    fn hear_error(&mut self, message: Message) {
        let witness = witness(&message);
        match message.said {
            Said::TensorError { shape, dtype, device, allocator, op } => {
                let size = size_of_tensor(&shape, &dtype);
                let is_it = |failure: &Failure| {
                    let is_pool = match (&failure.allocator, &allocator) {
                        (Some(known), Some(name)) => known.starts_with(name.as_str()),
                        _ => true,
                    };
                    let is_size = match (failure.requested, size) {
                        (Some(known), Some(size)) => known.and(SizeRange::exact(size)).is_some(),
                        _ => true,
                    };
                    let is_same = failure.shape.as_ref().is_none_or(|known| *known == shape)
                        && failure.dtype.as_ref().is_none_or(|known| *known == dtype);
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
                narrow(&mut failure.requested, size.map(SizeRange::exact));
                if failure.rounded.is_none() && failure.dialect.is_bfc() {
                    failure.rounded = size.map(rounded).map(SizeRange::exact);
                }
                failure.allocator = failure.allocator.take().or(allocator);
                failure.op = failure.op.take().or(op);
                let is_nameless = failure.op.is_none();
                (failure.shape, failure.dtype, failure.device) = (Some(shape), Some(dtype), Some(device));
                if is_new {
                    new.witnesses.push(witness);
                    place = self.add(new).map(Nameless::Listed);
                }
                self.nameless = place.filter(|_| is_nameless);
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
                    self.add(new)
                });
                self.buffers_of = None;
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
                }
            }
            Said::Torch(torch) => {
                let failure = torch_failure(&torch, witness);
                // The same sentence is printed by each handler that passes the error on.
                let is_repeated = self.failures.list.last().is_some_and(|last| {
                    last.dialect == Dialect::PyTorch
                        && (&last.rounded, &last.device, &last.memory, &last.in_use)
                            == (&failure.rounded, &failure.device, &failure.memory, &failure.in_use)
                });
                if !is_repeated {
                    self.add(failure);
                }
            }
            _ => {}
        }
    }

    /// The last speaker whose failure is that, and whose list of chunks is told or has not begun. It stays open: another
    /// thread's error may come between its lines.
    fn told(&self, is_it: impl Fn(&Failure) -> bool) -> Option<Speaker> {
        let is_it = |dump: &Dump| (dump.is_list_ended || !dump.has_dump) && is_it(&dump.failure);
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
            self.asynchronous = self.add(failure);
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

    pub(crate) fn finish(mut self) -> Failures {
        for speaker in self.order.clone() {
            self.close(&speaker);
        }
        if let (Some(failure), Some(buffer)) =
            (self.buffers_of.and_then(|at| self.failures.list.get_mut(at)), self.buffer.take())
        {
            failure.buffers.push(buffer);
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
        if self.failures.list.len() < before {
            self.failures.warnings.add(
                "torn-dump",
                "the log holds a part of a dump from which nothing can be told",
                "give the whole log, from the line 'ran out of memory trying to allocate' on",
            );
        }
        if self.left_out > 0 {
            self.failures.warnings.add(
                "many-failures",
                format!("the log tells of {} more failures than are kept", self.left_out),
                "",
            );
        }
        if self.harmless > 0 {
            self.failures.warnings.add(
                "harmless",
                format!(
                    "{} allocations failed that the program could do without; they are not counted",
                    self.harmless
                ),
                "",
            );
        }
        self.failures
    }
}

fn torch_failure(torch: &Torch, witness: Witness) -> Failure {
    let mut failure = Failure::new(Dialect::PyTorch);
    failure.witnesses.push(witness);
    // What it asked the driver for: the tensor may be smaller.
    failure.rounded = torch.tried;
    failure.device.clone_from(&torch.device);
    failure.limit = torch.allowed;
    failure.memory = torch.memory;
    // In a container a process does not know its own number among those of the driver.
    failure.memory.others = torch.memory.others.filter(|_| torch.memory.this_process.is_some());
    failure.in_use = torch.allocated;
    failure.free = match (torch.unallocated, torch.reserved, torch.allocated) {
        (Some(told), ..) => Some(told),
        (None, Some(reserved), Some(allocated)) => Some(reserved.minus(allocated)),
        _ => None,
    };
    failure.pool = match (torch.reserved, torch.allocated, torch.unallocated) {
        (Some(told), ..) => Some(told),
        (None, Some(allocated), Some(unallocated)) => Some(allocated.plus(unallocated)),
        _ => None,
    };
    failure.unallocated = match (failure.limit, failure.pool, torch.memory.free) {
        (Some(limit), Some(pool), _) => Some(limit.minus(pool)),
        (_, _, free) => free,
    };
    failure
}

fn witness(message: &Message) -> Witness {
    Witness { line: Some(message.line), time: message.time.clone(), ..Witness::default() }
}

/// Whether chunks fill a region from its begin to its end.
fn fills(size: Bytes, region: &Region) -> bool {
    let mut next = region.chunks.first().map(|chunk| chunk.address);
    let touches = region.chunks.iter().all(|chunk| {
        let fits = next == Some(chunk.address);
        next = chunk.address.checked_add(chunk.size.0);
        fits
    });
    touches && region.size() == size
}

/// Whether the bins count what the chunks are.
fn bins_agree(bins: &[Bin], layout: &Layout) -> bool {
    let mut counts = [(0u64, 0u64); BINS];
    for chunk in layout.chunks().filter(|chunk| chunk.tag != Tag::Gap) {
        if let Some((all, in_use)) = counts.get_mut(bin_of(chunk.size)) {
            *all += 1;
            *in_use += u64::from(chunk.in_use);
        }
    }
    bins.iter().all(|bin| counts.get(bin.number) == Some(&(bin.chunks, bin.chunks_in_use)))
}
