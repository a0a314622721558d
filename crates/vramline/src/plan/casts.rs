//! What 16 bits make of a probe's requests: which become half, which are cast, and which copies there are in addition.

use rustc_hash::FxHashMap;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Becomes {
    /// It is requested in 16 bits.
    Half,
    /// The same, and it is freed before an act.
    HalfUntil(usize),
    /// It is in 32 bits, and is freed before an act.
    WholeUntil(usize),
    /// It is made in 16 bits, and a copy in 32 takes its place.
    Widened,
    /// It is in 16 bits up to an act, and from there on a copy in 32 takes its place.
    WidenedAt(usize),
    /// It is made in 32 bits, and a copy in 16 takes its place.
    Narrowed,
    /// It is in 32 bits up to an act, and from there on a copy in 16 takes its place.
    NarrowedAt(usize),
    /// It is made in 16 bits, a copy in 32 takes its place, and from an act on one in 16 again.
    WidenedUntil(usize),
}

/// A copy that the probe had not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Copied {
    pub(super) bytes: u64,
    /// The act before which it is made.
    pub(super) from: usize,
    /// The act before which it is freed.
    pub(super) until: usize,
}

/// What 16 bits make of a probe's requests.
#[derive(Debug, Default)]
pub(super) struct Casts {
    /// By act. What is not here stays.
    pub(super) becomes: FxHashMap<usize, Becomes>,
    pub(super) copies: Vec<Copied>,
}

impl Casts {
    pub(super) fn copy(&mut self, bytes: u64, from: usize, until: usize) {
        if from < until {
            self.copies.push(Copied { bytes, from, until });
        }
    }
}
