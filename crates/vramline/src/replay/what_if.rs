//! The same requests under other settings: does it fit, how high is the peak, how large the pool.
//!
//! Requests come in the recorded order. Where a request fails the real one would wait up to ten seconds for other threads
//! to free something; here it fails. Where the driver would put regions under other settings is not known, and ties between
//! free chunks of the same size go to the lower address; so several placements are run, and an answer that depends on
//! the placement is a range.

use std::str::FromStr;

use super::program::{Act, Program};
use crate::allocator::bfc::{Bfc, Options, Request, Ticket};
use crate::allocator::{Placed, Placement, Scripted, Supplier};
use crate::units::Bytes;

/// A limit is searched in steps of this, which is the unit of TensorFlow's own settings.
pub const LIMIT_STEP: Bytes = Bytes(1 << 20);

/// From where a program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// The last step.
    LastStep,
    /// The step of this number.
    Step(i64),
}

/// What is to be different.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Setting {
    /// As it was typed.
    pub text: String,
    /// Another limit.
    pub limit: Option<Bytes>,
    /// Whether the pool grows.
    pub growth: Option<bool>,
    /// Whether idle regions go back.
    pub gc: Option<bool>,
    /// The share of the limit that a chunk may be larger than its request.
    pub fragmentation: Option<f64>,
    /// What is held at a step goes into an empty pool, and the steps from there on follow.
    pub restart: Option<Restart>,
}

/// A setting that is none.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("'{part}' is no setting: {why}")]
pub struct NotASetting {
    part: String,
    why: String,
}

impl NotASetting {
    /// What to do now.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        "settings are limit=8GiB, growth=on|off, gc=on|off, fragmentation=0.05, restart=on or restart=STEP, joined by commas"
    }
}

impl FromStr for Setting {
    type Err = NotASetting;

    fn from_str(text: &str) -> Result<Setting, NotASetting> {
        let mut setting = Setting { text: text.trim().to_owned(), ..Setting::default() };
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let wrong = |why: &str| NotASetting { part: part.to_owned(), why: why.to_owned() };
            let (key, value) = part.split_once('=').ok_or_else(|| wrong("expected key=value"))?;
            let switch = match value {
                "on" | "true" => Some(true),
                "off" | "false" => Some(false),
                _ => None,
            };
            let on_or_off = || switch.ok_or_else(|| wrong("expected on or off"));
            match key {
                "limit" => {
                    let limit: Bytes = value.parse().map_err(|_| wrong("expected a size such as 8GiB"))?;
                    setting.limit = Some(limit);
                }
                "growth" => setting.growth = Some(on_or_off()?),
                "gc" => setting.gc = Some(on_or_off()?),
                "fragmentation" => {
                    let fraction: f64 =
                        value.parse().map_err(|_| wrong("expected a fraction such as 0.05"))?;
                    if !(0.0..=1.0).contains(&fraction) {
                        return Err(wrong("expected a fraction from 0 to 1"));
                    }
                    setting.fragmentation = Some(fraction);
                }
                "restart" => {
                    setting.restart = match (switch, value.parse()) {
                        (Some(true), _) => Some(Restart::LastStep),
                        (Some(false), _) => None,
                        (None, Ok(step)) => Some(Restart::Step(step)),
                        (None, Err(_)) => return Err(wrong("expected on, or the number of a step")),
                    }
                }
                _ => return Err(wrong("there is no such key")),
            }
        }
        Ok(setting)
    }
}

/// The request at which a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The act; none where it is a request for something from before.
    pub act: Option<usize>,
    /// What was asked for.
    pub asked: Bytes,
    /// In use then.
    pub in_use: Bytes,
    /// Free in the pool then.
    pub free: Bytes,
    /// The largest free chunk then.
    pub largest_free: Bytes,
}

