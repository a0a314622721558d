//! Has XLA compile the user's program at a batch, and tell what it decided: the command runs until the program that is looked for is
//! compiled, and is then ended.
//!
//! XLA writes each program that it compiles when it is told to (`XLA_FLAGS`), before the program runs for the first time. So the
//! batch need not fit: nothing of the step is asked for yet. The job is traced and stopped after two steps like a probe, so that one
//! that compiles nothing ends too; and it is ended where nothing was compiled for long, or at a deadline.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Context;
use vramline::plan::Compiled;
use vramline::recording::manifest::RunManifest;
use vramline::source::read_programs;

use crate::exit::Failure;
use crate::launch::probes::{is_of, last_words, replaced};
use crate::launch::spec::JobSpec;
use crate::launch::values::{Trace, Variables};
use crate::launch::{record, say};
use crate::variables::{JAX_CACHE, XLA_FLAGS};

/// Steps after which a job is stopped that has not been ended before.
const STEPS: u32 = 2;

/// The end of the names of the files that tell what was compiled.
const DUMP: &str = "after_optimizations.hlo.pb";

/// The end of the names of those that are written when XLA begins with a program.
const BEGUN: &str = "before_optimizations.hlo.pb";

/// Nothing more is compiled where nothing was for so long, or longer.
const QUIET: Duration = Duration::from_secs(10);

/// A job whose programs are to be compiled at some batch.
pub(crate) struct CompileJob<'a> {
    pub(crate) variable: &'a str,
    pub(crate) command: &'a [OsString],
    /// Where what XLA writes is kept.
    pub(crate) folder: &'a Path,
    /// After which time a job is ended, whatever it has compiled.
    pub(crate) patience: Duration,
}

impl CompileJob<'_> {
    /// What XLA compiles at a batch, until it is `enough`; `None` where it compiles nothing. What is there already is not run again.
    pub(crate) fn at(
        &self,
        batch: u64,
        enough: &(dyn Fn(&Compiled) -> bool + Sync),
    ) -> Result<Option<Compiled>, Failure> {
        let folder = self.folder.join(format!("compiled-{batch}"));
        let begin = format!("compiling at {} {batch}", self.variable);
        let spec = self.spec(batch);
        if let Some(known) = read(batch, &folder).filter(|_| is_of(&folder, &spec)) {
            say(format_args!("{begin} is done already"));
            return Ok(Some(known));
        }
        if io::stderr().is_terminal() {
            say(format_args!("{begin} ..."));
        }
        let began = Instant::now();
        let part = self.folder.join(format!("compiled-{batch}.part"));
        let log_path = self.folder.join(format!("compiled-{batch}.log"));
        // A job that crashes at a batch that does not fit has compiled before that.
        let manifest = self.run(batch, spec, &part, &log_path, enough)?;
        keep_dumps(&part);
        let took = began.elapsed().as_secs_f64();
        if read(batch, &part).is_none() {
            let words = last_words(&log_path);
            let last = words.lines().last().unwrap_or_default();
            say(format_args!("{begin} gave no program in {took:.1} s; the last it said: {last}"));
            let _ = fs::remove_dir_all(&part);
            return Ok(None);
        }
        manifest.write(&part).with_context(|| format!("cannot complete '{}'", part.display()))?;
        let _ = fs::remove_dir_all(&folder);
        fs::rename(&part, &folder).with_context(|| format!("cannot name '{}'", folder.display()))?;
        say(format_args!("{begin} took {took:.1} s"));
        Ok(read(batch, &folder))
    }

    fn spec(&self, batch: u64) -> JobSpec<'static> {
        let braces = format!("{{{}}}", self.variable);
        JobSpec {
            command: self.command.iter().map(|word| replaced(word, &braces, &batch.to_string())).collect(),
            output: Some(self.folder.join(format!("compiled-{batch}.vram"))),
            trace: Trace::Steps(STEPS),
            stops: true,
            must_obey: true,
            ..JobSpec::default()
        }
    }

    /// Runs the job; gives what was run.
    fn run(
        &self,
        batch: u64,
        spec: JobSpec<'_>,
        part: &Path,
        log_path: &Path,
        enough: &(dyn Fn(&Compiled) -> bool + Sync),
    ) -> Result<RunManifest, Failure> {
        let log = File::create(log_path).with_context(|| format!("cannot write '{}'", log_path.display()))?;
        let _ = fs::remove_dir_all(part);
        fs::create_dir_all(part).with_context(|| format!("cannot make '{}'", part.display()))?;
        // The job may change its folder before it compiles.
        let dumps = std::path::absolute(part).unwrap_or_else(|_| part.to_owned());
        let own = std::env::var_os(XLA_FLAGS).unwrap_or_default();
        let more = Variables::from([
            (XLA_FLAGS.to_owned(), flags(&own, &dumps)),
            // What is taken from a cache is not compiled, and not told.
            (JAX_CACHE.to_owned(), "false".to_owned()),
        ]);
        if let Some(recording) = &spec.output {
            let _ = fs::remove_dir_all(recording);
        }
        let watch = Mutex::new(Watch::new(self.patience));
        let is_enough = || {
            let Ok(mut watch) = watch.lock() else { return true };
            let is_new = watch.look(&dumps);
            watch.is_over() || (is_new && read(batch, &dumps).is_some_and(|compiled| enough(&compiled)))
        };
        let recorded = record(&JobSpec { more, log: Some(&log), enough: Some(&is_enough), ..spec })?;
        if let Some(path) = recorded.path {
            let _ = fs::remove_dir_all(path);
        }
        if let Some(signal) = recorded.interrupted {
            let _ = fs::remove_dir_all(part);
            return Err(Failure::Interrupted { signal });
        }
        Ok(recorded.manifest)
    }
}

