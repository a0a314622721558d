//! Real traces through the simulators: every address, or what is assumed; and rules that hold for any requests.

use proptest::prelude::*;
use vramline::allocator::bfc::{
    Bfc, End, NotInUse, Options, PRESETS, Preset, Refused, RegionView, Request, Ticket,
};
use vramline::allocator::{Capped, Placed, Placement};
use vramline::analysis::replay::{ReplayGate, ReplayOptions, replay as analyse};
use vramline::replay::{CauseKind, PoolReplay, Restart, Setting, remedies, replay, run};
use vramline::units::{Bytes, Picos};
use vramline::view::replay::Replay;

use crate::fixture;

const MIB: u64 = 1 << 20;

/// The pools of a trace that can be replayed.
fn replays(name: &str, version: Option<&str>) -> Vec<PoolReplay> {
    let reading = vramline::read(&fixture(name)).unwrap();
    let trace = &reading.hosts[0].trace;
    trace.pools.iter().filter_map(|pool| replay(trace, pool, version).ok()).collect()
}

fn growths(pool: &PoolReplay) -> Vec<u64> {
    pool.ran.exact.growths.iter().map(|growth| growth.got.0 / MIB).collect()
}

#[test]
fn every_address_of_the_traces_from_the_start() {
    let expected: [(&str, &str, u64, u64, &[u64]); 8] = [
        (
            "tf221_cpu_cnn_from_start.xplane.pb",
            "tensorflow-2.21-cpu",
            5060,
            72_718_080,
            &[2, 8, 8, 16, 32, 64],
        ),
        ("tf221_cpu_keras.vram", "tensorflow-2.21-cpu", 2408, 72_909_056, &[2, 4, 8, 16, 32, 64]),
        ("tf215_cpu_keras2.vram", "tensorflow-2.21-cpu", 1810, 48_811_264, &[2, 8, 8, 16, 32]),
        (
            "jax0112_h200_from_start.xplane.pb",
            "jax-0.11-growth",
            348,
            151_518_976,
            &[2, 4, 8, 32, 32, 64, 128],
        ),
        ("jax0112_h200_loop.vram", "jax-0.11-growth", 391, 243_597_568, &[2, 16, 16, 32, 64, 128]),
        ("jax0112_h200_preallocated.xplane.pb.gz", "jax-0.11-preallocated", 348, 116_916_480, &[107_368]),
        (
            "jax0112_h200_convolution.xplane.pb.gz",
            "jax-0.11-growth",
            1656,
            1_105_494_784,
            &[2, 32, 32, 64, 128, 256, 512, 1024],
        ),
        ("jax0112_h200_too_large.xplane.pb.gz", "jax-0.11-growth", 44, 448_790_528, &[2, 64, 128, 128, 108]),
    ];
    for (name, preset, allocs, peak, regions) in expected {
        let pools = replays(name, None);
        let pool = &pools[0];
        assert!(pools.iter().all(|pool| pool.ran.is_exact()), "{name}: {:?}", pool.ran.exact.first_mismatch);
        assert_eq!(
            (pool.ran.rules.preset(), pool.ran.exact.allocs, pool.ran.exact.peak.0),
            (preset, allocs, peak),
            "{name}"
        );
        assert_eq!(pool.ran.exact.address_matches, allocs);
        assert_eq!(growths(pool), regions, "{name}");
        // TensorFlow's and JAX's own high-water mark, which this does not look at.
        let reading = vramline::read(&fixture(name)).unwrap();
        let trace = &reading.hosts[0].trace;
        let told = trace.history.pool(trace.pools[0].id).and_then(|pool| pool.lifetime_peak);
        assert_eq!(told, Some(pool.ran.exact.peak), "{name}");
    }
}

