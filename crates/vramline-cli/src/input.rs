//! What a command reads: a path, or standard input for `-`; with a line of progress, if it takes long and somebody is looking.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::Context;
use vramline::analysis::plan::PlanDocument;
use vramline::analysis::redaction::Redaction;
use vramline::source::{Progress, SourceError};
use vramline::units::Bytes;
use vramline::{OutOfMemory, Reading};

use crate::bug;
use crate::exit::Failure;
use crate::output;

/// Most traces are read before this.
const PATIENCE: Duration = Duration::from_millis(700);
const TICK: Duration = Duration::from_millis(100);

/// What stands for standard input on a command line, and what it is called in an answer.
const STDIN: &str = "-";
pub(crate) const STDIN_NAME: &str = "standard input";

/// Reads what a command was given.
pub(crate) struct Input {
    /// Whether no progress is shown.
    is_quiet: bool,
    /// Replaces private texts in what was read.
    redaction: Option<Redaction>,
}

impl Input {
    pub(crate) fn new(is_redacted: bool) -> Input {
        Input { is_quiet: false, redaction: is_redacted.then(Redaction::default) }
    }

    /// What replaces private texts, where that was asked for.
    pub(crate) fn redaction(&mut self) -> Option<&mut Redaction> {
        self.redaction.as_mut()
    }

    /// A path by the name that an answer may give it.
    pub(crate) fn shown(&mut self, path: &Path) -> PathBuf {
        self.redaction.as_mut().map_or_else(|| path.to_owned(), |redaction| redaction.path(path))
    }

    /// What picks pools by a part of their names, after something was read.
    pub(crate) fn pool_part(&self, part: Option<&str>) -> Option<String> {
        part.map(|part| match &self.redaction {
            Some(redaction) => redaction.pool_part(part),
            None => part.to_owned(),
        })
    }

    /// One that shows no progress: nobody waits for it.
    pub(crate) fn quiet(mut self) -> Input {
        self.is_quiet = true;
        self
    }

    /// Reads a recording, or any file or folder that tells of memory.
    pub(crate) fn read(&mut self, path: &Path) -> Result<Reading, Failure> {
        let mut reading = self.read_as_it_is(path)?;
        self.redact(&mut reading);
        Ok(reading)
    }

    /// The same, with its private texts whatever was asked for.
    pub(crate) fn read_as_it_is(&self, path: &Path) -> Result<Reading, Failure> {
        self.read_given(&Given::new(path)?)
    }

    /// Replaces the private texts of such a reading, once.
    pub(crate) fn redact(&mut self, reading: &mut Reading) {
        if let Some(redaction) = &mut self.redaction {
            redaction.reading(reading);
        }
    }

    /// Reads as it is; of a log or a dump also why memory ran out, as a recording tells it.
    pub(crate) fn read_with_failures(&self, path: &Path) -> Result<Reading, Failure> {
        let given = Given::new(path)?;
        let mut reading = self.read_given(&given)?;
        let is_other = !reading.hosts.is_empty() || reading.recorded.is_some() || reading.stills.is_empty();
        if !is_other && reading.failures.is_none() {
            // What is no log of a failure has none.
            let found = self.read_failures_given(&[given], None).ok();
            reading.failures = found.filter(|found| !found.failures.list.is_empty());
        }
        Ok(reading)
    }

    /// Reads the failed allocations of logs, dumps, snapshots and recordings.
    pub(crate) fn read_failures(
        &mut self,
        paths: &[PathBuf],
        limit: Option<Bytes>,
    ) -> Result<OutOfMemory, Failure> {
        let given: Vec<Given> = paths.iter().map(|path| Given::new(path)).collect::<Result<_, _>>()?;
        let mut found = self.read_failures_given(&given, limit)?;
        if let Some(redaction) = &mut self.redaction {
            redaction.failures(&mut found);
        }
        Ok(found)
    }

    fn read_given(&self, given: &Given) -> Result<Reading, Failure> {
        let read = self.watched(|progress| {
            bug::stumble("read");
            vramline::read_watched(&given.path, progress)
        });
        let mut reading = read.map_err(|error| given.named(error.into()))?;
        if given.spool.is_some() {
            reading.hosts.iter_mut().for_each(|host| host.path = STDIN_NAME.into());
            reading.stills.iter_mut().for_each(|(path, _)| *path = STDIN_NAME.into());
        }
        Ok(reading)
    }

