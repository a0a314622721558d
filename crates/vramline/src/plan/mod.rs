//! *Internal.* Several small runs to any batch: what it takes, what fits, and how sure that is.
//!
//! Each probe's requests are made as large as they would be at the batch that is asked for, and run through the probe's own
//! allocator, in the probe's own order. Executors with threads order ops differently each time, so every probe and every step of
//! it is one draw of many; what comes out is a distribution, never one number alone. The buffers of programs that XLA compiles are
//! not those of a smaller batch made larger: what the compiler says is taken instead. Not its job: reading, formatting, compiling.

mod autocast;
mod by_key;
mod by_sequence;
mod casts;
mod chance;
mod check;
mod compiled;
mod copies;
mod doubt;
mod draws;
mod edit;
mod fixes;
mod kernels;
pub mod pack;
mod passes;
mod precision;
mod predict;
mod probe;
mod reduction;
mod sixteen;
mod size;
mod splits;
mod torch_call;
mod updates;

use std::sync::atomic::{AtomicUsize, Ordering};

use by_sequence::Likeness;
use check::Check;
use copies::Copied;
use splits::Split;

use crate::allocator::Placement;
use crate::event::Framework;
use crate::replay::{Program, Rehearsal, Rehearsed};
use crate::units::Bytes;
use crate::worker;

pub use chance::{Chance, Largest, with_room};
pub use check::NextProbe;
pub use compiled::{Compiled, ProgramRequest};
pub use doubt::{Doubt, NotPlanned};
pub use fixes::{Fix, Fixed};
pub use kernels::SizedKernel;
pub use predict::{PartPeak, Prediction};
pub use probe::{Part, Probe, Source};
pub use reduction::threads_at_once;
pub use size::{Basis, Form, Parts, Point, Size};

/// What becomes of a request whose size is no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Irregular {
    /// It grows as between the last two probes.
    Scaled,
    /// It stays as large as in its own probe.
    Held,
}

/// Probes, aligned: ready to be asked.
#[derive(Debug)]
pub struct Plan {
    /// The probes, in the order of their batches.
    pub probes: Vec<Probe>,
    sizes: Vec<Vec<Size>>,
    /// Reductions that a probe does not split, by probe.
    splits: Vec<Vec<Split>>,
    /// Convolutions that may copy their tensors, by probe.
    copied: Vec<Vec<Copied>>,
    /// Whether the program asks in the same order every time.
    is_ordered: bool,
    /// What each two probes of such a program have in common.
    alike: Vec<Likeness>,
    /// What was compiled at several batches, where that was given.
    pub compiled: Vec<Compiled>,
    places: Vec<ProgramRequest>,
    /// Ops whose kernels depend on the size.
    kernels: Vec<SizedKernel>,
    /// How well the smaller probes predict the largest.
    check: Option<Check>,
}

impl Plan {
    /// Aligns probes, and predicts the largest of them from the others.
    pub fn new(sources: &[Source<'_>]) -> Result<Plan, NotPlanned> {
        let mut plan = Plan::aligned(sources)?;
        plan.check = Check::of(&plan, sources);
        Ok(plan)
    }

    fn aligned(sources: &[Source<'_>]) -> Result<Plan, NotPlanned> {
        let mut keys = probe::Keys::default();
        let probes = sources.iter().map(|&source| {
            let refused = |why| NotPlanned::NotReplayed { batch: source.batch, why };
            Probe::new(source, &mut keys).map_err(refused)
        });
        let mut probes = probes.collect::<Result<Vec<Probe>, _>>()?;
        probes.sort_by_key(|probe| probe.batch);
        let is_ordered =
            sources.iter().all(|source| source.trace.history.framework == Some(Framework::PyTorch));
        if is_ordered {
            by_sequence::find_skipped(&mut probes);
        }
        let (sizes, alike) =
            if is_ordered { by_sequence::sizes(&probes) } else { (by_key::sizes(&probes), Vec::new()) };
        doubt::check(&probes, &sizes, is_ordered, &alike)?;
        let ordered = || probes.iter().zip(&sizes).filter(|_| is_ordered);
        let splits = ordered().map(|(probe, sizes)| splits::of(probe, sizes)).collect();
        let copied = ordered().map(|(probe, sizes)| copies::of(probe, sizes)).collect();
        let (compiled, places) = (Vec::new(), Vec::new());
        let kernels = SizedKernel::among(keys.names());
        let mut plan =
            Plan { probes, sizes, splits, copied, is_ordered, alike, compiled, places, kernels, check: None };
        // Traces hold the programs that ran in them.
        plan.add_compiled(sources.iter().filter_map(Compiled::of_probe).collect());
        Ok(plan)
    }

    /// The requests to a probe's pool at another batch size.
    #[must_use]
    pub fn program_at(&self, number: usize, batch: u64, irregular: Irregular) -> Option<Program> {
        let (probe, sizes) = (self.probes.get(number)?, self.sizes.get(number)?);
        let mut program = probe.ran.program.resized(probe.end());
        for (ask, size) in probe.asks.iter().zip(sizes) {
            let is_held = irregular == Irregular::Held && size.basis == Basis::Irregular;
            program.set_bytes(ask.act, if is_held { Bytes(ask.bytes) } else { size.form.at(batch) });
        }
        let splits = self.splits.get(number).into_iter().flatten();
        program.driver.at_once = splits.filter_map(|split| Some((split.act, split.at(batch)?))).collect();
        Some(program)
    }

    /// A probe's program of another batch, through its allocator without a limit.
    #[must_use]
    pub fn rehearse(&self, number: usize, program: &Program, placement: Placement) -> Option<Rehearsed> {
        let probe = self.probes.get(number)?;
        Rehearsal { program, rules: &probe.ran.rules, limit: None, placement }.run(&probe.cuts())
    }
}

/// What a function makes of each item, in their order; on all cores.
fn each<Item: Sync, Made: Send>(items: &[Item], make: impl Fn(&Item) -> Made + Sync) -> Vec<Made> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut made = Vec::new();
        while let at = next.fetch_add(1, Ordering::Relaxed)
            && let Some(item) = items.get(at)
        {
            made.push((at, make(item)));
        }
        made
    };
    let mut made = std::thread::scope(|threads| {
        // Where there can be no more threads, fewer do it.
        let spawn = |_| std::thread::Builder::new().spawn_scoped(threads, work).ok();
        let others: Vec<_> = (1..cores.min(items.len())).filter_map(spawn).collect();
        let mut made = work();
        for other in others {
            made.extend(worker::joined(other));
        }
        made
    });
    made.sort_unstable_by_key(|(at, _)| *at);
    made.into_iter().map(|(_, made)| made).collect()
}
