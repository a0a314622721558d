//! Out-of-memory texts and dumps: real ones, whole, cut and damaged, and error messages of each framework.

use std::path::Path;

use vramline::OutOfMemory;
use vramline::analysis::oom::oom;
use vramline::failure::{Failures, SizeRange};
use vramline::postmortem::{Verdict, conclude};
use vramline::source::read_failures_in;
use vramline::units::Bytes;
use vramline::view::oom::{FailureView, OomReport};

use crate::{checked_report, fixture};

pub(crate) fn read(bytes: &[u8]) -> Failures {
    read_failures_in(bytes, Path::new("log")).expect("a log")
}

fn post_mortem(failures: Failures) -> OomReport {
    let proofs = vec![None; failures.list.len()];
    OomReport::from(&oom(&OutOfMemory { failures, proofs, ..OutOfMemory::default() }))
}

fn of_fixture(name: &str) -> OomReport {
    post_mortem(read(&std::fs::read(fixture(name)).unwrap()))
}

fn only(report: &OomReport) -> &FailureView {
    assert_eq!(report.failures.len(), 1, "{:?}", report.failures);
    &report.failures[0]
}

/// Breaks lines as a terminal of that width does.
pub(crate) fn wrapped(text: &str, width: usize) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let signs: Vec<char> = line.chars().collect();
        if signs.is_empty() {
            out.push('\n');
        }
        for piece in signs.chunks(width) {
            out.extend(piece);
            out.push('\n');
        }
    }
    out
}

// --- Real files ---

#[test]
fn tensorflow_is_read_to_the_byte() {
    let report = of_fixture("tf221_cpu_oom.log");
    let failure = only(&report);
    assert_eq!(failure.allocator.as_deref(), Some("bfc_cpu_allocator_for_gpu"));
    assert_eq!((failure.dialect.word(), failure.op.as_deref()), ("bfc-c", Some("Fill")));
    assert_eq!(failure.shape.as_deref(), Some("[1000,1000,5]"));
    assert_eq!(failure.requested_bytes, Some(Bytes(20_000_000)));
    assert_eq!(failure.rounded_bytes, Some(Bytes(20_000_000)));
    assert_eq!(failure.limit_bytes, Some(Bytes(256 << 20)));
    assert_eq!(failure.in_use_bytes, Some(Bytes(266_338_560)));
    assert_eq!(
        (failure.free_bytes, failure.largest_free_bytes),
        (Some(Bytes(2_096_896)), Some(Bytes(2_096_896)))
    );
    assert_eq!((failure.verdict, failure.short_by_bytes), (Some(Verdict::Slack), Some(Bytes(17_903_104))));
    // 254.00 MiB in use, 12 B + 15.26 + 144.96 + 41.96 MiB asked for.
    assert_eq!(failure.slack_bytes, None);
    let (low, high) = (failure.slack_low_bytes.unwrap().0, failure.slack_high_bytes.unwrap().0);
    assert!(low < high && (51 << 20..=53 << 20).contains(&low) && high - low < 64 << 10, "{low} {high}");
    assert_eq!(failure.regions.len(), 6);
    assert_eq!(failure.told_by[0].line, Some(3));
}