    fn read_failures_given(&self, given: &[Given], limit: Option<Bytes>) -> Result<OutOfMemory, Failure> {
        let paths: Vec<PathBuf> = given.iter().map(|given| given.path.clone()).collect();
        let read = self.watched(|progress| vramline::read_failures(&paths, limit, progress));
        let mut found = read.map_err(|error| {
            let failure = match &error {
                SourceError::Io { error: why, .. } if why.kind() == io::ErrorKind::NotFound => {
                    Failure::error(
                        error.to_string(),
                        "give the job's log, what TF_BFC_MEMORY_DUMP made, or a recording",
                    )
                }
                _ => error.into(),
            };
            given.iter().fold(failure, |failure, given| given.named(failure))
        })?;
        for given in given.iter().filter(|given| given.spool.is_some()) {
            let witnesses = found.failures.list.iter_mut().flat_map(|failure| &mut failure.witnesses);
            let told = witnesses.map(|witness| &mut witness.path).chain(&mut found.files);
            told.filter(|path| **path == given.path).for_each(|path| *path = STDIN_NAME.into());
        }
        Ok(found)
    }

    fn watched<T>(&self, read: impl FnOnce(&Arc<Progress>) -> T) -> T {
        let progress = Arc::new(Progress::default());
        if self.is_quiet || !io::stderr().is_terminal() {
            return read(&progress);
        }
        let (done, is_done) = channel::<()>();
        std::thread::scope(|threads| {
            let watched = Arc::clone(&progress);
            threads.spawn(move || {
                let mut wait = PATIENCE;
                let mut is_shown = false;
                while is_done.recv_timeout(wait) == Err(RecvTimeoutError::Timeout) {
                    let share = watched.share().unwrap_or(0.0);
                    // Progress is a courtesy: a terminal that cannot show it is no reason to fail.
                    let _ = write!(io::stderr(), "\rreading: {:3.0} %", share * 100.0);
                    (wait, is_shown) = (TICK, true);
                }
                if is_shown {
                    let _ = write!(io::stderr(), "\r\x1b[K");
                }
            });
            let reading = read(&progress);
            drop(done);
            reading
        })
    }
}

/// More than a plan ever has to say.
const LONGEST_PLAN: u64 = 64 << 20;

/// Whether a file holds one of our documents, and no trace or snapshot: those do not begin with a brace.
pub(crate) fn is_document(path: &Path) -> Result<bool, Failure> {
    if !path.is_file() {
        return Ok(false);
    }
    let first = || -> io::Result<Vec<u8>> {
        let mut first = Vec::new();
        File::open(path)?.take(1).read_to_end(&mut first)?;
        Ok(first)
    };
    Ok(first().with_context(|| format!("cannot read '{}'", path.display()))? == b"{")
}

/// A document of `vramline plan --json`.
pub(crate) fn plan(path: &Path) -> Result<PlanDocument, Failure> {
    let shown = path.display();
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(LONGEST_PLAN).read_to_string(&mut text))
        .with_context(|| format!("cannot read '{shown}'"))?;
    PlanDocument::parse(&text).map_err(|found| {
        Failure::error(
            format!("'{shown}' is no plan: expected what `vramline plan --json` prints, found {found}"),
            "make one with `vramline plan --json ... > plan.json`",
        )
    })
}

/// A path as it was given, and where what it means can be read.
struct Given {
    path: PathBuf,
    /// What came from standard input: a reader goes back and forth in its file, and a pipe goes only forth.
    spool: Option<File>,
}

impl Given {
    fn new(path: &Path) -> Result<Given, Failure> {
        if path.as_os_str() != STDIN {
            return Ok(Given { path: path.to_owned(), spool: None });
        }
        if io::stdin().is_terminal() {
            return Err(Failure::usage(
                "standard input is the terminal",
                "pipe something into it, such as: python train.py 2>&1 | vramline oom -",
            ));
        }
        let folder = std::env::temp_dir();
        let spooled = || -> io::Result<File> {
            // Without a name from the start on, so that nothing is left whatever happens.
            let (path, mut file) = output::beside(&folder.join("stdin"))?;
            fs::remove_file(path)?;
            io::copy(&mut io::stdin().lock(), &mut file)?;
            Ok(file)
        };
        let file = spooled().map_err(|error| {
            Failure::error(
                format!("standard input cannot be kept in '{}': {error}", folder.display()),
                "set TMPDIR to a folder with room for it, or give the file by its name",
            )
        })?;
        Ok(Given { path: format!("/proc/self/fd/{}", file.as_raw_fd()).into(), spool: Some(file) })
    }

    /// The failure by the name that the user knows.
    fn named(&self, failure: Failure) -> Failure {
        match failure {
            Failure::Error { error, hint } if self.spool.is_some() => {
                let shown = self.path.display().to_string();
                Failure::error(format!("{error:#}").replace(&shown, STDIN_NAME), hint)
            }
            other => other,
        }
    }
}
