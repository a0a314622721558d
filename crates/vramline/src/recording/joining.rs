//! How several launchers write one recording without a lock.
//!
//! The first one makes the folder, complete with its manifest, under a name of its own and then renames it: whoever sees the folder sees whose
//! job it is. Each further launcher of that job finds the name taken, reads one manifest, and writes files of its own beside it. No file is
//! written by two processes, so nothing is lost on a network file system.

use std::fmt;
use std::io;
use std::path::Path;

use super::folder::{Part, ProcessId, RUN, RunPlace, candidates, create, parts};
use super::identity::RankIdentity;
use super::manifest::RunManifest;

/// A place to record to.
#[derive(Debug)]
pub struct Claimed {
    /// Where it is.
    pub place: RunPlace,
    /// Why the requested name could not be used, if it is another one.
    pub passed: Option<Passed>,
}

/// Why a recording that exists was not joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Passed {
    /// It exists, and nothing says that the run belongs to it.
    Exists,
    /// It belongs to another job.
    OtherJob {
        /// The job of the recording, if it has a name.
        found: Option<String>,
        /// The job of this run.
        own: String,
    },
    /// It is of the same job, but cannot be written.
    NotWritable(String),
}

impl fmt::Display for Passed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Passed::Exists => out.write_str("already exists"),
            Passed::OtherJob { found: Some(found), own } => {
                write!(out, "belongs to job '{found}', and this run to job '{own}'")
            }
            Passed::OtherJob { found: None, own } => {
                write!(out, "already exists and does not belong to job '{own}'")
            }
            Passed::NotWritable(error) => {
                write!(out, "belongs to the same job but cannot be written ({error})")
            }
        }
    }
}

/// Whether a run may join the recording of another one: its job has a name, and has several runs. A name that the user gives says both. A
/// launcher's name alone does not: in an interactive job of Slurm many programs run, one after the other.
#[must_use]
pub fn may_join(identity: &RankIdentity, is_named: bool) -> bool {
    let is_one_of_many = identity.rank.is_some() && identity.world_size.is_some_and(|size| size > 1);
    identity.job.is_some()
        && (is_named || is_one_of_many || identity.attempt.is_some_and(|attempt| attempt > 0))
}

