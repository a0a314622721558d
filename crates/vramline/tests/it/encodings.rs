//! Every form that the format allows gives the same answer, and what is unusual is told.

use std::io::Write;

use vramline::analysis::report::ReportOptions;
use vramline::units::{Bytes, Nanos};
use vramline::view::report::Report;

use crate::writer::{Message, Plane, Value, memory_stats, space};
use crate::{codes, report_on};

fn simple(plane: &mut Plane) {
    let mut first = memory_stats("pool", 100, 256, 4096, 256);
    first.extend([
        ("tf_op", Value::Ref("model/dense/MatMul".into())),
        ("region_type", Value::Ref("output".into())),
        ("shape", Value::Ref("[5,5]".into())),
    ]);
    let second = memory_stats("pool", 300, 512, 8192, 768);
    let third = memory_stats("pool", 100, 256, 4096, 512);
    let events = [
        plane.event("MemoryAllocation", 1000, 0, &first),
        plane.event("MemoryAllocation", 2000, 0, &second),
        plane.event("MemoryDeallocation", 3000, 0, &third),
    ];
    plane.line("python", 5, &events);
}

fn figures(report: &Report) -> (u64, u64, Option<Bytes>, Option<Bytes>, Option<Nanos>, Option<bool>) {
    let pool = &report.pools[0];
    (
        pool.allocs.unwrap(),
        pool.frees.unwrap(),
        pool.peak_bytes,
        pool.limit_bytes,
        pool.peak_at_ns,
        pool.from_start,
    )
}

fn assert_simple(bytes: &[u8]) {
    let report = report_on(bytes, &ReportOptions::default());
    assert_eq!(
        figures(&report),
        (2, 1, Some(Bytes(768)), Some(Bytes(1_000_000)), Some(Nanos(7)), Some(true))
    );
    let held = report.pools[0].at_peak.as_ref().unwrap();
    assert_eq!(
        (held.named_bytes, held.unnamed_bytes, held.slack_bytes),
        (Bytes(100), Bytes(300), Bytes(368))
    );
    let row = held.rows.iter().find(|row| !row.op.is_empty()).unwrap();
    assert_eq!(
        (row.op.as_str(), row.layer.as_str(), row.shape.as_str()),
        ("model/dense/MatMul", "dense", "[5,5]")
    );
    assert_eq!(report.pools[0].host, "writer");
}

#[test]
fn as_profilers_write_it() {
    let mut plane = Plane::host();
    simple(&mut plane);
    assert_simple(&space(&[&plane]));
}

#[test]
fn ids_of_every_size() {
    for first_id in [1, 100, 120, 16_380, 65_500, 1 << 40, u64::MAX / 2] {
        let mut plane = Plane::host();
        plane.first_id = first_id;
        simple(&mut plane);
        assert_simple(&space(&[&plane]));
    }
}

/// The tables, the name and the lines in any order; the fields of lines, events and stats too.
#[test]
fn fields_in_any_order() {
    let mut plane = Plane::host();
    simple(&mut plane);
    let mut tables_first = Message::default();
    for (field, entry) in plane.tables().into_iter().rev() {
        tables_first = tables_first.message(field, &entry);
    }
    let tables_first = tables_first.message(3, &plane.lines[0]).bytes(2, "/host:CPU");
    assert_simple(&Message::default().bytes(4, "writer").message(1, &tables_first).0);

    let mut plane = Plane::host();
    let backwards = |plane: &mut Plane, name: &str, offset: i64, stats: &[(&str, Value)]| {
        let mut event = Message::default();
        for (stat, value) in stats {
            let Value::Int(number) = value else {
                let stat = plane.stat(stat, value);
                event = event.message(4, &stat);
                continue;
            };
            let id = plane.stat_id(stat);
            event = event.message(4, &Message::default().int(4, *number).varint(1, id));
        }
        event.int(2, offset).varint(1, plane.event_id(name))
    };
    let mut first = memory_stats("pool", 100, 256, 4096, 256);
    first.extend([("tf_op", Value::Ref("model/dense/MatMul".into())), ("shape", Value::Ref("[5,5]".into()))]);
    let second = memory_stats("pool", 300, 512, 8192, 768);
    let events = [
        backwards(&mut plane, "MemoryAllocation", 1000, &first),
        backwards(&mut plane, "MemoryAllocation", 2000, &second),
        backwards(&mut plane, "MemoryDeallocation", 3000, &memory_stats("pool", 100, 256, 4096, 512)),
    ];
    let line = events.iter().fold(Message::default(), |line, event| line.message(4, event));
    plane.lines.push(line.int(3, 5).bytes(2, "python"));
    assert_simple(&space(&[&plane]));
}