/// With the wrong allocator the same trace does not agree, and the first difference is told with its surroundings.
#[test]
fn another_allocator_does_not_agree() {
    let reading = vramline::read(&fixture("jax0112_h200_from_start.xplane.pb")).unwrap();
    let trace = &reading.hosts[0].trace;
    let pool = replay(trace, &trace.pools[0], Some("0.4.38")).unwrap();
    assert_eq!(pool.ran.rules.model(), "bfc-classic");
    // The growing pool is the same in both versions, the preallocated one is not.
    assert_eq!(pool.ran.rules.preset(), "jax-0.4-growth");
    let older = replay(trace, &trace.pools[0], Some("0.4.38")).unwrap();
    assert!(older.ran.is_exact());
    let reading = vramline::read(&fixture("tf221_cpu_mlp_window.xplane.pb")).unwrap();
    let trace = &reading.hosts[0].trace;
    let pool = replay(trace, &trace.pools[0], None).unwrap();
    let mismatch = pool.ran.exact.first_mismatch.as_ref().unwrap();
    assert!(mismatch.replayed.is_some_and(|(address, _)| Some(address) != mismatch.address));
    assert!(mismatch.around.iter().any(|line| line.contains(&format!("{:x}", mismatch.address.unwrap()))));
}

/// A trace that begins late: what is assumed is said, and nothing is called exact.
#[test]
fn windows_are_seeded_and_say_so() {
    let pools = replays("jax0112_h200_prealloc_window.xplane.pb", Some("0.11.2"));
    let pool = &pools[0];
    assert_eq!(pool.ran.rules.model(), "bfc-spatial");
    assert_eq!((pool.ran.from_start, pool.ran.is_exact()), (Some(false), false));
    assert_eq!(
        (pool.ran.exact.address_matches, pool.ran.exact.size_matches, pool.ran.exact.allocs),
        (228, 228, 228)
    );
    assert_eq!(pool.ran.exact.peak, Bytes(752_119_040));
    assert!(
        pool.ran
            .exact
            .assumed
            .iter()
            .any(|words| words.contains("163 MiB in 31 blocks are known from their frees"))
    );
    for (name, least) in
        [("tf221_cpu_mlp_window.xplane.pb", 600), ("jax0112_h200_growth_window.xplane.pb", 100)]
    {
        let pool = &replays(name, None)[0];
        assert!(!pool.ran.is_exact() && !pool.ran.exact.assumed.is_empty());
        assert!(pool.ran.exact.address_matches > least, "{name}: {}", pool.ran.exact.address_matches);
    }
}

/// Pools of other allocators are refused, with their name.
#[test]
fn what_has_no_rules_is_not_replayed() {
    for name in ["tf221_cpu_mlp_nobfc_window.xplane.pb", "jax0112_h200_cuda_async.xplane.pb.gz"] {
        assert!(replays(name, None).iter().all(|pool| pool.ran.name.contains("bfc")));
    }
    let reading = vramline::read(&fixture("tf221_cpu_mlp_nobfc_window.xplane.pb")).unwrap();
    let trace = &reading.hosts[0].trace;
    let refused = replay(trace, &trace.pools[0], None).map(|_| ()).unwrap_err();
    assert_eq!(refused.to_string(), "'mklcpu' is not a pool whose allocator is known here");
}

#[test]
fn bounds_moments_and_stories() {
    let pool = &replays("tf221_cpu_cnn_from_start.xplane.pb", None)[0];
    let bounds = pool.bounds;
    assert!(bounds.load_requested <= bounds.load_rounded && bounds.load_rounded <= bounds.packing);
    assert!(bounds.packing <= pool.ran.exact.peak && pool.ran.exact.peak <= pool.ran.exact.pool);
    let peak = pool.fragmentation.at_peak.as_ref().unwrap();
    assert_eq!(
        (peak.in_use, peak.requested, peak.slack),
        (Bytes(72_718_080), Bytes(57_884_116), Bytes(14_833_964))
    );
    for moment in
        [&pool.fragmentation.at_peak, &pool.fragmentation.before_last_growth, &pool.fragmentation.at_end]
    {
        let moment = moment.as_ref().unwrap();
        assert_eq!(moment.requested + moment.slack, moment.in_use);
        assert!(moment.external <= moment.cached && moment.largest_free <= moment.cached);
    }
    for growth in &pool.ran.exact.growths {
        assert!(growth.largest_free < growth.rounded && growth.rounded <= growth.got);
        assert!(growth.largest_free <= growth.free);
    }
    let got: Bytes = pool.ran.exact.growths.iter().map(|growth| growth.got).sum();
    assert_eq!(got, pool.ran.exact.pool);
    assert_eq!(pool.ran.exact.curve.iter().map(|point| point.in_use).max(), Some(pool.ran.exact.peak));
    assert!(pool.fragmentation.causes.iter().any(|cause| cause.kind == CauseKind::GrowthRegions));
}

