//! Any bytes as a pickle, from file to report and to replay: no panic, no overflow, no memory beyond the input's, and the
//! sums of the report hold.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vramline::units::Nanos;

mod sums;

fuzz_target!(|bytes: &[u8]| {
    // Whatever does not begin like a pickle would be another format's: let it begin like one.
    let mut pickle = Vec::with_capacity(bytes.len() + 2);
    if !matches!(bytes, [0x80, 2..=5, ..]) {
        pickle.extend_from_slice(b"\x80\x02");
    }
    pickle.extend_from_slice(bytes);
    let Some(reading) = sums::check_bytes(&pickle, Some(Nanos(1_000))) else { return };
    let settings = ["limit=1MiB", "expandable=on", "split_size=20MiB,limit=64MiB,gc=0.5", "allocator=cuda_malloc_async"];
    sums::check_replay(&reading, settings[bytes.len() % settings.len()]);
});
