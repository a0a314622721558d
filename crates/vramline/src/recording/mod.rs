//! *Internal.* A run on disk: facts only, append-only, crash-safe; conclusions are drawn when it is read.
//!
//! A recording is a folder `NAME.vram/`. The parent (`vramline run`) and each process of the job write files of their
//! own into it and never speak to each other; a reader puts them together. Nothing here decides what to record, starts
//! a process or reads the environment.
//!
//! The types of what is recorded are in every build. Files are written and read with the feature `recording` only, which
//! brings Arrow along.

#[cfg(feature = "recording")]
mod attempts;
#[cfg(feature = "recording")]
mod cells;
pub mod driver_calls;
pub mod fits;
pub mod folder;
#[cfg(feature = "recording")]
pub mod follow;
#[cfg(feature = "recording")]
pub mod gather;
pub mod identity;
#[cfg(feature = "recording")]
pub mod joining;
pub mod kinds;
#[cfg(feature = "recording")]
pub mod live;
#[cfg(feature = "recording")]
mod load;
#[cfg(feature = "recording")]
pub mod local;
pub mod manifest;
#[cfg(feature = "recording")]
mod message;
#[cfg(feature = "recording")]
mod peaks;
#[cfg(feature = "recording")]
pub mod process;
pub mod reader;
#[cfg(feature = "recording")]
pub mod request;
#[cfg(feature = "recording")]
mod room;
pub mod rows;
#[cfg(feature = "recording")]
pub mod running;
#[cfg(feature = "recording")]
pub mod sampler;
pub mod schema;
#[cfg(feature = "recording")]
pub mod stream;
#[cfg(feature = "recording")]
pub mod watch;
pub mod windows;