/// Every number as int, uint, double, text, reference and packed text; every text as text, bytes, reference and packed.
#[test]
fn every_encoding_of_a_stat() {
    type Number = fn(i64) -> Value;
    type Text = fn(&str) -> Value;
    let numbers: [Number; 6] = [
        Value::Int,
        |n| Value::Uint(n.cast_unsigned()),
        |n| Value::Double(n as f64),
        |n| Value::Text(n.to_string()),
        |n| Value::Ref(n.to_string()),
        |n| Value::Packed(n.to_string()),
    ];
    let texts: [Text; 4] = [
        |t| Value::Text(t.into()),
        |t| Value::Bytes(t.into()),
        |t| Value::Ref(t.into()),
        |t| Value::Packed(t.into()),
    ];
    for number in numbers {
        for text in texts {
            let mut plane = Plane::host();
            simple(&mut plane);
            let mut again = Plane::host();
            let encode = |stats: Vec<(&'static str, Value)>| -> Vec<(&'static str, Value)> {
                let encode = |value| match value {
                    Value::Int(value) => number(value),
                    Value::Ref(value) => text(&value),
                    other => other,
                };
                stats.into_iter().map(|(name, value)| (name, encode(value))).collect()
            };
            let mut first = memory_stats("pool", 100, 256, 4096, 256);
            first.extend([
                ("tf_op", Value::Ref("model/dense/MatMul".into())),
                ("region_type", Value::Ref("output".into())),
                ("shape", Value::Ref("[5,5]".into())),
            ]);
            let events = [
                again.event("MemoryAllocation", 1000, 0, &encode(first)),
                again.event("MemoryAllocation", 2000, 0, &encode(memory_stats("pool", 300, 512, 8192, 768))),
                again.event(
                    "MemoryDeallocation",
                    3000,
                    0,
                    &encode(memory_stats("pool", 100, 256, 4096, 512)),
                ),
            ];
            again.line("python", 5, &events);
            assert_simple(&space(&[&again]));
        }
    }
}

#[test]
fn gzip_gives_the_same() {
    let mut plane = Plane::host();
    simple(&mut plane);
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packer.write_all(&space(&[&plane])).unwrap();
    assert_simple(&packer.finish().unwrap());
}

/// Offsets and lengths are 64 bits wide: a plane and a line that begin behind four gibibytes, in a file with a hole.
#[test]
fn files_over_four_gibibytes() {
    use std::os::unix::fs::FileExt;
    const HOLE: u64 = 5 << 30;
    let mut plane = Plane::host();
    simple(&mut plane);
    // A field that nobody knows, of five gibibytes, before the plane and again within it.
    let gap = |field: u64| {
        let mut head = Vec::new();
        crate::writer::put_varint(&mut head, field << 3 | 2);
        crate::writer::put_varint(&mut head, HOLE);
        head
    };
    let (outer, inner) = (gap(9), gap(99));
    let body = plane.message().0;
    let mut plane_head = vec![0x0a];
    crate::writer::put_varint(&mut plane_head, inner.len() as u64 + HOLE + body.len() as u64);
    let first =
        Message::default().message(1, &Plane::named("Task Environment").message()).bytes(4, "writer").0;
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut at = 0;
    for (bytes, hole) in [(&first, 0), (&outer, HOLE), (&plane_head, 0), (&inner, HOLE), (&body, 0)] {
        file.as_file().write_all_at(bytes, at).unwrap();
        at += bytes.len() as u64 + hole;
    }
    let report = crate::checked_report(&vramline::read(file.path()).unwrap(), &ReportOptions::default());
    assert_eq!(
        figures(&report),
        (2, 1, Some(Bytes(768)), Some(Bytes(1_000_000)), Some(Nanos(7)), Some(true))
    );
}

