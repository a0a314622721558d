//! What runs in a PyTorch program at a request: the kind of op, by the frames of its stack, and the module.
//!
//! Kinds are those that `torch.autocast` tells apart. Its lists name ops; a stack names Python functions, and the module whose code calls a
//! function of C++. What a program calls itself is not known from that. Not its job: what becomes of the requests.

use rustc_hash::FxHashMap;

use crate::event::ModulePass;
use crate::names::Name;
use crate::stack::Stack;
use crate::trace::Trace;

/// A kind of op, by what autocast does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// It runs in 16 bits: matrix products.
    Lower,
    /// It runs in 16 bits: a convolution.
    Convolution,
    /// It runs in 32 bits, and keeps what it is given for the backward pass.
    Wider,
    /// It runs in 32 bits, and does not keep what it is given.
    WiderBriefly,
    /// A softmax in the type that it is given, and a loss in 32 bits.
    CrossEntropy,
    /// It looks up a table of 32 bits.
    Table,
    /// It runs in the type that it is given.
    Same,
    /// The same, with positions as a second result.
    SameWithIndices,
    /// A recurrent layer, which the library computes as a whole.
    Recurrent,
    /// Code that a compiler made.
    Compiled,
    /// Autocast itself.
    Autocast,
    /// The program's own code calls it: unknown.
    Program,
}

impl Op {
    /// Whether it multiplies its input by weights.
    pub(super) fn is_product(self) -> bool {
        matches!(self, Op::Lower | Op::Convolution)
    }

    /// Of a stack's frames, innermost first.
    fn of<'a>(frames: impl Iterator<Item = &'a str>) -> Op {
        let mut op = None;
        for frame in frames {
            if frame.contains("/torch/amp/autocast_mode.py") {
                return Op::Autocast;
            }
            if frame.contains("/torch/_inductor/") || frame.contains("/torch/_dynamo/") {
                return Op::Compiled;
            }
            op = op.or_else(|| Op::of_frame(frame));
        }
        op.unwrap_or(Op::Program)
    }

    /// `None` if the frame only passes a call on.
    fn of_frame(frame: &str) -> Option<Op> {
        const PASS_ON: [&str; 3] =
            ["/torch/nn/modules/module.py", "/torch/_jit_internal.py", "/torch/nn/modules/container.py"];
        if PASS_ON.iter().any(|file| frame.contains(file)) {
            return None;
        }
        let function = frame.rsplit(' ').next().unwrap_or_default();
        let module = frame.split_once("/torch/nn/modules/").map(|(_, rest)| rest);
        let file = module.and_then(|rest| rest.split_once(".py")).map(|(file, _)| file);
        if frame.contains("/torch/nn/functional.py") {
            return Some(Op::of_functional(function));
        }
        if frame.contains("/torch/functional.py") {
            return Some(match function {
                "einsum" => Op::Lower,
                "norm" | "cdist" => Op::WiderBriefly,
                _ => Op::Program,
            });
        }
        Some(match file {
            Some("linear") => Op::Lower,
            Some("conv") => Op::Convolution,
            Some("loss" | "distance") => Op::Wider,
            Some("rnn") => Op::Recurrent,
            Some("activation" | "pooling" | "padding" | "pixelshuffle" | "dropout" | "flatten" | "fold") => {
                Op::Same
            }
            _ => Op::Program,
        })
    }

    /// A function of `torch.nn.functional` that is written in Python.
    fn of_functional(function: &str) -> Op {
        match function {
            "_in_projection" | "_in_projection_packed" | "bilinear" => Op::Lower,
            "cross_entropy" => Op::CrossEntropy,
            "layer_norm" | "group_norm" | "normalize" | "cosine_similarity" | "local_response_norm" => {
                Op::Wider
            }
            "softmax" | "log_softmax" | "softmin" | "gumbel_softmax" | "interpolate" | "upsample"
            | "upsample_nearest" | "upsample_bilinear" => Op::WiderBriefly,
            "kl_div" | "binary_cross_entropy_with_logits" => Op::Wider,
            "embedding" | "embedding_bag" => Op::Table,
            // Its parts are products, copies and a softmax of its own.
            "multi_head_attention_forward" => Op::Program,
            _ if function.ends_with("_loss") => Op::Wider,
            _ if function.contains("max_pool") => Op::SameWithIndices,
            _ => Op::Same,
        }
    }
}

/// What runs at a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) op: Op,
    /// The module, by its number in [`Modules`].
    pub(super) module: Option<u32>,
    /// The stack, which tells calls of an op apart.
    pub(super) stack: Stack,
}

/// The modules of a probe.
#[derive(Clone, Debug, Default)]
pub(super) struct Modules {
    /// By number, the module that has it as a part.
    pub(super) parents: Vec<Option<u32>>,
}

