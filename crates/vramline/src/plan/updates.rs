//! Gradients and updates of PyTorch programs: which requests are gradients of parameters, which are temporary results of an optimizer, and
//! how many backward passes an update has. What fixes of these make of the requests follows from that.
//!
//! Stacks tell the pass of a request; nothing else of it is known. The gradient of a parameter is as large at every batch size, and is there
//! when the optimizer begins. Not its job: 16-bit numbers, recomputation.

use std::ops::Range;

use super::Fix;
use super::probe::{Ask, Probe};
use super::size::{Form, Size};
use crate::snapshot::Role;
use crate::trace::Pass;

/// A micro-batch is over where less than one part in so many of its results is left.
const LEFT_DIVISOR: u64 = 10;

/// The temporary results that an update of a single parameter has at once: a root and a quotient, in Adam.
const AT_ONCE: u32 = 2;

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// It is freed at once; so often at the same time.
    Brief(u32),
    /// It stays up to an act.
    Until(usize),
}

/// The gradients and updates of a probe.
#[derive(Debug, Default)]
pub(super) struct Updates {
    /// The gradients of parameters that are there when an update begins: the act, and the end of that update.
    gradients: Vec<(usize, usize)>,
    /// The gradients of parameters that are added to those that stay: the same.
    added: Vec<(usize, usize)>,
    /// What an update asks for and frees.
    temporaries: Vec<usize>,
    /// Whether gradients stay between steps.
    pub(super) keeps_gradients: bool,
    /// The number of backward passes of an update.
    pub(super) rounds: usize,
    /// The bytes of all gradients, each once.
    pub(super) sizes: Vec<u64>,
}

/// The act that frees a request.
fn freed(ask: &Ask) -> usize {
    ask.life.map_or(usize::MAX, |life| ask.act.saturating_add(life))
}

/// The acts from the first request of each update to the first after it. An optimizer that needs no memory is not seen.
fn spans(asks: &[Ask]) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    let mut is_open = false;
    for ask in asks {
        match (ask.pass == Some(Pass::Update), is_open) {
            (true, false) => spans.push(ask.act..usize::MAX),
            (false, true) => {
                if let Some(last) = spans.last_mut() {
                    last.end = ask.act;
                }
            }
            _ => {}
        }
        is_open = ask.pass == Some(Pass::Update);
    }
    spans
}

impl Updates {
    pub(super) fn of(probe: &Probe, sizes: &[Size]) -> Updates {
        let spans = spans(&probe.asks);
        let mut updates = Updates { rounds: rounds_of(&probe.asks), ..Updates::default() };
        // What is added to a gradient that stays is as large as it, and comes once in every step.
        let mut kept: Vec<u64> = Vec::new();
        let mut missing: (usize, Vec<u64>) = (0, Vec::new());
        for (ask, size) in probe.asks.iter().zip(sizes) {
            let number = spans.partition_point(|span| span.end <= ask.act);
            let Some(span) = spans.get(number) else { break };
            let is_gradient = ask.role == Role::Gradients && matches!(size.form, Form::Constant(_));
            match ask.pass {
                Some(Pass::Backward) if is_gradient && freed(ask) >= span.start => {
                    updates.gradients.push((ask.act, span.end));
                    if number == 0 {
                        updates.sizes.push(ask.bytes);
                    }
                    if spans.get(number + 1).is_some_and(|next| freed(ask) > next.end) {
                        kept.push(ask.bytes);
                    }
                }
                Some(Pass::Backward) if is_gradient => {
                    if missing.0 != number {
                        missing = (number, kept.clone());
                    }
                    if let Some(at) = missing.1.iter().position(|&bytes| bytes == ask.bytes) {
                        missing.1.swap_remove(at);
                        updates.added.push((ask.act, span.end));
                    }
                }
                Some(Pass::Update) if freed(ask) <= span.end => updates.temporaries.push(ask.act),
                _ => {}
            }
        }
        updates.keeps_gradients = !kept.is_empty();
        updates
    }

    /// Whether an optimizer asks for memory that it frees.
    pub(super) fn has_temporaries(&self) -> bool {
        !self.temporaries.is_empty()
    }

