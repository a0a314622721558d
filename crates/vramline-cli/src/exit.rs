//! How a command ends: with an answer, or with the reason why there is none. The exit code of each is decided here and nowhere else;
//! `docs/reference/exit-codes.md` has them by verb.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::anyhow;
use vramline::analysis::pack::NotPacked;
use vramline::analysis::plan::NoPlan;
use vramline::recording::manifest;
use vramline::replay::{NotASetting, NotForThis};
use vramline::source::SourceError;

/// What a command ends with that went through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It is done; where it was a question for a gate, the answer is yes.
    Done,
    /// A gate says no.
    No,
    /// A gate cannot tell.
    NotCertain,
    /// The command ran a job, which ended so.
    Job(JobEnd),
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobEnd {
    /// By itself, or by a signal.
    Ended(manifest::Exit),
    /// There is no such program.
    NotFound,
    /// There is one, and it could not be started.
    NotStarted,
}

impl JobEnd {
    /// The code that a shell would show.
    fn code(self) -> u8 {
        match self {
            JobEnd::Ended(manifest::Exit::Code(code)) => u8::try_from(code).unwrap_or(u8::MAX),
            JobEnd::Ended(manifest::Exit::Signal(signal)) => of_signal(signal),
            JobEnd::NotFound => 127,
            JobEnd::NotStarted => 126,
        }
    }
}

/// The code of a command that a panic ended.
pub(crate) const BUG: u8 = 1;

fn of_signal(signal: i32) -> u8 {
    u8::try_from(signal.saturating_add(128)).unwrap_or(u8::MAX)
}

impl Exit {
    fn code(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::No => 3,
            Exit::NotCertain => 4,
            Exit::Job(end) => end.code(),
        }
    }
}

/// Why a command has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked for cannot be; nothing has been started.
    Usage {
        /// Why not.
        reason: String,
        /// What to do now.
        hint: String,
    },
    /// Something went wrong.
    Error {
        /// What.
        error: anyhow::Error,
        /// What to do now; empty where nothing is known.
        hint: String,
    },
    /// Somebody ended it.
    Interrupted {
        /// With this signal.
        signal: i32,
    },
    /// A thread panicked, and has said so.
    Bug,
}

impl Failure {
    pub(crate) fn usage(reason: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::Usage { reason: reason.into(), hint: hint.into() }
    }

    pub(crate) fn error(text: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::Error { error: anyhow!(text.into()), hint: hint.into() }
    }

    /// The same, with what was tried in front of it.
    pub(crate) fn context(self, tried: impl Into<String>) -> Failure {
        match self {
            Failure::Error { error, hint } => Failure::Error { error: error.context(tried.into()), hint },
            other => other,
        }
    }

    /// In one line, with its causes.
    pub(crate) fn text(&self) -> String {
        match self {
            Failure::Usage { reason, .. } => reason.clone(),
            Failure::Error { error, .. } => told(error),
            Failure::Interrupted { signal } => format!("ended by signal {signal}"),
            Failure::Bug => "a thread panicked".to_owned(),
        }
    }

    fn hint(&self) -> &str {
        match self {
            Failure::Usage { hint, .. } | Failure::Error { hint, .. } => hint,
            Failure::Interrupted { .. } | Failure::Bug => "",
        }
    }

    fn code(&self) -> u8 {
        match self {
            Failure::Usage { .. } => 2,
            // `vramline report ... | head` is not an error.
            Failure::Error { error, .. } if is_closed_pipe(error) => 0,
            Failure::Error { .. } => 1,
            Failure::Interrupted { signal } => of_signal(*signal),
            Failure::Bug => BUG,
        }
    }

    /// Whether there is anything to say: who ends a command, or does not want to read on, knows it.
    fn is_told(&self) -> bool {
        match self {
            Failure::Usage { .. } => true,
            Failure::Error { error, .. } => !is_closed_pipe(error),
            Failure::Interrupted { .. } | Failure::Bug => false,
        }
    }
}

/// Ends the program: says what went wrong, and gives the exit code.
pub(crate) fn end(ended: Result<Exit, Failure>) -> ExitCode {
    match ended {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(failure) => {
            if failure.is_told() {
                // Nothing can be said if even the error cannot be written.
                let mut stderr = io::stderr().lock();
                let _ = writeln!(stderr, "error: {}", failure.text());
                if !failure.hint().is_empty() {
                    let _ = writeln!(stderr, "hint: {}", failure.hint());
                }
            }
            ExitCode::from(failure.code())
        }
    }
}

/// An error with its causes; what a message has said already is not said again.
fn told(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |said, cause| match cause.to_string() {
        more if said.is_empty() => more,
        more if said.contains(&more) => said,
        more => format!("{said}: {more}"),
    })
}

fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Failure {
        Failure::Error { error, hint: String::new() }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        anyhow::Error::from(error).into()
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Failure {
        Failure::Error { hint: error.hint().to_owned(), error: error.into() }
    }
}

impl From<NoPlan> for Failure {
    fn from(error: NoPlan) -> Failure {
        Failure::Error { hint: error.hint().to_owned(), error: error.into() }
    }
}

impl From<NotASetting> for Failure {
    fn from(error: NotASetting) -> Failure {
        Failure::usage(error.to_string(), error.hint())
    }
}

impl From<NotForThis> for Failure {
    fn from(error: NotForThis) -> Failure {
        Failure::usage(error.to_string(), error.hint())
    }
}

impl From<NotPacked> for Failure {
    fn from(error: NotPacked) -> Failure {
        Failure::usage(error.to_string(), error.hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_end_has_its_code() {
        let job = |exit| Exit::Job(JobEnd::Ended(exit)).code();
        assert_eq!([Exit::Done.code(), Exit::No.code(), Exit::NotCertain.code()], [0, 3, 4]);
        assert_eq!([Exit::Job(JobEnd::NotStarted).code(), Exit::Job(JobEnd::NotFound).code()], [126, 127]);
        assert_eq!(job(manifest::Exit::Code(7)), 7);
        assert_eq!(job(manifest::Exit::Signal(9)), 137);
        assert_eq!(Failure::usage("no", "").code(), 2);
        assert_eq!(Failure::error("no", "").code(), 1);
        assert_eq!(Failure::Interrupted { signal: 2 }.code(), 130);
    }

    #[test]
    fn a_closed_pipe_is_no_error() {
        let closed = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe)).context("cannot write");
        assert_eq!((closed.code(), closed.is_told()), (0, false));
        let full = Failure::from(io::Error::from(io::ErrorKind::StorageFull)).context("cannot write 'a'");
        assert_eq!((full.code(), full.is_told()), (1, true));
        assert!(full.text().starts_with("cannot write 'a': "), "{}", full.text());
    }
}
