//! The same requests under other settings: does it fit, how high is the peak, how large the pool.
//!
//! Requests come in the recorded order. Where a request fails TensorFlow waits up to ten seconds for other threads to free something.
//! So a program that fails is run once more, with waiting: the thread that asked stands still, and so does whatever needs what it asked for,
//! while the others go on. Which op needs which is not known beyond that, so a program that fits only by waiting fits perhaps. Threads also
//! come in another order each time: where several ask, "no" is said only if what is held at once is more than the limit.
//! Where the driver would put regions under other settings is not known, and ties between
//! free chunks of the same size go to the lower address; so several placements are run, and an answer that depends on
//! the placement is a range. The driver's own pool (`cudaMallocAsync`) has no public rules: it is answered with bounds.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use super::Rules;
use super::exact::Heap;
use super::packing;
use super::program::{Act, ActKind, Program};
use super::setting::Setting;
use super::torch_caching::{self, Before, Returns};
use crate::allocator::bfc::{Bfc, Options, Request, Ticket};
use crate::allocator::{Placed, Placement, Scripted, Supplier};
use crate::units::Bytes;

/// A limit is searched in steps of this, which is the unit of TensorFlow's own settings.
pub(crate) const LIMIT_STEP: Bytes = Bytes(1 << 20);

/// The request at which a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The act; none where it is a request for something from before.
    pub act: Option<usize>,
    /// The requested bytes.
    pub asked: Bytes,
    /// In use then.
    pub in_use: Bytes,
    /// Free in the pool then.
    pub free: Bytes,
    /// The largest free chunk then.
    pub largest_free: Bytes,
}

impl Failure {
    pub(super) fn of(act: Option<usize>, asked: Bytes, heap: &impl Heap) -> Failure {
        let (in_use, free, largest_free) = (heap.in_use(), heap.cached(), heap.largest_free());
        Failure { act, asked, in_use, free, largest_free }
    }
}

/// What an answer rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnsweredBy {
    /// The requests were run.
    Replay,
    /// What the lifetimes need at least, and a guess at the worst: the rules are not public.
    Bounds,
}

words!(AnsweredBy { Replay => "replay", Bounds => "bounds" });

/// What a setting would do.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// The setting.
    pub setting: Setting,
    /// What the answer rests on.
    pub by: AnsweredBy,
    /// The limit, as the pool takes it; `None` where there is none.
    pub limit: Option<Bytes>,
    /// Whether every request was served; `None` where that depends on where the driver puts regions, or on the order of threads.
    pub fits: Option<bool>,
    /// Requests that were served only after waiting for other threads, in the run where the fewest had to; `None` where waiting does
    /// not help, or was not needed.
    pub waits: Option<u64>,
    /// The most in use, over the placements: least and most.
    pub peak: (Bytes, Bytes),
    /// The most taken from the driver: least and most.
    pub pool: (Bytes, Bytes),
    /// Searches that failed and were run again, at most.
    pub retries: u64,
    /// Regions that were given back, at most.
    pub returned: u64,
    /// The first request that failed in any placement.
    pub failure: Option<Failure>,
    /// How many placements were run.
    pub placements: usize,
}

/// One run of a program.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Driven {
    pub(super) peak: Bytes,
    pub(super) pool: Bytes,
    pub(super) retries: u64,
    pub(super) returned: u64,
    pub(super) regions: usize,
    pub(super) failure: Option<Failure>,
    /// As in [`Answered`].
    pub(super) waits: Option<u64>,
}

/// Runs acts on a pool until the first request that fails. Tells what is in use after each that is served.
pub(super) fn drive(
    program: &Program,
    acts: &[Act],
    gone: &[bool],
    bfc: &mut Bfc,
    supplier: &mut impl Supplier,
    tell: impl FnMut(usize, Bytes),
) -> Driven {
    let mut tickets = vec![Ticket::NONE; program.slots];
    let mut failure = place_earlier(program, gone, bfc, supplier, &mut tickets);
    if failure.is_none() {
        failure = serve(acts, bfc, supplier, &mut tickets, tell);
    }
    let stats = bfc.stats();
    Driven {
        peak: stats.peak_in_use,
        pool: stats.peak_pool,
        retries: stats.retries,
        returned: stats.regions_returned,
        regions: bfc.growths().len(),
        failure,
        waits: None,
    }
}

