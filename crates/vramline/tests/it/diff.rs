//! Comparisons: a seeded regression is named, repeats are no alarm, differences add up, and any two files can be compared.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use vramline::Reading;
use vramline::analysis::diff::{DiffBy, DiffOptions, Figure, Gate, RunSide, Threshold, names};
use vramline::analysis::report::{ReportAnalysis, ReportOptions};
use vramline::units::Bytes;
use vramline::view::diff::{Diff, DiffRow};

use crate::writer::{Plane, Value, memory_stats, space};
use crate::{checked_analysis, fixture};

fn diff(sides: &[RunSide], options: &DiffOptions) -> Diff {
    Diff::from(&vramline::analysis::diff::diff(sides, options))
}

/// A training of some steps in one pool: all ops are held at the end of each step's forward pass.
fn job(pool: &str, ops: &[(&str, i64)], steps: i64) -> ReportAnalysis {
    let mut plane = Plane::host();
    let mut events = Vec::new();
    let (mut time, mut in_use) = (1000, 0);
    for _ in 0..steps {
        for (is_free, word) in [(false, "MemoryAllocation"), (true, "MemoryDeallocation")] {
            for (number, (op, bytes)) in (1..).zip(ops) {
                in_use += if is_free { -*bytes } else { *bytes };
                let mut stats = memory_stats(pool, *bytes, *bytes, number << 30, in_use);
                stats.push(("tf_op", Value::Ref((*op).to_owned())));
                events.push(plane.event(word, time, 0, &stats));
                time += 1000;
            }
        }
    }
    plane.line("python", 5, &events);
    let path = PathBuf::from("memory.xplane.pb");
    let history = vramline::source::read_bytes(&space(&[&plane]), &path).expect("a trace");
    checked_analysis(&Reading::of(path, history), &ReportOptions::default())
}

const MIB: i64 = 1 << 20;

/// A model of twenty layers; one op of it may need more.
fn model(more: &[(usize, i64)]) -> Vec<(String, i64)> {
    let more: BTreeMap<usize, i64> = more.iter().copied().collect();
    let op = |(number, base): (usize, i64)| {
        (format!("model/dense_{number}/Relu"), base + more.get(&number).copied().unwrap_or(0))
    };
    (0..20).zip((2 * MIB..).step_by(256)).map(op).collect()
}

fn run(more: &[(usize, i64)]) -> ReportAnalysis {
    let ops = model(more);
    let ops: Vec<(&str, i64)> = ops.iter().map(|(op, bytes)| (op.as_str(), *bytes)).collect();
    job("GPU_0_bfc", &ops, 3)
}

fn side(name: &str, reports: Vec<ReportAnalysis>) -> RunSide {
    RunSide { name: name.to_owned(), reports }
}

fn over(text: &str) -> DiffOptions {
    DiffOptions { fail_over: Some(text.parse().unwrap()), ..DiffOptions::default() }
}

fn rows(document: &Diff, by: DiffBy) -> Vec<&DiffRow> {
    document.rows.iter().filter(|row| row.by == by).collect()
}

/// In every pool and run, each grouping of the peak adds up to it.
fn assert_adds_up(document: &Diff) {
    for peak in document.rows.iter().filter(|row| row.by == DiffBy::Device && row.figure == Figure::Peak) {
        for by in [DiffBy::Role, DiffBy::Op, DiffBy::Layer] {
            let of: Vec<&DiffRow> = rows(document, by)
                .into_iter()
                .filter(|row| row.pool == peak.pool && row.device == peak.device)
                .collect();
            for (number, bytes) in peak.bytes.iter().enumerate() {
                let Some(all) = of.iter().map(|row| row.bytes[number]).collect::<Option<Vec<Bytes>>>() else {
                    continue;
                };
                if !all.is_empty() {
                    assert_eq!(Some(all.into_iter().sum::<Bytes>()), *bytes, "{by:?} of {}", peak.pool);
                }
            }
        }
    }
}

