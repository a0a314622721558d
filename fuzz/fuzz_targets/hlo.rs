//! Any bytes as a compiled program, alone and inside a trace, from file to report: no panic, and the sums hold.
#![no_main]

use libfuzzer_sys::fuzz_target;

mod sums;

fuzz_target!(|bytes: &[u8]| {
    sums::check_bytes(bytes, None);
    sums::check_bytes(&trace_with(bytes), None);
});

/// A trace of one call of `step` that asks for a few blocks, with `program` as what was compiled for it.
fn trace_with(program: &[u8]) -> Vec<u8> {
    const SIZES: [u64; 4] = [65_536, 512, 32_768, 48];
    let mut line = [vec![0x12, 1, b't'], field(4, &[vec![8, 1], number(3, 1_000_000)].concat())].concat();
    for (at, size) in (0u64..).zip(SIZES) {
        let stat = |id: u64, value: u64| field(4, &[number(1, id), number(3, value)].concat());
        let stats = [stat(1, size), stat(2, size), stat(3, 4096 + (at << 20))].concat();
        line.extend(field(4, &[vec![8, 2], number(2, 10 + at), stats].concat()));
    }
    let entry = |place: u64, id: u64, rest: &[u8]| {
        field(place, &[number(1, id), field(2, &[number(1, id), rest.to_vec()].concat())].concat())
    };
    let host = [
        field(2, b"/host:CPU"),
        field(3, &line),
        entry(4, 1, &field(2, b"PjitFunction(step)")),
        entry(4, 2, &field(2, b"MemoryAllocation")),
        entry(5, 1, &field(2, b"requested_bytes")),
        entry(5, 2, &field(2, b"allocation_bytes")),
        entry(5, 3, &field(2, b"addr")),
    ]
    .concat();
    let proto = field(5, &[number(1, 1), field(6, program)].concat());
    let metadata = [
        field(2, b"/host:metadata"),
        entry(4, 1, &[field(2, b"jit_step(7)"), proto].concat()),
        entry(5, 1, &field(2, b"Hlo Proto")),
    ]
    .concat();
    [field(1, &host), field(1, &metadata)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

fn number(place: u64, value: u64) -> Vec<u8> {
    [varint(place << 3), varint(value)].concat()
}

fn field(place: u64, bytes: &[u8]) -> Vec<u8> {
    [varint(place << 3 | 2), varint(bytes.len() as u64), bytes.to_vec()].concat()
}
