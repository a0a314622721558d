//! Jobs on one device, for display: what each needs and from where that is known, its limit, and how to start it.
//!
//! These structures are the JSON document (`docs/json.md`); the terminal prints the same values.

use serde::{Deserialize, Serialize};

use super::report::{self, Report};
use super::{plan, replay};
use crate::Reading;
use crate::plan::pack::{Need, Room, Share, millionths, pack};
use crate::units::Bytes;
use crate::warning::{Unknown, Warning, Warnings};

/// What is assumed beside a pool where nothing tells: a CUDA context with the libraries that frameworks load, generously.
pub const ASSUMED: Bytes = Bytes(1 << 30);

/// What a job's needs are known from.
#[derive(Debug)]
pub enum Known {
    /// A recording, or a trace.
    Run(Box<Reading>),
    /// A document of `vramline plan --json`, and the batch that is meant.
    Plan(PlanRead, Option<u64>),
}

/// A job as it was given.
#[derive(Debug)]
pub struct Job {
    /// What to call it.
    pub name: String,
    /// Where it was read from.
    pub file: String,
    /// What that says.
    pub known: Known,
}

/// The part of a plan that matters here.
#[derive(Debug, Deserialize)]
#[expect(missing_docs, reason = "as in the plan's own document")]
pub struct PlanRead {
    pub kind: String,
    pub framework: Option<String>,
    pub certain: bool,
    #[serde(default)]
    pub outside_bytes: Option<Bytes>,
    pub predictions: Vec<PredictionRead>,
}

/// A prediction of a plan.
#[derive(Debug, Deserialize)]
#[expect(missing_docs, reason = "as in the plan's own document")]
pub struct PredictionRead {
    pub batch: u64,
    pub high_bytes: Bytes,
    pub minimum_bytes: Option<Bytes>,
    /// Where it is not told, what is said of the whole plan counts.
    #[serde(default)]
    pub certain: Option<bool>,
}

/// What a packing is asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The device's memory; a recording on a device may tell it too.
    pub memory: Option<Bytes>,
    /// What the driver keeps of it.
    pub reserved: Option<Bytes>,
    /// What others hold on it.
    pub taken: Option<Bytes>,
    /// What every job holds beside its pool, where its recording or plan does not tell.
    pub context: Option<Bytes>,
    /// Percent of a pool's minimum that are added to it.
    pub headroom: u64,
    /// What the device is called.
    pub device: String,
}

/// The whole document.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct PackView {
    pub kind: &'static str,
    pub verdict: String,
    pub fits: Option<bool>,
    pub device: DeviceView,
    pub sum_bytes: Bytes,
    pub least_bytes: Bytes,
    pub left_bytes: i64,
    pub jobs: Vec<JobView>,
    pub advice: Vec<String>,
    pub warnings: Vec<Warning>,
    pub unknowns: Vec<Unknown>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct DeviceView {
    pub name: String,
    pub total_bytes: Bytes,
    pub reserved_bytes: Bytes,
    pub taken_bytes: Bytes,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct JobView {
    pub name: String,
    pub file: String,
    pub framework: Option<String>,
    pub batch: Option<u64>,
    pub minimum_bytes: Bytes,
    pub basis: &'static str,
    pub headroom_bytes: Bytes,
    pub limit_bytes: Bytes,
    pub outside_bytes: Option<Bytes>,
    pub outside_counted_bytes: Bytes,
    pub total_bytes: Bytes,
    pub launch: Vec<String>,
}

/// Why jobs cannot be packed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotPacked {
    /// A run without a pool.
    #[error("'{file}' tells of no pool that held anything")]
    NoPool {
        /// The file.
        file: String,
    },
    /// A document of another kind.
    #[error("'{file}' is a document of kind '{kind}', expected a plan")]
    NotAPlan {
        /// The file.
        file: String,
        /// Its kind.
        kind: String,
    },
    /// A plan without the batch.
    #[error("'{file}' predicts no batch of {batch}, only {there}")]
    NoBatch {
        /// The file.
        file: String,
        /// What was asked for.
        batch: String,
        /// What it has.
        there: String,
    },
    /// The memory of the device is not known.
    #[error("the memory of the device is not known")]
    NoDevice,
}

impl NotPacked {
    /// What to do now.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            NotPacked::NoPool { .. } => {
                "record the job with `vramline run -- ...`; `vramline report` says what is in it"
            }
            NotPacked::NotAPlan { .. } => "make one with `vramline plan --json ... > plan.json`",
            NotPacked::NoBatch { .. } => {
                "ask the plan for it (--batch N), or write PATH@N with a batch that it has"
            }
            NotPacked::NoDevice => "give it, such as --device-memory 80GiB",
        }
    }
}

