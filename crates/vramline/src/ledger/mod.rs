//! *Internal.* The ledger: the memory of a device at one moment, split from the whole device down to roles. The bytes of every level add up.
//!
//! ```text
//! device total        = driver reserved + free + processes
//! processes           = this job + others + unattributed
//! this job (process)  = context at start + pools + grown outside the pools since + unexplained
//! pool (from driver)  = in use + cached free
//! in use              = requested, by role + slack + before the recording
//! ```
//!
//! If the driver calls of a process were recorded, they name what lies outside its pools: see [`beside`].
//!
//! On the CPU stand-in, host memory takes the place of device memory. There is no driver and no context: the kernel reports the figures, and
//! memory of a process outside its pool is the program's own.
//!
//! ```text
//! this job (process)  = the program's own + pools + pool not resident
//! ```
//!
//! Every figure has a source. Reported figures are never changed. A derived figure is what remains of a total, and has its own line. So every
//! level adds up by construction, and figures that contradict each other show as "unattributed" or "unexplained". Lines are signed: on the CPU
//! stand-in, pages that were never touched are subtracted, and the processes that a driver lists may hold more than the driver's own total.
//!
//! This module does not read any figures: see [`moments`] for recordings.

pub mod beside;
mod estimate;
mod growth;
mod line_kind;
pub mod moments;

pub use beside::{BesidePool, HeldLine, PoolSegments};
use estimate::OpenSteps;
pub use estimate::{EstimatedStep, OutsideEstimate};
pub use growth::{Cause, Growth, GrowthGroup};
pub use line_kind::LineKind;

use crate::snapshot::Role;
use crate::units::Bytes;

/// The source of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Teller {
    /// The driver.
    Driver,
    /// The recorded calls of the driver, with NVML's figures around each.
    Calls,
    /// The kernel, for host memory: MemTotal, MemAvailable, resident set size.
    Host,
    /// The framework's own counters.
    Framework,
    /// A trace of the allocator.
    Trace,
    /// The replay of a trace.
    Replay,
    /// The remainder of other figures.
    Derived,
    /// An estimate, bounded by other figures.
    Estimated,
}

words!(Teller {
    Driver => "driver",
    Calls => "calls",
    Host => "host",
    Framework => "framework",
    Trace => "trace",
    Replay => "replay",
    Derived => "derived",
    Estimated => "estimated",
});

/// A figure with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcedBytes {
    /// The figure.
    pub bytes: Bytes,
    /// Its source.
    pub by: Teller,
}

/// Everything that is known about a device at one moment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The device, as in `GPU:0`.
    pub device: String,
    /// The whole device; `None` if the driver does not report it.
    pub memory: Option<DeviceFigures>,
    /// Why the figures of the whole device are unknown.
    pub no_memory: String,
    /// The processes of the job.
    pub job: Vec<JobProcess>,
    /// The other processes on the device.
    pub others: Vec<OtherProcess>,
    /// Whether host memory stands in for device memory.
    pub is_stand_in: bool,
}

/// The whole device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceFigures {
    /// All of it.
    pub total: Bytes,
    /// Reserved by the driver. If the driver does not report it, it counts as memory of processes.
    pub reserved: Option<Bytes>,
    /// Free.
    pub free: Bytes,
}

impl DeviceFigures {
    /// What processes hold of it.
    fn in_use(&self) -> Bytes {
        self.total.saturating_sub(self.reserved.unwrap_or_default()).saturating_sub(self.free)
    }
}

/// A process of the job.
#[derive(Clone, Debug, Default)]
pub struct JobProcess {
    /// Its number.
    pub pid: u32,
    /// What it holds of the device.
    pub held: Option<Bytes>,
    /// Why that is unknown.
    pub not_held: String,
    /// By how much its driver calls changed that between the reading and the moment of the ledger.
    pub moved: i64,
    /// What its driver calls explain, if they were recorded.
    pub beside: Option<BesidePool>,
    /// What it held outside its pools at the first reading.
    pub context: Option<Bytes>,
    /// What of that and of the changes since then has a name, where it was measured elsewhere.
    pub estimate: OutsideEstimate,
    /// Changes outside the pools since then.
    pub growths: Vec<Growth>,
    /// Its pools on this device.
    pub pools: Vec<PoolFigures>,
}

impl JobProcess {
    /// What it holds at the moment of the ledger.
    fn held(&self) -> Option<i64> {
        Some(signed(self.held?).saturating_add(self.moved).max(0))
    }
}

