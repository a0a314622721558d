//! A recording that is written to a local folder first and copied when the job has ended.
//!
//! Every file of a recording has one writer, and where the file system does not promise more, messages are appended with `write(2)`. NFS,
//! Lustre, GPFS and other cluster file systems keep such files whole. Others do not promise that a file which stays open for hours can be
//! read, or that what was written survives: object stores behind FUSE upload a file when it is closed, `sshfs` replaces a file only if the
//! server supports that, and SMB gives up writes when the server does not answer.

use std::fs;
use std::path::PathBuf;

use vramline::recording::folder::RunPlace;
use vramline::recording::gather::hand_over;
use vramline::recording::manifest::RunManifest;
use vramline::source::procfs;

use crate::launch::say;
use crate::launch::values::LocalFirst;

/// Types of file systems on which a recording is not written while the job runs. Each kind of FUSE has a name of its own behind a dot.
const UNSAFE: [&str; 7] = ["fuse", "cifs", "smb3", "smbfs", "9p", "afs", "vboxsf"];

/// A local folder for a run.
pub(crate) struct LocalFolder {
    /// The recording in the local folder.
    pub(crate) place: RunPlace,
    above: PathBuf,
}

impl LocalFolder {
    /// Creates the folder if the recording needs one. An error costs a line, and the recording is written to its place at once.
    pub(crate) fn begin(
        wanted: LocalFirst,
        place: &RunPlace,
        manifest: &mut RunManifest,
    ) -> Option<LocalFolder> {
        let kind = procfs::file_system(&place.folder);
        let is_needed = match wanted {
            LocalFirst::On => true,
            LocalFirst::Off => false,
            LocalFirst::Auto => kind.as_deref().is_some_and(is_unsafe),
        };
        if !is_needed {
            return None;
        }
        match LocalFolder::create(place, manifest) {
            Ok(local) => {
                let on = kind.map_or(String::new(), |kind| format!(" ({kind})"));
                say(format_args!(
                    "recording to '{}' first; it is copied to '{}'{on} when the job has ended",
                    local.place.folder.display(),
                    place.folder.display()
                ));
                Some(local)
            }
            Err(error) => {
                manifest.local = None;
                say(format_args!("cannot record to a local folder first: {error}"));
                None
            }
        }
    }

    fn create(place: &RunPlace, manifest: &mut RunManifest) -> std::io::Result<LocalFolder> {
        let own = manifest.identity.run.clone().unwrap_or_else(|| std::process::id().to_string());
        let above = std::env::temp_dir().join(format!("vramline-{own}"));
        fs::create_dir(&above)?;
        let folder = above.join(place.folder.file_name().unwrap_or("run.vram".as_ref()));
        let local = LocalFolder { place: RunPlace::first(&folder), above };
        manifest.local = Some(folder.to_string_lossy().into_owned());
        let made = fs::create_dir(&folder)
            .and_then(|()| manifest.write_at(&local.place))
            .and_then(|()| manifest.write_at(place));
        made.inspect_err(|_| local.remove())?;
        Ok(local)
    }

    /// Copies the files to their place. Returns where the recording is then: if it cannot be copied, it stays where it is.
    pub(crate) fn finish(self, place: RunPlace, manifest: &mut RunManifest) -> RunPlace {
        match hand_over(&self.place.folder, &place) {
            Ok(_) => {
                manifest.local = None;
                self.remove();
                place
            }
            Err(error) => {
                say(format_args!(
                    "{error}; the recording stays in '{}' (`vramline gather` joins it with those of other hosts)",
                    self.place.folder.display()
                ));
                // Those who read the place learn how the job ended, and where its files are.
                let _ = manifest.write_at(&place);
                self.place
            }
        }
    }

    /// Removes the folder of a job that could not be started, or that was copied.
    pub(crate) fn remove(&self) {
        let _ = fs::remove_dir_all(&self.place.folder);
        let _ = fs::remove_dir(&self.above);
    }
}

fn is_unsafe(kind: &str) -> bool {
    UNSAFE.contains(&kind.split('.').next().unwrap_or(kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_some_file_systems_need_a_copy() {
        for kind in ["fuse", "fuse.sshfs", "fuse.gcsfuse", "cifs", "smb3", "9p"] {
            assert!(is_unsafe(kind), "{kind}");
        }
        for kind in ["ext4", "xfs", "tmpfs", "overlay", "nfs", "nfs4", "lustre", "gpfs", "ceph", "fuseblk"] {
            assert!(!is_unsafe(kind), "{kind}");
        }
    }
}
