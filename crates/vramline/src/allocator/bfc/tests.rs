//! Vectors that follow from the rules, and were confirmed on real traces.

use super::*;
use crate::allocator::{Capped, Placed, Placement};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

struct Pool {
    bfc: Bfc,
    supplier: Placed,
}

impl Pool {
    fn new(limit: u64, options: Options) -> Pool {
        let bfc = Bfc::new("pool", Bytes(limit), options).unwrap();
        Pool { bfc, supplier: Placed::new(Placement::Ascending) }
    }

    fn alloc(&mut self, bytes: u64) -> Ticket {
        self.bfc.allocate(Request::of(Bytes(bytes)), &mut self.supplier).unwrap().ticket
    }

    /// Region, offset and chunk size of a new allocation.
    fn place(&mut self, bytes: u64) -> (usize, u64, u64) {
        let made = self.bfc.allocate(Request::of(Bytes(bytes)), &mut self.supplier).unwrap();
        let inside =
            |region: &RegionView| made.address >= region.base && made.address < region.base + region.size.0;
        let (number, region) = self.bfc.regions().enumerate().find(|(_, region)| inside(region)).unwrap();
        (number, made.address - region.base, made.size.0)
    }

    fn in_use(&self) -> u64 {
        self.bfc.stats().in_use.0
    }
}

fn preset(name: &str) -> Options {
    Preset::named(name).unwrap().options
}

#[test]
fn a_growing_pool() {
    let mut pool = Pool::new(64 * GIB, preset("tensorflow-2.21-gpu-growth"));
    let expected = [
        (1, (0, 0, 256), 2, 4, 256),
        (1000, (0, 256, 1024), 2, 4, 1280),
        (3 * MIB, (1, 0, 4_194_304), 6, 8, 4_195_584),
        (MIB, (0, 1280, 2_095_872), 6, 8, 6_291_456),
        (10 * MIB, (2, 0, 16_777_216), 22, 16, 23_068_672),
        (MIB, (3, 0, 1_048_576), 38, 32, 24_117_248),
    ];
    for (bytes, place, taken, next, in_use) in expected {
        assert_eq!(pool.place(bytes), place);
        assert_eq!(pool.bfc.stats().pool, Bytes(taken * MIB));
        assert_eq!(pool.bfc.next_region(), Bytes(next * MIB));
        assert_eq!(pool.in_use(), in_use);
    }
    assert!(pool.bfc.fragmentation().abs() < f64::EPSILON);
    assert_eq!(
        pool.bfc.growths().iter().map(|growth| growth.got.0 / MIB).collect::<Vec<_>>(),
        [2, 4, 16, 16]
    );
}

#[test]
fn a_first_request_larger_than_the_first_region() {
    let mut pool = Pool::new(64 * GIB, preset("tensorflow-2.21-gpu-growth"));
    pool.alloc(5 * MIB);
    assert_eq!((pool.bfc.stats().pool, pool.bfc.next_region()), (Bytes(8 * MIB), Bytes(8 * MIB)));
}

#[test]
fn a_preallocated_pool() {
    let mut pool = Pool::new(GIB, preset("tensorflow-2.21-gpu"));
    assert_eq!(pool.bfc.stats().pool, Bytes::ZERO);
    let first = pool.alloc(300 * MIB);
    assert_eq!(pool.place(500 * MIB), (0, 314_572_800, 524_288_000));
    assert_eq!(pool.in_use(), 838_860_800);
    pool.bfc.free(first).unwrap();
    assert_eq!(pool.place(200 * MIB), (0, 838_860_800, 234_881_024));
    assert_eq!(pool.in_use(), 759_169_024);
    assert_eq!(pool.place(100 * MIB), (0, 0, 104_857_600));
    assert_eq!(pool.in_use(), 864_026_624);
}

#[test]
fn a_chunk_that_is_not_split() {
    let mut pool = Pool::new(GIB, preset("tensorflow-2.21-gpu"));
    let tickets = [(); 3].map(|()| pool.alloc(100 * MIB));
    pool.bfc.free(tickets[1]).unwrap();
    assert_eq!(pool.place(60 * MIB), (0, 104_857_600, 104_857_600));
    assert_eq!(pool.in_use(), 314_572_800);
    assert_eq!(pool.bfc.stats().slack(), Bytes(40 * MIB));
}

