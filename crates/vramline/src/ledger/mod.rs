//! *Internal.* The ledger: a device's memory at one moment, split from the whole device down to roles, in bytes that add up.
//!
//! ```text
//! device total        = driver reserved + free + processes
//! processes           = this job + others + unattributed
//! this job (process)  = context at start + pools + grown outside the pools since + unexplained
//! pool (from driver)  = in use + cached free
//! in use              = requested, by role + slack + before the recording
//! ```
//!
//! On the CPU stand-in host memory takes the device's place. There is no driver and no context: the kernel tells the figures, and what a
//! process holds beside its pool is the program's own.
//!
//! ```text
//! this job (process)  = the program's own + pools + pool not resident
//! ```
//!
//! Every figure carries its source. What somebody told stays as it was told; what is derived is what remains of a whole, and has a
//! line of its own. So every level adds up by construction, and what does not fit together shows as "unattributed" or
//! "unexplained" instead of disappearing. Lines are signed: on the CPU stand-in pages that were never touched are
//! taken off again, and a driver's list may hold more than the driver says is in use.
//!
//! Where the figures come from is not known here: see [`moments`] for recordings.

mod growth;
pub mod moments;

pub use growth::{Cause, Growth, GrowthGroup};

use crate::snapshot::Role;
use crate::units::Bytes;

/// Who told a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Teller {
    /// The driver.
    Driver,
    /// The kernel, of host memory: MemTotal, MemAvailable, a resident set.
    Host,
    /// The framework's own counters.
    Framework,
    /// A trace of the allocator.
    Trace,
    /// The replay of a trace.
    Replay,
    /// What is left of other figures.
    Derived,
    /// Bounded by other figures, not told.
    Estimated,
}

words!(Teller {
    Driver => "driver",
    Host => "host",
    Framework => "framework",
    Trace => "trace",
    Replay => "replay",
    Derived => "derived",
    Estimated => "estimated",
});

/// A figure and who told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourcedBytes {
    /// The figure.
    pub bytes: Bytes,
    /// Who told it.
    pub by: Teller,
}

/// Everything that is known of a device at a moment.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// The device, as in `GPU:0`.
    pub device: String,
    /// The whole device; nothing where the driver does not say.
    pub memory: Option<DeviceFigures>,
    /// Why there is no figure of the whole device.
    pub no_memory: String,
    /// The processes of the job.
    pub job: Vec<JobProcess>,
    /// The other processes on the device.
    pub others: Vec<OtherProcess>,
    /// Host memory stands in for a device's.
    pub is_stand_in: bool,
}

/// The whole device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceFigures {
    /// All of it.
    pub total: Bytes,
    /// Kept by the driver; nothing where it does not tell, and then it counts as held by processes.
    pub reserved: Option<Bytes>,
    /// Not taken.
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
    /// Why that is not known.
    pub not_held: String,
    /// What it held outside its pools when that was first known.
    pub context: Option<Bytes>,
    /// What came and went outside the pools since.
    pub growths: Vec<Growth>,
    /// Its pools on this device.
    pub pools: Vec<PoolFigures>,
}

/// A pool of a framework.
#[derive(Clone, Debug, Default)]
pub struct PoolFigures {
    /// Its name.
    pub name: String,
    /// Taken from the driver.
    pub taken: Option<SourcedBytes>,
    /// Why that is not known.
    pub not_taken: String,
    /// In use.
    pub in_use: Option<SourcedBytes>,
    /// Why that is not known.
    pub not_in_use: String,
    /// What is in use, by what it is for.
    pub parts: Option<Parts>,
}

/// What the bytes in use are.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// Asked for, by role.
    pub by_role: Vec<(Role, Bytes)>,
    /// Chunks beyond what was asked for.
    pub slack: Bytes,
    /// Chunks from before the recording.
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

/// A process that is not the job's.
#[derive(Clone, Debug, Default)]
pub struct OtherProcess {
    /// Its number.
    pub pid: u32,
    /// Its name, where it is known.
    pub name: String,
    /// What it holds.
    pub held: Option<Bytes>,
}

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// The whole device.
    Device,
    /// Kept by the driver.
    Reserved,
    /// Not taken.
    Free,
    /// What processes hold.
    Processes,
    /// A process of the job.
    Job(u32),
    /// Another process.
    Other(u32, String),
    /// What processes hold, and no list names.
    Unattributed,
    /// What a process held outside its pools when that was first known: the context and loaded code.
    Context,
    /// A pool.
    Pool(String),
    /// The pool is not known: context, pool and everything outside it.
    Merged,
    /// The same on the CPU: the pool and the program's own.
    HostMerged,
    /// In use.
    InUse,
    /// Held by the pool, not in use.
    Cached,
    /// What is left of a merged line.
    Rest,
    /// The same on the CPU.
    HostRest,
    /// Asked for, by what it is for.
    Role(Role),
    /// Beyond what was asked for.
    Slack,
    /// From before the recording.
    Before,
    /// Came or went outside the pools, all of one cause.
    Outside(GrowthGroup),
    /// Beside the pools, where no earlier moment tells the context from what came later.
    Beside,
    /// Of the pool, pages never touched: they are taken, and hold no memory.
    NotResident,
    /// On the CPU: what the program itself holds beside the pool: Python, libraries, data.
    Host,
    /// What none of the others explains.
    Unexplained,
}

