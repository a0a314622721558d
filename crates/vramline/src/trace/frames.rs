//! The role of a PyTorch allocation, by the part of the training program that its call stack is in.
//!
//! The rules check Python files and functions and, if C++ frames were recorded, the frames of the autograd engine. The backward pass runs on
//! threads without Python. So a stack without frames means the backward pass, in a trace whose other stacks have frames.

use rustc_hash::FxHashMap;

use super::role::outlives_step;
use super::step::Step;
use crate::event::{EventRef, History, ModulePass};
use crate::names::Name;
use crate::snapshot::Role;
use crate::stack::Stack;
use crate::units::Picos;

/// The part of a program that a stack is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Data,
    Optimizer,
    Backward,
    /// A module creates or moves its weights.
    Weights,
    Forward,
    /// The workspace of a library.
    Workspace,
    /// A copy to the device by the program.
    Copy,
    /// Buffers in which processes exchange gradients and parameters.
    Communication,
    /// None of these.
    Plain,
    /// There are no frames.
    Silent,
}

/// The parts that a frame belongs to, as bits.
fn bits_of(frame: &str) -> u16 {
    let any = |parts: &[&str]| parts.iter().any(|part| frame.contains(part));
    // The function is the last word of a frame.
    let function = frame.rsplit(' ').next().unwrap_or_default();
    let calls = |file: &str, functions: &[&str]| frame.contains(file) && functions.contains(&function);
    let tells = |part: Part| match part {
        Part::Workspace => any(&["getNewWorkspace", "getChosenWorkspaceSize", "_workspace"]),
        Part::Data => any(&["/torch/utils/data/"]),
        Part::Communication => {
            calls(
                "/torch/nn/parallel/distributed.py",
                &["_ddp_init_helper", "_pre_forward", "_rebuild_buckets"],
            ) || calls("/torch/distributed/", BUFFERS)
        }
        Part::Optimizer => any(&["/torch/optim/"]),
        Part::Backward => {
            any(&["torch::autograd::Engine::", "torch::autograd::python::PythonEngine"])
                || calls("/torch/autograd/", &["_engine_run_backward", "backward", "grad"])
                || calls("/torch/_tensor.py", &["backward"])
        }
        Part::Weights => {
            calls("/torch/nn/modules/module.py", &["_apply", "convert", "cuda"])
                || calls("/torch/nn/", &["__init__", "reset_parameters"])
                || any(&["/torch/nn/init.py"])
        }
        Part::Forward => any(&["/torch/nn/", "/torch/_dynamo/", "/torch/_inductor/"]),
        Part::Copy => any(&["THPVariable_to(", "THPVariable_cuda(", "at::native::_to_copy("]),
        Part::Plain => true,
        Part::Silent => false,
    };
    ORDER.into_iter().filter(|&part| tells(part)).fold(0, |bits, part| bits | 1 << part as u16)
}

/// Functions of PyTorch's sharding that allocate what processes exchange.
const BUFFERS: &[&str] = &[
    "_alloc_padded_unsharded_flat_param",
    "_alloc_storage",
    "alloc_storage",
    "_all_gather_flat_param",
    "foreach_all_gather",
    "foreach_reduce",
    "_reduce_grad",
];

/// The evidence for results that an optimizer frees in its update.
pub(crate) const UPDATE: &str = "frames: a temporary result of the optimizer";
/// The evidence for such buffers.
pub(crate) const COMMUNICATION: &str =
    "frames: a buffer in which processes exchange gradients or parameters (DDP, FSDP)";

/// The order of precedence, for stacks whose frames belong to several parts.
const ORDER: [Part; 9] = [
    Part::Workspace,
    Part::Data,
    Part::Communication,
    Part::Optimizer,
    Part::Backward,
    Part::Weights,
    Part::Forward,
    Part::Copy,
    Part::Plain,
];

fn part_of(bits: u16) -> Part {
    ORDER.into_iter().find(|&part| bits & 1 << part as u16 != 0).unwrap_or(Part::Silent)
}

