//! One file a verb, one function each.

pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod oom;
pub(crate) mod pack;
pub(crate) mod plan;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod top;
pub(crate) mod unpickle;
pub(crate) mod verify;
