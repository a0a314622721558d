//! Out-of-memory texts and dumps: real ones, and ones written here in every dialect, whole, broken, cut and mixed.
//!
//! The texts written here come from a pool whose every byte is known, so that what is read can be compared with it:
//! each figure is right or null, and the verdict is the true one or none.

use std::fmt::Write;
use std::path::Path;

use vramline::OutOfMemory;
use vramline::analysis::oom::oom;
use vramline::failure::{Failure, Failures, SizeRange};
use vramline::postmortem::{Conclusion, Verdict, conclude, witness};
use vramline::source::read_failures_in;
use vramline::units::Bytes;
use vramline::view::oom::{FailureView, OomReport};

use crate::writer::Message;
use crate::{checked_report, fixture};

fn read(bytes: &[u8]) -> Failures {
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

// --- Pools written here ---

/// A pool whose every byte is known.
#[derive(Clone, Debug)]
struct Pool {
    /// Size, request and whether it is in use.
    regions: Vec<Vec<(u64, u64, bool)>>,
    limit: u64,
    request: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dialect {
    A,
    B,
    /// TensorFlow 2.2 to 2.20.
    C,
    /// TensorFlow 2.21: sizes are rounded.
    CRounded,
    D,
}

const DIALECTS: [Dialect; 5] = [Dialect::A, Dialect::B, Dialect::C, Dialect::CRounded, Dialect::D];

/// As TensorFlow writes a size.
fn human(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes}B");
    }
    let (mut value, mut unit) = (bytes, 0);
    while value >= 1 << 20 {
        value >>= 10;
        unit += 1;
    }
    let name = ["KiB", "MiB", "GiB", "TiB"][unit];
    let value = value as f64 / 1024.0;
    if unit == 0 { format!("{value:.1}{name}") } else { format!("{value:.2}{name}") }
}

impl Pool {
    fn chunks(&self) -> impl Iterator<Item = &(u64, u64, bool)> {
        self.regions.iter().flatten()
    }

    fn size(&self) -> u64 {
        self.chunks().map(|chunk| chunk.0).sum()
    }

    fn in_use(&self) -> u64 {
        self.chunks().filter(|chunk| chunk.2).map(|chunk| chunk.0).sum()
    }

    fn slack(&self) -> u64 {
        self.chunks().filter(|chunk| chunk.2).map(|chunk| chunk.0 - chunk.1).sum()
    }

    fn free(&self) -> u64 {
        self.size() - self.in_use()
    }

    fn rounded(&self) -> u64 {
        self.request.next_multiple_of(256)
    }

    /// By the definitions.
    fn verdict(&self) -> Verdict {
        let left = (self.limit - self.size()) / 256 * 256;
        let (request, free) = (self.rounded(), self.free());
        if left >= request {
            Verdict::Device
        } else if free + left >= request && free * 20 >= self.size() {
            Verdict::Fragmented
        } else if free + left < request && self.slack() >= request - free - left {
            Verdict::Slack
        } else {
            Verdict::Exhausted
        }
    }

