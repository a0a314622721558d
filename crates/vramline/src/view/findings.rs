//! The figures of a report as the rules want them, and what the rules find.

use serde::Serialize;

use super::ledger::LedgerView;
use super::report::{PoolView, Report, StepView};
use crate::Reading;
use crate::advise::{self, Device, Fragments, Kind, Largest, StepFigures, Survivor};
use crate::trace::Phase;
use crate::units::{Bytes, Picos};

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct FindingView {
    pub rule: &'static str,
    pub bytes: Bytes,
    pub text: String,
    pub fix: String,
    pub verify: String,
}

/// What the rules find in a report whose pools and steps are known.
pub(super) fn findings(report: &Report, reading: &Reading) -> Vec<FindingView> {
    // Pinned host memory is no device, and small beside one.
    let pools: Vec<&PoolView> = report.pools.iter().filter(|pool| pool.device != "HOST").collect();
    let mut devices: Vec<Device> = pools.iter().map(|pool| device(report, pool, reading)).collect();
    if let ([only], [pool]) = (devices.as_mut_slice(), pools.as_slice()) {
        only.name.clone_from(&pool.name);
    }
    let view = |found: advise::Finding| FindingView {
        rule: found.rule,
        bytes: found.bytes,
        text: found.text,
        fix: found.fix,
        verify: found.verify,
    };
    advise::findings(&devices).into_iter().map(view).collect()
}

fn device(report: &Report, pool: &PoolView, reading: &Reading) -> Device {
    let steps: Vec<&StepView> =
        report.steps.iter().filter(|step| step.pool == pool.name && step.pid == pool.pid).collect();
    let settings =
        reading.recorded.as_ref().and_then(|recorded| recorded.manifest.as_ref()).map(|run| &run.settings);
    let process = match (pool.rank, pool.pid) {
        (Some(rank), _) => format!(", rank {rank}"),
        (None, Some(pid)) => format!(", process {pid}"),
        (None, None) => String::new(),
    };
    // The highest moment of the run may lie behind the trace; then nobody knows what was held there.
    let is_traced =
        pool.lifetime_peak_bytes.is_none_or(|ever| pool.peak_bytes.is_some_and(|peak| peak >= ever));
    let at_peak = pool.at_peak.as_ref();
    let told = Told::of(report, pool);
    Device {
        name: format!("{}{process}", pool.name),
        kind: match report.source.framework {
            Some("tensorflow") => Some(Kind::TensorFlow),
            Some("jax") => Some(Kind::Jax),
            Some("pytorch") => Some(Kind::PyTorch),
            _ => None,
        },
        steps: steps.iter().map(|step| figures(step)).collect(),
        survivors: survivors(pool, &steps, reading),
        peak: pool.peak_bytes.max(pool.lifetime_peak_bytes),
        peak_in: is_traced.then(|| place_of_peak(pool, &steps)).flatten(),
        largest: at_peak.and_then(|held| {
            let largest = held.rows.iter().filter(|row| row.count == 1).max_by_key(|row| row.bytes)?;
            let words = [&largest.variable, &largest.op, &largest.source, &largest.shape];
            let known: Vec<&str> =
                words.into_iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
            Some(Largest { what: known.join(" "), bytes: largest.bytes, count: 1 })
        }),
        slack: at_peak.map(|held| held.slack_bytes),
        taken: told
            .taken
            .max(pool.replay.as_ref().filter(|replay| replay.exact).map(|replay| replay.pool_bytes)),
        at_end: at_end(pool, reading),
        fragments: pool.replay.as_ref().filter(|replay| replay.exact && replay.growths > 1).map(|replay| {
            Fragments {
                pool: replay.pool_bytes,
                peak: replay.load_bytes.max(pool.peak_bytes.unwrap_or_default()),
                cause: replay.causes.first().map(|cause| cause.text.clone()),
                churn: replay
                    .causes
                    .first()
                    .filter(|cause| cause.word == "shape-churn" && !cause.op.is_empty())
                    .map(|cause| (cause.bytes, cause.op.clone())),
            }
        }),
        held: told.held,
        context: told.context,
        grown_outside: told.grown_outside,
        others: told.others,
        limit: settings.and_then(|settings| settings.limit_bytes),
        grows: settings.and_then(|settings| settings.growth),
        is_stand_in: settings.is_some_and(|settings| settings.stand_in.is_on()),
    }
}

