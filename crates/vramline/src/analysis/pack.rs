//! Jobs on one device: what each needs and how that is known, its limit, how to start it, and whether all of them fit.

use super::plan::{PlanDocument, PlannedBatch};
use super::reading::Reading;
use super::replay::{ReplayOptions, replay};
use super::report::{PoolAnalysis, ReportAnalysis, ReportOptions, report};
use crate::event::Framework;
use crate::ledger::LineKind;
use crate::plan::pack::{MIB, Need, Packing, Room, Share, millionths};
use crate::plan::with_room;
use crate::units::Bytes;
use crate::warning::{Warning, Warnings};

/// The assumption for memory outside a pool if it is unknown: a CUDA context with the libraries that frameworks load, rounded up; in host
/// memory, Python and its libraries.
pub const ASSUMED_OUTSIDE: Bytes = Bytes(1 << 30);

/// JAX takes whole pages of the driver, of 2 MiB each (JAX 0.11).
const JAX_GRANULE: Bytes = Bytes(2 << 20);

/// The source of what a job needs.
#[derive(Debug)]
pub enum KnownNeed {
    /// A recording, or a trace.
    Run(Box<Reading>),
    /// A document of `vramline plan --json`, and the batch size.
    Plan(Box<PlanDocument>, Option<u64>),
}

/// A job as it was given.
#[derive(Debug)]
pub struct PackJob {
    /// Its name.
    pub name: String,
    /// The file it was read from.
    pub file: String,
    /// What was read.
    pub known: KnownNeed,
}

/// The options of a packing.
#[derive(Clone, Debug, Default)]
pub struct PackOptions {
    /// The device's memory; a recording on a device may contain it too.
    pub memory: Option<Bytes>,
    /// What the driver reserves of it.
    pub reserved: Option<Bytes>,
    /// What other processes hold on it.
    pub taken: Option<Bytes>,
    /// What every job holds outside its pool, if its recording or plan does not show it.
    pub context: Option<Bytes>,
    /// Percent that are added to the minimum of a pool.
    pub headroom: u64,
    /// The name of the device.
    pub device: String,
}

/// The result of a packing.
#[derive(Clone, Debug)]
pub struct PackAnalysis {
    /// The answer as a word.
    pub verdict: PackVerdict,
    /// The answer as a sentence.
    pub headline: String,
    /// Whether all jobs fit; `None` if that depends on an assumption or on headroom.
    pub fits: Option<bool>,
    /// The name of the device.
    pub device: String,
    /// Whether the jobs share host memory: they were recorded with TensorFlow's pool on the CPU, and no GPU is given.
    pub is_host: bool,
    /// The device.
    pub room: Room,
    /// The sum of all limits, memory outside the pools, driver-reserved memory and memory of other processes.
    pub sum: Bytes,
    /// The same without headroom and without assumptions.
    pub least: Bytes,
    /// What the sum leaves of the device; negative if it does not fit.
    pub left: i64,
    /// The jobs, in the order in which they were given.
    pub jobs: Vec<PackedJob>,
    /// How to start them together.
    pub advice: Vec<String>,
    /// Warnings about the figures.
    pub warnings: Vec<Warning>,
}

/// A job on the device.
#[derive(Clone, Debug)]
pub struct PackedJob {
    /// Its name.
    pub name: String,
    /// The file it was read from.
    pub file: String,
    /// Its framework.
    pub framework: Option<Framework>,
    /// Its batch size, from a plan.
    pub batch: Option<u64>,
    /// What it needs.
    pub need: Need,
    /// How that is known.
    pub basis: NeedBasis,
    /// Its share of the device.
    pub share: Share,
    /// How to start it with its limit.
    pub launch: Vec<String>,
}

/// How the need of a job is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeedBasis {
    /// The smallest limit with which an exact replay passes, with room for other orders of ops.
    Replay,
    /// The smallest limit that a plan found.
    PlanMinimum,
    /// The highest peak of a plan, which found no limit.
    PlanHigh,
    /// The peak of a run.
    Peak,
    /// The smallest limit for the requests of a run that ended early.
    LowerBound,
}

words!(NeedBasis {
    Replay => "replay",
    PlanMinimum => "plan-minimum",
    PlanHigh => "plan-high",
    Peak => "peak",
    LowerBound => "lower-bound",
});

