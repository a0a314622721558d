//! Makes the probes of a plan: runs the user's command at several batch sizes, and ends each run after a few steps.
//!
//! The output of a probe goes into a log file next to its recording. A probe that fails ends the planning, with the last lines of
//! its log. A probe of an earlier plan is reused if its manifest shows the same job. A change in a module that the script imports
//! is not noticed.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, anyhow};
use vramline::recording::manifest::{self, Exit, RunManifest};
use vramline::units::Bytes;

use crate::exit::{Failure, JobEnd};
use crate::launch::environment;
use crate::launch::spec::JobSpec;
use crate::launch::values::{Allocator, Stop, Trace, Variables};
use crate::launch::{record, say};

/// Number of lines shown of the log of a failed probe.
const LAST_LINES: usize = 15;

/// A job to run at several batch sizes.
pub(crate) struct ProbeJob<'a> {
    pub(crate) batches: &'a [u64],
    pub(crate) repeats: u32,
    /// Training steps of each run.
    pub(crate) steps: u32,
    /// Whether the runs are traced.
    pub(crate) is_traced: bool,
    pub(crate) variable: &'a str,
    pub(crate) command: &'a [OsString],
    /// The folder of the recordings.
    pub(crate) folder: &'a Path,
    /// The start of the names of the recordings.
    pub(crate) name: &'a str,
    /// What a run is called in messages, such as `probe`.
    pub(crate) label: &'a str,
    /// Additional environment variables.
    pub(crate) more: &'a Variables,
    pub(crate) allocator: Option<Allocator>,
    /// The limit of the pool.
    pub(crate) limit: Option<Bytes>,
    /// Whether existing recordings are made again.
    pub(crate) is_anew: bool,
}

impl ProbeJob<'_> {
    /// One of its runs. Ctrl-C ends it even if the script ignores the signal.
    fn spec(&self, batch: u64, braces: &str, output: PathBuf) -> JobSpec<'static> {
        JobSpec {
            command: self.command.iter().map(|word| replaced(word, braces, &batch.to_string())).collect(),
            output: Some(output),
            trace: if self.is_traced { Trace::Steps(self.steps) } else { Trace::Off },
            stop: Some(if self.is_traced { Stop::AfterTrace } else { Stop::AfterSteps(self.steps) }),
            allocator: self.allocator,
            limit: self.limit,
            more: self.more.clone(),
            must_obey: true,
            ..JobSpec::default()
        }
    }
}

/// Whether the recording in a folder is of this job: the same command, working directory, settings and environment variables, and
/// no script of the command has changed since.
pub(super) fn is_of(folder: &Path, spec: &JobSpec<'_>) -> bool {
    let Ok(kept) = RunManifest::read(folder) else { return false };
    let began = SystemTime::UNIX_EPOCH
        + Duration::from_nanos(u64::try_from(kept.clocks.begin.realtime_ns.0).unwrap_or_default());
    let is_newer = |word: &OsString| {
        let path = Path::new(word);
        path.extension().is_some_and(|end| end == "py" || end == "sh")
            && path.metadata().and_then(|known| known.modified()).is_ok_and(|changed| changed > began)
    };
    let words: Vec<_> = spec.command.iter().map(|word| word.to_string_lossy()).collect();
    let variables = manifest::environment(environment::of_user());
    kept.command == words
        && std::env::current_dir().is_ok_and(|cwd| cwd.to_string_lossy() == kept.cwd)
        && kept.settings.trace == spec.trace.to_string()
        && kept.settings.stop_after_steps == spec.stop.and_then(Stop::steps)
        && kept.settings.allocator.as_deref() == spec.allocator.map(Allocator::word)
        && kept.settings.limit_bytes == spec.limit
        && variables.iter().all(|(name, value)| kept.environment.get(name) == Some(value))
        && !spec.command.iter().any(is_newer)
}

/// Runs the probes that do not exist yet, the smallest batch size first. Returns each batch size with its recording.
pub(crate) fn make(job: &ProbeJob<'_>) -> Result<Vec<(u64, PathBuf)>, Failure> {
    let braces = check(job.command, job.variable)?;
    fs::create_dir_all(job.folder)
        .with_context(|| format!("cannot create the folder '{}'", job.folder.display()))?;
    let mut batches = job.batches.to_vec();
    batches.sort_unstable();
    batches.dedup();
    let count = batches.len() * job.repeats as usize;
    let mut made = Vec::new();
    for &batch in &batches {
        for repeat in 0..job.repeats {
            let path = job.folder.join(format!("{}-{batch}-{repeat}.vram", job.name));
            let number = made.len() + 1;
            let begin = format!("{} {number} of {count}: {} {batch}", job.label, job.variable);
            // Recorded under another name first, so that an interrupted probe is never taken for a complete one.
            let part = path.with_extension("part.vram");
            let spec = job.spec(batch, &braces, part.clone());
            if !job.is_anew && is_of(&path, &spec) {
                say(format_args!("{begin}: already recorded"));
                made.push((batch, path));
                continue;
            }
            if path.is_dir() && !job.is_anew {
                say(format_args!(
                    "{begin}: the existing recording is of another job or an older script; recording it again"
                ));
            }
            let began = Instant::now();
            let _ = fs::remove_dir_all(&part);
            let spec = JobSpec { progress: Some(begin.clone()), ..spec };
            let (end, recording) = one(spec, &path, &part)?;
            if let Some(ended) = ended_by(end) {
                let log = path.with_extension("log");
                return Err(Failure::error(
                    format!("the run with {} {batch} {ended}", job.variable),
                    format!("the last lines of '{}':\n{}", log.display(), last_words(&log)),
                ));
            }
            keep(recording, &path)?;
            say(format_args!("{begin} took {:.1} s", began.elapsed().as_secs_f64()));
            made.push((batch, path));
        }
    }
    Ok(made)
}