/// The kind of a line: what it is, without whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// The whole device.
    Device,
    /// Kept by the driver.
    Reserved,
    /// Not taken.
    Free,
    /// What processes hold.
    Processes,
    /// A process of the job.
    Job,
    /// Another process.
    Other,
    /// What processes hold, and no list names.
    Unattributed,
    /// What a process held outside its pools when that was first known: the context and loaded code.
    Context,
    /// A pool.
    Pool,
    /// The pool is not known: context, pool and everything outside it.
    Merged,
    /// The same on the CPU: the pool and the program's own.
    HostMerged,
    /// In use.
    InUse,
    /// Held by the pool, not in use.
    Cached,
    /// What is left of a merged line.
    Rest,
    /// The same on the CPU.
    HostRest,
    /// Asked for, by what it is for.
    Role(Role),
    /// Beyond what was asked for.
    Slack,
    /// From before the recording.
    Before,
    /// Came or went outside the pools.
    Outside,
    /// Beside the pools, where no earlier moment tells the context from what came later.
    Beside,
    /// Of the pool, pages never touched: they are taken, and hold no memory.
    NotResident,
    /// On the CPU: what the program itself holds beside the pool: Python, libraries, data.
    Host,
    /// What none of the others explains.
    Unexplained,
}

impl LineKind {
    /// Every kind but the roles.
    const PLAIN: [LineKind; 22] = [
        LineKind::Device,
        LineKind::Reserved,
        LineKind::Free,
        LineKind::Processes,
        LineKind::Job,
        LineKind::Other,
        LineKind::Unattributed,
        LineKind::Context,
        LineKind::Pool,
        LineKind::Merged,
        LineKind::HostMerged,
        LineKind::InUse,
        LineKind::Cached,
        LineKind::Rest,
        LineKind::HostRest,
        LineKind::Slack,
        LineKind::Before,
        LineKind::Outside,
        LineKind::Beside,
        LineKind::NotResident,
        LineKind::Host,
        LineKind::Unexplained,
    ];

    /// A stable word, as in the JSON.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            LineKind::Device => "device total",
            LineKind::Reserved => "driver reserved",
            LineKind::Free => "free",
            LineKind::Processes => "processes",
            LineKind::Job => "this job",
            LineKind::Other => "other process",
            LineKind::Unattributed => "unattributed",
            LineKind::Context => "context at start",
            LineKind::Pool => "pool",
            LineKind::Merged => "context, pool and outside",
            LineKind::HostMerged => "pool and the program's own",
            LineKind::InUse => "in use",
            LineKind::Cached => "cached free",
            LineKind::Rest => "context, cached and outside",
            LineKind::HostRest => "cached and the program's own",
            LineKind::Role(role) => role.word(),
            LineKind::Slack => "slack",
            LineKind::Before => "before the recording",
            LineKind::Outside => "outside the pools",
            LineKind::Beside => "context and outside the pools",
            LineKind::NotResident => "pool not resident",
            LineKind::Host => "the program's own",
            LineKind::Unexplained => "unexplained",
        }
    }
}

impl crate::document::Described for LineKind {
    fn shape() -> crate::document::Shape {
        let kinds = LineKind::PLAIN.into_iter().chain(Role::ALL.map(LineKind::Role));
        crate::document::Shape::Word(kinds.map(LineKind::word).collect())
    }
}

impl serde::Serialize for LineKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
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
            What::Context => LineKind::Context,
            What::Pool(_) => LineKind::Pool,
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
            What::Unexplained => LineKind::Unexplained,
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

    /// What tells it apart from others of its kind, or says in plain words what it is; empty where its word says it all.
    #[must_use]
    pub fn detail(&self) -> String {
        match self {
            What::Job(pid) => format!("process {pid}"),
            What::Other(pid, name) if name.is_empty() => format!("process {pid}"),
            What::Other(pid, name) => format!("{name}, process {pid}"),
            What::Pool(name) => name.clone(),
            What::Outside(group) => group.to_string(),
            What::Host => "Python, its libraries, and data outside the pool".to_owned(),
            What::NotResident => "pages of the pool that nothing was written to yet".to_owned(),
            _ => String::new(),
        }
    }
}