/// Whether all jobs fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackVerdict {
    /// They do, with headroom.
    Fits,
    /// They do not, even without assumptions.
    DoesNotFit,
    /// They do, with assumptions.
    ProbablyFits,
    /// They do not, with assumptions or with headroom.
    NotCertain,
}

words!(PackVerdict {
    Fits => "fits",
    DoesNotFit => "does-not-fit",
    ProbablyFits => "probably-fits",
    NotCertain => "not-certain",
});

/// Why jobs cannot be packed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotPacked {
    /// A run without a pool.
    #[error("'{file}' contains no pool with memory in use")]
    WithoutPool {
        /// The file.
        file: String,
    },
    /// A plan without the batch.
    #[error("'{file}' has no prediction for batch size {batch}, only for {there}")]
    OtherBatches {
        /// The file.
        file: String,
        /// The requested bytes.
        batch: String,
        /// What it has.
        there: String,
    },
    /// The memory of the device is not known.
    #[error("the memory of the device is unknown")]
    UnknownDevice,
}

impl NotPacked {
    /// What to do now.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            NotPacked::WithoutPool { .. } => {
                "record the job with `vramline run -- ...`; `vramline report` says what is in it"
            }
            NotPacked::OtherBatches { .. } => {
                "make the plan with this batch size (--batch), or choose one that the plan has: FILE@BATCH"
            }
            NotPacked::UnknownDevice => "pass it, such as --device-memory 80GiB",
        }
    }
}

/// What one job needs, and other facts about it.
struct JobNeed {
    need: Need,
    basis: NeedBasis,
    framework: Option<Framework>,
    batch: Option<u64>,
    /// Quoted for a shell.
    command: String,
    /// The device's total and driver-reserved memory, if the recording has them.
    device: Option<(Bytes, Bytes)>,
    /// The program's own host memory, if its pool was in host memory.
    on_host: Option<HostUse>,
}

/// Facts about a job whose pool was in host memory.
#[derive(Clone, Copy)]
struct HostUse {
    /// The program's own memory outside the pool; `None` if it was not recorded.
    own: Option<Bytes>,
    /// The machine's memory.
    total: Option<Bytes>,
}

/// Adds up jobs on a device.
pub fn pack(jobs: &[PackJob], options: &PackOptions) -> Result<PackAnalysis, NotPacked> {
    let mut needs =
        jobs.iter().map(|job| need_of(job, options)).collect::<Result<Vec<JobNeed>, NotPacked>>()?;
    // The target is a GPU if this machine has one, or if the memory and the context of one are given.
    let is_for_gpu = !options.device.is_empty() || (options.memory.is_some() && options.context.is_some());
    let is_host = !is_for_gpu && needs.iter().all(|need| need.on_host.is_some());
    for need in needs.iter_mut().filter(|_| is_host) {
        let Some(host) = need.on_host else { continue };
        need.need.outside = host.own.or(options.context);
        need.device = host.total.map(|total| (total, Bytes::ZERO));
    }
    let recorded = needs.iter().find_map(|need| need.device);
    let total = options.memory.or(recorded.map(|(total, _)| total)).ok_or(NotPacked::UnknownDevice)?;
    // Figures of a device with another size do not apply.
    let kept = recorded.filter(|(other, _)| *other == total).map(|(_, reserved)| reserved);
    let reserved = options.reserved.or(kept);
    let room =
        Room { total, reserved: reserved.unwrap_or_default(), taken: options.taken.unwrap_or_default() };
    let figures: Vec<Need> = needs.iter().map(|need| need.need).collect();
    let packing = crate::plan::pack::pack(&figures, room, options.headroom, ASSUMED_OUTSIDE);
    let left = signed(room.total).saturating_sub(signed(packing.sum));
    let mut warnings = Warnings::default();
    let mut packed = Vec::new();
    for ((job, need), share) in jobs.iter().zip(needs).zip(&packing.shares) {
        warn_of_job(&job.name, &need, is_host, &mut warnings);
        packed.push(PackedJob {
            name: job.name.clone(),
            file: job.file.clone(),
            framework: need.framework,
            batch: need.batch,
            need: need.need,
            basis: need.basis,
            share: *share,
            launch: launch(&need, share, room),
        });
    }
    if is_host {
        let text = "the jobs were recorded in host memory; memory of other programs is not counted";
        warnings.add(
            "host-memory",
            text,
            "for a GPU, pass --device-memory, and --context for the CUDA context",
        );
    } else if reserved.is_none() {
        let text = "the memory that the driver reserves is unknown and not counted; the sum assumes that programs can use all device memory";
        warnings.add(
            "no-reserve",
            text,
            "pass it with --reserved, or pass the memory that programs can use as --device-memory",
        );
    }
    let (verdict, headline) = verdict(packed.len(), &packing, room, left);
    Ok(PackAnalysis {
        verdict,
        headline,
        fits: packing.fits,
        device: match options.device.as_str() {
            "" if is_host => "host memory".to_owned(),
            "" => "device".to_owned(),
            name => name.to_owned(),
        },
        is_host,
        room,
        sum: packing.sum,
        least: packing.least,
        left,
        advice: advice(&packed, is_host),
        jobs: packed,
        warnings: warnings.into_vec(),
    })
}

