//! Real traces: peaks, amounts before the recording, slack and roles are the known ones (`fixtures/README.md`).

use vramline::analysis::held::GroupBy;
use vramline::analysis::report::ReportOptions;
use vramline::event::Framework;
use vramline::snapshot::Role;
use vramline::units::{Bytes, Nanos};
use vramline::view::report::{Report, Row};

use crate::{checked_report, codes, fixture, pool};

fn read(name: &str, wanted: &ReportOptions) -> Report {
    checked_report(&vramline::read(&fixture(name)).expect("a trace"), wanted)
}

#[test]
fn a_cnn_from_its_first_allocation() {
    let report = read("tf221_cpu_cnn_from_start.xplane.pb", &ReportOptions::default());
    let pool = pool(&report, "bfc_cpu_allocator_for_gpu");
    assert_eq!((pool.allocs, pool.frees), (Some(5_060), Some(4_903)));
    assert_eq!(pool.from_start, Some(true));
    assert_eq!(pool.limit_bytes, Some(Bytes(2_000 << 20)));
    assert_eq!(pool.peak_bytes, Some(Bytes(72_718_080)));
    assert_eq!(pool.lifetime_peak_bytes, Some(Bytes(72_718_080)));
    assert_eq!(pool.peak_at_ns, Some(Nanos(2_176_220_145)));
    assert_eq!(pool.fragmentation_at_peak, Some(0.146_753));
    assert_eq!(pool.before_recording.as_ref().unwrap().at_begin_bytes, Bytes::ZERO);
    assert_eq!(pool.before_recording.as_ref().unwrap().freed_blocks, 0);

    let held = pool.at_peak.as_ref().unwrap();
    assert_eq!(held.named_bytes.0 + held.unnamed_bytes.0, 57_884_116);
    assert_eq!(held.slack_bytes.0, 72_718_080 - 57_884_116);
    assert_eq!(held.before_recording_bytes, Bytes::ZERO);
    // What names nothing is listed with its reason.
    assert!(held.named_bytes.0 as f64 >= 0.85 * 57_884_116.0);
    let unnamed: Vec<_> = held.rows.iter().filter(|row| row.op.is_empty()).collect();
    assert_eq!(unnamed.iter().map(|row| row.bytes.0).sum::<u64>(), held.unnamed_bytes.0);
    assert!(unnamed.iter().all(|row| !row.evidence.is_empty()));

    // 128,842 parameters of four bytes; Adam keeps two more of each.
    assert_eq!(held.by_role.get(Role::Parameters), Bytes(515_368));
    assert_eq!(held.by_role.get(Role::Optimizer), Bytes(2 * 515_368));

    let relu = held.rows.iter().find(|row| row.op.ends_with("conv2d_1_2/Relu")).unwrap();
    assert_eq!(
        (relu.layer.as_str(), relu.role, relu.shape.as_str()),
        ("conv2d_1_2", "activations", "[64,28,28,64]")
    );
    assert_eq!((relu.op_calls, relu.op_time_ns), (Some(20), Some(161_804_955)));

    assert_eq!(report.steps.len(), 20);
    assert!(report.steps.iter().all(|step| (step.phase.word(), step.how.word()) == ("train", "trace")));
    let highest = report.steps.iter().max_by_key(|step| step.peak_bytes).unwrap();
    assert_eq!((highest.step, highest.peak_bytes), (11, Some(Bytes(72_718_080))));
    assert!(codes(&report).is_empty(), "{:?}", report.warnings);
}

#[test]
fn a_window_that_began_late() {
    let report = read("tf221_cpu_mlp_window.xplane.pb", &ReportOptions::default());
    let pool = pool(&report, "bfc_cpu_allocator_for_gpu");
    assert_eq!((pool.allocs, pool.frees), (Some(745), Some(735)));
    assert_eq!(pool.from_start, Some(false));
    assert_eq!(pool.peak_bytes, Some(Bytes(30_214_400)));
    let held = pool.at_peak.as_ref().unwrap();
    assert_eq!(held.before_recording_bytes, Bytes(14_801_408));
    assert_eq!(held.named_bytes.0 + held.unnamed_bytes.0 + held.slack_bytes.0, 15_412_992);
    assert_eq!(report.steps.len(), 8);
    assert_eq!(codes(&report), ["began-late"]);
}

