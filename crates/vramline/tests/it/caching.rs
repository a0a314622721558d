//! PyTorch's caching allocator against real ones: every address, every call to the driver, every failure and every
//! figure of `memory_stats()`.

use std::collections::BTreeMap;

use vramline::Reading;
use vramline::allocator::torch_caching::{
    ByClass, Lane, Options, SegmentView, Stat, State, Stats, TieBreak, TorchCaching,
};
use vramline::analysis::reading::Host;
use vramline::event::caching::{Call, CallKind, Calls, EarlierSegment, StreamUse};
use vramline::replay::torch_caching::{compare, options, program};
use vramline::replay::{
    AnsweredBy, CauseKind, DriverExact, Exact, PoolReplay, Program, Rules, Setting, replay,
};
use vramline::trace::Trace;
use vramline::units::Bytes;

use crate::{fixture, snapshots_with_truths};

const MIB: u64 = 1 << 20;
const RESNET: &str = "torch2110_h200_resnet50_b64.snapshot.pickle.gz";

/// The one trace of a snapshot.
fn trace(name: &str) -> Trace {
    let reading = vramline::read(&fixture(name)).unwrap();
    let Reading { hosts, .. } = reading;
    let Ok([Host { trace, .. }]) = <[Host; 1]>::try_from(hosts) else { panic!("{name}") };
    assert_eq!(trace.pools.len(), 1, "{name}");
    trace
}

fn calls(trace: &Trace) -> &Calls {
    &trace.history.pool(trace.pools[0].id).unwrap().caching.as_ref().unwrap().calls
}

fn program_of(trace: &Trace) -> Program {
    program(&trace.history.events, &trace.pools[0], calls(trace))
}

fn replayed(trace: &Trace) -> PoolReplay {
    replay(trace, &trace.pools[0], None).unwrap()
}

/// What `set_per_process_memory_fraction` allowed when the snapshot was taken; snapshots do not tell it.
fn cap_of(name: &str) -> Option<Bytes> {
    match name {
        "out_of_memory" => Some(Bytes(1024 * MIB)),
        "graph_crowded" => Some(Bytes(220 * MIB)),
        name if name.starts_with("random") => Some(Bytes(256 * MIB)),
        _ => None,
    }
}

/// Requests that failed, as PyTorch counts them; cuDNN does without the workspaces that it did not get.
fn failures(truth: &serde_json::Value) -> u64 {
    truth["stats"]["num_ooms"].as_u64().unwrap()
}

fn figure(stats: &Stats, key: &str) -> Option<u64> {
    let in_time = |stat: Stat, word: &str| match word {
        "current" => Some(stat.current),
        "peak" => Some(stat.peak),
        "allocated" => Some(stat.allocated),
        "freed" => Some(stat.freed()),
        _ => None,
    };
    let by_class = |stat: ByClass, class: &str| match class {
        "all" => Some(stat.all()),
        "small_pool" => Some(stat.small_pool),
        "large_pool" => Some(stat.large_pool),
        _ => None,
    };
    let parts: Vec<&str> = key.split('.').collect();
    match parts[..] {
        ["num_alloc_retries"] => Some(stats.num_alloc_retries),
        ["num_ooms"] => Some(stats.num_ooms),
        ["num_sync_all_streams"] => Some(stats.num_sync_all_streams),
        ["num_device_alloc"] => Some(stats.num_device_alloc),
        ["num_device_free"] => Some(stats.num_device_free),
        ["oversize_allocations", word] => in_time(stats.oversize_allocations, word),
        ["oversize_segments", word] => in_time(stats.oversize_segments, word),
        [family, class, word] => {
            let stat = match family {
                "allocation" => stats.allocation,
                "segment" => stats.segment,
                "active" => stats.active,
                "inactive_split" => stats.inactive_split,
                "allocated_bytes" => stats.allocated_bytes,
                "reserved_bytes" => stats.reserved_bytes,
                "active_bytes" => stats.active_bytes,
                "inactive_split_bytes" => stats.inactive_split_bytes,
                "requested_bytes" => stats.requested_bytes,
                _ => return None,
            };
            in_time(by_class(stat, class)?, word)
        }
        _ => None,
    }
}

fn snapshot(name: &str) -> serde_json::Value {
    let mut json = Vec::new();
    vramline::source::write_snapshot_json(&fixture(name), &mut json).unwrap();
    serde_json::from_slice(&json).unwrap()
}

