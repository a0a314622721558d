//! Rule `outlier-rank`: one rank of a job needs more memory than the others that do the same work. It decides what fits on all of them.

use super::{Finding, percent};
use crate::units::Bytes;

/// The minimum that the rank needs more, in percent of its peak.
const SHARE: u64 = 5;
/// The minimum in bytes.
const LEAST: Bytes = Bytes(256 << 20);

/// A rank, and the typical one of those that do the same work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlierRank {
    /// The rank.
    pub rank: u64,
    /// The typical rank.
    pub typical: u64,
    /// The peak of the rank.
    pub peak: Bytes,
    /// What it needs more than the typical one.
    pub more: Bytes,
    /// What makes most of the difference; empty if no trace shows it.
    pub what: String,
}

pub(super) fn check(found: &OutlierRank) -> Option<Finding> {
    let OutlierRank { rank, typical, peak, more, what } = found;
    if *more < LEAST || percent(*more, *peak) < SHARE {
        return None;
    }
    let most = if what.is_empty() { String::new() } else { format!(", most of it {what}") };
    Some(Finding {
        rule: "outlier-rank",
        bytes: *more,
        text: format!("Rank {rank} needs {peak}, {more} more than rank {typical}, which does the same work{most}."),
        fix: "move what only this rank does (evaluation, logging, gathering of results, checkpoints) to the CPU or to another process: the \
              fullest rank decides which batch size fits on all"
            .to_owned(),
        verify: "compare the ranks in the next report, or with vramline diff".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_must_need_much_more() {
        let rank = |peak: u64, more: u64| OutlierRank {
            rank: 0,
            typical: 3,
            peak: Bytes(peak << 20),
            more: Bytes(more << 20),
            what: "1.00 GiB of activations (logits)".to_owned(),
        };
        let found = check(&rank(20_000, 1200)).unwrap();
        assert_eq!(found.bytes, Bytes(1200 << 20));
        assert!(
            found.text.contains("1.17 GiB more than rank 3") && found.text.ends_with("(logits)."),
            "{}",
            found.text
        );
        assert_eq!(check(&rank(80_000, 1200)), None, "too small a share");
        assert_eq!(check(&rank(1000, 200)), None, "too few bytes");
    }
}
