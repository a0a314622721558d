//! Vectors that follow from the rules, and invariants under random requests. What real runs did is compared in the
//! tests of `replay`.

use super::*;
use crate::allocator::{Capped, Placed, Placement};

const MIB: u64 = 1 << 20;

struct Device {
    caching: TorchCaching,
    lane: Lane,
    supplier: Placed,
}

impl Device {
    fn new(options: Options) -> Device {
        let mut caching = TorchCaching::new(options);
        let lane = caching.lane(PoolId::DEFAULT, 0).unwrap();
        Device { caching, lane, supplier: Placed::new(Placement::Ascending) }
    }

    fn try_alloc(&mut self, bytes: u64) -> Result<Allocation, Refused> {
        self.caching.allocate(Request::of(Bytes(bytes), self.lane), &mut self.supplier)
    }

    fn alloc(&mut self, bytes: u64) -> Ticket {
        self.try_alloc(bytes).unwrap().ticket
    }

    /// Segment, offset and block size of a new allocation.
    fn place(&mut self, bytes: u64) -> (usize, u64, u64) {
        let made = self.try_alloc(bytes).unwrap();
        let base = self.caching.segment_of(made.address).unwrap();
        let number = self.caching.segments().position(|segment| segment.base == base).unwrap();
        (number, made.address - base, made.size.0)
    }

    fn reserved(&self) -> u64 {
        self.caching.stats().reserved_bytes.current()
    }
}

fn configured(text: &str) -> Options {
    Options::default().configured(text).unwrap()
}

#[test]
fn sizes_are_rounded() {
    let rounded = |text: &str, bytes: u64| configured(text).rounded(Bytes(bytes)).map(|bytes| bytes.0);
    for (bytes, expected) in [(1, 512), (512, 512), (513, 1024), (MIB, MIB), (MIB + 1, MIB + 512)] {
        assert_eq!(rounded("", bytes), Some(expected));
    }
    assert_eq!(rounded("", u64::MAX), None);
    let by_four = "roundup_power2_divisions:4";
    // Up to 512 bytes a part, only 512 counts.
    for (bytes, expected) in [(2048, 2048), (2049, 2560), (5 * MIB + 1, 6 * MIB), (1200 << 10, 1280 << 10)] {
        assert_eq!(rounded(by_four, bytes), Some(expected), "{bytes}");
    }
    let list = "roundup_power2_divisions:[64:1,256:4,>:2],max_split_size_mb:64";
    let expected = [
        (33 * MIB + 1, 33 * MIB + 512),
        // 128 MiB has no key of its own, and none before it speaks for it.
        (129 * MIB + 1, 129 * MIB + 512),
        (257 * MIB, 320 * MIB),
        (513 * MIB, 768 * MIB),
    ];
    for (bytes, expected) in expected {
        assert_eq!(rounded(list, bytes), Some(expected), "{bytes}");
    }
    assert_eq!(configured(list).max_split, Some(Bytes(64 * MIB)));
}

#[test]
fn settings_that_pytorch_refuses() {
    for text in [
        "max_split_size_mb:19",
        "garbage_collection_threshold:1.0",
        "expandable_segments:yes",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:[3:1]",
        "large_segment_size_mb:10",
    ] {
        assert!(Options::default().configured(text).is_err(), "{text}");
    }
    let options = configured("backend:native, garbage_collection_threshold:0.8 ,expandable_segments:True");
    assert!(options.expandable);
    assert!((options.garbage_collection_threshold - 0.8).abs() < f64::EPSILON);
}

#[test]
fn segments_by_size() {
    let mut device = Device::new(Options::default());
    // 1 MiB is small, 10 MiB has a segment of its own.
    let expected =
        [(1, 2), (MIB, 2), (MIB + 1, 22), (10 * MIB - 512, 22), (10 * MIB, 32), (10 * MIB + 1, 44)];
    for (bytes, reserved) in expected {
        device.alloc(bytes);
        assert_eq!(device.reserved(), reserved * MIB, "{bytes}");
    }
}

#[test]
fn the_remainder_decides_a_split() {
    let mut device = Device::new(Options::default());
    assert_eq!(device.place(2 * MIB - 512 - MIB), (0, 0, MIB - 512));
    assert_eq!(device.place(MIB), (0, MIB - 512, MIB));
    assert_eq!(device.place(512), (0, 2 * MIB - 512, 512));
    // Exactly 1 MiB remains: it stays with the block.
    let ticket = device.alloc(12 * MIB);
    device.caching.free(ticket).unwrap();
    assert_eq!(device.place(11 * MIB), (1, 0, 12 * MIB));
    let ticket = device.alloc(14 * MIB);
    device.caching.free(ticket).unwrap();
    assert_eq!(device.place(13 * MIB - 512), (2, 0, 13 * MIB - 512));
}