/// What a training program does, by its allocations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// A module's forward pass.
    Forward,
    /// The autograd engine.
    Backward,
    /// An optimizer's update.
    Update,
}

/// The parts of all stacks of a history.
#[derive(Debug, Default)]
pub(crate) struct StackRoles {
    /// By the number of the stack; `None` if no allocation has it.
    parts: Vec<Option<Part>>,
    /// Start times of backward passes, in order.
    backward: Vec<Picos>,
    /// When the program changed from one pass to another, in order.
    passes: Vec<(Picos, Pass)>,
    /// Whether any stack has frames; only then does a stack without frames mean the backward pass.
    has_frames: bool,
    /// The parts of blocks that were alive when the snapshot was taken and have no history.
    at_dump: FxHashMap<Stack, Part>,
}

impl StackRoles {
    pub(crate) fn new(history: &History) -> StackRoles {
        let mut roles = StackRoles::default();
        let mut known: FxHashMap<Name, u16> = FxHashMap::default();
        for event in history.events.unordered().filter(|event| event.is_alloc()) {
            let (stack, at) = (event.stack(), event.stack().number() as usize);
            if roles.parts.len() <= at {
                roles.parts.resize(at + 1, None);
            }
            if let Some(slot @ None) = roles.parts.get_mut(at) {
                let frames = history.stacks.frames(stack);
                let mut bits =
                    |frame| *known.entry(frame).or_insert_with(|| bits_of(history.names.get(frame)));
                *slot = Some(part_of(frames.fold(0, |all, frame| all | bits(frame))));
            }
        }
        roles.has_frames = roles.parts.iter().flatten().any(|&part| part != Part::Silent);
        let mut was_backward = false;
        for event in history.events.iter().filter(|event| event.is_alloc()) {
            let pass = roles.pass_of_event(history, event);
            let is_backward = pass == Some(Pass::Backward);
            if is_backward && !was_backward {
                roles.backward.push(event.time());
            }
            was_backward = is_backward;
            if let Some(pass) = pass.filter(|&pass| roles.passes.last().is_none_or(|&(_, last)| last != pass))
            {
                roles.passes.push((event.time(), pass));
            }
        }
        let states = history.pools.iter().filter_map(|pool| pool.caching.as_ref()?.state.as_ref());
        for block in states.flat_map(|state| &state.blocks) {
            roles.at_dump.entry(block.stack).or_insert_with(|| {
                let mut bits =
                    |frame| *known.entry(frame).or_insert_with(|| bits_of(history.names.get(frame)));
                part_of(history.stacks.frames(block.stack).fold(0, |all, frame| all | bits(frame)))
            });
        }
        roles
    }

    /// The role of a block that was alive when the snapshot was taken, by its stack alone, and the evidence.
    pub(crate) fn at_dump(&self, stack: Stack) -> (Role, &'static str) {
        match self.at_dump.get(&stack).copied().unwrap_or(Part::Silent) {
            Part::Data => (Role::Inputs, "frames: allocated by torch.utils.data"),
            Part::Workspace => (Role::Temporaries, "frames: the workspace of a library"),
            Part::Communication => (Role::State, COMMUNICATION),
            Part::Optimizer => (Role::Optimizer, "frames: allocated in torch.optim and alive at the dump"),
            Part::Backward => (Role::Gradients, "frames: the autograd engine, in the backward pass"),
            Part::Weights => (Role::Parameters, "frames: a module creates or moves its weights"),
            Part::Forward => (Role::Activations, "frames: a module's forward pass; alive at the dump"),
            Part::Copy => (Role::Inputs, "frames: the program copies a tensor to the device"),
            Part::Plain => (Role::Unknown, "no frame is in a module, an optimizer or the backward pass"),
            Part::Silent => (Role::Unknown, "the snapshot has neither a history nor frames for this block"),
        }
    }

    fn part(&self, stack: Stack) -> Part {
        self.parts.get(stack.number() as usize).copied().flatten().unwrap_or(Part::Silent)
    }