#[test]
fn a_cpu_without_the_pool_allocator_says_so() {
    let report = read("tf221_cpu_mlp_nobfc_window.xplane.pb", &ReportOptions::default());
    let pool = pool(&report, "mklcpu");
    assert_eq!((pool.allocs, pool.frees), (Some(65), Some(65)));
    assert_eq!(pool.peak_bytes, Some(Bytes(28_390_400)));
    assert_eq!(pool.lifetime_peak_bytes, Some(Bytes(28_668_928)));
    assert_eq!(codes(&report), ["plain-cpu-allocator", "began-late"]);
    assert!(report.warnings[0].hint.contains("TF_CPU_ALLOCATOR_USE_BFC=1"));
}

#[test]
fn jax_on_an_h200() {
    for (name, peak, in_window) in [
        ("jax0112_h200_prealloc_window.xplane.pb", 752_119_040, 726_396_160),
        ("jax0112_h200_growth_window.xplane.pb", 771_059_456, 745_336_576),
    ] {
        let report = read(name, &ReportOptions::default());
        assert_eq!(report.source.framework.map(Framework::word), Some("jax"));
        let pool = pool(&report, "GPU_0_bfc");
        assert_eq!((pool.device.as_str(), pool.pid.is_some()), ("GPU:0", true));
        assert_eq!(pool.limit_bytes, Some(Bytes(112_583_507_968)));
        assert_eq!(pool.peak_bytes, Some(Bytes(peak)));
        let held = pool.at_peak.as_ref().unwrap();
        assert_eq!(held.before_recording_bytes, Bytes(25_722_880));
        assert_eq!(held.named_bytes.0 + held.unnamed_bytes.0 + held.slack_bytes.0, in_window);
        // The step's temporary slab, as JAX's own memory analysis has it, is one block in the pool and many rows here.
        let of_slab = |row: &&Row| row.age_ns == Some(0);
        assert_eq!(held.rows.iter().filter(of_slab).map(|row| row.bytes.0).sum::<u64>(), 369_104_664);
        let requested = held.named_bytes.0 + held.unnamed_bytes.0;
        assert!(held.named_bytes.0 * 10 >= requested * 9, "{} of {requested}", held.named_bytes.0);
        // What nothing lies in has its own row and its reason: gaps and alignment.
        let unnamed: Vec<&Row> = held.rows.iter().filter(|row| row.op.is_empty()).collect();
        assert_eq!(unnamed.len(), 1);
        assert_eq!((unnamed[0].bytes, unnamed[0].layer.as_str()), (Bytes(5_448), "step"));
        assert_eq!(held.unnamed_bytes, Bytes::ZERO);
        assert!(unnamed[0].evidence.starts_with("free memory inside the program's buffer"));
        // Six buffers of the forward pass are alive at the slab's peak, as the compiler lists them in the same proto.
        let products = held.rows.iter().find(|row| row.op == "jit(step)/jvp()/dot_general").unwrap();
        assert_eq!((products.bytes, products.count), (Bytes(4 * 8192 * 2048 * 4), 4));
        assert_eq!((products.role, products.shape.as_str()), ("activations", "[8192,2048]"));
        assert_eq!(products.source, "/home/user/train/step.py:11");
        assert!(products.stack[0].ends_with("step.py:11 fwd") && products.stack.len() > 1);
        assert_eq!(held.by_role.get(Role::Activations), Bytes(335_544_392));
        // Two generations of weights and slots: nine of this size each, by shape and place, not by size alone.
        let weights = held.rows.iter().filter(|row| row.shape == "[2048,2048]" && row.op == "jit(step)/sub");
        assert_eq!(weights.clone().map(|row| row.count).sum::<u64>(), 18);
        assert!(
            weights.clone().all(|row| row.evidence.contains("argument")),
            "{:?}",
            weights.collect::<Vec<_>>()
        );
        let steps = report.steps.iter().filter(|step| step.pool == "GPU_0_bfc");
        assert!(steps.clone().all(|step| step.how.word() == "inferred" && step.name == "PjitFunction(step)"));
        assert_eq!(steps.count(), 5);
        assert_eq!(codes(&report), ["began-late"]);
        assert_eq!(report.pools[1].device, "HOST");
    }
}

