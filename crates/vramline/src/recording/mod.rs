//! A run on disk: facts only, append-only, crash-safe.
//!
//! A recording is a folder `NAME.vram/`. The launcher writes `run.json`; every process writes files of its own, so that
//! nobody waits for anybody, and all of it is put together on reading. Conclusions are never written down: a better
//! reader makes better reports of old recordings.

pub mod process;
pub mod rows;
pub mod sampler;
pub mod schema;
pub mod stream;
