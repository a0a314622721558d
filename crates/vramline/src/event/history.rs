//! Everything that one source contains: pools, marks, times of ops, and events.

use rustc_hash::FxHashMap;

use super::{Caching, Events, Hardware, ModuleCall, PoolId};
use crate::executable::Executable;
use crate::names::{Name, Names};
use crate::stack::Stacks;
use crate::units::{Bytes, Nanos, Picos, Span};
use crate::warning::Warnings;

/// Which framework wrote a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framework {
    /// TensorFlow.
    TensorFlow,
    /// JAX.
    Jax,
    /// PyTorch.
    PyTorch,
}

words!(Framework { TensorFlow => "tensorflow", Jax => "jax", PyTorch => "pytorch" });

impl Framework {
    /// Whether a Python package of this name is the framework.
    #[must_use]
    pub fn is_called(self, package: &str) -> bool {
        match self {
            Framework::PyTorch => package == "torch",
            other => package == other.word(),
        }
    }

    /// The name, as people write it.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Framework::TensorFlow => "TensorFlow",
            Framework::Jax => "JAX",
            Framework::PyTorch => "PyTorch",
        }
    }
}

/// Facts about a pool that events contain besides single allocations.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// The allocator's name, as the framework gives it.
    pub name: String,
    /// The limit of the pool: in use plus available. `None` if the source contains neither.
    pub limit: Option<Bytes>,
    /// The highest in-use figure since the process began, also before the recording.
    pub lifetime_peak: Option<Bytes>,
    /// The same high-water mark in the pool's first event, with that event's time.
    pub first_lifetime_peak: Option<(Picos, Bytes)>,
    /// Whether the source begins before the pool's first allocation, where the source itself proves it.
    pub from_start: Option<bool>,
    /// What the allocator reserved from the driver, if the source contains it.
    pub caching: Option<Caching>,
}

/// A stretch of time that the source marks as one call of the training program.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// What the source calls it.
    pub name: Name,
    /// Which sort of mark.
    pub kind: MarkKind,
    /// The thread it is on: marks nest within a thread.
    pub thread: Name,
    /// When it began.
    pub begin: Picos,
    /// How long it took.
    pub length: Span,
}

/// The beginning of the name that PyTorch gives an update by an optimizer.
pub(crate) const OPTIMIZER_STEP: &str = "Optimizer.step#";

/// Where a [`Mark`] comes from, best evidence first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkKind {
    /// The program named its step, with this number.
    Step(i64),
    /// From the end of one update by the optimizer to the end of the next, counted.
    Update(i64),
    /// A call of a compiled TensorFlow function.
    Function,
    /// A call of a compiled JAX function.
    Jit,
}

/// Time that an op took, summed over its calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpTime {
    /// How many calls.
    pub calls: u64,
    /// All of them together.
    pub total: Span,
}

/// What a source shows of the way it was recorded: evidence for why something is missing.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    /// The profiler's host tracer level, where the source keeps it.
    pub host_tracer_level: Option<u64>,
    /// Whether there are any host threads in the source.
    pub has_host_threads: bool,
    /// Whether the source shows work on a GPU.
    pub has_gpu: bool,
    /// Whether host threads show driver calls of the stream-ordered allocator.
    pub calls_malloc_async: bool,
    /// Whether host threads show TensorFlow ops.
    pub shows_tf_ops: bool,
    /// Memory events without an address or a size, which were left out.
    pub bare_events: u64,
}

/// Everything that one source contains: readers fill it.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The table behind every [`Name`] here.
    pub names: Names,
    /// The table behind every [`Stack`](crate::stack::Stack) here.
    pub stacks: Stacks,
    /// The pools, by [`PoolId`].
    pub pools: Vec<Pool>,
    /// The memory events, in order of time.
    pub events: Events,
    /// What ran when PyTorch allocated, by the name that the events have for it.
    pub module_calls: FxHashMap<Name, ModuleCall>,
    /// Calls of the training program, in order of time.
    pub marks: Vec<Mark>,
    /// Time by op.
    pub op_times: FxHashMap<Name, OpTime>,
    /// The source's clock at [`Picos`] zero.
    pub origin: Nanos,
    /// The wall-clock time of the source clock's zero, if the source contains it.
    pub wall_clock_zero: Option<Nanos>,
    /// The same moment on the monotonic clock; only recordings contain it.
    pub monotonic_zero: Option<Nanos>,
    /// The framework, where the source shows it.
    pub framework: Option<Framework>,
    /// Compiled programs that ran, where the source has them.
    pub executables: Vec<Executable>,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: Option<u64>,
    /// What the source contains about the devices.
    pub hardware: Vec<Hardware>,
    /// How it was recorded.
    pub recorder: Recorder,
    /// What went wrong on the way.
    pub warnings: Warnings,
}

impl History {
    /// The facts of a pool.
    #[must_use]
    pub fn pool(&self, id: PoolId) -> Option<&Pool> {
        self.pools.get(usize::from(id.0))
    }
}
