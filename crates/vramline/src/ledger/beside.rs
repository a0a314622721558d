//! What a process holds beside its framework's pool, by its driver calls: the lines of the ledger that name it.
//!
//! ```text
//! this job = context + code + first launches + limits + streams + events + graphs + memory of libraries and of the program
//!          + pools of the driver + pools + rounding to pages + unexplained
//! ```
//!
//! Calls are measured by the memory of the whole device, for which NVML counts a few MiB more than for its processes once a process has a
//! context. These are taken off the context, and its line says so.
//!
//! Memory that was asked for by its size counts with that size. NVML counts pages of 2 MiB; the difference is one line. Everything else
//! counts with what NVML saw it take.

use super::{LineKind, SourcedBytes, Teller, signed};
use crate::trace::cuda_library::{CudaLibrary, LibraryOwner};
use crate::trace::driver_holdings::{CallPlace, DriverHoldings, DriverUse, HoldingsAt, PartAt};
use crate::units::{Bytes, counted};

/// What the driver calls of a process explain at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BesidePool {
    /// The lines, the context first, then the largest first.
    pub lines: Vec<HeldLine>,
    /// What NVML counted for memory beyond its requested bytes; `None` where NVML was not read.
    pub rounding: Option<i64>,
    /// Why the rest has no name.
    pub doubts: RestDoubts,
}

/// What may be in the rest that no call explains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RestDoubts {
    /// Changes between measured calls, which neighbours may have made.
    pub between: i64,
    /// Growth during calls of several threads at once.
    pub overlapping: i64,
    /// Whether no other process was on the device, so that calls which are not recorded made them.
    pub is_alone: bool,
    /// Records that were dropped.
    pub dropped: u64,
    /// Whether NVML could not be read in the process.
    pub is_unmeasured: bool,
}

impl std::fmt::Display for RestDoubts {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut reasons: Vec<String> = Vec::new();
        if self.is_unmeasured {
            reasons.push("NVML could not be read in this process".to_owned());
        }
        if self.between != 0 {
            let sign = if self.between < 0 { "-" } else { "" };
            let size = Bytes(self.between.unsigned_abs());
            let who = match self.is_alone {
                true => "calls that are not recorded, such as those of a profiler, did that",
                false => "other processes may have done that",
            };
            reasons.push(format!("{sign}{size} changed between recorded calls: {who}"));
        }
        if self.overlapping != 0 {
            let size = Bytes(self.overlapping.unsigned_abs());
            reasons.push(format!("{size} changed while several threads made calls"));
        }
        if self.dropped > 0 {
            reasons.push(format!("{} missing", counted(self.dropped, "driver call")));
        }
        out.write_str(&reasons.join("; "))
    }
}

/// Who reserved a framework's pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolSegments {
    /// Number of segments; 0 for a pool of the driver.
    pub count: u64,
    /// The library that reserved the largest.
    pub library: CudaLibrary,
    /// The line of Python that led to it.
    pub place: Option<CallPlace>,
}

impl std::fmt::Display for PoolSegments {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.count {
            0 => out.write_str("cudaMallocAsync")?,
            count => out.write_str(&counted(count, "segment"))?,
        }
        write!(out, " of {}", self.library.name)?;
        self.place.as_ref().map_or(Ok(()), |place| write!(out, ", {place}"))
    }
}

/// A line for what calls of one library took for one purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldLine {
    /// The kind of the line.
    pub kind: LineKind,
    /// The library that asked.
    pub library: CudaLibrary,
    /// Number of streams, events, graphs or allocations; 0 where nothing is counted.
    pub count: u64,
    /// The line of Python that first took memory for it.
    pub place: Option<CallPlace>,
    /// Its bytes.
    pub bytes: i64,
    /// Their source.
    pub by: Teller,
    /// The most that one call took.
    pub largest: i64,
    /// Of a pool of the driver: the bytes in use.
    pub used: Option<Bytes>,
    /// Of a context: what NVML counts for the device because of it, and not for the process. It is not in `bytes`.
    pub device_only: Option<Bytes>,
}

impl HeldLine {
    fn of(part: &PartAt<'_>, is_measured: bool) -> HeldLine {
        let PartAt { part, sum, used } = part;
        let is_sized = matches!(part.purpose, DriverUse::Memory | DriverUse::DriverPool);
        HeldLine {
            kind: kind_of(part.purpose, part.library.owner),
            library: part.library.clone(),
            count: u64::try_from(sum.count).unwrap_or(0),
            place: part.place.clone(),
            bytes: if is_sized || !is_measured { sum.requested } else { sum.grew },
            by: Teller::Calls,
            largest: part.largest.0,
            used: *used,
            device_only: None,
        }
    }

    /// The line in a sentence: `context`, `128 streams of PyTorch`, `cuBLAS`.
    #[must_use]
    pub fn phrase(&self) -> String {
        let library = &self.library.name;
        match self.kind {
            LineKind::CudaContext => "context".to_owned(),
            LineKind::LibraryMemory | LineKind::ProgramMemory => library.clone(),
            LineKind::Streams => format!("{} of {library}", counted(self.count, "stream")),
            LineKind::Events => format!("{} of {library}", counted(self.count, "event")),
            LineKind::FirstLaunches => format!("first launches of {library}"),
            kind => format!("{} of {library}", kind.title()),
        }
    }

