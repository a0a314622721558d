//! Any bytes as a pprof profile, from file to report: no panic, and the sums hold.
#![no_main]

use libfuzzer_sys::fuzz_target;

mod sums;

fuzz_target!(|bytes: &[u8]| {
    sums::check_bytes(bytes, None);
});
