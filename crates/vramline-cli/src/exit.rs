//! The result of a command and its exit code. All exit codes are decided here; `docs/reference/exit-codes.md` lists them by verb.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::anyhow;
use vramline::analysis::pack::NotPacked;
use vramline::analysis::plan::NoPlan;
use vramline::recording::manifest;
use vramline::replay::{NotASetting, NotForThis};
use vramline::source::SourceError;

/// The result of a command that succeeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Done; if there is a gate, it passes.
    Done,
    /// A gate fails.
    No,
    /// A gate cannot decide.
    NotCertain,
    /// The command ran a job, which ended like this.
    Job(JobEnd),
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobEnd {
    /// By itself, or by a signal.
    Ended(manifest::Exit),
    /// The program was not found.
    NotFound,
    /// The program was found but could not be started.
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

/// The exit code after a panic.
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

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments are wrong. Nothing has been started.
    Usage {
        /// What is wrong.
        reason: String,
        /// What to do next.
        hint: String,
    },
    /// Something went wrong.
    Error {
        /// What went wrong.
        error: anyhow::Error,
        /// What to do next; may be empty.
        hint: String,
    },
    /// A signal ended the command.
    Interrupted {
        /// The signal.
        signal: i32,
    },
    /// A thread panicked. The panic has been reported.
    Bug,
}

impl Failure {
    pub(crate) fn usage(reason: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::Usage { reason: reason.into(), hint: hint.into() }
    }

    pub(crate) fn error(text: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure::Error { error: anyhow!(text.into()), hint: hint.into() }
    }

    /// Adds what was tried in front of the error.
    pub(crate) fn context(self, tried: impl Into<String>) -> Failure {
        match self {
            Failure::Error { error, hint } => Failure::Error { error: error.context(tried.into()), hint },
            other => other,
        }
    }

    /// The error and its causes in one line.
    pub(crate) fn text(&self) -> String {
        match self {
            Failure::Usage { reason, .. } => reason.clone(),
            Failure::Error { error, .. } => with_causes(error),
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
            // A reader that closes the pipe is not an error: `vramline report ... | head`.
            Failure::Error { error, .. } if is_closed_pipe(error) => 0,
            Failure::Error { .. } => 1,
            Failure::Interrupted { signal } => of_signal(*signal),
            Failure::Bug => BUG,
        }
    }

    /// Whether an error is printed. Whoever sent the signal or closed the pipe knows about it.
    fn is_printed(&self) -> bool {
        match self {
            Failure::Usage { .. } => true,
            Failure::Error { error, .. } => !is_closed_pipe(error),
            Failure::Interrupted { .. } | Failure::Bug => false,
        }
    }
}

/// Prints the error, if there is one, and returns the exit code.
pub(crate) fn end(ended: Result<Exit, Failure>) -> ExitCode {
    match ended {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(failure) => {
            if failure.is_printed() {
                print("error", &failure.text(), failure.hint());
            }
            ExitCode::from(failure.code())
        }
    }
}

/// Prints a warning and what to do. The command goes on.
pub(crate) fn warn(text: &str, hint: &str) {
    print("warning", text, hint);
}

/// If it cannot be written, there is no other way to report it.
fn print(word: &str, text: &str, hint: &str) {
    let mut stderr = io::stderr().lock();
    let _ = writeln!(stderr, "{word}: {text}");
    if !hint.is_empty() {
        let _ = writeln!(stderr, "hint: {hint}");
    }
}

/// An error with its causes. A cause that the text already contains is left out.
fn with_causes(error: &anyhow::Error) -> String {
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
        assert_eq!((closed.code(), closed.is_printed()), (0, false));
        let full = Failure::from(io::Error::from(io::ErrorKind::StorageFull)).context("cannot write 'a'");
        assert_eq!((full.code(), full.is_printed()), (1, true));
        assert!(full.text().starts_with("cannot write 'a': "), "{}", full.text());
    }
}
