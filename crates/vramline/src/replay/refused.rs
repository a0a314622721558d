//! A request that failed, put back into its program.
//!
//! The events of TensorFlow and JAX tell of requests that were served only. One that failed is part of the program all the same: whatever
//! setting is asked for must have room for it. How long its owner would have kept the block is not known, so it is freed at once.

use super::program::{Act, Program};
use crate::units::Bytes;

/// A request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The requested bytes.
    pub bytes: Bytes,
    /// The act that would have come next.
    pub before: usize,
}

/// Whose act it is, in a program with the request in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActOf {
    /// The trace's, by its place there.
    Trace(usize),
    /// The request that failed.
    Refused,
}

impl Refused {
    /// The program with it: asked for and freed between two acts of the trace.
    #[must_use]
    pub fn within(self, program: &Program) -> Program {
        let mut program = program.clone();
        let before = self.before.min(program.acts.len());
        let slot = u32::try_from(program.slots).unwrap_or(u32::MAX);
        program.slots += 1;
        program.requests += 1;
        // A thread that waits for memory has done the last that happened, in all likelihood.
        let last = before
            .checked_sub(1)
            .and_then(|last| Some((program.acts.get(last)?, program.answers.get(last)?)));
        let (lane, answer) = last.map_or((0, None), |(act, answer)| (act.lane(), Some(*answer)));
        let lane = u16::try_from(lane).unwrap_or(u16::MAX);
        let asks = Act::request(self.bytes, slot).asking(self.bytes, lane);
        program.acts.splice(before..before, [asks, Act::free(slot).asking(Bytes::ZERO, lane)]);
        let answer = answer.or(program.answers.first().copied());
        // A program that nobody recorded has no answers.
        let place = before.min(program.answers.len());
        program.answers.splice(place..place, answer.into_iter().flat_map(|answer| [answer, answer]));
        program
    }

    /// Whose an act of that program is.
    #[must_use]
    pub fn act_of(self, act: usize) -> ActOf {
        match act.checked_sub(self.before) {
            None => ActOf::Trace(act),
            Some(0 | 1) => ActOf::Refused,
            Some(_) => ActOf::Trace(act - 2),
        }
    }

    /// Where an act of the trace is in that program.
    #[must_use]
    pub fn moved(self, act: usize) -> usize {
        if act >= self.before { act + 2 } else { act }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_asked_for_in_its_place() {
        let acts = vec![Act::request(Bytes(10), 0), Act::free(0), Act::request(Bytes(20), 0)];
        let program = Program { acts, slots: 1, requests: 2, ..Program::default() };
        let refused = Refused { bytes: Bytes(70), before: 1 };
        let with = refused.within(&program);
        let asked: Vec<Option<u64>> =
            with.acts.iter().map(|act| act.requested().map(|bytes| bytes.0)).collect();
        assert_eq!(asked, [Some(10), Some(70), None, None, Some(20)]);
        assert_eq!((with.slots, with.requests, with.load()), (2, 3, Bytes(80)));
        let places: Vec<ActOf> = (0..5).map(|act| refused.act_of(act)).collect();
        assert_eq!(
            places,
            [ActOf::Trace(0), ActOf::Refused, ActOf::Refused, ActOf::Trace(1), ActOf::Trace(2)]
        );
        assert_eq!([0, 1, 2].map(|act| refused.moved(act)), [0, 3, 4]);
        let last = Refused { before: 99, ..refused }.within(&program);
        assert_eq!(last.acts.last().map(|act| act.ends()), Some(true));
    }
}
