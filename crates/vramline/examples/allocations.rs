//! Walks through the allocations of a trace: how many each model layer or op makes, how much they ask for, and how long they live.
//!
//! ```text
//! cargo run --example allocations -- TRACE
//! ```

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

use vramline::{Bytes, Nanos, pools, read};

/// The allocations of one model layer, or of one op that belongs to none.
#[derive(Default)]
struct Group {
    count: u64,
    requested: Bytes,
    at_peak: Bytes,
    longest: Nanos,
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map(PathBuf::from).ok_or("usage: allocations TRACE")?;
    let reading = read(&path)?;
    for pool in pools(&reading, None)? {
        let mut groups: BTreeMap<String, Group> = BTreeMap::new();
        // One at a time: a trace may hold millions.
        for allocation in pool.allocations() {
            let has_layer = !allocation.layer.is_empty();
            let name = if has_layer { allocation.layer } else { allocation.op.to_owned() };
            let group = groups.entry(name).or_default();
            group.count += 1;
            group.requested += allocation.requested;
            if allocation.is_at_peak {
                group.at_peak += allocation.requested;
            }
            let end = allocation.freed.unwrap_or_else(|| pool.end());
            group.longest = group.longest.max(Nanos(end.0 - allocation.born.0));
        }
        let count: u64 = groups.values().map(|group| group.count).sum();
        println!("{}: {count} allocations in {} steps", pool.name, pool.steps.len());
        let mut groups: Vec<_> = groups.into_iter().collect();
        groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.at_peak));
        println!(
            "{:>8} {:>12} {:>12} {:>12}  layer or op",
            "count", "requested", "at the peak", "longest life"
        );
        for (name, Group { count, requested, at_peak, longest }) in groups.iter().take(10) {
            let name = if name.is_empty() { "(unnamed)" } else { name };
            println!("{count:>8} {requested:>12} {at_peak:>12} {longest:>12}  {name}");
        }
    }
    Ok(())
}