/// Segments of one pool and stream in the snapshot are of one in the replay, and of different ones there, of different ones here.
fn assert_pools(name: &str, allocator: &TorchCaching) {
    let mut lanes: BTreeMap<String, Vec<Lane>> = BTreeMap::new();
    for segment in snapshot(name)["segments"].as_array().unwrap() {
        let address = segment["address"].as_u64().unwrap();
        let is_there = |other: &SegmentView| (other.base..other.base + other.size.0).contains(&address);
        let found = allocator.segments().find(is_there).unwrap();
        assert_eq!(found.is_small, segment["segment_type"] == "small", "{name}");
        let lane = format!("{} {}", segment["segment_pool_id"], segment["stream"]);
        lanes.entry(lane).or_default().push(found.lane);
    }
    let mut seen: Vec<Lane> = Vec::new();
    for mut lanes in lanes.into_values() {
        lanes.dedup();
        assert!(lanes.len() == 1 && !seen.contains(&lanes[0]), "{name}: {lanes:?}");
        seen.extend(lanes);
    }
}

/// Address, size, what was asked for, and state of every block.
type Block = (u64, Bytes, Bytes, State);

fn blocks(allocator: &TorchCaching) -> Vec<Block> {
    let blocks = allocator.segments().flat_map(|segment| allocator.blocks(segment.base).collect::<Vec<_>>());
    let mapped = blocks.filter(|block| block.state != State::Unmapped);
    mapped.map(|block| (block.address, block.size, block.requested, block.state)).collect()
}

/// What the snapshot lists at its end, read by another way than the replay's.
fn last_blocks(name: &str) -> Vec<Block> {
    let snapshot = snapshot(name);
    let segments = snapshot["segments"].as_array().unwrap().iter();
    let blocks = segments.flat_map(|segment| segment["blocks"].as_array().unwrap());
    let number = |block: &serde_json::Value, key: &str| block[key].as_u64().unwrap();
    let mut last: Vec<Block> = blocks
        .map(|block| {
            let state = match block["state"].as_str().unwrap() {
                "active_allocated" => State::Allocated,
                "inactive" => State::Free,
                _ => State::Pending,
            };
            let (size, requested) = (Bytes(number(block, "size")), Bytes(number(block, "requested_size")));
            (number(block, "address"), size, requested, state)
        })
        .collect();
    last.sort_unstable_by_key(|block| block.0);
    last
}

fn assert_whole(name: &str, exact: &Exact, driver: &DriverExact) {
    assert!(exact.is_whole() && driver.is_whole(), "{name}: {driver:?} {:?}", exact.first_mismatch);
}

#[test]
fn every_address_and_every_figure() {
    for (name, truth) in snapshots_with_truths() {
        let file = format!("torch/{name}.pickle.gz");
        let trace = trace(&file);
        let program = program_of(&trace);
        assert_eq!(program.unusable, 0, "{name}");
        let cap = cap_of(&name);
        // With the cap, what PyTorch refuses itself is refused for the same reason; without, because the trace says so.
        for cap in [cap, None].into_iter().take(if cap.is_some() { 2 } else { 1 }) {
            let options = Options {
                cap,
                device_total: Bytes(truth["total"].as_u64().unwrap()),
                ..options(&calls(&trace).settings)
            };
            let (exact, driver, allocator) = compare(&program, options);
            assert_whole(&name, &exact, &driver);
            assert_pools(&file, &allocator);
            assert_eq!(driver.failures, failures(&truth), "{name}");
            let is_late = matches!(name.as_str(), "late" | "wrapped");
            assert_eq!(trace.pools[0].count.from_start, Some(!is_late), "{name}");
            if is_late {
                // What free blocks were asked for by earlier owners is not known.
                let held = |mut block: Block| {
                    if block.3 == State::Free {
                        block.2 = Bytes::ZERO;
                    }
                    block
                };
                let told: Vec<Block> = last_blocks(&file).into_iter().map(held).collect();
                assert_eq!(blocks(&allocator).into_iter().map(held).collect::<Vec<_>>(), told, "{name}");
                continue;
            }
            assert_eq!(blocks(&allocator), last_blocks(&file), "{name}");
            let mut compared = 0;
            for (key, told) in truth["stats"].as_object().unwrap() {
                let Some(found) = figure(&driver.stats, key) else { continue };
                compared += 1;
                // Whether everything idle had to go, or someone asked for it, cannot be told without the cap.
                let is_untold =
                    cap.is_none() && matches!(key.as_str(), "num_alloc_retries" | "num_sync_all_streams");
                if !is_untold {
                    assert_eq!(Some(found), told.as_u64(), "{name}: {key}");
                }
            }
            assert_eq!(compared, 121, "{name}");
        }
    }
}

