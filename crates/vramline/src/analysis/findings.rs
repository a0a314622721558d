//! Turns the figures of a report into the form that the rules of [`crate::advise`] use.

use super::growth::GrowthFigures;
use super::held::HeldMoment;
use super::process::PoolStep;
use super::ranks::difference::Difference;
use super::ranks::{Outlier, RanksAnalysis};
use super::reading::Reading;
use super::report::{PoolAnalysis, ReportAnalysis};
use crate::advise::outlier_rank::OutlierRank;
use crate::advise::{self, Device, Finding, Fragments, Largest};
use crate::ledger::{HeldLine, Line, LineKind, What};
use crate::replay::CauseKind;
use crate::trace::{self, Phase};
use crate::units::Bytes;

/// The findings of a report whose pools, steps and ledgers are known.
pub(super) fn findings(report: &ReportAnalysis, reading: &Reading) -> Vec<Finding> {
    // Pinned host memory is not a device, and small compared with one.
    let pools: Vec<&PoolAnalysis> = report.pools.iter().filter(|pool| pool.device != "HOST").collect();
    let mut devices: Vec<Device> = pools.iter().map(|pool| device(report, pool, reading)).collect();
    if let ([only], [pool]) = (devices.as_mut_slice(), pools.as_slice()) {
        only.name.clone_from(&pool.name);
    }
    let found = advise::findings(&devices);
    let Some(ranks) = &report.ranks else { return found };
    advise::of_ranks(
        found,
        &ranks.outliers.iter().filter_map(|outlier| outlier_rank(outlier, ranks)).collect::<Vec<_>>(),
    )
}

/// A rank that needs more than its group.
fn outlier_rank(outlier: &Outlier, ranks: &RanksAnalysis) -> Option<OutlierRank> {
    let more = u64::try_from(outlier.difference).ok().filter(|more| *more > 0)?;
    let peak = ranks.ranks.iter().find(|rank| rank.rank == outlier.rank)?.peak?;
    let first = outlier.parts.iter().flatten().find(|part| part.bytes > 0);
    Some(OutlierRank {
        rank: outlier.rank,
        typical: outlier.compared_with,
        peak,
        more: Bytes(more),
        what: first.map(Difference::to_string).unwrap_or_default(),
    })
}

fn device(report: &ReportAnalysis, pool: &PoolAnalysis, reading: &Reading) -> Device {
    let steps: Vec<&PoolStep> =
        report.steps.iter().filter(|step| step.pool == pool.name && step.pid == pool.pid).collect();
    let settings =
        reading.recorded.as_ref().and_then(|recorded| recorded.manifest.as_ref()).map(|run| &run.settings);
    let process = match (pool.rank, pool.pid) {
        (Some(rank), _) => format!(" (rank {rank})"),
        (None, Some(pid)) => format!(" (process {pid})"),
        (None, None) => String::new(),
    };
    // The peak of the run may be after the trace; then it is unknown what was allocated at it.
    let is_traced = pool.lifetime_peak.is_none_or(|ever| pool.peak.is_some_and(|peak| peak >= ever));
    let at_peak = pool.at_peak.as_ref();
    let figures = LedgerFigures::of(report, pool);
    let growth = GrowthFigures::of(pool, &steps, reading);
    // A replay covers the first trace: if a later trace shows the peak, the replay does not know what the pool reserved then.
    let is_first = pool.window.is_none_or(|window| window == 1);
    let exact = pool.replay.as_ref().filter(|replay| replay.is_exact && is_first);
    Device {
        name: format!("{}{process}", pool.name),
        kind: pool.device.split(':').next().unwrap_or_default().to_owned(),
        allocs: pool.allocs,
        framework: report.source.framework,
        steps: growth.steps,
        survivors: growth.survivors,
        stayed: growth.stayed,
        kept: growth.kept,
        variables: growth.variables,
        retraced: growth.retraced,
        window: growth.window,
        growing: growth.growing,
        churn: growth.churn,
        peak: pool.highest(),
        is_dump: pool.moment == HeldMoment::Dump,
        peak_in: is_traced.then(|| place_of_peak(pool, &steps)).flatten(),
        largest: at_peak.and_then(|held| {
            let largest = held.rows.iter().filter(|row| row.count == 1).max_by_key(|row| row.bytes)?;
            let words = [&largest.variable, &largest.op, &largest.source, &largest.shape];
            let known: Vec<&str> =
                words.into_iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
            Some(Largest {
                what: known.join(" "),
                bytes: largest.bytes,
                count: 1,
                is_of_compiler: largest.evidence == trace::COMPILER,
            })
        }),
        slack: at_peak.map(|held| held.slack),
        taken: figures.taken.max(exact.map(|replay| replay.pool)),
        at_end: at_end(pool, reading),
        fragments: exact.filter(|replay| replay.growths > 1).map(|replay| {
            let main = replay.causes.first();
            let is_churn = |cause: &&super::replayed::NamedCause| {
                cause.kind == CauseKind::ShapeChurn && !cause.op.is_empty()
            };
            Fragments {
                pool: replay.pool,
                peak: replay.load.max(pool.peak.unwrap_or_default()),
                cause: main.map(|cause| cause.text.clone()),
                churn: main.filter(is_churn).map(|cause| (cause.bytes, cause.op.clone())),
            }
        }),
        held: figures.held,
        context: figures.context,
        grown_outside: figures.grown_outside,
        beside: held_lines(report, pool),
        others: figures.others,
        limit: settings.and_then(|settings| settings.limit_bytes),
        grows: settings.and_then(|settings| settings.growth),
        is_stand_in: settings.is_some_and(|settings| settings.stand_in.is_on()),
    }
}