/// The placeholder of the batch size, such as `{batch}`; an error if the command does not contain it.
pub(crate) fn check(command: &[OsString], variable: &str) -> Result<String, Failure> {
    let braces = format!("{{{variable}}}");
    if command.iter().any(|word| contains(word, &braces)) {
        return Ok(braces);
    }
    let hint = format!(
        "put {braces} where the script takes this value, such as: -- python train.py --batch-size {braces}"
    );
    Err(Failure::usage(format!("the command does not contain {braces}"), hint))
}

/// A run at one batch size that may fail.
pub(crate) struct Attempt {
    pub(crate) recording: PathBuf,
    pub(crate) log: PathBuf,
    /// How it ended, if it failed: the rest of a sentence.
    pub(crate) failed: Option<String>,
    /// Whether it was made for an earlier plan.
    pub(crate) is_earlier: bool,
}

/// Makes one run that may fail, unless it exists already. Its recording is kept in any case, so that a later plan knows of a failure too.
pub(crate) fn attempt(job: &ProbeJob<'_>, batch: u64, number: u32, begin: &str) -> Result<Attempt, Failure> {
    let braces = check(job.command, job.variable)?;
    let recording = job.folder.join(format!("{}-{batch}-{number}.vram", job.name));
    let part = recording.with_extension("part.vram");
    let log = recording.with_extension("log");
    let spec = job.spec(batch, &braces, part.clone());
    let known = RunManifest::read(&recording).ok().and_then(|manifest| manifest.exit);
    if let Some(exit) = known.filter(|_| is_of(&recording, &spec)) {
        let failed = ended_by(JobEnd::Ended(exit));
        let word = if failed.is_some() { "failed" } else { "passed" };
        say(format_args!("{begin}: already recorded; it {word}"));
        return Ok(Attempt { recording, log, failed, is_earlier: true });
    }
    let began = Instant::now();
    let _ = fs::remove_dir_all(&part);
    let (end, made) = one(JobSpec { progress: Some(begin.to_owned()), ..spec }, &recording, &part)?;
    let failed = ended_by(end);
    let word = if failed.is_some() { "failed" } else { "passed" };
    say(format_args!("{begin} {word} after {:.1} s", began.elapsed().as_secs_f64()));
    if matches!(end, JobEnd::Ended(_)) {
        keep(made, &recording)?;
    }
    Ok(Attempt { recording, log, failed, is_earlier: false })
}

/// How a run failed; `None` if it did not.
fn ended_by(end: JobEnd) -> Option<String> {
    match end {
        JobEnd::Ended(Exit::Code(0)) => None,
        JobEnd::Ended(Exit::Code(code)) => Some(format!("failed with exit code {code}")),
        JobEnd::Ended(Exit::Signal(signal)) => Some(format!("was ended by signal {signal}")),
        JobEnd::NotFound | JobEnd::NotStarted => Some("could not be started".to_owned()),
    }
}

/// Records one run into `part`, with a log next to `path`. Returns how it ended, and its recording.
fn one(spec: JobSpec<'_>, path: &Path, part: &Path) -> Result<(JobEnd, Option<PathBuf>), Failure> {
    let log_path = path.with_extension("log");
    let log = File::create(&log_path).with_context(|| format!("cannot write '{}'", log_path.display()))?;
    let recorded = record(&JobSpec { log: Some(&log), ..spec })?;
    if let Some(signal) = recorded.interrupted {
        let _ = fs::remove_dir_all(part);
        return Err(Failure::Interrupted { signal });
    }
    if let Some(recording) = &recorded.path {
        let wrote = recorded.manifest.write(recording);
        wrote.with_context(|| format!("cannot write to '{}'", recording.display()))?;
    }
    Ok((recorded.end, recorded.path))
}

/// Gives a complete recording its name.
fn keep(recording: Option<PathBuf>, path: &Path) -> Result<(), Failure> {
    let recording = recording
        .ok_or_else(|| anyhow!("cannot record '{}': the folder cannot be written", path.display()))?;
    let _ = fs::remove_dir_all(path);
    fs::rename(&recording, path)
        .with_context(|| format!("cannot rename '{}' to '{}'", recording.display(), path.display()))?;
    Ok(())
}

pub(crate) fn last_words(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(LAST_LINES)..).unwrap_or_default().join("\n")
}

fn contains(word: &OsStr, braces: &str) -> bool {
    word.as_bytes().windows(braces.len()).any(|part| part == braces.as_bytes())
}

/// Replaces the placeholder in a word of the command, which need not be UTF-8.
pub(super) fn replaced(word: &OsStr, braces: &str, value: &str) -> OsString {
    let mut rest = word.as_bytes();
    let mut out = Vec::new();
    while let Some(at) = rest.windows(braces.len()).position(|part| part == braces.as_bytes()) {
        out.extend_from_slice(rest.get(..at).unwrap_or_default());
        out.extend_from_slice(value.as_bytes());
        rest = rest.get(at + braces.len()..).unwrap_or_default();
    }
    out.extend_from_slice(rest);
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_are_replaced_anywhere() {
        assert_eq!(replaced("--batch={batch}".as_ref(), "{batch}", "7"), "--batch=7");
        assert_eq!(replaced("{batch}x{batch}".as_ref(), "{batch}", "11"), "11x11");
        assert_eq!(replaced("none".as_ref(), "{batch}", "11"), "none");
        assert!(contains("a{batch}".as_ref(), "{batch}") && !contains("{}".as_ref(), "{batch}"));
    }
}