#[test]
fn a_training_run() {
    let trace = trace(RESNET);
    let program = program_of(&trace);
    let settings = options(&calls(&trace).settings);
    let (exact, driver, allocator) = compare(&program, settings);
    assert_whole(RESNET, &exact, &driver);
    assert_eq!((exact.allocs, driver.calls), (3177, 127));
    assert_eq!((exact.peak, exact.pool), (Bytes(5_961_803_264), Bytes(7_065_305_088)));
    assert_eq!(driver.stats.inactive_split_bytes.peak(), 803_796_480);
    assert_eq!(blocks(&allocator), last_blocks(RESNET));
    // It never gives anything back, so what it took is what it has.
    let taken: Bytes = exact.growths.iter().map(|growth| growth.got).sum();
    assert_eq!(taken, Bytes(7_065_305_088));
    for growth in &exact.growths {
        assert!(growth.largest_free < growth.rounded && growth.rounded <= growth.got);
        assert!(growth.largest_free <= growth.reachable && growth.reachable <= growth.free);
        assert!(growth.rounded >= growth.asked);
    }
    // Versions since May 2026 choose otherwise among equal blocks; this one is older, and the trace shows it.
    let (other, ..) = compare(&program, Options { tie_break: TieBreak::Segment, ..settings });
    assert!(other.address_matches < other.allocs);
    let first = other.first_mismatch.unwrap();
    assert!(first.replayed.is_some_and(|(address, _)| Some(address) != first.address));
    assert!(!first.around.is_empty());
}

/// Whatever a file says, a replay ends, and counts no more than there is.
#[test]
fn calls_that_make_no_sense() {
    let kinds = [
        CallKind::LetGo,
        CallKind::Complete,
        CallKind::SegmentAlloc,
        CallKind::SegmentFree,
        CallKind::SegmentMap,
        CallKind::SegmentUnmap,
        CallKind::OutOfMemory,
    ];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut below = |end: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % end as u64).unwrap()
    };
    let trace = trace("torch/random_streams.pickle.gz");
    let live: Vec<u64> = trace.pools[0]
        .events_in_order()
        .take(200)
        .filter_map(|event| trace.history.events.at(event).address())
        .collect();
    let sizes = [0, 1, 512, 3 * MIB, 20 * MIB, 2 * MIB, u64::MAX, 1 << 63, 1 << 56, 40 * MIB];
    let mut addresses = vec![0, 1, 1 << 40, (1 << 40) + MIB, u64::MAX, u64::MAX - MIB, 1 << 62];
    addresses.extend(live);
    for round in 0..60 {
        let mut events: Vec<u32> = (0..300).map(|_| below(400) as u32).collect();
        events.sort_unstable();
        let list = events.into_iter().map(|event| Call {
            event,
            kind: kinds[below(kinds.len())],
            lane: [0, 1, 2, 7, u16::MAX][below(5)],
            address: addresses[below(addresses.len())],
            size: Bytes(sizes[below(sizes.len())]),
            is_asked: below(9) == 0,
        });
        let list = list.collect();
        let earlier = vec![EarlierSegment {
            lane: below(3) as u16,
            is_small: below(2) == 0,
            base: addresses[below(addresses.len())],
            size: Bytes(sizes[below(sizes.len())]),
            held: vec![(addresses[below(addresses.len())], Bytes(sizes[below(sizes.len())]), None)],
        }];
        let lane_from = vec![(below(50) as u32, below(4) as u16), (90, below(4) as u16)];
        let lanes = vec![(0, 0), (1, 7), (0, 3)];
        let calls = Calls { list, earlier, lane_from, lanes, ..Calls::default() };
        let program = program(&trace.history.events, &trace.pools[0], &calls);
        let options = Options {
            expandable: round % 2 == 0,
            cap: (round % 3 == 0).then_some(Bytes(sizes[below(sizes.len())])),
            max_split: (round % 5 == 0).then_some(Bytes(20 * MIB)),
            garbage_collection_threshold: if round % 7 == 0 { 0.5 } else { 0.0 },
            ..Options::default()
        };
        let (exact, driver, _) = compare(&program, options);
        assert!(exact.address_matches <= exact.allocs && driver.failure_matches <= driver.failures);
        assert!(driver.matches <= driver.calls);
        assert!(program.requests <= trace.pools[0].event_count() as u64);
    }
}

