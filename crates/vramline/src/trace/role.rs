//! What an allocation is for, and what that judgement rests on.
//!
//! Three sorts of evidence, strongest first: the op's name and region, the thread, and the shape of the lifetime (made
//! in the forward part and freed in the backward part is an activation; alive when the next step begins is state). Only what a variable op made,
//! or the program lists, is a variable. The rules
//! stand in [`Roles::of`] in the order in which they are tried. Nothing is guessed from sizes.

use rustc_hash::{FxHashMap, FxHashSet};

use super::frames::StackRoles;
use super::op::{Part, Update, has_scope, part_of};
use super::pairing::PoolTrace;
use super::step::Step;
use crate::event::{ExecutorRun, Framework, History, Region};
use crate::names::Name;
use crate::snapshot::Role;
use crate::stack::Stack;
use crate::units::Picos;

const CONSTANT: &str = "a constant of the graph";
const NO_TENSOR: &str =
    "state that is a scalar or not a floating-point number: a counter, a rate, a metric, a seed";

const NOT_LISTED: &str = "alive when a step begins, and none of the variables that the program lists";
const CUT: &str = "an op of the forward pass, alive where the trace ends in the middle of its step";
/// How the threads of tf.data are called.
pub(super) const DATA_THREADS: &str = "tf_data_";

/// What the whole history tells about roles.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    /// By [`Name`]; `None` for names that are no op's.
    parts: Vec<Option<Part>>,
    /// For each run of the executor that has a backward part: when that began.
    training_runs: FxHashMap<ExecutorRun, Picos>,
    /// When ops that ran eagerly, and that only a backward pass has, allocated; in order.
    eager_gradients: Vec<Picos>,
    /// Where the source tells call stacks instead of ops.
    stacks: Option<StackRoles>,
    /// By the event of its birth: the first values of variables, as far as TensorFlow's variable ops show them.
    first_values: FxHashSet<usize>,
    /// Whether the program has listed all its variables.
    pub(crate) knows_variables: bool,
}

impl Roles {
    pub(crate) fn new(history: &History) -> Roles {
        if history.framework == Some(Framework::PyTorch) {
            return Roles { stacks: Some(StackRoles::new(history)), ..Roles::default() };
        }
        let mut roles = Roles { parts: vec![None; history.names.len()], ..Roles::default() };
        // Of the run before, which is nearly always that of the next event too: when its backward part began.
        let mut known: Option<(ExecutorRun, Picos)> = None;
        for event in history.events.unordered().filter(|event| event.is_alloc()) {
            let part = roles.learn(history, event.op());
            if part == Part::EagerGradient {
                roles.eager_gradients.push(event.time());
            }
            if part != Part::Gradient {
                continue;
            }
            let (Some(run), time) = (event.executor_run(), event.time()) else { continue };
            if known.is_none_or(|known| known.0 != run || known.1 > time) {
                let began = roles.training_runs.entry(run).or_insert(time);
                *began = time.min(*began);
                known = Some((run, *began));
            }
        }
        roles.eager_gradients.sort_unstable();
        roles.first_values = first_values(history);
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
        matches!(self.part(op), Part::Gradient | Part::EagerGradient | Part::Optimizer(_))
    }

    /// When the first backward part began in a stretch of time.
    pub(crate) fn backward_within(&self, begin: Picos, until: Picos) -> Option<Picos> {
        self.training_runs.values().copied().filter(|&began| begin <= began && began <= until).min()
    }

    /// Runs of the executor that have a backward part.
    pub(crate) fn training_runs(&self) -> FxHashSet<ExecutorRun> {
        self.training_runs.keys().copied().collect()
    }

    /// The role of a block of which only the moment of a dump and its stack are known, and the evidence.
    pub(crate) fn at_dump(&self, stack: Stack) -> (Role, &'static str) {
        let nothing = (Role::Unknown, "the snapshot holds no history of it");
        self.stacks.as_ref().map_or(nothing, |stacks| stacks.at_dump(stack))
    }

