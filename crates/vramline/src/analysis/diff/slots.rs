//! Which pools are compared with each other.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::RunSide;
use crate::analysis::report::{PoolAnalysis, ReportAnalysis};

/// Pools of several reports that are compared with each other.
#[derive(Debug)]
pub(super) struct PoolSlot {
    /// Their device; empty where none is told.
    pub(super) device: String,
    /// The name that they share; where they share none their device, or what they are for where there is none.
    pub(super) label: String,
    /// By report: the number of its pool.
    pools: BTreeMap<usize, usize>,
}

/// The runs with their reports in one list, and which pools of them are compared.
pub(super) struct Comparison<'a> {
    pub(super) sides: &'a [RunSide],
    /// The reports of every side, one side after the other.
    pub(super) reports: Vec<&'a ReportAnalysis>,
    pub(super) slots: Vec<PoolSlot>,
}

impl<'a> Comparison<'a> {
    pub(super) fn of(sides: &'a [RunSide]) -> Comparison<'a> {
        let reports: Vec<&ReportAnalysis> = sides.iter().flat_map(|side| &side.reports).collect();
        Comparison { sides, slots: slots(&reports), reports }
    }

    pub(super) fn label(&self, slot: usize) -> &str {
        self.slots.get(slot).map_or("", |slot| &slot.label)
    }

    pub(super) fn pool(&self, slot: usize, report: usize) -> Option<&'a PoolAnalysis> {
        let at = *self.slots.get(slot)?.pools.get(&report)?;
        self.reports.get(report)?.pools.get(at)
    }

    /// The pools of a slot, in the order of the reports.
    pub(super) fn pools(&self, slot: usize) -> impl Iterator<Item = &'a PoolAnalysis> {
        (0..self.reports.len()).filter_map(move |report| self.pool(slot, report))
    }

    /// By side: the numbers of its reports.
    pub(super) fn numbers(&self) -> impl Iterator<Item = Range<usize>> {
        let mut next = 0;
        self.sides.iter().map(move |side| {
            let numbers = next..next + side.reports.len();
            next = numbers.end;
            numbers
        })
    }

    /// Whether a report of a side has a pool in a slot.
    pub(super) fn has_pool(&self, side: usize, slot: usize) -> bool {
        self.numbers().nth(side).is_some_and(|mut numbers| numbers.any(|report| self.is_in(slot, report)))
    }

    fn is_in(&self, slot: usize, report: usize) -> bool {
        self.slots.get(slot).is_some_and(|slot| slot.pools.contains_key(&report))
    }

    /// The slots that every side has a pool in, highest peak first.
    pub(super) fn common(&self) -> Vec<usize> {
        let is_common =
            |slot: &usize| self.numbers().all(|mut numbers| numbers.any(|report| self.is_in(*slot, report)));
        (0..self.slots.len()).filter(is_common).collect()
    }
}

/// What a pool is for, of one without a device: a compiled program has one for its temporaries, one for its arguments and so on, and
/// their names begin with the program's, which has another number after each compilation.
fn purpose(name: &str) -> &str {
    name.rsplit(' ').next().unwrap_or(name)
}

/// Matches pools of one name and device; what is left over of a device, largest with largest. Where no device is told, only pools for
/// the same purpose meet: temporaries are not compared with arguments.
fn slots(reports: &[&ReportAnalysis]) -> Vec<PoolSlot> {
    /// A file with more pools than this on a device was not written by a framework.
    const MAX_POOLS_PER_DEVICE: usize = 256;
    let mut named: BTreeMap<(&str, &str, usize), BTreeMap<usize, usize>> = BTreeMap::new();
    for (number, report) in reports.iter().enumerate() {
        let mut order: Vec<usize> = (0..report.pools.len()).collect();
        // Ranks are the same in the next run; process numbers are not.
        order.sort_by_key(|&at| report.pools.get(at).and_then(|pool| pool.rank));
        let mut seen: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for at in order {
            let Some(pool) = report.pools.get(at) else { continue };
            let count = seen.entry((&pool.device, &pool.name)).or_default();
            named.entry((&pool.device, &pool.name, *count)).or_default().insert(number, at);
            *count += 1;
        }
    }
    let mut by_device: BTreeMap<(&str, &str), Vec<BTreeMap<usize, usize>>> = BTreeMap::new();
    for ((device, name, _), pools) in named {
        let purpose = if device.is_empty() { purpose(name) } else { "" };
        by_device.entry((device, purpose)).or_default().push(pools);
    }
    let pool_of = |report: usize, at: usize| reports.get(report).and_then(|report| report.pools.get(at));
    let highest = |pools: &BTreeMap<usize, usize>| {
        pools.iter().filter_map(|(&report, &at)| pool_of(report, at)?.highest()).max()
    };
    let mut slots = Vec::new();
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    for ((device, purpose), mut groups) in by_device {
        // Pools of one height stay in the order of their runs, whatever they are called.
        groups.sort_by_cached_key(|pools| (Reverse(highest(pools)), pools.clone()));
        let mut joined: Vec<BTreeMap<usize, usize>> = Vec::new();
        for pools in groups {
            let is_apart =
                |other: &&mut BTreeMap<usize, usize>| pools.keys().all(|report| !other.contains_key(report));
            match joined.iter_mut().take(MAX_POOLS_PER_DEVICE).find(is_apart) {
                Some(other) if pools.len() < reports.len() => other.extend(pools),
                _ => joined.push(pools),
            }
        }
        for pools in joined {
            let names: BTreeSet<&str> =
                pools.iter().filter_map(|(&report, &at)| Some(pool_of(report, at)?.name.as_str())).collect();
            let name = match names.first() {
                Some(name) if names.len() == 1 => *name,
                _ if device.is_empty() => purpose,
                _ => device,
            };
            let same = taken.entry(name.to_owned()).or_default();
            *same += 1;
            let label = if *same > 1 { format!("{name} #{same}") } else { name.to_owned() };
            slots.push(PoolSlot { device: device.to_owned(), label, pools });
        }
    }
    slots.sort_by_key(|slot| Reverse(highest(&slot.pools)));
    slots
}