#[test]
fn a_regression_of_three_percent_is_found_and_named() {
    // All other ops of the model stay as they are.
    let seeded = 20 * 2 * MIB * 3 / 100;
    for number in [0, 7, 19] {
        let sides = [side("A", vec![run(&[])]), side("B", vec![run(&[(number, seeded)])])];
        let document = diff(&sides, &over("2%"));
        assert_adds_up(&document);
        let op = format!("model/dense_{number}/Relu");
        assert!(
            document.headline.contains(&format!("most of it comes from op {op} (+1.20 MiB)")),
            "{}",
            document.headline
        );
        assert!(
            document.headline.starts_with("B uses 1.20 MiB (3.0 %) more than A"),
            "{}",
            document.headline
        );
        let first = rows(&document, DiffBy::Op)[0];
        assert_eq!((first.what.as_str(), first.delta_bytes), (op.as_str(), Some(seeded)));
        assert_eq!(first.layer, format!("dense_{number}"));
        assert!(rows(&document, DiffBy::Op)[1..].iter().all(|row| row.delta_bytes == Some(0)));
        assert_eq!(rows(&document, DiffBy::Layer)[0].delta_bytes, Some(seeded));
        assert_eq!(document.gate, Gate::Fail);
        assert_eq!(document.alarms[0].more_bytes, Bytes(seeded.unsigned_abs()));
        // The other way round it is less, and no alarm.
        let [a, b] = sides;
        let document = diff(&[b, a], &over("2%"));
        assert_eq!((document.gate, rows(&document, DiffBy::Op)[0].delta_bytes), (Gate::Pass, Some(-seeded)));
        assert!(
            document.headline.contains(&format!("less than B at the peak; most of it comes from op {op}"))
        );
    }
}

#[test]
fn the_gate_is_exact_to_the_byte() {
    let base = 20 * 2 * MIB + 190 * 256;
    for (text, allowed) in [("64KiB", 65_536), ("0.5%", base / 200), ("0%", 0)] {
        for (more, gate) in [(allowed, Gate::Pass), (allowed + 1, Gate::Fail)] {
            let sides = [side("A", vec![run(&[])]), side("B", vec![run(&[(3, more)])])];
            assert_eq!(diff(&sides, &over(text)).gate, gate, "{text} and {more} bytes");
        }
    }
    assert_eq!("2%".parse(), Ok(Threshold::Share(20_000)));
    assert_eq!(" 0.25 %".trim().parse(), Ok(Threshold::Share(2_500)));
    for text in
        ["", "%", "2.%", "-1%", "2%%", "0.00001%", "99999999999999999999%", "1844674407370955161%", "x"]
    {
        assert!(text.parse::<Threshold>().is_err(), "{text}");
    }
}

#[test]
fn what_repeats_differ_by_is_no_alarm() {
    let noisy =
        |shift: i64| (0..5).map(|number| run(&[(4, shift + number * 300 * 1024)])).collect::<Vec<_>>();
    // 1.2 MiB between the repeats, and 1 MiB between the runs: 2.5 % of the peak.
    let within = diff(&[side("A", noisy(0)), side("B", noisy(MIB))], &over("2%"));
    assert_eq!(within.gate, Gate::Pass);
    let peak = rows(&within, DiffBy::Device)[0];
    assert_eq!(
        (peak.delta_bytes, peak.spread_bytes, peak.within_spread),
        (Some(MIB), Some(Bytes(1_228_800)), true)
    );
    assert!(
        within.headline.contains("This is within the noise: repeats of one run differ by 1.17 MiB."),
        "{}",
        within.headline
    );
    // That it passes is not that it did not grow.
    let told: Vec<(&str, Bytes, &str)> =
        within.tolerated.iter().map(|one| (one.run.as_str(), one.more_bytes, one.text.as_str())).collect();
    let text = "GPU_0_bfc, peak of B: 41.6 MiB, 1.00 MiB (2.5 %) more than in the first run, but repeats of one run differ by 1.17 MiB";
    assert_eq!(told, [("B", Bytes(MIB.unsigned_abs()), text)]);
    // What is allowed anyway needs no excuse.
    assert!(diff(&[side("A", noisy(0)), side("B", noisy(MIB))], &over("2MiB")).tolerated.is_empty());
    // Without the repeats it would be one.
    let alone = [side("A", vec![run(&[])]), side("B", vec![run(&[(4, MIB)])])];
    assert_eq!(diff(&alone, &over("2%")).gate, Gate::Fail);
    // Beyond the spread it is one.
    let beyond = diff(&[side("A", noisy(0)), side("B", noisy(2 * MIB))], &over("2%"));
    assert_eq!((beyond.gate, rows(&beyond, DiffBy::Device)[0].within_spread), (Gate::Fail, false));
    // Repeats that do not differ allow nothing.
    let same = |more: i64| (0..3).map(|_| run(&[(4, more)])).collect::<Vec<_>>();
    assert_eq!(diff(&[side("A", same(0)), side("B", same(MIB))], &over("2%")).gate, Gate::Fail);
}

