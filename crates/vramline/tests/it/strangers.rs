//! What files of strangers have taught, in small files written here; `tests/python/test_wild.py` reads the real ones.

use std::path::Path;

use vramline::Reading;
use vramline::analysis::held::HeldMoment;
use vramline::analysis::report::ReportOptions;
use vramline::event::{Framework, Vendor};
use vramline::snapshot::Role;
use vramline::source::read_bytes;
use vramline::units::Bytes;
use vramline::view::report::Report;

use crate::writer::{Message, Plane, Value, memory_stats, space};
use crate::{checked_report, codes, pool, report_on};

const MIB: i64 = 1 << 20;

/// A pool whose blocks come and go one after the other, on one thread.
struct Allocator {
    plane: Plane,
    events: Vec<Message>,
    pool: String,
    in_use: i64,
    now: i64,
}

impl Allocator {
    fn new(pool: &str) -> Allocator {
        Allocator { plane: Plane::host(), events: Vec::new(), pool: pool.to_owned(), in_use: 0, now: 0 }
    }

    fn change(&mut self, kind: &str, op: &str, bytes: i64, address: i64, run: i64) {
        let mut stats = memory_stats(&self.pool, bytes, bytes, address, self.in_use);
        stats.retain(|(name, _)| *name != "id");
        stats.extend([
            ("id", Value::Int(run)),
            ("tf_op", Value::Ref(op.to_owned())),
            ("shape", Value::Ref("[1024,256]".to_owned())),
            ("region_type", Value::Ref("output".to_owned())),
        ]);
        self.now += 1000;
        self.events.push(self.plane.event(kind, self.now, 0, &stats));
    }

    fn allocate(&mut self, op: &str, bytes: i64, address: i64, run: i64) {
        self.in_use += bytes;
        self.change("MemoryAllocation", op, bytes, address, run);
    }

    fn free(&mut self, op: &str, bytes: i64, address: i64, run: i64) {
        self.in_use -= bytes;
        self.change("MemoryDeallocation", op, bytes, address, run);
    }

    fn report(mut self) -> Report {
        let events = std::mem::take(&mut self.events);
        self.plane.line("executor", 5, &events);
        report_on(&space(&[&self.plane]), &ReportOptions::default())
    }
}

/// The forward pass of a step, and the first op of its backward pass.
fn forward(allocator: &mut Allocator, run: i64) {
    for layer in 0..4 {
        allocator.allocate(&format!("model/dense_{layer}/Relu"), 4 * MIB, (1 + layer) << 24, run);
    }
    allocator.allocate("gradient_tape/model/dense_3/ReluGrad", MIB, 9 << 24, run);
}

/// The rest of it: the backward pass consumes what the forward pass has made, but for one block that the program keeps.
fn backward(allocator: &mut Allocator, run: i64) {
    for layer in (1..4).rev() {
        allocator.free("gradient_tape/model/dense/MatMul", 4 * MIB, (1 + layer) << 24, run);
    }
    allocator.free("gradient_tape/model/dense/MatMul", MIB, 9 << 24, run);
}

#[test]
fn what_a_cut_step_holds_are_activations() {
    let mut cut = Allocator::new("GPU_0_bfc");
    forward(&mut cut, 7);
    let report = cut.report();
    let held = pool(&report, "GPU_0_bfc").at_peak.as_ref().unwrap();
    assert_eq!(held.by_role.get(Role::Activations), Bytes(16 << 20));
    assert_eq!(held.by_role.get(Role::Parameters), Bytes::ZERO);
    let row = held.rows.iter().find(|row| row.op == "model/dense_1/Relu").unwrap();
    assert!(row.evidence.contains("in the middle of its step"), "{}", row.evidence);
    assert!(codes(&report).contains(&"cut-step"), "{:?}", report.warnings);

    // The same step to its end: what is left then is what the model keeps.
    let mut whole = Allocator::new("GPU_0_bfc");
    forward(&mut whole, 7);
    backward(&mut whole, 7);
    let report = whole.report();
    let held = pool(&report, "GPU_0_bfc").at_peak.as_ref().unwrap();
    assert_eq!(held.by_role.get(Role::Activations), Bytes(12 << 20));
    assert_eq!(held.by_role.get(Role::Parameters), Bytes(4 << 20));
    assert!(!codes(&report).contains(&"cut-step"), "{:?}", report.warnings);
}