#[test]
fn jax_fails_three_times() {
    let report = of_fixture("jax0112_h200_oom_three_failures.log");
    let told: Vec<_> = report
        .failures
        .iter()
        .map(|failure| {
            (
                failure.rounded_bytes.unwrap().0,
                failure.free_bytes.unwrap().0,
                failure.unallocated_bytes.unwrap().0,
                failure.short_by_bytes.unwrap().0,
                failure.verdict.unwrap().word(),
                failure.dialect.word(),
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            (16_000_000, 2_096_896, 0, 13_903_104, "slack", "bfc-d"),
            (20_000_000, 2_096_896, 0, 17_903_104, "slack", "bfc-d"),
            (24_000_000, 22_096_896, 0, 1_903_104, "slack", "bfc-d"),
        ]
    );
    assert!(report.failures.iter().all(|failure| failure.slack_low_bytes.unwrap().0 > 42_000_000));
    assert!(report.warnings.is_empty(), "{:?}", report.warnings);
    assert_eq!(report.failures[0].holders[0].op, "xla.execute{executable=jit_broadcast_in_dim}");
}

/// More of JAX on an H200: arrays of random sizes until some fail, and a function that is too large for its pool. The truth is in
/// the lines themselves: the sums of the chunks, and what the allocator's own summary says.
#[test]
fn more_failures_of_jax_add_up() {
    for (name, limit, requests) in [
        ("jax0112_h200_random_growth.log", 301_989_888, &[42_997_504, 41_874_432, 38_917_376][..]),
        ("jax0112_h200_random_preallocated.log", 301_989_888, &[41_874_432, 38_917_376, 43_056_896][..]),
        ("jax0112_h200_too_large.log", 450_887_680, &[67_108_864][..]),
    ] {
        let report = of_fixture(name);
        let told: Vec<u64> = report.failures.iter().map(|failure| failure.rounded_bytes.unwrap().0).collect();
        assert_eq!(told[..requests.len()], *requests, "{name}");
        for failure in &report.failures {
            // Where the pool has not reached its limit, the text rounds what is left.
            let within = |low: Option<Bytes>, truth: u64, high: Option<Bytes>| {
                let (low, high) = (low.unwrap().0, high.unwrap().0);
                assert!(
                    low <= truth && truth <= high && high - low < 16 << 10,
                    "{name}: {low} {truth} {high}"
                );
            };
            within(failure.limit_low_bytes, limit, failure.limit_high_bytes);
            let (pool, free) = (failure.pool_bytes.unwrap().0, failure.free_bytes.unwrap().0);
            assert_eq!(failure.in_use_bytes.unwrap().0 + free, pool, "{name}");
            within(failure.unallocated_low_bytes, limit - pool, failure.unallocated_high_bytes);
            let short = failure.rounded_bytes.unwrap().0.saturating_sub(free + limit - pool);
            within(failure.short_by_low_bytes, short, failure.short_by_high_bytes);
            let slack = failure.slack_low_bytes.unwrap().0;
            let verdict = if short == 0 && free * 20 >= pool {
                "fragmented"
            } else if short > 0 && slack >= short {
                "slack"
            } else {
                "exhausted"
            };
            assert_eq!(failure.verdict.map(Verdict::word), Some(verdict), "{name}");
        }
    }
    // Attempts of the compiler that it can do without are no failures.
    let report = of_fixture("jax0112_h200_too_large.log");
    assert_eq!(report.failures.len(), 1);
    assert!(report.soft.count > 0 && report.soft.pools == ["GPU_0_bfc"], "{:?}", report.soft);
}

#[test]
fn what_a_short_log_does_not_say_is_null() {
    let report = of_fixture("jax0112_h200_oom_short.log");
    let failure = only(&report);
    assert_eq!((failure.rounded_bytes, failure.verdict), (Some(Bytes(16_000_000)), None));
    assert_eq!(failure.executable.as_deref(), Some("jit_broadcast_in_dim"));
    assert_eq!((failure.limit_bytes, failure.in_use_bytes, failure.op.as_deref()), (None, None, None));
    assert!(report.unknowns.iter().any(|unknown| unknown.path == "failures[0].verdict"));
}

#[test]
fn a_dump_tells_each_request() {
    let report = of_fixture("tf221_cpu_oom.memorydump.pb");
    let failure = only(&report);
    assert_eq!((failure.dialect.word(), failure.verdict), ("memory-dump", None));
    assert_eq!(failure.in_use_bytes, Some(Bytes(132_120_832)));
    // 16, 24, 20, 24 or less, and 16 million bytes and 12: as protoc decodes the file.
    assert_eq!(failure.slack_bytes, Some(Bytes(36_120_820)));
    assert_eq!(failure.free_bytes, Some(Bytes(2_096_896)));
    assert_eq!(failure.regions.iter().map(|region| region.chunks).sum::<usize>(), 7);
}

#[test]
fn logs_and_dumps_have_a_report() {
    let wanted = vramline::analysis::report::ReportOptions::default();
    for (name, format, in_use) in [
        ("tf221_cpu_oom.memorydump.pb", "memory-dump", 132_120_832),
        ("tf221_cpu_oom.log", "oom-log", 266_338_560),
        ("jax0112_h200_oom_three_failures.log", "oom-log", 1_499_463_936),
    ] {
        let report = checked_report(&vramline::read(&fixture(name)).unwrap(), &wanted);
        assert_eq!((report.source.format, report.pools.len()), (format, 1), "{name}");
        assert_eq!(report.pools[0].peak_bytes, Some(Bytes(in_use)), "{name}");
        assert!(report.steps.is_empty());
    }
    let dump = checked_report(&vramline::read(&fixture("tf221_cpu_oom.memorydump.pb")).unwrap(), &wanted);
    let held = dump.pools[0].at_peak.as_ref().unwrap();
    assert_eq!(
        (held.slack_bytes, held.unnamed_bytes.0 + held.named_bytes.0),
        (Bytes(36_120_820), 96_000_012)
    );
    assert_eq!(dump.pools[0].allocs, Some(11));
}

/// The real logs too: what a part tells is what the whole tells, or nothing.
#[test]
fn a_cut_real_log_contradicts_nothing() {
    for name in ["tf221_cpu_oom.log", "jax0112_h200_oom_short.log"] {
        let whole = std::fs::read(fixture(name)).unwrap();
        let truth = only(&of_fixture(name)).clone_figures();
        for at in 0..=whole.len() {
            for part in [&whole[..at], &whole[at..]] {
                for failure in post_mortem(read(part)).failures {
                    for ((name, told), (_, truth)) in failure.clone_figures().into_iter().zip(&truth) {
                        if let (Some((low, high)), Some(truth)) = (told, truth) {
                            assert!(
                                low <= truth.1 && truth.0 <= high,
                                "{name} at {at}: {low} to {high}, {truth:?}"
                            );
                        }
                    }
                }
            }
        }
    }
}

trait Figures {
    fn clone_figures(&self) -> Vec<(&'static str, Option<(u64, u64)>)>;
}

impl Figures for FailureView {
    fn clone_figures(&self) -> Vec<(&'static str, Option<(u64, u64)>)> {
        let pair = |low: Option<Bytes>, high: Option<Bytes>| Some((low?.0, high?.0));
        vec![
            ("requested", pair(self.requested_low_bytes, self.requested_high_bytes)),
            ("rounded", pair(self.rounded_low_bytes, self.rounded_high_bytes)),
            ("limit", pair(self.limit_low_bytes, self.limit_high_bytes)),
            ("in use", pair(self.in_use_low_bytes, self.in_use_high_bytes)),
            ("free", pair(self.free_low_bytes, self.free_high_bytes)),
            ("unallocated", pair(self.unallocated_low_bytes, self.unallocated_high_bytes)),
            ("slack", pair(self.slack_low_bytes, self.slack_high_bytes)),
            ("short by", pair(self.short_by_low_bytes, self.short_by_high_bytes)),
        ]
    }
}

#[test]
fn a_damaged_dump_is_no_whole_one() {
    let bytes = std::fs::read(fixture("tf221_cpu_oom.memorydump.pb")).unwrap();
    for at in 0..bytes.len() {
        if let Ok(failures) = read_failures_in(&bytes[..at], Path::new("cut")) {
            assert!(failures.list.iter().all(|failure| failure.sums.is_none()), "{at}");
        }
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            if let Ok(failures) = read_failures_in(&flipped, Path::new("flipped")) {
                let _ = serde_json::to_vec(&post_mortem(failures)).unwrap();
            }
        }
    }
}

// --- Other texts ---

#[test]
fn pytorch_in_every_wording() {
    #[expect(clippy::cast_sign_loss, reason = "none is negative")]
    let gib = |value: f64| (value * f64::from(1 << 30)) as u64;
    let near = |told: Option<SizeRange>, truth: u64| {
        let told = told.unwrap_or_else(|| panic!("{truth} is not told"));
        assert!(told.low.0 <= truth + 1 && truth <= told.high.0 + 1, "{truth} is not in {told:?}");
        assert!(told.high.0 - told.low.0 <= truth / 100 + (40 << 20));
    };
    let old = "RuntimeError: CUDA out of memory. Tried to allocate 2.26 GiB (GPU 1; 6.00 GiB total capacity; 781.59 MiB already allocated; 3.03 GiB free; 1.24 GiB reserved in total by PyTorch)\n";
    let oldest = old.replace("1.24 GiB reserved in total by PyTorch", "488.25 MiB cached");
    let new = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 22.78 GiB. GPU 0 has a total capacity of 31.47 GiB of which 12.73 GiB is free. Including non-PyTorch memory, this process has 18.73 GiB memory in use. Of the allocated memory 9.08 GiB is allocated by PyTorch, and 9.35 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.\n";
    let misspelt = new.replace("capacity", "capacty");
    let crowded = new.replace(
        "Including",
        "Process 4711 has 4.00 GiB memory in use. Process 4712 has 512.00 MiB memory in use. Including",
    );
    let crowded = crowded.replace("this process has 18.73 GiB", "this process has 14.23 GiB");
    let limited = new.replace(" Of the allocated", " 20.00 GiB allowed; Of the allocated");
    let graphs = new.replace(
        "by PyTorch, and",
        "by PyTorch, with 40.00 MiB allocated in private pools (e.g., CUDA Graphs), and",
    );

    let one = |text: &str| {
        let failures = read(text.as_bytes());
        assert_eq!(failures.list.len(), 1, "{text}");
        let failure = failures.list.into_iter().next().unwrap();
        let conclusion = conclude(&failure, None);
        (failure, conclusion)
    };
    let (failure, conclusion) = one(old);
    assert_eq!(failure.device.as_deref(), Some("GPU:1"));
    near(failure.rounded, gib(2.26));
    near(failure.memory.total, gib(6.0));
    near(failure.free, gib(1.24) - gib(781.59 / 1024.0));
    assert_eq!(conclusion.verdict, Some(Verdict::Device), "3.03 GiB were free");
    let (failure, _) = one(&oldest);
    assert_eq!(failure.memory.this_process, None);

    for text in [new, &misspelt, &graphs] {
        let (failure, conclusion) = one(text);
        near(failure.memory.total, gib(31.47));
        near(failure.memory.free, gib(12.73));
        near(failure.memory.this_process, gib(18.73));
        near(failure.in_use, gib(9.08));
        near(failure.free, gib(9.35));
        assert_eq!((failure.requested, failure.limit), (None, None), "it tells the segment, not the tensor");
        assert_eq!(conclusion.verdict, Some(Verdict::Exhausted), "12.73 + 9.35 < 22.78");
        near(conclusion.short_by, gib(0.70));
    }
    // What other processes hold is what the device, its free memory and this process leave.
    let (failure, conclusion) = one(&crowded);
    near(failure.memory.others, gib(4.5));
    near(conclusion.others, gib(31.47) - gib(12.73) - gib(14.23));
    assert_eq!(conclusion.verdict, Some(Verdict::Exhausted), "12.73 + 4.51 < 22.78");
    let smaller = crowded.replace("allocate 22.78 GiB", "allocate 17.00 GiB");
    let (_, conclusion) = one(&smaller);
    assert_eq!(conclusion.verdict, Some(Verdict::Device), "12.73 + 4.51 >= 17");
    let alone = new.replace("allocate 22.78 GiB", "allocate 17.00 GiB");
    let (_, conclusion) = one(&alone);
    assert_eq!(
        conclusion.verdict,
        Some(Verdict::Fragmented),
        "12.73 + 9.35 >= 17, and 9.35 is half of the pool"
    );
    let (failure, _) = one(&limited);
    near(failure.limit, gib(20.0));
    near(failure.unallocated, gib(20.0) - gib(9.08) - gib(9.35));
    // One error, printed by each handler on its way; wrapped by a terminal, at any width; then another.
    for width in 40..130 {
        let text = wrapped(
            &format!("{new}During handling of the above exception, another exception occurred:\n{new}{old}"),
            width,
        );
        let failures = read(text.as_bytes());
        assert_eq!(failures.list.len(), 2, "{text}");
        near(failures.list[0].free, gib(9.35));
        near(failures.list[1].memory.free, gib(3.03));
    }
    for at in 0..new.len() {
        let failures = read(&new.as_bytes()[..at]).list;
        assert_eq!(failures.len(), usize::from(at >= new.find(" Tried").unwrap() - 1), "{}", &new[..at]);
        for failure in failures {
            if failure.rounded.is_some() {
                near(failure.rounded, gib(22.78));
            }
            assert!(failure.free.is_none_or(|told| told.low.0 > gib(9.3)));
        }
    }
}

#[test]
fn tensorflows_error_line_alone_tells_the_request() {
    let text = "tensorflow.python.framework.errors_impl.ResourceExhaustedError: {{function_node __wrapped__Fill_device_/job:localhost/replica:0/task:0/device:GPU:0}} OOM when allocating tensor with shape[1000,1000,5] and type float on /job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [Op:Fill] name: \n";
    let report = post_mortem(read(format!("{text}{text}").as_bytes()));
    let failure = only(&report);
    assert_eq!((failure.dialect.word(), failure.verdict), ("tensorflow-error", None));
    assert_eq!(
        (failure.requested_bytes, failure.rounded_bytes),
        (Some(Bytes(20_000_000)), Some(Bytes(20_000_000)))
    );
    assert_eq!((failure.allocator.as_deref(), failure.op.as_deref()), (Some("GPU_0_bfc"), Some("Fill")));
    assert_eq!(failure.device.as_deref(), Some("/job:localhost/replica:0/task:0/device:GPU:0"));
    let of_node = "OOM when allocating tensor with shape[64,7] and type resource on /device:GPU:0 by allocator GPU_0_bfc\n\t [[{{node model/dense/MatMul}}]]\n";
    let report = post_mortem(read(of_node.as_bytes()));
    assert_eq!(only(&report).requested_bytes, None);
}

#[test]
fn jaxs_error_lines_and_xlas_buffers() {
    let text = "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 6291456 bytes.\n\
                BufferAssignment OOM Debugging.\nBufferAssignment stats:\n             parameter allocation:    6.00MiB\n\
                \x20             constant allocation:         0B\n                 total allocation:   12.00MiB\n\
                Peak buffers:\n\tBuffer 1:\n\t\tSize: 6.00MiB\n\t\tOperator: op_name=\"jit(concatenate)/concatenate[dimension=0]\" source_file=\"models.py\" source_line=689\n\
                \t\tXLA Label: concatenate\n\t\tShape: f32[4096,128,3]\n\t\t==========================\n\n\
                \tBuffer 2:\n\t\tSize: 384.0KiB\n\t\tEntry Parameter Subshape: f32[256,128,3]\n\t\t==========================\n\n";
    let report = post_mortem(read(text.as_bytes()));
    let failure = only(&report);
    assert_eq!((failure.dialect.word(), failure.requested_bytes), ("jax-error", Some(Bytes(6_291_456))));
    assert_eq!(failure.buffers.len(), 2);
    assert_eq!(failure.buffers[0].shape, "f32[4096,128,3]");
    assert!(failure.buffers[0].operator.contains("source_line=689"));
    let size = &failure.buffers[1];
    assert!(size.low_bytes.0 <= 393_216 && 393_216 <= size.high_bytes.0 && size.operator.is_empty());
    let older =
        "RESOURCE_EXHAUSTED: Failed to allocate request for 1.00GiB (1073741824B) on device ordinal 3\n";
    let report = post_mortem(read(older.as_bytes()));
    assert_eq!(only(&report).requested_bytes, Some(Bytes(1 << 30)));
    assert_eq!(only(&report).device.as_deref(), Some("3"));
}

#[test]
fn the_asynchronous_pool_tells_the_device() {
    let text = "\
E0000 00:00:1700000000.000001 100 gpu_cudamallocasync_allocator.cc:331] gpu_async_0 cuMemAllocAsync failed to allocate 4294967296 bytes: RESOURCE_EXHAUSTED: CUDA error: out of memory
 Reported by CUDA: Free memory/Total memory: 1073741824/17179869184
E0000 00:00:1700000000.000002 100 gpu_cudamallocasync_allocator.cc:336] Stats: 
Limit:                     15032385536
InUse:                     12884901888
E0000 00:00:1700000000.000003 100 gpu_cudamallocasync_allocator.cc:70] Histogram of current allocation: (allocation_size_in_bytes, nb_allocation_of_that_sizes), ...;
E0000 00:00:1700000000.000004 100 gpu_cudamallocasync_allocator.cc:73] 256, 56
E0000 00:00:1700000000.000005 100 gpu_cudamallocasync_allocator.cc:96] CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: 14965276672
E0000 00:00:1700000000.000006 100 gpu_cudamallocasync_allocator.cc:98] CU_MEMPOOL_ATTR_USED_MEM_CURRENT: 12884901888
E0000 00:00:1700000000.000007 100 gpu_cudamallocasync_allocator.cc:99] CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: 14965276672
";
    let report = post_mortem(read(text.as_bytes()));
    let failure = only(&report);
    assert_eq!(
        (failure.allocator.as_deref(), failure.dialect.word()),
        (Some("gpu_async_0"), "cuda-malloc-async")
    );
    assert_eq!(failure.requested_bytes, Some(Bytes(4 << 30)));
    assert_eq!(failure.free_bytes, Some(Bytes(14_965_276_672 - 12_884_901_888)));
    assert_eq!(failure.unallocated_bytes, Some(Bytes(1 << 30)));
    let short = (4u64 << 30) - (1 << 30) - (14_965_276_672 - 12_884_901_888);
    assert_eq!((failure.verdict, failure.short_by_bytes), (Some(Verdict::Exhausted), Some(Bytes(short))));
}

#[test]
fn a_log_about_other_things_tells_of_no_failure() {
    let text = "I ran out of memory trying to remember this.\nThe GPU is out of memory? No.\nInUse at home\nBin (there)\n";
    let failures = read(text.as_bytes());
    assert!(failures.list.is_empty(), "{:?}", failures.list);
    assert!(read(b"").list.is_empty());
    assert!(read(&[b'\r'; 200_000]).list.is_empty());
    assert!(read(&[b'x'; 3_000_000]).list.is_empty());
}