/// A pool of a framework.
#[derive(Clone, Debug, Default)]
pub struct PoolFigures {
    /// Its name.
    pub name: String,
    /// Bytes reserved from the driver.
    pub taken: Option<SourcedBytes>,
    /// Why that is unknown.
    pub not_taken: String,
    /// In use.
    pub in_use: Option<SourcedBytes>,
    /// Why that is unknown.
    pub not_in_use: String,
    /// The bytes in use, by role.
    pub parts: Option<Parts>,
    /// Who reserved it, by driver calls.
    pub segments: Option<PoolSegments>,
}

/// What the bytes in use are.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Requested bytes, by role.
    pub by_role: Vec<(Role, Bytes)>,
    /// Rounding: bytes handed out beyond the requests.
    pub slack: Bytes,
    /// Blocks from before the recording.
    pub before: Bytes,
}

impl Parts {
    /// All of them.
    #[must_use]
    pub fn in_use(&self) -> SourcedBytes {
        let roles: Bytes = self.by_role.iter().map(|(_, bytes)| *bytes).sum();
        SourcedBytes { bytes: roles + self.slack + self.before, by: Teller::Trace }
    }
}

/// A process that does not belong to the job.
#[derive(Clone, Debug, Default)]
pub struct OtherProcess {
    /// Its number.
    pub pid: u32,
    /// Its name, if known.
    pub name: String,
    /// What it holds.
    pub held: Option<Bytes>,
}

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The whole device.
    Device,
    /// Reserved by the driver.
    Reserved,
    /// Free.
    Free,
    /// What processes hold.
    Processes,
    /// A process of the job.
    Job(u32),
    /// Another process.
    Other(u32, String),
    /// Memory of processes that no list names.
    Unattributed,
    /// What a process held outside its pools at the first reading: the context and loaded code; and why that is not split.
    Context(String),
    /// Of that, the context itself, as measured elsewhere.
    EstimatedContext,
    /// Of that, the rest: code, streams and libraries.
    EstimatedLibraries,
    /// Of that, or of the changes since then: memory of the size that a library took elsewhere.
    EstimatedStep(EstimatedStep),
    /// A pool, and who reserved it.
    Pool(String, Option<PoolSegments>),
    /// Context, pool and everything outside it, if the size of the pool is unknown.
    Merged,
    /// The same on the CPU: the pool and the program's own memory.
    HostMerged,
    /// In use.
    InUse,
    /// Held by the pool, not in use.
    Cached,
    /// The remainder of a merged line.
    Rest,
    /// The same on the CPU.
    HostRest,
    /// Requested bytes of a role.
    Role(Role),
    /// Rounding: bytes handed out beyond the requests.
    Slack,
    /// From before the recording.
    Before,
    /// Changes outside the pools that have the same cause.
    Outside(GrowthGroup),
    /// Memory outside the pools, if no earlier reading separates the context from later growth.
    Beside,
    /// Pages of the pool that were never touched: reserved, but not resident.
    NotResident,
    /// On the CPU: memory of the program outside the pool: Python, libraries, data.
    Host,
    /// What driver calls of one library took.
    Held(HeldLine),
    /// What NVML counts for memory beyond its requested bytes.
    PageRounding,
    /// Bytes that no other line explains, with what is known about them.
    Unexplained(String),
}

impl What {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> LineKind {
        match self {
            What::Device => LineKind::Device,
            What::Reserved => LineKind::Reserved,
            What::Free => LineKind::Free,
            What::Processes => LineKind::Processes,
            What::Job(_) => LineKind::Job,
            What::Other(..) => LineKind::Other,
            What::Unattributed => LineKind::Unattributed,
            What::Context(_) => LineKind::Context,
            What::EstimatedContext => LineKind::CudaContext,
            What::EstimatedLibraries => LineKind::Libraries,
            What::EstimatedStep(step) => step.kind,
            What::Pool(..) => LineKind::Pool,
            What::Merged => LineKind::Merged,
            What::HostMerged => LineKind::HostMerged,
            What::InUse => LineKind::InUse,
            What::Cached => LineKind::Cached,
            What::Rest => LineKind::Rest,
            What::HostRest => LineKind::HostRest,
            What::Role(role) => LineKind::Role(*role),
            What::Slack => LineKind::Slack,
            What::Before => LineKind::Before,
            What::Outside(_) => LineKind::Outside,
            What::Beside => LineKind::Beside,
            What::NotResident => LineKind::NotResident,
            What::Host => LineKind::Host,
            What::Held(line) => line.kind,
            What::PageRounding => LineKind::PageRounding,
            What::Unexplained(_) => LineKind::Unexplained,
        }
    }