#[test]
fn what_if_answers() {
    let reading = vramline::read(&fixture("tf221_cpu_cnn_from_start.xplane.pb")).unwrap();
    let trace = &reading.hosts[0].trace;
    let pool = replay(trace, &trace.pools[0], Some("2.21.0")).unwrap();
    let questions = pool.questions();
    let ask = |text: &str| questions.ask(&text.parse::<Setting>().unwrap(), None).unwrap();
    // Nothing changed: what was, was.
    let same = ask("");
    assert_eq!((same.fits, same.peak.0, same.pool.0), (Some(true), pool.ran.exact.peak, pool.ran.exact.pool));
    let whole = ask("growth=off,limit=128MiB");
    assert_eq!((whole.fits, whole.placements, whole.pool.1), (Some(true), 1, Bytes(128 * MIB)));
    let small = ask("limit=50MiB");
    assert_eq!(small.fits, Some(false));
    let failure = small.failure.unwrap();
    assert!(failure.largest_free < failure.asked);
    assert!(ask("limit=50MiB,growth=off").fits == Some(false));
    let (least, most) = (pool.bounds.load_rounded, pool.ran.exact.pool);
    let found = questions.smallest_limit(&Setting::default(), None, least, most).unwrap();
    assert_eq!(found.fits, Some(true));
    let limit = found.limit.unwrap();
    assert!(limit >= least && limit <= most);
    let below = Setting { limit: Some(Bytes(limit.0 - MIB)), ..Setting::default() };
    assert_ne!(questions.ask(&below, None).unwrap().fits, Some(true));
    let driver = ask("allocator=cuda_malloc_async,limit=200MiB");
    assert_eq!((driver.fits, driver.pool.0), (None, pool.bounds.load_requested));
    assert_eq!(ask("allocator=cuda_malloc_async,limit=50MiB").fits, Some(false));
    let refused = pool.ran.rules.check(&"expandable=on".parse().unwrap(), "pool", None).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "'expandable=on' does not apply to pool: it is a setting of PyTorch's allocator"
    );
    let from = pool.ran.restart_at(trace, Restart::LastStep).unwrap();
    let restart = questions.ask(&"restart=on".parse().unwrap(), Some(from)).unwrap();
    assert_eq!(restart.fits, Some(true));
    assert!(restart.peak.1 <= pool.ran.exact.peak);
}

/// A history that ends with a failed request is of a program that was not done: no setting is said to be enough for it.
#[test]
fn a_run_that_ended_early_fits_nothing() {
    let reading = vramline::read(&fixture("torch/out_of_memory.pickle.gz")).unwrap();
    let what_if = ["limit=4GiB", "limit=100MiB"].map(|text| text.parse().unwrap()).to_vec();
    let options = ReplayOptions { what_if, find_limit: true, ..ReplayOptions::default() };
    let analysis = analyse(&reading, &options).unwrap();
    assert_eq!(
        analysis.pools[0].ended_early.as_ref().and_then(|ended| ended.requested),
        Some(Bytes(200 * MIB))
    );
    let fits: Vec<Option<bool>> = analysis.what_if.iter().map(|asked| asked.fits()).collect();
    assert_eq!(fits, [None, Some(false), None]);
    assert_eq!(analysis.what_if[0].answered.fits, Some(true), "what is known is served");
    assert_eq!(analysis.fits(), ReplayGate::Fail);
    let options = ReplayOptions { what_if: options.what_if[..1].to_vec(), ..ReplayOptions::default() };
    let analysis = analyse(&reading, &options).unwrap();
    assert_eq!(analysis.fits(), ReplayGate::NotCertain);
}

/// A request that fails at the end of a growing pool fits one that took its limit at once, or a larger limit.
#[test]
fn remedies_for_a_request_that_fails() {
    let reading = vramline::read(&fixture("tf221_cpu_cnn_from_start.xplane.pb")).unwrap();
    let trace = &reading.hosts[0].trace;
    let ran = run(trace, &trace.pools[0], None).unwrap();
    assert!(ran.is_exact());
    let at_end =
        |bytes: u64| Some(vramline::replay::Refused { bytes: Bytes(bytes), before: ran.program.acts.len() });
    assert!(remedies(&ran, at_end(MIB)).is_none(), "there is room for that");
    let found = remedies(&ran, at_end(1900 * MIB)).unwrap();
    let words: Vec<&str> = found.settings.iter().map(|answer| answer.setting.text.as_str()).collect();
    assert_eq!(words, ["growth=off", "gc=on"]);
    let limit = found.limit.unwrap().limit.unwrap();
    assert!(limit > ran.limit.unwrap() && limit.0 >= 1900 * MIB);
}