#[test]
fn jax_from_its_first_allocation_with_numbered_steps() {
    let report = read("jax0112_h200_from_start.xplane.pb", &ReportOptions::default());
    let pool = pool(&report, "GPU_0_bfc");
    // As `memory_stats()` said at the end.
    assert_eq!((pool.allocs, pool.peak_bytes), (Some(348), Some(Bytes(151_518_976))));
    assert_eq!(
        (pool.from_start, pool.before_recording.as_ref().unwrap().at_begin_bytes),
        (Some(true), Bytes::ZERO)
    );
    let steps = report.steps.iter().filter(|step| step.pool == "GPU_0_bfc");
    let steps: Vec<_> = steps.map(|step| (step.step, step.name.as_str(), step.how.word())).collect();
    assert_eq!(
        steps,
        [(0, "train", "trace"), (1, "train", "trace"), (2, "train", "trace"), (3, "train", "trace")]
    );
    assert_eq!(codes(&report), [""; 0]);
    // The highest moment is the compiler's: it tries kernels on the device.
    let held = pool.at_peak.as_ref().unwrap();
    let tried = held.rows.iter().filter(|row| row.source == "XLA's compiler");
    assert!(tried.clone().all(|row| row.layer == "XLA autotuning" && row.role == "temporaries"));
    assert_eq!(tried.map(|row| row.bytes.0).sum::<u64>(), held.by_role.get(Role::Temporaries).0);
    assert_eq!(held.unnamed_bytes, Bytes::ZERO);
    let weights = held.rows.iter().filter(|row| row.shape == "[512,512]");
    assert_eq!(weights.map(|row| row.bytes).sum::<Bytes>(), Bytes(9 << 20));
}

/// Captured on an H200 with `XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async`: the pinned host pool records, the GPU's does not.
#[test]
fn an_allocator_that_records_nothing() {
    let report = read("jax0112_h200_cuda_async.xplane.pb.gz", &ReportOptions::default());
    assert!(report.pools.iter().all(|pool| pool.device == "HOST"));
    assert_eq!(codes(&report)[0], "silent-allocator");
    assert!(report.warnings[0].hint.contains("XLA_PYTHON_CLIENT_ALLOCATOR"));
}

/// Captured with host tracer level 1.
#[test]
fn a_tracer_level_that_is_too_low() {
    let report = read("jax0112_h200_level1.xplane.pb.gz", &ReportOptions::default());
    assert!(report.pools.is_empty());
    assert_eq!(codes(&report), ["host-tracer-level"]);
    assert!(report.warnings[0].hint.contains("host_tracer_level = 2"));
}

#[test]
fn grouped_by_layer_and_by_role_the_bytes_are_the_same() {
    let name = "tf221_cpu_cnn_from_start.xplane.pb";
    let by_layer = read(name, &ReportOptions { by: GroupBy::Layer, ..ReportOptions::default() });
    let rows = &by_layer.pools[0].at_peak.as_ref().unwrap().rows;
    let first = rows.iter().find(|row| !row.layer.is_empty()).unwrap();
    assert_eq!((first.layer.as_str(), first.op.as_str()), ("max_pooling2d_1", ""));
    let by_role = read(name, &ReportOptions { by: GroupBy::Role, ..ReportOptions::default() });
    let held = by_role.pools[0].at_peak.as_ref().unwrap();
    assert_eq!((held.rows[0].role, held.rows[0].bytes), ("activations", held.by_role.get(Role::Activations)));
}