    /// The part that an event belongs to. What the allocator was told of the pass counts more than frames that could be of either.
    fn part_of_event(&self, history: &History, event: EventRef<'_>) -> Part {
        let part = self.part(event.stack());
        let pass = history.module_calls.get(&event.module()).map(|call| call.pass);
        match (part, pass) {
            (Part::Silent | Part::Plain | Part::Forward | Part::Backward, Some(ModulePass::Backward)) => {
                Part::Backward
            }
            (Part::Silent | Part::Plain | Part::Backward, Some(ModulePass::Forward)) => Part::Forward,
            _ => part,
        }
    }

    fn pass_of_event(&self, history: &History, event: EventRef<'_>) -> Option<Pass> {
        match self.part_of_event(history, event) {
            Part::Backward => Some(Pass::Backward),
            Part::Silent if self.has_frames => Some(Pass::Backward),
            Part::Forward => Some(Pass::Forward),
            Part::Optimizer => Some(Pass::Update),
            _ => None,
        }
    }

    /// The pass that an allocation belongs to; `None` if it is of the program's own code, or unknown.
    pub(crate) fn pass_of(&self, history: &History, birth: usize) -> Option<Pass> {
        self.pass_of_event(history, history.events.at(birth))
    }

    /// Whether an allocation is of the forward or the backward pass, or of the program's own code.
    pub(crate) fn is_pass(&self, history: &History, birth: usize) -> bool {
        let part = self.part_of_event(history, history.events.at(birth));
        matches!(part, Part::Forward | Part::Backward | Part::Silent | Part::Plain)
    }

    /// Whether an allocation is of the backward pass.
    pub(crate) fn is_backward(&self, history: &History, birth: usize) -> bool {
        match self.part_of_event(history, history.events.at(birth)) {
            Part::Backward => true,
            Part::Silent => self.has_frames,
            _ => false,
        }
    }

    /// The role of the block that event `birth` allocated and that was `freed`, and the evidence.
    pub(crate) fn of(
        &self,
        history: &History,
        steps: &[Step],
        birth: usize,
        freed: Option<Picos>,
    ) -> (Role, &'static str) {
        let event = history.events.at(birth);
        let born = event.time();
        let outlives_step = outlives_step(steps, born, freed);
        let is_told = matches!(
            history.module_calls.get(&event.module()).map(|call| call.pass),
            Some(ModulePass::Forward | ModulePass::Backward)
        );
        match self.part_of_event(history, event) {
            Part::Data => (Role::Inputs, "frames: allocated by torch.utils.data"),
            Part::Workspace => (Role::Temporaries, "frames: the workspace of a library"),
            Part::Communication => (Role::State, COMMUNICATION),
            Part::Optimizer if outlives_step => {
                (Role::Optimizer, "frames: allocated in torch.optim and alive when the next step starts")
            }
            Part::Optimizer => (Role::Temporaries, UPDATE),
            Part::Backward if is_told => (Role::Gradients, "module hooks: the module's backward pass"),
            Part::Backward => (Role::Gradients, "frames: the autograd engine, in the backward pass"),
            Part::Weights => (Role::Parameters, "frames: a module creates or moves its weights"),
            Part::Forward => {
                let next = self.backward.partition_point(|&begin| begin <= born);
                match (self.backward.get(next), freed) {
                    (Some(backward), Some(freed)) if freed < *backward && is_told => (
                        Role::Temporaries,
                        "module hooks: the module's forward pass; freed before the backward pass",
                    ),
                    (Some(_), _) if is_told => (
                        Role::Activations,
                        "module hooks: the module's forward pass; alive in the backward pass",
                    ),
                    (None, _) if is_told => (Role::Activations, "module hooks: the module's forward pass"),
                    (Some(backward), Some(freed)) if freed < *backward => {
                        (Role::Temporaries, "frames: a module's forward pass; freed before the backward pass")
                    }
                    (Some(_), _) => {
                        (Role::Activations, "frames: a module's forward pass; alive in the backward pass")
                    }
                    (None, _) => (Role::Activations, "frames: a module's forward pass"),
                }
            }
            Part::Copy => (Role::Inputs, "frames: the program copies a tensor to the device"),
            Part::Silent if self.has_frames => {
                (Role::Gradients, "no frames: a thread without Python, which runs the backward pass")
            }
            Part::Silent => (Role::Unknown, "the entries of this snapshot have no frames"),
            // Without module hooks nothing tells for sure that no module runs.
            Part::Plain if history.module_calls.is_empty() => {
                (Role::Unknown, "no frame is in a module, an optimizer or the backward pass")
            }
            Part::Plain => self.of_program(steps, born, freed),
        }
    }