/// The newest dialect against a real log: a pool with the same chunks describes itself in the same words. What a log does
/// not tell is left out of the comparison: handles, and what was asked for.
#[test]
fn the_newest_dump_reads_as_the_real_one() {
    type Held = (u64, Bytes, Option<Bytes>);
    let log = std::fs::read_to_string(fixture("jax0112_h200_oom_three_failures.log")).unwrap();
    let text = |line: &str| line.split_once("] ").map_or(line, |(_, text)| text).to_owned();
    let lines: Vec<String> = log.lines().map(text).collect();
    let begin = lines.iter().position(|line| line.starts_with("Next region")).unwrap();
    let end = lines.iter().position(|line| line.starts_with("Stats:")).unwrap();
    let options = Preset::named("jax-0.11-growth").unwrap().options;
    let number = |line: &str, after: &str, radix: u32| {
        let rest = line.split_once(after).unwrap().1;
        u64::from_str_radix(rest.split(' ').next().unwrap(), radix).unwrap()
    };
    let mut regions: Vec<(u64, u64, Vec<Held>)> = Vec::new();
    for line in &lines[begin..end] {
        if line.starts_with("Next region") {
            regions.push((0, number(line, "size ", 10), Vec::new()));
        } else if let Some((base, _, held)) = regions.last_mut()
            && line.contains(" at ")
        {
            let (at, size) = (number(line, " at ", 16), number(line, "size ", 10));
            if *base == 0 {
                *base = at;
            }
            if line.starts_with("InUse") {
                held.push((at, Bytes(size), None));
            }
        }
    }
    let limit = Bytes(regions.iter().map(|region| region.1).sum());
    let mut bfc = Bfc::new("GPU_0_bfc", limit, options).unwrap();
    for (base, size, held) in &regions {
        bfc.seed(RegionView { base: *base, size: Bytes(*size) }, held).unwrap();
    }
    let dump = bfc.dump(Bytes(16_000_000), End::Lower, "");
    let known = |line: &str| {
        let line = line.split(" next ").next().unwrap();
        line.split(" allocation_annotation ").next().unwrap().to_owned()
    };
    let is_known = |line: &&str| {
        !line.contains("growth hint") && !line.starts_with("NumAllocs") && !line.starts_with("Bin (")
    };
    let ours: Vec<String> = dump.lines().filter(is_known).map(known).collect();
    // The first dump ends with its occupancy.
    let last = lines.iter().position(|line| line.len() == 100 && line.starts_with('*')).unwrap();
    let real: Vec<String> = lines[..=last].iter().map(String::as_str).filter(is_known).map(known).collect();
    assert_eq!(ours, real);
    let hint = "Allocator region growth hint: next region allocation target ";
    let form = |lines: &[String]| {
        lines.iter().find(|line| line.starts_with(hint)).unwrap().ends_with(" (growth enabled).")
    };
    assert!(form(&lines) && form(&dump.lines().map(str::to_owned).collect::<Vec<_>>()));
}

