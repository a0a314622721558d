//! How several launchers write one recording without a lock.
//!
//! The first one makes the folder, complete with its manifest, under a name of its own and then renames it: whoever sees the folder sees whose
//! job it is. Each further launcher of that job finds the name taken, reads one manifest, and writes files of its own beside it. No file is
//! written by two processes, so nothing is unsafe on a network file system.

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
        // Another run was faster. How that is reported differs between file systems.
        return if path.symlink_metadata().is_ok() { Ok(false) } else { Err(error) };
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