    /// The role of the block that event `birth` allocated and that was `freed`, and the evidence.
    pub(crate) fn of(
        &self,
        history: &History,
        steps: &[Step],
        pool: &PoolTrace,
        birth: usize,
        freed: Option<Picos>,
    ) -> (Role, &'static str) {
        if let Some(stacks) = &self.stacks {
            return stacks.of(history, steps, birth, freed);
        }
        let events = &history.events;
        let event = events.at(birth);
        let part = self.part(event.op());
        let dtype = event.dtype();
        let born = events.time(birth);
        let backward = event.executor_run().and_then(|run| self.training_runs.get(&run));
        let outlives_step = outlives_step(steps, born, freed);
        // Made while the graph was prepared, outside any run.
        let is_constant = event.executor_run().is_none() && !event.op().is_empty();
        let is_tensor = dtype.is_floating() && history.names.get(event.shape()) != "[]";

        if dtype.is_handle() {
            return if outlives_step || !has_scope(history.names.get(event.op())) {
                (Role::State, "a handle to a variable, data set or iterator")
            } else {
                (Role::Temporaries, "a handle that is gone with its step")
            };
        }
        if history.names.get(event.thread()).starts_with(DATA_THREADS) {
            return (Role::Inputs, "allocated on a tf.data thread");
        }
        match part {
            Part::Input => return (Role::Inputs, "an op that reads training data"),
            Part::Optimizer(Update::FirstSlot) => {
                return (Role::Optimizer, "first value of an optimizer slot");
            }
            Part::Optimizer(Update::Apply) => return (Role::Temporaries, "scratch of an optimizer op"),
            // The step counter is the optimizer's, but no tensor.
            Part::Optimizer(Update::Model | Update::Slot) if !is_tensor => return (Role::State, NO_TENSOR),
            Part::Optimizer(Update::Model) => {
                return (Role::Parameters, "new value of a parameter: a reader still held the old one");
            }
            Part::Optimizer(Update::Slot) => {
                return (Role::Optimizer, "new value of an optimizer slot: a reader still held the old one");
            }
            Part::Optimizer(Update::Other { .. }) if is_constant => return (Role::State, CONSTANT),
            Part::Optimizer(Update::Other { is_weight }) => {
                return match (outlives_step, is_weight) {
                    (true, true) => (Role::Parameters, "a result that this optimizer assigns to a parameter"),
                    (true, false) => {
                        (Role::Optimizer, "a result in the optimizer's scope that outlives its step")
                    }
                    (false, _) => (Role::Temporaries, "arithmetic of the optimizer"),
                };
            }
            Part::Initializer => return (Role::Parameters, "first value of a variable"),
            Part::Gradient | Part::EagerGradient | Part::EagerProduct | Part::Forward | Part::Plain => {}
        }
        if event.region() == Region::Temp {
            return (Role::Temporaries, "scratch, as the op said");
        }
        if is_constant {
            return (Role::State, CONSTANT);
        }
        if part == Part::Gradient {
            // An op that holds the last reference to its input writes its result there.
            let was_taken_over = outlives_step && is_tensor && !is_kept(history, steps, pool, birth, freed);
            return if was_taken_over {
                (
                    Role::Optimizer,
                    "a buffer of the backward pass in which the optimizer left a new slot value",
                )
            } else {
                (Role::Gradients, "an op of the backward pass")
            };
        }
        if part == Part::Forward {
            return match backward {
                Some(_) if freed.is_none() && is_of_cut_step(steps, born) => (Role::Activations, CUT),
                // Such as the seed of a dropout layer.
                Some(_) if outlives_step && !is_tensor => (Role::State, NO_TENSOR),
                Some(_) if outlives_step && is_kept(history, steps, pool, birth, freed) => {
                    (Role::Activations, "a result of the model that the program keeps")
                }
                Some(_) if outlives_step && self.knows_variables => (Role::State, NOT_LISTED),
                Some(_) if outlives_step => {
                    (Role::Parameters, "made in a model's scope and alive when the next step begins")
                }
                Some(&backward) if freed.is_some_and(|freed| freed < backward) => {
                    (Role::Temporaries, "made and consumed in the forward pass")
                }
                Some(_) => (Role::Activations, "made in the forward pass, alive in the backward pass"),
                None => (Role::Activations, "the output of a forward pass without a backward pass"),
            };
        }
        if event.executor_run().is_some()
            && let Some(&backward) = backward
        {
            return self.of_own_function(born, freed, backward, outlives_step, is_tensor);
        }
        if !event.context().is_empty() && history.framework == Some(Framework::TensorFlow) {
            return (Role::Inputs, "copied in from the host by the call that is named");
        }
        // An op without a scope ran eagerly. What the program lets go of after the last step seems to outlive it; where all variables are
        // known, only those do.
        let is_of_last = steps.last().is_some_and(|last| (last.begin..last.until).contains(&born));
        if !event.op().is_empty() && outlives_step && !(is_of_last && self.knows_variables) {
            return if self.knows_variables {
                (Role::State, NOT_LISTED)
            } else if !is_tensor {
                (Role::State, NO_TENSOR)
            } else if self.first_values.contains(&birth) {
                (Role::Parameters, "made just before a variable, and alive when a step begins")
            } else {
                (
                    Role::State,
                    "made outside the steps and alive when one begins; not by an op that makes a variable",
                )
            };
        }
        let of_eager_op =
            if event.op().is_empty() { None } else { self.of_eager_op(part, steps, born, freed) };
        of_eager_op.unwrap_or((Role::Unknown, "neither the op's name nor its lifetime tells"))
    }

