//! The role of an allocation, and the evidence for it.
//!
//! There are three kinds of evidence, strongest first: the op's name and region, the thread, and the lifetime. A block that is allocated in
//! the forward pass and freed in the backward pass is an activation; one that is alive when the next step starts is state. Only blocks of
//! variable ops and blocks that the program lists are variables. [`Roles::of`] tries the rules in their order. Sizes are never evidence.

use rustc_hash::{FxHashMap, FxHashSet};

use super::frames::StackRoles;
use super::op::{Part, Update, has_scope, part_of};
use super::pairing::PoolTrace;
use super::step::Step;
use crate::event::{EventRef, ExecutorRun, Framework, History, Region};
use crate::names::Name;
use crate::snapshot::Role;
use crate::stack::Stack;
use crate::units::Picos;

const CONSTANT: &str = "a constant of the graph";
const NO_TENSOR: &str =
    "a scalar or a tensor that is not floating-point: a counter, a learning rate, a metric or a seed";

const NOT_LISTED: &str = "alive when a step starts, but not in the program's list of variables";
const CUT: &str = "an op of the forward pass; the trace ends in the middle of its step";
/// The prefix of the names of tf.data threads.
pub(super) const DATA_THREADS: &str = "tf_data_";

/// What the whole history shows about roles.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    /// By [`Name`]; `None` for names that do not belong to an op.
    parts: Vec<Option<Part>>,
    /// The start of the backward pass, for each executor run that has one.
    training_runs: FxHashMap<ExecutorRun, Picos>,
    /// Times of allocations by eager ops that occur only in a backward pass, in order.
    eager_gradients: Vec<Picos>,
    /// Set if the source has call stacks instead of ops.
    stacks: Option<StackRoles>,
    /// Allocation events of the first values of variables, as far as TensorFlow's variable ops show them.
    first_values: FxHashSet<usize>,
    /// Whether the program has listed all its variables.
    pub(crate) knows_variables: bool,
    /// When ops ran by themselves that compute gradients, as the program told: begin and end, in order.
    pub(crate) told_gradients: Vec<(Picos, Picos)>,
}

