//! The keys of a dataset's partitions: which job, which recording, which host.
//!
//! A key is a word that is safe as a name of a folder, in a path and in SQL. It is the same for every export of the same source.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::analysis::reading::Reading;
use crate::recording::reader::Recorded;
use crate::source::SourceError;
use crate::source::fingerprint::Fingerprint;

/// The longest name that is used as it is.
const MAX_NAME: usize = 80;

/// Digits of a fingerprint: 64 bits tell ten million recordings apart.
const DIGITS: usize = 16;

/// The value of one partition column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(String);

impl Key {
    /// The key of a name. Letters, digits, `.`, `_` and `-` stay; another name is changed, and a fingerprint keeps it apart from
    /// names that would be changed in the same way.
    #[must_use]
    pub fn of(name: &str) -> Key {
        let is_safe = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '.' | '_' | '-');
        let begins_well = name.starts_with(|sign: char| sign.is_ascii_alphanumeric());
        if begins_well && name.len() <= MAX_NAME && name.chars().all(is_safe) {
            return Key(name.to_owned());
        }
        let readable: String = name.chars().filter(|sign| is_safe(*sign)).take(MAX_NAME / 2).collect();
        let readable = readable.trim_start_matches(['.', '_', '-']);
        let print = printed("name", &[name]);
        Key(if readable.is_empty() { print } else { format!("{readable}-{print}") })
    }

    /// The key of a host; of an unknown one, a word that no name has.
    #[must_use]
    pub fn host(name: Option<&str>) -> Key {
        name.filter(|name| !name.is_empty()).map_or_else(|| Key("_unknown".to_owned()), Key::of)
    }

    /// The key of the partition that holds every table without rows, so that each table exists.
    #[must_use]
    pub fn schema() -> Key {
        Key("_schema".to_owned())
    }

    /// The key of what could not be read.
    #[must_use]
    pub fn unreadable() -> Key {
        Key("_unreadable".to_owned())
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Which job and recording a source is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceKeys {
    /// The job: its name by `--job` or the launcher, or the recording itself where nobody named it.
    pub job: Key,
    /// The recording. It is the same for a copy, for a recording that went on, and with or without redaction.
    pub recording: Key,
    /// The name of the job by `--job` or the launcher.
    pub job_id: Option<String>,
}

impl SourceKeys {
    /// The keys of what was read from a path.
    ///
    /// # Errors
    ///
    /// If a file can no longer be read.
    pub(super) fn of(path: &Path, reading: &Reading) -> Result<SourceKeys, SourceError> {
        let recording = Key(match Self::of_recording(reading) {
            Some(print) => print,
            None => of_files(path, reading)?,
        });
        let job_id = reading.recorded.as_ref().and_then(job_of);
        let job = job_id.as_deref().map_or_else(|| recording.clone(), Key::of);
        Ok(SourceKeys { job, recording, job_id })
    }

    /// A recording is known by its beginning: who started it, where and when. Nothing of it changes while it goes on.
    fn of_recording(reading: &Reading) -> Option<String> {
        let recorded = reading.recorded.as_ref()?;
        if let Some(manifest) = &recorded.manifest {
            let begin = manifest.clocks.begin.realtime_ns.0.to_string();
            return Some(printed("run", &[&manifest.host, &manifest.parent_pid.to_string(), &begin]));
        }
        let first = recorded.processes.iter().map(|process| process.id.to_string()).min()?;
        Some(printed("process", &[&first]))
    }

    /// The keys of a path that cannot be read.
    #[must_use]
    pub fn of_unreadable(path: &Path) -> SourceKeys {
        let mut print = Fingerprint::default();
        print.add_text("path");
        print.add_place(path);
        SourceKeys { job: Key::unreadable(), recording: Key(print.digits(DIGITS)), job_id: None }
    }

    /// Replaces the job's name by a fingerprint: recordings of one job stay together.
    pub(super) fn redact(&mut self) {
        if let Some(name) = self.job_id.take() {
            let hidden = format!("job-{}", printed("job", &[&name]));
            self.job = Key(hidden.clone());
            self.job_id = Some(hidden);
        }
    }
}

/// The name of the job, by the parent of the run, else by its processes.
fn job_of(recorded: &Recorded) -> Option<String> {
    let parent = recorded.manifest.as_ref().and_then(|manifest| manifest.identity.job.as_ref());
    let processes = recorded.processes.iter().filter_map(|process| process.facts.identity.job.as_ref());
    parent.into_iter().chain(processes).find(|job| !job.is_empty()).cloned()
}

/// What is no recording is known by the content of what was read.
fn of_files(path: &Path, reading: &Reading) -> Result<String, SourceError> {
    let traces = reading.hosts.iter().map(|host| &host.path);
    let mut files: Vec<&PathBuf> = traces.chain(reading.stills.iter().map(|(path, _)| path)).collect();
    files.sort();
    files.dedup();
    let mut print = Fingerprint::default();
    print.add_text("files");
    for file in files {
        let failed = |error| SourceError::Io { path: path.to_owned(), error };
        print.add_file(file).map_err(failed)?;
        print.add_text("");
    }
    Ok(print.digits(DIGITS))
}

fn printed(kind: &str, texts: &[&str]) -> String {
    let mut print = Fingerprint::default();
    print.add_text(kind);
    texts.iter().for_each(|text| print.add_text(text));
    print.digits(DIGITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_safe_and_stay_apart() {
        assert_eq!(Key::of("4711_3").as_str(), "4711_3");
        assert_eq!(Key::of("node-1.example").as_str(), "node-1.example");
        for name in [
            "",
            "a b",
            "a/b",
            "../x",
            "..",
            ".hidden",
            "_schema",
            "_unreadable",
            "ä",
            "a=b",
            "%2e",
            &"x".repeat(300),
        ] {
            let key = Key::of(name);
            assert_ne!(key.as_str(), name);
            let is_safe = |sign: char| sign.is_ascii_alphanumeric() || matches!(sign, '.' | '_' | '-');
            assert!(key.as_str().chars().all(is_safe) && key.as_str().len() < 100, "{key}");
            assert!(key.as_str().starts_with(|sign: char| sign.is_ascii_alphanumeric()), "{key}");
        }
        assert_ne!(Key::of("a b"), Key::of("ab"));
        assert_ne!(Key::of("a b"), Key::of("a/b"));
        assert_eq!(Key::host(Some("")), Key::host(None));
        assert_ne!(Key::host(Some("_unknown")), Key::host(None));
    }
}