/// Of equal blocks the lowest is taken; since 2026, the one of the oldest segment.
#[test]
fn ties() {
    for (tie_break, expected) in [(TieBreak::Address, 1), (TieBreak::Segment, 0)] {
        let mut caching = TorchCaching::new(Options { tie_break, ..Options::default() });
        let lane = caching.lane(PoolId::DEFAULT, 0).unwrap();
        let mut supplier = Placed::new(Placement::Descending);
        let mut take = |caching: &mut TorchCaching| {
            caching.allocate(Request::of(Bytes(30 * MIB), lane), &mut supplier).unwrap()
        };
        let made = [take(&mut caching), take(&mut caching)];
        made.iter().for_each(|made| caching.free(made.ticket).unwrap());
        assert_eq!(take(&mut caching).address, made[expected].address);
    }
}

/// Blocks are not shared between streams, pools, or size classes.
#[test]
fn lanes_are_apart() {
    let mut device = Device::new(Options::default());
    let private = device.caching.add_pool(PoolOptions::default());
    let lanes =
        [(PoolId::DEFAULT, 0), (PoolId::DEFAULT, 7), (private, 0), (private, 7)].map(|(pool, stream)| {
            let lane = device.caching.lane(pool, stream).unwrap();
            assert_eq!(device.caching.lane_parts(lane), Some((pool, stream)));
            lane
        });
    for (number, lane) in lanes.into_iter().enumerate() {
        device.lane = lane;
        let ticket = device.alloc(3 * MIB);
        device.caching.free(ticket).unwrap();
        assert_eq!(device.reserved(), (number as u64 + 1) * 20 * MIB);
    }
    let growth = device.caching.growths()[3];
    assert_eq!((growth.largest_free, growth.largest_elsewhere), (Bytes(0), Bytes(20 * MIB)));
    assert_eq!((growth.free, growth.reachable), (Bytes(60 * MIB), Bytes(0)));
    // A private pool keeps its segments until nobody uses it.
    device.caching.empty_cache(&mut device.supplier);
    assert_eq!(device.reserved(), 40 * MIB);
    device.caching.release_pool(private);
    device.caching.empty_cache(&mut device.supplier);
    assert_eq!(device.reserved(), 0);
    device.lane = Lane(99);
    assert_eq!(device.try_alloc(1), Err(Refused::UnknownLane));
}

/// Only the first block that fits is looked at.
#[test]
fn oversize_blocks() {
    let mut device = Device::new(configured("max_split_size_mb:32"));
    let large = device.alloc(60 * MIB);
    device.caching.free(large).unwrap();
    // Too small for it.
    device.alloc(31 * MIB);
    assert_eq!(device.reserved(), 92 * MIB);
    // 20 MiB too many.
    let made = device.try_alloc(40 * MIB).unwrap();
    assert_eq!(device.reserved(), 132 * MIB);
    device.caching.free(made.ticket).unwrap();
    // One granule less than that is kept with it.
    assert_eq!(device.try_alloc(40 * MIB + 512).unwrap().size, Bytes(60 * MIB));
    // The request for 31 MiB took 32, and keeps them.
    assert_eq!(device.caching.stats().oversize_segments.current, 3);
    assert_eq!(device.caching.stats().oversize_allocations.current, 2);
}