/// The user's own flags, and ours. XLA takes a value that begins with no dash for the name of a file with flags.
fn flags(own: &OsStr, dumps: &Path) -> String {
    let own = own.to_string_lossy();
    let own = own.trim();
    let own = if own.is_empty() || own.starts_with('-') {
        own.to_owned()
    } else {
        fs::read_to_string(own).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // The last of several counts.
    let dumps = dumps.display().to_string();
    // XLA takes quotes around a value.
    let quote = if dumps.contains(char::is_whitespace) { "\"" } else { "" };
    format!("{own} --xla_dump_to={quote}{dumps}{quote} --xla_dump_hlo_as_proto").trim_start().to_owned()
}

fn read(batch: u64, folder: &Path) -> Option<Compiled> {
    let programs = read_programs(folder).ok()?;
    Some(Compiled { batch, file: folder.display().to_string(), programs })
}

fn files_in(folder: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

fn is_dump(path: &Path) -> bool {
    path.file_name().unwrap_or_default().to_string_lossy().ends_with(DUMP)
}

/// What XLA has written, and when.
struct Watch {
    began: Instant,
    patience: Duration,
    /// Programs that were begun, programs that are done, and the bytes of both.
    found: (usize, usize, u64),
    changed: Instant,
}

impl Watch {
    fn new(patience: Duration) -> Watch {
        let began = Instant::now();
        Watch { began, patience, found: (0, 0, 0), changed: began }
    }

    /// Looks into the folder; whether anything has come or grown.
    fn look(&mut self, folder: &Path) -> bool {
        let mut found = (0, 0, 0_u64);
        for entry in files_in(folder) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let (is_begun, is_done) = (name.ends_with(BEGUN), name.ends_with(DUMP));
            if is_begun || is_done {
                found.0 += usize::from(is_begun);
                found.1 += usize::from(is_done);
                found.2 = found.2.saturating_add(entry.metadata().map_or(0, |known| known.len()));
            }
        }
        let is_new = found != self.found;
        if is_new {
            (self.found, self.changed) = (found, Instant::now());
        }
        is_new
    }

    /// Whether nothing more is to be expected: all that was begun is done, and for twice as long as that took nothing else was begun.
    fn is_over(&self) -> bool {
        let (begun, done, _) = self.found;
        let quiet = (self.changed - self.began).saturating_mul(2).max(QUIET);
        self.began.elapsed() > self.patience || (done > 0 && begun <= done && self.changed.elapsed() > quiet)
    }
}

/// Removes what XLA writes besides: code in every form, a hundred times as much.
fn keep_dumps(folder: &Path) {
    for entry in files_in(folder).filter(|entry| !is_dump(&entry.path())) {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        let _ = if is_folder { fs::remove_dir_all(entry.path()) } else { fs::remove_file(entry.path()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_own_flags_stay() {
        let all = |own: &str| flags(own.as_ref(), "/dumps".as_ref());
        assert_eq!(all(""), "--xla_dump_to=/dumps --xla_dump_hlo_as_proto");
        assert_eq!(all("--xla_a=1"), "--xla_a=1 --xla_dump_to=/dumps --xla_dump_hlo_as_proto");
        assert_eq!(all("/no/such/file"), "--xla_dump_to=/dumps --xla_dump_hlo_as_proto");
    }
}
