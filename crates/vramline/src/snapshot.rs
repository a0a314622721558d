//! *Internal.* What a pool held at one moment: a state without a history.
//!
//! A trace gives one at any time ([`crate::trace::Trace::snapshot`]); files that only ever knew one moment give theirs
//! directly, as a [`Still`]. Every view of "what holds the memory" is made from this, so the identity is kept here:
//! requested + slack + before the recording = in use.

use crate::event::{Dtype, Framework};
use crate::names::{Name, Names};
use crate::stack::{Stack, Stacks};
use crate::units::{Bytes, Picos, Span};
use crate::warning::Warnings;

/// What a tensor is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Weights of the model, and their non-trained companions.
    Parameters,
    /// Results of the backward pass.
    Gradients,
    /// State of the optimizer.
    Optimizer,
    /// Results of the forward pass that wait for the backward pass.
    Activations,
    /// Training data on its way in.
    Inputs,
    /// Held by the program across steps, and none of the others: moving averages, accumulators, tables, metrics.
    State,
    /// Scratch, and results that are soon consumed.
    Temporaries,
    /// Not known.
    #[default]
    Unknown,
}

words!(Role {
    Parameters => "parameters",
    Gradients => "gradients",
    Optimizer => "optimizer",
    Activations => "activations",
    Inputs => "inputs",
    State => "state",
    Temporaries => "temporaries",
    Unknown => "unknown",
});

/// One block that is held.
#[derive(Clone, Debug)]
pub struct Held {
    /// The requested bytes.
    pub requested: Bytes,
    /// What the allocator took for it.
    pub chunk: Bytes,
    /// The op that asked; empty where nothing names it.
    pub op: Name,
    /// The model layer; empty where none is known.
    pub layer: String,
    /// What it is for.
    pub role: Role,
    /// Its shape; empty if unknown.
    pub shape: Name,
    /// Its element type.
    pub dtype: Dtype,
    /// Where in the program, as far as the source shows it.
    pub source: String,
    /// What the role rests on, or why there is no name.
    pub evidence: &'static str,
    /// How long it has been held at this moment; `None` where unknown.
    pub age: Option<Span>,
    /// The variable whose value it is; empty if unknown.
    pub variable: String,
    /// The number of that variable, which tells it from others of the same name; `None` if the program did not report it.
    pub variable_number: Option<i64>,
    /// The call stack of the request; empty if unknown.
    pub stack: Stack,
    /// The number of blocks, if the source contains only their sum.
    pub count: u64,
}

impl Held {
    /// A block of which only the sizes are known.
    #[must_use]
    pub fn bare(requested: Bytes, chunk: Bytes, evidence: &'static str) -> Held {
        Held {
            requested,
            chunk,
            op: Name::EMPTY,
            layer: String::new(),
            role: Role::Unknown,
            shape: Name::EMPTY,
            dtype: Dtype::Unknown,
            source: String::new(),
            evidence,
            age: None,
            variable: String::new(),
            variable_number: None,
            stack: Stack::EMPTY,
            count: 1,
        }
    }

    /// Whether anything says what it is: an op, a place in the program, a variable.
    #[must_use]
    pub fn is_named(&self) -> bool {
        !self.op.is_empty() || !self.variable.is_empty() || !self.stack.is_empty() || !self.layer.is_empty()
    }

    /// Bytes handed out beyond the request.
    #[must_use]
    pub fn slack(&self) -> Bytes {
        self.chunk.saturating_sub(self.requested)
    }
}

/// What a pool held at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The time; `None` if the source does not contain it.
    pub time: Option<Picos>,
    /// Bytes in use, by the allocator's own count.
    pub in_use: Bytes,
    /// In use, but allocated before the source begins.
    pub before_recording: Bytes,
    /// Every block that the source knows by itself.
    pub held: Vec<Held>,
}

impl Snapshot {
    /// Requested bytes of the known blocks.
    #[must_use]
    pub fn requested(&self) -> Bytes {
        self.held.iter().map(|held| held.requested).sum()
    }

    /// Bytes that those blocks take beyond that.
    #[must_use]
    pub fn slack(&self) -> Bytes {
        self.held.iter().map(Held::slack).sum()
    }
}

/// What pools held at the one moment that a file knows: a dump, a profile, a buffer assignment.
#[derive(Clone, Debug)]
pub struct Still {
    /// The word for the file's format in JSON.
    pub format: &'static str,
    /// The framework that wrote it, where that shows.
    pub framework: Option<Framework>,
    /// The table behind every [`Name`] here.
    pub names: Names,
    /// The table behind every [`Stack`] here.
    pub stacks: Stacks,
    /// The pools.
    pub pools: Vec<StillPool>,
    /// What went wrong on the way.
    pub warnings: Warnings,
}

/// One pool at that moment.
#[derive(Clone, Debug)]
pub struct StillPool {
    /// The allocator, device or executable, as the source names it.
    pub name: String,
    /// The device, as `GPU:0`; empty if unknown.
    pub device: String,
    /// What the pool may take.
    pub limit: Option<Bytes>,
    /// The most in use since the process began.
    pub lifetime_peak: Option<Bytes>,
    /// Share of the free bytes outside the largest free block.
    pub fragmentation: Option<f32>,
    /// How many allocations there were since the process began.
    pub allocs: Option<u64>,
    /// What it held.
    pub snapshot: Snapshot,
}