    /// The text, as that version of the allocator writes it.
    fn text(&self, dialect: Dialect, prefix: &dyn Fn(usize) -> String) -> String {
        use Dialect::{A, B, C, CRounded, D};
        let mut out = String::new();
        let mut line = 0;
        let mut say = |text: &str| {
            line += 1;
            writeln!(out, "{}{text}", prefix(line)).unwrap();
        };
        let (asked, rounded) = (human(self.request), self.rounded());
        match dialect {
            A | B => say(&format!(
                "Allocator (GPU_0_bfc) ran out of memory trying to allocate {asked} (rounded to {rounded}).  Current allocation summary follows."
            )),
            C | CRounded => say(&format!(
                "Allocator (GPU_0_bfc) ran out of memory trying to allocate {asked} (rounded to {rounded})requested by op model/dense/MatMul\n\
                 If the cause is memory fragmentation maybe the environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve the situation. \n\
                 Current allocation summary follows.\nCurrent allocation summary follows."
            )),
            D => say(&format!(
                "Allocator (GPU_0_bfc) ran out of memory trying to allocate {asked} (rounded to {rounded}) from the lower end requested by op \n\
                 If this is caused by memory fragmentation, the environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' may improve the situation.\n\
                 Current allocation summary follows."
            )),
        }
        if dialect != A {
            say("BFCAllocator dump for GPU_0_bfc");
        }
        for bin in 0..21 {
            let label = 256u64 << bin;
            let of_bin = |chunk: &&(u64, u64, bool)| {
                chunk.0 >= label && (bin == 20 || chunk.0 < label * 2) || bin == 0 && chunk.0 < 256
            };
            let all: Vec<_> = self.chunks().filter(of_bin).collect();
            let used: Vec<_> = all.iter().filter(|chunk| chunk.2).collect();
            say(&format!(
                "Bin ({label}): \tTotal Chunks: {}, Chunks in use: {}. {} allocated for chunks. {} in use in bin. {} client-requested in use in bin.",
                all.len(),
                used.len(),
                human(all.iter().map(|chunk| chunk.0).sum()),
                human(used.iter().map(|chunk| chunk.0).sum()),
                human(used.iter().map(|chunk| chunk.1).sum())
            ));
        }
        say(&format!("Bin for {asked} was 16.00MiB, Chunk State: "));
        let mut address = 0x7f5b_581f_b000u64;
        let mut handle = 0;
        for region in &self.regions {
            say(&format!("Next region of size {}", region.iter().map(|chunk| chunk.0).sum::<u64>()));
            for (i, &(size, _, in_use)) in region.iter().enumerate() {
                handle += 1;
                let next = if i + 1 == region.len() { u64::MAX } else { handle };
                let word = match (dialect, in_use) {
                    (A, true) => "Chunk",
                    (_, true) => "InUse",
                    (_, false) => "Free ",
                };
                say(&match dialect {
                    A => format!("{word} at {address:#x} of size {size}"),
                    B => format!("{word} at {address:#x} next {next} of size {size}"),
                    C if handle % 5 == 0 => format!(
                        "{word} at {address:x} of size {size} by op model/dense_{handle}/MatMul action_count 17 step 12 next {next}"
                    ),
                    C | CRounded => format!("{word} at {address:x} of size {size} next {next}"),
                    D if in_use => format!(
                        "{word} at {address:x} of size {size} tag lower allocation_annotation xla.execute{{executable=jit_step, k=2}} / inner next {next}"
                    ),
                    D => format!("{word} at {address:x} of size {size} tag lower next {next}"),
                });
                address += size;
            }
            address += 1 << 22;
        }
        say("     Summary of in-use Chunks by size: ");
        let mut sizes: Vec<u64> = self.chunks().filter(|chunk| chunk.2).map(|chunk| chunk.0).collect();
        sizes.sort_unstable();
        for run in sizes.chunk_by(|a, b| a == b) {
            let total = human(run[0] * run.len() as u64);
            say(&format!("{} Chunks of size {} totalling {total}", run.len(), run[0]));
        }
        say(&format!("Sum Total of in-use chunks: {}", human(self.in_use())));
        let (pool, limit, left) = (self.size(), self.limit, self.limit - self.size());
        match dialect {
            A => {}
            B => say(&format!(
                "total_region_allocated_bytes_: {pool} memory_limit_: {limit} available bytes: {left} curr_region_allocation_bytes_: 33554432"
            )),
            C => say(&format!(
                "Total bytes in pool: {pool} memory_limit_: {limit} available bytes: {left} curr_region_allocation_bytes_: 33554432"
            )),
            CRounded => say(&format!(
                "Total size in pool: {} memory_limit_: {} available size: {} curr_region_allocation_bytes_: 32.00MiB",
                human(pool),
                human(limit),
                human(left)
            )),
            D => {
                let largest = self.chunks().filter(|chunk| !chunk.2).map(|chunk| chunk.0).max().unwrap_or(0);
                say(&format!(
                    "Allocator memory summary: rounded request {}, total free in pool {}, largest free chunk usable by lower end {}, unallocated bytes {}, pool size {}, pool limit {}",
                    human(rounded),
                    human(self.free()),
                    human(largest),
                    human(left),
                    human(pool),
                    human(limit)
                ));
                say("Allocator region growth hint: next region allocation target 2.00GiB (growth enabled).");
            }
        }
        let figure =
            |bytes: u64| if matches!(dialect, CRounded | D) { human(bytes) } else { bytes.to_string() };
        say(&format!(
            "Stats: \nLimit:      {:>20}\nInUse:      {:>20}\nMaxInUse:   {:>20}\nNumAllocs:  {:>20}\nMaxAllocSize: {:>18}\n",
            figure(limit),
            figure(self.in_use()),
            figure(self.in_use() + 256),
            27,
            figure(1 << 20)
        ));
        say(&"*".repeat(100));
        out
    }
}