fn signed(bytes: Bytes) -> i64 {
    i64::try_from(bytes.0).unwrap_or(i64::MAX)
}

fn need_of(job: &PackJob, options: &PackOptions) -> Result<JobNeed, NotPacked> {
    match &job.known {
        KnownNeed::Run(reading) => of_run(job, reading, options),
        KnownNeed::Plan(plan, batch) => of_plan(job, plan, *batch, options),
    }
}

fn of_plan(
    job: &PackJob,
    plan: &PlanDocument,
    batch: Option<u64>,
    options: &PackOptions,
) -> Result<JobNeed, NotPacked> {
    let file = job.file.clone();
    let is_it = |each: &&PlannedBatch| batch.is_none_or(|batch| each.batch == batch);
    let Some(prediction) = plan.predictions.iter().find(is_it) else {
        let there: Vec<String> = plan.predictions.iter().map(|each| each.batch.to_string()).collect();
        let there = if there.is_empty() { "nothing".to_owned() } else { there.join(", ") };
        let batch = batch.map_or("any size".to_owned(), |batch| batch.to_string());
        return Err(NotPacked::OtherBatches { file, batch, there });
    };
    let (minimum, basis) = match prediction.minimum_bytes {
        Some(minimum) => (minimum, NeedBasis::PlanMinimum),
        None => (prediction.high_bytes, NeedBasis::PlanHigh),
    };
    Ok(JobNeed {
        need: Need {
            minimum,
            is_sure: prediction.certain.unwrap_or(plan.certain) && prediction.minimum_bytes.is_some(),
            outside: plan.outside_bytes.or(options.context),
            granule: granule(plan.framework),
        },
        basis,
        framework: plan.framework,
        batch: Some(prediction.batch),
        command: COMMAND.to_owned(),
        device: None,
        on_host: None,
    })
}

fn of_run(job: &PackJob, reading: &Reading, options: &PackOptions) -> Result<JobNeed, NotPacked> {
    let report = report(reading, &ReportOptions { top: Some(1), ..ReportOptions::default() });
    let on_device = |pool: &&PoolAnalysis| pool.device.starts_with("GPU");
    let highest = report.pools.iter().filter(on_device).max_by_key(|pool| pool.highest());
    let pool = highest.or_else(|| report.pools.iter().max_by_key(|pool| pool.highest()));
    let Some((pool, peak)) = pool.and_then(|pool| Some((pool, pool.highest()?))) else {
        return Err(NotPacked::WithoutPool { file: job.file.clone() });
    };
    let is_on_host = pool.device.starts_with("CPU");
    // The smallest limit is for the traced steps; a run with a higher peak later needs at least that peak. The limit may be below a traced
    // peak: without a limit the pool hands out larger blocks than requested.
    let is_traced = pool.peak.is_some_and(|traced| traced >= peak);
    let least = least_limit(reading, &pool.name);
    let least = least.filter(|least| least.basis == NeedBasis::LowerBound || is_traced);
    let minimum = least.map_or(peak, |least| if is_traced { least.limit } else { least.limit.max(peak) });
    let basis = least.map_or(NeedBasis::Peak, |least| least.basis);
    Ok(JobNeed {
        need: Need {
            minimum,
            is_sure: basis == NeedBasis::Replay,
            outside: report
                .highest_of(pool)
                .and_then(|highest| highest.outside)
                .filter(|_| !is_on_host)
                .or(options.context),
            granule: granule(report.source.framework),
        },
        basis,
        framework: report.source.framework,
        batch: None,
        command: command(&report),
        device: device(&report, pool),
        on_host: is_on_host.then(|| HostUse {
            own: figure(&report, pool, LineKind::Host),
            total: figure(&report, pool, LineKind::Device),
        }),
    })
}

