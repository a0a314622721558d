//! The kinds of lines of a ledger, with their words in the JSON and their names for people.

use crate::snapshot::Role;

/// The kind of a line, without its process, pool or cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineKind {
    /// The whole device.
    Device,
    /// Reserved by the driver.
    Reserved,
    /// Free.
    Free,
    /// What processes hold.
    Processes,
    /// A process of the job.
    Job,
    /// Another process.
    Other,
    /// Memory of processes that no list names.
    Unattributed,
    /// What a process held outside its pools at the first reading: the context and loaded code.
    Context,
    /// A pool.
    Pool,
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
    /// Changes outside the pools.
    Outside,
    /// Memory outside the pools, if no earlier reading separates the context from later growth.
    Beside,
    /// Pages of the pool that were never touched: reserved, but not resident.
    NotResident,
    /// On the CPU: memory of the program outside the pool: Python, libraries, data.
    Host,
    /// The context itself.
    CudaContext,
    /// What a process held outside its pools at the first reading, without the context itself.
    Libraries,
    /// Code that was loaded.
    Code,
    /// First launches of kernels: local memory, and code that is loaded when it is first used.
    FirstLaunches,
    /// Limits of a context.
    Limits,
    /// Streams.
    Streams,
    /// Events.
    Events,
    /// Graphs.
    Graphs,
    /// Memory of a library: cuBLAS, cuDNN, NCCL, or a framework outside its pool.
    LibraryMemory,
    /// Memory that the program itself asked the driver for: CuPy, its own extensions.
    ProgramMemory,
    /// A pool of the driver (`cudaMallocAsync`).
    DriverPool,
    /// What the device holds for pinned memory of the host.
    PinnedMemory,
    /// First copies, fills and synchronisations.
    Transfers,
    /// Other driver calls.
    OtherCalls,
    /// What NVML counts for memory beyond its requested bytes.
    PageRounding,
    /// Bytes that no other line explains.
    Unexplained,
}

impl LineKind {
    /// Every kind but the roles.
    const PLAIN: [LineKind; 37] = [
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
        LineKind::CudaContext,
        LineKind::Libraries,
        LineKind::Code,
        LineKind::FirstLaunches,
        LineKind::Limits,
        LineKind::Streams,
        LineKind::Events,
        LineKind::Graphs,
        LineKind::LibraryMemory,
        LineKind::ProgramMemory,
        LineKind::DriverPool,
        LineKind::PinnedMemory,
        LineKind::Transfers,
        LineKind::OtherCalls,
        LineKind::PageRounding,
        LineKind::Unexplained,
    ];

    /// The kind, no role, with a word.
    pub(super) fn of_word(word: &str) -> Option<LineKind> {
        LineKind::PLAIN.into_iter().find(|kind| kind.word() == word)
    }

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
            LineKind::CudaContext => "context",
            LineKind::Libraries => "code, streams and libraries",
            LineKind::Code => "code",
            LineKind::FirstLaunches => "first launches",
            LineKind::Limits => "limits",
            LineKind::Streams => "streams",
            LineKind::Events => "events",
            LineKind::Graphs => "graphs",
            LineKind::LibraryMemory => "library memory",
            LineKind::ProgramMemory => "program memory",
            LineKind::DriverPool => "driver pool",
            LineKind::PinnedMemory => "pinned memory",
            LineKind::Transfers => "copies and synchronization",
            LineKind::OtherCalls => "other driver calls",
            LineKind::PageRounding => "page rounding",
            LineKind::Unexplained => "unexplained",
        }
    }

    /// Its name for people: the words of the glossary where those of the JSON differ.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            LineKind::Reserved => "reserved by the driver",
            LineKind::Unattributed => "not attributed to a process",
            LineKind::Context => "context",
            LineKind::FirstLaunches => "local memory and code at first launches",
            LineKind::LibraryMemory => "memory of libraries",
            LineKind::ProgramMemory => "memory of the program's own CUDA calls",
            LineKind::DriverPool => "pool of the driver",
            LineKind::PinnedMemory => "for pinned host memory",
            LineKind::Transfers => "first copies and synchronizations",
            LineKind::PageRounding => "rounding to pages of the driver",
            LineKind::Merged => "context, pool and outside the pool",
            LineKind::HostMerged => "pool, and the program itself",
            LineKind::Cached => "cached",
            LineKind::Rest => "context, cached and outside the pool",
            LineKind::HostRest => "cached, and the program itself",
            LineKind::Slack => "rounding",
            LineKind::NotResident => "reserved, but never touched",
            LineKind::Host => "the program itself",
            kind => kind.word(),
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