fn classic(_: usize) -> String {
    "2020-05-01 12:00:00.123456: I tensorflow/core/common_runtime/bfc_allocator.cc:1024] ".to_owned()
}

fn absl(line: usize) -> String {
    format!("I0000 00:00:1794708904.{:06}    4411 bfc_allocator.cc:1105] ", 662_683 + line)
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn pool(&mut self) -> Pool {
        let regions: Vec<Vec<(u64, u64, bool)>> = (0..1 + self.below(3))
            .map(|_| {
                let mut was_free = true;
                (0..1 + self.below(6))
                    .map(|_| {
                        let bits = 1 + self.below(16);
                        let size = (1 + self.below(1 << bits)) * 256;
                        was_free = !was_free && self.below(2) == 0;
                        let slack = if self.below(2) == 0 { 0 } else { self.below(size / 2) };
                        (size, size - slack, !was_free)
                    })
                    .collect()
            })
            .collect();
        let mut pool = Pool { regions, limit: 0, request: 0 };
        let largest = pool.chunks().filter(|chunk| !chunk.2).map(|chunk| chunk.0).max().unwrap_or(0);
        let left = [0, 0, 777, self.below(1 << 24)];
        pool.limit = pool.size() + left[self.below(4) as usize];
        // More than the largest hole, else it would not have failed.
        let bits = 1 + self.below(25);
        pool.request = largest + 1 + self.below(1 << bits);
        pool
    }
}

/// What is told is true; figures that are not told are.
fn assert_true(failure: &Failure, pool: &Pool, context: &str) -> Conclusion {
    let holds = |name: &str, told: Option<SizeRange>, truth: u64| {
        if let Some(told) = told {
            assert!(
                told.low.0 <= truth && truth <= told.high.0,
                "{name} is {truth}, told {told:?}: {context}"
            );
        }
    };
    let conclusion = conclude(failure, None);
    let left = (pool.limit - pool.size()) / 256 * 256;
    holds("requested", failure.requested, pool.request);
    holds("rounded", failure.rounded, pool.rounded());
    holds("limit", failure.limit, pool.limit);
    holds("pool", failure.pool, pool.size());
    holds("in use", failure.in_use, pool.in_use());
    holds("free", failure.free, pool.free());
    holds("slack", failure.slack(), pool.slack());
    holds("peak", failure.peak_in_use, pool.in_use() + 256);
    holds("unallocated", conclusion.unallocated, left);
    let largest = pool.chunks().filter(|chunk| !chunk.2).map(|chunk| chunk.0).max().unwrap_or(0);
    holds("largest free", failure.largest_free, largest);
    holds("short by", conclusion.short_by, pool.rounded().saturating_sub(pool.free() + left));
    if let Some(layout) = &failure.layout {
        let told: Vec<Vec<(u64, bool)>> = layout
            .regions
            .iter()
            .map(|region| region.chunks.iter().map(|chunk| (chunk.size.0, chunk.in_use)).collect())
            .collect();
        let truth: Vec<Vec<(u64, bool)>> = pool
            .regions
            .iter()
            .map(|region| region.iter().map(|chunk| (chunk.0, chunk.2)).collect())
            .collect();
        assert_eq!(told, truth, "{context}");
    }
    if let Some(name) = &failure.allocator {
        assert_eq!(name, "GPU_0_bfc", "{context}");
    }
    // Rounding may leave two open; the true one is always among them.
    match conclusion.open.as_slice() {
        [] => {}
        [verdict] => assert_eq!(*verdict, pool.verdict(), "{context}"),
        open => assert!(open.contains(&pool.verdict()), "{open:?}: {context}"),
    }
    conclusion
}