/// What a setting would do.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// The setting.
    pub setting: Setting,
    /// The limit, as the pool takes it.
    pub limit: Bytes,
    /// Whether every request was served; `None` where that depends on where the driver puts regions.
    pub fits: Option<bool>,
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
struct Driven {
    peak: Bytes,
    pool: Bytes,
    retries: u64,
    returned: u64,
    regions: usize,
    failure: Option<Failure>,
}

/// Runs acts on a pool until the first request that fails.
fn drive(program: &Program, acts: &[Act], bfc: &mut Bfc, supplier: &mut impl Supplier) -> Driven {
    let mut tickets = vec![Ticket::NONE; program.slots];
    let mut failure = place_earlier(program, bfc, supplier, &mut tickets);
    if failure.is_none() {
        for (at, act) in acts.iter().enumerate() {
            let Some(ticket) = tickets.get_mut(act.slot()) else { continue };
            let Some(bytes) = act.requested() else {
                let _ = bfc.free(std::mem::replace(ticket, Ticket::NONE));
                continue;
            };
            match bfc.allocate(Request::of(bytes), supplier) {
                Ok(made) => *ticket = made.ticket,
                Err(_) => {
                    failure = Some(failed(Some(at), bytes, bfc));
                    break;
                }
            }
        }
    }
    let stats = bfc.stats();
    Driven {
        peak: stats.peak_in_use,
        pool: stats.peak_pool,
        retries: stats.retries,
        returned: stats.regions_returned,
        regions: bfc.growths().len(),
        failure,
    }
}

fn failed(act: Option<usize>, asked: Bytes, bfc: &Bfc) -> Failure {
    let stats = bfc.stats();
    Failure { act, asked, in_use: stats.in_use, free: stats.free(), largest_free: bfc.largest_free() }
}

/// What a late trace finds in use is asked for first: one block for all that is never freed, then the others.
fn place_earlier(
    program: &Program,
    bfc: &mut Bfc,
    supplier: &mut impl Supplier,
    tickets: &mut [Ticket],
) -> Option<Failure> {
    let earlier =
        program.earlier.iter().map(|block| (block.requested.unwrap_or(block.chunk), Some(block.slot)));
    let always = Some((program.always_held, None)).filter(|(bytes, _)| *bytes > Bytes::ZERO);
    for (bytes, slot) in always.into_iter().chain(earlier) {
        match bfc.allocate(Request::of(bytes), supplier) {
            Ok(made) => {
                if let Some(ticket) = slot.and_then(|slot| tickets.get_mut(slot as usize)) {
                    *ticket = made.ticket;
                }
            }
            Err(_) => return Some(failed(None, bytes, bfc)),
        }
    }
    None
}

/// The acts from one on, after requests for everything that is held there, oldest first.
fn restarted(program: &Program, from: usize) -> Vec<Act> {
    let mut held: Vec<Option<(usize, Act)>> = vec![None; program.slots];
    for (at, act) in program.acts.iter().enumerate().take(from) {
        if let Some(slot) = held.get_mut(act.slot()) {
            *slot = act.requested().map(|_| (at, *act));
        }
    }
    let mut held: Vec<(usize, Act)> = held.into_iter().flatten().collect();
    held.sort_unstable_by_key(|&(at, _)| at);
    let rest = program.acts.get(from..).unwrap_or_default();
    held.into_iter().map(|(_, act)| act).chain(rest.iter().copied()).collect()
}

/// A program that can be asked what-if questions.
#[derive(Clone, Debug)]
pub struct Questions<'a> {
    /// What was asked for.
    pub program: &'a Program,
    /// The allocator as it was.
    pub options: Options,
    /// The limit as it was.
    pub limit: Bytes,
    /// Where the regions were, in the order in which they were taken.
    pub bases: &'a [u64],
}

