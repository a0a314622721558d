//! What became of a request that failed: it ended the job, the job went on without it, or it was served at a later attempt.
//!
//! TensorFlow's pool writes a dump at each attempt. A request that may wait is tried for ten seconds, while other threads free memory;
//! only then it fails. So attempts that span less were served, or belong to an op that tries without waiting and goes on without.

use crate::failure::{Dialect, Failure};

/// How long TensorFlow tries, in microseconds.
const PATIENCE_MICROS: u64 = 10_000_000;

/// What became of a failed request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureOutcome {
    /// It ended the process.
    EndedJob,
    /// Nothing tells.
    #[default]
    Unknown,
    /// It failed, and the process went on.
    WentOn,
    /// It was served at a later attempt.
    ServedLater,
}

words!(FailureOutcome {
    EndedJob => "ended-job",
    Unknown => "unknown",
    WentOn => "went-on",
    ServedLater => "served-later",
});

impl FailureOutcome {
    /// Whether the process is known to have gone on.
    #[must_use]
    pub fn is_survived(self) -> bool {
        matches!(self, FailureOutcome::WentOn | FailureOutcome::ServedLater)
    }
}

/// How a process ended, as far as its failures are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessEnd {
    /// By itself, without an error.
    Done,
    /// By an exception.
    Exception,
    /// By a signal, or without a last word while the job failed.
    Died,
    /// It still runs, or the job failed in a way that nothing tells.
    Unknown,
}

/// A failure with what is known besides.
#[derive(Debug)]
pub struct Ended<'a> {
    /// The failure.
    pub failure: &'a Failure,
    /// Whether the exception that ended the process tells of it.
    pub is_last_word: bool,
    /// Whether the trace shows that the request was served later.
    pub is_served: bool,
}

/// What became of each failure of a process, in their order.
#[must_use]
pub fn outcomes(failures: &[Ended<'_>], end: ProcessEnd) -> Vec<FailureOutcome> {
    // Only the last can have ended it.
    let last = failures
        .iter()
        .enumerate()
        .filter(|(_, each)| !each.is_served)
        .max_by_key(|(at, each)| (each.failure.last_micros(), *at))
        .map(|(at, _)| at);
    let of = |(at, each): (usize, &Ended<'_>)| {
        let survived = if is_retried(each.failure) || each.is_served {
            FailureOutcome::ServedLater
        } else {
            FailureOutcome::WentOn
        };
        match end {
            _ if each.is_last_word => FailureOutcome::EndedJob,
            ProcessEnd::Died if last == Some(at) => FailureOutcome::EndedJob,
            ProcessEnd::Unknown if last == Some(at) => FailureOutcome::Unknown,
            _ => survived,
        }
    };
    failures.iter().enumerate().map(of).collect()
}

/// Whether the pool tried again, and stopped before its patience was over: then it found room.
fn is_retried(failure: &Failure) -> bool {
    let micros = || failure.witnesses.iter().filter_map(|witness| witness.micros);
    let span = micros().max().zip(micros().min()).map(|(last, first)| last - first);
    failure.dialect == Dialect::MemoryDump
        && failure.attempts > 1
        && span.is_some_and(|span| span < PATIENCE_MICROS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Witness;

    fn tried(at: &[u64]) -> Failure {
        let mut failure = Failure::new(Dialect::MemoryDump);
        failure.attempts = at.len() as u64;
        let witness = |&micros: &u64| Witness { micros: Some(micros), ..Witness::default() };
        failure.witnesses = at.iter().map(witness).collect();
        failure
    }

    #[test]
    fn a_job_that_ended_well_went_on() {
        use FailureOutcome::{EndedJob, ServedLater, Unknown, WentOn};
        let (served, refused, once) =
            (tried(&[5, 200]), tried(&[5, 200, 10_000_300, 10_000_400]), tried(&[70]));
        let all = [&served, &refused, &once].map(|failure| Ended {
            failure,
            is_last_word: false,
            is_served: false,
        });
        assert_eq!(outcomes(&all, ProcessEnd::Done), [ServedLater, WentOn, WentOn]);
        assert_eq!(outcomes(&all, ProcessEnd::Exception), [ServedLater, WentOn, WentOn]);
        assert_eq!(outcomes(&all, ProcessEnd::Died), [ServedLater, EndedJob, WentOn]);
        assert_eq!(outcomes(&all, ProcessEnd::Unknown), [ServedLater, Unknown, WentOn]);
    }

    #[test]
    fn the_exception_ended_it() {
        let (first, second) = (tried(&[5, 10_000_005]), Failure::new(Dialect::TensorFlowError));
        let all = [(&first, false), (&second, true)].map(|(failure, is_last_word)| Ended {
            failure,
            is_last_word,
            is_served: false,
        });
        let found = outcomes(&all, ProcessEnd::Exception);
        assert_eq!(found, [FailureOutcome::WentOn, FailureOutcome::EndedJob]);
        assert!(found.iter().min() == Some(&FailureOutcome::EndedJob), "it is said first");
    }
}