#[test]
fn the_median_of_repeats() {
    let base = 20 * 2 * MIB + 190 * 256;
    let repeats = |more: &[i64]| more.iter().map(|&more| run(&[(4, more)])).collect::<Vec<_>>();
    for (more, median) in [
        (&[100][..], 100),
        (&[0, MIB], MIB / 2),
        (&[MIB, 0], MIB / 2),
        (&[5, 8], 6),
        (&[9 * MIB, 0, 7], 7),
        (&[9 * MIB, 0, 7, 11], 9),
    ] {
        let sides = [side("A", repeats(&[0, 0])), side("B", repeats(more))];
        let document = diff(&sides, &DiffOptions::default());
        let peak = rows(&document, DiffBy::Device)[0];
        let bytes = |bytes: i64| Some(Bytes((base + bytes).unsigned_abs()));
        assert_eq!(peak.bytes, [bytes(0), bytes(median)], "{more:?}");
        assert_eq!(peak.low_bytes[1], bytes(*more.iter().min().unwrap()), "{more:?}");
        assert_eq!(peak.high_bytes[1], bytes(*more.iter().max().unwrap()), "{more:?}");
    }
}

#[test]
fn every_fixture_with_itself_is_the_same() {
    let folder = std::fs::read_dir(fixture("")).unwrap().map(|entry| entry.unwrap().path());
    let mut compared = 0;
    for path in folder {
        let Ok(reading) = vramline::read(&path) else { continue };
        let reports = || checked_analysis(&reading, &ReportOptions::default());
        let document = diff(&[side("A", vec![reports()]), side("B", vec![reports()])], &over("0%"));
        assert_adds_up(&document);
        for row in &document.rows {
            assert_eq!(row.bytes[0], row.bytes[1], "{}: {}", path.display(), row.what);
            assert!(row.delta_bytes.is_none_or(|delta| delta == 0), "{}: {}", path.display(), row.what);
        }
        assert!(document.alarms.is_empty());
        compared += 1;
    }
    assert!(compared > 15, "{compared}");
}

/// Any two files give a document whose sums hold; what cannot be compared is told.
#[test]
fn every_fixture_with_every_other() {
    let folder = std::fs::read_dir(fixture("")).unwrap().map(|entry| entry.unwrap().path());
    let sides: Vec<RunSide> = folder
        .filter_map(|path| {
            let reading = vramline::read(&path).ok()?;
            Some(side(
                &path.display().to_string(),
                vec![checked_analysis(&reading, &ReportOptions::default())],
            ))
        })
        .collect();
    let document = diff(&sides, &over("2%"));
    assert_adds_up(&document);
    assert!(document.rows.iter().all(|row| row.bytes.len() == sides.len()));
    let mut pairs: Vec<RunSide> = sides;
    while pairs.len() > 1 {
        let two = pairs.split_off(pairs.len() - 2);
        let document = diff(&two, &over("2%"));
        assert_adds_up(&document);
        let has_common = document.warnings.iter().all(|warning| warning.code != "no-common-pool");
        assert_eq!(document.gate == Gate::Unknown, !has_common, "{}", document.headline);
        pairs.extend(two.into_iter().take(1));
    }
}

#[test]
fn runs_without_a_common_pool() {
    let ops = [("a", 1000), ("b", 2000)];
    let sides =
        [side("A", vec![job("GPU_0_bfc", &ops, 2)]), side("B", vec![job("bfc_cpu_allocator", &ops, 2)])];
    let document = diff(&sides, &over("2%"));
    assert_eq!(
        (document.gate, document.headline.as_str()),
        (Gate::Unknown, "The runs have no pool in common.")
    );
    assert!(document.warnings.iter().any(|warning| warning.code == "no-common-pool"));
    // Another allocator on the same device is compared.
    let sides = [side("A", vec![job("GPU_0_bfc", &ops, 2)]), side("B", vec![job("gpu_async_0", &ops, 2)])];
    let document = diff(&sides, &over("2%"));
    assert_eq!((document.gate, rows(&document, DiffBy::Device)[0].pool.as_str()), (Gate::Pass, "GPU:0"));
}

