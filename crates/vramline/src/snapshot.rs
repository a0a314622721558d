//! What a pool held at one moment: a state without a history.
//!
//! A trace gives one at any time ([`crate::trace::Trace::snapshot`]); files that only ever knew one moment will give
//! theirs directly. Every view of "what holds the memory" is made from this, so the identity is kept here:
//! requested + slack + before the recording = in use.

use crate::event::Dtype;
use crate::names::Name;
use crate::units::{Bytes, Picos, Span};

/// What a tensor is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// Scratch, and results that are soon consumed.
    Temporaries,
    /// Not known.
    Unknown,
}

impl Role {
    /// Every role, in the order in which they are shown.
    pub const ALL: [Role; 7] = [
        Role::Parameters,
        Role::Gradients,
        Role::Optimizer,
        Role::Activations,
        Role::Inputs,
        Role::Temporaries,
        Role::Unknown,
    ];

    /// The word used everywhere.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Role::Parameters => "parameters",
            Role::Gradients => "gradients",
            Role::Optimizer => "optimizer",
            Role::Activations => "activations",
            Role::Inputs => "inputs",
            Role::Temporaries => "temporaries",
            Role::Unknown => "unknown",
        }
    }
}

/// One block that is held.
#[derive(Clone, Debug)]
pub struct Held {
    /// What was asked for.
    pub requested: Bytes,
    /// What the allocator took for it.
    pub chunk: Bytes,
    /// The op that asked; empty where nothing names it.
    pub op: Name,
    /// The model layer; empty where none is known.
    pub layer: String,
    /// What it is for.
    pub role: Role,
    /// Its shape; empty where not told.
    pub shape: Name,
    /// Its element type.
    pub dtype: Dtype,
    /// Where in the program, as far as the source shows it.
    pub source: String,
    /// What the role rests on, or why there is no name.
    pub evidence: &'static str,
    /// How long it has been held at this moment; `None` where unknown.
    pub age: Option<Span>,
    /// The variable whose value it is, where the program told; else empty.
    pub variable: String,
}

impl Held {
    /// Bytes taken beyond what was asked for.
    #[must_use]
    pub fn slack(&self) -> Bytes {
        self.chunk.saturating_sub(self.requested)
    }
}

/// What a pool held at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The moment.
    pub time: Picos,
    /// Bytes in use, by the allocator's own count.
    pub in_use: Bytes,
    /// In use, but allocated before the source begins.
    pub before_recording: Bytes,
    /// Every block that the source knows by itself.
    pub held: Vec<Held>,
}

impl Snapshot {
    /// Bytes asked for by the blocks that are known.
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