/// What one job needs, and what is known of it besides.
struct Found {
    need: Need,
    basis: &'static str,
    framework: Option<String>,
    batch: Option<u64>,
    /// As a shell takes it.
    command: String,
    /// The device's total and what the driver keeps, where the recording tells.
    device: Option<(Bytes, Bytes)>,
}

/// Adds jobs up on a device.
pub fn view(jobs: &[Job], wanted: &Wanted) -> Result<PackView, NotPacked> {
    let found = jobs.iter().map(|job| found(job, wanted)).collect::<Result<Vec<Found>, NotPacked>>()?;
    let recorded = found.iter().find_map(|found| found.device);
    let total = wanted.memory.or(recorded.map(|(total, _)| total)).ok_or(NotPacked::NoDevice)?;
    // What was recorded on a device of another size says nothing of this one.
    let kept = recorded.filter(|(other, _)| *other == total).map(|(_, reserved)| reserved);
    let room = Room {
        total,
        reserved: wanted.reserved.or(kept).unwrap_or_default(),
        taken: wanted.taken.unwrap_or_default(),
    };
    let needs: Vec<Need> = found.iter().map(|found| found.need).collect();
    let packing = pack(&needs, room, wanted.headroom, ASSUMED);
    let mut unknowns = Vec::new();
    let mut warnings = Warnings::default();
    let mut views = Vec::new();
    for (at, ((job, found), share)) in jobs.iter().zip(&found).zip(&packing.shares).enumerate() {
        doubts(at, job, found, &mut warnings, &mut unknowns);
        views.push(JobView {
            name: job.name.clone(),
            file: job.file.clone(),
            framework: found.framework.clone(),
            batch: found.batch,
            minimum_bytes: found.need.minimum,
            basis: found.basis,
            headroom_bytes: share.headroom,
            limit_bytes: share.limit,
            outside_bytes: found.need.outside,
            outside_counted_bytes: share.outside,
            total_bytes: share.total,
            launch: launch(found, share, room),
        });
    }
    if wanted.reserved.or(kept).is_none() {
        let text = "what the driver keeps of the device is not known and not counted; the device's memory is taken as what programs get";
        warnings.add("no-reserve", text, "give it with --reserved, or the memory that programs get");
    }
    if packing.fits.is_none() {
        let reason =
            "it rests on something assumed, or fits only without headroom; the notes say what".to_owned();
        unknowns.push(Unknown { path: "fits".to_owned(), reason, switch: None });
    }
    let name = if wanted.device.is_empty() { "device".to_owned() } else { wanted.device.clone() };
    let left_bytes = signed(room.total).saturating_sub(signed(packing.sum));
    let mut shown = PackView {
        kind: "pack",
        verdict: String::new(),
        fits: packing.fits,
        device: DeviceView {
            name,
            total_bytes: room.total,
            reserved_bytes: room.reserved,
            taken_bytes: room.taken,
        },
        sum_bytes: packing.sum,
        least_bytes: packing.least,
        left_bytes,
        advice: advice(&views),
        jobs: views,
        warnings: warnings.into_vec(),
        unknowns,
    };
    shown.verdict = verdict(&shown);
    Ok(shown)
}

fn signed(bytes: Bytes) -> i64 {
    i64::try_from(bytes.0).unwrap_or(i64::MAX)
}

fn found(job: &Job, wanted: &Wanted) -> Result<Found, NotPacked> {
    match &job.known {
        Known::Run(reading) => of_run(job, reading, wanted),
        Known::Plan(plan, batch) => of_plan(job, plan, *batch, wanted),
    }
}

fn of_plan(job: &Job, plan: &PlanRead, batch: Option<u64>, wanted: &Wanted) -> Result<Found, NotPacked> {
    let file = job.file.clone();
    if plan.kind != "plan" {
        return Err(NotPacked::NotAPlan { file, kind: plan.kind.clone() });
    }
    let is_it = |each: &&PredictionRead| batch.is_none_or(|batch| each.batch == batch);
    let Some(prediction) = plan.predictions.iter().find(is_it) else {
        let there: Vec<String> = plan.predictions.iter().map(|each| each.batch.to_string()).collect();
        let there = if there.is_empty() { "nothing".to_owned() } else { there.join(", ") };
        let batch = batch.map_or("any size".to_owned(), |batch| batch.to_string());
        return Err(NotPacked::NoBatch { file, batch, there });
    };
    let (minimum, basis) = match prediction.minimum_bytes {
        Some(minimum) => (minimum, "plan-minimum"),
        None => (prediction.high_bytes, "plan-high"),
    };
    Ok(Found {
        need: Need {
            minimum,
            is_sure: prediction.certain.unwrap_or(plan.certain) && prediction.minimum_bytes.is_some(),
            outside: plan.outside_bytes.or(wanted.context),
        },
        basis,
        framework: plan.framework.clone(),
        batch: Some(prediction.batch),
        command: COMMAND.to_owned(),
        device: None,
    })
}