/// What a framework rounds its limits up to.
fn granule(framework: Option<Framework>) -> Bytes {
    if framework == Some(Framework::Jax) { JAX_GRANULE } else { MIB }
}

/// A limit that a replay found.
#[derive(Clone, Copy)]
struct LeastLimit {
    limit: Bytes,
    basis: NeedBasis,
}

/// The smallest limit with which the recorded order passes, with room for other orders, if the replay is exact from the start; for a run that
/// ended early, a lower bound.
fn least_limit(reading: &Reading, pool: &str) -> Option<LeastLimit> {
    let options = ReplayOptions { pool: Some(pool.to_owned()), find_limit: true, ..ReplayOptions::default() };
    let replayed = replay(reading, &options).ok()?;
    let is_ordered = reading.highest_pool(Some(pool))?.0.trace.history.framework == Some(Framework::PyTorch);
    let is_exact = replayed
        .pools
        .first()
        .is_some_and(|pool| pool.replay.ran.is_exact() && pool.replay.ran.from_start == Some(true));
    let found = replayed.what_if.iter().find(|found| found.answered.fits == Some(true))?;
    let limit = found.answered.limit.filter(|_| is_exact)?;
    if found.is_lower_bound {
        return Some(LeastLimit { limit, basis: NeedBasis::LowerBound });
    }
    // Another run may have another order of ops, by the criterion of a plan.
    let limit = if is_ordered { limit } else { with_room(limit) };
    Some(LeastLimit { limit, basis: NeedBasis::Replay })
}

/// A line of a device's ledger, summed over the processes of the job; `None` if one is unknown.
fn line(report: &ReportAnalysis, pool: &PoolAnalysis, kind: LineKind) -> Option<i64> {
    let lines = report.ledger_lines(pool).filter(|line| line.what.kind() == kind);
    lines.map(|line| line.bytes).reduce(|sum, more| Some(sum?.saturating_add(more?)))?
}

/// The same as bytes.
fn figure(report: &ReportAnalysis, pool: &PoolAnalysis, kind: LineKind) -> Option<Bytes> {
    line(report, pool, kind).and_then(|bytes| u64::try_from(bytes).ok()).map(Bytes)
}

/// The device's total and driver-reserved memory.
fn device(report: &ReportAnalysis, pool: &PoolAnalysis) -> Option<(Bytes, Bytes)> {
    figure(report, pool, LineKind::Device).zip(figure(report, pool, LineKind::Reserved))
}

/// Warns of what is unknown about a job.
fn warn_of_job(name: &str, need: &JobNeed, is_host: bool, warnings: &mut Warnings) {
    match need.basis {
        NeedBasis::Peak => warnings.add(
            "only-a-peak",
            format!("{name}: only the peak of its pool is known; fragmentation may need more"),
            "record it with a trace of all steps (vramline run --trace all), or make a plan (vramline plan)",
        ),
        NeedBasis::LowerBound => warnings.add(
            "ended-early",
            format!("{name}: its run ended out of memory, so the figure is a lower bound"),
            "record a run that completes",
        ),
        NeedBasis::PlanHigh => warnings.add(
            "no-minimum",
            format!(
                "{name}: the plan found no limit that is sure to pass, so its upper bound of the peak is used"
            ),
            "make the plan with more probes",
        ),
        NeedBasis::Replay | NeedBasis::PlanMinimum if !need.need.is_sure => warnings.add(
            "uncertain-plan",
            format!("{name}: its plan is not certain"),
            "see the warnings of the plan",
        ),
        NeedBasis::Replay | NeedBasis::PlanMinimum => {}
    }
    if need.need.outside.is_some() {
        return;
    }
    let (text, hint) = match (is_host, need.on_host) {
        (true, _) => (
            format!(
                "{name}: memory of Python and its libraries outside the pool is unknown; {ASSUMED_OUTSIDE} is assumed"
            ),
            "pass it with --context, or record the job with `vramline run`, which reads host memory",
        ),
        (false, Some(_)) => (
            format!(
                "{name}: it was recorded on the CPU, so its memory outside the pool on a GPU is unknown; {ASSUMED_OUTSIDE} is assumed"
            ),
            "pass it with --context",
        ),
        (false, None) => (
            format!("{name}: its memory outside the pool is unknown; {ASSUMED_OUTSIDE} is assumed"),
            "pass it with --context, or record the job on a GPU with `vramline run`",
        ),
    };
    warnings.add("no-context", text, hint);
}