/// A compiled program has several pools and no device: its temporaries are never compared with another's arguments.
#[test]
fn pools_without_a_device_meet_by_what_they_are_for() {
    let read = |path: &str| {
        let reading = vramline::read(&fixture(path)).unwrap();
        checked_analysis(&reading, &ReportOptions::default())
    };
    let (jax, tensorflow) =
        (|| read("jax0102_cpu_step.hlo.pb"), || read("plan/tf221_cpu_compiled-140.hlo.pb.gz"));
    let peak_of = |report: &ReportAnalysis, purpose: &str| {
        report.pools.iter().find(|pool| pool.name.ends_with(purpose)).and_then(|pool| pool.peak)
    };
    let document = diff(&[side("A", vec![jax()]), side("B", vec![tensorflow()])], &over("2%"));
    assert_adds_up(&document);
    let mut purposes = Vec::new();
    for row in rows(&document, DiffBy::Device) {
        assert_eq!(
            row.bytes,
            [peak_of(&jax(), &row.pool), peak_of(&tensorflow(), &row.pool)],
            "{}",
            row.pool
        );
        assert_eq!(row.what, format!("{}, peak", row.pool));
        purposes.push(row.pool.as_str());
    }
    assert_eq!(purposes, ["temporaries", "arguments", "results", "constants"]);
    assert!(
        document.headline.starts_with("B uses 67.1 MiB more than A at the peak of 'temporaries'"),
        "{}",
        document.headline
    );
    assert!(document.warnings.iter().any(|warning| warning.code == "other-programs"));
    // The same program again: pools have their own names.
    let document = diff(&[side("A", vec![jax()]), side("B", vec![jax()])], &over("0%"));
    assert_eq!(rows(&document, DiffBy::Device)[0].pool, "jit_step arguments");
    assert!(document.warnings.is_empty(), "{:?}", document.warnings);
    // Nothing of one purpose: nothing is compared, which is said.
    let only = |mut report: ReportAnalysis, purpose: &str| {
        report.pools.retain(|pool| pool.name.ends_with(purpose));
        report
    };
    let sides =
        [side("A", vec![only(jax(), "arguments")]), side("B", vec![only(tensorflow(), "temporaries")])];
    let document = diff(&sides, &over("2%"));
    assert_eq!(
        (document.gate, document.headline.as_str()),
        (Gate::Unknown, "The runs have no pool in common.")
    );
    let told = document.warnings.iter().find(|warning| warning.code == "no-common-pool").unwrap();
    assert!(told.text.contains("A has jit_step arguments; B has a_inference"), "{}", told.text);
}

#[test]
fn names_that_never_meet_are_compared_by_role() {
    let graph = [("model/dense/Relu", 4 * MIB), ("model/dense_1/Relu", 4 * MIB)];
    let eager = [("Relu", 8 * MIB), ("MatMul", 4 * MIB)];
    let sides =
        [side("graph", vec![job("GPU_0_bfc", &graph, 2)]), side("eager", vec![job("GPU_0_bfc", &eager, 2)])];
    let document = diff(&sides, &DiffOptions::default());
    assert!(document.warnings.iter().any(|warning| warning.code == "few-common-ops"));
    assert!(
        document.headline.starts_with("eager uses 4.00 MiB (50.0 %) more than graph"),
        "{}",
        document.headline
    );
    assert!(!document.headline.contains(" op "), "{}", document.headline);
    assert_eq!(document.gate, Gate::None);
}