/// Serves acts up to the first request that fails, and says which that is. Tells what is in use after each request.
pub(super) fn serve(
    acts: &[Act],
    bfc: &mut Bfc,
    supplier: &mut impl Supplier,
    tickets: &mut [Ticket],
    mut tell: impl FnMut(usize, Bytes),
) -> Option<Failure> {
    for (at, act) in acts.iter().enumerate() {
        let Some(ticket) = tickets.get_mut(act.slot()) else { continue };
        let Some(bytes) = act.requested() else {
            let _ = bfc.free(std::mem::replace(ticket, Ticket::NONE));
            continue;
        };
        match bfc.allocate(Request::of(bytes), supplier) {
            Ok(made) => *ticket = made.ticket,
            Err(_) => return Some(Failure::of(Some(at), bytes, bfc)),
        }
        tell(at, bfc.stats().in_use);
    }
    None
}

/// More acts than this do not wait: a job that stands still for that long would fail.
const MOST_WAITING: usize = 2048;

/// Runs acts like [`drive`], but requests that fail wait. Says how many did; `None` where some waited in vain.
pub(super) fn drive_waiting(
    program: &Program,
    acts: &[Act],
    gone: &[bool],
    bfc: &mut Bfc,
    supplier: &mut impl Supplier,
) -> Option<u64> {
    let mut tickets = vec![Ticket::NONE; program.slots];
    if place_earlier(program, gone, bfc, supplier, &mut tickets).is_some() {
        return None;
    }
    serve_waiting(acts, bfc, supplier, &mut tickets)
}

/// Serves acts to their end, where requests that fail wait. Says how many did; `None` where some waited in vain.
pub(super) fn serve_waiting(
    acts: &[Act],
    bfc: &mut Bfc,
    supplier: &mut impl Supplier,
    tickets: &mut [Ticket],
) -> Option<u64> {
    let mut is_done = |act: Act| {
        let Some(ticket) = tickets.get_mut(act.slot()) else { return true };
        let Some(bytes) = act.requested() else {
            let _ = bfc.free(std::mem::replace(ticket, Ticket::NONE));
            return true;
        };
        bfc.allocate(Request::of(bytes), supplier).map(|made| *ticket = made.ticket).is_ok()
    };
    let mut waiting = Waiting::default();
    let mut waits = 0;
    for &act in acts {
        if waiting.blocks(act) {
            waiting.push(act);
        } else if !is_done(act) {
            waits += 1;
            waiting.push(act);
        } else if act.ends() {
            waiting.retry(&mut is_done);
        }
        if waiting.count > MOST_WAITING {
            return None;
        }
    }
    (waiting.count == 0).then_some(waits)
}

/// Acts that wait: each thread's in its order, since a thread that waits does nothing else.
#[derive(Default)]
struct Waiting {
    lanes: BTreeMap<usize, VecDeque<(u64, Act)>>,
    /// By slot, the acts that are about it, in their order.
    slots: FxHashMap<usize, VecDeque<u64>>,
    pushed: u64,
    count: usize,
}

impl Waiting {
    /// Whether an act has to wait for one that waits: its thread does, or the block that it is about.
    fn blocks(&self, act: Act) -> bool {
        self.count > 0 && (self.lanes.contains_key(&act.lane()) || self.slots.contains_key(&act.slot()))
    }

    fn push(&mut self, act: Act) {
        self.lanes.entry(act.lane()).or_default().push_back((self.pushed, act));
        self.slots.entry(act.slot()).or_default().push_back(self.pushed);
        self.pushed += 1;
        self.count += 1;
    }

