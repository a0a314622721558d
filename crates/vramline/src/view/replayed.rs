//! The replay of a pool, as part of a report.

use serde::Serialize;

use crate::analysis::replayed::Replayed;
use crate::document::Document;
use crate::units::Bytes;

/// The replay of a pool.
#[derive(Debug, Serialize, Document)]
pub struct ReplayedView {
    /// Whether the replay reproduces every address and size from the start. `replay` is present if the allocator is known and the pool has at most 200,000 events.
    pub exact: bool,
    /// Framework, version and kind of pool whose rules were used.
    #[field(title = "allocator")]
    pub preset: &'static str,
    /// Number of replayed allocations.
    pub allocs: u64,
    /// Number of those at the recorded address.
    #[field(title = "addresses")]
    pub address_matches: u64,
    /// Number of times that the pool grew.
    pub growths: usize,
    /// Peak bytes reserved from the driver.
    pub pool_bytes: Bytes,
    /// Bytes reserved from the driver at the peak, without pending ones.
    #[field(title = "pool at the peak")]
    pub pool_at_peak_bytes: Bytes,
    /// Cached at the peak: reserved, but not in use.
    #[field(title = "cached")]
    pub cached_at_peak_bytes: Bytes,
    /// What the same requests need in one region, or in expandable segments; at most the pool.
    #[field(title = "without fragmentation")]
    pub joined_bytes: Bytes,
    /// Peak of requested bytes: no allocator needs less.
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