#[test]
fn asking_for_less_in_single_precision() {
    let mut bfc = Bfc::new("pool", Bytes((1 << 34) - 256), preset("tensorflow-2.21-gpu")).unwrap();
    let mut supplier = Capped::new(Bytes(15 * GIB), Placed::new(Placement::Ascending));
    bfc.allocate(Request::of(Bytes(1)), &mut supplier).unwrap();
    let regions: Vec<u64> = bfc.regions().map(|region| region.size.0).collect();
    assert_eq!(regions, [15_461_881_856]);
    assert_eq!(bfc.next_region(), Bytes(34_359_737_856));
    let refused = bfc.allocate(Request::of(Bytes(15 * GIB)), &mut supplier);
    assert_eq!(refused, Err(Refused::OutOfMemory { rounded: 15 * GIB }));
    assert_eq!(bfc.stats().retries, 3);
}

/// Older versions ask for less once in their life.
#[test]
fn asking_for_less_once() {
    let regions = |name: &str| {
        let mut bfc = Bfc::new("pool", Bytes(GIB), preset(name)).unwrap();
        let mut supplier = Capped::new(Bytes(61 * MIB), Placed::new(Placement::Ascending));
        while bfc.allocate(Request::of(Bytes(MIB)), &mut supplier).is_ok() {}
        bfc.regions().map(|region| region.size.0).collect::<Vec<_>>()
    };
    let once = regions("tensorflow-2.15-gpu-growth");
    // Nine tenths of 32 MiB is what is left; the second refusal is final.
    assert_eq!(once, [2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB, 30_199_040]);
    let always = regions("tensorflow-2.17-gpu-growth");
    assert_eq!(always.get(..5), Some(&once[..]));
    assert_eq!(always.len(), 6);
}

#[test]
fn garbage_collection_returns_every_idle_region() {
    let mut options = preset("tensorflow-2.21-gpu-growth");
    for collects in [true, false] {
        options.garbage_collection = collects;
        let mut pool = Pool::new(16 * MIB, options);
        let held: Vec<Ticket> = [2, 4, 8].iter().map(|mib| pool.alloc(mib * MIB)).collect();
        held.iter().for_each(|ticket| pool.bfc.free(*ticket).unwrap());
        let made = pool.bfc.allocate(Request::of(Bytes(12 * MIB)), &mut pool.supplier);
        assert_eq!(made.is_ok(), collects);
        assert_eq!(pool.bfc.stats().regions_returned, if collects { 3 } else { 0 });
    }
}

/// The dump prints handles and sizes of earlier owners, so both are kept as there.
#[test]
fn handles_and_stale_sizes() {
    let mut pool = Pool::new(64 * GIB, preset("tensorflow-2.21-cpu"));
    let tickets = [1000, 2000, 3000].map(|bytes| pool.alloc(bytes));
    pool.bfc.free(tickets[0]).unwrap();
    pool.bfc.free(tickets[1]).unwrap();
    let dump = pool.bfc.dump(Bytes(GIB), End::Lower, "op");
    let chunks: Vec<&str> = dump.lines().filter(|line| line.contains(" at ")).collect();
    // Chunk 1 went into chunk 0; its handle is the next one to be used.
    assert!(chunks[0].starts_with("Free  at ") && chunks[0].ends_with("of size 3072 next 2"), "{chunks:?}");
    assert!(chunks[2].ends_with("next 18446744073709551615"));
    pool.alloc(500);
    let dump = pool.bfc.dump(Bytes(2000), End::Lower, "op");
    // What is left of chunk 0 has handle 1, and handle 1 once asked for 2000 bytes.
    let expected = "  Size: 2.5KiB | Requested Size: 2.0KiB | in_use: 0 | bin_num: 3, prev:   Size: 512B | Requested Size: 500B \
                    | in_use: 1 | bin_num: -1, next:   Size: 3.0KiB | Requested Size: 2.9KiB | in_use: 1 | bin_num: -1";
    assert!(dump.contains(expected), "{dump}");
}

