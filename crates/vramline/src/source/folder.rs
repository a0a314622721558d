//! Finds the traces in a folder: one run's hosts, or the newest run of a log directory.
//!
//! Profilers write `<logdir>/plugins/profile/<run>/<host>.xplane.pb`, recordings of PyTorch hold `<host>.snapshot.pickle`. The search is
//! bounded in depth and count, because a log directory may hold anything; other pickles in it are not looked at.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

const DEEPEST: usize = 6;
const MOST_ENTRIES: usize = 100_000;

/// The traces of a folder.
#[derive(Debug, Default)]
pub(crate) struct FolderTraces {
    /// One file for each host of the chosen run, by name.
    pub(crate) hosts: Vec<PathBuf>,
    /// The folders of other runs, newest first.
    pub(crate) other_runs: Vec<PathBuf>,
}

pub(crate) fn find(folder: &Path) -> io::Result<FolderTraces> {
    let mut runs: Vec<(SystemTime, PathBuf, Vec<PathBuf>)> = Vec::new();
    let mut left = MOST_ENTRIES;
    let mut ahead = vec![(folder.to_owned(), 0)];
    while let Some((here, depth)) = ahead.pop() {
        let mut hosts = Vec::new();
        let mut newest = SystemTime::UNIX_EPOCH;
        let entries = match std::fs::read_dir(&here) {
            Ok(entries) => entries,
            // A subfolder without read permission is skipped: it is not the requested folder.
            Err(_) if depth > 0 => continue,
            Err(error) => return Err(error),
        };
        for entry in entries.flatten() {
            if left == 0 {
                break;
            }
            left -= 1;
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            if kind.is_dir() && depth < DEEPEST {
                ahead.push((path, depth + 1));
            } else if !kind.is_dir() && is_trace(&path) {
                let written =
                    entry.metadata().and_then(|meta| meta.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
                newest = newest.max(written);
                hosts.push(path);
            }
        }
        if !hosts.is_empty() {
            hosts.sort();
            runs.push((newest, here, hosts));
        }
    }
    // Runs are named by their time; the name decides between runs copied in one go.
    runs.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let Some((_, _, hosts)) = runs.pop() else { return Ok(FolderTraces::default()) };
    Ok(FolderTraces { hosts, other_runs: runs.into_iter().rev().map(|(_, folder, _)| folder).collect() })
}

fn is_trace(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = name.trim_end_matches(".gz");
    name.ends_with(".xplane.pb") || name.ends_with(".snapshot.pickle")
}

/// XLA's dumps of compiled programs in a folder, not below it, in the order in which they were compiled:
/// `module_0072.NAME.cpu_after_optimizations.hlo.pb`.
pub(crate) fn dumps(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found: BTreeMap<(u64, String), PathBuf> = BTreeMap::new();
    for entry in std::fs::read_dir(folder)?.flatten().take(MOST_ENTRIES) {
        let path = entry.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_dump = [".after_optimizations.hlo.pb", "_after_optimizations.hlo.pb"]
            .iter()
            .any(|end| name.trim_end_matches(".gz").ends_with(end));
        if is_dump {
            let digits = name.strip_prefix("module_").and_then(|rest| rest.split('.').next());
            let number = digits.and_then(|digits| digits.parse().ok()).unwrap_or(u64::MAX);
            found.insert((number, name), path);
        }
    }
    Ok(found.into_values().collect())
}

/// The host, as the profiler puts it into the file's name.
pub(crate) fn host_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.trim_end_matches(".gz")
        .trim_end_matches(".xplane.pb")
        .trim_end_matches(".snapshot.pickle")
        .to_owned()
}