impl Roles {
    pub(crate) fn new(history: &History) -> Roles {
        if history.framework == Some(Framework::PyTorch) {
            return Roles { stacks: Some(StackRoles::new(history)), ..Roles::default() };
        }
        let mut roles = Roles { parts: vec![None; history.names.len()], ..Roles::default() };
        // A cache of one entry: the next event nearly always belongs to the same run.
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

    /// The start of the first backward pass in a time range.
    pub(crate) fn backward_within(&self, begin: Picos, until: Picos) -> Option<Picos> {
        self.training_runs.values().copied().filter(|&began| begin <= began && began <= until).min()
    }

    /// Executor runs that have a backward pass.
    pub(crate) fn training_runs(&self) -> FxHashSet<ExecutorRun> {
        self.training_runs.keys().copied().collect()
    }

    /// The role of a block that is known only from a dump, by its stack, and the evidence.
    pub(crate) fn at_dump(&self, stack: Stack) -> (Role, &'static str) {
        let nothing = (Role::Unknown, "the snapshot has no history for this block");
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
        let is_constant = self.is_constant(event);
        let is_tensor = dtype.is_floating() && history.names.get(event.shape()) != "[]";

        if dtype.is_handle() {
            return if outlives_step || !has_scope(history.names.get(event.op())) {
                (Role::State, "a handle to a variable, dataset or iterator")
            } else {
                (Role::Temporaries, "a handle that is freed with its step")
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
            Part::Optimizer(Update::Apply) => {
                return (Role::Temporaries, "scratch memory of an optimizer op");
            }
            // The step counter belongs to the optimizer, but is a scalar.
            Part::Optimizer(Update::Model | Update::Slot) if !is_tensor => return (Role::State, NO_TENSOR),
            Part::Optimizer(Update::Model) => {
                return (Role::Parameters, "new value of a parameter; an op still read the old one");
            }
            Part::Optimizer(Update::Slot) => {
                return (Role::Optimizer, "new value of an optimizer slot; an op still read the old one");
            }
            Part::Optimizer(Update::Other { .. }) if is_constant => return (Role::State, CONSTANT),
            Part::Optimizer(Update::Other { is_weight }) => {
                return match (outlives_step, is_weight) {
                    (true, true) => (Role::Parameters, "a result that the optimizer assigns to a parameter"),
                    (true, false) => {
                        (Role::Optimizer, "a result in the optimizer's scope that outlives its step")
                    }
                    (false, _) => (Role::Temporaries, "a temporary result of the optimizer"),
                };
            }
            Part::Initializer => return (Role::Parameters, "first value of a variable"),
            Part::Gradient | Part::EagerGradient | Part::EagerProduct | Part::Forward | Part::Plain => {}
        }
        if event.region() == Region::Temp {
            return (Role::Temporaries, "the op requested it as scratch memory");
        }
        if is_constant {
            return (Role::State, CONSTANT);
        }
        if part == Part::Gradient {
            // An op that holds the last reference to its input may write its result there.
            let was_taken_over = outlives_step && is_tensor && !is_kept(history, steps, pool, birth, freed);
            return if was_taken_over {
                (
                    Role::Optimizer,
                    "a buffer of the backward pass that the optimizer reused for a new slot value",
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
                    (Role::Parameters, "allocated in a model's scope and alive when the next step starts")
                }
                Some(&backward) if freed.is_some_and(|freed| freed < backward) => {
                    (Role::Temporaries, "allocated and freed in the forward pass")
                }
                Some(_) => {
                    (Role::Activations, "allocated in the forward pass and alive in the backward pass")
                }
                None => (Role::Activations, "output of a forward pass without a backward pass"),
            };
        }
        if event.executor_run().is_some()
            && let Some(&backward) = backward
        {
            return self.of_own_function(born, freed, backward, outlives_step, is_tensor);
        }
        if !event.context().is_empty() && history.framework == Some(Framework::TensorFlow) {
            return (Role::Inputs, "copied from the host by the named call");
        }
        if !event.op().is_empty() && outlives_step && self.is_told_gradient(born) {
            return (Role::Gradients, "a gradient that the program still holds");
        }
        // An op without a scope ran eagerly. A block that the program frees after the last step seems to outlive it; if all variables are
        // known, only variables outlive it.
        let is_of_last = steps.last().is_some_and(|last| (last.begin..last.until).contains(&born));
        if !event.op().is_empty() && outlives_step && !(is_of_last && self.knows_variables) {
            return self.of_survivor(birth, is_tensor);
        }
        let unknown = (Role::Unknown, "neither the op's name nor the lifetime shows the role");
        if event.op().is_empty() {
            return unknown;
        }
        let of_eager_op = self.of_eager_op(part, steps, born, freed);
        of_eager_op.or_else(|| of_short_life(steps, born, freed)).unwrap_or(unknown)
    }

    /// The role of a block of an eager op that is alive when a step starts.
    fn of_survivor(&self, birth: usize, is_tensor: bool) -> (Role, &'static str) {
        if self.knows_variables {
            (Role::State, NOT_LISTED)
        } else if !is_tensor {
            (Role::State, NO_TENSOR)
        } else if self.first_values.contains(&birth) {
            (Role::Parameters, "allocated just before a variable was created, and alive when a step starts")
        } else {
            (
                Role::State,
                "allocated outside steps by an op that creates no variable, and alive when a step starts",
            )
        }
    }

    /// Whether a block is a constant: TensorFlow allocated it while it prepared the graph, outside any run.
    pub(crate) fn is_constant(&self, event: EventRef<'_>) -> bool {
        self.stacks.is_none() && event.executor_run().is_none() && !event.op().is_empty()
    }

    /// Whether the program computed gradients at a moment, as far as it told.
    fn is_told_gradient(&self, time: Picos) -> bool {
        let after = self.told_gradients.partition_point(|&(begin, _)| begin <= time);
        let last = after.checked_sub(1).and_then(|last| self.told_gradients.get(last));
        last.is_some_and(|&(_, end)| time <= end)
    }

    /// The role of a block in one of the program's own functions. Its ops have no scope; those before the backward pass are the forward
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
            (true, ..) => (Role::State, "a result of the program that is alive when the next step starts"),
            (false, true, Some(freed)) if freed < backward => {
                (Role::Temporaries, "allocated and freed in the forward pass")
            }
            (false, true, _) => {
                (Role::Activations, "allocated in the forward pass and alive in the backward pass")
            }
            (false, false, _) => {
                (Role::Temporaries, "allocated after the backward pass started, and freed with the step")
            }
        }
    }