#[test]
fn a_step_with_an_update_has_not_been_cut() {
    let mut updated = Allocator::new("GPU_0_bfc");
    forward(&mut updated, 7);
    updated.allocate("adam/AssignSubVariableOp", MIB, 10 << 24, 7);
    assert!(!codes(&updated.report()).contains(&"cut-step"));
}

#[test]
fn one_pool_with_and_without_a_zero_byte() {
    let mut plane = Plane::host();
    let events = [
        plane.event("MemoryAllocation", 1000, 0, &memory_stats("GPU_0_bfc", 100, 256, 4096, 256)),
        plane.event("MemoryAllocation", 2000, 0, &memory_stats("GPU_0_bfc\0", 300, 512, 8192, 768)),
    ];
    plane.line("executor", 5, &events);
    let report = report_on(&space(&[&plane]), &ReportOptions::default());
    assert_eq!(report.pools.len(), 1);
    let pool = pool(&report, "GPU_0_bfc");
    assert_eq!((pool.device.as_str(), pool.peak_bytes, pool.allocs), ("GPU:0", Some(Bytes(768)), Some(2)));
}

/// What JAX on ROCm writes: its device's plane names the maker.
#[test]
fn a_device_of_amd_is_named() {
    let report = |vendor: &str| {
        let mut host = Plane::host();
        let events =
            [host.event("MemoryAllocation", 1000, 0, &memory_stats("GPU_0_bfc", 100, 256, 4096, 256))];
        host.line("python", 5, &events);
        let mut facts = Plane::named("Task Environment");
        facts.fact("jax_version", &Value::Text("0.8.0".into()));
        let mut device = Plane::named("/device:GPU:0");
        device.fact("device_vendor", &Value::Text(vendor.into()));
        device.fact("memory_size", &Value::Uint(206_141_652_992));
        device.fact("compute_cap_major", &Value::Int(9));
        device.fact("compute_cap_minor", &Value::Int(4));
        device.line("stream", 5, &[]);
        report_on(&space(&[&facts, &host, &device]), &ReportOptions::default())
    };
    for (vendor, known, architecture) in [
        ("AMD", Some(Vendor::Amd), "gfx9.4"),
        ("Nvidia", Some(Vendor::Nvidia), "9.4"),
        ("somebody else's name", None, "9.4"),
    ] {
        let report = report(vendor);
        assert_eq!(report.source.framework, Some(Framework::Jax));
        let hardware = pool(&report, "GPU_0_bfc").hardware.as_ref().unwrap();
        assert_eq!((hardware.vendor, hardware.architecture.as_str()), (known, architecture));
        assert_eq!(hardware.memory_bytes, Some(Bytes(206_141_652_992)));
    }
    // A trace without a device's plane tells nothing of it.
    let mut plane = Plane::host();
    let events = [plane.event("MemoryAllocation", 1000, 0, &memory_stats("GPU_0_bfc", 100, 256, 4096, 256))];
    plane.line("python", 5, &events);
    let report = report_on(&space(&[&plane]), &ReportOptions::default());
    assert!(report.pools[0].hardware.is_none());
}

