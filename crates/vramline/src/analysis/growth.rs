//! What is known of memory that grows: steps with their fits and traces of functions, variables over time, and what stays in traces.

use std::collections::BTreeMap;

use super::process::{PoolStep, ProcessStory};
use super::reading::Reading;
use super::report::PoolAnalysis;
use crate::advise::{
    Churn, ChurningOp, GrowingOp, KeptVariables, Stayed, StepFigures, Survivor, VariableCount, WindowGrowth,
};
use crate::recording::reader::RecordedProcess;
use crate::recording::rows::{Inventory, Mark, RecordedMarkKind, Variable};
use crate::snapshot::Role;
use crate::trace::recorded::{self, RecordedStep};
use crate::trace::{Phase, PoolTrace, StayedBlocks, StepBegins, Surviving, Trace};
use crate::units::{Bytes, Picos};

/// What the rules about growth ask for.
#[derive(Default)]
pub(super) struct GrowthFigures {
    pub(super) steps: Vec<StepFigures>,
    pub(super) survivors: Vec<Survivor>,
    pub(super) stayed: Vec<Stayed>,
    pub(super) kept: Vec<KeptVariables>,
    pub(super) variables: Vec<VariableCount>,
    pub(super) retraced: Vec<(String, u64)>,
    pub(super) window: Option<WindowGrowth>,
    pub(super) growing: Vec<GrowingOp>,
    pub(super) churn: Option<Churn>,
}

impl GrowthFigures {
    pub(super) fn of(pool: &PoolAnalysis, steps: &[&PoolStep], reading: &Reading) -> GrowthFigures {
        let mut figures = GrowthFigures {
            steps: steps.iter().map(|step| step_figures(step)).collect(),
            ..GrowthFigures::default()
        };
        if let Some((number, process)) = process_of(pool, reading) {
            let trace = reading.host_of(number).map(|(_, host)| &host.trace);
            figures.add_recorded(pool, &ProcessStory::of(process, trace));
            figures.add_variables(pool, process);
        }
        for (place, (trace, of_trace)) in traces_of(pool, reading).into_iter().enumerate() {
            // The first step of the first trace builds what the others use.
            figures.add_window(trace, of_trace, usize::from(place == 0), steps);
        }
        figures.add_patterns(pool);
        figures
    }

    /// What only a recording tells of steps.
    fn add_recorded(&mut self, pool: &PoolAnalysis, story: &ProcessStory<'_>) {
        let is_of_pool =
            |step: &RecordedStep| story.pools.get(&step.device).unwrap_or(&step.device) == &pool.name;
        let recorded: Vec<RecordedStep> =
            recorded::steps(story.process, &[]).into_iter().filter(is_of_pool).collect();
        // Without announced steps those of the trace stand there.
        if recorded.len() != self.steps.len() {
            return;
        }
        let retraces = retraces(story.process);
        let mut traced: BTreeMap<&str, u64> = BTreeMap::new();
        let mut next = 0;
        for (figures, step) in self.steps.iter_mut().zip(&recorded) {
            figures.highest = step.highest;
            while let Some((_, function)) = retraces.get(next).filter(|(time, _)| *time <= step.end.monotonic)
            {
                figures.retraces += 1;
                *traced.entry(function).or_default() += 1;
                next += 1;
            }
        }
        self.retraced = traced.into_iter().map(|(name, times)| (name.to_owned(), times)).collect();
        self.retraced.sort_by_key(|(_, times)| std::cmp::Reverse(*times));
    }

    /// What became more between two lists of variables: the first after the steps that build what others use, and the longest since. At the
    /// end of a program its variables may be gone.
    fn add_variables(&mut self, pool: &PoolAnalysis, process: &RecordedProcess) {
        // PyTorch's gradients come and go in every step.
        let is_here = |variable: &&Variable| {
            let is_gradient = variable.role == Role::Gradients;
            !is_gradient && variable.device.as_ref().is_none_or(|device| *device == pool.device)
        };
        let count = |inventory: &Inventory| {
            let here = inventory.variables.iter().filter(is_here);
            let bytes = here.clone().map(|variable| variable.bytes).sum();
            VariableCount { count: here.count() as u64, bytes }
        };
        let built = built_at(process);
        let mut later = process.inventories.iter().filter(|taken| taken.time.monotonic >= built);
        let Some(first) = later.next() else { return };
        self.variables.push(count(first));
        let Some(longest) = later.max_by_key(|taken| count(taken).count) else { return };
        self.variables.push(count(longest));
        let families = |inventory: &Inventory| {
            let mut families: BTreeMap<(String, String), Family> = BTreeMap::new();
            for variable in inventory.variables.iter().filter(is_here) {
                let (dtype, shape) = (variable.dtype.as_deref(), variable.shape.as_deref());
                let kind = format!("{}{}", dtype.unwrap_or_default(), shape.unwrap_or_default());
                families.entry((family_of(&variable.name), kind)).or_default().add(variable);
            }
            families
        };
        let (before, after) = (families(first), families(longest));
        for ((family, kind), now) in after {
            let then = before.get(&(family.clone(), kind.clone())).map_or(0, |then| then.count);
            // What came once is new, and not more of the same.
            if now.count <= then || now.count < 2 {
                continue;
            }
            let name = if now.has_one_name { &now.name } else { &family };
            self.kept.push(KeptVariables {
                what: format!("{name} {kind}").trim_end().to_owned(),
                before: then,
                after: now.count,
                bytes: Bytes(now.bytes.0 / now.count * (now.count - then)),
            });
        }
        self.kept.sort_by_key(|kept| std::cmp::Reverse(kept.bytes));
    }