/// Where the driver refuses, oversize blocks of the stream go first, then everything idle.
#[test]
fn making_room() {
    let mut caching = TorchCaching::new(configured("max_split_size_mb:32"));
    let lane = caching.lane(PoolId::DEFAULT, 0).unwrap();
    let mut supplier = Capped::new(Bytes(200 * MIB), Placed::new(Placement::Ascending));
    let mut made = Vec::new();
    for mebibytes in [10, 34, 60, 90] {
        let request = Request::of(Bytes(mebibytes * MIB), lane);
        made.push(caching.allocate(request, &mut supplier).unwrap().ticket);
    }
    made.into_iter().for_each(|ticket| caching.free(ticket).unwrap());
    // From the largest down until there is as much: 90 and 60 go, 34 and 10 stay.
    let request = Request::of(Bytes(120 * MIB), lane);
    let ticket = caching.allocate(request, &mut supplier).unwrap().ticket;
    assert_eq!(caching.stats().reserved_bytes.current(), 164 * MIB);
    assert_eq!((caching.stats().num_alloc_retries, caching.stats().num_device_free), (0, 2));
    assert_eq!(caching.growths().last().unwrap().released, Bytes(150 * MIB));
    let refused = caching.allocate(Request::of(Bytes(100 * MIB + 1), lane), &mut supplier);
    assert_eq!(refused, Err(Refused::OutOfMemory { rounded: 100 * MIB + 512, segment: 102 * MIB }));
    // What was given back in vain stays given back.
    assert_eq!(caching.stats().reserved_bytes.current(), 120 * MIB);
    assert_eq!((caching.stats().num_alloc_retries, caching.stats().num_ooms), (1, 1));
    caching.free(ticket).unwrap();
    assert_eq!(caching.free(ticket), Err(NotInUse));
}

/// While a graph is captured nothing is waited for, so nothing idle goes back.
#[test]
fn capturing() {
    let mut device = Device::new(Options { cap: Some(Bytes(40 * MIB)), ..Options::default() });
    let ticket = device.alloc(30 * MIB);
    device.caching.free(ticket).unwrap();
    let mut request = Request { capturing: true, ..Request::of(Bytes(36 * MIB), device.lane) };
    assert!(device.caching.allocate(request, &mut device.supplier).is_err());
    assert_eq!(device.reserved(), 30 * MIB);
    request.capturing = false;
    assert!(device.caching.allocate(request, &mut device.supplier).is_ok());
    assert_eq!(device.reserved(), 36 * MIB);
}

/// The oldest idle segments go as soon as more than the threshold is taken, and no more than a round takes.
#[test]
fn garbage_collection() {
    let cap = Some(Bytes(200 * MIB));
    let mut device = Device::new(Options { cap, ..configured("garbage_collection_threshold:0.5") });
    for mebibytes in [50, 60] {
        let ticket = device.alloc(mebibytes * MIB);
        device.caching.free(ticket).unwrap();
    }
    assert_eq!(device.reserved(), 110 * MIB);
    device.alloc(70 * MIB);
    assert_eq!(device.reserved(), 130 * MIB);
    assert_eq!(device.caching.stats().num_device_free, 1);
    assert_eq!(device.caching.stats().num_alloc_retries, 0);
}

#[test]
fn a_block_that_waits_for_a_stream() {
    let mut device = Device::new(Options { cap: Some(Bytes(20 * MIB)), ..Options::default() });
    let ticket = device.alloc(8 * MIB);
    device.caching.request_free(ticket).unwrap();
    let stats = device.caching.stats();
    assert_eq!((stats.allocated_bytes.current(), stats.active_bytes.current()), (0, 8 * MIB));
    assert_eq!(
        (device.caching.request_free(ticket), device.caching.free(ticket)),
        (Err(NotInUse), Err(NotInUse))
    );
    assert!(device.caching.is_pending(ticket));
    assert_eq!(device.place(9 * MIB).1, 8 * MIB);
    // When all is given back, everything is waited for.
    assert!(device.try_alloc(9 * MIB).is_err());
    assert!(!device.caching.is_pending(ticket));
    assert_eq!(device.caching.complete_free(ticket), Err(NotInUse));
    assert_eq!(device.place(8 * MIB), (0, 0, 8 * MIB));
}

#[test]
fn a_segment_that_grows_in_place() {
    let mut device = Device::new(configured("expandable_segments:True"));
    let first = device.alloc(3 * MIB);
    assert_eq!(device.reserved(), 20 * MIB);
    assert_eq!(device.place(30 * MIB), (0, 3 * MIB, 30 * MIB));
    assert_eq!(device.reserved(), 40 * MIB);
    device.alloc(MIB);
    assert_eq!(device.reserved(), 42 * MIB);
    device.caching.free(first).unwrap();
    // The hole is preferred to the end, although the end is smaller.
    let end = device.alloc(5 * MIB);
    assert_eq!(device.place(2 * MIB), (0, 0, 2 * MIB));
    let stats = device.caching.stats();
    assert_eq!((stats.segment.current(), stats.inactive_split_bytes.peak()), (0, 0));
    // Pages that are wholly free go.
    device.caching.free(end).unwrap();
    let large = device.alloc(50 * MIB);
    assert_eq!(device.reserved(), 102 * MIB);
    device.caching.free(large).unwrap();
    device.caching.empty_cache(&mut device.supplier);
    assert_eq!(device.reserved(), 42 * MIB);
    assert_eq!(device.place(8 * MIB), (0, 33 * MIB, 8 * MIB));
}