/// What the ledger of the pool's device says.
#[derive(Default)]
struct Told {
    held: Option<Bytes>,
    context: Option<Bytes>,
    grown_outside: Vec<(i64, String)>,
    others: Option<(usize, Bytes)>,
    taken: Option<Bytes>,
}

impl Told {
    fn of(report: &Report, pool: &PoolView) -> Told {
        let lines: Vec<&LedgerView> =
            report.ledger.iter().filter(|line| line.device == pool.device).collect();
        let bytes = |line: &LedgerView| line.bytes.and_then(|bytes| u64::try_from(bytes).ok()).map(Bytes);
        let find = |word: &str| lines.iter().find(|line| line.line == word).and_then(|line| bytes(line));
        let of = |word: &'static str| lines.iter().filter(move |line| line.line == word);
        let held =
            Some(of("this job").filter_map(|line| bytes(line)).sum()).filter(|&held| held > Bytes::ZERO);
        let others: Vec<Bytes> = of("other process").filter_map(|line| bytes(line)).collect();
        Told {
            held,
            context: find("context at start"),
            grown_outside: of("outside the pools")
                .filter_map(|line| Some((line.bytes?, line.detail.clone())))
                .collect(),
            others: (!others.is_empty()).then(|| (others.len(), others.iter().copied().sum())),
            taken: find("pool"),
        }
    }
}

/// Taken and in use as the framework told last.
fn at_end(pool: &PoolView, reading: &Reading) -> Option<(Bytes, Bytes)> {
    let recorded = reading.recorded.as_ref()?;
    let process = recorded.processes.iter().find(|process| Some(u64::from(process.id.pid())) == pool.pid)?;
    let told = process.samples.iter().rev().filter_map(|sample| sample.counters.as_ref());
    let last = told.filter(|read| read.device == pool.device).find(|read| read.pool.is_some())?;
    let bytes = |value: Option<i64>| Some(Bytes(u64::try_from(value?).ok()?));
    bytes(last.pool).zip(bytes(last.current))
}

fn figures(step: &StepView) -> StepFigures {
    StepFigures {
        number: step.step,
        phase: phase_of(step),
        peak: step.peak_bytes,
        current: step.current_bytes,
    }
}

fn phase_of(step: &StepView) -> Phase {
    let all = [Phase::Train, Phase::Validation, Phase::Predict];
    all.into_iter().find(|phase| phase.word() == step.phase).unwrap_or(Phase::Other)
}

/// Where the peak was, unless in a step that trains as the others do.
fn place_of_peak(pool: &PoolView, steps: &[&StepView]) -> Option<String> {
    let at = pool.peak_at_ns?;
    let after = steps.partition_point(|step| step.begin_ns <= at);
    let Some(place) = after.checked_sub(1) else {
        return (!steps.is_empty()).then(|| "what comes before the first step".to_owned());
    };
    let step = steps.get(place)?;
    let is_first = steps.iter().position(|other| other.phase == step.phase) == Some(place);
    match phase_of(step) {
        Phase::Train | Phase::Other => is_first.then(|| format!("step {}, the first", step.step)),
        Phase::Validation => Some(format!("validation, at step {}", step.step)),
        Phase::Predict => Some(format!("prediction, at step {}", step.step)),
    }
}

fn survivors(pool: &PoolView, steps: &[&StepView], reading: &Reading) -> Vec<Survivor> {
    let found = reading.hosts.iter().find_map(|host| {
        let trace = &host.trace;
        let is_it = |known: &&crate::trace::PoolTrace| {
            trace.history.pool(known.id).is_some_and(|facts| facts.name == pool.name)
        };
        let known = trace.pools.iter().find(is_it)?;
        let of_process = reading.recorded.as_ref().zip(host.process).is_none_or(|(recorded, process)| {
            let id = recorded.processes.get(process).map(|process| u64::from(process.id.pid()));
            id == pool.pid
        });
        of_process.then_some((trace, known))
    });
    let Some((trace, known)) = found else { return Vec::new() };
    let end = known.last_time(&trace.history.events);
    let begins: Vec<Picos> = steps
        .iter()
        .map(|step| Picos(step.begin_ns.0.saturating_sub(trace.history.origin.0).saturating_mul(1000)))
        .take_while(|&begin| begin < end)
        .collect();
    let survivor = |(op, bytes): (crate::names::Name, Bytes)| {
        let name = trace.history.names.get(op);
        let op = if name.is_empty() { "an op without a name".to_owned() } else { name.to_owned() };
        Survivor { op, bytes_a_step: bytes }
    };
    trace.survivors(known, &begins).into_iter().map(survivor).collect()
}
