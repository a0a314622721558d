//! What a recording adds to a trace: steps with names and numbers, and whose memory a block is.
//!
//! A step of a recording has the counters of its end. Its own peak is known in two ways, best first: from the trace, where that
//! covers the step, and from the framework, where its peak was reset when the step began. Otherwise it is not known: the peak of
//! the whole process may have risen in the step or just before it.

use rustc_hash::{FxHashMap, FxHashSet};

use super::owners::{Identity, LayerNames, Owner};
use super::step::{self, How, Phase, Step};
use super::{PoolTrace, Trace};
use crate::event::{Dtype, History};
use crate::names::Name;
use crate::recording::fits::{Fit, fit_of};
use crate::recording::reader::RecordedProcess;
use crate::recording::rows::{Counters, Inventory, Mark, Moment, RecordedMarkKind, Variable};
use crate::recording::windows::RecordedWindow;
use crate::snapshot::{Held, Role};
use crate::units::{Bytes, Nanos, Picos};

/// A step or epoch on one device.
#[derive(Clone, Debug)]
pub struct RecordedStep {
    /// The device; empty where no counters could be read.
    pub device: String,
    /// The number of its last batch, of the step, or of the epoch.
    pub number: i64,
    /// How many batches it ran.
    pub batches: u64,
    /// The fit it belongs to, from 1.
    pub fit: Option<u64>,
    /// The epoch it belongs to.
    pub epoch: Option<u64>,
    /// What it did.
    pub phase: Phase,
    /// How it is known.
    pub how: How,
    /// What was called.
    pub label: String,
    /// When it began; when it ended, where that is not known.
    pub begin: Moment,
    /// When it ended.
    pub end: Moment,
    /// The most in use during it.
    pub peak: Option<Bytes>,
    /// In use at its end.
    pub current: Option<Bytes>,
    /// The most in use up to its end, since the process began or somebody reset it.
    pub highest: Option<Bytes>,
}

/// A trace of a process, and when it lasted.
#[derive(Clone, Copy, Debug)]
pub struct TracedWindow<'a> {
    /// The trace.
    pub trace: &'a Trace,
    /// When it lasted.
    pub window: &'a RecordedWindow,
}