impl Modules {
    /// A module and those that have it as a part, innermost first.
    pub(super) fn around(&self, module: Option<u32>) -> impl Iterator<Item = u32> {
        let parent = |number: &u32| self.parents.get(*number as usize).copied().flatten();
        // A parent is always older than its parts, so that this ends.
        std::iter::successors(module, parent)
    }
}

/// Reads what runs.
pub(super) struct Calls<'a> {
    trace: &'a Trace,
    ops: FxHashMap<Stack, Op>,
    known: FxHashMap<Name, Option<u32>>,
    numbers: FxHashMap<String, u32>,
    pub(super) modules: Modules,
}

impl<'a> Calls<'a> {
    pub(super) fn new(trace: &'a Trace) -> Calls<'a> {
        let (ops, known, numbers) = (FxHashMap::default(), FxHashMap::default(), FxHashMap::default());
        Calls { trace, ops, known, numbers, modules: Modules::default() }
    }

    /// What runs at an event.
    pub(super) fn of(&mut self, event: usize) -> Call {
        let history = &self.trace.history;
        let found = history.events.at(event);
        let (stack, name) = (found.stack(), found.module());
        let frames = || history.stacks.frames(stack).map(|frame| history.names.get(frame));
        let op = *self.ops.entry(stack).or_insert_with(|| Op::of(frames()));
        let module = match self.known.get(&name) {
            Some(&module) if !name.is_empty() => module,
            _ => {
                let call = self.trace.module_call(event);
                let is_pass = |pass| matches!(pass, ModulePass::Forward | ModulePass::Backward);
                let is_compiled = call.is_some_and(|call| call.pass == ModulePass::Compiled);
                if is_compiled {
                    return Call { op: Op::Compiled, module: None, stack };
                }
                let call = call.filter(|call| is_pass(call.pass));
                let module = call.map(|call| (call.model.clone().unwrap_or_default(), call.path.clone()));
                let module = module.map(|(root, path)| self.number(&root, &path));
                self.known.insert(name, module);
                module
            }
        };
        Call { op, module, stack }
    }

    /// The number of a module, whose parents have smaller ones.
    fn number(&mut self, root: &str, path: &str) -> u32 {
        let mut parent = None;
        let ends = path.match_indices('.').map(|(at, _)| at).chain([path.len()]);
        let inner = ends.filter(|&at| at > 0).filter_map(|at| path.get(..at));
        for part in [""].into_iter().chain(inner) {
            let next = u32::try_from(self.numbers.len()).unwrap_or(u32::MAX);
            let number = *self.numbers.entry(format!("{root}:{part}")).or_insert(next);
            if number == next {
                self.modules.parents.push(parent);
            }
            parent = Some(number);
        }
        parent.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIB: &str = "/lib/site-packages/torch";

    fn of(frames: &[&str]) -> Op {
        let frames: Vec<String> =
            frames.iter().map(|frame| frame.replace("torch/", &format!("{LIB}/"))).collect();
        Op::of(frames.iter().map(String::as_str))
    }

    #[test]
    fn frames_tell_the_kind_of_an_op() {
        let module = "torch/nn/modules/module.py:1833 inner";
        let linear = ["torch/nn/modules/linear.py:134 forward", module, "/job/train.py:43 forward"];
        assert_eq!(of(&linear), Op::Lower);
        assert_eq!(of(&["torch/nn/modules/conv.py:548 _conv_forward", module]), Op::Convolution);
        let norm =
            ["torch/nn/functional.py:2935 layer_norm", "torch/nn/modules/normalization.py:229 forward"];
        assert_eq!(of(&norm), Op::Wider);
        let pool = ["torch/nn/functional.py:835 _max_pool2d", "torch/_jit_internal.py:636 fn"];
        assert_eq!(of(&pool), Op::SameWithIndices);
        assert_eq!(of(&["torch/nn/modules/activation.py:816 forward", module]), Op::Same);
        assert_eq!(
            of(&["torch/nn/functional.py:3504 cross_entropy", "/job/train.py:9 train"]),
            Op::CrossEntropy
        );
        assert_eq!(of(&["torch/nn/functional.py:4877 interpolate"]), Op::WiderBriefly);
        assert_eq!(of(&["torch/nn/modules/rnn.py:1127 forward", module]), Op::Recurrent);
        // The innermost frame counts; a call of C++ from the program's own code has no name.
        assert_eq!(of(&["/job/train.py:46 forward", module, linear[0]]), Op::Program);
        assert_eq!(of(&[module]), Op::Program);
        assert_eq!(of(&[linear[0], "torch/amp/autocast_mode.py:44 decorate_autocast"]), Op::Autocast);
        assert_eq!(of(&["/job/x.py:1 call", "torch/_inductor/output_code.py:1 __call__"]), Op::Compiled);
    }
}