    /// What fixes make of requests, by act.
    pub(super) fn changes(&self, fixes: &[Fix]) -> Vec<(usize, Change)> {
        let brief = |acts: &mut dyn Iterator<Item = usize>, times: u32| -> Vec<(usize, Change)> {
            acts.map(|act| (act, Change::Brief(times))).collect()
        };
        let gradients = || brief(&mut self.gradients.iter().map(|(act, _)| *act), 1);
        let temporaries = || brief(&mut self.temporaries.iter().copied(), AT_ONCE);
        let mut changes = Vec::new();
        for fix in fixes {
            match fix {
                // The sum stays, and each gradient only until it is added.
                Fix::Accumulate { .. } if !self.keeps_gradients => changes.extend(gradients()),
                Fix::StepInBackward => changes.extend(gradients().into_iter().chain(temporaries())),
                Fix::OneByOne => changes.extend(temporaries()),
                Fix::SetToNone => {
                    let all = self.gradients.iter().chain(&self.added);
                    changes.extend(all.map(|&(act, end)| (act, Change::Until(end))));
                }
                _ => {}
            }
        }
        changes
    }
}

/// How often a program goes forward and back between two updates, in the middle. What is computed again in the backward pass finds most results
/// of the forward pass still there, and is none.
fn rounds_of(asks: &[Ask]) -> usize {
    let mut all = Vec::new();
    let (mut rounds, mut is_back) = (1, false);
    let mut forth: Vec<&Ask> = Vec::new();
    for ask in asks {
        match ask.pass {
            Some(Pass::Forward) => {
                let sum = |asks: &mut dyn Iterator<Item = &&Ask>| {
                    asks.fold(0_u64, |sum, ask| sum.saturating_add(ask.bytes))
                };
                let left = || sum(&mut forth.iter().filter(|earlier| freed(earlier) > ask.act));
                if is_back && left() < sum(&mut forth.iter()) / LEFT_DIVISOR {
                    rounds += 1;
                    forth.clear();
                }
                is_back = false;
                forth.push(ask);
            }
            Some(Pass::Backward) => is_back = true,
            Some(Pass::Update) if is_back => {
                all.push(std::mem::replace(&mut rounds, 1));
                is_back = false;
                forth.clear();
            }
            _ => {}
        }
    }
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::super::probe::{Keys, Place};
    use super::*;
    use crate::event::{Dtype, Region};

    /// A request of a pass: its act, the act that frees it, and its bytes.
    fn ask(pass: Pass, act: usize, freed: usize, bytes: u64) -> Ask {
        Ask {
            act,
            key: Keys::default().key("", Region::Unknown, Dtype::Unknown, 0),
            occurrence: 0,
            stretch: 0,
            bytes,
            shape: Vec::new(),
            role: Role::Gradients,
            is_named: true,
            tries_kernels: false,
            life: Some(freed - act),
            dtype: Dtype::Unknown,
            place: Place::default(),
            pass: Some(pass),
            call: None,
        }
    }

    #[test]
    fn backward_passes_of_an_update_are_counted() {
        use Pass::{Backward, Forward, Update};
        let once = |at: usize| [ask(Forward, at, at + 3, 100), ask(Backward, at + 2, at + 9, 10)];
        let step = |at: usize, rounds: usize| {
            let mut asks: Vec<Ask> = (0..rounds).flat_map(|round| once(at + 4 * round)).collect();
            asks.push(ask(Update, at + 4 * rounds, at + 4 * rounds + 1, 10));
            asks
        };
        let steps = |rounds| (0..3).flat_map(|number| step(100 * number, rounds)).collect::<Vec<Ask>>();
        assert_eq!((rounds_of(&steps(1)), rounds_of(&steps(3))), (1, 3));
        // Results that are computed again, while those of the forward pass are still there.
        let again = [
            ask(Forward, 0, 9, 100),
            ask(Forward, 1, 3, 100),
            ask(Backward, 2, 20, 10),
            ask(Forward, 4, 8, 100),
            ask(Backward, 6, 20, 10),
            ask(Update, 12, 13, 10),
        ];
        assert_eq!(rounds_of(&again), 1);
        assert_eq!(rounds_of(&[]), 1);
        assert_eq!(spans(&steps(1)), [4..100, 104..200, 204..usize::MAX]);
    }
}
