//! A plan, for display: what batches take, what fits, and how sure that is.
//!
//! These structures are the JSON document (`docs/json.md`); the terminal prints the same values.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::ledger;
use crate::Host;
use crate::Reading;
use crate::event::Framework;
use crate::executable::Purpose;
use crate::plan::{
    Basis, Compiled, Doubt, Fix, Fixed, Largest, NotPlanned, PartPeak, Plan, Prediction, Probe, Source,
};
use crate::recording::rows::{DriverRow, Subject};
use crate::snapshot::Role;
use crate::trace::PoolTrace;
use crate::units::Bytes;
use crate::warning::{Unknown, Warning, Warnings};

/// What a plan is asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The batches to predict.
    pub batches: Vec<u64>,
    /// What the pool may take.
    pub limit: Option<Bytes>,
    /// For how many steps a run goes on; the highest of its steps counts.
    pub steps: u64,
    /// Only a pool whose name contains this.
    pub pool: Option<String>,
    /// What the batch is called.
    pub variable: String,
    /// Whether to follow memory from batch to batch.
    pub curve: bool,
    /// Whether to look for what would need less.
    pub fixes: bool,
}

/// The whole document.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct PlanView {
    pub kind: &'static str,
    pub verdict: String,
    pub variable: String,
    pub framework: Option<&'static str>,
    pub pool: String,
    pub device: String,
    pub steps: u64,
    pub limit_bytes: Option<Bytes>,
    pub outside_bytes: Option<Bytes>,
    pub certain: bool,
    pub probes: Vec<ProbeView>,
    pub compiled: Vec<CompiledView>,
    pub predictions: Vec<PredictionView>,
    pub largest_batch: LargestView,
    pub fixes: Vec<FixView>,
    pub no_help: &'static str,
    pub curve: Vec<CurvePoint>,
    pub not_modelled: Vec<String>,
    pub warnings: Vec<Warning>,
    pub unknowns: Vec<Unknown>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct ProbeView {
    pub batch: u64,
    pub file: String,
    pub steps: usize,
    pub exact: bool,
    pub from_start: Option<bool>,
    pub peak_bytes: Bytes,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct CompiledView {
    pub batch: u64,
    pub file: String,
    pub program: String,
    pub argument_bytes: Bytes,
    pub result_bytes: Bytes,
    pub temporary_bytes: Bytes,
    pub constant_bytes: Bytes,
    pub peak_bytes: Bytes,
    pub fits: Option<bool>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct PredictionView {
    pub batch: u64,
    pub peak_bytes: Bytes,
    pub low_bytes: Bytes,
    pub high_bytes: Bytes,
    pub pool_bytes: Bytes,
    pub pool_low_bytes: Bytes,
    pub pool_high_bytes: Bytes,
    pub process_bytes: Option<Bytes>,
    pub minimum_bytes: Option<Bytes>,
    pub certain: bool,
    pub fits: Option<bool>,
    pub exact_share: f64,
    pub bases: BTreeMap<&'static str, Bytes>,
    pub by_role: BTreeMap<&'static str, Bytes>,
    pub slack_bytes: Bytes,
    pub parts: Vec<PartView>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct PartView {
    pub part: &'static str,
    pub low_bytes: Bytes,
    pub median_bytes: Bytes,
    pub high_bytes: Bytes,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct FixView {
    pub name: String,
    pub text: String,
    pub batch: u64,
    pub saves_bytes: Option<Bytes>,
    pub peak_bytes: Option<Bytes>,
    pub pool_bytes: Option<Bytes>,
    pub fits: Option<bool>,
    pub time_ratio: Option<f64>,
    pub snippet: String,
    pub verify: Option<String>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct CurvePoint {
    pub batch: u64,
    pub peak_bytes: Bytes,
    pub low_bytes: Bytes,
    pub high_bytes: Bytes,
}

#[derive(Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct LargestView {
    pub sure: Option<u64>,
    pub likely: Option<u64>,
}

/// A probe as it was read.
#[derive(Debug)]
pub struct ProbeRead {
    /// The batch.
    pub batch: u64,
    /// Where from.
    pub file: String,
    /// What was read.
    pub reading: Reading,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoPlan {
    /// A probe without a pool.
    #[error("'{file}' holds no trace of a pool")]
    NoPool {
        /// The file.
        file: String,
    },
    /// The core says no.
    #[error(transparent)]
    NotPlanned(#[from] NotPlanned),
}

impl NoPlan {
    /// What to do now.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            NoPlan::NoPool { .. } => {
                "record the probe with `vramline run --trace steps=5 -- ...`; `vramline report` says what is in it. JAX has no such pool on the CPU: --compile-only tells what its programs take"
            }
            NoPlan::NotPlanned(why) => why.hint(),
        }
    }
}

/// Probes with their pools, and the plan from them.
pub fn prepare(probes: &[ProbeRead], wanted: &Wanted) -> Result<Plan, NoPlan> {
    let pools = probes.iter().map(|probe| {
        let (host, pool) = pool_of(&probe.reading, wanted.pool.as_deref())
            .ok_or_else(|| NoPlan::NoPool { file: probe.file.clone() })?;
        Ok(Source { batch: probe.batch, trace: &host.trace, pool, version: host.version.as_deref() })
    });
    let sources = pools.collect::<Result<Vec<Source<'_>>, NoPlan>>()?;
    let mut plan = Plan::new(&sources)?;
    for one in plan.compiled.iter_mut().filter(|one| one.file.is_empty()) {
        let probe = probes.iter().find(|probe| probe.batch == one.batch);
        one.file = probe.map_or(String::new(), |probe| probe.file.clone());
    }
    Ok(plan)
}

/// The pool with the highest peak, of those whose name contains what is wanted.
pub(super) fn pool_of<'a>(reading: &'a Reading, wanted: Option<&str>) -> Option<(&'a Host, &'a PoolTrace)> {
    let name = |host: &'a Host, pool: &PoolTrace| {
        host.trace.history.pool(pool.id).map_or("", |pool| pool.name.as_str())
    };
    let all = reading.hosts.iter().flat_map(|host| host.trace.pools.iter().map(move |pool| (host, pool)));
    let asked = |(host, pool): &(&'a Host, &'a PoolTrace)| {
        wanted.is_none_or(|wanted| name(host, pool).contains(wanted))
    };
    all.filter(asked).max_by_key(|(_, pool)| pool.peak().map(|peak| peak.bytes))
}

/// The document.
#[must_use]
pub fn view(plan: &Plan, probes: &[ProbeRead], wanted: &Wanted) -> PlanView {
    let first = probes.iter().find_map(|probe| pool_of(&probe.reading, wanted.pool.as_deref()));
    let history = first.map(|(host, _)| &host.trace.history);
    let outside = beside_pools(plan, probes, wanted);
    let mut doubts: Vec<Doubt> = Vec::new();
    let mut unknowns = Vec::new();
    let mut predictions = Vec::new();
    let largest = wanted.limit.map(|limit| plan.largest(limit, wanted.steps));
    let mut batches = wanted.batches.clone();
    if batches.is_empty() {
        batches
            .extend(largest.and_then(|largest| largest.sure).or(plan.probes.last().map(|probe| probe.batch)));
    }
    for &batch in &batches {
        let Some(prediction) = plan.predict(batch, wanted.steps) else {
            doubts.push(Doubt::TooLarge(batch));
            continue;
        };
        let is_certain = add_doubts(plan, wanted, &prediction, &mut doubts);
        let fits =
            wanted.limit.and_then(|limit| plan.fits(batch, limit, wanted.steps)).filter(|_| is_certain);
        let shown = prediction_view(&prediction, plan.minimum(batch), fits, outside, is_certain);
        predictions.push(shown);
        if outside.is_none() {
            let path = format!("predictions[{}].process_bytes", predictions.len() - 1);
            unknowns.push(Unknown { path, reason: NOT_ASKED.to_owned(), switch: None });
        }
        if fits.is_none() {
            let reason = match wanted.limit {
                None => "no limit was given".to_owned(),
                Some(_) if !is_certain => "the plan is not certain; the warnings say why".to_owned(),
                Some(limit) => {
                    let chance = plan.chance(batch, limit, wanted.steps);
                    format!(
                        "{:.0} % of the orders pass two steps, {:.0} % of the runs all of them",
                        chance.short * 100.0,
                        chance.run * 100.0
                    )
                }
            };
            let path = format!("predictions[{}].fits", predictions.len() - 1);
            let switch = wanted.limit.is_none().then(|| "--limit 16GiB".to_owned());
            unknowns.push(Unknown { path, reason, switch });
        }
    }
    for (at, _) in predictions.iter().enumerate().filter(|(_, prediction)| prediction.minimum_bytes.is_none())
    {
        let reason = "no limit was found that it passes with".to_owned();
        unknowns.push(Unknown { path: format!("predictions[{at}].minimum_bytes"), reason, switch: None });
    }
    // What is called sure stands for itself, whatever else was asked for.
    let sure = largest.and_then(|largest| largest.sure);
    let is_sure = sure.is_some_and(|sure| match predictions.iter().find(|known| known.batch == sure) {
        Some(known) => known.certain,
        None => {
            let prediction = plan.predict(sure, wanted.steps);
            prediction.is_some_and(|prediction| add_doubts(plan, wanted, &prediction, &mut doubts))
        }
    });
    let largest_batch =
        LargestView { sure: sure.filter(|_| is_sure), likely: largest.and_then(|largest| largest.likely) };
    if largest_batch.sure.is_some() && largest_batch.likely > Some(plan.farthest()) {
        doubts.push(Doubt::Beyond(plan.farthest()));
    }
    let certain = !doubts.iter().any(Doubt::is_serious);
    for (path, value) in
        [("largest_batch.sure", largest_batch.sure), ("largest_batch.likely", largest_batch.likely)]
    {
        if value.is_none() {
            let reason = match wanted.limit {
                None => "no limit was given",
                Some(_) if sure.is_some() => "the plan is not certain; the warnings say why",
                Some(_) if plan.compiled_batches().is_some() && largest_batch.likely.is_some() => {
                    "no batch that was compiled is sure to fit; others are not known"
                }
                Some(_) if largest_batch.likely.is_some() => {
                    "some of the runs fail at any batch, or leave no room for orders that no probe has shown"
                }
                Some(_) => "not even a batch of one fits",
            };
            let switch = wanted.limit.is_none().then(|| "--limit 16GiB".to_owned());
            unknowns.push(Unknown { path: path.to_owned(), reason: reason.to_owned(), switch });
        }
    }
    if wanted.limit.is_none() {
        let switch = Some("--limit 16GiB".to_owned());
        unknowns.push(Unknown {
            path: "limit_bytes".to_owned(),
            reason: "none was given".to_owned(),
            switch,
        });
    }
    if outside.is_none() {
        let path = "outside_bytes".to_owned();
        unknowns.push(Unknown { path, reason: NOT_ASKED.to_owned(), switch: None });
    }
    let mut warnings = Warnings::default();
    for doubt in &doubts {
        warnings.add(doubt.code(), doubt.text(), doubt.hint());
    }
    let framework = history.and_then(|history| history.framework).map(Framework::word);
    if framework.is_none() {
        let reason = "the traces do not tell".to_owned();
        unknowns.push(Unknown { path: "framework".to_owned(), reason, switch: None });
    }
    let fixes = match predictions.first() {
        Some(first) if wanted.fixes => {
            let fitting = largest.and_then(|largest| largest.sure);
            fix_views(plan, wanted, first, fitting, history.and_then(|history| history.framework))
        }
        _ => Vec::new(),
    };
    for (at, fix) in fixes.iter().enumerate() {
        unknowns.extend(fix_unknowns(at, fix, wanted.limit.is_some()));
    }
    let mut shown = PlanView {
        kind: "plan",
        verdict: String::new(),
        variable: wanted.variable.clone(),
        framework,
        pool: first
            .and_then(|(host, pool)| host.trace.history.pool(pool.id))
            .map_or(String::new(), |pool| pool.name.clone()),
        device: first.map_or(String::new(), |(host, pool)| host.trace.device_of(pool)),
        steps: wanted.steps,
        limit_bytes: wanted.limit,
        outside_bytes: outside,
        certain,
        probes: probe_views(plan, probes, &mut unknowns),
        compiled: compiled_views(&plan.compiled, wanted.limit, &mut unknowns),
        predictions,
        largest_batch,
        fixes,
        no_help: NO_HELP,
        curve: if wanted.curve { curve(plan, wanted, &batches, largest) } else { Vec::new() },
        not_modelled: not_modelled(framework, outside.is_some()),
        warnings: warnings.into_vec(),
        unknowns,
    };
    shown.verdict = verdict(&shown);
    shown
}

/// Adds what makes a prediction uncertain; whether it is certain nevertheless.
fn add_doubts(plan: &Plan, wanted: &Wanted, prediction: &Prediction, doubts: &mut Vec<Doubt>) -> bool {
    let mut new = plan.doubts(prediction.batch, prediction.exact_share());
    if wanted.variable == "batch" {
        new.extend(plan.not_in_shapes());
    }
    let is_certain = !new.iter().any(Doubt::is_serious);
    for doubt in new {
        if !doubts.contains(&doubt) {
            doubts.push(doubt);
        }
    }
    is_certain
}

/// What does not belong into the table of fixes, and why.
const NO_HELP: &str = "Pruning and quantization make a trained model smaller; while it trains they save next to nothing, and \
    quantization-aware training costs more.";

fn fix_views(
    plan: &Plan,
    wanted: &Wanted,
    first: &PredictionView,
    fitting: Option<u64>,
    framework: Option<Framework>,
) -> Vec<FixView> {
    let view = |fixed: Fixed| {
        let join = |of: &dyn Fn(Fix) -> String, by: &str| {
            fixed.fixes.iter().map(|&fix| of(fix)).collect::<Vec<_>>().join(by)
        };
        let name = join(&|fix| fix.name().to_owned(), "+");
        let is_outside = fixed.fixes.iter().all(|fix| fix.is_from_outside());
        let braces = format!("{{{}}}", wanted.variable);
        let verify = format!("vramline verify --fix {name} --batch {} -- CMD {braces}", first.batch);
        let limit = wanted.limit;
        FixView {
            text: join(&Fix::text, "; "),
            batch: first.batch,
            saves_bytes: fixed.peak.map(|peak| first.peak_bytes.saturating_sub(peak)),
            peak_bytes: fixed.peak,
            pool_bytes: fixed.pool,
            // The peak alone: how much a limit has to leave for pieces is not known with it.
            fits: fixed.peak.zip(limit).and_then(|(peak, limit)| (peak > limit).then_some(false)),
            time_ratio: fixed.time_ratio,
            snippet: join(&|fix| fix.snippet(framework), "; "),
            verify: is_outside.then_some(verify),
            name,
        }
    };
    let views = plan.fixes(first.batch, fitting, wanted.steps).into_iter().map(view);
    // Those that make nothing less are none.
    let saves = |fix: &FixView| {
        fix.saves_bytes != Some(Bytes::ZERO) || fix.pool_bytes.is_none_or(|pool| pool < first.pool_bytes)
    };
    views.filter(saves).collect()
}

impl PlanView {
    /// What a fix saves, in words: off the peak, or of what the pool takes where only that becomes less.
    #[must_use]
    pub fn saving(&self, fix: &FixView) -> String {
        let pool = self.predictions.iter().find(|prediction| prediction.batch == fix.batch);
        let pool = pool.map(|prediction| prediction.pool_bytes);
        match (fix.saves_bytes, pool.zip(fix.pool_bytes)) {
            (Some(Bytes::ZERO), Some((before, after))) => {
                format!("{} of the pool", before.saturating_sub(after))
            }
            // Nothing to speak of, and what the pool takes is not known.
            (None | Some(Bytes::ZERO), _) => "measure".to_owned(),
            (Some(saves), _) => saves.to_string(),
        }
    }
}

fn fix_unknowns(at: usize, fix: &FixView, has_limit: bool) -> Vec<Unknown> {
    let measured = "requests do not tell what it would do: it is to be measured";
    let fits = if has_limit {
        "how much a limit has to leave for holes is known once it is measured"
    } else {
        "no limit was given"
    };
    let untimed = "the probes do not tell what it costs in time";
    let nulls = [
        ("saves_bytes", fix.saves_bytes.is_none(), measured),
        ("peak_bytes", fix.peak_bytes.is_none(), measured),
        ("pool_bytes", fix.pool_bytes.is_none(), measured),
        ("fits", fix.fits.is_none(), if fix.peak_bytes.is_none() { measured } else { fits }),
        ("time_ratio", fix.time_ratio.is_none(), untimed),
        ("verify", fix.verify.is_none(), "it is a change of the code"),
    ];
    let unknown = |(field, _, reason): (&str, bool, &str)| Unknown {
        path: format!("fixes[{at}].{field}"),
        reason: reason.to_owned(),
        switch: fix.verify.clone(),
    };
    nulls.into_iter().filter(|(_, is_null, _)| *is_null).map(unknown).collect()
}

/// Memory from the smallest probe to beyond whatever was asked for, in even steps.
fn curve(plan: &Plan, wanted: &Wanted, batches: &[u64], largest: Option<Largest>) -> Vec<CurvePoint> {
    const POINTS: u64 = 16;
    let smallest = plan.probes.first().map_or(1, |probe| probe.batch);
    let likely = largest.and_then(|largest| largest.likely).map(|likely| likely.saturating_add(likely / 4));
    let last = batches.iter().copied().chain(likely).chain(plan.probes.last().map(|probe| probe.batch)).max();
    let last = last.unwrap_or(smallest);
    let step = last.saturating_sub(smallest).div_ceil(POINTS).max(1);
    let mut wanted_batches: Vec<u64> =
        (0..=POINTS).map(|at| smallest.saturating_add(at.saturating_mul(step))).collect();
    wanted_batches.extend_from_slice(batches);
    wanted_batches.sort_unstable();
    wanted_batches.dedup();
    let point = |batch: u64| {
        let Prediction { peak, low, high, .. } = plan.predict(batch, wanted.steps)?;
        Some(CurvePoint { batch, peak_bytes: peak, low_bytes: low, high_bytes: high })
    };
    wanted_batches.into_iter().filter_map(point).collect()
}

/// Why nothing is known of what a process holds beside its pool.
const NOT_ASKED: &str = "no probe is a recording of a GPU whose driver told what the process holds";

/// What the job holds beside its pool: the most that the driver counted for it, without the most that its pool had taken. Of the largest
/// probe that tells; neither goes down in a short run.
fn beside_pools(plan: &Plan, probes: &[ProbeRead], wanted: &Wanted) -> Option<Bytes> {
    let of = |(probe, ran): (&ProbeRead, &Probe)| {
        let (host, pool) = pool_of(&probe.reading, wanted.pool.as_deref())?;
        let device = host.trace.device_of(pool);
        let number = device.strip_prefix("GPU:")?.parse().ok()?;
        let recorded = probe.reading.recorded.as_ref()?;
        let uuid = ledger::uuid_of(recorded.manifest.as_ref()?, number)?;
        let is_it = |row: &&DriverRow| {
            row.subject == Subject::Process && row.is_job == Some(true) && row.device == uuid
        };
        let held = recorded.driver.iter().filter(is_it).filter_map(|row| row.used).max()?;
        held.0.checked_sub(ran.ran.exact.pool.0).map(Bytes)
    };
    let mut order: Vec<&ProbeRead> = probes.iter().collect();
    order.sort_by_key(|probe| probe.batch);
    order.into_iter().zip(&plan.probes).rev().find_map(of)
}

fn prediction_view(
    prediction: &Prediction,
    minimum: Option<Bytes>,
    fits: Option<bool>,
    outside: Option<Bytes>,
    certain: bool,
) -> PredictionView {
    let part = |part: &PartPeak| {
        let [low_bytes, median_bytes, high_bytes] = part.range;
        PartView { part: part.part.word(), low_bytes, median_bytes, high_bytes }
    };
    let [pool_low_bytes, pool_bytes, pool_high_bytes] = prediction.pool;
    PredictionView {
        batch: prediction.batch,
        peak_bytes: prediction.peak,
        low_bytes: prediction.low,
        high_bytes: prediction.high,
        pool_bytes,
        pool_low_bytes,
        pool_high_bytes,
        process_bytes: outside.map(|outside| outside + pool_bytes),
        minimum_bytes: minimum,
        certain,
        fits,
        exact_share: (prediction.exact_share() * 1e6).round() / 1e6,
        bases: Basis::ALL.iter().map(|&basis| (basis.word(), of(&prediction.bases, basis))).collect(),
        by_role: Role::ALL.iter().map(|&role| (role.word(), of(&prediction.roles, role))).collect(),
        slack_bytes: prediction.slack,
        parts: prediction.parts.iter().map(part).collect(),
    }
}

/// The bytes of a kind; those that are not there hold nothing.
fn of<Kind: PartialEq + Copy>(all: &[(Kind, Bytes)], kind: Kind) -> Bytes {
    all.iter().filter(|(other, _)| *other == kind).map(|(_, bytes)| *bytes).sum()
}

fn probe_views(plan: &Plan, probes: &[ProbeRead], unknowns: &mut Vec<Unknown>) -> Vec<ProbeView> {
    let mut order: Vec<&ProbeRead> = probes.iter().collect();
    order.sort_by_key(|probe| probe.batch);
    let views = order.iter().zip(&plan.probes).enumerate().map(|(at, (read, probe))| {
        if probe.ran.from_start.is_none() {
            let reason = "the trace does not tell".to_owned();
            unknowns.push(Unknown { path: format!("probes[{at}].from_start"), reason, switch: None });
        }
        ProbeView {
            batch: probe.batch,
            file: read.file.clone(),
            steps: probe.steps,
            exact: probe.ran.is_exact(),
            from_start: probe.ran.from_start,
            peak_bytes: probe.ran.exact.peak,
        }
    });
    views.collect()
}

fn compiled_views(
    compiled: &[Compiled],
    limit: Option<Bytes>,
    unknowns: &mut Vec<Unknown>,
) -> Vec<CompiledView> {
    // Of one batch the last, as in the plan.
    let all: BTreeMap<u64, &Compiled> = compiled.iter().map(|one| (one.batch, one)).collect();
    let all = all.into_values();
    let largest = all.filter_map(|one| Some((one, one.largest()?)));
    let mut views = Vec::new();
    for (at, (one, (program, taken))) in largest.enumerate() {
        let fits = limit.and_then(|limit| (taken > limit).then_some(false));
        if fits.is_none() {
            let (reason, switch) = match limit {
                None => ("no limit was given", Some("--limit 16GiB".to_owned())),
                Some(_) => ("what the process takes beside the program is not known from it", None),
            };
            let path = format!("compiled[{at}].fits");
            unknowns.push(Unknown { path, reason: reason.to_owned(), switch });
        }
        views.push(CompiledView {
            batch: one.batch,
            file: one.file.clone(),
            program: program.name.clone(),
            argument_bytes: program.total(|purpose| matches!(purpose, Purpose::Parameter { .. })),
            result_bytes: program.total(|purpose| *purpose == Purpose::Output),
            temporary_bytes: program.total(|purpose| *purpose == Purpose::Temporary),
            constant_bytes: program.total(|purpose| *purpose == Purpose::Constant),
            peak_bytes: taken,
            fits,
        });
    }
    views
}

/// The document of compiled programs alone, without any run: what a step takes while it runs, and no more than that.
#[must_use]
pub fn of_compiled(compiled: &[Compiled], wanted: &Wanted) -> PlanView {
    let mut unknowns = Vec::new();
    let compiled = compiled_views(compiled, wanted.limit, &mut unknowns);
    let framework = compiled.iter().all(|one| one.program.starts_with("jit_")).then_some(Framework::Jax);
    let no_limit = wanted.limit.is_none().then_some(("limit_bytes", "none was given"));
    let no_framework = framework.is_none().then_some(("framework", "the programs do not tell"));
    let largest = "there is no run to tell what the process takes beside the program";
    let nulls =
        [("largest_batch.sure", largest), ("largest_batch.likely", largest), ("outside_bytes", NOT_ASKED)];
    for (path, reason) in nulls.into_iter().chain(no_limit).chain(no_framework) {
        let switch = (path == "limit_bytes").then(|| "--limit 16GiB".to_owned());
        unknowns.push(Unknown { path: path.to_owned(), reason: reason.to_owned(), switch });
    }
    let mut warnings = Warnings::default();
    warnings.add(
        "step-only",
        "these are the compiled program's own bytes: what else the process holds is not in them, and XLA may take more while it compiles and tries algorithms".to_owned(),
        "where the pool can be traced, probes of the same job tell the rest: vramline plan -- CMD {batch}",
    );
    let mut shown = PlanView {
        kind: "plan",
        verdict: String::new(),
        variable: wanted.variable.clone(),
        framework: framework.map(Framework::word),
        pool: String::new(),
        device: String::new(),
        steps: wanted.steps,
        limit_bytes: wanted.limit,
        outside_bytes: None,
        certain: false,
        probes: Vec::new(),
        compiled,
        predictions: Vec::new(),
        largest_batch: LargestView::default(),
        fixes: Vec::new(),
        no_help: NO_HELP,
        curve: Vec::new(),
        not_modelled: not_modelled(None, false),
        warnings: warnings.into_vec(),
        unknowns,
    };
    shown.verdict = verdict(&shown);
    shown
}

/// The answer from compiled programs alone.
fn compiled_verdict(shown: &PlanView) -> String {
    let Some(last) = shown.compiled.last() else { return "Nothing was asked for.".to_owned() };
    let about = format!(
        "The compiled program at {} {} takes {}: {} of arguments, {} of results, {} while it runs",
        shown.variable,
        last.batch,
        last.peak_bytes,
        last.argument_bytes,
        last.result_bytes,
        last.temporary_bytes
    );
    match (last.fits, shown.limit_bytes) {
        (Some(false), Some(limit)) => {
            format!("{about}. It does not fit {limit}, {} more.", last.peak_bytes.saturating_sub(limit))
        }
        _ => format!("{about}. The process takes more than that."),
    }
}

/// What no replay of requests can know.
fn not_modelled(framework: Option<&str>, knows_process: bool) -> Vec<String> {
    let process = "what the process holds beside its pool: contexts, code, other libraries";
    let all = [
        (
            Some("tensorflow"),
            "parts of the run that the probes did not reach, such as validation or checkpoints",
        ),
        (
            Some("tensorflow"),
            "orders of ops that no probe has shown; a limit may also push the executor into leaner ones",
        ),
        (Some("pytorch"), "scratch that cuDNN and cuBLAS choose by the size of the problem"),
        (
            Some("pytorch"),
            "parts of the run that the probes did not reach, such as validation or checkpoints",
        ),
        (
            Some("jax"),
            "programs are compiled anew for another batch; compile at the batch in question to know",
        ),
    ];
    let of_framework = all.into_iter().filter(|(of, _)| *of == framework).map(|(_, text)| text);
    let process = (!knows_process).then_some(process);
    process.into_iter().chain(of_framework).map(str::to_owned).collect()
}

/// The answer in a sentence.
fn verdict(shown: &PlanView) -> String {
    let name = &shown.variable;
    let Some(first) = shown.predictions.first() else { return compiled_verdict(shown) };
    let others = shown.predictions.get(1..).unwrap_or_default();
    let about = format!("{name} {} takes about {}", first.batch, first.peak_bytes);
    let Some(limit) = shown.limit_bytes else {
        let about = format!("{about} in use at its peak ({} to {})", first.low_bytes, first.high_bytes);
        let more: String =
            others.iter().map(|other| format!(", {} about {}", other.batch, other.peak_bytes)).collect();
        let unsure = all_of(&shown.predictions, |each| !each.certain);
        return match unsure {
            None => format!("{about}{more}."),
            Some(_) if others.is_empty() => {
                format!("Not certain: {about}, but the plan rests on too little; see below.")
            }
            Some(unsure) => format!("{about}{more}. Not certain: {unsure}; see below."),
        };
    };
    let beyond =
        |bytes: Bytes| if bytes > limit { bytes.saturating_sub(limit) } else { limit.saturating_sub(bytes) };
    let minimum = first.minimum_bytes.unwrap_or(first.high_bytes);
    let mut told = match first.fits {
        Some(true) if minimum > limit => format!(
            "{name} {} fits {limit}: nearly every run passes. To pass in every order, and without waiting, it needs {minimum}.",
            first.batch,
        ),
        Some(true) => format!(
            "{name} {} fits {limit}: it needs {minimum}, which leaves {}.",
            first.batch,
            beyond(minimum)
        ),
        Some(false) => format!(
            "{name} {} does not fit {limit}: it needs {minimum}, {} more.",
            first.batch,
            beyond(minimum)
        ),
        None if first.certain => format!(
            "{name} {} is at the edge of {limit}: it needs {minimum} to pass every time, {about_short}.",
            first.batch,
            about_short =
                format_args!("and takes {} to {} where there is room", first.low_bytes, first.high_bytes)
        ),
        None => format!("Not certain: {about}, but the plan rests on too little; see below."),
    };
    if let Some(fitting) = all_of(others, |each| each.fits == Some(true)) {
        let _ = write!(told, " Fits: {fitting}.");
    }
    if let Some(failing) = all_of(others, |each| each.fits == Some(false)) {
        let _ = write!(told, " Does not fit: {failing}.");
    }
    if let Some(at_edge) = all_of(others, |each| each.fits.is_none() && each.certain) {
        let _ = write!(told, " At the edge: {at_edge}.");
    }
    if let Some(unsure) = all_of(others, |each| !each.certain) {
        let _ = write!(told, " Not certain: {unsure}.");
    }
    told
}

/// The batches of which something holds; `None` where there are none.
fn all_of(predictions: &[PredictionView], is_it: impl Fn(&PredictionView) -> bool) -> Option<String> {
    let batches: Vec<String> =
        predictions.iter().filter(|each| is_it(each)).map(|each| each.batch.to_string()).collect();
    (!batches.is_empty()).then(|| batches.join(", "))
}
