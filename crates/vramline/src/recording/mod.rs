//! A run on disk: facts only, append-only, crash-safe; conclusions are drawn when it is read.
//!
//! A recording is a folder `NAME.vram/`. The parent (`vramline run`) and each process of the job write files of their
//! own into it and never speak to each other; a reader puts them together. Nothing here decides what to record, starts
//! a process or reads the environment.

pub mod folder;
pub mod follow;
pub mod kinds;
pub mod live;
pub mod manifest;
mod message;
pub mod process;
pub mod reader;
mod room;
pub mod rows;
pub mod running;
pub mod sampler;
pub mod schema;
pub mod stream;
pub mod watch;