/// One line.
#[derive(Clone, Debug)]
pub struct Line {
    /// The line that this one is part of, by its place in the list.
    pub of: Option<usize>,
    /// What it is.
    pub what: What,
    /// Its bytes.
    pub bytes: Option<i64>,
    /// Who told them.
    pub by: Teller,
    /// Why they are not known.
    pub why: String,
}

/// The ledger of a device: every line stands behind the one that it is part of.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    /// The device.
    pub device: String,
    /// Host memory stands in for the device's.
    pub is_stand_in: bool,
    /// The lines.
    pub lines: Vec<Line>,
}

impl Ledger {
    /// Puts the ledger together.
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
            let why = "the driver does not tell what it keeps; that is part of what processes hold here";
            ledger.add(Some(device), What::Reserved, memory.reserved.map(signed), by, why);
        }
        ledger.add(Some(device), What::Free, Some(signed(memory.free)), by, "");
        let held = signed(memory.total) - reserved - signed(memory.free);
        let processes = ledger.add(Some(device), What::Processes, Some(held), Teller::Derived, "");
        let mut named = 0;
        for process in &facts.job {
            named += process.held.map_or(0, signed);
            ledger.add_process(Some(processes), process);
        }
        for process in &facts.others {
            named += process.held.map_or(0, signed);
            let what = What::Other(process.pid, process.name.clone());
            let why = "the driver does not tell what this process holds";
            ledger.add(Some(processes), what, process.held.map(signed), by, why);
        }
        ledger.add(Some(processes), What::Unattributed, Some(held - named), Teller::Derived, "");
        ledger
    }

    /// Who tells of the whole machine.
    fn machine(&self) -> Teller {
        if self.is_stand_in { Teller::Host } else { Teller::Driver }
    }

    /// Whether every line whose bytes are known is the sum of its parts, if any of them is known. Always, unless this module is
    /// wrong.
    #[must_use]
    pub fn adds_up(&self) -> bool {
        self.lines.iter().enumerate().all(|(place, line)| {
            let parts = self.lines.iter().filter(|part| part.of == Some(place));
            let known: Vec<i64> = parts.filter_map(|part| part.bytes).collect();
            line.bytes.is_none_or(|bytes| known.is_empty() || known.iter().sum::<i64>() == bytes)
        })
    }

    /// The line of a kind, where there is one.
    pub fn find(&self, is_it: impl Fn(&What) -> bool) -> Option<&Line> {
        self.lines.iter().find(|line| is_it(&line.what))
    }

    /// How deep a line lies.
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
        let held = process.held.map(signed);
        let job = self.add(of, What::Job(process.pid), held, self.machine(), &process.not_held);
        let taken: Option<i64> =
            process.pools.iter().map(|pool| pool.taken.map(|told| signed(told.bytes))).sum();
        // Without pools nothing can be told apart: what a process holds is one line.
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
        if let Some(context) = context {
            self.add(Some(job), What::Context, Some(context), Teller::Derived, "");
        }
        for pool in &process.pools {
            self.add_pool(job, pool);
        }
        let Some(mut left) = left else { return };
        for group in GrowthGroup::all(&process.growths) {
            left -= group.bytes;
            let bytes = group.bytes;
            self.add(Some(job), What::Outside(group), Some(bytes), Teller::Derived, "");
        }
        let what = if context.is_some() { What::Unexplained } else { What::Beside };
        self.add(Some(job), what, Some(left), Teller::Derived, "");
    }

    /// The lines of a process whose pool lies in host memory. What the process held before its pool began is the program's own, and so
    /// is what it holds beyond that and the pool. Where it holds less, pages of the pool cannot be resident.
    fn add_on_host(&mut self, job: usize, process: &JobProcess, at_start: Option<i64>, left: Option<i64>) {
        if let Some(left) = left {
            let own = match at_start {
                Some(at_start) => Some(at_start + left.max(0)),
                None => (left >= 0).then_some(left),
            };
            let why = "no reading from before the pool tells the program's own memory from the pool's pages";
            self.add(Some(job), What::Host, own, Teller::Estimated, why);
        }
        for pool in &process.pools {
            self.add_pool(job, pool);
        }
        let Some(left) = left else { return };
        if left < 0 {
            self.add(Some(job), What::NotResident, Some(left), Teller::Estimated, "");
        }
        self.add(Some(job), What::Unexplained, Some(0), Teller::Derived, "");
    }

    /// Nobody knows how large the pool is. What is in use is known, and part of it.
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
        let place = self.add(Some(job), What::Pool(pool.name.clone()), taken, by, &pool.not_taken);
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

/// More than any machine has: sums of figures that somebody made up must not overflow.
const LARGEST: i64 = 1 << 53;

fn signed(bytes: Bytes) -> i64 {
    i64::try_from(bytes.0).map_or(LARGEST, |bytes| bytes.min(LARGEST))
}