fn of_run(job: &Job, reading: &Reading, wanted: &Wanted) -> Result<Found, NotPacked> {
    let report = report::report(reading, &report::Wanted { top: Some(1), ..report::Wanted::default() });
    let peak = |pool: &report::PoolView| pool.lifetime_peak_bytes.max(pool.peak_bytes);
    let on_device = |pool: &&report::PoolView| pool.device.starts_with("GPU");
    let highest = report.pools.iter().filter(on_device).max_by_key(|pool| peak(pool));
    let pool = highest.or_else(|| report.pools.iter().max_by_key(|pool| peak(pool)));
    let Some((pool, peak)) = pool.and_then(|pool| Some((pool, peak(pool)?))) else {
        return Err(NotPacked::NoPool { file: job.file.clone() });
    };
    // The least limit is of the traced steps; a run that went higher afterwards needs at least that.
    let least =
        least_limit(reading, &pool.name).filter(|_| pool.peak_bytes.is_some_and(|traced| traced >= peak));
    let framework = report.source.framework.map(str::to_owned);
    Ok(Found {
        need: Need {
            minimum: least.unwrap_or(peak).max(peak),
            is_sure: least.is_some(),
            outside: outside(&report, &pool.device).or(wanted.context),
        },
        basis: if least.is_some() { "replay" } else { "peak" },
        framework,
        batch: None,
        command: command(&report),
        device: device(&report, &pool.device),
    })
}

/// The least limit with which the recorded order passes, where the replay is exact from the start.
fn least_limit(reading: &Reading, pool: &str) -> Option<Bytes> {
    let wanted =
        replay::Wanted { pool: Some(pool.to_owned()), find_limit: true, ..replay::Wanted::default() };
    let replayed = replay::replay(reading, &wanted).ok()?;
    let is_exact = replayed.pools.first().is_some_and(|pool| pool.exact && pool.from_start == Some(true));
    let found = replayed.what_if.iter().find(|answer| answer.fits == Some(true))?;
    found.limit_bytes.filter(|_| is_exact)
}

/// A line of a device's ledger, summed over the processes of the job; nothing where one is not known.
fn line(report: &Report, device: &str, word: &str) -> Option<i64> {
    let lines = report.ledger.iter().filter(|line| line.device == device && line.line == word);
    lines.map(|line| line.bytes).reduce(|sum, more| Some(sum?.saturating_add(more?)))?
}

/// What the job held beside its pools.
fn outside(report: &Report, device: &str) -> Option<Bytes> {
    let context = line(report, device, "context at start")?;
    let grown = line(report, device, "outside the pools").unwrap_or(0);
    let unexplained = line(report, device, "unexplained").unwrap_or(0).max(0);
    u64::try_from(context.saturating_add(grown).saturating_add(unexplained)).ok().map(Bytes)
}

fn device(report: &Report, device: &str) -> Option<(Bytes, Bytes)> {
    let of = |word: &str| line(report, device, word).and_then(|bytes| u64::try_from(bytes).ok()).map(Bytes);
    Some((of("device total")?, of("driver reserved")?))
}

/// What is not known of a job, said.
fn doubts(at: usize, job: &Job, found: &Found, warnings: &mut Warnings, unknowns: &mut Vec<Unknown>) {
    let name = &job.name;
    match found.basis {
        "peak" => warnings.add(
            "only-a-peak",
            format!("{name}: its pool needs at least its peak; how much more its order of requests takes is not known"),
            "record it with a trace of all that matters (vramline run --trace all), or plan it",
        ),
        "plan-high" => warnings.add(
            "no-minimum",
            format!("{name}: the plan found no limit that surely passes; its highest peak is taken"),
            "make the plan from more probes",
        ),
        _ if !found.need.is_sure => warnings.add(
            "uncertain-plan",
            format!("{name}: its plan is not certain"),
            "its own warnings say why",
        ),
        _ => {}
    }
    if found.need.outside.is_none() {
        warnings.add(
            "no-context",
            format!("{name}: what it holds beside its pool is not known; {ASSUMED} is assumed"),
            "give it with --context, or record the job on a device (vramline run)",
        );
        unknowns.push(Unknown {
            path: format!("jobs[{at}].outside_bytes"),
            reason: "nothing tells it".to_owned(),
            switch: Some("--context 700MiB".to_owned()),
        });
    }
    let none = [(found.framework.is_none(), "framework"), (found.batch.is_none(), "batch")];
    for (_, field) in none.iter().filter(|(is_none, _)| *is_none) {
        let reason =
            if *field == "batch" { "a run says nothing of its batch" } else { "the file does not tell" };
        unknowns.push(Unknown {
            path: format!("jobs[{at}].{field}"),
            reason: reason.to_owned(),
            switch: None,
        });
    }
}

