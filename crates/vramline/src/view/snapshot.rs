//! The JSON document of `vramline snapshot`.

use serde::Serialize;

use crate::analysis::asked::{AskedProcess, AskedState, SnapshotAnalysis};
use crate::document::{Document, Unknowns};
use crate::recording::request::AnswerCounters;
use crate::units::Bytes;
use crate::warning::{Unknown, Warning};

/// The answer of `vramline snapshot`: what each process of the job did.
#[derive(Debug, Serialize, Document)]
pub struct SnapshotReport {
    /// `snapshot`.
    pub kind: &'static str,
    /// The answer as a sentence.
    pub headline: String,
    /// The recording.
    pub path: String,
    /// How long the answers took, in seconds.
    pub seconds: f64,
    /// Number of processes that answered.
    pub answered: usize,
    /// Number of running processes, which were asked.
    pub asked: usize,
    /// The processes of the recording.
    #[field(each)]
    pub processes: Vec<AskedView>,
    /// Notes for the reader.
    pub warnings: Vec<Warning>,
    /// The reason for each null.
    pub unknowns: Vec<Unknown>,
}

/// A process of the job.
#[derive(Debug, Serialize, Document)]
pub struct AskedView {
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u32,
    /// The process' rank in a distributed job.
    #[field(null = "the process has no rank")]
    pub rank: Option<u64>,
    /// `taken`: a snapshot is in the recording; `opened`: a trace of the next steps has begun; `counters`: only counters could be read; `failed`: the snapshot failed; `no-answer`: no answer in time; `ended`: the process had ended.
    #[field(title = "answer")]
    pub state: AskedState,
    /// The framework that answered.
    #[field(null = "no framework answered")]
    pub framework: Option<String>,
    /// The number of the snapshot or trace in the recording.
    #[field(null = "there is no snapshot")]
    pub window: Option<u64>,
    /// Why there is no snapshot.
    #[field(null = "there is a snapshot, or the process did not answer")]
    pub reason: Option<String>,
    /// How long it took, in seconds.
    #[field(null = "the process did not answer")]
    pub seconds: Option<f64>,
    /// The framework's counters of each device.
    pub devices: Vec<AskedDeviceView>,
}

/// The counters of a device.
#[derive(Debug, Serialize, Document)]
pub struct AskedDeviceView {
    /// The device.
    pub device: String,
    /// Bytes in use.
    #[field(title = "in use", null = "the framework does not report it")]
    pub current_bytes: Option<Bytes>,
    /// Peak bytes in use since the process started.
    #[field(title = "peak", null = "the framework does not report it")]
    pub peak_bytes: Option<Bytes>,
    /// Bytes that the framework's pool has reserved.
    #[field(title = "reserved", null = "the framework does not report it")]
    pub pool_bytes: Option<Bytes>,
}

impl From<&SnapshotAnalysis> for SnapshotReport {
    fn from(analysis: &SnapshotAnalysis) -> SnapshotReport {
        let (answered, asked) = analysis.answered();
        let mut document = SnapshotReport {
            kind: "snapshot",
            headline: analysis.headline(),
            path: analysis.path.display().to_string(),
            seconds: analysis.seconds,
            answered,
            asked,
            processes: analysis.processes.iter().map(AskedView::from).collect(),
            warnings: Vec::new(),
            unknowns: Vec::new(),
        };
        document.unknowns = Unknowns::of(&document);
        document
    }
}

impl From<&AskedProcess> for AskedView {
    fn from(process: &AskedProcess) -> AskedView {
        AskedView {
            host: process.id.host().to_owned(),
            pid: process.id.pid(),
            rank: process.rank,
            state: process.state,
            framework: process.framework.clone(),
            window: process.number,
            reason: process.reason.clone(),
            seconds: process.seconds,
            devices: process.counters.iter().map(AskedDeviceView::from).collect(),
        }
    }
}

impl From<&AnswerCounters> for AskedDeviceView {
    fn from(read: &AnswerCounters) -> AskedDeviceView {
        AskedDeviceView {
            device: read.device.clone(),
            current_bytes: read.current.map(Bytes),
            peak_bytes: read.peak.map(Bytes),
            pool_bytes: read.pool.map(Bytes),
        }
    }
}