    /// A stable word, as in the JSON.
    #[must_use]
    pub fn word(&self) -> &'static str {
        self.kind().word()
    }

    /// The process that it is of, as the driver numbers it.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        match self {
            What::Job(pid) | What::Other(pid, _) => Some(*pid),
            _ => None,
        }
    }

    /// The changes outside the pools that it sums up.
    #[must_use]
    pub fn growth(&self) -> Option<&GrowthGroup> {
        match self {
            What::Outside(group) => Some(group),
            What::EstimatedStep(step) => step.growth.as_ref(),
            _ => None,
        }
    }

    /// The same, to change.
    pub(crate) fn growth_mut(&mut self) -> Option<&mut GrowthGroup> {
        match self {
            What::Outside(group) => Some(group),
            What::EstimatedStep(step) => step.growth.as_mut(),
            _ => None,
        }
    }

    /// What distinguishes it from other lines of its kind, or an explanation; empty if the word alone is clear.
    #[must_use]
    pub fn detail(&self) -> String {
        match self {
            What::Job(pid) => format!("process {pid}"),
            What::Other(pid, name) if name.is_empty() => format!("process {pid}"),
            What::Other(pid, name) => format!("{name}, process {pid}"),
            What::Pool(name, None) => name.clone(),
            What::Pool(name, Some(segments)) => format!("{name}, {segments}"),
            What::EstimatedContext => "measured with the same driver, device and framework".to_owned(),
            What::EstimatedStep(step) => step.detail(),
            What::Outside(group) => group.to_string(),
            What::Held(line) => line.detail(),
            What::PageRounding => "NVML counts pages of 2 MiB".to_owned(),
            What::Context(why) | What::Unexplained(why) => why.clone(),
            What::Host => "Python, its libraries and data outside the pool".to_owned(),
            What::NotResident => "pages of the pool that the program has not written to yet".to_owned(),
            _ => String::new(),
        }
    }
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// The index of the line that this one is part of.
    pub of: Option<usize>,
    /// What it is.
    pub what: What,
    /// Its bytes.
    pub bytes: Option<i64>,
    /// The source of the bytes.
    pub by: Teller,
    /// Why they are unknown.
    pub why: String,
}

/// The ledger of a device. Every line follows the one that it is part of.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The device.
    pub device: String,
    /// Whether host memory stands in for device memory.
    pub is_stand_in: bool,
    /// The lines.
    pub lines: Vec<Line>,
}

impl Ledger {
    /// Builds the ledger.
    #[must_use]
    pub fn of(facts: &Facts) -> Ledger {
        let mut ledger =
            Ledger { device: facts.device.clone(), is_stand_in: facts.is_stand_in, lines: Vec::new() };
        let by = ledger.machine();
        let Some(memory) = facts.memory else {
            let device = ledger.add(None, What::Device, None, by, &facts.no_memory);
            for process in &facts.job {
                ledger.add_process(Some(device), process);
            }
            return ledger;
        };
        let device = ledger.add(None, What::Device, Some(signed(memory.total)), by, "");
        let reserved = memory.reserved.map_or(0, signed);
        if !facts.is_stand_in || reserved > 0 {
            let why = "the driver does not report what it reserves; here it counts as memory of processes";
            ledger.add(Some(device), What::Reserved, memory.reserved.map(signed), by, why);
        }
        ledger.add(Some(device), What::Free, Some(signed(memory.free)), by, "");
        let held = signed(memory.total) - reserved - signed(memory.free);
        let processes = ledger.add(Some(device), What::Processes, Some(held), Teller::Derived, "");
        let mut named = 0;
        for process in &facts.job {
            named += process.held().unwrap_or(0);
            ledger.add_process(Some(processes), process);
        }
        for process in &facts.others {
            named += process.held.map_or(0, signed);
            let what = What::Other(process.pid, process.name.clone());
            let why = "the driver does not report the memory of this process";
            ledger.add(Some(processes), what, process.held.map(signed), by, why);
        }
        ledger.add(Some(processes), What::Unattributed, Some(held - named), Teller::Derived, "");
        ledger
    }

    /// The source of the figures of the whole machine.
    fn machine(&self) -> Teller {
        if self.is_stand_in { Teller::Host } else { Teller::Driver }
    }