/// The steps of a process: those it announced; without any, the calls that train; without those, all calls.
#[must_use]
pub fn steps(process: &RecordedProcess, windows: &[TracedWindow<'_>]) -> Vec<RecordedStep> {
    let trains = |mark: &Mark| mark.phase == Some(Phase::Train);
    let within = api_steps(process);
    let is_announced = |mark: &Mark| mark.kind == RecordedMarkKind::Step && !is_within(&within, mark);
    let is_call = |mark: &Mark| mark.kind == RecordedMarkKind::Call;
    let is_step: &dyn Fn(&Mark) -> bool = if process.marks.iter().any(is_announced) {
        &is_announced
    } else if process.marks.iter().any(|mark| is_call(mark) && trains(mark)) {
        &|mark| is_call(mark) && trains(mark)
    } else {
        &is_call
    };
    spans(process, windows, is_step)
}

/// From when to when the steps lasted that the program itself announced, in order.
fn api_steps(process: &RecordedProcess) -> Vec<(i64, i64)> {
    let is_api = |mark: &&Mark| mark.kind == RecordedMarkKind::Step && mark.how == Some(How::Api);
    let span = |mark: &Mark| (mark.began().monotonic, mark.time.monotonic);
    let mut spans: Vec<(i64, i64)> = process.marks.iter().filter(is_api).map(span).collect();
    spans.sort_unstable();
    spans
}

/// Whether a step was only inferred, in a step that the program announced: the update of an optimizer in it.
fn is_within(announced: &[(i64, i64)], mark: &Mark) -> bool {
    let after = announced.partition_point(|&(begin, _)| begin <= mark.time.monotonic);
    let last = after.checked_sub(1).and_then(|last| announced.get(last));
    mark.how == Some(How::Inferred) && last.is_some_and(|&(_, end)| mark.time.monotonic <= end)
}

/// The epochs of a process.
#[must_use]
pub fn epochs(process: &RecordedProcess, windows: &[TracedWindow<'_>]) -> Vec<RecordedStep> {
    spans(process, windows, &|mark| mark.kind == RecordedMarkKind::Epoch)
}

fn spans(
    process: &RecordedProcess,
    windows: &[TracedWindow<'_>],
    is_span: &dyn Fn(&Mark) -> bool,
) -> Vec<RecordedStep> {
    let mut spans = Vec::new();
    let nothing = [Counters::default()];
    let mut last_mark = i64::MIN;
    let fits = process.fits();
    for mark in &process.marks {
        // A step without a number was not written by us; none is made up for it.
        if is_span(mark) && mark.step.or(mark.epoch).is_some() {
            let all = if mark.counters.is_empty() { &nothing[..] } else { &mark.counters };
            spans.extend(all.iter().map(|counters| span(mark, counters, last_mark, &fits)));
            last_mark = mark.time.monotonic;
        }
    }
    windows.iter().for_each(|window| trace_peaks(*window, &mut spans));
    spans
}

fn span(mark: &Mark, counters: &Counters, last_mark: i64, fits: &[Fit]) -> RecordedStep {
    let bytes = |value: i64| u64::try_from(value).ok().map(Bytes);
    let begin = mark.began();
    // A peak that was reset before the last such mark is older than this one.
    let is_reset = counters.peak_since.is_some_and(|since| since >= last_mark && since <= begin.monotonic);
    RecordedStep {
        device: counters.device.clone(),
        number: mark.step.or(mark.epoch).unwrap_or_default(),
        batches: mark.batches.and_then(|batches| u64::try_from(batches).ok()).unwrap_or(1),
        fit: fit_of(fits, begin.monotonic, mark.time.monotonic),
        epoch: mark.epoch.and_then(|epoch| u64::try_from(epoch).ok()),
        phase: mark.phase.unwrap_or(Phase::Other),
        how: mark.how.unwrap_or(How::Inferred),
        label: mark.label.clone().unwrap_or_default(),
        begin,
        end: mark.time,
        peak: counters.peak.filter(|_| is_reset).and_then(bytes),
        current: counters.current.and_then(bytes),
        highest: counters.peak.and_then(bytes),
    }
}

/// Takes the peaks of the steps that a trace covers from the trace.
fn trace_peaks(TracedWindow { trace, window }: TracedWindow<'_>, spans: &mut [RecordedStep]) {
    if trace.history.wall_clock_zero.is_none() {
        return;
    }
    let is_later = window.number > 1;
    let covers = |span: &RecordedStep| window.covers(span.begin.monotonic, span.end.monotonic);
    for pool in &trace.pools {
        let device = trace.device_of(pool);
        // A first window that lost its beginning does not know what it lost. A later one counts from what was there.
        if (pool.count.from_start != Some(true) && !is_later) || device.is_empty() {
            continue;
        }
        let mut covered: Vec<&mut RecordedStep> =
            spans.iter_mut().filter(|span| span.device == device && covers(span)).collect();
        covered.sort_by_key(|span| span.begin);
        let on_trace: Vec<Step> = covered
            .iter()
            .filter_map(|span| {
                Some(step_of(span, moment(&trace.history, span.begin)?, moment(&trace.history, span.end)?))
            })
            .collect();
        let used = step::uses(&on_trace, pool, &trace.history.events);
        for (span, used) in covered.into_iter().zip(used) {
            // What was counted at its end was in use in it, even where the two clocks differ by a moment.
            span.peak = Some(used.peak).max(span.current);
        }
    }
}

/// The steps that a process announced while it was traced, on the trace's axis. One whose begin is not known lasts since the last.
pub(super) fn announced(process: &RecordedProcess, history: &History, window: &RecordedWindow) -> Vec<Step> {
    let covers = |span: &&RecordedStep| match window.stopped {
        Some(_) => window.covers(span.begin.monotonic, span.end.monotonic),
        None => {
            window.begun.is_none_or(|begun| window.number == 1 || begun.monotonic <= span.begin.monotonic)
        }
    };
    let mut steps: Vec<Step> = Vec::new();
    for span in self::steps(process, &[]).iter().filter(covers) {
        let (Some(mut begin), Some(end)) = (moment(history, span.begin), moment(history, span.end)) else {
            continue;
        };
        // Of several devices each has its counters of the same step.
        if steps.last().is_some_and(|last| last.end >= end) {
            continue;
        }
        if let Some(last) = steps.last_mut() {
            begin = if begin == end { last.end } else { begin };
            last.until = begin;
        }
        steps.push(step_of(span, begin, end));
    }
    steps
}

fn step_of(span: &RecordedStep, begin: Picos, end: Picos) -> Step {
    let (number, phase, how) = (span.number, span.phase, span.how);
    Step { number, name: Name::EMPTY, begin, end, until: end, phase, how, is_cut: false }
}

/// A moment of a recording on a trace's axis.
#[must_use]
pub fn moment(history: &History, time: Moment) -> Option<Picos> {
    // Somebody may have set the wall clock meanwhile.
    let since = match history.monotonic_zero {
        Some(zero) => time.monotonic.checked_sub(zero.0)?,
        None => time.wall.checked_sub(history.wall_clock_zero?.0)?,
    };
    let nanos = since.checked_sub(history.origin.0)?;
    Some(Picos(nanos.saturating_mul(1000)))
}

/// A moment of a recording on the clock that a trace's times are told in.
#[must_use]
pub fn on_clock(history: &History, time: Moment) -> Option<Nanos> {
    moment(history, time).map(|time| time.on_clock(history.origin))
}

/// For each block that lay where a variable lay when the variables were listed: whose it is.
pub(crate) fn owned(
    inventory: &Inventory,
    layers: &LayerNames,
    history: &History,
    pools: &[PoolTrace],
) -> FxHashMap<usize, Owner> {
    let mut owned = FxHashMap::default();
    let Some(time) = moment(history, inventory.time) else { return owned };
    for pool in pools {
        let Some(position) = pool.position_at(&history.events, time) else { continue };
        let live: FxHashMap<u64, usize> = pool
            .live_at(position)
            .map(|birth| (history.events.at(birth).address(), birth))
            .filter_map(|(address, birth)| Some((address?, birth)))
            .collect();
        for variable in &inventory.variables {
            let Some(&birth) = variable.address.and_then(|address| live.get(&address)) else { continue };
            let is_large_enough = history.events.at(birth).size().is_some_and(|size| size >= variable.bytes);
            if is_large_enough {
                owned.insert(birth, owner_of(variable, layers));
            }
        }
    }
    owned
}

pub(super) fn owner_of(variable: &Variable, layers: &LayerNames) -> Owner {
    Owner {
        role: variable.role,
        variable: variable.name.clone(),
        layer: layers.show(&variable.layer),
        source: variable.source.clone().unwrap_or_default(),
        number: variable.number,
        bytes: Some(variable.bytes),
    }
}

/// What each variable is for, by the last inventory that lists it.
pub(crate) fn last_roles(process: &RecordedProcess, layers: &LayerNames) -> FxHashMap<Identity, Role> {
    let listed = process.inventories.iter().flat_map(|inventory| &inventory.variables);
    listed.map(|variable| (owner_of(variable, layers).identity(), variable.role)).collect()
}

const SECOND_COPY: &str = "a second value of a variable, about to be assigned or still read: more blocks of this size are in use than the program \
     lists";
const SUPERSEDED: &str = "an earlier value of a variable; an op still reads it";
const EARLIER_VALUE: &str = "an earlier value of a variable in the program's list";

/// The block that held the value of a listed variable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    pub(crate) role: Role,
    pub(crate) requested: Bytes,
    shape: Name,
    dtype: Dtype,
}

pub(crate) fn listed(owned: &FxHashMap<usize, Owner>, history: &History) -> Vec<Listed> {
    let block = |(&birth, owned): (&usize, &Owner)| {
        let event = history.events.at(birth);
        let requested = event.requested().or(event.size()).unwrap_or_default();
        Listed { role: owned.role, requested, shape: event.shape(), dtype: event.dtype() }
    };
    owned.iter().map(block).collect()
}

/// Of several blocks of one variable, the newest is its value; ops that still read an earlier one free it soon.
pub(crate) fn settle_by_variable(held: &mut [Held]) {
    let mut values: FxHashSet<Identity> = FxHashSet::default();
    // Oldest first, as they are held.
    for block in held.iter_mut().rev().filter(|block| !block.variable.is_empty()) {
        let variable = match block.variable_number {
            Some(number) => Identity::Number(number),
            None => Identity::Names(block.variable.clone(), block.layer.clone(), String::new()),
        };
        if !values.insert(variable) {
            (block.role, block.evidence) = (Role::Temporaries, SUPERSEDED);
        }
    }
}

/// Makes the roles agree with what the program lists. A variable has one value; while it is assigned there may be two blocks, and
/// a scalar's earlier value has no name that tells whose it is.
pub(crate) fn settle(held: &mut [Held], listed: &[Listed]) {
    let mut sizes: FxHashMap<(Role, Bytes), Vec<&Listed>> = FxHashMap::default();
    for variable in listed.iter().filter(|variable| variable.role != Role::Unknown) {
        sizes.entry((variable.role, variable.requested)).or_default().push(variable);
    }
    for (&(role, requested), variables) in &sizes {
        // Oldest first, as they are held.
        let same = held.iter_mut().filter(|block| block.role == role && block.requested == requested);
        for copy in same.skip(variables.len()) {
            (copy.role, copy.evidence) = (Role::Temporaries, SECOND_COPY);
        }
    }
    // A slot begins as a copy of its weights: what is too much of the one may be what is missing of the other.
    for ((role, requested), variables) in sizes {
        let same = held.iter().filter(|block| block.role == role && block.requested == requested);
        let mut missing = variables.len().saturating_sub(same.count());
        for block in held.iter_mut().filter(|block| block.requested == requested) {
            let is_like = |variable: &&Listed| (variable.shape, variable.dtype) == (block.shape, block.dtype);
            let is_free = matches!(block.role, Role::Unknown | Role::State) || block.evidence == SECOND_COPY;
            if missing > 0 && is_free && variables.iter().any(is_like) {
                (block.role, block.evidence) = (role, EARLIER_VALUE);
                missing -= 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::folder::ProcessId;

    fn step(number: i64, how: How, begin: i64, end: i64) -> Mark {
        Mark {
            kind: RecordedMarkKind::Step,
            step: Some(number),
            how: Some(how),
            phase: Some(Phase::Train),
            begin: Some(begin),
            time: Moment { monotonic: end, wall: end },
            ..Mark::default()
        }
    }

    #[test]
    fn an_update_in_a_step_of_the_program_is_no_step_of_its_own() {
        let mut process = RecordedProcess::new(ProcessId::new("host", 1, 2));
        process.marks = vec![
            step(0, How::Inferred, 5, 8),
            step(0, How::Inferred, 11, 18),
            step(100, How::Api, 10, 20),
            step(1, How::Inferred, 22, 28),
            step(101, How::Api, 21, 30),
            step(2, How::Inferred, 31, 38),
        ];
        let numbers: Vec<i64> = steps(&process, &[]).iter().map(|step| step.number).collect();
        assert_eq!(numbers, [0, 100, 101, 2]);
    }
}