    /// What stays in a trace. Of several the last that shows something stands: the first is of steps that still build what others use.
    fn add_window(&mut self, trace: &Trace, of_trace: &PoolTrace, building: usize, steps: &[&PoolStep]) {
        let events = &trace.history.events;
        let (begin, end) = (of_trace.time(events, 0), of_trace.last_time(events));
        let origin = trace.history.origin.0;
        let begins = steps
            .iter()
            .map(|step| Picos(step.begin.0.saturating_sub(origin).saturating_mul(1000)))
            .filter(|at| (begin..end).contains(at))
            .collect();
        let steps = StepBegins { begins, building };
        let survivors = trace.survivors(of_trace, &steps);
        if !survivors.is_empty() {
            let survivor = |survivor: &Surviving| Survivor {
                op: survivor.what(&trace.history.names),
                kind: survivor.kind,
                bytes_a_step: survivor.bytes_a_step,
            };
            self.survivors = survivors.iter().map(survivor).collect();
        }
        let stayed = trace.stayed(of_trace, &steps);
        if !stayed.is_empty() {
            let named = |blocks: StayedBlocks| {
                let op = Some(trace.history.names.get(blocks.op)).filter(|op| !op.is_empty());
                let op = op.unwrap_or("an unnamed op").to_owned();
                Stayed { op, kind: blocks.kind, bytes: blocks.bytes }
            };
            self.stayed = stayed.into_iter().map(named).collect();
        }
        if let Some((steps, grown, kept)) = trace.growth_over(of_trace, &steps) {
            self.window = Some(WindowGrowth { steps, grown, kept });
        }
    }

    fn add_patterns(&mut self, pool: &PoolAnalysis) {
        let Some(patterns) = &pool.patterns else { return };
        let growing = patterns.growing.iter().map(|op| {
            let (first, last) = op.first_and_last;
            GrowingOp { op: op.op.clone(), steps: op.steps, first, last }
        });
        self.growing = growing.collect();
        let ops = patterns.churning.iter().map(|op| ChurningOp {
            op: op.op.clone(),
            sizes: op.sizes,
            smallest: op.smallest,
            largest: op.largest,
        });
        self.churn =
            patterns.pool.zip(patterns.padded_pool).filter(|_| patterns.churning_ops > 0).map(
                |(pool, padded)| Churn { count: patterns.churning_ops, ops: ops.collect(), pool, padded },
            );
    }
}

/// The process of a pool, and its number: that of its trace, else the one that counted it.
fn process_of<'a>(pool: &PoolAnalysis, reading: &'a Reading) -> Option<(usize, &'a RecordedProcess)> {
    let processes = &reading.recorded.as_ref()?.processes;
    if let Some(number) = pool.trace_in(reading).and_then(|(host, _)| host.process) {
        return Some((number, processes.get(number)?));
    }
    let is_it = |process: &RecordedProcess| {
        Some(u64::from(process.id.pid())) == pool.pid && process.id.host() == pool.host
    };
    processes.iter().enumerate().find(|(_, process)| is_it(process))
}

/// The traces of a pool, in order.
fn traces_of<'a>(pool: &PoolAnalysis, reading: &'a Reading) -> Vec<(&'a Trace, &'a PoolTrace)> {
    let alone = || pool.trace_in(reading).map(|(host, of_trace)| (&host.trace, of_trace));
    let Some((number, _)) = process_of(pool, reading) else { return alone().into_iter().collect() };
    let of_pool = |trace: &'a Trace| {
        // Those with the highest peaks come first.
        let mut pools = trace.pools.iter();
        Some((trace, pools.find(|of_trace| trace.device_of(of_trace) == pool.device)?))
    };
    reading.windows_of(number).into_iter().filter_map(|window| of_pool(window.trace)).collect()
}

/// When functions were traced again, and which.
fn retraces(process: &RecordedProcess) -> Vec<(i64, &str)> {
    let marks = process.marks.iter().filter(|mark| mark.kind == RecordedMarkKind::Retrace);
    marks.map(|mark| (mark.time.monotonic, mark.label.as_deref().unwrap_or("a function"))).collect()
}

pub(super) fn step_figures(step: &PoolStep) -> StepFigures {
    StepFigures {
        number: step.number,
        phase: step.phase,
        peak: step.peak,
        current: step.current,
        fit: step.fit,
        epoch: step.epoch,
        ..StepFigures::default()
    }
}

/// When the first steps, which build what others use, have ended.
fn built_at(process: &RecordedProcess) -> i64 {
    const BUILDING: usize = 2;
    let is_step = |mark: &&Mark| mark.kind == RecordedMarkKind::Step && mark.phase == Some(Phase::Train);
    let ends = process.marks.iter().filter(is_step).map(|mark| mark.time.monotonic);
    ends.take(BUILDING).last().unwrap_or(i64::MIN)
}

/// Variables with the same name, but for numbers, and shape.
#[derive(Default)]
struct Family {
    name: String,
    has_one_name: bool,
    count: u64,
    bytes: Bytes,
}

impl Family {
    fn add(&mut self, variable: &Variable) {
        if self.count == 0 {
            (self.name, self.has_one_name) = (variable.name.clone(), true);
        }
        self.has_one_name &= self.name == variable.name;
        self.count += 1;
        self.bytes += variable.bytes;
    }
}

/// `sequential_3/dense_7/kernel:0` -> `sequential/dense/kernel`
fn family_of(name: &str) -> String {
    let name = name.split_once(':').map_or(name, |(name, _)| name);
    // Of a slot the number is in the middle: `net_dense_1_kernel_momentum`.
    let is_word = |part: &&str| part.is_empty() || !part.bytes().all(|sign| sign.is_ascii_digit());
    let unnumbered = |part: &str| part.split('_').filter(is_word).collect::<Vec<_>>().join("_");
    name.split('/').map(unnumbered).collect::<Vec<_>>().join("/")
}
