//! Lets XLA compile the user's program at a batch size and keeps the compiled program: the command runs until the wanted program is
//! compiled, and is then ended.
//!
//! `XLA_FLAGS` makes XLA write each program that it compiles, before the program runs for the first time. So the batch size need not
//! fit: the step has not allocated anything yet. The job is also stopped after two steps, if XLA has compiled nothing new for a while,
//! and at a deadline.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
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
use crate::launch::values::{Stop, Trace, Variables};
use crate::launch::{record, say};
use crate::variables::{JAX_CACHE, XLA_FLAGS};

/// Number of steps after which the job is stopped, if nothing else ended it.
const STEPS: u32 = 2;

/// The suffix of the files of compiled programs.
const DUMP: &str = "after_optimizations.hlo.pb";

/// The suffix of the files that XLA writes when it begins to compile a program.
const BEGUN: &str = "before_optimizations.hlo.pb";

/// The shortest time without a new program after which the job is ended.
const QUIET: Duration = Duration::from_secs(10);

/// A job whose programs are compiled at several batch sizes.
pub(crate) struct CompileJob<'a> {
    pub(crate) variable: &'a str,
    pub(crate) command: &'a [OsString],
    /// The folder for the compiled programs.
    pub(crate) folder: &'a Path,
    /// The deadline of one run.
    pub(crate) patience: Duration,
}

impl CompileJob<'_> {
    /// Compiles at a batch size until `enough` holds; `None` if XLA compiled nothing. Existing results are reused.
    pub(crate) fn at(
        &self,
        batch: u64,
        enough: &(dyn Fn(&Compiled) -> bool + Sync),
    ) -> Result<Option<Compiled>, Failure> {
        let folder = self.folder.join(format!("compiled-{batch}"));
        let begin = format!("compiling at {} {batch}", self.variable);
        let spec = self.spec(batch);
        if let Some(known) = read(batch, &folder).filter(|_| is_of(&folder, &spec)) {
            say(format_args!("{begin}: already compiled"));
            return Ok(Some(known));
        }
        let began = Instant::now();
        let part = self.folder.join(format!("compiled-{batch}.part"));
        let log_path = self.folder.join(format!("compiled-{batch}.log"));
        // A job that runs out of memory has compiled before that, so its exit code does not matter.
        let spec = JobSpec { progress: Some(begin.clone()), ..spec };
        let manifest = self.run(batch, spec, &part, &log_path, enough)?;
        keep_dumps(&part);
        let took = began.elapsed().as_secs_f64();
        if read(batch, &part).is_none() {
            let words = last_words(&log_path);
            let last = words.lines().last().unwrap_or_default();
            say(format_args!("{begin}: XLA compiled no program in {took:.1} s; the last output was: {last}"));
            let _ = fs::remove_dir_all(&part);
            return Ok(None);
        }
        manifest.write(&part).with_context(|| format!("cannot write to '{}'", part.display()))?;
        let _ = fs::remove_dir_all(&folder);
        fs::rename(&part, &folder)
            .with_context(|| format!("cannot rename '{}' to '{}'", part.display(), folder.display()))?;
        say(format_args!("{begin} took {took:.1} s"));
        Ok(read(batch, &folder))
    }

    fn spec(&self, batch: u64) -> JobSpec<'static> {
        let braces = format!("{{{}}}", self.variable);
        JobSpec {
            command: self.command.iter().map(|word| replaced(word, &braces, &batch.to_string())).collect(),
            output: Some(self.folder.join(format!("compiled-{batch}.vram"))),
            trace: Trace::Steps(STEPS),
            stop: Some(Stop::AfterTrace),
            must_obey: true,
            ..JobSpec::default()
        }
    }

    /// Runs the job and returns its manifest.
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
        fs::create_dir_all(part).with_context(|| format!("cannot create the folder '{}'", part.display()))?;
        // Absolute, because the job may change its working directory.
        let dumps = std::path::absolute(part).unwrap_or_else(|_| part.to_owned());
        let own = std::env::var_os(XLA_FLAGS).unwrap_or_default();
        let more = Variables::from([
            (XLA_FLAGS.to_owned(), flags(&own, &dumps)),
            // XLA does not write programs that JAX takes from its cache.
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

/// The user's flags and ours. A value that does not begin with a dash is the name of a file with flags.
fn flags(own: &OsStr, dumps: &Path) -> String {
    let own = own.to_string_lossy();
    let own = own.trim();
    let own = if own.is_empty() || own.starts_with('-') {
        own.to_owned()
    } else {
        fs::read_to_string(own).unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    // If a flag is given twice, XLA uses the last one.
    let dumps = dumps.display().to_string();
    // XLA allows quotes around a value.
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

/// Watches which files XLA writes.
struct Watch {
    began: Instant,
    patience: Duration,
    /// The number of programs begun, the number of programs compiled, and the bytes of both.
    found: (usize, usize, u64),
    changed: Instant,
}

impl Watch {
    fn new(patience: Duration) -> Watch {
        let began = Instant::now();
        Watch { began, patience, found: (0, 0, 0), changed: began }
    }

    /// Looks into the folder. Returns whether a file is new or has grown.
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

    /// Whether no more programs are expected: everything begun is compiled, and nothing was begun for twice the time that took.
    fn is_over(&self) -> bool {
        let (begun, done, _) = self.found;
        let quiet = (self.changed - self.began).saturating_mul(2).max(QUIET);
        self.began.elapsed() > self.patience || (done > 0 && begun <= done && self.changed.elapsed() > quiet)
    }
}

/// Removes the other files that XLA writes. They are a hundred times as large.
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
