//! Jobs on one device as a document: what each needs, how that is known, its limit, and how to start it.
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
    /// The answer as a sentence.
    pub headline: String,
    /// The answer as a word, with its figures.
    pub verdict: PackVerdictView,
    /// Whether all jobs fit; null if that depends on an assumption, or if only peaks are known.
    #[field(null = "it depends on an assumption, or the jobs fit only without headroom; see the warnings")]
    pub fits: Option<bool>,
    /// The device.
    pub device: PackDeviceView,
    /// The sum of `total_bytes` of all jobs, `reserved_bytes` and `taken_bytes`.
    pub sum_bytes: Bytes,
    /// The same with `minimum_bytes` instead of limits, and without assumptions.
    pub least_bytes: Bytes,
    /// `device.total_bytes` minus `sum_bytes`; negative if the jobs do not fit.
    pub left_bytes: i64,
    /// The jobs.
    #[field(each)]
    pub jobs: Vec<PackJobView>,
    /// Advice for starting the jobs.
    pub advice: Vec<String>,
    /// Notes for the reader.
    pub warnings: Vec<Warning>,
    /// The reason for each null.
    pub unknowns: Vec<Unknown>,
}

/// The device.
#[derive(Debug, Serialize, Document)]
pub struct PackDeviceView {
    /// Its name.
    #[field(title = "device")]
    pub name: String,
    /// Whether it is host memory: the jobs were recorded with TensorFlow's pool on the CPU, and no GPU is given. `outside_bytes` of a job is then the program's own memory: Python, its libraries and data outside the pool.
    #[field(title = "host memory")]
    pub is_host: bool,
    /// Total memory of the device.
    #[field(title = "total")]
    pub total_bytes: Bytes,
    /// Memory that the driver reserves; 0 with a warning if it is unknown.
    #[field(title = "driver reserved")]
    pub reserved_bytes: Bytes,
    /// Memory that other processes hold on this machine's device now.
    #[field(title = "other processes")]
    pub taken_bytes: Bytes,
}

/// A job.
#[derive(Debug, Serialize, Document)]
pub struct PackJobView {
    /// The given name, or the name of the file.
    #[field(title = "job")]
    pub name: String,
    /// The recording, trace or plan.
    pub file: String,
    /// `tensorflow`, `jax` or `pytorch`.
    #[field(null = "the file does not show it")]
    pub framework: Option<Framework>,
    /// The batch size of a plan.
    #[field(null = "a recording does not contain its batch size")]
    pub batch: Option<u64>,
    /// The minimum that its pool needs.
    #[field(title = "needs")]
    pub minimum_bytes: Bytes,
    /// How that is known: `replay` (smallest limit of an exact replay), `plan-minimum`, `plan-high` (a plan without a minimum), `peak` (only its peak is known).
    #[field(title = "known from")]
    pub basis: NeedBasis,
    /// The limit minus the minimum: --headroom, rounded up to whole MiB.
    pub headroom_bytes: Bytes,
    /// The limit to set: `minimum_bytes` + `headroom_bytes`.
    pub limit_bytes: Bytes,
    /// Memory of its process outside the pool (context and libraries; in host memory the program's own), from its recording or plan, or from --context.
    #[field(title = "outside the pool", null = "it was not recorded", switch = "--context 700MiB")]
    pub outside_bytes: Option<Bytes>,
    /// The same, or an assumption if it is unknown.
    #[field(title = "outside the pool")]
    pub outside_counted_bytes: Bytes,
    /// `limit_bytes` + `outside_counted_bytes`.
    #[field(title = "total")]
    pub total_bytes: Bytes,
    /// Commands that start it with its limit; CMD stands for an unknown command.
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

/// The answer as a word, with its figures.
#[derive(Debug, Serialize, Document)]
pub struct PackVerdictView {
    /// `fits`, `does-not-fit`, `probably-fits` or `not-certain`.
    #[field(title = "verdict")]
    pub word: PackVerdict,
    /// The sum of all jobs with their limits.
    pub sum_bytes: Bytes,
    /// Lower bound of what they need.
    pub least_bytes: Bytes,
    /// Total memory of the device.
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