/// JAX on an H200 until it fails, growing and divided between two ends: the simulator fails at the same requests, and its dump is
/// the real one, line for line. Annotations, which say who asked, are not the allocator's.
#[test]
fn jax_runs_out_of_memory_as_it_did() {
    const WAIT: i64 = 9_000_000_000_000;
    for (name, failures) in [("jax0112_h200_random_growth", 4), ("jax0112_h200_random_preallocated", 3)] {
        let reading = vramline::read(&fixture(&format!("{name}.xplane.pb.gz"))).unwrap();
        let trace = &reading.hosts[0].trace;
        let pool = replay(trace, &trace.pools[0], Some("0.11.2")).unwrap();
        assert!(pool.ran.is_exact(), "{name}: {:?}", pool.ran.exact.first_mismatch);
        // A request that fails waits ten seconds, and leaves no event.
        let times: Vec<Picos> =
            (0..pool.ran.program.acts.len()).map(|act| pool.ran.time(trace, act).unwrap()).collect();
        let waits = times.windows(2).filter(|pair| pair[1].0 - pair[0].0 > WAIT).map(|pair| pair[0]);
        let log = std::fs::read_to_string(fixture(&format!("{name}.log"))).unwrap();
        let lines: Vec<&str> =
            log.lines().map(|line| line.split_once("] ").map_or(line, |(_, text)| text)).collect();
        let begins: Vec<usize> = (0..lines.len())
            .filter(|&at| lines[at].contains("ran out of memory trying to allocate"))
            .collect();
        assert_eq!((begins.len(), waits.clone().count()), (failures, failures), "{name}");
        for (begin, time) in begins.into_iter().zip(waits) {
            let rounded = lines[begin].split_once("(rounded to ").unwrap().1.split(')').next().unwrap();
            let asked = pool.ran.ask(trace, Some(time), Bytes(rounded.parse().unwrap()), "").unwrap();
            assert!(!asked.fits, "{name}");
            let end = begin
                + lines[begin..]
                    .iter()
                    .position(|line| line.trim_matches(['*', 'x', '_']).is_empty() && line.len() == 100)
                    .unwrap();
            let plain = |line: &&str| match line.split_once(" allocation_annotation ") {
                Some((chunk, rest)) => format!("{chunk} next {}", rest.rsplit_once(" next ").unwrap().1),
                None => (*line).to_owned(),
            };
            // The first line has the request as it was made, which the log rounds for people.
            let real: Vec<String> = lines[begin + 1..=end].iter().map(plain).collect();
            let ours: Vec<&str> = asked.dump.lines().skip(1).collect();
            assert_eq!(ours, real, "{name}");
        }
    }
}

/// Traces that are cut or flipped are replayed as far as they go, and nothing panics or takes for ever.
#[test]
fn damaged_traces() {
    let whole = std::fs::read(fixture("jax0112_h200_from_start.xplane.pb")).unwrap();
    let wanted = ReplayOptions { what_if: vec!["limit=64MiB".parse().unwrap()], ..ReplayOptions::default() };
    let mut replayed = 0;
    let mut try_on = |bytes: &[u8]| {
        let path = std::path::PathBuf::from("memory.xplane.pb");
        if let Ok(history) = vramline::source::read_bytes(bytes, &path) {
            replayed +=
                Replay::from(&analyse(&vramline::Reading::of(path, history), &wanted).unwrap()).pools.len();
        }
    };
    for cut in (0..whole.len()).step_by(whole.len() / 40) {
        try_on(&whole[..cut]);
    }
    let mut flipped = whole.clone();
    for (number, at) in (0..whole.len()).step_by(whole.len() / 150).enumerate() {
        flipped[at] ^= 1 << (number % 8);
        try_on(&flipped);
    }
    assert!(replayed > 0);
}

#[derive(Clone, Debug)]
enum Act {
    Alloc(u64),
    Aligned(u64, u32),
    Upper(u64),
    Free(usize),
    Stale(usize),
    Frontier,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (1_u64..100_000).prop_map(Act::Alloc),
        2 => (1_u64..40_000_000).prop_map(Act::Alloc),
        1 => ((1_u64..3_000_000), 0_u32..22).prop_map(|(bytes, shift)| Act::Aligned(bytes, shift)),
        1 => (1_u64..3_000_000).prop_map(Act::Upper),
        5 => any::<usize>().prop_map(Act::Free),
        1 => any::<usize>().prop_map(Act::Stale),
        1 => Just(Act::Frontier),
    ]
}

fn options() -> impl Strategy<Value = Options> {
    let preset = prop::sample::select(PRESETS.to_vec());
    (preset, any::<bool>(), any::<bool>()).prop_map(|(preset, timed, gc): (Preset, bool, bool)| Options {
        timed,
        garbage_collection: gc,
        ..preset.options
    })
}