/// The one failure of a text, with everything known.
fn assert_whole(text: &[u8], pool: &Pool, dialect: Dialect, context: &str) {
    let failures = read(text);
    assert_eq!(failures.list.len(), 1, "{context}\n{}", String::from_utf8_lossy(text));
    let failure = &failures.list[0];
    let conclusion = assert_true(failure, pool, context);
    assert!(
        failure.sums.is_some() && failure.layout.is_some(),
        "{context}\n{}",
        String::from_utf8_lossy(text)
    );
    assert_eq!(failure.rounded, Some(SizeRange::exact(Bytes(pool.rounded()))), "{context}");
    assert_eq!(failure.free, Some(SizeRange::exact(Bytes(pool.free()))), "{context}");
    assert!(failure.limit.is_some() && failure.slack().is_some(), "{context}");
    if matches!(dialect, Dialect::B | Dialect::C) {
        assert_eq!(failure.limit, Some(SizeRange::exact(Bytes(pool.limit))), "{context}");
        assert!(conclusion.short_by.and_then(SizeRange::value).is_some(), "{context}");
    }
    let word = match dialect {
        Dialect::A => "bfc-a",
        Dialect::B => "bfc-b",
        Dialect::C | Dialect::CRounded => "bfc-c",
        Dialect::D => "bfc-d",
    };
    // A pool without a live chunk tells little of who wrote it.
    if pool.chunks().any(|chunk| chunk.2) {
        assert_eq!(failure.dialect.word(), word, "{context}");
    }
}

#[test]
fn every_dialect_is_read_whole() {
    let mut random = Random(1);
    let mut verdicts = std::collections::BTreeMap::new();
    for turn in 0..400 {
        let pool = random.pool();
        *verdicts.entry(pool.verdict()).or_insert(0) += 1;
        for dialect in DIALECTS {
            for (name, prefix) in [
                ("classic", &classic as &dyn Fn(usize) -> String),
                ("absl", &absl),
                ("bare", &|_| String::new()),
            ] {
                let text = pool.text(dialect, prefix);
                assert_whole(text.as_bytes(), &pool, dialect, &format!("{turn} {dialect:?} {name}"));
            }
        }
    }
    assert!(verdicts.len() == 4 && verdicts.values().all(|&count| count > 20), "{verdicts:?}");
}

