//! Where the files of a running job are, if its runs write to local folders first and copy them at their end. Until then the folder of the
//! recording has only their manifests.

use std::path::{Path, PathBuf};

use super::manifest::RunManifest;

/// Where the files of runs are that write to a local folder first and have not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalParts {
    /// Folders of this machine.
    pub here: Vec<PathBuf>,
    /// Hosts, and their folders.
    pub elsewhere: Vec<(String, PathBuf)>,
}

impl LocalParts {
    /// Those of a recording. A local folder is the right one if the same run has its manifest in it.
    #[must_use]
    pub fn of(recording: &Path) -> LocalParts {
        let mut parts = LocalParts::default();
        for run in RunManifest::read_all(recording).into_iter().filter(|run| run.exit.is_none()) {
            let Some(local) = run.local.map(PathBuf::from) else { continue };
            let is_it =
                |found: &RunManifest| found.identity.run == run.identity.run && found.host == run.host;
            match RunManifest::read(&local) {
                Ok(found) if is_it(&found) => parts.here.push(local),
                _ => parts.elsewhere.push((run.host, local)),
            }
        }
        parts
    }
}