const PROFILE: &str = r#"{"memoryProfilePerAllocator": {"GPU_0_bfc\u0000": {
    "memoryProfileSnapshots": [
        {"activityMetadata": {"memoryActivity": "ALLOCATION", "requestedBytes": "1000", "allocationBytes": "1024",
            "tfOpName": "model/dense/Relu", "dataType": "half", "tensorShape": "[4,125]"}},
        {"activityMetadata": {"requestedBytes": 256, "allocationBytes": 256, "tfOpName": "unknown", "dataType": "INVALID"}}],
    "profileSummary": {"peakBytesUsageLifetime": "9000", "memoryCapacity": "16384",
        "peakStats": {"stackReservedBytes": "0", "heapAllocatedBytes": "8192", "freeMemoryBytes": "8192", "fragmentation": 0.25}},
    "activeAllocations": [
        {"snapshotIndex": "0", "specialIndex": "-1", "numOccurrences": "2"},
        {"snapshotIndex": "1", "specialIndex": "-1", "numOccurrences": "1"},
        {"snapshotIndex": "77", "specialIndex": "-1", "numOccurrences": "1"},
        {"snapshotIndex": "-1", "specialIndex": "0", "numOccurrences": "1"}],
    "specialAllocations": [{"requestedBytes": "5888", "allocationBytes": "5888", "tfOpName": "unused preallocated device memory"}]
}}, "numHosts": 1, "memoryIds": ["GPU_0_bfc"]}"#;

/// What xprof and TensorBoard make of a trace holds the peak of each pool.
#[test]
fn a_memory_profile_of_xprof_is_read() {
    let name = Path::new("memory_profile.json");
    let reading = Reading::of(name.to_owned(), read_bytes(PROFILE.as_bytes(), name).unwrap());
    let report = checked_report(&reading, &ReportOptions::default());
    assert_eq!(report.source.format, "memory-profile");
    let pool = pool(&report, "GPU_0_bfc");
    assert_eq!((pool.device.as_str(), pool.moment), ("GPU:0", HeldMoment::Peak));
    assert_eq!((pool.peak_bytes, pool.lifetime_peak_bytes), (Some(Bytes(8192)), Some(Bytes(9000))));
    assert_eq!((pool.limit_bytes, pool.fragmentation_at_peak), (Some(Bytes(16_384)), Some(0.25)));
    let held = pool.at_peak.as_ref().unwrap();
    // Two blocks of 1000, one of 256; of the 5888 that remain nothing is known.
    assert_eq!((held.named_bytes, held.slack_bytes), (Bytes(2000), Bytes(48)));
    assert_eq!(held.unnamed_bytes, Bytes(256 + 5888));
    let row = held.rows.iter().find(|row| row.op == "model/dense/Relu").unwrap();
    assert_eq!((row.count, row.shape.as_str(), row.dtype), (2, "[4,125]", "float16"));

    // Cut or changed anywhere it is refused, or its sums hold.
    for at in 0..PROFILE.len() {
        for byte in [b'9', b'-', b'"', b'}'] {
            let mut bytes = PROFILE.as_bytes().to_vec();
            bytes[at] = byte;
            for bytes in [&bytes[..], &bytes[..at]] {
                if let Ok(content) = read_bytes(bytes, name) {
                    checked_report(&Reading::of(name.to_owned(), content), &ReportOptions::default());
                }
            }
        }
    }
    let damaged = PROFILE.replace("\"8192\"", "\"many\"");
    let error = read_bytes(damaged.as_bytes(), name).unwrap_err();
    assert!(error.hint().contains(".xplane.pb"), "{error}");
}

#[test]
fn files_beside_those_that_are_read_get_their_own_hint() {
    for (bytes, what, hint) in [
        (&b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[]}"[..], "Chrome's event format", ".xplane.pb"),
        (
            b"{\"schemaVersion\": 1, \"deviceProperties\": [], \"traceEvents\": []}",
            "PyTorch's profiler",
            "_dump_snapshot",
        ),
        (b"{\xa9\x03\xda\x01~\xe9\0\0\0\0\xda\x04exec", "cProfile", "save_device_memory_profile"),
        (b"{\"lr\": 0.1}", "JSON", "a recording"),
    ] {
        let error = read_bytes(bytes, Path::new("file")).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
        assert!(error.hint().contains(hint), "{}", error.hint());
    }
}
