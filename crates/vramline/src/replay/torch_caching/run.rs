//! A replay in step with the driver's calls, compared with the trace.

use std::ops::Range;

use super::driver::{DriverExact, InStep, is_flush};
use super::{give, prepare, seed};
use crate::allocator::torch_caching::{Allocation, Lane, Options, PoolId, Request, Ticket, TorchCaching};
use crate::replay::exact::{self, Exact, GrowthAt, Replaying, Stepped};
use crate::replay::program::{Act, ActKind, Program};
use crate::units::Bytes;

/// A replay of PyTorch's allocator, in step with the driver's calls.
pub(crate) struct Run<'a> {
    program: &'a Program,
    allocator: TorchCaching,
    lanes: Vec<Option<Lane>>,
    tickets: Vec<Ticket>,
    driver: InStep<'a>,
    found: DriverExact,
    /// What is left of the acts that restore private pools.
    restores: &'a [Range<u32>],
    at: usize,
}

impl<'a> Run<'a> {
    /// The allocator at the beginning of the trace.
    pub(crate) fn new(program: &'a Program, options: Options) -> Run<'a> {
        let (mut allocator, lanes) = prepare(program, options);
        let mut tickets = vec![Ticket::NONE; program.slots];
        seed(program, &mut allocator, &lanes, &mut tickets);
        let taken = allocator.stats().reserved_bytes.current();
        let driver = InStep::new(&program.driver.calls, taken);
        let found = DriverExact {
            failures: program.driver.failures,
            calls: program.driver.calls.len() as u64,
            ..DriverExact::default()
        };
        let restores = &program.driver.restores;
        Run { program, allocator, lanes, tickets, driver, found, restores, at: 0 }
    }

    /// How the driver's side came out, and the allocator as it is now.
    pub(crate) fn into_parts(self) -> (DriverExact, TorchCaching) {
        let found = DriverExact {
            matches: self.driver.matches,
            only_here: self.driver.only_here,
            stats: *self.allocator.stats(),
            refused: self.driver.refused.map(Bytes),
            ..self.found
        };
        (found, self.allocator)
    }

    /// Marks the private pools as unused whose segments the trace returns now, in the order of the trace: their order is that of a
    /// hash table of PyTorch's, by ids that the trace may not have.
    fn release_pools(&mut self) {
        let returned = self.driver.group().iter().filter(|call| call.gives_back());
        let pools = returned.filter_map(|call| self.allocator.pool_at(call.address));
        let mut order: Vec<PoolId> = pools.filter(|&pool| pool != PoolId::DEFAULT).collect();
        order.dedup();
        for &pool in &order {
            self.allocator.release_pool(pool);
            self.found.unused_pools.push((self.at, pool));
        }
        if order.len() > 1 {
            self.allocator.order_unused_pools(&order);
        }
    }

    /// Gives back everything idle where the trace does so without need.
    #[cold]
    fn flush(&mut self, act: Option<Act>, lane: Option<Lane>) {
        self.release_pools();
        if is_flush(&self.allocator, self.driver.group(), act, lane) {
            self.found.flushes.push(self.at);
            self.allocator.empty_cache(&mut self.driver);
        }
    }

    /// The block of a request that restores a private pool.
    #[inline]
    fn restored(&mut self, act: usize, request: Request) -> Option<Allocation> {
        while self.restores.first()?.end as usize <= act {
            self.restores = self.restores.get(1..)?;
        }
        if act < self.restores.first()?.start as usize {
            return None;
        }
        let made = self.allocator.allocate_at(request, self.program.answers.get(act)?.address);
        self.found.restored += u64::from(made.is_some());
        made
    }

    /// A request that failed in the trace. Where it is served here, nobody has what it gets.
    #[cold]
    fn fail(&mut self, request: Request) -> Option<(u64, Bytes)> {
        self.driver.is_failing = true;
        let made = self.allocator.allocate(request, &mut self.driver).ok();
        self.driver.is_failing = false;
        let Some(made) = made else {
            self.found.failure_matches += 1;
            return None;
        };
        let _ = self.allocator.free(made.ticket);
        self.driver.words.push("it failed in the trace".to_owned());
        Some((made.address, made.size))
    }
}

impl Replaying for Run<'_> {
    type Heap = TorchCaching;

    fn program(&self) -> &Program {
        self.program
    }

    fn done(&self) -> usize {
        self.at
    }

    fn heap(&self) -> &TorchCaching {
        &self.allocator
    }

    #[inline]
    fn step(&mut self) -> Option<Stepped> {
        let act = *self.program.acts.get(self.at)?;
        let has_calls = self.driver.begin(self.at);
        let asked = act.asked();
        let lane = if asked.is_some() { self.lanes.get(act.lane()).copied().flatten() } else { None };
        if has_calls {
            self.flush(Some(act), lane);
        }
        self.at += 1;
        let mut made = None;
        if let Some((bytes, lane)) = asked.zip(lane) {
            let request = Request::of(bytes, lane);
            if act.kind() == ActKind::Fail {
                made = self.fail(request);
            } else {
                let restored = self.restored(self.at - 1, request);
                let allocation = restored.or_else(|| self.allocator.allocate(request, &mut self.driver).ok());
                if let Some(ticket) = self.tickets.get_mut(act.slot()) {
                    *ticket = allocation.map_or(Ticket::NONE, |made| made.ticket);
                }
                made = allocation.map(|made| (made.address, made.size));
                self.found.failures_only_here += u64::from(made.is_none());
            }
        } else {
            give(&mut self.allocator, &mut self.tickets, act);
        }
        if has_calls {
            self.driver.finish();
        }
        Some(Stepped { made, words: std::mem::take(&mut self.driver.words) })
    }

    fn finish(&mut self) -> Vec<String> {
        if self.driver.begin(self.at) {
            self.flush(None, None);
            self.driver.finish();
        }
        std::mem::take(&mut self.driver.words)
    }

    fn address_in(&self, slot: usize) -> Option<u64> {
        self.allocator.address_of(*self.tickets.get(slot)?)
    }

    fn growth_count(&self) -> usize {
        self.allocator.growths().len()
    }

    fn growth(&self, number: usize) -> Option<GrowthAt> {
        self.allocator.growths().get(number).map(|growth| GrowthAt {
            rounded: growth.rounded,
            free: growth.free,
            reachable: growth.reachable,
            largest_free: growth.largest_free,
            largest_elsewhere: growth.largest_elsewhere,
            released: growth.released,
            got: growth.got,
            base: growth.base,
            ..GrowthAt::default()
        })
    }
}

/// Runs a trace's program with the trace's driver, and compares everything. Also gives the allocator as it is at the end.
#[must_use]
pub fn compare(program: &Program, options: Options) -> (Exact, DriverExact, TorchCaching) {
    let mut run = Run::new(program, options);
    let exact = exact::compare(&mut run);
    let (driver, allocator) = run.into_parts();
    (exact, driver, allocator)
}