#[test]
fn a_pool_that_helps_out() {
    let mut device = Device::new(Options { cap: Some(Bytes(30 * MIB)), ..Options::default() });
    let helping = device.caching.add_pool(PoolOptions { use_on_oom: true, no_split: true });
    let default = std::mem::replace(&mut device.lane, device.caching.lane(helping, 0).unwrap());
    let ticket = device.alloc(20 * MIB);
    device.caching.free(ticket).unwrap();
    device.lane = default;
    assert_eq!(device.try_alloc(12 * MIB).unwrap().size, Bytes(20 * MIB));
    assert_eq!(device.caching.stats().num_alloc_retries, 0);
}

#[test]
fn what_is_there_before() {
    let mut device = Device::new(Options::default());
    let base = 1 << 40;
    let held = [(base, Bytes(3 * MIB), None), (base + 8 * MIB, Bytes(12 * MIB), Some(Bytes(11 * MIB)))];
    let overlapping = [(base, Bytes(3 * MIB), None), (base + 2 * MIB, Bytes(MIB), None)];
    let (caching, lane, size) = (&mut device.caching, device.lane, Bytes(20 * MIB));
    assert_eq!(caching.seed(lane, false, base, size, &overlapping), None);
    assert_eq!(caching.segments().count(), 0);
    let tickets = caching.seed(lane, false, base, size, &held).unwrap();
    assert_eq!(caching.seed(lane, false, base + MIB, size, &[]), None);
    assert_eq!(caching.stats().inactive_split_bytes.current(), 5 * MIB);
    assert_eq!(device.place(4 * MIB), (0, 3 * MIB, 5 * MIB));
    tickets.into_iter().for_each(|ticket| device.caching.free(ticket).unwrap());
    check(&device.caching);
}

/// Blocks tile their segments, free neighbours are one, and the sums are the statistics.
fn check(caching: &TorchCaching) {
    let (mut reserved, mut active, mut allocated, mut requested, mut split, mut blocks) = (0, 0, 0, 0, 0, 0);
    let mut segments = 0;
    let mut free_sizes = Vec::new();
    let mut end_before = 0;
    for segment in caching.segments() {
        assert!(segment.base >= end_before, "segments overlap");
        end_before = segment.base + segment.size.0;
        let all: Vec<BlockView> = caching.blocks(segment.base).collect();
        let mut at = segment.base;
        let mut before = None;
        for block in &all {
            assert_eq!(block.address, at, "a gap or an overlap");
            assert!(block.size > Bytes::ZERO);
            at += block.size.0;
            let is_open = matches!(block.state, State::Free | State::Unmapped);
            assert!(!is_open || before != Some(block.state), "neighbours that were not joined");
            before = Some(block.state);
            assert_eq!(block.ticket == Ticket::NONE, is_open);
            if block.state != State::Unmapped {
                reserved += block.size.0;
            }
            match block.state {
                State::Allocated => {
                    (allocated, active, requested) =
                        (allocated + block.size.0, active + block.size.0, requested + block.requested.0);
                    assert!(block.requested <= block.size);
                    blocks += 1;
                }
                State::Pending => {
                    (active, requested) = (active + block.size.0, requested + block.requested.0);
                }
                State::Free => {
                    free_sizes.push(block.size);
                    if all.len() > 1 && !segment.is_expandable {
                        split += block.size.0;
                    }
                }
                State::Unmapped => assert!(segment.is_expandable),
            }
        }
        assert_eq!(at, segment.base + segment.size.0);
        segments += u64::from(!segment.is_expandable);
    }
    let stats = caching.stats();
    assert_eq!(stats.reserved_bytes.current(), reserved);
    assert_eq!(stats.active_bytes.current(), active);
    assert_eq!(stats.allocated_bytes.current(), allocated);
    assert_eq!(stats.requested_bytes.current(), requested);
    assert_eq!(stats.inactive_split_bytes.current(), split);
    assert_eq!(stats.allocation.current(), blocks);
    assert_eq!(stats.segment.current(), segments);
    // Every free block is found, and nothing else.
    let mut found: Vec<Bytes> = caching.free_sizes().collect();
    found.sort();
    free_sizes.sort();
    assert_eq!(found, free_sizes);
}