/// Makes the folder `wanted` with this manifest, or joins it if it is a recording of the same job. Takes `NAME-2.vram`, `NAME-3.vram`, ...
/// where the name is taken by something else.
pub fn claim(wanted: &Path, manifest: &RunManifest, is_named: bool) -> io::Result<Claimed> {
    let own = manifest.identity.run.as_deref().and_then(|name| name.parse::<ProcessId>().ok());
    let job = manifest.identity.job.as_deref().filter(|_| may_join(&manifest.identity, is_named));
    let (Some(job), Some(own)) = (job, own) else {
        let created = create(wanted)?;
        let place = RunPlace::first(&created.path);
        if let Err(error) = manifest.write_at(&place) {
            // A folder without a manifest is useless.
            let _ = std::fs::remove_dir(&created.path);
            return Err(error);
        }
        return Ok(Claimed { place, passed: created.is_renamed.then_some(Passed::Exists) });
    };
    let mut passed = None;
    for (path, _) in candidates(wanted)? {
        if make_whole(&path, manifest, &own)? {
            return Ok(Claimed { place: RunPlace::first(&path), passed });
        }
        let why = match job_of(&path) {
            Some(found) if found.as_deref() == Some(job) => {
                let place = RunPlace { folder: path, joined: Some(own.clone()) };
                match manifest.write_at(&place) {
                    Ok(()) => return Ok(Claimed { place, passed }),
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                        Passed::NotWritable(error.to_string())
                    }
                    Err(error) => return Err(error),
                }
            }
            Some(found) => Passed::OtherJob { found, own: job.to_owned() },
            None => Passed::Exists,
        };
        passed.get_or_insert(why);
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Makes a recording that is complete from the moment at which it can be seen. False where the name is taken.
fn make_whole(path: &Path, manifest: &RunManifest, own: &ProcessId) -> io::Result<bool> {
    if path.symlink_metadata().is_ok() {
        return Ok(false);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let hidden = path.with_file_name(format!(".{name}.{own}"));
    std::fs::create_dir(&hidden)?;
    let place = RunPlace::first(&hidden);
    let made = manifest.write_at(&place).and_then(|()| std::fs::rename(&hidden, path));
    if let Err(error) = made {
        let _ = std::fs::remove_file(place.manifest());
        let _ = std::fs::remove_dir(&hidden);
        // Another run was faster. A network file system may say so with another error, or not see the new folder yet.
        let is_taken =
            matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty)
                || path.symlink_metadata().is_ok();
        return if is_taken { Ok(false) } else { Err(error) };
    }
    Ok(true)
}

/// The job of a recording, as its first readable manifest says. `None` where there is no manifest.
fn job_of(folder: &Path) -> Option<Option<String>> {
    let first = RunManifest::read_file(folder.join(RUN)).ok();
    let manifest = first.or_else(|| {
        // The first launcher takes its manifest away if it cannot start its command.
        let joined = parts(folder).ok()?.into_iter().filter(|(part, _)| *part == Part::Run);
        joined.into_iter().find_map(|(part, id)| RunManifest::read_file(folder.join(part.name(&id))).ok())
    })?;
    Some(manifest.identity.job)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;

    fn manifest(job: Option<&str>, pid: u32) -> RunManifest {
        let identity = RankIdentity {
            job: job.map(str::to_owned),
            run: Some(ProcessId::new("node", pid, 1).to_string()),
            ..RankIdentity::default()
        };
        let clock = json!({"realtime_ns": 1, "monotonic_ns": 1});
        let manifest = json!({
            "kind": "vramline-recording", "schema": 1, "vramline": "", "command": [], "cwd": "", "host": "node",
            "parent_pid": pid, "identity": identity, "environment": {}, "devices": [], "exit": null,
            "clocks": {"begin": clock, "end": null},
            "settings": {
                "trace": "auto", "trace_seconds": 60, "rate": 10.0, "step_peaks": false, "gpus": null, "growth": null,
                "limit_bytes": null, "allocator": null, "stand_in": "not-needed",
            },
        });
        serde_json::from_value(manifest).unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn many_launchers_of_two_jobs_at_once() {
        let scratch = tempfile::tempdir().unwrap();
        let wanted = scratch.path().join("above/job.vram");
        let places: Vec<(u32, PathBuf)> = std::thread::scope(|threads| {
            let start = |pid: u32| {
                let wanted = &wanted;
                threads.spawn(move || {
                    let job = if pid.is_multiple_of(2) { "even" } else { "odd" };
                    let claimed = claim(wanted, &manifest(Some(job), pid), true).unwrap();
                    assert!(claimed.place.manifest().exists());
                    (pid, claimed.place.folder)
                })
            };
            let all: Vec<_> = (1..=24).map(start).collect();
            all.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(names(wanted.parent().unwrap()), ["job-2.vram", "job.vram"]);
        for parity in 0..2 {
            let mut folders: Vec<&PathBuf> =
                places.iter().filter(|(pid, _)| pid % 2 == parity).map(|(_, folder)| folder).collect();
            folders.dedup();
            assert_eq!(folders.len(), 1, "{places:?}");
            assert_eq!(names(folders[0]).len(), 12);
            assert_eq!(RunManifest::read_all(folders[0]).len(), 12);
        }
    }

    #[test]
    fn without_a_name_nobody_joins() {
        let scratch = tempfile::tempdir().unwrap();
        let wanted = scratch.path().join("job.vram");
        let claimed = |job: Option<&str>, pid: u32, is_named: bool| {
            claim(&wanted, &manifest(job, pid), is_named).unwrap()
        };
        assert_eq!(claimed(None, 1, false).passed, None);
        let second = claimed(None, 2, false);
        assert_eq!(second.passed, Some(Passed::Exists));
        assert_eq!(second.place.folder, scratch.path().join("job-2.vram"));
        // A launcher's name of a job with one process says nothing, that of the user does.
        assert_eq!(claimed(Some("77"), 3, false).place.folder, scratch.path().join("job-3.vram"));
        let named = claimed(Some("77"), 4, true);
        assert_eq!(named.place.folder, scratch.path().join("job-3.vram"));
        assert!(named.place.joined.is_some());
        assert_eq!(named.passed, Some(Passed::OtherJob { found: None, own: "77".to_owned() }));
    }

    #[test]
    fn a_recording_without_its_first_manifest_is_joined() {
        let scratch = tempfile::tempdir().unwrap();
        let wanted = scratch.path().join("job.vram");
        for pid in 1..=2 {
            claim(&wanted, &manifest(Some("mine"), pid), true).unwrap();
        }
        std::fs::remove_file(wanted.join(RUN)).unwrap();
        assert_eq!(claim(&wanted, &manifest(Some("mine"), 3), true).unwrap().passed, None);
        assert_eq!(names(&wanted), ["run-node-2-1.json", "run-node-3-1.json"]);
    }

    #[test]
    fn what_is_no_recording_stays_as_it_is() {
        let scratch = tempfile::tempdir().unwrap();
        let wanted = scratch.path().join("job.vram");
        std::fs::create_dir(&wanted).unwrap();
        std::fs::write(scratch.path().join("job-2.vram"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", scratch.path().join("job-3.vram")).unwrap();
        let claimed = claim(&wanted, &manifest(Some("mine"), 1), true).unwrap();
        assert_eq!(claimed.place.folder, scratch.path().join("job-4.vram"));
        assert_eq!(claimed.passed, Some(Passed::Exists));
        assert_eq!(names(&wanted), [""; 0]);
    }
}
