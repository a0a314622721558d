//! What a replay adds to a pool of a report.

use serde::Serialize;

use crate::analysis::replayed::Replayed;
use crate::document::Document;
use crate::units::Bytes;

/// What a replay says of a pool.
#[derive(Debug, Serialize, Document)]
pub struct ReplayedView {
    /// A replay reproduces every address and size from the start; `replay` is there where the allocator has rules and the pool at most 200,000 events.
    pub exact: bool,
    /// Framework, version and kind of pool whose rules were followed.
    #[field(title = "allocator")]
    pub preset: &'static str,
    /// Allocations that were replayed.
    pub allocs: u64,
    /// Of these, at the recorded address.
    #[field(title = "addresses")]
    pub address_matches: u64,
    /// How often the pool grew.
    pub growths: usize,
    /// The most taken from the driver.
    pub pool_bytes: Bytes,
    /// Taken from the driver at the peak, and not pending.
    #[field(title = "pool then")]
    pub pool_at_peak_bytes: Bytes,
    /// Of that, free: not in use at the peak.
    #[field(title = "cached")]
    pub cached_at_peak_bytes: Bytes,
    /// What the same requests would take in one region, or in segments that grow in place; at most the pool.
    pub joined_bytes: Bytes,
    /// The most that was asked for at once: no allocator needs less.
    pub load_bytes: Bytes,
}

impl From<Replayed> for ReplayedView {
    fn from(replayed: Replayed) -> ReplayedView {
        ReplayedView {
            exact: replayed.is_exact,
            preset: replayed.preset,
            allocs: replayed.allocs,
            address_matches: replayed.address_matches,
            growths: replayed.growths,
            pool_bytes: replayed.pool,
            pool_at_peak_bytes: replayed.pool_at_peak,
            cached_at_peak_bytes: replayed.cached_at_peak,
            joined_bytes: replayed.joined,
            load_bytes: replayed.load,
        }
    }
}