    /// Something was freed: lets every thread go on as far as it can, the one that has waited longest first.
    fn retry(&mut self, mut is_done: impl FnMut(Act) -> bool) {
        let mut has_freed = self.count > 0;
        while has_freed {
            has_freed = false;
            let mut heads: Vec<(u64, usize)> =
                self.lanes.iter().filter_map(|(&lane, acts)| Some((acts.front()?.0, lane))).collect();
            heads.sort_unstable();
            for (_, lane) in heads {
                while let Some(&(number, act)) = self.lanes.get(&lane).and_then(VecDeque::front) {
                    let is_its_turn = self.slots.get(&act.slot()).and_then(VecDeque::front) == Some(&number);
                    if !is_its_turn || !is_done(act) {
                        break;
                    }
                    self.pop(lane, act.slot());
                    has_freed |= act.ends();
                }
            }
        }
    }

    /// Takes out the first act of a thread, which is the first that is about its slot.
    fn pop(&mut self, lane: usize, slot: usize) {
        if let Some(acts) = self.lanes.get_mut(&lane) {
            acts.pop_front();
            if acts.is_empty() {
                self.lanes.remove(&lane);
            }
        }
        if let Some(numbers) = self.slots.get_mut(&slot) {
            numbers.pop_front();
            if numbers.is_empty() {
                self.slots.remove(&slot);
            }
        }
        self.count -= 1;
    }
}

/// Whether requests come from several threads.
fn has_threads(acts: &[Act]) -> bool {
    let mut lanes = acts.iter().filter(|act| act.requested().is_some()).map(|act| act.lane());
    lanes.next().is_some_and(|first| lanes.any(|lane| lane != first))
}

/// What a late trace finds in use is asked for first: one block for all that is never freed, then the others.
pub(super) fn place_earlier(
    program: &Program,
    gone: &[bool],
    bfc: &mut Bfc,
    supplier: &mut impl Supplier,
    tickets: &mut [Ticket],
) -> Option<Failure> {
    let is_there = |slot: u32| !gone.get(slot as usize).copied().unwrap_or(false);
    let earlier = program.earlier.iter().filter(|block| is_there(block.slot));
    let earlier = earlier.map(|block| (block.requested.unwrap_or(block.chunk), Some(block.slot)));
    let always = Some((program.always_held, None)).filter(|(bytes, _)| *bytes > Bytes::ZERO);
    for (bytes, slot) in always.into_iter().chain(earlier) {
        match bfc.allocate(Request::of(bytes), supplier) {
            Ok(made) => {
                if let Some(ticket) = slot.and_then(|slot| tickets.get_mut(slot as usize)) {
                    *ticket = made.ticket;
                }
            }
            Err(_) => return Some(Failure::of(None, bytes, bfc)),
        }
    }
    None
}

/// A program from some act on.
#[derive(Clone, Debug, Default)]
struct Cut {
    /// The act it begins with.
    from: usize,
    /// Requests for everything that is held there, oldest first, then the rest.
    acts: Vec<Act>,
    /// How many of these come first.
    held: usize,
    /// By slot, whether a block from before the trace was freed until then.
    gone: Vec<bool>,
}

impl Cut {
    fn new(program: &Program, from: usize) -> Cut {
        let mut held: Vec<Option<(usize, Act)>> = vec![None; program.slots];
        let mut gone = vec![false; program.slots];
        for (at, act) in program.acts.iter().enumerate().take(from) {
            let Some(slot) = held.get_mut(act.slot()) else { continue };
            *slot = act.requested().map(|_| (at, *act));
            if let Some(gone) = gone.get_mut(act.slot()).filter(|_| act.kind() != ActKind::Request) {
                *gone = true;
            }
        }
        let mut held: Vec<(usize, Act)> = held.into_iter().flatten().collect();
        held.sort_unstable_by_key(|&(at, _)| at);
        let rest = program.acts.get(from..).unwrap_or_default();
        let count = held.len();
        let acts = held.into_iter().map(|(_, act)| act).chain(rest.iter().copied()).collect();
        Cut { from, acts, held: count, gone }
    }
}