    /// The role of a block that the program's own code allocated, outside of modules, optimizers and the backward pass: by what ran before
    /// it and what runs next.
    fn of_program(&self, steps: &[Step], born: Picos, freed: Option<Picos>) -> (Role, &'static str) {
        if outlives_steps(steps, born, freed) {
            return (Role::State, "the program's own code; alive for more than a training step");
        }
        let after = self.passes.partition_point(|&(begin, _)| begin <= born);
        let last = after.checked_sub(1).and_then(|at| self.passes.get(at)).map(|&(_, pass)| pass);
        let next = self.passes.get(after).copied();
        let is_in_step = steps.first().is_some_and(|step| step.begin <= born);
        let is_freed_by = |moment: Picos| freed.is_some_and(|freed| freed < moment);
        match (last, next) {
            (Some(Pass::Forward), Some((backward, Pass::Backward))) if is_freed_by(backward) => (
                Role::Temporaries,
                "the program's own code after the forward pass; freed before the backward pass",
            ),
            (Some(Pass::Forward), Some((_, Pass::Backward))) => (
                Role::Activations,
                "the program's own code after the forward pass; alive in the backward pass",
            ),
            (_, Some((forward, Pass::Forward))) if is_freed_by(forward) => {
                (Role::Temporaries, "the program's own code; freed before the forward pass")
            }
            // What was there before the first step and stays may be anything.
            (_, Some((_, Pass::Forward))) if freed.is_some() || is_in_step => {
                (Role::Inputs, "the program's own code before the forward pass; alive in the forward pass")
            }
            (Some(Pass::Backward), Some((update, Pass::Update))) if is_freed_by(update) => {
                (Role::Temporaries, "the program's own code after the backward pass; freed before the update")
            }
            _ => (Role::Unknown, "no frame is in a module, an optimizer or the backward pass"),
        }
    }
}

/// Whether a block is alive in a step after the next one: a loop frees the inputs of a step while it makes those of the next.
fn outlives_steps(steps: &[Step], born: Picos, freed: Option<Picos>) -> bool {
    let begun = |moment: Picos| steps.partition_point(|step| step.begin <= moment);
    match freed {
        Some(freed) => begun(freed) > begun(born) + 1,
        None => steps.len() > begun(born) + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_program() {
        let part = |frames: &[&str]| part_of(frames.iter().fold(0, |all, frame| all | bits_of(frame)));
        assert_eq!(part(&[]), Part::Silent);
        assert_eq!(part(&["/v/torch/optim/adam.py:9 step", "/me/train.py:3 main"]), Part::Optimizer);
        assert_eq!(part(&["/v/torch/_tensor.py:9 backward", "/me/train.py:3 main"]), Part::Backward);
        assert_eq!(part(&["torch::autograd::Engine::thread_main(x)"]), Part::Backward);
        assert_eq!(
            part(&["/v/torch/nn/modules/conv.py:9 forward", "/v/torch/nn/modules/module.py:9 _call_impl"]),
            Part::Forward
        );
        assert_eq!(
            part(&["/v/torch/nn/modules/module.py:9 convert", "/v/torch/nn/modules/module.py:8 _apply"]),
            Part::Weights
        );
        assert_eq!(part(&["/v/torch/utils/data/_utils/pin_memory.py:9 pin_memory"]), Part::Data);
        assert_eq!(part(&["THPVariable_to(x)", "/me/train.py:3 main"]), Part::Copy);
        assert_eq!(part(&["/me/train.py:3 backward"]), Part::Plain);
    }
}