#[test]
fn what_was_freed_cannot_be_freed_again() {
    let mut pool = Pool::new(GIB, preset("tensorflow-2.21-gpu"));
    let ticket = pool.alloc(1000);
    assert_eq!(pool.bfc.free(ticket), Ok(()));
    assert_eq!(pool.bfc.free(ticket), Err(NotInUse));
    assert_eq!(pool.bfc.free(Ticket::NONE), Err(NotInUse));
    // The same chunk again is another allocation.
    pool.alloc(1000);
    assert_eq!(pool.bfc.free(ticket), Err(NotInUse));
}

#[test]
fn two_ends_and_a_gap() {
    let mut pool = Pool::new(GIB, preset("jax-0.11-preallocated"));
    let upper = |bytes| Request { end: End::Upper, alignment: 2 * MIB, ..Request::of(Bytes(bytes)) };
    assert_eq!(pool.place(MIB), (0, 0, MIB));
    let high = pool.bfc.allocate(upper(3 * MIB), &mut pool.supplier).unwrap();
    let base = pool.bfc.regions().next().unwrap().base;
    assert_eq!((high.address - base, high.size.0), (1020 * MIB, 3 * MIB));
    // What lies above it because of the alignment is a hole of the upper end: no use to the lower.
    let hole = pool.alloc(MIB);
    let after = pool.alloc(MIB);
    pool.bfc.free(hole).unwrap();
    assert_eq!(pool.place(MIB / 4), (0, MIB, MIB / 4));
    let low = pool.bfc.allocate(upper(MIB), &mut pool.supplier).unwrap();
    assert_eq!(low.address - base, 1018 * MIB);
    // All of it given back is one gap again.
    for ticket in [after, high.ticket, low.ticket] {
        pool.bfc.free(ticket).unwrap();
    }
    let dump = pool.bfc.dump(Bytes(2 * GIB), End::Lower, "");
    assert!(dump.contains(" tag central_gap next 18446744073709551615"), "{dump}");
    assert!(
        dump.contains("The central gap is shared by lower/upper allocations and is not inserted into a bin.")
    );
}

/// Holes come before the gap even where the gap is the better fit; a classic pool takes the better fit.
#[test]
fn holes_before_the_gap() {
    for (name, offset) in [("jax-0.11-preallocated", 0), ("jax-0.4-preallocated", 11 * MIB)] {
        let mut pool = Pool::new(16 * MIB, preset(name));
        let low = pool.alloc(8 * MIB);
        pool.alloc(3 * MIB);
        pool.bfc.free(low).unwrap();
        assert_eq!(pool.place(MIB).1, offset, "{name}");
    }
}

#[test]
fn frees_that_wait() {
    let options = Options { timed: true, ..preset("tensorflow-2.21-gpu") };
    let mut pool = Pool::new(16 * MIB, options);
    let tickets = [(); 4].map(|()| pool.alloc(4 * MIB));
    tickets.iter().for_each(|ticket| pool.bfc.free(*ticket).unwrap());
    assert_eq!(pool.bfc.free_sizes().count(), 4);
    pool.bfc.set_safe_frontier(3);
    // The first two are safe and become one; the others wait.
    let at =
        pool.bfc.allocate(Request { freed_before: 2, ..Request::of(Bytes(7 * MIB)) }, &mut pool.supplier);
    assert_eq!(at.unwrap().size, Bytes(8 * MIB));
    assert_eq!(pool.bfc.free_sizes().count(), 2);
    // Nothing else fits, so what waits is joined all the same.
    assert_eq!(pool.place(8 * MIB), (0, 8 * MIB, 8 * MIB));
}

#[test]
fn alignment_is_kept_where_the_version_keeps_it() {
    for (name, remainder) in [("jax-0.11-growth", 0), ("jax-0.4-growth", 256)] {
        let mut pool = Pool::new(GIB, preset(name));
        pool.alloc(1);
        let request = Request { alignment: 4096, ..Request::of(Bytes(1)) };
        let made = pool.bfc.allocate(request, &mut pool.supplier).unwrap();
        assert_eq!(made.address % 4096, remainder, "{name}");
    }
}