/// Fragmentation is a double, an integer when it is zero, and not a number when nothing is free.
#[test]
fn fragmentation_as_told() {
    for (value, expected) in [
        (Value::Double(0.146_753), Some(0.146_753)),
        (Value::Int(0), Some(0.0)),
        (Value::Double(f64::NAN), None),
        (Value::Text("0.25".into()), Some(0.25)),
    ] {
        let mut plane = Plane::host();
        let mut stats = memory_stats("pool", 100, 256, 4096, 256);
        stats.iter_mut().find(|(name, _)| *name == "fragmentation").unwrap().1 = value;
        let event = plane.event("MemoryAllocation", 0, 0, &stats);
        plane.line("python", 0, &[event]);
        let report = report_on(&space(&[&plane]), &ReportOptions::default());
        assert_eq!(report.pools[0].fragmentation_at_peak, expected);
    }
}

/// A TPU names its pool by number, and its frees tell the address only.
#[test]
fn a_tpu_s_frees_have_no_size() {
    let mut plane = Plane::host();
    let stats = |in_use: i64, more: &[(&'static str, Value)]| {
        let mut stats = vec![("device_ordinal", Value::Int(3)), ("bytes_allocated", Value::Int(in_use))];
        stats.extend(more.iter().cloned());
        stats
    };
    let sized = [("requested_bytes", Value::Int(60)), ("allocation_bytes", Value::Int(64))];
    let at = |address: i64| ("addr", Value::Int(address));
    let events = [
        plane.event("MemoryAllocation", 0, 0, &stats(64, &[sized[0].clone(), sized[1].clone(), at(1)])),
        plane.event("MemoryAllocation", 1, 0, &stats(128, &[sized[0].clone(), sized[1].clone(), at(2)])),
        plane.event("MemoryDeallocation", 2, 0, &stats(64, &[at(1)])),
        plane.event("MemoryAllocation", 3, 0, &stats(128, &[sized[0].clone(), sized[1].clone(), at(3)])),
    ];
    plane.line("main", 0, &events);
    let report = report_on(&space(&[&plane]), &ReportOptions::default());
    let pool = &report.pools[0];
    assert_eq!((pool.name.as_str(), pool.device.as_str()), ("TPU:3", "TPU:3"));
    assert_eq!((pool.peak_bytes, pool.limit_bytes), (Some(Bytes(128)), None));
    assert!(codes(&report).is_empty(), "{:?}", report.warnings);
    assert!(report.unknowns.iter().any(|unknown| unknown.path == "pools[0].limit_bytes"));
}

/// Threads begin at different times, and a thread may be in several lines and planes.
#[test]
fn lines_are_merged_by_time() {
    let mut plane = Plane::host();
    let early = plane.event("MemoryDeallocation", 0, 0, &memory_stats("pool", 100, 256, 4096, 512));
    let late = [
        plane.event("MemoryAllocation", 1_000, 0, &memory_stats("pool", 100, 256, 4096, 256)),
        plane.event("MemoryAllocation", 2_000, 0, &memory_stats("pool", 300, 512, 8192, 768)),
    ];
    plane.line("frees", 5_000, &[early]);
    plane.line("allocs", 10, &late);
    let mut other = Plane::host();
    let event = other.event("MemoryAllocation", 0, 0, &memory_stats("pool", 10, 256, 16_384, 768));
    other.line("other", 6_000, &[event]);
    let report = report_on(
        &space(&[&plane, &other]),
        &ReportOptions { at: Some(Nanos(5_000)), ..ReportOptions::default() },
    );
    let pool = &report.pools[0];
    assert_eq!((pool.allocs, pool.frees, pool.from_start), (Some(3), Some(1), Some(true)));
    assert_eq!(pool.at.as_ref().unwrap().in_use_bytes, Bytes(512));
    assert_eq!(pool.peak_at_ns, Some(Nanos(12)));
    assert!(codes(&report).is_empty(), "{:?}", report.warnings);
}

/// Events of the same instant on different threads: the allocator's count tells their order.
#[test]
fn ties_are_broken_by_the_count() {
    let mut plane = Plane::host();
    let free = plane.event("MemoryDeallocation", 1_000, 0, &memory_stats("pool", 100, 256, 4096, 512));
    let allocs = [
        plane.event("MemoryAllocation", 500, 0, &memory_stats("pool", 100, 256, 4096, 256)),
        plane.event("MemoryAllocation", 1_000, 0, &memory_stats("pool", 300, 512, 8192, 768)),
    ];
    plane.line("a", 0, &[free]);
    plane.line("b", 0, &allocs);
    let report = report_on(&space(&[&plane]), &ReportOptions::default());
    assert!(codes(&report).is_empty(), "{:?}", report.warnings);
    assert_eq!(report.pools[0].at_peak.as_ref().unwrap().rows.len(), 2);
}

/// Where the count does not follow, the report says how often and where first; the sums hold all the same.
#[test]
fn disagreement_is_counted_and_located() {
    let mut plane = Plane::host();
    let events = [
        plane.event("MemoryAllocation", 1_000, 0, &memory_stats("pool", 100, 256, 4096, 256)),
        // An allocation of 1024 bytes was dropped here.
        plane.event("MemoryAllocation", 2_000, 0, &memory_stats("pool", 300, 512, 8192, 1_792)),
        // And the free of the first block here: it is handed out again.
        plane.event("MemoryAllocation", 3_000, 0, &memory_stats("pool", 100, 256, 4096, 1_792)),
    ];
    plane.line("python", 0, &events);
    let report = report_on(&space(&[&plane]), &ReportOptions::default());
    assert_eq!(codes(&report), ["count-disagrees", "lost-frees"]);
    assert!(report.warnings[0].text.contains("contradicts 2 of 3 events"), "{}", report.warnings[0].text);
    assert!(report.warnings[0].text.contains("first at 2 ns: 768 bytes expected, 1792 found"));
    let held = report.pools[0].at_peak.as_ref().unwrap();
    let lost = held.rows.iter().find(|row| row.evidence.contains("event is missing")).unwrap();
    assert_eq!(lost.bytes, Bytes(1_024));
}

/// More seems to live than the allocator counts: it counts right, and the oldest blocks are left out.
#[test]
fn missing_frees_do_not_break_the_sums() {
    let mut plane = Plane::host();
    let events = [
        plane.event("MemoryAllocation", 1_000, 0, &memory_stats("pool", 256, 256, 4096, 256)),
        plane.event("MemoryAllocation", 2_000, 0, &memory_stats("pool", 256, 256, 8192, 512)),
        plane.event("MemoryAllocation", 3_000, 0, &memory_stats("pool", 300, 512, 16_384, 700)),
    ];
    plane.line("python", 0, &events);
    let report = report_on(&space(&[&plane]), &ReportOptions::default());
    assert_eq!(codes(&report), ["count-disagrees"]);
    assert_eq!(report.pools[0].peak_bytes, Some(Bytes(700)));
}

/// A window: frees of what came before tell their sizes.
#[test]
fn what_came_before_is_known_by_its_frees() {
    let mut plane = Plane::host();
    let events = [
        plane.event("MemoryAllocation", 1_000, 0, &memory_stats("pool", 100, 256, 4096, 2_304)),
        plane.event("MemoryDeallocation", 2_000, 0, &memory_stats("pool", 1_000, 1_024, 999, 1_280)),
        plane.event("MemoryAllocation", 3_000, 0, &memory_stats("pool", 100, 256, 8192, 1_536)),
    ];
    plane.line("python", 0, &events);
    let wanted = ReportOptions { at: Some(Nanos(3)), ..ReportOptions::default() };
    let report = report_on(&space(&[&plane]), &wanted);
    let pool = &report.pools[0];
    assert_eq!(pool.from_start, Some(false));
    assert_eq!(pool.before_recording.as_ref().unwrap().at_begin_bytes, Bytes(2_048));
    assert_eq!(
        (
            pool.before_recording.as_ref().unwrap().freed_bytes,
            pool.before_recording.as_ref().unwrap().freed_blocks
        ),
        (Bytes(1_024), 1)
    );
    assert_eq!(pool.at_peak.as_ref().unwrap().before_recording_bytes, Bytes(2_048));
    assert_eq!(pool.at.as_ref().unwrap().before_recording_bytes, Bytes(1_024));
}

/// An allocation without an op is named by the op or the call that encloses it on its thread, and only by that.
#[test]
fn scopes_name_what_has_no_op() {
    let mut plane = Plane::host();
    let outer = plane.event("convert_to_tensor", 500, 5_000, &[]);
    let inner = plane.event("RandomShuffle:RandomShuffle", 900, 200, &[]);
    let events = [
        outer,
        inner,
        plane.event("MemoryAllocation", 1_000, 0, &memory_stats("pool", 10, 256, 1, 256)),
        plane.event("MemoryAllocation", 2_000, 0, &memory_stats("pool", 20, 256, 2, 512)),
        plane.event("MemoryAllocation", 9_000, 0, &memory_stats("pool", 30, 256, 3, 768)),
    ];
    plane.line("python", 0, &events);
    let report = report_on(&space(&[&plane]), &ReportOptions::default());
    let ops: Vec<_> = report.pools[0]
        .at_peak
        .as_ref()
        .unwrap()
        .rows
        .iter()
        .map(|row| (row.bytes.0, row.op.as_str()))
        .collect();
    assert_eq!(ops, [(30, ""), (20, "convert_to_tensor"), (10, "RandomShuffle")]);
}

/// Steps that the program numbered win over calls of functions.
#[test]
fn numbered_steps() {
    let mut plane = Plane::host();
    let step = |plane: &mut Plane, number: i64, begin: i64| {
        plane.event("train", begin, 900, &[("step_num", Value::Int(number))])
    };
    let call = ("tf_function_call", Value::Ref("notTraced-nonXla".into()));
    let mut grad = memory_stats("pool", 10, 256, 1, 256);
    grad.push(("tf_op", Value::Ref("gradient_tape/model/dense/MatMul".into())));
    let events = [
        step(&mut plane, 41, 1_000),
        plane.event("train_step", 1_100, 100, std::slice::from_ref(&call)),
        plane.event("MemoryAllocation", 1_500, 0, &grad),
        step(&mut plane, 42, 2_000),
        plane.event("MemoryAllocation", 2_500, 0, &memory_stats("pool", 10, 256, 2, 512)),
    ];
    plane.line("python", 0, &events);
    let report = report_on(&space(&[&plane]), &ReportOptions::default());
    let steps: Vec<_> = report
        .steps
        .iter()
        .map(|step| (step.step, step.phase.word(), step.how.word(), step.peak_bytes.unwrap().0))
        .collect();
    assert_eq!(steps, [(41, "train", "trace", 256), (42, "other", "trace", 512)]);
}

/// Without marks, the executor's runs that have a backward part are the steps.
#[test]
fn inferred_steps() {
    let mut plane = Plane::host();
    let mut events = Vec::new();
    for run in 1..=3 {
        let mut stats = memory_stats("pool", 10, 256, run, 256 * run);
        stats.iter_mut().find(|(name, _)| *name == "id").unwrap().1 = Value::Int(-run);
        stats.push(("tf_op", Value::Ref("gradient_tape/model/dense/MatMul".into())));
        events.push(plane.event("MemoryAllocation", run * 1_000, 0, &stats));
    }
    plane.line("tf_Compute", 0, &events);
    let report = report_on(&space(&[&plane]), &ReportOptions::default());
    assert_eq!(report.steps.len(), 3);
    assert!(report.steps.iter().all(|step| (step.phase.word(), step.how.word()) == ("train", "inferred")));
}

/// Kernels of a GPU give their time to the op that launched them; derived lines are not counted twice.
#[test]
fn a_gpu_s_kernels_time_the_op() {
    let mut host = Plane::host();
    let mut stats = memory_stats("GPU_1_bfc", 10, 256, 1, 256);
    stats.push(("tf_op", Value::Ref("model/dense/MatMul".into())));
    let event = host.event("MemoryAllocation", 0, 0, &stats);
    host.line("main", 0, &[event]);
    let mut device = Plane::named("/device:GPU:1");
    let op = ("tf_op", Value::Ref("model/dense/MatMul:MatMul".into()));
    let kernel = device.event("gemm_kernel", 0, 7_000, std::slice::from_ref(&op));
    device.line("Stream #14(Compute)", 0, &[kernel.clone(), kernel.clone()]);
    device.line("TensorFlow Ops", 0, &[kernel]);
    let report = report_on(&space(&[&device, &host]), &ReportOptions::default());
    let row = &report.pools[0].at_peak.as_ref().unwrap().rows[0];
    assert_eq!((report.pools[0].device.as_str(), row.op_calls, row.op_time_ns), ("GPU:1", Some(2), Some(14)));
}

/// A trace without memory events says which of the known reasons applies.
#[test]
fn why_it_is_empty() {
    let options = |level: u64| {
        let mut plane = Plane::named("Task Environment");
        let bytes = Message::default().varint(1, 1).varint(2, level).0;
        plane.fact("profile_options", &Value::Bytes(String::from_utf8(bytes).unwrap()));
        plane
    };
    let host = |names: &[&str]| {
        let mut plane = Plane::host();
        let events: Vec<_> = names.iter().map(|name| plane.event(name, 0, 10, &[])).collect();
        plane.line("python", 0, &events);
        plane
    };
    let gpu = || {
        let mut plane = Plane::named("/device:GPU:0");
        let event = plane.event("kernel", 0, 10, &[]);
        plane.line("Stream #1", 0, &[event]);
        plane
    };
    let why = |planes: &[&Plane]| {
        let report = report_on(&space(planes), &ReportOptions::default());
        assert!(report.pools.is_empty());
        assert!(!report.warnings[0].hint.is_empty(), "every reason has its switch");
        codes(&report)[0]
    };
    assert_eq!(why(&[&gpu()]), "no-host-threads");
    assert_eq!(why(&[&host(&["a"]), &gpu(), &options(1)]), "host-tracer-level");
    assert_eq!(
        why(&[&host(&["a/MatMul:MatMul", "cuMemAllocAsync"]), &gpu(), &options(2)]),
        "cuda-malloc-async"
    );
    assert_eq!(why(&[&host(&["a/MatMul:MatMul"]), &options(2)]), "plain-cpu-allocator");
    assert_eq!(why(&[&host(&["PjitFunction(f)"]), &options(2)]), "jax-cpu");
    assert_eq!(why(&[&host(&["a/MatMul:MatMul"]), &gpu(), &options(2)]), "silent-allocator");
    assert_eq!(why(&[&host(&["something"]), &options(2)]), "nothing-allocated");
}

/// Events that tell nothing that could be counted are left out, and counted.
#[test]
fn bare_events_are_told() {
    let mut plane = Plane::host();
    let events = [
        plane.event("MemoryAllocation", 0, 0, &[("allocator_name", Value::Ref("pool".into()))]),
        plane.event("MemoryAllocation", 0, 0, &memory_stats("pool", 10, 256, 1, 256)),
    ];
    plane.line("python", 0, &events);
    let report = report_on(&space(&[&plane]), &ReportOptions::default());
    assert_eq!(report.pools[0].allocs, Some(1));
    assert_eq!(codes(&report), ["bare-events"]);
}
