//! Steps: the calls of the training program that a trace shows.
//!
//! Best evidence first: steps that the program numbered, or updates by its optimizer; calls of compiled TensorFlow functions; calls of the JAX
//! function that allocates the most; runs of the executor that have a backward part. A step reaches from its
//! beginning to the beginning of the next, because frees often come after the call has returned.

use rustc_hash::FxHashMap;

use super::op::Part;
use super::pairing::PoolTrace;
use super::role::Roles;
use crate::event::{Events, ExecutorRun, History, Mark, MarkKind};
pub use crate::event::{How, Phase};
use crate::names::Name;
use crate::units::{Bytes, Picos};

/// One call of the training program.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// Its number: the program's own, or counted from zero.
    pub number: i64,
    /// What is called.
    pub name: Name,
    /// When it begins.
    pub begin: Picos,
    /// When the call ends.
    pub end: Picos,
    /// Up to when memory counts as its own.
    pub until: Picos,
    /// What it did.
    pub phase: Phase,
    /// How it was found.
    pub how: How,
    /// Whether the trace ends in the middle of it.
    pub is_cut: bool,
}

/// A step's memory in one pool.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepUse {
    /// The step.
    pub step: Step,
    /// The most in use during the step.
    pub peak: Bytes,
    /// In use at its end.
    pub current: Bytes,
}

pub(crate) fn find(history: &History, roles: &Roles) -> Vec<Step> {
    let mut steps = marked(history).unwrap_or_else(|| from_runs(history, roles));
    // A step lasts until the next begins; the last one as long as its call.
    for at in 1..steps.len() {
        let next = steps.get(at).map(|step| step.begin);
        if let (Some(step), Some(next)) = (steps.get_mut(at - 1), next) {
            step.until = next;
        }
    }
    set_phases(&mut steps, history, roles);
    steps
}

/// Steps from marks, or `None` where there are none to go by.
fn marked(history: &History) -> Option<Vec<Step>> {
    let numbered: Vec<&Mark> =
        outermost(history, |mark| matches!(mark.kind, MarkKind::Step(_) | MarkKind::Update(_)));
    if !numbered.is_empty() {
        return Some(numbered.into_iter().map(|mark| step(mark, How::Trace)).collect());
    }
    let functions = outermost(history, |mark| mark.kind == MarkKind::Function);
    if !functions.is_empty() {
        return Some(count(functions.into_iter().map(|mark| step(mark, How::Trace)).collect()));
    }
    // Every op of JAX's NumPy is a compiled function; the one that allocates the most in its calls is the step.
    let jits = outermost(history, |mark| mark.kind == MarkKind::Jit);
    let mut taken: FxHashMap<Name, (u64, Bytes)> = FxHashMap::default();
    for (mark, bytes) in jits.iter().zip(allocated_during(&jits, history)) {
        let (calls, total) = taken.entry(mark.name).or_default();
        *calls += 1;
        *total += bytes;
    }
    let repeated = taken.into_iter().filter(|&(_, (calls, _))| calls > 1);
    let (largest, _) = repeated.max_by_key(|&(name, (_, total))| (total, name))?;
    let calls = jits.into_iter().filter(|mark| mark.name == largest);
    Some(count(calls.map(|mark| step(mark, How::Inferred)).collect()))
}

/// What was allocated during each of some marks, which are in order of time and do not overlap on a thread.
fn allocated_during(marks: &[&Mark], history: &History) -> Vec<Bytes> {
    let mut bytes = vec![Bytes::ZERO; marks.len()];
    for event in history.events.iter().filter(|event| event.is_alloc()) {
        let after = marks.partition_point(|mark| mark.begin <= event.time());
        let Some(at) = after.checked_sub(1) else { continue };
        if let (Some(mark), Some(sum)) = (marks.get(at), bytes.get_mut(at))
            && event.time() < mark.begin.after(mark.length)
        {
            *sum += event.size().unwrap_or_default();
        }
    }
    bytes
}

/// Marks that no other such mark of the same thread encloses. They are in order of time.
fn outermost(history: &History, wanted: impl Fn(&Mark) -> bool) -> Vec<&Mark> {
    let mut ends: FxHashMap<Name, Picos> = FxHashMap::default();
    let mut outermost = Vec::new();
    for mark in history.marks.iter().filter(|mark| wanted(mark)) {
        let end = ends.entry(mark.thread).or_insert(Picos(i64::MIN));
        if mark.begin >= *end {
            *end = mark.begin.after(mark.length);
            outermost.push(mark);
        }
    }
    outermost
}

fn step(mark: &Mark, how: How) -> Step {
    let number = if let MarkKind::Step(number) | MarkKind::Update(number) = mark.kind { number } else { 0 };
    Step {
        number,
        name: mark.name,
        begin: mark.begin,
        end: mark.begin.after(mark.length),
        until: mark.begin.after(mark.length),
        phase: if matches!(mark.kind, MarkKind::Update(_)) { Phase::Train } else { Phase::Other },
        how,
        is_cut: false,
    }
}