/// PyTorch's backward pass has no Python frame: its tensors have a role and no name.
#[test]
fn what_has_no_name_is_told_by_its_role() {
    let of = |batch: u32| {
        let reading = vramline::read(&fixture(&format!("plan/torch2110_h200_small-{batch}.vram"))).unwrap();
        checked_analysis(&reading, &ReportOptions::default())
    };
    let document = diff(&[side("A", vec![of(2)]), side("B", vec![of(8)])], &DiffOptions::default());
    let first = rows(&document, DiffBy::Op)[0];
    assert_eq!((first.what.as_str(), first.role), ("(no name)", "gradients"));
    let role = rows(&document, DiffBy::Role).into_iter().find(|row| row.what == "gradients").unwrap();
    assert_eq!(role.delta_bytes, first.delta_bytes);
    assert!(
        document.headline.ends_with("; most of it comes from gradients (+73.6 MiB)."),
        "{}",
        document.headline
    );
    // Where no role is known either, that is said.
    let nameless = |bytes: i64| job("GPU_0_bfc", &[("", bytes), ("a", MIB)], 2);
    let sides = [side("A", vec![nameless(MIB)]), side("B", vec![nameless(3 * MIB)])];
    let document = diff(&sides, &DiffOptions::default());
    assert!(
        document.headline.ends_with("; most of it comes from (no name) (+2.00 MiB)."),
        "{}",
        document.headline
    );
}

/// Training, validation and prediction take turns: rows stand as they ran, also those that only a later run has.
#[test]
fn steps_stand_in_the_order_in_which_they_ran() {
    let reading = vramline::read(&fixture("tf221_cpu_keras.vram")).unwrap();
    let without = |is_left_out: fn(usize) -> bool| {
        let mut report = checked_analysis(&reading, &ReportOptions::default());
        let mut at = 0..;
        report.steps.retain(|_| !is_left_out(at.next().unwrap()));
        report
    };
    let whole = without(|_| false);
    assert!(whole.steps.is_sorted_by_key(|step| step.begin));
    let ran: Vec<_> =
        whole.steps.iter().map(|step| (Some(step.phase), step.epoch, Some(step.number))).collect();
    assert_eq!(ran.iter().map(|step| step.0).collect::<BTreeSet<_>>().len(), 3);
    let left_out: [fn(usize) -> bool; 5] =
        [|_| false, |at| at < 3, |at| at % 4 == 1, |at| (5..11).contains(&at), |at| at > 12];
    for of_first in left_out {
        for of_second in left_out {
            let sides = [side("A", vec![without(of_first)]), side("B", vec![without(of_second)])];
            let document = diff(&sides, &DiffOptions::default());
            let told: Vec<_> =
                rows(&document, DiffBy::Step).iter().map(|row| (row.phase, row.epoch, row.step)).collect();
            let both: Vec<_> = (0..)
                .zip(&ran)
                .filter(|(at, _)| !(of_first(*at) && of_second(*at)))
                .map(|(_, step)| *step)
                .collect();
            assert_eq!(told, both);
        }
    }
}

#[test]
fn only_the_rows_asked_for() {
    let sides = [side("A", vec![run(&[])]), side("B", vec![run(&[(1, 512)])])];
    let whole = diff(&sides, &DiffOptions::default());
    for by in [DiffBy::Role, DiffBy::Op, DiffBy::Layer, DiffBy::Step] {
        let document = diff(&sides, &DiffOptions { by: Some(by), ..DiffOptions::default() });
        assert!(document.rows.iter().all(|row| row.by == by || row.by == DiffBy::Device));
        assert_eq!(rows(&document, by).len(), rows(&whole, by).len());
        assert_eq!(document.headline, whole.headline);
    }
}

#[test]
fn runs_are_told_apart_by_name() {
    let of = |paths: &[&[&str]]| {
        names(&paths.iter().map(|side| side.iter().map(PathBuf::from).collect()).collect::<Vec<_>>())
    };
    assert_eq!(of(&[&["x/a.vram"], &["y/b.vram"]]), ["a.vram", "b.vram"]);
    assert_eq!(of(&[&["x/a.vram"], &["y/a.vram"]]), ["x/a.vram", "y/a.vram"]);
    assert_eq!(of(&[&["a.vram"], &["a.vram"]]), ["a.vram", "a.vram (2)"]);
    assert_eq!(of(&[&["a1.vram", "a2.vram"], &["b.vram"]]), ["a1.vram and 1 more", "b.vram"]);
    assert_eq!(
        of(&[&["a.vram", "b.vram"], &["a.vram", "c.vram"], &["a.vram"]]),
        ["a.vram and 1 more", "a.vram (2) and 1 more", "a.vram (3)"]
    );
}