/// The whole replay: exact where it begins at the start, and what an earlier version of the same story says.
#[test]
fn every_snapshot_is_replayed() {
    for (name, truth) in snapshots_with_truths() {
        let trace = trace(&format!("torch/{name}.pickle.gz"));
        let pool = replayed(&trace);
        assert_eq!(
            pool.ran.is_exact(),
            pool.ran.from_start == Some(true),
            "{name}: {:?}",
            pool.ran.exact.first_mismatch
        );
        assert!(pool.ran.exact.is_whole(), "{name}");
        assert_eq!((pool.ran.rules.model(), pool.ran.rules.preset()), ("torch-caching", "pytorch"));
        if pool.ran.from_start == Some(true) {
            let told = |key: &str| truth["stats"][key].as_u64().map(Bytes);
            assert_eq!(Some(pool.ran.exact.peak), told("allocated_bytes.all.peak"), "{name}");
            assert_eq!(Some(pool.ran.exact.pool), told("reserved_bytes.all.peak"), "{name}");
            assert!(pool.bounds.load_requested <= pool.bounds.load_rounded);
            assert!(pool.bounds.load_rounded <= pool.bounds.packing, "{name}");
        } else {
            assert!(pool.ran.exact.assumed[0].starts_with("before the trace: "), "{name}");
        }
        for moment in [&pool.fragmentation.at_peak, &pool.fragmentation.at_end] {
            let moment = moment.as_ref().unwrap();
            assert_eq!(moment.requested + moment.slack, moment.in_use, "{name}");
            assert!(moment.external <= moment.cached && moment.idle <= moment.cached, "{name}");
        }
        let highest = pool.ran.exact.curve.iter().map(|point| point.in_use).max();
        assert_eq!(highest, Some(pool.ran.exact.peak), "{name}");
    }
}

/// With a limit and nothing else different, what happened happens again: the same peaks, retries and failures.
#[test]
fn a_what_if_of_what_was() {
    for (name, truth) in snapshots_with_truths() {
        let trace = trace(&format!("torch/{name}.pickle.gz"));
        let pool = replayed(&trace);
        let Rules::Torch(rules) = &pool.ran.rules else { panic!("{name}") };
        let questions = pool.questions();
        let cap = cap_of(&name);
        // Where the driver refused something, what was taken before is known to have been there.
        assert_eq!(pool.ran.least_limit.is_some(), rules.driver.refused.is_some(), "{name}");
        assert!(pool.ran.least_limit <= cap.or(pool.ran.least_limit), "{name}");
        for limit in [cap, None] {
            let answer = questions.ask(&Setting { limit, ..Setting::default() }, None).unwrap();
            let failures = failures(&truth);
            // Other placements may do better or worse than the recorded one, which is among them.
            assert_ne!(answer.fits, Some(failures > 0), "{name}: {answer:?}");
            assert!(
                answer.peak.0 <= pool.ran.exact.peak && pool.ran.exact.peak <= answer.peak.1,
                "{name}: {answer:?}"
            );
            assert!(
                answer.pool.0 <= pool.ran.exact.pool && pool.ran.exact.pool <= answer.pool.1,
                "{name}: {answer:?}"
            );
            if let (Some(_), Some(true)) = (cap, pool.ran.from_start) {
                let told = truth["stats"]["num_alloc_retries"].as_u64().unwrap();
                assert!(answer.retries >= told, "{name}: {} of {told}", answer.retries);
            }
        }
    }
}

