//! Jobs on one device as a document: what each needs and from where that is known, its limit, and how to start it.
//!
//! These structures are the JSON document (`docs/reference/json.md`); the terminal prints the same values.

use serde::Serialize;

use crate::analysis::pack::{NeedBasis, PackAnalysis, PackVerdict, PackedJob};
use crate::document::{Document, Unknowns};
use crate::event::Framework;
use crate::units::Bytes;
use crate::warning::{Unknown, Warning};

/// The whole document.
#[derive(Debug, Serialize, Document)]
pub struct PackView {
    /// `pack`.
    pub kind: &'static str,
    /// The answer in a sentence.
    pub headline: String,
    /// The answer in a word, with its figures.
    pub verdict: PackVerdictView,
    /// Whether all jobs fit; null where that rests on something assumed or only peaks are known.
    #[field(null = "it rests on something assumed, or fits only without headroom; the notes say what")]
    pub fits: Option<bool>,
    /// The device.
    pub device: PackDeviceView,
    /// `total_bytes` of all jobs, `reserved_bytes` and `taken_bytes`.
    pub sum_bytes: Bytes,
    /// The same with `minimum_bytes` instead of limits and without what is assumed.
    pub least_bytes: Bytes,
    /// `device.total_bytes` less `sum_bytes`; negative where it is too little.
    pub left_bytes: i64,
    /// The jobs.
    #[field(each)]
    pub jobs: Vec<PackJobView>,
    /// What to mind when they are started.
    pub advice: Vec<String>,
    /// What the reader should know.
    pub warnings: Vec<Warning>,
    /// Each null with its reason.
    pub unknowns: Vec<Unknown>,
}

/// The device.
#[derive(Debug, Serialize, Document)]
pub struct PackDeviceView {
    /// Which device.
    #[field(title = "device")]
    pub name: String,
    /// Whether it is host memory: the jobs were recorded with TensorFlow's pool on the CPU, and nothing names a GPU. Then `outside_bytes` of a job is the program's own memory: Python, its libraries, and data outside the pool.
    #[field(title = "host memory")]
    pub is_host: bool,
    /// The device's memory.
    #[field(title = "all of it")]
    pub total_bytes: Bytes,
    /// What the driver keeps of it; 0 where nobody told, which a warning says.
    #[field(title = "kept by the driver")]
    pub reserved_bytes: Bytes,
    /// What others hold on it now, on this machine's device.
    #[field(title = "taken already")]
    pub taken_bytes: Bytes,
}

/// A job.
#[derive(Debug, Serialize, Document)]
pub struct PackJobView {
    /// As given, else the file's name.
    #[field(title = "job")]
    pub name: String,
    /// The recording, trace or plan.
    pub file: String,
    /// `tensorflow`, `jax` or `pytorch`.
    #[field(null = "the file does not tell")]
    pub framework: Option<Framework>,
    /// The batch of a plan.
    #[field(null = "a run says nothing of its batch")]
    pub batch: Option<u64>,
    /// The least that its pool needs.
    #[field(title = "needs")]
    pub minimum_bytes: Bytes,
    /// `replay` (least limit of an exact replay), `plan-minimum`, `plan-high` (a plan without a minimum), `peak` (only its peak is known).
    #[field(title = "known from")]
    pub basis: NeedBasis,
    /// The limit beyond the minimum: --headroom, and up to whole MiB.
    pub headroom_bytes: Bytes,
    /// The limit to set: `minimum_bytes` and `headroom_bytes`.
    pub limit_bytes: Bytes,
    /// What its process holds beside the pool (a context and libraries; in host memory the program's own): by its recording or plan, else --context.
    #[field(title = "beside its pool", null = "nothing tells it", switch = "--context 700MiB")]
    pub outside_bytes: Option<Bytes>,
    /// The same, or what is assumed where it is not known.
    #[field(title = "beside its pool")]
    pub outside_counted_bytes: Bytes,
    /// `limit_bytes` and `outside_counted_bytes`.
    #[field(title = "in all")]
    pub total_bytes: Bytes,
    /// Ways to start it with its limit; CMD stands for a command that is not known.
    #[field(title = "start")]
    pub launch: Vec<String>,
}

impl From<PackAnalysis> for PackView {
    fn from(pack: PackAnalysis) -> PackView {
        let mut document = PackView {
            kind: "pack",
            verdict: PackVerdictView {
                word: pack.verdict,
                sum_bytes: pack.sum,
                least_bytes: pack.least,
                total_bytes: pack.room.total,
            },
            headline: pack.headline,
            fits: pack.fits,
            device: PackDeviceView {
                name: pack.device,
                is_host: pack.is_host,
                total_bytes: pack.room.total,
                reserved_bytes: pack.room.reserved,
                taken_bytes: pack.room.taken,
            },
            sum_bytes: pack.sum,
            least_bytes: pack.least,
            left_bytes: pack.left,
            jobs: pack.jobs.into_iter().map(PackJobView::from).collect(),
            advice: pack.advice,
            warnings: pack.warnings,
            unknowns: Vec::new(),
        };
        document.unknowns = Unknowns::of(&document);
        document
    }
}

/// The answer in a word, with its figures.
#[derive(Debug, Serialize, Document)]
pub struct PackVerdictView {
    /// `fits`, `does-not-fit`, `probably-fits` or `not-certain`.
    #[field(title = "verdict")]
    pub word: PackVerdict,
    /// What all jobs take with their limits.
    pub sum_bytes: Bytes,
    /// What they need at least.
    pub least_bytes: Bytes,
    /// The device's memory.
    pub total_bytes: Bytes,
}

impl From<PackedJob> for PackJobView {
    fn from(job: PackedJob) -> PackJobView {
        PackJobView {
            name: job.name,
            file: job.file,
            framework: job.framework,
            batch: job.batch,
            minimum_bytes: job.need.minimum,
            basis: job.basis,
            headroom_bytes: job.share.headroom,
            limit_bytes: job.share.limit,
            outside_bytes: job.need.outside,
            outside_counted_bytes: job.share.outside,
            total_bytes: job.share.total,
            launch: job.launch,
        }
    }
}
