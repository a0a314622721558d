//! What makes a comparison doubtful.

use std::collections::BTreeSet;

use super::rows::{ComparedRow, rows_of};
use super::slots::Comparison;
use super::{DiffBy, RunSide};
use crate::warning::Warning;

/// What the reports warn of that makes a comparison doubtful.
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

/// Whether less than half of what a run held belongs to ops that every run has.
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
        text: "most of what was held at the peaks belongs to ops that the other run does not have".to_owned(),
        hint: "names differ between eager and graph mode, models and frameworks: compare with --by role or --by layer"
            .to_owned(),
    }
}

impl Comparison<'_> {
    /// Several runs of which no slot has a pool of each.
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
            hint: "runs on the same kind of device can be compared, and compiled programs with compiled programs".to_owned(),
        })
    }

    pub(super) fn different_starts(&self, slot: usize) -> Option<Warning> {
        let starts: Vec<Option<bool>> = self.pools(slot).map(|pool| pool.from_start).collect();
        (starts.contains(&Some(true)) && starts.contains(&Some(false))).then(|| Warning {
            code: "different-starts",
            text: "one trace begins before the first allocation and another does not: what is older than a trace has no name in it"
                .to_owned(),
            hint: "record both with `vramline run`".to_owned(),
        })
    }

    /// Pools of programs with other names are compared by what they are for: whether they are the same program, nobody tells.
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
                "'{}' is compared with {}: pools for the same purpose, of programs with other names",
                names.first()?,
                others.join(", ")
            ),
            hint: String::new(),
        })
    }
}