/// A program that can be asked what-if questions.
#[derive(Clone, Debug)]
pub struct Questions<'a> {
    /// The requested bytes.
    pub program: &'a Program,
    /// The allocator as it was.
    pub rules: &'a Rules,
    /// The limit as it was; `None` where none is known.
    pub limit: Option<Bytes>,
    /// Where the regions were, in the order in which they were taken.
    pub bases: Vec<u64>,
    /// The most that was asked for at once.
    pub load: Bytes,
}

impl Questions<'_> {
    /// Answers one. `from` is the act that a restart begins with; `None` where the setting makes no pool.
    #[must_use]
    pub fn ask(&self, setting: &Setting, from: Option<usize>) -> Option<Answered> {
        let cut = from.filter(|_| setting.restart.is_some()).map(|from| Cut::new(self.program, from));
        if setting.stream_ordered {
            return Some(self.ask_driver(setting, cut.as_ref()));
        }
        match self.rules {
            Rules::Bfc(preset) => self.ask_bfc(setting, preset.options, cut.as_ref()),
            Rules::Torch(rules) => Some(self.ask_torch(setting, rules, cut.as_ref())),
        }
    }

    fn ask_bfc(&self, setting: &Setting, options: Options, cut: Option<&Cut>) -> Option<Answered> {
        let mut options = options;
        options.growth = setting.growth.unwrap_or(options.growth);
        // Only a pool that takes everything at once is divided between its ends.
        options.spatial &= !options.growth;
        options.garbage_collection = setting.gc.unwrap_or(options.garbage_collection);
        options.fragmentation_fraction = setting.fragmentation.unwrap_or(options.fragmentation_fraction);
        let limit = options.limit(setting.limit.or(self.limit).unwrap_or(super::NO_LIMIT));
        let acts = cut.map_or(self.program.acts.as_slice(), |cut| &cut.acts);
        let gone = cut.map_or(&[][..], |cut| &cut.gone);
        let runs = self.over_placements(|supplier| {
            let mut bfc = Bfc::new("", limit, options)?;
            Some(drive(self.program, acts, gone, &mut bfc, supplier, |_, _| ()))
        })?;
        let mut runs = runs;
        if runs.iter().any(|run| run.failure.is_some()) {
            let mut bfc = Bfc::new("", limit, options)?;
            let mut supplier = Placed::new(Placement::Ascending);
            let waits = drive_waiting(self.program, acts, gone, &mut bfc, &mut supplier);
            runs.iter_mut().for_each(|run| run.waits = waits);
        }
        let mut answered = self.answered(setting, Some(limit), &runs, cut);
        // Threads come in another order each time. Only what no order's allocator could serve, or what has no other order, is sure.
        if answered.fits == Some(false) && self.load <= limit && has_threads(acts) {
            answered.fits = None;
        }
        Some(answered)
    }

    fn ask_torch(&self, setting: &Setting, rules: &super::TorchRules, cut: Option<&Cut>) -> Answered {
        let was = rules.options;
        let mut options = setting.torch_options(was);
        let limit = setting.limit.or(self.limit);
        options.cap = limit.or(options.cap);
        let acts = cut.map_or(self.program.acts.as_slice(), |cut| &cut.acts);
        // What lies where follows from the settings; only with the same ones it lies where it was.
        let is_same = options.expandable == was.expandable
            && options.max_split == was.max_split
            && options.divisions == was.divisions;
        let taken: Bytes = self.program.driver.segments.iter().map(|(segment, _)| segment.size).sum();
        let is_small_enough = options.cap.is_none_or(|cap| taken <= cap);
        let before = match cut {
            Some(cut) => Before::Asked(&cut.gone),
            None if is_same && is_small_enough => Before::Seeded,
            None => Before::Asked(&[]),
        };
        let moved = |&flush: &usize| match cut {
            Some(cut) => flush.checked_sub(cut.from).map(|flush| flush + cut.held),
            None => Some(flush),
        };
        let flushes: Vec<usize> = rules.driver.flushes.iter().filter_map(moved).collect();
        let unused_pools = rules.driver.unused_pools.iter();
        let unused_pools: Vec<_> =
            unused_pools.map(|(from, pool)| (moved(from).unwrap_or_default(), *pool)).collect();
        let returns = Returns { flushes: &flushes, unused_pools: &unused_pools };
        let runs = self.over_placements(|supplier| {
            Some(torch_caching::drive(self.program, acts, before, options, &returns, supplier, |_, _| ()))
        });
        self.answered(setting, limit, &runs.unwrap_or_default(), cut)
    }

    /// Nobody outside knows where the driver's pool puts blocks.
    fn ask_driver(&self, setting: &Setting, cut: Option<&Cut>) -> Answered {
        let limit = setting.limit.or(self.limit);
        let cut = cut.map(|cut| {
            let earlier = self.program.earlier.iter();
            let is_there = |slot: u32| !cut.gone.get(slot as usize).copied().unwrap_or(false);
            Program {
                acts: cut.acts.clone(),
                earlier: earlier.filter(|block| is_there(block.slot)).copied().collect(),
                always_held: self.program.always_held,
                slots: self.program.slots,
                ..Program::default()
            }
        });
        let program = cut.as_ref().unwrap_or(self.program);
        let load = if cut.is_some() { program.load() } else { self.load };
        let most = packing::stream_ordered(program);
        Answered {
            setting: setting.clone(),
            by: AnsweredBy::Bounds,
            limit,
            fits: limit.filter(|&limit| load > limit).map(|_| false),
            waits: None,
            peak: (load, load),
            pool: (load, most.max(load)),
            retries: 0,
            returned: 0,
            failure: None,
            placements: 0,
        }
    }

    /// Runs with the recorded bases first, then with made-up placements.
    fn over_placements(
        &self,
        mut run: impl FnMut(&mut Apart<Scripted<Placed>>) -> Option<Driven>,
    ) -> Option<Vec<Driven>> {
        let mut runs = Vec::new();
        let recorded = (self.bases.as_slice(), Placement::Ascending);
        for (bases, placement) in [recorded].into_iter().chain(Placement::ALL.map(|made| (&[][..], made))) {
            let bases = bases.iter().copied();
            let driven = run(&mut Apart::new(Scripted::new(bases, Placed::new(placement))))?;
            let is_settled = driven.regions <= 1;
            runs.push(driven);
            // With one region there are no ties between regions.
            if is_settled {
                break;
            }
        }
        Some(runs)
    }

    fn answered(
        &self,
        setting: &Setting,
        limit: Option<Bytes>,
        runs: &[Driven],
        cut: Option<&Cut>,
    ) -> Answered {
        let fitting = runs.iter().filter(|run| run.failure.is_none()).count();
        let waits = runs.iter().find_map(|run| run.waits);
        let range = |of: fn(&Driven) -> Bytes| {
            let all = runs.iter().map(of);
            (all.clone().min().unwrap_or_default(), all.max().unwrap_or_default())
        };
        let mut failure = runs.iter().find_map(|run| run.failure);
        if let (Some(failure), Some(cut)) = (&mut failure, cut) {
            // Counted in the cut program, where requests for what was held come first.
            failure.act = failure.act.and_then(|act| act.checked_sub(cut.held)).map(|act| cut.from + act);
        }
        Answered {
            setting: setting.clone(),
            by: AnsweredBy::Replay,
            limit,
            fits: if fitting == runs.len() {
                Some(true)
            } else {
                (fitting == 0 && waits.is_none()).then_some(false)
            },
            waits,
            peak: range(|run| run.peak),
            pool: range(|run| run.pool),
            retries: runs.iter().map(|run| run.retries).max().unwrap_or(0),
            returned: runs.iter().map(|run| run.returned).max().unwrap_or(0),
            failure,
            placements: runs.len(),
        }
    }

    /// The smallest limit, in whole MiB, at which everything fits in every placement, by bisection between the highest
    /// load and a limit that fits. `None` where even `most` does not.
    #[must_use]
    pub fn smallest_limit(
        &self,
        setting: &Setting,
        from: Option<usize>,
        least: Bytes,
        most: Bytes,
    ) -> Option<Answered> {
        let at = |steps: u64| {
            let limit = Bytes(steps.saturating_mul(LIMIT_STEP.0));
            self.ask(&Setting { limit: Some(limit), ..setting.clone() }, from)
        };
        // A limit of whole steps that is just the load may be enough.
        let mut low = least.0.div_ceil(LIMIT_STEP.0).saturating_sub(1);
        let mut high = most.0.div_ceil(LIMIT_STEP.0).max(low + 1);
        let mut best = at(high).filter(|answer| answer.fits == Some(true))?;
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            match at(middle).filter(|answer| answer.fits == Some(true)) {
                Some(answer) => (high, best) = (middle, answer),
                None => low = middle,
            }
        }
        let found = best.limit.unwrap_or_default().0 / LIMIT_STEP.0;
        best.setting.text = format!("limit={found}MiB (smallest that fits)");
        Some(best)
    }
}