/// A small generator with a fixed seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn invariants_under_random_requests() {
    let settings = [
        "",
        "max_split_size_mb:20",
        "max_split_size_mb:32,garbage_collection_threshold:0.4",
        "roundup_power2_divisions:4",
        "expandable_segments:True",
        "expandable_segments:True,garbage_collection_threshold:0.6,max_split_size_mb:40",
        "large_segment_size_mb:60,max_split_size_mb:20",
    ];
    let mut failed = 0;
    for (number, text) in (1u64..).zip(settings) {
        for tie_break in [TieBreak::Address, TieBreak::Segment] {
            for cap in [None, Some(Bytes(300 * MIB))] {
                let options = Options { cap, tie_break, ..configured(text) };
                failed += random_run(options, 0x9e37_79b9_7f4a_7c15 ^ (number << 7));
            }
        }
    }
    assert!(failed > 0);
}

/// How many requests failed.
fn random_run(options: Options, seed: u64) -> u64 {
    let mut caching = TorchCaching::new(options);
    let private = caching.add_pool(PoolOptions::default());
    let helping = caching.add_pool(PoolOptions { no_split: true, use_on_oom: true });
    let lanes = [(PoolId::DEFAULT, 0), (PoolId::DEFAULT, 9), (private, 0), (helping, 0)]
        .map(|(pool, stream)| caching.lane(pool, stream).unwrap());
    let mut supplier = Capped::new(Bytes(400 * MIB), Placed::new(Placement::Alternating));
    let mut chance = Chance(seed);
    let (mut live, mut pending): (Vec<Ticket>, Vec<Ticket>) = (Vec::new(), Vec::new());
    let (mut served, mut failed) = (0, 0);
    for round in 0..3000 {
        match chance.below(20) {
            0..=8 => {
                let scale = [1 << 10, 1 << 16, MIB, 6 * MIB, 40 * MIB][chance.below(5) as usize];
                let lane = lanes[(chance.below(7) as usize).saturating_sub(3)];
                let request = Request {
                    capturing: chance.below(9) == 0,
                    ..Request::of(Bytes(1 + chance.below(scale)), lane)
                };
                let would = caching.finds(request);
                let grown = caching.growths().len();
                match caching.allocate(request, &mut supplier) {
                    Ok(made) => {
                        assert_eq!(caching.address_of(made.ticket), Some(made.address));
                        assert!(made.size >= request.bytes);
                        assert!(!would || caching.growths().len() == grown);
                        live.push(made.ticket);
                        served += 1;
                    }
                    Err(refused) => {
                        assert!(matches!(refused, Refused::OutOfMemory { .. }) && !would);
                        failed += 1;
                    }
                }
            }
            9..=14 if !live.is_empty() => {
                let ticket = live.swap_remove(chance.below(live.len() as u64) as usize);
                caching.free(ticket).unwrap();
                assert_eq!(caching.free(ticket), Err(NotInUse));
                assert_eq!(caching.complete_free(ticket), Err(NotInUse));
            }
            15..=16 if !live.is_empty() => {
                let ticket = live.swap_remove(chance.below(live.len() as u64) as usize);
                caching.request_free(ticket).unwrap();
                pending.push(ticket);
            }
            17..=18 if !pending.is_empty() => {
                let ticket = pending.swap_remove(chance.below(pending.len() as u64) as usize);
                let is_pending = caching.is_pending(ticket);
                assert_eq!(caching.complete_free(ticket).is_ok(), is_pending);
            }
            19 if chance.below(10) == 0 => caching.empty_cache(&mut supplier),
            _ => assert_eq!(caching.free(Ticket::NONE), Err(NotInUse)),
        }
        if let Some(cap) = options.cap {
            // The cap is compared with what a segment of its own would take, and then whole pages are mapped.
            let more = if options.expandable { 20 * MIB } else { 0 };
            assert!(caching.stats().reserved_bytes.current() <= cap.0 + more);
        }
        assert!(caching.stats().reserved_bytes.current() <= 400 * MIB);
        if round % 7 == 0 {
            check(&caching);
        }
    }
    assert!(served > 500, "{served} served, {failed} failed");
    live.into_iter().for_each(|ticket| caching.free(ticket).unwrap());
    caching.release_pool(private);
    caching.release_pool(helping);
    caching.empty_cache(&mut supplier);
    check(&caching);
    assert_eq!(caching.stats().reserved_bytes.current(), 0);
    // Address space that never had memory behind it stays.
    assert!(caching.segments().all(|segment| segment.is_expandable));
    failed
}