/// CUDA graphs: what was inferred is said, nothing is taken for a refusal of the driver, and a limit does not dissolve private pools.
#[test]
fn graphs() {
    for (name, truth) in snapshots_with_truths().into_iter().filter(|(name, _)| name.starts_with("graph")) {
        let trace = trace(&format!("torch/{name}.pickle.gz"));
        let pool = replayed(&trace);
        assert!(pool.ran.is_exact(), "{name}");
        let Rules::Torch(rules) = &pool.ran.rules else { panic!("{name}") };
        assert_eq!(Some(rules.driver.stats.num_alloc_retries), truth["stats"]["num_alloc_retries"].as_u64());
        assert_eq!(pool.ran.least_limit.is_some(), name == "graph_crowded", "{name}");
        let is_inferred = pool.ran.exact.assumed.iter().any(|words| {
            words.starts_with("the private pools of ") && words.contains("segments that exist at its end")
        });
        assert_eq!(is_inferred, matches!(name.as_str(), "graph_freed" | "graph_two_pools"), "{name}");
        if name == "graph_crowded" {
            continue;
        }
        let questions = pool.questions();
        let ask = |text: &str| questions.ask(&text.parse().unwrap(), None).unwrap();
        assert_eq!(ask("").pool.0, pool.ran.exact.pool, "{name}");
        let least = pool.bounds.load_rounded;
        let found = questions.smallest_limit(&Setting::default(), None, least, pool.ran.exact.pool).unwrap();
        // What the graphs have stays, although much of it is idle.
        let streams = &trace.history.pool(trace.pools[0].id).unwrap().caching.as_ref().unwrap().streams;
        let kept =
            |used: &StreamUse| if used.private_pool.is_some() { used.reserved } else { used.allocated };
        let kept: Bytes = streams.iter().map(kept).sum();
        assert!(found.fits == Some(true) && found.limit.unwrap() >= kept, "{name}: {found:?}");
        assert_eq!(ask(&format!("limit={}", pool.bounds.load_requested.0 - MIB)).fits, Some(false), "{name}");
    }
}

/// With other settings the same requests meet other limits; a segment that grows in place wastes least.
#[test]
fn what_if() {
    let trace = trace(RESNET);
    let pool = replayed(&trace);
    let questions = pool.questions();
    let ask = |text: &str| {
        let setting: Setting = text.parse().unwrap();
        pool.ran.rules.check(&setting, &pool.ran.name, pool.ran.assumed_limit()).unwrap();
        let from = setting.restart.and_then(|restart| pool.ran.restart_at(&trace, restart));
        questions.ask(&setting, from).unwrap()
    };
    let now = ask("");
    assert_eq!((now.fits, now.limit, now.retries), (Some(true), None, 0));
    let grown = ask("expandable=on");
    assert!(grown.fits == Some(true) && grown.pool.1 < pool.ran.exact.pool);
    assert!(grown.pool.0 >= pool.bounds.load_rounded);
    // The story of these bytes is told by the replay itself, too.
    let told = pool.fragmentation.causes.iter().find(|cause| cause.kind == CauseKind::GrowthRegions).unwrap();
    assert_eq!(told.bytes + grown.pool.1, pool.ran.exact.pool);
    let rounded = ask("roundup=8");
    assert!(rounded.peak.0 > now.peak.1);
    let unsplit = ask("split_size=20MiB");
    assert!(unsplit.fits == Some(true) && unsplit.pool != now.pool);
    for (limit, fits) in [(pool.ran.exact.peak.0 - 512, false), (pool.ran.exact.pool.0, true)] {
        let answer = ask(&format!("limit={limit}"));
        assert_eq!(answer.fits, Some(fits), "{answer:?}");
        assert!(answer.pool.1 <= Bytes(limit));
        assert_eq!(answer.failure.is_some(), !fits);
    }
    let tight = ask("limit=6500MiB");
    assert!(tight.fits == Some(true) && tight.retries > 0 && tight.returned > 0);
    let collected = ask("limit=6800MiB,gc=0.8");
    assert!(collected.pool.1 < now.pool.0 && collected.returned > 0);
    let least = pool.bounds.load_rounded;
    let found = questions.smallest_limit(&Setting::default(), None, least, pool.ran.exact.pool).unwrap();
    let limit = found.limit.unwrap();
    assert!(found.fits == Some(true) && limit >= least && limit < pool.ran.exact.pool);
    assert_ne!(ask(&format!("limit={}", limit.0 - MIB)).fits, Some(true));
    assert!(ask("restart=on").peak.1 <= now.peak.1);
    // The driver's own pool: never less than the load, and a no only where even that is too much.
    let driver = ask("allocator=cuda_malloc_async");
    assert_eq!((driver.by, driver.fits), (AnsweredBy::Bounds, None));
    assert_eq!((driver.peak.0, driver.pool.0), (pool.bounds.load_requested, pool.bounds.load_requested));
    assert!(driver.pool.1 >= driver.pool.0);
    assert_eq!(ask("allocator=cuda_malloc_async,limit=1GiB").fits, Some(false));
    assert_eq!(ask("allocator=cuda_malloc_async,limit=1TiB").fits, None);
    assert!(ask("allocator=cuda_malloc_async,restart=on").pool.0 <= driver.pool.0);
    for (setting, why) in [
        ("growth=on", "it is a setting of TensorFlow's and JAX's allocator"),
        ("gc=on", "PyTorch returns idle segments above a share of the limit"),
        ("gc=0.8", "gc is a share of the limit, and the trace does not contain a limit"),
        (
            "allocator=cuda_malloc_async,expandable=on",
            "CUDA's asynchronous pool does not support these settings",
        ),
    ] {
        let refused = pool.ran.rules.check(&setting.parse().unwrap(), "cuda:0", None).unwrap_err();
        assert_eq!(refused.to_string(), format!("'{setting}' does not apply to cuda:0: {why}"));
        assert!(!refused.hint().is_empty());
    }
}

