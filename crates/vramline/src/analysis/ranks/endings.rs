//! How ranks ended, and which of them ran out of memory first. When one rank of a job fails, the others wait for it in a collective until
//! that fails too, or until the launcher kills them: theirs is not the cause.

use super::clocks::{HostClock, least_between};
use super::summary::RankSummary;
use crate::analysis::reading::Reading;
use crate::recording::manifest::Exit;
use crate::recording::reader::{Recorded, RecordedProcess};
use crate::recording::rows::RecordedMarkKind;
use crate::units::Nanos;

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RankEnd {
    /// It ran out of memory.
    OutOfMemory,
    /// An operation with other ranks failed: a lost connection, a timeout.
    Collective,
    /// Another exception.
    Exception,
    /// Without a last word, while the job failed: by a signal.
    Killed,
    /// In order.
    Done,
    /// It still runs, or nothing tells.
    Unknown,
}

words!(RankEnd {
    OutOfMemory => "out-of-memory",
    Collective => "collective",
    Exception => "exception",
    Killed => "killed",
    Done => "done",
    Unknown => "unknown",
});

/// What errors say when an operation with other processes fails: NCCL and Gloo under PyTorch, TensorFlow's gRPC and coordination service
/// (which JAX uses too).
const COLLECTIVE: [&str; 16] = [
    "NCCL",
    "ncclInternalError",
    "gloo",
    "ProcessGroup",
    "DistBackendError",
    "Connection closed by peer",
    "Connection reset by peer",
    "Connection refused",
    "Socket closed",
    "Socket Timeout",
    "UnavailableError",
    "UNAVAILABLE:",
    "CollectiveReduce",
    "coordination service",
    "CoordinationService",
    "heartbeat",
];

impl RankEnd {
    pub(super) fn of(reading: &Reading, recorded: &Recorded) -> RankEnd {
        let of = |(number, process): (usize, &RecordedProcess)| {
            let is_out_of_memory =
                reading.failures.as_ref().is_some_and(|failures| failures.that_ended(number).is_some());
            if is_out_of_memory { RankEnd::OutOfMemory } else { RankEnd::of_process(recorded, process) }
        };
        // A helper process may end in order while the main one fails.
        recorded.processes.iter().enumerate().map(of).min().unwrap_or(RankEnd::Unknown)
    }

    fn of_process(recorded: &Recorded, process: &RecordedProcess) -> RankEnd {
        let raised = process.marks.iter().rev().find(|mark| mark.kind == RecordedMarkKind::Exception);
        if let Some(text) = raised.map(|mark| mark.label.as_deref().unwrap_or_default()) {
            let is_collective = COLLECTIVE.iter().any(|word| text.contains(word));
            return if is_collective { RankEnd::Collective } else { RankEnd::Exception };
        }
        let has_ended = process.marks.iter().any(|mark| mark.kind == RecordedMarkKind::End);
        match recorded.run_of(process).manifest.and_then(|manifest| manifest.exit) {
            _ if process.exception.is_some() => RankEnd::Exception,
            Some(Exit::Code(0)) => RankEnd::Done,
            _ if has_ended => RankEnd::Done,
            Some(_) => RankEnd::Killed,
            None => RankEnd::Unknown,
        }
    }

    /// Whether the rank is known to have ended.
    #[must_use]
    pub fn is_over(self) -> bool {
        self != RankEnd::Unknown
    }
}

/// The rank that ran out of memory first, and the others that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstFailure {
    /// The first rank.
    pub rank: u64,
    /// Its machine.
    pub host: String,
    /// When, on the monotonic clock of the first host; `None` if the recording does not show it.
    pub at: Option<i64>,
    /// Others that ran out of memory, so close to the first that their order is unknown.
    pub at_once: Vec<u64>,
    /// Others that ran out of memory later.
    pub later: Vec<u64>,
    /// Ranks whose operations with other ranks failed.
    pub lost_peers: Vec<u64>,
    /// Ranks that were killed.
    pub killed: Vec<u64>,
    /// What the clocks of the first two hosts that ran out of memory differ by at most; zero where both are of one host.
    pub clock_residual: Option<Nanos>,
}

impl FirstFailure {
    pub(super) fn of(ranks: &[RankSummary], hosts: &[HostClock]) -> Option<FirstFailure> {
        let failed: Vec<Failed<'_>> = ranks
            .iter()
            .filter(|rank| rank.end == RankEnd::OutOfMemory)
            .map(|rank| {
                let clock = hosts.iter().find(|host| host.is_of(rank));
                let at = clock.zip(rank.out_of_memory_at).map(|(clock, at)| clock.aligned(at));
                Failed { rank: rank.rank, host: &rank.host, clock, at }
            })
            .collect();
        let first = failed.iter().min_by_key(|one| (one.at.is_none(), one.at, one.rank))?;
        let others = || failed.iter().filter(|other| other.rank != first.rank);
        let (later, at_once): (Vec<&Failed<'_>>, Vec<&Failed<'_>>) =
            others().partition(|other| first.is_before(other));
        let second = others().min_by_key(|one| (one.at.is_none(), one.at, one.rank));
        let ended =
            |end: RankEnd| ranks.iter().filter(|rank| rank.end == end).map(|rank| rank.rank).collect();
        let numbers = |failed: Vec<&Failed<'_>>| failed.into_iter().map(|one| one.rank).collect();
        Some(FirstFailure {
            rank: first.rank,
            host: first.host.to_owned(),
            at: first.at,
            at_once: numbers(at_once),
            later: numbers(later),
            lost_peers: ended(RankEnd::Collective),
            killed: ended(RankEnd::Killed),
            clock_residual: second.and_then(|second| least_between(first.clock?, second.clock?)),
        })
    }
}

/// A rank that ran out of memory.
struct Failed<'a> {
    rank: u64,
    host: &'a str,
    clock: Option<&'a HostClock>,
    at: Option<i64>,
}

impl Failed<'_> {
    /// Whether it is known to be earlier than another.
    fn is_before(&self, other: &Failed<'_>) -> bool {
        let known = || {
            let between = other.at?.checked_sub(self.at?)?;
            Some(between > least_between(self.clock?, other.clock?)?.0)
        };
        known().unwrap_or(false)
    }
}
