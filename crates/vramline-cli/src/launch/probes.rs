//! Makes the probes of a plan: the user's command with several batches, each traced and ended after a few steps.
//!
//! A probe is a job as any other; what it prints goes into a file beside its recording, so that the plan's own output stays
//! readable. One that fails ends the planning, with its last words. What an earlier plan has made is taken again if it is of the very same
//! job, as far as its manifest tells: a change in a module that the script imports does not show there.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, anyhow};
use vramline::recording::manifest::{self, Exit, RunManifest};

use crate::exit::{Failure, JobEnd};
use crate::launch::environment;
use crate::launch::spec::JobSpec;
use crate::launch::values::{Allocator, Trace, Variables};
use crate::launch::{record, say};

/// Lines of a failed probe that are shown.
const LAST_WORDS: usize = 15;

/// A job that is to be probed at several batches.
pub(crate) struct ProbeJob<'a> {
    pub(crate) batches: &'a [u64],
    pub(crate) repeats: u32,
    pub(crate) trace_steps: u32,
    pub(crate) variable: &'a str,
    pub(crate) command: &'a [OsString],
    /// Where the recordings go, and what their names begin with.
    pub(crate) folder: &'a Path,
    pub(crate) name: &'a str,
    /// What the job gets besides.
    pub(crate) more: &'a Variables,
    pub(crate) allocator: Option<Allocator>,
    /// Whether what is there already is run all the same.
    pub(crate) is_anew: bool,
}

impl ProbeJob<'_> {
    /// One of its runs. Somebody who ends a plan does not wait for a script that goes on.
    fn spec(&self, batch: u64, braces: &str, output: PathBuf) -> JobSpec<'static> {
        JobSpec {
            command: self.command.iter().map(|word| replaced(word, braces, &batch.to_string())).collect(),
            output: Some(output),
            trace: Trace::Steps(self.trace_steps),
            stops: true,
            allocator: self.allocator,
            more: self.more.clone(),
            must_obey: true,
            ..JobSpec::default()
        }
    }
}

/// Whether what is kept in a folder was recorded of this job: the same command in the same place, with the same settings and what
/// variables are set now, and no script in it has changed since.
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
        && kept.settings.allocator.as_deref() == spec.allocator.map(Allocator::word)
        && variables.iter().all(|(name, value)| kept.environment.get(name) == Some(value))
        && !spec.command.iter().any(is_newer)
}

/// Runs what is not there yet, the smallest first. Gives each batch with its recording.
pub(crate) fn make(job: &ProbeJob<'_>) -> Result<Vec<(u64, PathBuf)>, Failure> {
    let braces = check(job.command, job.variable)?;
    fs::create_dir_all(job.folder).with_context(|| format!("cannot make '{}'", job.folder.display()))?;
    let mut batches = job.batches.to_vec();
    batches.sort_unstable();
    batches.dedup();
    let count = batches.len() * job.repeats as usize;
    let mut made = Vec::new();
    for &batch in &batches {
        for repeat in 0..job.repeats {
            let path = job.folder.join(format!("{}-{batch}-{repeat}.vram", job.name));
            let number = made.len() + 1;
            let begin = format!("{} {number} of {count}: {} {batch}", job.name, job.variable);
            // A probe that was cut short must not be taken for a whole one.
            let part = path.with_extension("part.vram");
            let spec = job.spec(batch, &braces, part.clone());
            if !job.is_anew && is_of(&path, &spec) {
                say(format_args!("{begin} is there already"));
                made.push((batch, path));
                continue;
            }
            if path.is_dir() && !job.is_anew {
                say(format_args!("{begin} is there of another job, or of an older script: it is run again"));
            } else if io::stderr().is_terminal() {
                say(format_args!("{begin} ..."));
            }
            let began = Instant::now();
            let _ = fs::remove_dir_all(&part);
            one(job, batch, spec, &path).inspect_err(|failure| {
                if matches!(failure, Failure::Interrupted { .. }) {
                    let _ = fs::remove_dir_all(&part);
                }
            })?;
            say(format_args!("{begin} took {:.1} s", began.elapsed().as_secs_f64()));
            made.push((batch, path));
        }
    }
    Ok(made)
}

/// What stands for the batch in a command; an error where nothing does.
pub(crate) fn check(command: &[OsString], variable: &str) -> Result<String, Failure> {
    let braces = format!("{{{variable}}}");
    if command.iter().any(|word| contains(word, &braces)) {
        return Ok(braces);
    }
    let hint = format!(
        "write {braces} where the script takes it, such as: -- python train.py --batch-size {braces}"
    );
    Err(Failure::usage(format!("the command has no {braces} in it"), hint))
}

/// Makes one probe.
fn one(job: &ProbeJob<'_>, batch: u64, spec: JobSpec<'_>, path: &Path) -> Result<(), Failure> {
    let log_path = path.with_extension("log");
    let log = File::create(&log_path).with_context(|| format!("cannot write '{}'", log_path.display()))?;
    let recorded = record(&JobSpec { log: Some(&log), ..spec })?;
    if let Some(signal) = recorded.interrupted {
        return Err(Failure::Interrupted { signal });
    }
    let ended = match recorded.end {
        JobEnd::Ended(Exit::Code(0)) => None,
        JobEnd::Ended(Exit::Code(code)) => Some(format!("ended with code {code}")),
        JobEnd::Ended(Exit::Signal(signal)) => Some(format!("was ended by signal {signal}")),
        JobEnd::NotFound | JobEnd::NotStarted => Some("could not be started".to_owned()),
    };
    if let Some(ended) = ended {
        return Err(Failure::error(
            format!("the run of {} {batch} {ended}", job.variable),
            format!("the last it said:\n{}", last_words(&log_path)),
        ));
    }
    let recording = recorded.path.ok_or_else(|| anyhow!("'{}' could not be recorded", path.display()))?;
    recorded
        .manifest
        .write(&recording)
        .with_context(|| format!("cannot complete '{}'", recording.display()))?;
    let _ = fs::remove_dir_all(path);
    fs::rename(&recording, path).with_context(|| format!("cannot name '{}'", path.display()))?;
    Ok(())
}

pub(super) fn last_words(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(LAST_WORDS)..).unwrap_or_default().join("\n")
}

fn contains(word: &OsStr, braces: &str) -> bool {
    word.as_bytes().windows(braces.len()).any(|part| part == braces.as_bytes())
}

/// A word with what stands in braces replaced; it need not be UTF-8.
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
