//! What TensorFlow and JAX say of a pool that ran out, written here in every dialect: whole, broken, cut and mixed, with dumps.
//!
//! Every byte of the pool is known, so that what is read can be compared with it: each figure is right or null, and the verdict is the
//! true one or none.

use std::fmt::Write;

use vramline::failure::{Failure, SizeRange};
use vramline::postmortem::{Conclusion, Verdict, conclude, witness};
use vramline::units::Bytes;

use crate::oom::{read, wrapped};
use crate::writer::Message;

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
