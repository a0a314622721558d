//! Any bytes, from file to report: no panic, no overflow, and the sums of the report hold.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vramline::units::Nanos;

mod sums;

fuzz_target!(|bytes: &[u8]| {
    let Some(reading) = sums::check_bytes(bytes, Some(Nanos(1_000))) else { return };
    sums::check_replay(&reading, "limit=1MiB,growth=off");
});
