//! Reads what a command was given: a path, or standard input for `-`. Shows progress while reading takes long.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use vramline::analysis::plan::PlanDocument;
use vramline::analysis::ranks::{self, RankChoice};
use vramline::analysis::redaction::Redaction;
use vramline::source::{Progress, SourceError};
use vramline::units::Bytes;
use vramline::{OutOfMemory, Reading};

use crate::bug;
use crate::exit::Failure;
use crate::output;
use crate::progress::ProgressLine;

/// Standard input as an argument, and its name in answers and errors.
const STDIN: &str = "-";
pub(crate) const STDIN_NAME: &str = "standard input";

/// Reads the paths that a command was given.
pub(crate) struct Input {
    /// Whether progress is hidden.
    is_quiet: bool,
    /// Replaces private text in everything that is read.
    redaction: Option<Redaction>,
    /// Which ranks of a job to report on; `None` reads all of them in full.
    ranks: Option<RankChoice>,
}

impl Input {
    pub(crate) fn new(is_redacted: bool) -> Input {
        Input { is_quiet: false, redaction: is_redacted.then(Redaction::default), ranks: None }
    }

    /// Reads of a job with several ranks one in full, and sums up the others.
    pub(crate) fn with_ranks(mut self, choice: RankChoice) -> Input {
        self.ranks = Some(choice);
        self
    }

    /// The rank to read in full, of a job with several; `None` leaves the choice to the report.
    pub(crate) fn choose_main(&mut self, main: Option<u64>) {
        self.ranks.iter_mut().for_each(|choice| choice.main = main);
    }

    /// Replaces private text; `None` without `--redact`.
    pub(crate) fn redaction(&mut self) -> Option<&mut Redaction> {
        self.redaction.as_mut()
    }

    /// The path as answers show it: redacted with `--redact`.
    pub(crate) fn shown(&mut self, path: &Path) -> PathBuf {
        self.redaction.as_mut().map_or_else(|| path.to_owned(), |redaction| redaction.path(path))
    }

    /// The argument of `--pool`, redacted as the names of pools are. To be called after reading.
    pub(crate) fn pool_part(&self, part: Option<&str>) -> Option<String> {
        part.map(|part| match &self.redaction {
            Some(redaction) => redaction.pool_part(part),
            None => part.to_owned(),
        })
    }

    /// Hides progress, for reading in the background.
    pub(crate) fn quiet(mut self) -> Input {
        self.is_quiet = true;
        self
    }

    /// Shows progress for work on what was read, such as `analysing`.
    pub(crate) fn progress(&self, label: &str) -> ProgressLine {
        if self.is_quiet { ProgressLine::hidden() } else { ProgressLine::timed(label) }
    }

    /// Reads a recording, or any other file or folder with memory data.
    pub(crate) fn read(&mut self, path: &Path) -> Result<Reading, Failure> {
        let mut reading = self.read_as_it_is(path)?;
        self.redact(&mut reading);
        Ok(reading)
    }

    /// Reads without redacting, even with `--redact`.
    pub(crate) fn read_as_it_is(&self, path: &Path) -> Result<Reading, Failure> {
        self.read_given(&Given::new(path)?)
    }

    /// Redacts what [`read_as_it_is`](Input::read_as_it_is) returned. To be called once.
    pub(crate) fn redact(&mut self, reading: &mut Reading) {
        if let Some(redaction) = &mut self.redaction {
            redaction.reading(reading);
        }
    }

    /// Reads without redacting; for a log or a dump, reads its failed allocations too.
    pub(crate) fn read_with_failures(&self, path: &Path) -> Result<Reading, Failure> {
        let given = Given::new(path)?;
        let mut reading = self.read_given(&given)?;
        let is_other = !reading.hosts.is_empty() || reading.recorded.is_some() || reading.stills.is_empty();
        if !is_other && reading.failures.is_none() {
            // A file without failures is not an error here.
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
            match &self.ranks {
                Some(choice) => ranks::read(&given.path, choice, progress),
                None => vramline::read_watched(&given.path, progress),
            }
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
                        "give the log of the job, a dump of TF_BFC_MEMORY_DUMP, or a recording (NAME.vram)",
                    )
                }
                _ => error.into(),
            };
            given.iter().fold(failure, |failure, given| given.named(failure))
        })?;
        for given in given.iter().filter(|given| given.spool.is_some()) {
            let witnesses = found.failures.list.iter_mut().flat_map(|failure| &mut failure.witnesses);
            let paths = witnesses.map(|witness| &mut witness.path).chain(&mut found.files);
            paths.filter(|path| **path == given.path).for_each(|path| *path = STDIN_NAME.into());
        }
        Ok(found)
    }

    /// Shows how much has been read.
    fn watched<T>(&self, read: impl FnOnce(&Arc<Progress>) -> T) -> T {
        let progress = Arc::new(Progress::default());
        if self.is_quiet {
            return read(&progress);
        }
        let watched = Arc::clone(&progress);
        let percent = move || watched.share().unwrap_or(0.0) * 100.0;
        let _line = ProgressLine::start(move |_| format!("reading: {:3.0} %", percent()));
        read(&progress)
    }
}

/// Largest plan that is read.
const MAX_PLAN_BYTES: u64 = 64 << 20;

/// Whether a file is a JSON document. Traces and snapshots do not begin with a brace.
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

/// Reads a document of `vramline plan --json`.
pub(crate) fn plan(path: &Path) -> Result<PlanDocument, Failure> {
    let shown = path.display();
    let mut text = String::new();
    File::open(path)
        .and_then(|file| file.take(MAX_PLAN_BYTES).read_to_string(&mut text))
        .with_context(|| format!("cannot read '{shown}'"))?;
    PlanDocument::parse(&text).map_err(|found| {
        Failure::error(
            format!("'{shown}' is not a plan: expected the output of `vramline plan --json`, found {found}"),
            "make a plan with: vramline plan --json ... > plan.json",
        )
    })
}

/// An argument, and the path to read it from.
struct Given {
    path: PathBuf,
    /// A copy of standard input: readers seek in their file, and a pipe cannot seek.
    spool: Option<File>,
}

impl Given {
    fn new(path: &Path) -> Result<Given, Failure> {
        if path.as_os_str() != STDIN {
            return Ok(Given { path: path.to_owned(), spool: None });
        }
        if io::stdin().is_terminal() {
            return Err(Failure::usage(
                "'-' reads standard input, but standard input is the terminal",
                "pipe data into it, such as: python train.py 2>&1 | vramline oom -",
            ));
        }
        let folder = std::env::temp_dir();
        let spooled = || -> io::Result<File> {
            // The file has no name from the start, so that nothing is left behind if this process is killed.
            let (path, mut file) = output::beside(&folder.join("stdin"))?;
            fs::remove_file(path)?;
            let _line = ProgressLine::timed("reading standard input");
            io::copy(&mut io::stdin().lock(), &mut file)?;
            Ok(file)
        };
        let file = spooled().map_err(|error| {
            Failure::error(
                format!("cannot copy standard input to '{}': {error}", folder.display()),
                "set TMPDIR to a folder with enough space, or give the path of a file instead of '-'",
            )
        })?;
        Ok(Given { path: format!("/proc/self/fd/{}", file.as_raw_fd()).into(), spool: Some(file) })
    }

    /// Replaces the path of the copy by `standard input` in an error.
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
