//! A request for a snapshot, and the answers to it: files in the recording of a job that runs.
//!
//! ```text
//! NAME.vram/
//!   request.json       by `vramline snapshot`: the number of the request and its time
//!   answer-ID.json     by each process: what it did for the last request
//! ```
//!
//! No signal is sent: the job may have handlers of its own. The sampling thread of each process looks at the request file.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::folder::{ProcessId, open_plain};
use super::rows::Moment;

const REQUEST: &str = "request.json";
const LARGEST_ANSWER: u64 = 1 << 20;

/// Tells whether a new request lies in a recording. Looking costs one system call.
#[derive(Debug)]
pub struct RequestWatch {
    path: PathBuf,
    seen: Option<(u64, i64, i64)>,
}

impl RequestWatch {
    /// Watches the recording in a folder. A request that lies there already is an old one.
    #[must_use]
    pub fn new(folder: &Path) -> RequestWatch {
        let path = folder.join(REQUEST);
        let seen = stamp(&path);
        RequestWatch { path, seen }
    }

    /// Whether a request came since the last look.
    pub fn has_new(&mut self) -> bool {
        let now = stamp(&self.path);
        let is_new = now.is_some() && now != self.seen;
        self.seen = now;
        is_new
    }
}

fn stamp(path: &Path) -> Option<(u64, i64, i64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.ino(), found.mtime(), found.mtime_nsec()))
}

/// A request for a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotRequest {
    /// `vramline-request`.
    kind: String,
    /// Tells it from other requests.
    pub request: String,
    /// When it was made, in nanoseconds since 1970.
    pub time_ns: i64,
}

impl SnapshotRequest {
    /// Asks the processes of a recording for a snapshot.
    pub fn write(folder: &Path) -> io::Result<SnapshotRequest> {
        let now = Moment::now();
        let request = SnapshotRequest {
            kind: "vramline-request".to_owned(),
            request: format!("{}-{}", std::process::id(), now.monotonic),
            time_ns: now.wall,
        };
        // Written beside and moved into place: nobody reads half of it.
        let part = folder.join(format!(".{REQUEST}.{}", std::process::id()));
        let text = serde_json::to_string(&request)?;
        let done =
            std::fs::write(&part, text + "\n").and_then(|()| std::fs::rename(&part, folder.join(REQUEST)));
        if done.is_err() {
            let _ = std::fs::remove_file(&part);
        }
        done.map(|()| request)
    }
}

/// What a process did for a request.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct SnapshotAnswer {
    /// The request that it answers.
    pub request: String,
    /// The rank of the process in a distributed job.
    pub rank: Option<u64>,
    /// What each framework did.
    pub frameworks: BTreeMap<String, FrameworkAnswer>,
    /// How long that took.
    pub seconds: Option<f64>,
    /// The counters of each device.
    pub counters: Vec<AnswerCounters>,
}

/// What a framework did for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FrameworkAnswer {
    /// `taken`, `opened`, `counters` or `failed`.
    pub state: String,
    /// The number of the snapshot or trace.
    pub number: Option<u64>,
    /// Why there is no snapshot.
    pub reason: Option<String>,
}

/// The counters of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AnswerCounters {
    /// The device.
    pub device: String,
    /// Bytes in use.
    pub current: Option<u64>,
    /// The most in use so far.
    pub peak: Option<u64>,
    /// Bytes that the framework's pool holds.
    pub pool: Option<u64>,
    /// Why a figure is missing.
    pub reason: Option<String>,
}

impl SnapshotAnswer {
    /// The answer of a process to a request; `None` while there is none.
    #[must_use]
    pub fn of(folder: &Path, process: &ProcessId, request: &SnapshotRequest) -> Option<SnapshotAnswer> {
        let mut text = Vec::new();
        let file = open_plain(&folder.join(format!("answer-{process}.json"))).ok()?;
        file.take(LARGEST_ANSWER).read_to_end(&mut text).ok()?;
        let answer: SnapshotAnswer = serde_json::from_slice(&text).ok()?;
        (answer.request == request.request).then_some(answer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_noticed_once_and_an_old_one_never() {
        let folder = tempfile::tempdir().unwrap();
        let mut early = RequestWatch::new(folder.path());
        assert!(!early.has_new());
        let first = SnapshotRequest::write(folder.path()).unwrap();
        assert_eq!((early.has_new(), early.has_new()), (true, false));
        assert!(!RequestWatch::new(folder.path()).has_new());
        let second = SnapshotRequest::write(folder.path()).unwrap();
        assert_ne!(first.request, second.request);
        assert!(early.has_new());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_an_answer_to_this_request_counts() {
        let folder = tempfile::tempdir().unwrap();
        let request = SnapshotRequest::write(folder.path()).unwrap();
        let process = ProcessId::new("host", 7, 8);
        let answered = |text: &str| {
            std::fs::write(folder.path().join("answer-host-7-8.json"), text).unwrap();
            SnapshotAnswer::of(folder.path(), &process, &request)
        };
        assert_eq!(SnapshotAnswer::of(folder.path(), &process, &request), None);
        assert_eq!(answered("{\"request\": \"another\"}"), None);
        assert_eq!(answered("{\"request\""), None);
        let text = format!(
            "{{\"request\": \"{}\", \"frameworks\": {{\"torch\": {{\"state\": \"taken\", \"number\": 2}}}},
              \"counters\": [{{\"device\": \"GPU:0\", \"current\": 5, \"peak\": null}}], \"more\": []}}",
            request.request
        );
        let answer = answered(&text).unwrap();
        assert_eq!(answer.frameworks["torch"].number, Some(2));
        assert_eq!((answer.counters[0].current, answer.counters[0].peak), (Some(5), None));
    }
}
