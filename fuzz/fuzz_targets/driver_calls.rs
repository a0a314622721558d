//! Any bytes as a file of driver calls. The checksum of each frame is made right, so that what is behind it is reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vramline::recording::driver_calls::DriverCalls;
use vramline::recording::folder::ProcessId;

fuzz_target!(|bytes: &[u8]| {
    // Both versions of the format.
    let mut file = b"VRAMCALL\x02\0\0\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    let mut rest = bytes;
    while let Some((&length, after)) = rest.split_first() {
        let (frame, after) = after.split_at(after.len().min(usize::from(length) + 8));
        let mut frame = frame.to_vec();
        frame.resize(frame.len().next_multiple_of(8), 0);
        let sum = frame.iter().fold(0x811c_9dc5_u32, |sum, &byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        file.extend((frame.len() as u32 + 8).to_le_bytes());
        file.extend(sum.to_le_bytes());
        file.extend(frame);
        rest = after;
    }
    let mut old = file.clone();
    old[8] = 1;
    for one in [bytes, &file, &old] {
        if let Ok(read) = DriverCalls::parse(one, ProcessId::new("fuzz", 1, 1)) {
            assert!(read.torn_bytes <= one.len() as u64);
            assert!(read.calls.len() * 136 <= one.len());
        }
    }
});
