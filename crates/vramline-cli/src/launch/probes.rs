//! Makes the probes of a plan: the user's command with several batches, each traced and ended after a few steps.
//!
//! A probe is a job as any other; what it prints goes into a file beside its recording, so that the plan's own output stays
//! readable. One that fails ends the planning, with its last words.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, IsTerminal};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, anyhow};

use crate::Hinted;
use crate::cli::{Allocator, RunArgs};
use crate::commands::run;
use crate::launch::environment::Variables;
use crate::launch::say;
use crate::launch::settings::{Trace, refusal};

/// Lines of a failed probe that are shown.
const LAST_WORDS: usize = 15;

/// What is to be run.
pub(crate) struct Wanted<'a> {
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
}

/// Runs what is not there yet, the smallest first. Gives each batch with its recording; `Err` of a code where a signal ended a probe.
pub(crate) fn make(wanted: &Wanted<'_>) -> Result<Result<Vec<(u64, PathBuf)>, u8>, Hinted> {
    let braces = check(wanted.command, wanted.variable)?;
    fs::create_dir_all(wanted.folder)
        .with_context(|| format!("cannot make '{}'", wanted.folder.display()))?;
    let mut batches = wanted.batches.to_vec();
    batches.sort_unstable();
    batches.dedup();
    let count = batches.len() * wanted.repeats as usize;
    let mut made = Vec::new();
    for &batch in &batches {
        for repeat in 0..wanted.repeats {
            let path = wanted.folder.join(format!("{}-{batch}-{repeat}.vram", wanted.name));
            let number = made.len() + 1;
            let begin = format!("{} {number} of {count}: {} {batch}", wanted.name, wanted.variable);
            if path.is_dir() {
                say(format_args!("{begin} is there already"));
                made.push((batch, path));
                continue;
            }
            if io::stderr().is_terminal() {
                say(format_args!("{begin} ..."));
            }
            let began = Instant::now();
            let code = one(wanted, batch, &braces, &path)?;
            if code > 128 {
                return Ok(Err(code));
            }
            say(format_args!("{begin} took {:.1} s", began.elapsed().as_secs_f64()));
            made.push((batch, path));
        }
    }
    Ok(Ok(made))
}

/// What stands for the batch in a command; an error where nothing does.
pub(crate) fn check(command: &[OsString], variable: &str) -> Result<String, Hinted> {
    let braces = format!("{{{variable}}}");
    if command.iter().any(|word| contains(word, &braces)) {
        return Ok(braces);
    }
    let hint = format!(
        "write {braces} where the script takes it, such as: -- python train.py --batch-size {braces}"
    );
    Err(refusal(format!("the command has no {braces} in it"), hint))
}

fn one(wanted: &Wanted<'_>, batch: u64, braces: &str, path: &Path) -> Result<u8, Hinted> {
    let command: Vec<OsString> =
        wanted.command.iter().map(|word| replaced(word, braces, &batch.to_string())).collect();
    let log_path = path.with_extension("log");
    let log = File::create(&log_path).with_context(|| format!("cannot write '{}'", log_path.display()))?;
    // A probe that was cut short must not be taken for a whole one.
    let part = path.with_extension("part.vram");
    let _ = fs::remove_dir_all(&part);
    let args = RunArgs {
        trace: Trace::Steps(wanted.trace_steps),
        stop: true,
        allocator: wanted.allocator,
        ..RunArgs::of(part, command)
    };
    let recorded = run::record(&args, Some(&log), wanted.more, None)?;
    if recorded.code > 128 {
        return Ok(recorded.code);
    }
    if recorded.code != 0 {
        let error = anyhow!("the run of {} {batch} ended with code {}", wanted.variable, recorded.code);
        return Err(Hinted { error, hint: format!("the last it said:\n{}", last_words(&log_path)) });
    }
    let recording = recorded.path.ok_or_else(|| anyhow!("'{}' could not be recorded", path.display()))?;
    recorded
        .manifest
        .write(&recording)
        .with_context(|| format!("cannot complete '{}'", recording.display()))?;
    fs::rename(&recording, path).with_context(|| format!("cannot name '{}'", path.display()))?;
    Ok(0)
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