/// The placeholder for an unknown command.
const COMMAND: &str = "CMD";

/// The recorded command, quoted for a shell.
fn command(report: &ReportAnalysis) -> String {
    let words = report.job.as_ref().map(|job| job.command.as_slice()).unwrap_or_default();
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
fn launch(need: &JobNeed, share: &Share, room: Room) -> Vec<String> {
    let command = &need.command;
    let mut lines = vec![format!("vramline run --limit {}MiB -- {command}", share.limit.0 >> 20)];
    let is_jax = need.framework == Some(Framework::Jax);
    if let Some(share) = millionths(share.limit, room).filter(|share| is_jax && *share <= 1_000_000) {
        let (whole, rest) = (share / 1_000_000, share % 1_000_000);
        lines.push(format!("XLA_PYTHON_CLIENT_MEM_FRACTION={whole}.{rest:06} {command}"));
    }
    lines
}

fn advice(jobs: &[PackedJob], is_host: bool) -> Vec<String> {
    if is_host {
        return vec![
            "a limit covers only TensorFlow's pool: nothing limits the memory of Python and its libraries"
                .to_owned(),
        ];
    }
    let has = |framework: Framework| jobs.iter().any(|job| job.framework == Some(framework));
    let mut advice = Vec::new();
    if jobs.len() > 1 {
        advice.push(
            "start the jobs one after another, the largest first, each after the previous one has finished its first steps: contexts, \
             libraries and autotuning need more memory at the start than later"
                .to_owned(),
        );
    }
    if has(Framework::Jax) {
        advice.push(
            "XLA_PYTHON_CLIENT_MEM_FRACTION is a share of the total memory that CUDA reports (measured with JAX 0.11.2), not of the free \
             memory. JAX reserves it at the start; with XLA_PYTHON_CLIENT_PREALLOCATE=false it grows up to it. Old versions may use the free \
             memory instead"
                .to_owned(),
        );
    }
    if has(Framework::TensorFlow) {
        advice.push(
            "TensorFlow accepts either a limit or memory growth: remove set_memory_growth from the script"
                .to_owned(),
        );
    }
    if has(Framework::PyTorch) {
        advice.push(
            "PyTorch fails when it reaches its limit; each PyTorch process on the device needs its own limit"
                .to_owned(),
        );
    }
    advice
}

/// The answer as a word and as a sentence.
fn verdict(count: usize, packing: &Packing, room: Room, left: i64) -> (PackVerdict, String) {
    let (jobs, fit, do_not, need) = match count {
        1 => ("One job".to_owned(), "fits", "does not", "it needs"),
        _ => (format!("{count} jobs"), "fit", "do not", "together they need"),
    };
    let Packing { sum, least, .. } = packing;
    let (total, rest) = (room.total, Bytes(left.unsigned_abs()));
    match packing.fits {
        Some(true) => (
            PackVerdict::Fits,
            format!("{jobs} {fit} in {total}: {need} {sum}, headroom included, which leaves {rest}."),
        ),
        Some(false) => {
            let more = least.saturating_sub(total);
            (
                PackVerdict::DoesNotFit,
                format!("{jobs} {do_not} fit in {total}: {need} at least {least}, which is {more} too much."),
            )
        }
        None if left >= 0 => (
            PackVerdict::ProbablyFits,
            format!(
                "{jobs} probably {fit} in {total}: {need} {sum}, which leaves {rest}. Not certain: see the notes."
            ),
        ),
        None => (
            PackVerdict::NotCertain,
            format!(
                "Not certain: with headroom and assumptions the jobs need {sum}, {rest} more than {total}; they need at least {least}."
            ),
        ),
    }
}
