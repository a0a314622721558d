#![doc = "placeholder"]
pub mod event;
pub mod names;
mod pages;
pub mod snapshot;
pub mod source;
pub mod trace;
pub mod units;
pub mod view;
pub mod warning;