#[test]
fn the_top_rows_and_the_rest_are_everything() {
    let wanted = ReportOptions { top: Some(3), ..ReportOptions::default() };
    let report = read("tf221_cpu_cnn_from_start.xplane.pb", &wanted);
    let held = report.pools[0].at_peak.as_ref().unwrap();
    assert_eq!(held.rows.len(), 3);
    assert!(held.rest.as_ref().unwrap().count > 100);
}

#[test]
fn what_was_held_at_any_moment() {
    let name = "tf221_cpu_cnn_from_start.xplane.pb";
    let at = |ns: i64| {
        let report = read(name, &ReportOptions { at: Some(Nanos(ns)), ..ReportOptions::default() });
        report.pools.into_iter().next().unwrap()
    };
    // The very event of the peak, and the nanosecond before it.
    let peak = at(2_176_220_145);
    assert_eq!(peak.at.as_ref().unwrap().in_use_bytes, Bytes(72_718_080));
    assert_eq!(at(2_176_220_144).at.unwrap().in_use_bytes, Bytes(72_718_080 - 12_845_056));
    assert!(at(0).at.is_none(), "nothing is known before the first event");
    assert!(at(i64::MAX).at.unwrap().in_use_bytes > Bytes::ZERO);
    // What is asked for beyond the last event is said to be of that.
    let told = |ns: i64| {
        let report = read(name, &ReportOptions { at: Some(Nanos(ns)), ..ReportOptions::default() });
        report.warnings.iter().any(|warning| warning.code == "after-the-trace")
    };
    assert!(told(i64::MAX) && !told(2_176_220_145));
}

#[test]
fn a_log_directory_gives_its_newest_run_and_all_its_hosts() {
    let scratch = tempfile::tempdir().unwrap();
    let runs = scratch.path().join("train/plugins/profile");
    for (run, host, name) in [
        ("2026_01_01", "alpha", "tf221_cpu_mlp_nobfc_window.xplane.pb"),
        ("2026_01_02", "alpha", "tf221_cpu_mlp_window.xplane.pb"),
        ("2026_01_02", "beta", "tf221_cpu_cnn_from_start.xplane.pb"),
    ] {
        std::fs::create_dir_all(runs.join(run)).unwrap();
        std::fs::copy(fixture(name), runs.join(run).join(format!("{host}.xplane.pb"))).unwrap();
        std::fs::write(runs.join(run).join("ALL_HOSTS.op_stats.pb"), "not a trace").unwrap();
    }
    let reading = vramline::read(scratch.path()).unwrap();
    assert_eq!(reading.hosts.len(), 2);
    assert_eq!(reading.other_runs, [runs.join("2026_01_01")]);
    let report = checked_report(&reading, &ReportOptions::default());
    let peaks: Vec<_> = report.pools.iter().map(|pool| pool.peak_bytes.unwrap().0).collect();
    assert_eq!(peaks, [30_214_400, 72_718_080]);
    assert_eq!(codes(&report), ["other-runs", "began-late"]);
    // A host that cannot be read costs a warning, not the others.
    std::fs::write(runs.join("2026_01_02/gamma.xplane.pb"), "").unwrap();
    let report = checked_report(&vramline::read(scratch.path()).unwrap(), &ReportOptions::default());
    assert_eq!(report.pools.len(), 2);
    assert!(codes(&report).contains(&"unreadable-host"));
    // One run, and a folder without any.
    assert_eq!(vramline::read(&runs.join("2026_01_01")).unwrap().hosts.len(), 1);
    let empty = tempfile::tempdir().unwrap();
    assert!(vramline::read(empty.path()).unwrap_err().to_string().contains("no profiler trace"));
}
