//! Any bytes, from file to report: no panic, no overflow, and the sums of the report hold.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vramline::units::Nanos;
use vramline::view::replay;

mod sums;

fuzz_target!(|bytes: &[u8]| {
    let Some(reading) = sums::check_bytes(bytes, Some(Nanos(1_000))) else { return };
    let what_if = vec!["limit=1MiB,growth=off".parse().expect("a setting")];
    let replayed = replay::replay(&reading, &replay::Wanted { what_if, ..replay::Wanted::default() });
    for pool in &replayed.pools {
        assert!(pool.address_matches <= pool.allocs && pool.load_rounded_bytes <= pool.packing_bound_bytes);
    }
});