/// Chunks tile their regions, nothing in use overlaps, and every sum is what the statistics say.
fn check(bfc: &Bfc, live: &[(Ticket, u64, u64, u64)]) {
    let mut end_before = 0;
    let (mut pool, mut in_use, mut requested, mut free, mut count) = (0, 0, 0, 0, 0);
    let mut largest = 0;
    for region in bfc.regions() {
        assert!(region.base >= end_before);
        let mut at = region.base;
        for chunk in bfc.chunks(region) {
            assert_eq!(chunk.address, at);
            assert!(chunk.size.0 > 0 && chunk.size.0 % 256 == 0);
            at += chunk.size.0;
            if chunk.in_use {
                in_use += chunk.size.0;
                requested += chunk.requested.0;
                count += 1;
                let known = live.iter().find(|known| known.1 == chunk.address).unwrap();
                assert_eq!((known.2, known.3), (chunk.requested.0, chunk.size.0));
                assert!(chunk.requested <= chunk.size);
            } else {
                free += chunk.size.0;
                largest = largest.max(chunk.size.0);
            }
        }
        assert_eq!(at, region.base + region.size.0);
        pool += region.size.0;
        end_before = at;
    }
    let stats = bfc.stats();
    assert_eq!((stats.pool.0, stats.in_use.0, stats.requested.0), (pool, in_use, requested));
    assert_eq!(count, live.len());
    assert_eq!(stats.free().0, free);
    assert_eq!(bfc.free_sizes().map(|size| size.0).sum::<u64>(), free);
    assert_eq!(bfc.largest_free().0, largest);
    assert!(pool <= stats.limit.0 && stats.pool <= stats.peak_pool && stats.in_use <= stats.peak_in_use);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        rng_seed: prop::test_runner::RngSeed::Fixed(5),
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_requests_keep_the_invariants(
        options in options(),
        limit in 1_u64..600,
        device in 1_u64..600,
        acts in prop::collection::vec(act(), 1..250),
    ) {
        let limit = options.limit(Bytes(limit * MIB / 2));
        let mut bfc = Bfc::new("pool", limit, options).unwrap();
        let mut supplier = Capped::new(Bytes(device * MIB), Placed::new(Placement::Alternating));
        let mut live: Vec<(Ticket, u64, u64, u64)> = Vec::new();
        let mut gone: Vec<Ticket> = vec![Ticket::NONE];
        for act in acts {
            let request = match act {
                Act::Alloc(bytes) => Request::of(Bytes(bytes)),
                Act::Aligned(bytes, shift) => Request { alignment: 1 << shift, ..Request::of(Bytes(bytes)) },
                Act::Upper(bytes) => Request { end: End::Upper, ..Request::of(Bytes(bytes)) },
                Act::Free(number) => {
                    if !live.is_empty() {
                        let (ticket, ..) = live.swap_remove(number % live.len());
                        prop_assert_eq!(bfc.free(ticket), Ok(()));
                        gone.push(ticket);
                        check(&bfc, &live);
                    }
                    continue;
                }
                Act::Stale(number) => {
                    let before = *bfc.stats();
                    prop_assert_eq!(bfc.free(gone[number % gone.len()]), Err(NotInUse));
                    prop_assert_eq!(before, *bfc.stats());
                    continue;
                }
                Act::Frontier => {
                    bfc.set_safe_frontier(bfc.freed_count());
                    continue;
                }
            };
            match bfc.allocate(request, &mut supplier) {
                Ok(made) => {
                    prop_assert!(made.size >= request.bytes);
                    if options.aligned {
                        prop_assert_eq!(made.address % request.alignment.max(256), 0);
                    }
                    let inside = |&(_, at, _, size): &(Ticket, u64, u64, u64)| {
                        made.address < at + size && at < made.address + made.size.0
                    };
                    prop_assert!(!live.iter().any(inside), "two blocks share bytes");
                    live.push((made.ticket, made.address, request.bytes.0, made.size.0));
                }
                Err(refused) => {
                    prop_assert_ne!(refused, Refused::Nothing);
                    if !options.spatial && request.alignment <= 256 {
                        prop_assert!(bfc.largest_free() < request.bytes);
                    }
                }
            }
            check(&bfc, &live);
        }
        prop_assert_eq!(bfc.allocate(Request::of(Bytes::ZERO), &mut supplier), Err(Refused::Nothing));
        for (ticket, ..) in live.drain(..) {
            prop_assert_eq!(bfc.free(ticket), Ok(()));
        }
        check(&bfc, &live);
    }
}