/// Figures of the driver and of the counters for the pool's device over the run; for other processes, at the peak.
#[derive(Default)]
struct LedgerFigures {
    held: Option<Bytes>,
    context: Option<Bytes>,
    grown_outside: Vec<(i64, String)>,
    others: Option<(usize, Bytes)>,
    taken: Option<Bytes>,
}

impl LedgerFigures {
    fn of(report: &ReportAnalysis, pool: &PoolAnalysis) -> LedgerFigures {
        let bytes = |line: &Line| line.bytes.and_then(|bytes| u64::try_from(bytes).ok()).map(Bytes);
        let lines = report.ledger_lines(pool).filter(|line| line.what.kind() == LineKind::Other);
        let highest = report.highest_of(pool);
        let others: Vec<Bytes> = lines.filter_map(bytes).collect();
        let grown = highest.iter().flat_map(|highest| &highest.growths);
        LedgerFigures {
            held: highest.and_then(|highest| highest.held).filter(|&held| held > Bytes::ZERO),
            context: highest.and_then(|highest| highest.context),
            grown_outside: grown.map(|group| (group.bytes, group.to_string())).collect(),
            others: (!others.is_empty()).then(|| (others.len(), others.iter().copied().sum())),
            taken: highest.and_then(|highest| highest.taken),
        }
    }
}

/// What driver calls of the pool's process took, by the ledger at the peak.
fn held_lines(report: &ReportAnalysis, pool: &PoolAnalysis) -> Vec<HeldLine> {
    let Some(ledger) = report.ledgers_of(pool).next().map(|each| &each.ledger) else { return Vec::new() };
    let of_jobs = |line: &&Line| matches!(line.what, What::Job(_));
    let is_alone = ledger.lines.iter().filter(of_jobs).count() == 1;
    let is_process = |line: &Line| match &line.what {
        What::Job(pid) => is_alone || pool.pid == Some(u64::from(*pid)),
        _ => false,
    };
    let of_process = |line: &&Line| line.of.and_then(|of| ledger.lines.get(of)).is_some_and(is_process);
    let held = |line: &Line| match &line.what {
        What::Held(held) => Some(held.clone()),
        _ => None,
    };
    ledger.lines.iter().filter(of_process).filter_map(held).collect()
}

/// Reserved and in use in the framework's last reading.
fn at_end(pool: &PoolAnalysis, reading: &Reading) -> Option<(Bytes, Bytes)> {
    let recorded = reading.recorded.as_ref()?;
    let process = recorded.processes.iter().find(|process| Some(u64::from(process.id.pid())) == pool.pid)?;
    let told = process.samples.iter().rev().filter_map(|sample| sample.counters.as_ref());
    let last = told.filter(|read| read.device == pool.device).find(|read| read.pool.is_some())?;
    let bytes = |value: Option<i64>| Some(Bytes(u64::try_from(value?).ok()?));
    bytes(last.pool).zip(bytes(last.current))
}

/// Where the peak was, unless it was in an ordinary training step.
fn place_of_peak(pool: &PoolAnalysis, steps: &[&PoolStep]) -> Option<String> {
    let at = pool.peak_at?;
    let after = steps.partition_point(|step| step.begin <= at);
    let Some(place) = after.checked_sub(1) else {
        return (!steps.is_empty()).then(|| "the time before the first step".to_owned());
    };
    let step = steps.get(place)?;
    let is_first = steps.iter().position(|other| other.phase == step.phase) == Some(place);
    match step.phase {
        Phase::Train | Phase::Other => is_first.then(|| format!("the first step (step {})", step.number)),
        Phase::Validation => Some(format!("validation (step {})", step.number)),
        Phase::Predict => Some(format!("prediction (step {})", step.number)),
    }
}