/// Stands for a command that is not known.
const COMMAND: &str = "CMD";

/// The recorded command, as a shell takes it.
fn command(report: &Report) -> String {
    let words = report.run.as_ref().map(|run| run.command.as_slice()).unwrap_or_default();
    if words.is_empty() {
        return COMMAND.to_owned();
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./=:,@%+-".contains(c);
    let quoted = |word: &String| {
        let is_bare = !word.is_empty() && word.chars().all(is_plain);
        if is_bare { word.clone() } else { format!("'{}'", word.replace('\'', "'\\''")) }
    };
    words.iter().map(quoted).collect::<Vec<String>>().join(" ")
}

/// How to start a job with its limit.
fn launch(found: &Found, share: &Share, room: Room) -> Vec<String> {
    let command = &found.command;
    let mut lines = vec![format!("vramline run --limit {}MiB -- {command}", share.limit.0 >> 20)];
    let is_jax = found.framework.as_deref() == Some("jax");
    if let Some(share) = millionths(share.limit, room).filter(|share| is_jax && *share <= 1_000_000) {
        let (whole, rest) = (share / 1_000_000, share % 1_000_000);
        lines.push(format!("XLA_PYTHON_CLIENT_MEM_FRACTION={whole}.{rest:06} {command}"));
    }
    lines
}

fn advice(jobs: &[JobView]) -> Vec<String> {
    let has = |framework: &str| jobs.iter().any(|job| job.framework.as_deref() == Some(framework));
    let mut advice = Vec::new();
    if jobs.len() > 1 {
        advice.push(
            "start them one after another, the largest first, each when the one before has done its first steps: contexts, libraries and the \
             choice of kernels take more then than later"
                .to_owned(),
        );
    }
    if has("jax") {
        advice.push(
            "JAX takes its share when it starts, of all that CUDA tells of the device (recorded with JAX 0.11.2: 0.30 of it, in whole 2 MiB), \
             whatever is free; with XLA_PYTHON_CLIENT_PREALLOCATE=false it grows up to the share. Old versions are said to take it of what is free"
                .to_owned(),
        );
    }
    if has("tensorflow") {
        advice.push(
            "TensorFlow takes a limit or grows, not both: no set_memory_growth in the script".to_owned(),
        );
    }
    if has("pytorch") {
        advice.push("PyTorch fails where its limit is reached; others of its processes on the device each need their own".to_owned());
    }
    advice
}

fn verdict(shown: &PackView) -> String {
    let count = shown.jobs.len();
    let jobs = if count == 1 { "One job".to_owned() } else { format!("{count} jobs") };
    let (sum, total) = (shown.sum_bytes, shown.device.total_bytes);
    let left = Bytes(shown.left_bytes.unsigned_abs());
    let one = count == 1;
    match shown.fits {
        Some(true) => {
            format!(
                "{jobs} {} {total}: {sum} with limits and headroom, {left} left.",
                if one { "fits" } else { "fit" }
            )
        }
        Some(false) => format!(
            "{jobs} {} not fit {total}: at least {} are needed, {} more.",
            if one { "does" } else { "do" },
            shown.least_bytes,
            shown.least_bytes.saturating_sub(total)
        ),
        None if shown.left_bytes >= 0 => {
            format!(
                "{jobs} probably {} {total}: {sum}, {left} left; not certain, see the notes.",
                if one { "fits" } else { "fit" }
            )
        }
        None => format!(
            "Not certain: {sum} with headroom and what is assumed, {left} more than {total}; at least {} are needed.",
            shown.least_bytes
        ),
    }
}

/// A plan's document from its text.
pub fn plan_of(text: &str) -> Result<PlanRead, serde_json::Error> {
    serde_json::from_str(text)
}

// The two documents must not drift apart: what is read here is written there.
const _: fn(&plan::PredictionView) -> (u64, Bytes, Option<Bytes>) =
    |each| (each.batch, each.high_bytes, each.minimum_bytes);
const _: fn(&plan::PredictionView) -> bool = |each| each.certain;
const _: fn(&plan::PlanView) -> (bool, Option<Bytes>) = |plan| (plan.certain, plan.outside_bytes);