/// Passes over recorded bases that would overlap what was taken, which a region of another size may.
struct Apart<S> {
    taken: Vec<(u64, u64)>,
    then: S,
}

impl<S: Supplier> Apart<S> {
    fn new(then: S) -> Apart<S> {
        Apart { taken: Vec::new(), then }
    }
}

impl<S: Supplier> Supplier for Apart<S> {
    fn take(&mut self, size: Bytes) -> Option<u64> {
        loop {
            let base = self.then.take(size)?;
            let Some(end) = base.checked_add(size.0) else { continue };
            if self.taken.iter().all(|&(low, high)| end <= low || high <= base) {
                self.taken.push((base, end));
                return Some(base);
            }
        }
    }

    fn give_back(&mut self, base: u64, size: Bytes) {
        self.taken.retain(|&(low, _)| low != base);
        self.then.give_back(base, size);
    }

    fn reserve(&mut self, size: Bytes) -> Option<u64> {
        self.then.reserve(size)
    }

    fn map(&mut self, address: u64, size: Bytes) -> bool {
        self.then.map(address, size)
    }

    fn unmap(&mut self, address: u64, size: Bytes) {
        self.then.unmap(address, size);
    }
}

/// What a program needs of one region that is large enough for everything: the highest byte ever used.
pub(crate) fn one_region(program: &Program, options: Options, limit: Bytes) -> Option<Bytes> {
    /// Remembers where the one region is.
    struct One(Placed, u64);
    impl Supplier for One {
        fn take(&mut self, size: Bytes) -> Option<u64> {
            self.1 = self.0.take(size)?;
            Some(self.1)
        }
    }
    // Larger than any pool that was ever taken, so that its end is never met.
    let room = Bytes(limit.0.max(1 << 44));
    let slack = options.largest_slack(limit)?;
    let mut options = Options { growth: false, garbage_collection: false, ..options };
    // What may stay unsplit follows from the limit that was, not from this one.
    if options.fragmentation_fraction > 0.0 {
        #[expect(clippy::cast_precision_loss, reason = "a share of a size")]
        let fraction = slack.0 as f64 / room.0 as f64;
        options.fragmentation_fraction = fraction;
    }
    let mut bfc = Bfc::new("", room, options)?;
    let mut supplier = One(Placed::new(Placement::Ascending), 0);
    let mut tickets = vec![Ticket::NONE; program.slots];
    if place_earlier(program, &[], &mut bfc, &mut supplier, &mut tickets).is_some() {
        return None;
    }
    let mut top = bfc.stats().in_use.0;
    for act in &program.acts {
        let Some(ticket) = tickets.get_mut(act.slot()) else { continue };
        if let Some(bytes) = act.requested() {
            let made = bfc.allocate(Request::of(bytes), &mut supplier).ok()?;
            *ticket = made.ticket;
            top = top.max(made.address.saturating_add(made.size.0).saturating_sub(supplier.1));
        } else {
            let _ = bfc.free(std::mem::replace(ticket, Ticket::NONE));
        }
    }
    Some(Bytes(top))
}
