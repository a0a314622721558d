//! Warnings about what makes a comparison uncertain.

use std::collections::BTreeSet;

use super::rows::{ComparedRow, rows_of};
use super::slots::Comparison;
use super::{DiffBy, RunSide};
use crate::warning::Warning;

/// Warnings of the reports that make a comparison uncertain.
pub(super) fn told(sides: &[RunSide]) -> Vec<Warning> {
    const TOLD: [&str; 7] = [
        "silent-allocator",
        "cuda-malloc-async",
        "count-disagrees",
        "out-of-memory",
        "unreadable-host",
        "other-runs",
        "truncated",
    ];
    let told = |side: &RunSide| {
        let warnings = side.reports.iter().flat_map(|report| &report.warnings);
        let warnings = warnings.filter(|warning| TOLD.contains(&warning.code));
        warnings
            .map(|warning| Warning { text: format!("{}: {}", side.name, warning.text), ..warning.clone() })
            .take(8)
            .collect::<Vec<_>>()
    };
    sides.iter().flat_map(told).collect()
}

/// Whether less than half of the bytes belong to ops that all runs have.
pub(super) fn has_few_common_ops(slot: usize, rows: &[ComparedRow]) -> bool {
    let (mut all, mut common) = (0_u128, 0_u128);
    for row in rows_of(slot, rows, DiffBy::Op) {
        if !row.is_known_in_every_run() || !row.part().is_some_and(|part| part.is_requested()) {
            continue;
        }
        let most = row.known().max().map_or(0, |bytes| u128::from(bytes.0));
        all += most;
        if row.known().all(|bytes| bytes.0 > 0) {
            common += most;
        }
    }
    common * 2 < all
}

pub(super) fn few_common_ops() -> Warning {
    Warning {
        code: "few-common-ops",
        text: "most bytes at the peaks belong to ops that only one run has".to_owned(),
        hint: "op names differ between eager and graph mode, models and frameworks: compare with --by role or --by layer"
            .to_owned(),
    }
}

impl Comparison<'_> {
    /// A warning that no pool is in all runs.
    pub(super) fn no_common_pool(&self) -> Option<Warning> {
        let pools = |side: &RunSide| {
            let names: BTreeSet<&str> =
                side.reports.iter().flat_map(|report| &report.pools).map(|pool| pool.name.as_str()).collect();
            let names: Vec<&str> = names.into_iter().take(4).collect();
            format!(
                "{} has {}",
                side.name,
                if names.is_empty() { "none".to_owned() } else { names.join(", ") }
            )
        };
        (self.sides.len() > 1).then(|| Warning {
            code: "no-common-pool",
            text: format!(
                "the runs have no pool in common: {}",
                self.sides.iter().map(pools).collect::<Vec<_>>().join("; ")
            ),
            hint: "compare runs on the same kind of device, or compiled programs with compiled programs"
                .to_owned(),
        })
    }

    pub(super) fn different_starts(&self, slot: usize) -> Option<Warning> {
        let starts: Vec<Option<bool>> = self.pools(slot).map(|pool| pool.from_start).collect();
        (starts.contains(&Some(true)) && starts.contains(&Some(false))).then(|| Warning {
            code: "different-starts",
            text: "one trace starts before the first allocation and another does not: blocks from before a trace have no names"
                .to_owned(),
            hint: "record both with `vramline run`".to_owned(),
        })
    }

    /// A warning that pools are compared by purpose, because their programs have different names and may be different programs.
    pub(super) fn other_programs(&self, common: &[usize]) -> Option<Warning> {
        let names = |slot: usize| -> Vec<&str> {
            let mut names: Vec<&str> = Vec::new();
            for pool in self.pools(slot).filter(|pool| pool.device.is_empty()) {
                if !names.contains(&pool.name.as_str()) {
                    names.push(&pool.name);
                }
            }
            names
        };
        let names = common.iter().map(|&slot| names(slot)).find(|names| names.len() > 1)?;
        let others: Vec<String> = names.iter().skip(1).take(4).map(|name| format!("'{name}'")).collect();
        Some(Warning {
            code: "other-programs",
            text: format!(
                "'{}' is compared with {}: their purpose is the same, but the programs have different names",
                names.first()?,
                others.join(", ")
            ),
            hint: String::new(),
        })
    }
}

/// Says so where the details of two runs are about different ranks.
pub(super) fn other_ranks(sides: &[RunSide]) -> Option<Warning> {
    let mains = sides.iter().flat_map(|side| &side.reports).filter_map(|report| report.ranks.as_ref()?.main);
    let mut mains: Vec<u64> = mains.collect();
    mains.sort_unstable();
    mains.dedup();
    let (first, last) = (mains.first()?, mains.last()?);
    (first != last).then(|| Warning {
        code: "other-ranks",
        text: format!(
            "the details by role, op and layer compare rank {first} of one run with rank {last} of another"
        ),
        hint: "the table of ranks compares each rank with itself".to_owned(),
    })
}