#[test]
fn regions_and_limits_in_granules() {
    let options = preset("jax-0.11-preallocated");
    assert_eq!(options.limit(Bytes(3 * MIB)), Bytes(4 * MIB));
    let mut pool = Pool::new(GIB - 2 * MIB, preset("jax-0.11-growth"));
    pool.alloc(3 * MIB + 1);
    assert_eq!(pool.bfc.stats().pool.0 % (2 * MIB), 0);
}

#[test]
fn a_fraction_decides_what_is_split() {
    let options = Options { fragmentation_fraction: 0.01, ..preset("tensorflow-2.21-gpu") };
    let mut pool = Pool::new(1000 * MIB, options);
    let tickets = [(); 3].map(|()| pool.alloc(100 * MIB));
    pool.bfc.free(tickets[1]).unwrap();
    assert_eq!(pool.place(90 * MIB).2, 90 * MIB);
    let tiny = Options { fragmentation_fraction: 1e-12, ..options };
    assert!(Bfc::new("pool", Bytes(1000 * MIB), tiny).is_none());
}

#[test]
fn sizes_read_as_in_the_logs() {
    let expected = [
        (0, "0B"),
        (1023, "1023B"),
        (1024, "1.0KiB"),
        (611_328, "597.0KiB"),
        (1_048_575, "1024.0KiB"),
        (16_777_216, "16.00MiB"),
        (15_666_000_000, "14.59GiB"),
    ];
    for (bytes, shown) in expected {
        assert_eq!(human(Bytes(bytes)), shown);
    }
}

#[test]
fn seeds_tile_their_region() {
    let mut bfc = Bfc::new("pool", Bytes(GIB), preset("tensorflow-2.21-gpu-growth")).unwrap();
    let region = RegionView { base: 4096, size: Bytes(8192) };
    let held = [(4352, Bytes(256), None), (4608, Bytes(1024), Some(Bytes(1000))), (12_032, Bytes(256), None)];
    let tickets = bfc.seed(region, &held).unwrap();
    assert_eq!((bfc.stats().in_use, bfc.stats().requested), (Bytes(1536), Bytes(1512)));
    let sizes: Vec<_> = bfc.chunks(region).map(|chunk| (chunk.size.0, chunk.in_use)).collect();
    assert_eq!(sizes, [(256, false), (256, true), (1024, true), (6400, false), (256, true)]);
    tickets.into_iter().for_each(|ticket| bfc.free(ticket).unwrap());
    assert_eq!(bfc.free_sizes().collect::<Vec<_>>(), [Bytes(8192)]);
    assert!(bfc.seed(region, &[]).is_none(), "the region is there already");
    let outside = RegionView { base: 1 << 20, size: Bytes(256) };
    assert!(bfc.seed(outside, &[(1 << 20, Bytes(512), None)]).is_none());
}

/// The best fit is what looking at every free chunk gives, also in bins of many, while they fill and empty.
#[test]
fn the_best_of_many() {
    let mut pool = Pool::new(GIB, preset("tensorflow-2.21-gpu"));
    let mut state = 5_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut held: Vec<Ticket> = Vec::new();
    let mut most = 0;
    for act in 0..6000 {
        // Two thousand acts fill the pool, two thousand free most of it, and the rest is both.
        let frees = [20, 75, 50][act / 2000];
        if random(100) < frees && !held.is_empty() {
            let at = usize::try_from(random(held.len() as u64)).unwrap();
            pool.bfc.free(held.swap_remove(at)).unwrap();
            most = most.max(pool.bfc.free_sizes().count());
            continue;
        }
        let bytes = 1 + random(700);
        let rounded = bytes.next_multiple_of(256);
        let regions: Vec<RegionView> = pool.bfc.regions().collect();
        let free = regions.iter().flat_map(|region| pool.bfc.chunks(*region));
        let fitting = free.filter(|chunk| !chunk.in_use && chunk.size.0 >= rounded);
        let best = fitting.map(|chunk| (chunk.size.0, chunk.address)).min();
        let made = pool.bfc.allocate(Request::of(Bytes(bytes)), &mut pool.supplier).unwrap();
        assert!(best.is_none_or(|(_, address)| address == made.address));
        held.push(made.ticket);
    }
    assert!(most > 150, "{most}");
}
