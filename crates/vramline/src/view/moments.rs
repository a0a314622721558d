//! Who held the memory when an allocation failed or a process was last seen, as a part of the document of `vramline oom`.

use serde::Serialize;

use crate::analysis::moments::{HeldAtFailure, HeldSource, OwnerHeld};
use crate::document::Document;
use crate::snapshot::Role;
use crate::units::Bytes;

/// Memory by owner, and what grew.
#[derive(Debug, Serialize, Document)]
pub struct HeldThenView {
    /// The process.
    pub pid: u64,
    /// The pool, as the framework names it.
    pub pool: String,
    /// Its device.
    pub device: String,
    /// What shows it: `failure`: a snapshot at the failed allocation; `trace`: the trace, at the failed allocation; `snapshot`: an earlier snapshot; `newest-trace`: the peak of the newest trace.
    pub shown_by: HeldSource,
    /// The number of the trace or snapshot.
    #[field(null = "the trace has no number")]
    pub window: Option<u64>,
    /// The last step that had ended.
    #[field(null = "no step had ended")]
    pub after_step: Option<i64>,
    /// Bytes in use, including rounding.
    #[field(title = "in use")]
    pub in_use_bytes: Bytes,
    /// Rounding: bytes of the blocks beyond their requests.
    #[field(title = "rounding")]
    pub slack_bytes: Bytes,
    /// Owners, most bytes first; at most 40.
    pub owners: Vec<OwnerView>,
    /// Number of owners that are not listed.
    pub other_owners: usize,
    /// Their bytes.
    pub other_owners_bytes: Bytes,
    /// Bytes in use at the peak of the first trace.
    #[field(title = "before", null = "there is no earlier trace to compare with")]
    pub before_bytes: Option<Bytes>,
    /// What grew since then, as a sentence.
    #[field(null = "nothing grew, or there is no earlier trace to compare with")]
    pub growth: Option<String>,
    /// The signal that ended the process.
    #[field(null = "no signal ended it")]
    pub signal: Option<i32>,
    /// Bytes in use by the last counter that was read.
    #[field(title = "at last", null = "the allocation itself tells what was in use, or no counter was read")]
    pub last_in_use_bytes: Option<Bytes>,
}

/// The memory of one owner.
#[derive(Debug, Serialize, Document)]
pub struct OwnerView {
    /// The role.
    pub role: Role,
    /// The layer or module; a star stands for the numbers of layers that repeat; empty if unknown.
    pub layer: String,
    /// The place in the program, the op or the variable; empty if there are several or none is known.
    pub source: String,
    /// Requested bytes.
    pub bytes: Bytes,
    /// Number of blocks.
    #[field(title = "blocks")]
    pub count: u64,
    /// Requested bytes at the peak of the first trace.
    #[field(title = "first steps", null = "there is no earlier trace to compare with")]
    pub before_bytes: Option<Bytes>,
    /// Number of blocks then.
    #[field(title = "blocks then", null = "there is no earlier trace to compare with")]
    pub before_count: Option<u64>,
    /// What the role rests on; empty if that differs between the blocks.
    pub evidence: &'static str,
}

impl From<&HeldAtFailure> for HeldThenView {
    fn from(held: &HeldAtFailure) -> HeldThenView {
        HeldThenView {
            pid: held.pid,
            pool: held.pool.clone(),
            device: held.device.clone(),
            shown_by: held.shown_by,
            window: held.window,
            after_step: held.after_step,
            in_use_bytes: held.in_use,
            slack_bytes: held.slack,
            owners: held.owners.iter().map(OwnerView::from).collect(),
            other_owners: held.rest.0,
            other_owners_bytes: held.rest.1,
            before_bytes: held.before,
            growth: held.growth.clone(),
            signal: held.signal,
            last_in_use_bytes: held.last_in_use,
        }
    }
}

impl From<&OwnerHeld> for OwnerView {
    fn from(owner: &OwnerHeld) -> OwnerView {
        let (before_bytes, before_count) = owner.before.unzip();
        OwnerView {
            role: owner.role,
            layer: owner.layer.clone(),
            source: owner.source.clone(),
            bytes: owner.bytes,
            count: owner.count,
            before_bytes,
            before_count,
            evidence: owner.evidence,
        }
    }
}