fn count(mut steps: Vec<Step>) -> Vec<Step> {
    steps.iter_mut().zip(0..).for_each(|(step, number)| step.number = number);
    steps
}

/// Steps from the executor's runs that have a backward part.
fn from_runs(history: &History, roles: &Roles) -> Vec<Step> {
    let training = roles.training_runs();
    let events = &history.events;
    let mut spans: FxHashMap<ExecutorRun, (Picos, Picos)> = FxHashMap::default();
    for event in events.iter() {
        if let Some(run) = event.executor_run()
            && training.contains(&run)
        {
            let time = event.time();
            spans.entry(run).and_modify(|span| span.1 = time).or_insert((time, time));
        }
    }
    let mut spans: Vec<(Picos, Picos)> = spans.into_values().collect();
    spans.sort_unstable();
    let step = |(begin, until)| Step {
        number: 0,
        name: Name::EMPTY,
        begin,
        end: until,
        until,
        phase: Phase::Train,
        how: How::Inferred,
        is_cut: false,
    };
    count(spans.into_iter().map(step).collect())
}

/// Finds out whether the trace ends in the middle of its last step, where only the events tell its end: the backward pass has begun,
/// no update by the optimizer has, and more of what the forward pass made is still there than the backward pass has consumed.
pub(crate) fn set_cut(steps: &mut [Step], history: &History, roles: &Roles, pools: &[PoolTrace]) {
    let Some(step) = steps.last_mut().filter(|step| step.how == How::Inferred && step.name.is_empty()) else {
        return;
    };
    let Some(backward) = roles.backward_within(step.begin, step.until) else { return };
    let events = &history.events;
    let (mut alive, mut consumed) = (Bytes::ZERO, Bytes::ZERO);
    for pool in pools {
        for life in pool.lives() {
            let born = events.time(life.birth);
            if born < step.begin || born > step.until {
                continue;
            }
            let event = events.at(life.birth);
            let freed = life.freed_at.map(|at| pool.time(events, at));
            match (roles.part(event.op()), freed) {
                (Part::Optimizer(_), _) if born >= backward && event.executor_run().is_some() => return,
                (Part::Forward, None) if event.executor_run().is_some() => {
                    alive += event.size().unwrap_or_default();
                }
                (Part::Forward, Some(freed)) if freed >= backward => {
                    consumed += event.size().unwrap_or_default();
                }
                _ => {}
            }
        }
    }
    step.is_cut = alive > consumed;
}

fn set_phases(steps: &mut [Step], history: &History, roles: &Roles) {
    let events = &history.events;
    for step in steps.iter_mut().filter(|step| step.phase == Phase::Other) {
        let during = (events.first_from(step.begin)..events.len()).map(|i| events.at(i));
        let mut during = during.take_while(|event| event.time() < step.until);
        if during.any(|event| event.is_alloc() && roles.trains(event.op())) {
            step.phase = Phase::Train;
        }
    }
}

/// The memory of steps in a pool, while the pool's events go by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Uses {
    /// The peak and the final figure of each step that has ended.
    ended: Vec<(Bytes, Bytes)>,
    /// In use before the next event.
    current: Bytes,
    /// The most in use so far in the step that runs, if one does.
    peak: Option<Bytes>,
}

impl Uses {
    /// Nothing has happened yet, and so much is in use.
    pub(crate) fn begin(&mut self, before: Bytes) {
        self.current = before;
    }

    /// An event at `time` left `level` in use.
    #[inline]
    pub(crate) fn take(&mut self, steps: &[Step], time: Picos, level: Bytes) {
        while let Some(step) = steps.get(self.ended.len()) {
            if time < step.until {
                if time >= step.begin {
                    self.peak = Some(self.peak.unwrap_or(self.current).max(level));
                }
                break;
            }
            self.end_step();
        }
        self.current = level;
    }

    #[cold]
    fn end_step(&mut self) {
        self.ended.push((self.peak.take().unwrap_or(self.current), self.current));
    }

    /// The peak and final figure of each step.
    pub(crate) fn of(&self, steps: &[Step]) -> Vec<StepUse> {
        let last = (self.peak.unwrap_or(self.current), self.current);
        // After the last event nothing changes any more.
        let after = std::iter::repeat((self.current, self.current));
        let uses = self.ended.iter().copied().chain([last]).chain(after);
        steps.iter().zip(uses).map(|(&step, (peak, current))| StepUse { step, peak, current }).collect()
    }
}

/// The memory of any steps in a pool.
pub(crate) fn uses(steps: &[Step], pool: &PoolTrace, events: &Events) -> Vec<StepUse> {
    let mut uses = Uses::default();
    uses.begin(pool.count.before);
    pool.levels(events).for_each(|(time, level)| uses.take(steps, time, level));
    uses.of(steps)
}
