//! Replays a trace through its allocator and asks what other settings would have done.
//!
//! ```text
//! cargo run --example what_if -- TRACE limit=64MiB growth=off,limit=128MiB
//! ```

use std::error::Error;
use std::path::PathBuf;

use vramline::{ReplayOptions, Setting, read, replay};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let path = arguments.next().map(PathBuf::from).ok_or("usage: what_if TRACE SETTING...")?;
    let what_if = arguments.map(|text| text.to_string_lossy().parse::<Setting>());
    let what_if = what_if.collect::<Result<Vec<Setting>, _>>()?;
    let options = ReplayOptions { what_if, find_limit: true, ..ReplayOptions::default() };
    let replay = replay(&read(&path)?, &options)?;
    println!("{}", replay.headline);
    for pool in &replay.pools {
        println!(
            "{}: {} taken from the driver for a peak of {}",
            pool.name, pool.pool_bytes, pool.peak_bytes
        );
    }
    for answer in &replay.what_if {
        let fits = match answer.fits {
            Some(true) => "fits",
            Some(false) => "does not fit",
            None => "fits or not, as the driver places memory",
        };
        println!("{}: {fits}, takes {} bytes", answer.setting, answer.pool_bytes.0);
    }
    Ok(())
}