    /// The library, the number of what it made, and the line of Python.
    #[must_use]
    pub fn detail(&self) -> String {
        let thing = match self.kind {
            LineKind::Streams => "stream",
            LineKind::Events => "event",
            LineKind::Graphs => "graph",
            LineKind::LibraryMemory | LineKind::ProgramMemory => "allocation",
            _ => "",
        };
        let mut words = vec![self.library.name.clone()];
        if self.count > 0 && !thing.is_empty() {
            words.push(counted(self.count, thing));
        }
        words.extend(self.place.as_ref().map(ToString::to_string));
        words.extend(
            self.device_only.map(|bytes| format!("without {bytes} that NVML counts for the device only")),
        );
        words.join(", ")
    }
}

fn kind_of(purpose: DriverUse, owner: LibraryOwner) -> LineKind {
    match purpose {
        DriverUse::Context => LineKind::CudaContext,
        DriverUse::Code => LineKind::Code,
        DriverUse::FirstLaunches => LineKind::FirstLaunches,
        DriverUse::Limits => LineKind::Limits,
        DriverUse::Streams => LineKind::Streams,
        DriverUse::Events => LineKind::Events,
        DriverUse::Graphs => LineKind::Graphs,
        DriverUse::Memory if matches!(owner, LibraryOwner::Library | LibraryOwner::Framework) => {
            LineKind::LibraryMemory
        }
        DriverUse::Memory => LineKind::ProgramMemory,
        DriverUse::DriverPool => LineKind::DriverPool,
        DriverUse::Pinned => LineKind::PinnedMemory,
        DriverUse::Transfers => LineKind::Transfers,
        DriverUse::Other => LineKind::OtherCalls,
    }
}

impl BesidePool {
    /// The lines of what a process holds, without its framework's pool.
    #[must_use]
    pub(crate) fn of(
        holdings: &DriverHoldings,
        held: &HoldingsAt<'_>,
        device_only: Option<SourcedBytes>,
        is_alone: bool,
    ) -> BesidePool {
        let is_measured = holdings.is_measured;
        let mut lines: Vec<HeldLine> = Vec::new();
        let mut rounding = held.pool.grew.saturating_sub(held.pool.requested);
        for part in &held.parts {
            if matches!(part.part.purpose, DriverUse::Memory | DriverUse::DriverPool) {
                rounding = rounding.saturating_add(part.sum.grew).saturating_sub(part.sum.requested);
            }
            let line = HeldLine::of(part, is_measured);
            // The driver starts in one library and makes the context in another: that is one thing.
            let is_context = |known: &&mut HeldLine| {
                line.kind == LineKind::CudaContext && known.kind == LineKind::CudaContext
            };
            match lines.iter_mut().find(is_context) {
                Some(known) => {
                    if line.bytes > known.bytes {
                        (known.library, known.place) = (line.library, line.place);
                    }
                    known.bytes = known.bytes.saturating_add(line.bytes);
                }
                None => lines.push(line),
            }
        }
        lines.retain(|line| line.bytes != 0);
        let context = lines.iter_mut().find(|line| line.kind == LineKind::CudaContext);
        if let (Some(context), Some(only)) = (context, device_only.filter(|_| is_measured)) {
            context.bytes = context.bytes.saturating_sub(signed(only.bytes));
            context.device_only = Some(only.bytes);
            // With several processes the share of each is not certain.
            if only.by == Teller::Estimated {
                context.by = Teller::Estimated;
            }
        }
        lines.sort_by_key(|line| (line.kind != LineKind::CudaContext, line.bytes.saturating_neg()));
        BesidePool {
            lines,
            rounding: is_measured.then_some(rounding),
            doubts: RestDoubts {
                between: held.between,
                overlapping: held.overlapping,
                is_alone,
                dropped: holdings.dropped,
                is_unmeasured: !is_measured,
            },
        }
    }
}

/// What NVML counts for a device beyond its processes, since before the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceOnly {
    /// Its bytes.
    pub(super) bytes: Bytes,
    /// Number of processes that came since then.
    pub(super) processes: usize,
}

impl DeviceOnly {
    /// The share of a process whose calls took `grew` bytes of the device, and for which NVML counts `held`. It is certain where there is
    /// one process only.
    pub(super) fn of_process(self, grew: i64, held: Option<i64>) -> Option<SourcedBytes> {
        /// More than this for each process is something else: a process that the driver does not list.
        const MOST: u64 = 64 << 20;
        if self.bytes.0 > MOST.saturating_mul(self.processes as u64) {
            return None;
        }
        match self.processes {
            0 => None,
            1 => Some(SourcedBytes { bytes: self.bytes, by: Teller::Derived }),
            _ => {
                let beyond = Bytes(u64::try_from(grew.saturating_sub(held?)).unwrap_or(0));
                Some(SourcedBytes { bytes: beyond.min(self.bytes), by: Teller::Estimated })
            }
        }
    }
}
