//! *Internal.* Conclusions, one struct and one function a question: which pools, which moment, ledger, replay, findings.
//!
//! An analysis reads once, computes only what its question needs, and is typed data. That of a report borrows nothing from what was read, so that a
//! comparison can drop a large trace before it reads the next. There are no documents here and no words for the edge, except for the
//! sentences that a document carries as data (headline, warnings, findings).

pub mod accounts;
#[cfg(feature = "recording")]
pub mod asked;
mod at_moment;
pub mod caching;
pub mod causes;
pub mod dataset;
pub mod diff;
pub mod doctor;
pub mod export;
mod findings;
mod growth;
pub mod headline;
pub mod held;
pub mod limit;
pub mod moments;
pub mod oom;
pub mod pack;
pub mod patterns;
pub mod picture;
pub mod plan;
mod pool_claims;
mod pool_size;
mod pool_warnings;
pub mod process;
pub mod ranks;
pub mod reading;
pub mod redaction;
pub mod replay;
pub mod replayed;
pub mod report;
mod steps;
mod subject;
// It follows recordings.
#[cfg(feature = "recording")]
pub mod top;
pub mod verify;
pub mod windows;
