//! What an allocation is for, and what that judgement rests on.
//!
//! Three sorts of evidence, strongest first: the op's name and region, the thread, and the shape of the lifetime (made
//! in the forward part and freed in the backward part is an activation; alive across a whole step is state). The rules
//! stand in [`Roles::of`] in the order in which they are tried. Nothing is guessed from sizes.

use rustc_hash::{FxHashMap, FxHashSet};

use super::op::{Part, Update, part_of};
use super::pairing::PoolTrace;
use super::step::Step;
use crate::event::{History, Region};
use crate::names::Name;
use crate::snapshot::Role;
use crate::units::Picos;

/// What the whole history tells about roles.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    /// By [`Name`]; `None` for names that are no op's.
    parts: Vec<Option<Part>>,
    /// For each run of the executor that has a backward part: when that began, and when the run was last seen.
    training_runs: FxHashMap<i64, TrainingRun>,
    /// Optimizer scopes update the model by subtraction; where none does, by addition.
    subtracts: bool,
}

#[derive(Clone, Copy, Debug)]
struct TrainingRun {
    backward: Picos,
    last: Picos,
}

impl Roles {
    pub(crate) fn new(history: &History) -> Roles {
        let events = &history.events;
        let mut roles = Roles { parts: vec![None; history.names.len()], ..Roles::default() };
        let mut seen: FxHashMap<i64, Picos> = FxHashMap::default();
        let (mut last_run, mut last_time) = (0, Picos(0));
        for event in events.iter().filter(|event| event.is_alloc()) {
            let part = roles.learn(history, event.op());
            let run = event.run();
            if run == 0 {
                continue;
            }
            // Runs come in long stretches: only the last event of one matters.
            if run != last_run {
                seen.insert(last_run, last_time);
            }
            (last_run, last_time) = (run, event.time());
            if part == Part::Gradient {
                roles
                    .training_runs
                    .entry(run)
                    .or_insert(TrainingRun { backward: last_time, last: last_time });
            }
        }
        seen.insert(last_run, last_time);
        for (run, training) in &mut roles.training_runs {
            training.last = seen.get(run).copied().unwrap_or(training.last);
        }
        // An update in place allocates nothing, but the op ran and its time is known.
        for &op in history.op_times.keys() {
            roles.learn(history, op);
        }
        roles.subtracts = roles.parts.contains(&Some(Part::Optimizer(Update::AssignSub)));
        roles
    }

    fn learn(&mut self, history: &History, op: Name) -> Part {
        let part = || part_of(history.names.get(op));
        self.parts.get_mut(op.0 as usize).map_or(Part::Plain, |slot| *slot.get_or_insert_with(part))
    }

    pub(crate) fn part(&self, op: Name) -> Part {
        self.parts.get(op.0 as usize).copied().flatten().unwrap_or(Part::Plain)
    }

    /// Ops that only training programs run.
    pub(crate) fn trains(&self, op: Name) -> bool {
        matches!(self.part(op), Part::Gradient | Part::Optimizer(_))
    }

    /// Runs of the executor that have a backward part.
    pub(crate) fn training_runs(&self) -> FxHashSet<i64> {
        self.training_runs.keys().copied().collect()
    }

    /// The role of the block that event `birth` allocated, and the evidence.
    pub(crate) fn of(
        &self,
        history: &History,
        steps: &[Step],
        pool: &PoolTrace,
        birth: usize,
    ) -> (Role, &'static str) {
        let events = &history.events;
        let part = self.part(events.at(birth).op());
        let dtype = events.at(birth).dtype();
        let born = events.time(birth);
        let freed = pool.freed(events, birth);
        let run = self.training_runs.get(&events.at(birth).run());
        let outlives_run = run.is_some_and(|run| freed.is_none_or(|freed| freed > run.last));

        if dtype.is_handle() {
            return (Role::Unknown, "a handle to a variable, data set or iterator");
        }
        if history.names.get(events.at(birth).thread()).starts_with("tf_data_") {
            return (Role::Inputs, "allocated on a tf.data thread");
        }
        match part {
            Part::Input => return (Role::Inputs, "an op that reads training data"),
            Part::Optimizer(Update::Slot) => return (Role::Optimizer, "first value of an optimizer slot"),
            Part::Optimizer(Update::Apply) => return (Role::Temporaries, "scratch of an optimizer op"),
            Part::Optimizer(update @ (Update::AssignSub | Update::AssignAdd)) => {
                // Optimizers change their slots by the other operation, or by plain assignment.
                let changes_model = (update == Update::AssignSub) == self.subtracts;
                return if changes_model {
                    (Role::Parameters, "new value of a parameter: a reader still held the old one")
                } else {
                    (Role::Optimizer, "new value of an optimizer slot: a reader still held the old one")
                };
            }
            Part::Optimizer(Update::Other) => {
                return if outlives_run {
                    (Role::Optimizer, "a result in the optimizer's scope that outlives its step")
                } else {
                    (Role::Temporaries, "arithmetic of the optimizer")
                };
            }
            Part::Initializer => return (Role::Parameters, "first value of a variable"),
            Part::Gradient | Part::Forward | Part::Plain => {}
        }
        if events.at(birth).region() == Region::Temp {
            return (Role::Temporaries, "scratch, as the op said");
        }
        if events.at(birth).run() == 0 && !events.at(birth).op().is_empty() {
            return (Role::Unknown, "a constant of the graph");
        }
        if part == Part::Gradient {
            return (Role::Gradients, "an op of the backward pass");
        }
        if part == Part::Forward {
            return match run {
                Some(run) if freed.is_some_and(|freed| freed < run.backward) => {
                    (Role::Temporaries, "made and consumed in the forward pass")
                }
                Some(run)
                    if outlives_run
                        && freed.is_none_or(|freed| spans_a_step(steps, born.max(run.last), freed)) =>
                {
                    (Role::Parameters, "made in a model's scope and alive across steps")
                }
                Some(_) => (Role::Activations, "made in the forward pass, alive in the backward pass"),
                None => (Role::Activations, "the output of a forward pass without a backward pass"),
            };
        }
        if !events.at(birth).context().is_empty()
            && history.framework == Some(crate::event::Framework::TensorFlow)
        {
            return (Role::Inputs, "copied in from the host by the call that is named");
        }
        // An op without a scope ran eagerly.
        let is_alive_across = spans_a_step(steps, born, freed.unwrap_or(Picos(i64::MAX)));
        if !events.at(birth).op().is_empty() && is_alive_across {
            let shape = history.names.get(events.at(birth).shape());
            return if dtype.is_floating() && shape != "[]" {
                (Role::Parameters, "made outside the steps and alive across them")
            } else {
                (
                    Role::Unknown,
                    "state that is a scalar or not a floating-point number: a counter, a rate, a metric, a seed",
                )
            };
        }
        (Role::Unknown, "neither the op's name nor its lifetime tells")
    }
}

/// Whether some step lies wholly between two moments.
fn spans_a_step(steps: &[Step], from: Picos, to: Picos) -> bool {
    let first = steps.partition_point(|step| step.begin < from);
    steps.get(first).is_some_and(|step| step.until <= to)
}