impl Questions<'_> {
    /// Answers one. `from` is the act that a restart begins with; `None` where the setting makes no pool.
    #[must_use]
    pub fn ask(&self, setting: &Setting, from: Option<usize>) -> Option<Answered> {
        let mut options = self.options;
        options.growth = setting.growth.unwrap_or(options.growth);
        // Only a pool that takes everything at once is divided between its ends.
        options.spatial &= !options.growth;
        options.garbage_collection = setting.gc.unwrap_or(options.garbage_collection);
        options.fragmentation_fraction = setting.fragmentation.unwrap_or(options.fragmentation_fraction);
        let limit = options.limit(setting.limit.unwrap_or(self.limit));
        let cut = from.filter(|_| setting.restart.is_some()).map(|from| restarted(self.program, from));
        let acts = cut.as_deref().unwrap_or(&self.program.acts);
        let mut runs = Vec::new();
        for placement in [None].into_iter().chain(Placement::ALL.map(Some)) {
            let mut bfc = Bfc::new("", limit, options)?;
            let driven = match placement {
                None => {
                    let bases = self.bases.iter().copied();
                    let mut supplier = Apart::new(Scripted::new(bases, Placed::new(Placement::Ascending)));
                    drive(self.program, acts, &mut bfc, &mut supplier)
                }
                Some(placement) => drive(self.program, acts, &mut bfc, &mut Placed::new(placement)),
            };
            let is_settled = driven.regions <= 1;
            runs.push(driven);
            // With one region there are no ties between regions.
            if is_settled {
                break;
            }
        }
        if let (Some(from), Some(cut)) = (from, &cut) {
            // Counted in the cut program, where requests for what was held come first.
            let held = cut.len().saturating_sub(self.program.acts.len().saturating_sub(from));
            for failure in runs.iter_mut().filter_map(|run| run.failure.as_mut()) {
                failure.act = failure.act.and_then(|act| act.checked_sub(held)).map(|act| from + act);
            }
        }
        let fitting = runs.iter().filter(|run| run.failure.is_none()).count();
        let range = |of: fn(&Driven) -> Bytes| {
            let all = runs.iter().map(of);
            (all.clone().min().unwrap_or_default(), all.max().unwrap_or_default())
        };
        Some(Answered {
            setting: setting.clone(),
            limit,
            fits: if fitting == runs.len() { Some(true) } else { (fitting == 0).then_some(false) },
            peak: range(|run| run.peak),
            pool: range(|run| run.pool),
            retries: runs.iter().map(|run| run.retries).max().unwrap_or(0),
            returned: runs.iter().map(|run| run.returned).max().unwrap_or(0),
            failure: runs.iter().find_map(|run| run.failure),
            placements: runs.len(),
        })
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
        let mut low = least.0 / LIMIT_STEP.0;
        let mut high = most.0.div_ceil(LIMIT_STEP.0).max(low + 1);
        let mut best = at(high).filter(|answer| answer.fits == Some(true))?;
        while low + 1 < high {
            let middle = low + (high - low) / 2;
            match at(middle).filter(|answer| answer.fits == Some(true)) {
                Some(answer) => (high, best) = (middle, answer),
                None => low = middle,
            }
        }
        best.setting.text = format!("limit={}MiB (smallest that fits)", best.limit.0 / LIMIT_STEP.0);
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
    if place_earlier(program, &mut bfc, &mut supplier, &mut tickets).is_some() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read() {
        let setting: Setting = "limit=8GiB, growth=off,gc=on,fragmentation=0.05,restart=3".parse().unwrap();
        assert_eq!(setting.limit, Some(Bytes(8 << 30)));
        assert_eq!((setting.growth, setting.gc), (Some(false), Some(true)));
        assert_eq!((setting.fragmentation, setting.restart), (Some(0.05), Some(Restart::Step(3))));
        for wrong in ["limit", "limit=much", "growth=maybe", "fragmentation=2", "colour=red", "restart=x"] {
            assert!(wrong.parse::<Setting>().is_err(), "{wrong}");
        }
    }
}