    /// Whether every known line is the sum of its known parts. Always true, unless this module has a bug.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.lines.iter().enumerate().all(|(place, line)| {
            let parts = self.lines.iter().filter(|part| part.of == Some(place));
            let known: Vec<i64> = parts.filter_map(|part| part.bytes).collect();
            line.bytes.is_none_or(|bytes| known.is_empty() || known.iter().sum::<i64>() == bytes)
        })
    }

    /// The line of a kind, if there is one.
    pub fn find(&self, is_it: impl Fn(&What) -> bool) -> Option<&Line> {
        self.lines.iter().find(|line| is_it(&line.what))
    }

    /// The depth of a line.
    #[must_use]
    pub fn depth(&self, line: &Line) -> usize {
        let parent = |line: &Line| line.of.and_then(|place| self.lines.get(place));
        std::iter::successors(parent(line), |line| parent(line)).count()
    }

    fn add(&mut self, of: Option<usize>, what: What, bytes: Option<i64>, by: Teller, why: &str) -> usize {
        let why = if bytes.is_none() { why.to_owned() } else { String::new() };
        self.lines.push(Line { of, what, bytes, by, why });
        self.lines.len() - 1
    }

    fn add_process(&mut self, of: Option<usize>, process: &JobProcess) {
        let held = process.held();
        let by = if process.moved == 0 { self.machine() } else { Teller::Calls };
        let job = self.add(of, What::Job(process.pid), held, by, &process.not_held);
        let taken: Option<i64> =
            process.pools.iter().map(|pool| pool.taken.map(|told| signed(told.bytes))).sum();
        if let (Some(beside), Some(taken)) = (&process.beside, taken) {
            self.add_beside(job, held, taken, process, beside);
            return;
        }
        // Without the sizes of its pools, a process has only one line.
        let Some(taken) = taken.filter(|_| !process.pools.is_empty()) else {
            self.add_merged(job, held, process);
            return;
        };
        let context = process.context.map(signed).filter(|_| held.is_some());
        let left = held.map(|held| held - taken - context.unwrap_or_default());
        if self.is_stand_in {
            self.add_on_host(job, process, context, left);
            return;
        }
        let mut steps = process.estimate.steps();
        if let Some(context) = context {
            self.add_context(job, context, &process.estimate, &mut steps);
        }
        for pool in &process.pools {
            self.add_pool(job, pool);
        }
        let Some(mut left) = left else { return };
        let mut growths = process.growths.clone();
        for (growth, is_kept) in growths.iter_mut().zip(growth::are_kept(&process.growths)) {
            let Some((mut step, bytes)) = is_kept.then(|| steps.take_one(growth.bytes)).flatten() else {
                continue;
            };
            step.growth = GrowthGroup::all(std::slice::from_ref(growth)).pop();
            left -= bytes;
            growth.bytes -= bytes;
            self.add(Some(job), What::EstimatedStep(step), Some(bytes), Teller::Estimated, "");
        }
        growths.retain(|growth| growth.bytes != 0);
        for group in GrowthGroup::all(&growths) {
            left -= group.bytes;
            let bytes = group.bytes;
            self.add(Some(job), What::Outside(group), Some(bytes), Teller::Derived, "");
        }
        let what = if context.is_some() { What::Unexplained(String::new()) } else { What::Beside };
        self.add(Some(job), what, Some(left), Teller::Derived, "");
    }

    /// What a process held at its start: the context itself, if it was measured elsewhere, what has the size of known steps, and the rest.
    fn add_context(&mut self, job: usize, bytes: i64, estimate: &OutsideEstimate, steps: &mut OpenSteps) {
        let why = match estimate {
            OutsideEstimate::NotMeasured(why) => why.clone(),
            OutsideEstimate::None | OutsideEstimate::Measured(_) => String::new(),
        };
        let place = self.add(Some(job), What::Context(why), Some(bytes), Teller::Derived, "");
        let Some(context) = estimate.context().map(signed).filter(|context| *context <= bytes) else {
            return;
        };
        self.add(Some(place), What::EstimatedContext, Some(context), Teller::Estimated, "");
        let mut rest = bytes - context;
        let named = steps.take_several(rest);
        let is_named = !named.is_empty();
        for (step, bytes) in named {
            rest -= bytes;
            self.add(Some(place), What::EstimatedStep(step), Some(bytes), Teller::Estimated, "");
        }
        if rest != 0 || !is_named {
            self.add(Some(place), What::EstimatedLibraries, Some(rest), Teller::Estimated, "");
        }
    }

    /// The lines of a process whose driver calls were recorded.
    fn add_beside(
        &mut self,
        job: usize,
        held: Option<i64>,
        taken: i64,
        process: &JobProcess,
        beside: &BesidePool,
    ) {
        let mut named = taken;
        let (context, others): (Vec<&HeldLine>, Vec<&HeldLine>) =
            beside.lines.iter().partition(|line| line.kind == LineKind::CudaContext);
        for line in context {
            named += self.add_held(job, line);
        }
        for pool in &process.pools {
            self.add_pool(job, pool);
        }
        for line in others {
            named += self.add_held(job, line);
        }
        if let Some(rounding) = beside.rounding {
            named += rounding;
            self.add(Some(job), What::PageRounding, Some(rounding), Teller::Calls, "");
        }
        let Some(held) = held else { return };
        let doubts = beside.doubts.to_string();
        self.add(Some(job), What::Unexplained(doubts), Some(held - named), Teller::Derived, "");
    }

    fn add_held(&mut self, job: usize, line: &HeldLine) -> i64 {
        let place = self.add(Some(job), What::Held(line.clone()), Some(line.bytes), line.by, "");
        if let Some(used) = line.used {
            let used = signed(used);
            self.add(Some(place), What::InUse, Some(used), Teller::Calls, "");
            self.add(Some(place), What::Cached, Some(line.bytes - used), Teller::Derived, "");
        }
        line.bytes
    }

    /// The lines of a process whose pool is in host memory. What the process held before its pool was created is the program's own, and so
    /// is what it holds beyond that and the pool. If it holds less than both, some pages of the pool are not resident.
    fn add_on_host(&mut self, job: usize, process: &JobProcess, at_start: Option<i64>, left: Option<i64>) {
        if let Some(left) = left {
            let own = match at_start {
                Some(at_start) => Some(at_start + left.max(0)),
                None => (left >= 0).then_some(left),
            };
            let why =
                "no reading from before the pool separates the program's own memory from the pool's pages";
            self.add(Some(job), What::Host, own, Teller::Estimated, why);
        }
        for pool in &process.pools {
            self.add_pool(job, pool);
        }
        let Some(left) = left else { return };
        if left < 0 {
            self.add(Some(job), What::NotResident, Some(left), Teller::Estimated, "");
        }
        self.add(Some(job), What::Unexplained(String::new()), Some(0), Teller::Derived, "");
    }

    /// The lines of a process whose pool size is unknown. What is in use is known, and part of the pool.
    fn add_merged(&mut self, job: usize, held: Option<i64>, process: &JobProcess) {
        let Some(held) = held.filter(|_| !process.pools.is_empty()) else {
            for pool in &process.pools {
                self.add_pool(job, pool);
            }
            return;
        };
        let (whole, rest) =
            if self.is_stand_in { (What::HostMerged, What::HostRest) } else { (What::Merged, What::Rest) };
        let merged = self.add(Some(job), whole, Some(held), Teller::Derived, "");
        let mut left = held;
        for pool in &process.pools {
            let Some(told) = pool.in_use else { continue };
            left -= signed(told.bytes);
            self.add_in_use(merged, pool, told);
        }
        self.add(Some(merged), rest, Some(left), Teller::Derived, "");
    }

    fn add_pool(&mut self, job: usize, pool: &PoolFigures) {
        let taken = pool.taken.map(|told| signed(told.bytes));
        let by = pool.taken.map_or(Teller::Framework, |told| told.by);
        let what = What::Pool(pool.name.clone(), pool.segments.clone());
        let place = self.add(Some(job), what, taken, by, &pool.not_taken);
        let Some(told) = pool.in_use else {
            self.add(Some(place), What::InUse, None, Teller::Framework, &pool.not_in_use);
            self.add(Some(place), What::Cached, None, Teller::Derived, &pool.not_in_use);
            return;
        };
        self.add_in_use(place, pool, told);
        if let Some(taken) = taken {
            self.add(Some(place), What::Cached, Some(taken - signed(told.bytes)), Teller::Derived, "");
        }
    }

    fn add_in_use(&mut self, of: usize, pool: &PoolFigures, told: SourcedBytes) {
        let in_use = self.add(Some(of), What::InUse, Some(signed(told.bytes)), told.by, "");
        let Some(parts) = &pool.parts else { return };
        for &(role, bytes) in parts.by_role.iter().filter(|(_, bytes)| *bytes > Bytes::ZERO) {
            self.add(Some(in_use), What::Role(role), Some(signed(bytes)), Teller::Trace, "");
        }
        self.add(Some(in_use), What::Slack, Some(signed(parts.slack)), Teller::Trace, "");
        if parts.before > Bytes::ZERO {
            self.add(Some(in_use), What::Before, Some(signed(parts.before)), Teller::Trace, "");
        }
    }
}

/// More than any machine has, so that sums of forged figures cannot overflow.
const LARGEST: i64 = 1 << 53;

fn signed(bytes: Bytes) -> i64 {
    i64::try_from(bytes.0).map_or(LARGEST, |bytes| bytes.min(LARGEST))
}
