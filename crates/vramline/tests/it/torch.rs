//! PyTorch's memory snapshots: real ones against `memory_stats()` of the same moment, damaged and hostile ones.

use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use vramline::Reading;
use vramline::analysis::held::{GroupBy, HeldMoment};
use vramline::analysis::report::ReportOptions;
use vramline::event::Framework;
use vramline::snapshot::Role;
use vramline::source::{SourceError, read_bytes};
use vramline::units::Bytes;
use vramline::view::report::{PoolView, Report};

use crate::{checked_report, codes, fixture, pool, snapshots_with_truths};

fn report_of(name: &str, wanted: &ReportOptions) -> Report {
    checked_report(&vramline::read(&fixture(name)).unwrap(), wanted)
}

fn unpacked(name: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    GzDecoder::new(fs::File::open(fixture(name)).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes
}

fn refused(bytes: &[u8]) -> (String, String) {
    let error = read_bytes(bytes, Path::new("hostile.pickle")).expect_err("refused");
    assert!(!error.hint().is_empty() || matches!(error, SourceError::Io { .. }), "{error}");
    (error.to_string(), error.hint().to_owned())
}

fn assert_cached_adds_up(pool: &PoolView) {
    for moment in &pool.caching.as_ref().unwrap().moments {
        assert_eq!(
            moment.reserved_bytes,
            moment.active_bytes
                + moment.whole_segments_bytes
                + moment.split_remainders_bytes
                + moment.expandable_bytes
        );
        assert_eq!(moment.active_bytes, moment.allocated_bytes + moment.pending_bytes);
    }
}

#[test]
fn counters_equal_those_of_pytorch_to_the_byte() {
    let truths = snapshots_with_truths();
    assert!(truths.len() >= 15, "{}", truths.len());
    for (name, truth) in truths {
        let report = report_of(&format!("torch/{name}.pickle.gz"), &ReportOptions::default());
        let pool = pool(&report, "cuda:0");
        let caching = pool.caching.as_ref().unwrap();
        let end = caching.moments.last().unwrap();
        let began_late = ["late", "wrapped"].contains(&name.as_str());
        let told = |key: &str| truth["stats"][key].as_u64().unwrap();
        for (ours, key) in [
            (pool.peak_bytes.unwrap().0, "allocated_bytes.all.peak"),
            (caching.reserved_peak_bytes.0, "reserved_bytes.all.peak"),
            (caching.active_peak_bytes.0, "active_bytes.all.peak"),
            (caching.split_peak_bytes.0, "inactive_split_bytes.all.peak"),
            (end.allocated_bytes.0, "allocated_bytes.all.current"),
            (end.reserved_bytes.0, "reserved_bytes.all.current"),
            (end.active_bytes.0, "active_bytes.all.current"),
            (end.split_remainders_bytes.0, "inactive_split_bytes.all.current"),
            (caching.failures.len() as u64, "num_ooms"),
        ] {
            assert_eq!(ours, told(key), "{name}: {key}");
        }
        if !began_late {
            assert_eq!(pool.allocs, Some(told("allocation.all.allocated")), "{name}");
        }
        assert_eq!(pool.from_start, Some(!began_late), "{name}");
        let expected: &[&str] = if began_late { &["began-late"] } else { &[] };
        assert_eq!(codes(&report), expected, "{name}");
        assert_cached_adds_up(pool);
    }
}

#[test]
fn a_real_model_is_explained() {
    let report = report_of("torch2110_h200_resnet50_b64.snapshot.pickle.gz", &ReportOptions::default());
    assert_eq!(
        (report.source.format, report.source.framework.map(Framework::word)),
        ("torch-snapshot", Some("pytorch"))
    );
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    let pool = pool(&report, "cuda:0");
    assert_eq!((pool.device.as_str(), pool.from_start), ("GPU:0", Some(true)));
    assert_eq!((pool.peak_bytes, pool.allocs), (Some(Bytes(5_961_803_264)), Some(3_177)));
    let caching = pool.caching.as_ref().unwrap();
    assert_eq!(caching.reserved_peak_bytes, Bytes(7_065_305_088));
    assert_eq!(caching.split_peak_bytes, Bytes(803_796_480));
    assert_cached_adds_up(pool);
    let held = pool.at_peak.as_ref().unwrap();
    assert_eq!(held.unnamed_bytes, Bytes::ZERO);
    assert_eq!(held.rows[0].op, "models/resnet.py:155 forward");
    assert!(held.rows[0].source.ends_with("/torchvision/models/resnet.py:155 forward"));
    // 25,557,032 weights of four bytes and their counters, and two slots of the optimizer for each.
    let weights = held.by_role.get(Role::Parameters).0;
    assert!((102_228_128..103_000_000).contains(&weights), "{weights}");
    assert_eq!(held.by_role.get(Role::Optimizer), Bytes(2 * 102_228_128));
    let steps: Vec<_> =
        report.steps.iter().map(|step| (step.step, step.phase.word(), step.how.word())).collect();
    assert_eq!(steps, [(0, "train", "trace"), (1, "train", "trace"), (2, "train", "trace")]);
    assert_eq!(report.steps[1].peak_bytes, pool.peak_bytes);
}

#[test]
fn whole_stacks_on_demand() {
    let by_stack = ReportOptions { by: GroupBy::Stack, ..ReportOptions::default() };
    let report = report_of("torch2110_h200_resnet50_b64.snapshot.pickle.gz", &by_stack);
    let row = &report.pools[0].at_peak.as_ref().unwrap().rows[0];
    assert!(
        row.stack.len() > 20 && row.stack.iter().any(|frame| frame.contains("resnet.py:")),
        "{:?}",
        row.stack
    );
}

#[test]
fn what_the_program_calls_a_step_is_one() {
    let report = report_of("torch/default.pickle.gz", &ReportOptions::default());
    let steps: Vec<_> =
        report.steps.iter().map(|step| (step.step, step.name.as_str(), step.phase.word())).collect();
    assert_eq!(
        steps,
        [(0, "## step 0 ##", "train"), (1, "## step 1 ##", "train"), (2, "## step 2 ##", "train")]
    );
}

#[test]
fn failures_streams_and_pools_are_named() {
    let report = report_of("torch/out_of_memory.pickle.gz", &ReportOptions::default());
    let failures = &report.pools[0].caching.as_ref().unwrap().failures;
    let asked: Vec<_> = failures.iter().map(|failure| failure.asked_bytes.unwrap().0 >> 20).collect();
    assert_eq!(asked, [300, 200]);
    assert!(failures.iter().all(|failure| failure.device_free_bytes.is_some() && !failure.stack.is_empty()));
    let report = report_of("torch/graph.pickle.gz", &ReportOptions::default());
    let streams = &report.pools[0].caching.as_ref().unwrap().streams;
    assert!(streams.iter().any(|used| used.private_pool == "1.0" && used.stream != 0), "{streams:?}");
    let report = report_of("torch/pending.pickle.gz", &ReportOptions::default());
    let end = report.pools[0].caching.as_ref().unwrap().moments.last().unwrap();
    assert_eq!(end.pending_bytes, Bytes(6 << 20));
}

#[test]
fn cut_and_flipped_snapshots_do_no_harm() {
    let survive = |bytes: &[u8]| {
        let path = Path::new("damaged.pickle");
        match read_bytes(bytes, path) {
            Ok(content) => {
                checked_report(&Reading::of(path.to_owned(), content), &ReportOptions::default());
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    };
    let whole = unpacked("torch/out_of_memory.pickle.gz");
    for length in 2..whole.len() {
        let (text, _) = refused(&whole[..length]);
        assert!(text.contains("ends at byte") || text.contains("Python"), "{length}: {text}");
    }
    for at in 0..whole.len() {
        for flip in [0x01, 0x20, 0x80, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            survive(&bytes);
        }
    }
}

#[test]
fn pickles_that_run_code_run_nothing() {
    for hostile in [
        &b"cos\nsystem\n(S'echo harm'\ntR."[..],
        b"\x80\x04\x95\x20\x00\x00\x00\x00\x00\x00\x00\x8c\x02os\x8c\x06system\x93\x8c\x04harm\x85R.",
        b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00harm\x85R.",
    ] {
        let (text, hint) = refused(hostile);
        assert!(text.contains("'os.system'") && text.contains("does not run code"), "{text}");
        assert!(hint.contains("do not load this file"), "{hint}");
    }
    // Where the call is beside the data, the data is read.
    let mut beside = b"\x80\x02}(X\x08\x00\x00\x00segments]X\x04\x00\x00\x00evil".to_vec();
    beside.extend_from_slice(b"cos\nsystem\nX\x04\x00\x00\x00harm\x85Ru.");
    let content = read_bytes(&beside, Path::new("beside.pickle")).unwrap();
    let report = checked_report(&Reading::of("beside.pickle".into(), content), &ReportOptions::default());
    assert!(codes(&report).contains(&"pickle-calls"), "{:?}", report.warnings);
    assert!(report.warnings.iter().any(|warning| warning.text.contains("os.system")));
}

#[test]
fn bombs_are_refused() {
    // Ten thousand lists in each other.
    let mut deep = b"\x80\x04".to_vec();
    deep.extend(std::iter::repeat_n(*b"]\x94", 10_000).flatten());
    deep.extend(std::iter::repeat_n(b'a', 9_999));
    deep.push(b'.');
    assert!(refused(&deep).0.contains("nested more than 64 levels deep"));

    // One list of blocks in many segments: each step of a few bytes asks for all of them again.
    let mut shared = b"\x80\x02}X\x08\x00\x00\x00segments](".to_vec();
    shared.extend_from_slice(b"](");
    for _ in 0..20_000 {
        shared.extend_from_slice(b"}(X\x04\x00\x00\x00sizeK\x01u");
    }
    shared.extend_from_slice(b"eq\x000");
    for _ in 0..20_000 {
        shared.extend_from_slice(
            b"}(X\x07\x00\x00\x00addressK\x01X\x0a\x00\x00\x00total_sizeK\x01X\x06\x00\x00\x00blocksh\x00u",
        );
    }
    shared.extend_from_slice(b"es.");
    assert!(refused(&shared).0.contains("refer to each other"));

    // A number of the memo, and lengths, beyond all memory.
    assert!(refused(b"\x80\x02]r\xff\xff\xff\xff0j\xff\xff\xff\xfe.").0.contains("never stored"));
    for claim in [
        &b"X\xff\xff\xff\xff"[..],
        b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x8b\xff\xff\xff\x7f",
        b"\x95\0\0\0",
    ] {
        assert!(refused(&[b"\x80\x04", claim].concat()).0.contains("ends at byte"));
    }

    // Nothing but values, and nothing but marks.
    assert!(refused(&[b"\x80\x04", &vec![b'N'; (1 << 24) + 1][..]].concat()).0.contains("16 million values"));
    assert!(
        refused(&[b"\x80\x04", &vec![b'('; 10_000][..]].concat())
            .0
            .contains("nested more than 64 levels deep")
    );

    // Values that are dropped again, 300 MB of them in a few hundred kilobytes.
    let mut packed = GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(b"\x80\x04").unwrap();
    let dropped = b"N0".repeat(1 << 19);
    for _ in 0..300 {
        packed.write_all(&dropped).unwrap();
    }
    let (text, _) = refused(&packed.finish().unwrap());
    assert!(text.contains("unpacks to more than"), "{text}");
}

#[test]
fn other_pickles_are_told_apart() {
    for (bytes, what) in [
        (&b"\x80\x04]\x94(K\x01K\x02e."[..], "a list"),
        (b"\x80\x04}\x94\x8c\x05model\x94K\x01s.", "a dictionary with 'model'"),
        (b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.", "checkpoint"),
        (b"PK\x03\x04archive/data.pkl", "a zip archive"),
        (b"\x80\x04K\x05.", "a number"),
        (b"\x80\x04.", "empty stack"),
    ] {
        assert!(refused(bytes).0.contains(what), "{what}: {}", refused(bytes).0);
    }
}

#[test]
fn a_snapshot_without_a_history_shows_its_moment() {
    // In protocol 0, as Python 2 would have: one block in use, one free; the second tells no address.
    let text = b"(dp0\nS'segments'\np1\n(lp2\n(dp3\nS'device'\nI1\nsS'address'\nL4096L\nsS'total_size'\nI2097152\nsS'blocks'\n\
        (lp4\n(dp5\nS'size'\nI1024\nsS'requested_size'\nI1000\nsS'state'\nS'active_allocated'\nsS'frames'\n\
        (lp6\n(dp7\nS'name'\nS'main'\nsS'filename'\nS'/me/train.py'\nsS'line'\nI3\nsasa(dp8\nS'size'\nI2096128\nsS'state'\n\
        S'inactive'\nsasas.";
    let content = read_bytes(text, Path::new("old.pickle")).unwrap();
    let report = checked_report(&Reading::of("old.pickle".into(), content), &ReportOptions::default());
    let pool = pool(&report, "cuda:1");
    assert_eq!((pool.device.as_str(), pool.peak_bytes), ("GPU:1", Some(Bytes(1024))));
    let held = pool.at_peak.as_ref().unwrap();
    assert_eq!((held.named_bytes, held.slack_bytes), (Bytes(1000), Bytes(24)));
    assert_eq!(held.rows[0].op, "me/train.py:3 main");
    assert_eq!(held.rows[0].source, "/me/train.py:3 main");
    assert_eq!(codes(&report), ["no-history"]);
    assert_eq!(pool.moment, HeldMoment::Dump);
    assert!(report.headline.contains("at the moment of the dump"), "{}", report.headline);
    let caching = pool.caching.as_ref().unwrap();
    assert_eq!(caching.reserved_peak_bytes, Bytes(2 << 20));
    assert_eq!(caching.moments.len(), 1);
    assert_eq!(caching.moments[0].split_remainders_bytes, Bytes(2_096_128));
    assert_cached_adds_up(pool);
}

/// Real jobs on an H200, recorded by `vramline run`: each block of the peak has an owner and a role, and what the objects hold is there to
/// the byte. `tests/gpu/owners.py` compares the same with the objects where there is a GPU.
#[test]
fn every_block_of_a_recorded_job_has_an_owner_and_a_role() {
    // Parameters, gradients and state of the optimizer on the GPU at the peak: in `loop` the backward pass has just begun.
    let truths = [
        ("loop", 8_427_560, 1_059_880, 16_855_120),
        ("compiled", 8_427_560, 8_427_560, 16_855_120),
        ("lightning_amp", 3_172_352, 3_172_352, 6_344_704),
        ("hf_trainer", 20_980_736, 20_980_736, 41_961_628),
    ];
    for (name, parameters, gradients, optimizer) in truths {
        let report = report_of(&format!("owners/{name}.vram"), &ReportOptions::default());
        let held = pool(&report, "cuda:0").at_peak.as_ref().unwrap();
        for (role, bytes) in
            [(Role::Parameters, parameters), (Role::Gradients, gradients), (Role::Optimizer, optimizer)]
        {
            let of_role = held.rows.iter().filter(|row| row.role == role.word());
            assert_eq!(of_role.map(|row| row.bytes.0).sum::<u64>(), bytes, "{name}: {}", role.word());
        }
        let named = held.rows.iter().filter(|row| !row.layer.is_empty() && row.role != Role::Unknown.word());
        let (named, all) =
            (named.map(|row| row.bytes.0).sum::<u64>(), (held.named_bytes + held.unnamed_bytes).0);
        assert!(named * 1000 >= all * 999, "{name}: {named} of {all}");
        // PyTorch keeps one workspace for the forward and one for the backward pass, each in a thread of its own.
        let workspaces = held.rows.iter().filter(|row| row.layer == "cuBLAS workspace");
        assert_eq!(workspaces.map(|row| row.bytes.0).sum::<u64>(), 2 * (32 << 20), "{name}");
        let steps = report.steps.iter().filter(|step| step.phase == vramline::Phase::Train).count();
        assert_eq!(steps, 8, "{name}");
    }
}

/// A compiled function is named by the line of the program that was compiled, not by the generated file.
#[test]
fn compiled_blocks_have_lines_of_the_program() {
    let report = report_of("owners/compiled.vram", &ReportOptions::default());
    let rows = &pool(&report, "cuda:0").at_peak.as_ref().unwrap().rows;
    let compiled: Vec<&str> =
        rows.iter().filter(|row| row.layer == "Blocks").map(|row| row.op.as_str()).collect();
    assert!(
        !compiled.is_empty() && compiled.iter().all(|op| op.starts_with("gpu/owners.py:")),
        "{compiled:?}"
    );
}