    /// The role of a block of an op without a scope that does not outlive its step. Such ops run one after another, so the first and the last
    /// op that occurs only in a backward pass divide the step into three parts.
    fn of_eager_op(
        &self,
        part: Part,
        steps: &[Step],
        born: Picos,
        freed: Option<Picos>,
    ) -> Option<(Role, &'static str)> {
        let after = steps.partition_point(|step| step.begin <= born);
        let step = &steps[after.checked_sub(1)?];
        if !self.told_gradients.is_empty() {
            // The trace may end in the middle of a step, which is not among them then.
            let until = steps.get(after).map_or(Picos(i64::MAX), |next| next.begin);
            return self.of_told_op(step.begin, until, born, freed);
        }
        let begin = self.eager_gradients.partition_point(|&time| time < step.begin);
        let end = self.eager_gradients.partition_point(|&time| time < step.until);
        let backward = self.eager_gradients.get(begin..end)?;
        let (&first, &last) = (backward.first()?, backward.last()?);
        Some(match freed {
            // The last gradients of weights are matrix products.
            _ if born > last && part != Part::EagerProduct => {
                (Role::Temporaries, "allocated after the backward pass: a temporary result of the optimizer")
            }
            _ if born >= first => (Role::Gradients, "allocated in the backward pass"),
            Some(freed) if freed < first => (Role::Temporaries, "allocated and freed in the forward pass"),
            _ => (Role::Activations, "allocated in the forward pass and alive in the backward pass"),
        })
    }
}

impl Roles {
    /// The role of such a block where the program told when it computed gradients. A step may do so several times.
    fn of_told_op(
        &self,
        step: Picos,
        until: Picos,
        born: Picos,
        freed: Option<Picos>,
    ) -> Option<(Role, &'static str)> {
        if self.is_told_gradient(born) {
            return Some((Role::Gradients, "allocated in the backward pass"));
        }
        let next = self.told_gradients.partition_point(|&(begin, _)| begin <= born);
        let is_of_step = |begin: Picos| (step..until).contains(&begin);
        match self.told_gradients.get(next).map(|&(begin, _)| begin).filter(|&begin| is_of_step(begin)) {
            Some(begin) if freed.is_some_and(|freed| freed < begin) => {
                Some((Role::Temporaries, "allocated and freed in the forward pass"))
            }
            Some(_) => {
                Some((Role::Activations, "allocated in the forward pass and alive in the backward pass"))
            }
            None if next > 0 && is_of_step(self.told_gradients.get(next - 1)?.0) => {
                Some((Role::Temporaries, "allocated after the backward pass, and freed with the step"))
            }
            None => None,
        }
    }
}

/// The role of a block that is freed before the next step begins; after the last step, before that ends.
fn of_short_life(steps: &[Step], born: Picos, freed: Option<Picos>) -> Option<(Role, &'static str)> {
    let next = steps.partition_point(|step| step.begin <= born);
    let boundary = steps.get(next).map(|next| next.begin).or(steps.last().map(|last| last.until))?;
    let is_short = freed.is_some_and(|freed| freed <= boundary);
    is_short.then_some((Role::Temporaries, "allocated and freed within a step, or between two steps"))
}

/// The first values of variables. TensorFlow computes a value, creates the variable's handle and assigns the value, all in one thread.
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

/// Whether a block is alive when the next step after its allocation starts or, after the last step, when that step has ended.
pub(crate) fn outlives_step(steps: &[Step], born: Picos, freed: Option<Picos>) -> bool {
    let next = steps.partition_point(|step| step.begin <= born);
    let boundary = match (steps.get(next), next.checked_sub(1).and_then(|last| steps.get(last))) {
        (Some(next), _) => next.begin,
        // The end of the step is not in the trace, so nothing shows what outlives it.
        (None, Some(last)) if last.is_cut => return false,
        (None, Some(last)) => last.until,
        (None, None) => return false,
    };
    born < boundary && freed.is_none_or(|freed| freed > boundary)
}

/// Whether a block was allocated in a step that the trace cuts off.
fn is_of_cut_step(steps: &[Step], born: Picos) -> bool {
    let next = steps.partition_point(|step| step.begin <= born);
    next.checked_sub(1).and_then(|at| steps.get(at)).is_some_and(|step| step.is_cut)
}

/// Whether the program keeps a result of the model that outlives its step, as opposed to the new value of a variable. The old value of a
/// variable is freed during a later step, and there is only one new value.
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