    /// The role of a block in a function of the program's own, whose ops have no scope: before the backward pass they are the forward
    /// pass.
    fn of_own_function(
        &self,
        born: Picos,
        freed: Option<Picos>,
        backward: Picos,
        outlives_step: bool,
        is_tensor: bool,
    ) -> (Role, &'static str) {
        match (outlives_step, born < backward, freed) {
            (true, ..) if !is_tensor => (Role::State, NO_TENSOR),
            (true, ..) if self.knows_variables => (Role::State, NOT_LISTED),
            (true, ..) => (Role::State, "a result of the program that is alive when the next step begins"),
            (false, true, Some(freed)) if freed < backward => {
                (Role::Temporaries, "made and consumed in the forward pass")
            }
            (false, true, _) => (Role::Activations, "made in the forward pass, alive in the backward pass"),
            (false, false, _) => {
                (Role::Temporaries, "made after the backward pass began, and gone with the step")
            }
        }
    }

    /// The role of a block that an op without a scope made, and that does not outlive its step. Such ops run one after the other,
    /// so the first and the last that only a backward pass has divide the step in three.
    fn of_eager_op(
        &self,
        part: Part,
        steps: &[Step],
        born: Picos,
        freed: Option<Picos>,
    ) -> Option<(Role, &'static str)> {
        let step = &steps[steps.partition_point(|step| step.begin <= born).checked_sub(1)?];
        let begin = self.eager_gradients.partition_point(|&time| time < step.begin);
        let end = self.eager_gradients.partition_point(|&time| time < step.until);
        let backward = self.eager_gradients.get(begin..end)?;
        let (&first, &last) = (backward.first()?, backward.last()?);
        Some(match freed {
            // The last gradients of weights are products.
            _ if born > last && part != Part::EagerProduct => {
                (Role::Temporaries, "made after the backward pass: arithmetic of the optimizer")
            }
            _ if born >= first => (Role::Gradients, "made in the backward pass"),
            Some(freed) if freed < first => (Role::Temporaries, "made and consumed in the forward pass"),
            _ => (Role::Activations, "made in the forward pass, alive in the backward pass"),
        })
    }
}

/// The first values of variables. TensorFlow computes a value, makes the variable's handle, and gives it the value, all in one thread.
fn first_values(history: &History) -> FxHashSet<usize> {
    let mut last: FxHashMap<Name, usize> = FxHashMap::default();
    let mut found = FxHashSet::default();
    for number in 0..history.events.len() {
        let event = history.events.at(number);
        if !event.is_alloc() {
            continue;
        }
        if event.dtype().is_floating() {
            last.insert(event.thread(), number);
        } else if event.dtype().is_handle() && history.names.get(event.op()) == "VarHandleOp" {
            found.extend(last.remove(&event.thread()));
        }
    }
    found
}

/// Whether a block is there when the first step after its birth begins or, after the last, when that has ended.
pub(crate) fn outlives_step(steps: &[Step], born: Picos, freed: Option<Picos>) -> bool {
    let next = steps.partition_point(|step| step.begin <= born);
    let boundary = match (steps.get(next), next.checked_sub(1).and_then(|last| steps.get(last))) {
        (Some(next), _) => next.begin,
        // Its end is not in the trace, so nothing shows what outlives it.
        (None, Some(last)) if last.is_cut => return false,
        (None, Some(last)) => last.until,
        (None, None) => return false,
    };
    born < boundary && freed.is_none_or(|freed| freed > boundary)
}

/// Whether a block was made in a step that the trace cuts off.
fn is_of_cut_step(steps: &[Step], born: Picos) -> bool {
    let next = steps.partition_point(|step| step.begin <= born);
    next.checked_sub(1).and_then(|at| steps.get(at)).is_some_and(|step| step.is_cut)
}

/// Whether a result of the model that outlives its step is one that the program keeps, and not the new value of a
/// variable: the old value of a variable goes while a later step is being run, and there is only one new one.
fn is_kept(history: &History, steps: &[Step], pool: &PoolTrace, birth: usize, freed: Option<Picos>) -> bool {
    match freed {
        Some(freed) => {
            let after = steps.partition_point(|step| step.begin <= freed);
            let running = after.checked_sub(1).and_then(|at| steps.get(at));
            running.is_none_or(|step| freed > step.end)
        }
        None => pool.keeps_several(&history.events, history.events.at(birth).op()),
    }
}
