//! *Internal.* Documents: structs that serialise, each built from its analysis by a `From`. Nothing is decided or drawn here: terminals, pages
//! and files format them.

pub mod caching;
pub mod dataset;
pub mod diff;
pub mod diff_page;
pub mod doctor;
pub mod export;
pub mod findings;
pub mod ledger;
pub mod moments;
pub mod oom;
pub mod pack;
mod packed;
pub mod page;
pub mod patterns;
pub mod plan;
pub mod ranks;
pub mod replay;
pub mod replayed;
pub mod report;
pub mod run;
#[cfg(feature = "recording")]
pub mod snapshot;
pub mod tile;
// It follows recordings.
#[cfg(feature = "recording")]
pub mod top;
pub mod verify;
pub mod windows;