/// Every growth of a snapshot is a call to the driver that it lists, at the same place and of the same size.
#[test]
fn growths_are_the_calls_of_the_trace() {
    for (name, _) in snapshots_with_truths() {
        let trace = trace(&format!("torch/{name}.pickle.gz"));
        let pool = replayed(&trace);
        let is_taken = |call: &&Call| matches!(call.kind, CallKind::SegmentAlloc | CallKind::SegmentMap);
        let told: Vec<(u64, Bytes)> =
            calls(&trace).list.iter().filter(is_taken).map(|call| (call.address, call.size)).collect();
        let mut replayed = pool.ran.exact.growths.iter().map(|growth| (growth.base, growth.got));
        // What was taken for a request that failed all the same is of no growth.
        let mut rest = told.iter();
        assert!(replayed.all(|growth| rest.any(|&told| told == growth)), "{name}");
        assert!(
            pool.ran.exact.growths.len() == told.len() || !pool.ran.program.driver.failures.eq(&0),
            "{name}"
        );
    }
}

/// What a report says of it in a line is what the whole replay says.
#[test]
fn a_line_in_the_report() {
    let reading = vramline::read(&fixture(RESNET)).unwrap();
    let report = crate::checked_report(&reading, &vramline::analysis::report::ReportOptions::default());
    let line = report.pools[0].replay.as_ref().unwrap();
    let trace = &reading.hosts[0].trace;
    let pool = replayed(trace);
    let peak = pool.fragmentation.at_peak.as_ref().unwrap();
    assert!(line.exact && line.address_matches == line.allocs);
    assert_eq!((line.pool_bytes, line.load_bytes), (pool.ran.exact.pool, pool.bounds.load_requested));
    assert_eq!(
        (line.cached_at_peak_bytes, line.pool_at_peak_bytes),
        (peak.cached, peak.in_use + peak.cached)
    );
    let grown = pool.questions().ask(&"expandable=on".parse().unwrap(), None).unwrap();
    assert_eq!(line.joined_bytes, grown.pool.0);
}

/// Failures that a snapshot tells of have a verdict, and what a replay says would have fitted fits.
#[test]
fn failures_of_snapshots() {
    for (name, truth) in snapshots_with_truths() {
        let paths = [fixture(&format!("torch/{name}.pickle.gz"))];
        let read = vramline::read_failures(&paths, None, &std::sync::Arc::default()).unwrap();
        let report = vramline::view::oom::OomReport::from(&vramline::analysis::oom::oom(&read));
        assert_eq!(report.failures.len() as u64, failures(&truth), "{name}");
        let Some(first) = report.failures.first() else { continue };
        assert_eq!((first.dialect.word(), first.allocator.as_deref()), ("torch-snapshot", Some("cuda:0")));
        assert!(first.advice.iter().any(|advice| advice.text.contains("by exact replay, ")), "{name}");
    }
}