/// Breaks lines as a terminal of that width does.
fn wrapped(text: &str, width: usize) -> String {
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

#[test]
fn broken_coloured_and_marked_lines_are_put_together() {
    let mut random = Random(2);
    for turn in 0..60 {
        let pool = random.pool();
        for dialect in DIALECTS {
            let text = pool.text(dialect, &classic);
            for width in [72, 79, 80, 97, 100, 120, 131, 160] {
                assert_whole(
                    wrapped(&text, width).as_bytes(),
                    &pool,
                    dialect,
                    &format!("{turn} {dialect:?} width {width}"),
                );
            }
            let windows = text.replace('\n', "\r\n");
            assert_whole(windows.as_bytes(), &pool, dialect, "CRLF");
            let coloured: String = text.lines().map(|line| format!("\x1b[33m{line}\x1b[0m\n")).collect();
            assert_whole(coloured.as_bytes(), &pool, dialect, "colours");
            for tag in ["[1,0]<stderr>:", "(worker pid=812) ", "[rank3]: "] {
                let tagged: String = text.lines().map(|line| format!("{tag}{line}\n")).collect();
                assert_whole(tagged.as_bytes(), &pool, dialect, tag);
            }
            let bars: String =
                text.lines().map(|line| format!("{line}\n 17/100 [==>.....] - ETA: 12s\r")).collect();
            assert_whole(bars.as_bytes(), &pool, dialect, "progress bars");
            assert_whole(&gzip(text.as_bytes()), &pool, dialect, "gzip");
        }
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_prefix_on_every_piece_is_no_new_line() {
    let pool = Random(8).pool();
    for dialect in DIALECTS {
        let text = pool.text(dialect, &absl);
        let mut broken = String::new();
        for line in text.lines() {
            let Some((prefix, message)) = line.split_once("] ") else {
                writeln!(broken, "{line}").unwrap();
                continue;
            };
            for piece in message.as_bytes().chunks(40) {
                writeln!(broken, "{prefix}] {}", String::from_utf8_lossy(piece)).unwrap();
            }
        }
        assert_whole(broken.as_bytes(), &pool, dialect, "a prefix on every piece");
    }
}

#[test]
fn foreign_lines_change_nothing() {
    const FOREIGN: [&str; 8] = [
        "Epoch 3/10",
        "12345",
        "WARNING:root:something else",
        "2020-05-01 12:00:00.123456: I tensorflow/core/platform/cpu_feature_guard.cc:142] This binary is optimized",
        "  loss: 0.1234 - accuracy: 0.99",
        "",
        "Limit: 7",
        "I0000 00:00:1794708904.662683    9999 device.cc:12] Created device with 1024 MB memory",
    ];
    let mut random = Random(3);
    for turn in 0..200 {
        let pool = random.pool();
        for dialect in DIALECTS {
            // Those with a thread in their prefix are told apart by it; the block of statistics has none.
            let text = pool.text(dialect, &absl);
            let mut mixed = String::new();
            let mut is_stats = false;
            for line in text.lines() {
                is_stats = line.ends_with("Stats: ") || is_stats && !line.starts_with("I0000");
                writeln!(mixed, "{line}").unwrap();
                if !is_stats && random.below(3) == 0 {
                    writeln!(mixed, "{}", FOREIGN[random.below(8) as usize]).unwrap();
                }
            }
            let failures = read(mixed.as_bytes());
            assert_eq!(failures.list.len(), 1);
            assert_true(&failures.list[0], &pool, &format!("{turn} {dialect:?}\n{mixed}"));
            assert!(failures.list[0].sums.is_some(), "{turn} {dialect:?}\n{mixed}");
        }
    }
}

#[test]
fn a_cut_anywhere_leaves_only_what_is_true() {
    let mut random = Random(4);
    let mut pools: Vec<Pool> = (0..8).map(|_| random.pool()).collect();
    // Every byte of the smallest; every few of others.
    pools.sort_by_key(|pool| pool.chunks().count());
    pools.truncate(3);
    for (turn, pool) in pools.iter().enumerate() {
        for dialect in DIALECTS {
            for text in [pool.text(dialect, &classic), wrapped(&pool.text(dialect, &absl), 80)] {
                let step = if turn == 0 { 1 } else { 29 };
                for at in (0..=text.len()).step_by(step) {
                    for (part, side) in [(&text[..at], "begin"), (&text[at..], "end")] {
                        for failure in &read(part.as_bytes()).list {
                            assert_true(failure, pool, &format!("{side} {at} {dialect:?}\n{part}"));
                        }
                    }
                }
            }
        }
    }
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
fn dumps_of_two_threads_are_told_apart() {
    let mut random = Random(5);
    for turn in 0..100 {
        let (one, other) = (random.pool(), random.pool());
        let first = one.text(Dialect::C, &absl);
        let second = other
            .text(Dialect::C, &|line| absl(line).replace("4411", "4412"))
            .replace("GPU_0_bfc", "GPU_1_bfc");
        // Messages of several lines are written at once.
        let messages = |text: &str| -> Vec<String> {
            let mut all: Vec<String> = Vec::new();
            for line in text.lines() {
                if line.starts_with("I0000") || all.is_empty() {
                    all.push(String::new());
                }
                let last = all.last_mut().unwrap();
                writeln!(last, "{line}").unwrap();
            }
            all
        };
        let (mut a, mut b) =
            (messages(&first).into_iter().peekable(), messages(&second).into_iter().peekable());
        let mut mixed = String::new();
        while a.peek().is_some() || b.peek().is_some() {
            let turn = if a.peek().is_none() {
                1
            } else if b.peek().is_none() {
                0
            } else {
                random.below(2)
            };
            mixed += &if turn == 0 { a.next() } else { b.next() }.unwrap();
        }
        let mut failures = read(mixed.as_bytes()).list;
        failures.sort_by_key(|failure| failure.allocator.clone());
        assert_eq!(failures.len(), 2, "{turn}");
        assert_true(&failures[0], &one, "first");
        failures[1].allocator = Some("GPU_0_bfc".to_owned());
        assert_true(&failures[1], &other, "second");
        assert!(failures.iter().all(|failure| failure.sums.is_some()), "{turn}\n{mixed}");
    }
}

#[test]
fn an_error_of_one_thread_may_come_anywhere_in_the_dump_of_another() {
    let mut random = Random(7);
    let (one, other) = (random.pool(), random.pool());
    let error = |pool: &Pool| {
        let bytes = pool.request;
        format!(
            "OOM when allocating tensor with shape[{bytes}] and type uint8 on /device:GPU:0 by allocator GPU_0_bfc\n"
        )
    };
    let first = one.text(Dialect::C, &absl);
    // Of another size, and of the same.
    for other in [&other, &one] {
        let second = other.text(Dialect::C, &|line| absl(line).replace("4411", "4412"));
        let lines: Vec<&str> = second.split_inclusive('\n').collect();
        for at in 0..=lines.len() {
            let (before, after) = lines.split_at(at);
            let text = [&*first, &before.concat(), &error(&one), &after.concat(), &error(other)].concat();
            let failures = read(text.as_bytes()).list;
            assert_eq!(failures.len(), 2, "{at}\n{text}");
            assert_true(&failures[0], &one, "first");
            assert_true(&failures[1], other, "second");
            assert!(failures.iter().all(|failure| failure.sums.is_some()), "{at}\n{text}");
        }
    }
}

#[test]
fn failures_far_apart_in_a_long_log_are_all_found() {
    let mut random = Random(6);
    let pools: Vec<Pool> = (0..20).map(|_| random.pool()).collect();
    let mut text = String::new();
    for (turn, pool) in pools.iter().enumerate() {
        for step in 0..random.below(40_000) {
            writeln!(text, "step {step} of epoch {turn}: out of patience, not out of mem; trying to learn")
                .unwrap();
        }
        text += &pool.text(DIALECTS[turn % 5], &classic);
    }
    let failures = read(text.as_bytes());
    assert_eq!(failures.list.len(), pools.len());
    for (failure, pool) in failures.list.iter().zip(&pools) {
        assert_true(failure, pool, "long");
        assert!(failure.sums.is_some());
        let line = failure.witnesses[0].line.unwrap() as usize;
        assert!(text.lines().nth(line - 1).unwrap().contains("ran out of memory"), "{line}");
    }
}

#[test]
fn a_chunk_that_is_missing_or_changed_is_noticed() {
    let pool = Random(9).pool();
    let text = pool.text(Dialect::CRounded, &absl);
    let lines: Vec<&str> = text.lines().collect();
    for (i, line) in lines.iter().enumerate() {
        if !line.contains(" of size ") || line.contains("Chunks of size") {
            continue;
        }
        let mut without = lines.clone();
        without.remove(i);
        let failures = read(without.join("\n").as_bytes());
        assert!(failures.list.iter().all(|failure| failure.sums.is_none()), "without {line}");
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

/// A pool that may grow to 8 GiB has 2 GiB and wants one more; the driver has none, because of a neighbour.
#[test]
fn a_driver_that_refuses_is_the_devices_fault() {
    let pool = Pool { regions: vec![vec![(2 << 30, 2 << 30, true)]], limit: 8 << 30, request: 1 << 30 };
    for dialect in DIALECTS {
        let failures = read(pool.text(dialect, &classic).as_bytes());
        let conclusion = assert_true(&failures.list[0], &pool, "device");
        assert_eq!(conclusion.verdict, Some(Verdict::Device), "{dialect:?}");
    }
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

// --- Dumps ---

/// A dump of the pool, with the addresses that its text has.
fn dump(pool: &Pool, is_changed: bool) -> Vec<u8> {
    let mut out = Message::default().bytes(1, "GPU_0_bfc");
    let mut address = 0x7f5b_581f_b000u64;
    for (number, region) in pool.regions.iter().enumerate() {
        for (i, &(size, requested, in_use)) in region.iter().enumerate() {
            let in_use = in_use ^ (is_changed && number == 0 && i == 0);
            let chunk = Message::default().varint(1, address).varint(2, size).varint(3, requested);
            out = out.message(3, &chunk.int(4, -1).varint(8, u64::from(in_use)));
            address += size;
        }
        address += 1 << 22;
    }
    let first = pool.regions[0][0];
    let in_use = match (is_changed, first.2) {
        (true, true) => pool.in_use() - first.0,
        (true, false) => pool.in_use() + first.0,
        _ => pool.in_use(),
    };
    out.message(5, &Message::default().varint(1, 27).varint(2, in_use).varint(3, pool.in_use() + 256)).0
}

#[test]
fn text_and_dump_of_one_failure_are_one() {
    let mut random = Random(7);
    for turn in 0..200 {
        let pool = random.pool();
        for dialect in [Dialect::C, Dialect::CRounded, Dialect::D] {
            let mut failures = read(pool.text(dialect, &absl).as_bytes());
            // One at each attempt.
            for micros in [1_000_000, 1_000_100, 11_000_000, 11_000_050] {
                let mut one = read(&dump(&pool, false));
                assert_eq!(one.list.len(), 1);
                one.list[0].witnesses[0].micros = Some(micros);
                failures.append(one);
            }
            witness::join(&mut failures);
            assert_eq!(failures.list.len(), 1, "{turn}");
            let failure = &failures.list[0];
            assert_eq!(failure.attempts, 4);
            let conclusion = assert_true(failure, &pool, "joined");
            assert_eq!(
                failure.slack(),
                Some(SizeRange::exact(Bytes(pool.slack()))),
                "the dump tells it to the byte"
            );
            if conclusion.unallocated.is_some_and(|told| told.value().is_some()) {
                assert_eq!(conclusion.verdict, Some(pool.verdict()));
            }
            assert!(failures.warnings.as_slice().is_empty(), "{:?}", failures.warnings);
        }
    }
}

#[test]
fn a_dump_that_disagrees_with_the_text_is_told() {
    let pool = Pool {
        regions: vec![
            vec![(4096, 4000, true), (512, 512, false), (1024, 1000, true)],
            vec![(2048, 2048, true)],
        ],
        limit: 7680,
        request: 4096,
    };
    let mut failures = read(pool.text(Dialect::C, &absl).as_bytes());
    failures.append(read(&dump(&pool, true)));
    witness::join(&mut failures);
    assert_eq!(failures.list.len(), 1);
    let codes: Vec<_> = failures.warnings.as_slice().iter().map(|warning| warning.code).collect();
    assert_eq!(codes, ["dump-disagrees"]);
    assert_eq!(failures.list[0].in_use, Some(SizeRange::exact(Bytes(3072))), "the dump is used");
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
