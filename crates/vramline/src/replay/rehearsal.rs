//! Runs a predicted program through an allocator: the peak of each part, and the limit that it needs.
//!
//! The placement of regions by the driver is invented, because it is unknown.

use super::program::{Act, Program};
use super::torch_caching::{self, Before, DriverExact, Returns};
use super::what_if::{self, Driven, Failure};
use super::{NO_LIMIT, Rules};
use crate::allocator::bfc::{Bfc, Ticket};
use crate::allocator::{Placed, Placement};
use crate::units::Bytes;

/// What is to be run.
#[derive(Clone, Copy, Debug)]
pub struct Rehearsal<'a> {
    /// The requests and frees.
    pub program: &'a Program,
    /// The allocator.
    pub rules: &'a Rules,
    /// What the pool may take; `None` for as much as it wants.
    pub limit: Option<Bytes>,
    /// Where regions are put.
    pub placement: Placement,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Rehearsed {
    /// The most in use from each cut to the next; the first is before the first cut.
    pub peaks: Vec<Bytes>,
    /// The act at which the most is in use in each.
    pub peaks_at: Vec<usize>,
    /// The most in use.
    pub peak: Bytes,
    /// The most taken from the driver.
    pub pool: Bytes,
    /// The first request that was not served.
    pub failure: Option<Failure>,
}

impl Rehearsal<'_> {
    /// Runs it and returns the peaks between acts in ascending order. `None` if no such pool can exist.
    #[must_use]
    pub fn run(&self, cuts: &[usize]) -> Option<Rehearsed> {
        let mut peaks = vec![Bytes::ZERO; cuts.len() + 1];
        let mut peaks_at = vec![0; cuts.len() + 1];
        let mut part = 0;
        let tell = |act: usize, in_use: Bytes| {
            while cuts.get(part).is_some_and(|&cut| cut <= act) {
                part += 1;
            }
            if let (Some(peak), Some(at)) = (peaks.get_mut(part), peaks_at.get_mut(part))
                && in_use > *peak
            {
                (*peak, *at) = (in_use, act);
            }
        };
        let driven = self.drive(tell)?;
        let Driven { peak, pool, failure, .. } = driven;
        Some(Rehearsed { peaks, peaks_at, peak, pool, failure })
    }

    fn drive(&self, tell: impl FnMut(usize, Bytes)) -> Option<Driven> {
        let acts = &self.program.acts;
        let mut supplier = Placed::new(self.placement);
        match self.rules {
            Rules::Bfc(preset) => {
                let limit = preset.options.limit(self.limit.unwrap_or(NO_LIMIT));
                let mut bfc = Bfc::new("", limit, preset.options)?;
                Some(what_if::drive(self.program, acts, &[], &mut bfc, &mut supplier, tell))
            }
            Rules::Torch(rules) => {
                let mut options = rules.options;
                options.cap = self.limit;
                let DriverExact { flushes, unused_pools, .. } = &rules.driver;
                let (before, returns) = (Before::Asked(&[]), Returns { flushes, unused_pools });
                Some(torch_caching::drive(self.program, acts, before, options, &returns, &mut supplier, tell))
            }
        }
    }

    /// Whether every request is served.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.drive(|_, _| ()).is_some_and(|driven| driven.failure.is_none())
    }

    /// How each stretch between cuts fares under the limit. Those up to `base` come one after the other, and where one of them fails
    /// nothing is known of the rest; each later one comes right after these, whatever became of those between.
    #[must_use]
    pub(crate) fn fares(&self, cuts: &[usize], base: usize) -> Vec<Fare> {
        let failed = vec![Fare::Fails];
        let Rules::Bfc(preset) = self.rules else {
            return vec![if self.passes() { Fare::Passes } else { Fare::Fails }];
        };
        let limit = preset.options.limit(self.limit.unwrap_or(NO_LIMIT));
        let Some(bfc) = Bfc::new("", limit, preset.options) else { return failed };
        let mut pool = Pool {
            bfc,
            supplier: Placed::new(self.placement),
            tickets: vec![Ticket::NONE; self.program.slots],
        };
        let Pool { bfc, supplier, tickets } = &mut pool;
        if what_if::place_earlier(self.program, &[], bfc, supplier, tickets).is_some() {
            return failed;
        }
        let acts = &self.program.acts;
        let ends = cuts.iter().copied().chain([acts.len()]);
        let begins = [0].into_iter().chain(cuts.iter().copied());
        let mut fares = Vec::with_capacity(cuts.len() + 1);
        let mut live = vec![None; self.program.slots];
        for block in &self.program.earlier {
            if let Some(live) = live.get_mut(block.slot as usize) {
                *live = Some(EARLIER);
            }
        }
        let mut after_base = Vec::new();
        for (number, (begin, end)) in begins.zip(ends).enumerate() {
            let stretch = acts.get(begin..end).unwrap_or_default();
            if number <= base {
                let fare = pool.take(stretch);
                fares.push(fare);
                if fare == Fare::Fails {
                    return fares;
                }
            } else {
                let mut pool = pool.clone();
                let is_ready = pool.become_like(acts, &after_base, &live);
                fares.push(if is_ready { pool.take(stretch) } else { Fare::Fails });
            }
            for (at, act) in (begin..end).zip(stretch) {
                if let Some(live) = live.get_mut(act.slot()) {
                    *live = act.requested().map(|_| at);
                }
            }
            if number == base {
                after_base.clone_from(&live);
            }
        }
        fares
    }
}

/// Stands for an act before the trace.
const EARLIER: usize = usize::MAX;

/// How a stretch of a program fares under a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fare {
    /// Every request is served without waiting.
    Passes,
    /// Some wait for other threads, as TensorFlow's do, and are served then.
    Waits,
    /// Some wait in vain.
    Fails,
}

/// A pool with what is in it.
#[derive(Clone)]
struct Pool {
    bfc: Bfc,
    supplier: Placed,
    tickets: Vec<Ticket>,
}

impl Pool {
    /// Serves acts, if need be by waiting.
    fn take(&mut self, acts: &[Act]) -> Fare {
        let before = self.clone();
        if what_if::serve(acts, &mut self.bfc, &mut self.supplier, &mut self.tickets, |_, _| ()).is_none() {
            return Fare::Passes;
        }
        *self = before;
        let served = what_if::serve_waiting(acts, &mut self.bfc, &mut self.supplier, &mut self.tickets);
        if served.is_some() { Fare::Waits } else { Fare::Fails }
    }

    /// Frees and asks for what makes a pool that holds some acts' blocks one that holds others'. Says whether there was room.
    fn become_like(&mut self, acts: &[Act], now: &[Option<usize>], then: &[Option<usize>]) -> bool {
        let mut asked = Vec::new();
        for (slot, (now, then)) in now.iter().zip(then).enumerate().filter(|(_, (now, then))| now != then) {
            if let (Some(_), Some(ticket)) = (now, self.tickets.get_mut(slot)) {
                let _ = self.bfc.free(std::mem::replace(ticket, Ticket::NONE));
            }
            asked.extend(*then);
        }
        asked.sort_unstable();
        let asked: Vec<Act> = asked.into_iter().filter_map(|at| acts.get(at).copied()).collect();
        what_if::serve(&asked, &mut self.bfc, &mut self.supplier, &mut self.tickets, |_, _| ()).is_none()
    }
}
