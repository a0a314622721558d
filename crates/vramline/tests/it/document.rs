//! The JSON document, its table of fields and `docs/reference/json.md` say the same.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;
use vramline::Reading;
use vramline::analysis::diff::{DiffOptions, RunSide, diff};
use vramline::analysis::held::GroupBy;
use vramline::analysis::oom::oom;
use vramline::analysis::plan::{self, PlanOptions, ProbeRead};
use vramline::analysis::replay::{ExtraRequest, ReplayOptions, replay};
use vramline::analysis::report::ReportOptions;
use vramline::analysis::verify::{Measured, Predicted, verify};
use vramline::document::{Described, Entry, entries, typescript};
use vramline::names::Names;
use vramline::plan::{Compiled, Fix};
use vramline::snapshot::{Held, Snapshot, Still, StillPool};
use vramline::source::{Content, read_programs};
use vramline::stack::{Stack, Stacks};
use vramline::units::{Bytes, Nanos, capitalised};
use vramline::view::dataset::{DatasetTable, PARTITIONS, SCHEMA, TableColumn};
use vramline::view::diff::Diff;
use vramline::view::doctor::Doctor;
use vramline::view::oom::OomReport;
use vramline::view::pack::PackView;
use vramline::view::plan::PlanView;
use vramline::view::replay::Replay;
use vramline::view::report::Report;
use vramline::view::snapshot::SnapshotReport;
use vramline::view::top::Top;
use vramline::view::verify::Verify;
use vramline::warning::Warnings;

use crate::growth::ragged_steps;
use crate::{checked_analysis, checked_report, fixture, moments, ranks, report_on, root, table};

/// The paths of all values in a document.
pub(crate) fn paths(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                paths(value, &path, found);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().for_each(|item| paths(item, &format!("{at}[]"), found));
        }
        _ => {
            found.insert(at.to_owned());
        }
    }
}

/// A file that knows one moment, with a block of each kind.
fn still() -> Reading {
    let (mut names, mut stacks) = (Names::default(), Stacks::default());
    let outer = stacks.push(Stack::EMPTY, names.intern("main train.py:3"));
    let mut placed = Held::bare(Bytes(1000), Bytes(1024), "a stack");
    placed.stack = stacks.push(outer, names.intern("step train.py:12"));
    placed.count = 2;
    let held = vec![placed, Held::bare(Bytes(256), Bytes(256), "a size alone")];
    let pool = StillPool {
        name: "GPU_0_bfc".to_owned(),
        device: "GPU:0".to_owned(),
        limit: None,
        lifetime_peak: Some(Bytes(2048)),
        fragmentation: None,
        allocs: Some(3),
        snapshot: Snapshot { time: None, in_use: Bytes(1280), before_recording: Bytes::ZERO, held },
    };
    let still = Still {
        format: "memory-dump",
        framework: None,
        names,
        stacks,
        pools: vec![pool],
        warnings: Warnings::default(),
    };
    Reading::of("still".into(), Content::Still(Box::new(still)))
}

#[test]
fn one_moment_is_reported_like_a_peak() {
    let report = checked_report(&still(), &ReportOptions { by: GroupBy::Stack, ..ReportOptions::default() });
    assert_eq!(report.source.format, "memory-dump");
    let pool = &report.pools[0];
    let held = pool.at_peak.as_ref().unwrap();
    assert_eq!(
        (held.named_bytes, held.unnamed_bytes, held.slack_bytes),
        (Bytes(1000), Bytes(256), Bytes(24))
    );
    assert_eq!(held.rows[0].stack, ["step train.py:12", "main train.py:3"]);
    assert_eq!(held.rows[0].count, 2);
    assert_eq!((held.time_ns, pool.frees, pool.from_start), (None, None, None));
}

#[test]
fn every_field_is_in_the_table_and_every_entry_in_a_report() {
    let mut found = BTreeSet::new();
    for name in [
        "jax0112_h200_growth_window.xplane.pb",
        "tf221_cpu_cnn_from_start.xplane.pb",
        "tf221_cpu_keras.vram",
        "torch/out_of_memory.pickle.gz",
        "jax0112_h200_convolution.xplane.pb.gz",
        "beside/torch_graph.vram",
    ] {
        let wanted = ReportOptions { top: Some(5), at: Some(Nanos(20_000_000)), ..ReportOptions::default() };
        let report = checked_report(&vramline::read(&fixture(name)).unwrap(), &wanted);
        paths(&serde_json::to_value(&report).unwrap(), "", &mut found);
    }
    let ragged = report_on(&ragged_steps(), &ReportOptions::default());
    let report = checked_report(&still(), &ReportOptions::default());
    for report in ranks::samples().into_iter().chain([ragged, report]) {
        paths(&serde_json::to_value(&report).unwrap(), "", &mut found);
    }
    // `--at` has the fields of the peak, as the table says.
    let found: BTreeSet<String> =
        found.into_iter().map(|path| path.replace("pools[].at.", "pools[].at_peak.")).collect();
    let table: BTreeSet<String> =
        table::<Report>().into_iter().filter(|path| !path.starts_with("pools[].at.")).collect();
    // A list or an object may be empty in one report and filled in another.
    let holds = |outer: &str, path: &str| {
        path.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.') || rest.starts_with("[]"))
    };
    let whole = |path: &str| table.iter().any(|other| holds(path, other));
    let is_at = |path: &str| path == "pools[].at";
    let missing: Vec<_> =
        found.iter().filter(|path| !table.contains(*path) && !whole(path) && !is_at(path)).collect();
    assert!(missing.is_empty(), "in a report but not in the table: {missing:?}");
    let unused: Vec<_> = table.iter().filter(|path| !found.contains(*path) && !whole(path)).collect();
    assert!(unused.is_empty(), "in the table but in no report: {unused:?}");
}

/// A null has its reason in `unknowns`.
#[test]
fn every_null_is_explained() {
    fn nulls(value: &Value, at: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                map.iter().for_each(|(key, value)| nulls(value, &format!("{at}.{key}"), found));
            }
            Value::Array(items) => {
                let is_pool = at == ".pools";
                for (i, item) in items.iter().enumerate() {
                    nulls(item, &if is_pool { format!("{at}[{i}]") } else { format!("{at}[]") }, found);
                }
            }
            Value::Null => {
                found.insert(at.trim_start_matches('.').to_owned());
            }
            _ => {}
        }
    }
    for entry in fs::read_dir(root().join("fixtures")).unwrap() {
        let path = entry.unwrap().path();
        if ![".xplane.pb", ".vram"].iter().any(|end| path.to_string_lossy().ends_with(end)) {
            continue;
        }
        check(&vramline::read(&path).unwrap(), &path);
    }
    check(&still(), Path::new("still"));
    fn check(reading: &Reading, path: &Path) {
        let mut report = serde_json::to_value(checked_report(reading, &ReportOptions::default())).unwrap();
        let unknowns = report["unknowns"].take();
        let explained: BTreeSet<&str> =
            unknowns.as_array().unwrap().iter().map(|unknown| unknown["path"].as_str().unwrap()).collect();
        let mut found = BTreeSet::new();
        nulls(&report, "", &mut found);
        found.remove("unknowns");
        let unexplained: Vec<_> = found.iter().filter(|path| !explained.contains(path.as_str())).collect();
        assert!(unexplained.is_empty(), "{}: {unexplained:?}", path.display());
    }
}

/// Post-mortems that have something in each of their lists.
fn post_mortems() -> Vec<Value> {
    const PEAK: &str = "Out of memory while trying to allocate 6291456 bytes.\nPeak buffers:\n\tBuffer 1:\n\t\tSize: 6.00MiB\n\t\tShape: f32[3]\n";
    let scratch = tempfile::tempdir().unwrap();
    let peak = scratch.path().join("peak.log");
    fs::write(&peak, PEAK).unwrap();
    // Two holes of a region with a live chunk between them.
    let fragmented = scratch.path().join("fragmented.log");
    let chunk =
        |word: &str, address: u64, size: u64| format!("{word} at {address:x} of size {size} next 1\n");
    let text =
        "Allocator (GPU_0_bfc) ran out of memory trying to allocate 512B (rounded to 512)requested by op A\n\
                Bin for 512B was 512B, Chunk State: \nNext region of size 768\n"
            .to_owned()
            + &chunk("Free ", 4096, 256)
            + &chunk("InUse", 4352, 256)
            + &chunk("Free ", 4608, 256)
            + "     Summary of in-use Chunks by size: \n\
           Total bytes in pool: 768 memory_limit_: 768 available bytes: 0 curr_region_allocation_bytes_: 256\n";
    fs::write(&fragmented, text).unwrap();
    let files = [
        "tf221_cpu_oom.log",
        "tf221_cpu_oom.memorydump.pb",
        "jax0112_h200_oom_short.log",
        "jax0112_h200_too_large.log",
    ]
    .map(fixture);
    let read = |path: &std::path::PathBuf| {
        let found = vramline::read_failures(std::slice::from_ref(path), None, &Default::default()).unwrap();
        serde_json::to_value(OomReport::from(&oom(&found))).unwrap()
    };
    let (held, killed) = (scratch.path().join("held.vram"), scratch.path().join("killed.vram"));
    [&held, &killed].into_iter().for_each(|folder| fs::create_dir(folder).unwrap());
    moments::ran_out(&held);
    moments::was_killed(&killed);
    files.iter().chain([&peak, &fragmented, &held, &killed]).map(read).collect()
}

#[test]
fn the_post_mortem_is_in_its_table_too() {
    let mut found = BTreeSet::new();
    post_mortems().iter().for_each(|document| paths(document, "", &mut found));
    let table: BTreeSet<String> = table::<OomReport>();
    let holds = |outer: &str, path: &str| {
        path.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.') || rest.starts_with("[]"))
    };
    let whole = |path: &str| table.iter().any(|other| holds(path, other));
    let missing: Vec<_> = found.iter().filter(|path| !table.contains(*path) && !whole(path)).collect();
    assert!(missing.is_empty(), "in a post-mortem but not in the table: {missing:?}");
    let unused: Vec<_> = table.iter().filter(|path| !found.contains(*path) && !whole(path)).collect();
    // No warning is needed for these.
    let unused: Vec<_> = unused.into_iter().filter(|path| !path.starts_with("warnings[]")).collect();
    assert!(unused.is_empty(), "in the table but in no post-mortem: {unused:?}");
}

#[test]
fn every_null_of_a_post_mortem_is_explained() {
    for document in post_mortems() {
        let unknowns: BTreeSet<&str> = document["unknowns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|unknown| unknown["path"].as_str().unwrap())
            .collect();
        for (i, failure) in document["failures"].as_array().unwrap().iter().enumerate() {
            for (field, value) in failure.as_object().unwrap() {
                let path = format!("failures[{i}].{field}");
                assert!(!value.is_null() || unknowns.contains(path.as_str()), "{path}");
            }
        }
    }
}

#[test]
fn every_field_of_a_replay_is_in_its_table() {
    let mut found = BTreeSet::new();
    let asked = [
        ("tf221_cpu_cnn_from_start.xplane.pb", vec!["limit=50MiB", "growth=off,limit=128MiB"]),
        ("tf221_cpu_mlp_window.xplane.pb", vec!["restart=on,limit=10MiB"]),
        ("jax0112_h200_growth_window.xplane.pb", vec![]),
        ("tf221_cpu_keras.vram", vec![]),
        ("tf221_cpu_mlp_nobfc_window.xplane.pb", vec![]),
        (
            "torch/random_streams.pickle.gz",
            vec!["limit=40MiB", "expandable=on", "allocator=cuda_malloc_async"],
        ),
        ("torch/late.pickle.gz", vec!["split_size=32MiB"]),
        ("torch/out_of_memory.pickle.gz", vec!["limit=2GiB"]),
    ];
    for (name, settings) in asked {
        let wanted = ReplayOptions {
            what_if: settings.into_iter().map(|setting| setting.parse().unwrap()).collect(),
            ask: Some(ExtraRequest { bytes: Bytes(1 << 50), at: Some(Nanos(20_000_000)), op: String::new() }),
            ..ReplayOptions::default()
        };
        let reading = vramline::read(&fixture(name)).unwrap();
        let document = Replay::from(&replay(&reading, &wanted).unwrap());
        paths(&serde_json::to_value(&document).unwrap(), "", &mut found);
    }
    let alike = |path: String| path.replace("before_last_growth", "at_peak").replace("at_end", "at_peak");
    let found: BTreeSet<String> = found.into_iter().map(alike).collect();
    let table: BTreeSet<String> = table::<Replay>().into_iter().map(alike).collect();
    // Empty lists and nulls stand for everything below them.
    let whole = |path: &str| {
        table.iter().any(|other| {
            other.starts_with(&format!("{}.", path.trim_end_matches("[]")))
                || other.starts_with(&format!("{path}[]"))
        })
    };
    let missing: Vec<_> = found.iter().filter(|path| !table.contains(*path) && !whole(path)).collect();
    assert!(missing.is_empty(), "in a replay but not in the table: {missing:?}");
    let unused: Vec<_> = table
        .iter()
        .filter(|path| !found.contains(*path) && !whole(path) && !path.starts_with("unknowns"))
        .collect();
    assert!(unused.is_empty(), "in the table but in no replay: {unused:?}");
}

#[test]
fn every_field_of_a_comparison_is_in_its_table_and_every_null_explained() {
    let side = |name: &str| RunSide {
        name: name.to_owned(),
        reports: vec![checked_analysis(&vramline::read(&fixture(name)).unwrap(), &ReportOptions::default())],
    };
    let sides = ["tf221_cpu_cnn_from_start.xplane.pb", "tf221_cpu_keras.vram", "tf221_cpu_oom.memorydump.pb"];
    let options = DiffOptions { fail_over: Some("1%".parse().unwrap()), ..DiffOptions::default() };
    let compared = |sides: &[RunSide]| serde_json::to_value(Diff::from(&diff(sides, &options))).unwrap();
    let document = compared(&sides.map(side));
    let mut found = BTreeSet::new();
    paths(&document, "", &mut found);
    let same = compared(&[side("tf221_cpu_keras.vram"), side("tf221_cpu_keras.vram")]);
    paths(&same, "", &mut found);
    let mut repeated = side("tf221_cpu_cnn_from_start.xplane.pb");
    repeated.reports.extend(side("tf221_cpu_keras.vram").reports);
    let noisy = compared(&[repeated, side("tf221_cpu_keras.vram")]);
    paths(&noisy, "", &mut found);
    for base in [&[500][..], &[500, 620]] {
        paths(&compared(&[base, &[600]].map(ranks::sample_to_compare)), "", &mut found);
    }
    // Empty lists of runs that are the same, or that have no ranks.
    found.remove("ranks");
    found.remove("unknowns");
    found.remove("alarms");
    found.remove("tolerated");
    found.remove("warnings");
    let table: BTreeSet<String> = table::<Diff>();
    let missing: Vec<_> = found.difference(&table).collect();
    assert!(missing.is_empty(), "in a comparison but not in the table: {missing:?}");
    let unused: Vec<_> = table.difference(&found).collect();
    assert!(unused.is_empty(), "in the table but in no comparison: {unused:?}");
    let unknowns = document["unknowns"].as_array().unwrap();
    for (field, is_list) in
        [("bytes", true), ("deltas_bytes", true), ("delta_bytes", false), ("spread_bytes", false)]
    {
        let is_null = |row: &Value| match &row[field] {
            Value::Array(items) => items.iter().any(Value::is_null),
            value => value.is_null(),
        };
        let path = if is_list { format!("rows[].{field}[]") } else { format!("rows[].{field}") };
        let is_explained = unknowns.iter().any(|unknown| unknown["path"] == path.as_str());
        assert_eq!(document["rows"].as_array().unwrap().iter().any(is_null), is_explained, "{field}");
    }
}

/// Fields that a document has and its table has not, and the other way round.
fn differences(document: &Value, table: &BTreeSet<String>) -> (Vec<String>, Vec<String>) {
    let mut found = BTreeSet::new();
    paths(document, "", &mut found);
    // Empty lists and nulls stand for everything below them.
    let is_in = |path: &str, other: &str| {
        ["[]", "."].iter().any(|below| path.starts_with(&format!("{other}{below}")))
    };
    let whole = |path: &str| table.iter().any(|other| is_in(other, path));
    let missing = found.iter().filter(|path| !table.contains(*path) && !whole(path)).cloned().collect();
    let is_below = |path: &String| found.iter().any(|other| is_in(path, other));
    let unused = table.iter().filter(|path| !found.contains(*path) && !is_below(path)).cloned().collect();
    (missing, unused)
}

#[test]
fn every_field_of_a_plan_and_of_its_verification_is_in_its_table_and_every_null_explained() {
    let probe = |batch: u64| ProbeRead {
        batch,
        file: format!("{batch}"),
        reading: vramline::read(&fixture(&format!("plan/tf221_cpu_autoencoder-{batch}.xplane.pb.gz")))
            .unwrap(),
    };
    let probes = [5, 7, 13].map(probe);
    for (limit, steps) in [(None, 4), (Some(Bytes(100 << 20)), 1000)] {
        let wanted = PlanOptions {
            batches: vec![104, 2000],
            limit,
            steps,
            curve: true,
            fixes: true,
            variable: "batch".to_owned(),
            pool: None,
        };
        let planned = plan::prepare(&probes, &wanted).unwrap();
        let document = serde_json::to_value(PlanView::from(plan::plan(&planned, &probes, &wanted))).unwrap();
        assert_eq!(differences(&document, &table::<PlanView>()), (vec![], vec![]));
        explains_nulls(&document);
    }
    let dump = |batch: u64| Compiled {
        batch,
        file: "dump".to_owned(),
        programs: read_programs(&fixture("plan/tf221_cpu_compiled-140.hlo.pb.gz")).unwrap(),
    };
    for limit in [None, Some(Bytes(50 << 20)), Some(Bytes(1 << 30))] {
        let wanted = PlanOptions { limit, variable: "batch".to_owned(), ..PlanOptions::default() };
        let shown = PlanView::from(plan::of_compiled(&[dump(140)], &wanted));
        let [one] = shown.compiled.as_slice() else { panic!("{shown:?}") };
        let sum = one.argument_bytes + one.result_bytes + one.temporary_bytes + one.constant_bytes;
        assert_eq!((sum, one.temporary_bytes), (one.peak_bytes, Bytes(70_408_424)));
        assert_eq!(one.fits, limit.filter(|limit| *limit < one.peak_bytes).map(|_| false));
        assert!(!shown.certain && shown.headline.contains("batch size 140"));
        let document = serde_json::to_value(shown).unwrap();
        assert_eq!(differences(&document, &table::<PlanView>()).0, Vec::<String>::new());
        explains_nulls(&document);
    }
    let mut planned = plan::prepare(&probes, &PlanOptions::default()).unwrap();
    planned.add_compiled(vec![dump(104)]);
    let wanted = PlanOptions { batches: vec![104], ..PlanOptions::default() };
    let document = serde_json::to_value(PlanView::from(plan::plan(&planned, &probes, &wanted))).unwrap();
    assert_eq!(differences(&document, &table::<PlanView>()).0, Vec::<String>::new());
    explains_nulls(&document);
    let predicted = Predicted {
        batch: 104,
        fixes: vec![Fix::OneThread],
        peak: Bytes(100),
        low: Bytes(90),
        high: Bytes(110),
        fixed_peak: None,
    };
    let (base, fixed) = (Measured::of(vec![Bytes(99)]), Measured::of(vec![Bytes(80), Bytes(70)]));
    let document = Verify::from(verify(&predicted, base, Some(fixed), 0.05));
    assert_eq!((document.measured_bytes, document.measured_saving_bytes), (Bytes(80), 19));
    let document = serde_json::to_value(document).unwrap();
    assert_eq!(differences(&document, &table::<Verify>()), (vec![], vec![]));
    explains_nulls(&document);
    let predicted = Predicted { fixed_peak: Some(Bytes(78)), ..predicted };
    let again = |tolerance| {
        verify(&predicted, Measured::of(vec![Bytes(99)]), Some(Measured::of(vec![Bytes(80)])), tolerance)
    };
    assert_eq!((again(0.05).agrees, again(0.01).agrees), (Some(true), Some(false)));
    // A saving of no more than runs of one job differ by, or where that is not known, may be none.
    let noisy = |base: &[u64]| {
        let base = Measured::of(base.iter().copied().map(Bytes).collect());
        let fixed = Measured::of(vec![Bytes(80)]);
        verify(&predicted, base, Some(fixed), 0.05).warnings.iter().any(|told| told.code == "noise")
    };
    assert!(noisy(&[60, 99, 120]) && noisy(&[99]) && !noisy(&[98, 99, 100]));
}

/// Every null of a document has its reason, under its own path.
fn explains_nulls(document: &Value) {
    fn nulls(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Null => drop(found.insert(path.to_owned())),
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(at, item)| nulls(item, &format!("{path}[{at}]"), found));
            }
            Value::Object(fields) => fields.iter().for_each(|(name, value)| {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                if name != "switch" {
                    nulls(value, &path, found);
                }
            }),
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    nulls(document, "", &mut found);
    let told = document["unknowns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|unknown| unknown["path"].as_str().unwrap().to_owned());
    assert_eq!(found, told.collect());
}

/// `docs/reference/json.md` holds the table of every document. With `VRAMLINE_WRITE_DOCS=1` the tables are written into it.
#[test]
fn the_docs_hold_the_tables() {
    let path = root().join("docs/reference/json.md");
    let mut docs = fs::read_to_string(&path).unwrap();
    let row = |entry: &Entry| format!("| `{}` | {} | {} |\n", entry.path, entry.unit, entry.meaning);
    for (name, entries) in [
        ("report", entries::<Report>()),
        ("oom", entries::<OomReport>()),
        ("snapshot", entries::<SnapshotReport>()),
        ("replay", entries::<Replay>()),
        ("doctor", entries::<Doctor>()),
        ("diff", entries::<Diff>()),
        ("plan", entries::<PlanView>()),
        ("top", entries::<Top>()),
        ("verify", entries::<Verify>()),
        ("pack", entries::<PackView>()),
    ] {
        let table: String = entries.iter().map(row).collect();
        let table = format!("| field | unit | meaning |\n|---|---|---|\n{table}\n");
        if std::env::var_os("VRAMLINE_WRITE_DOCS").is_some() {
            let heading = docs.find(&format!("## `{name}`")).unwrap();
            let begin = heading + docs[heading..].find("| field |").unwrap();
            let end = docs[begin..].find("\n\n").map_or(docs.len(), |end| begin + end + 2);
            docs.replace_range(begin..end, &table);
            fs::write(&path, docs.trim_end().to_owned() + "\n").unwrap();
        }
        let is_there = (docs.trim_end().to_owned() + "\n\n").contains(&table);
        assert!(
            is_there,
            "docs/reference/json.md does not hold the table of {name}: run this test with VRAMLINE_WRITE_DOCS=1"
        );
    }
}

/// The page's types are those of the documents. With `VRAMLINE_WRITE_DOCS=1` they are written.
#[test]
fn the_page_has_the_documents_types() {
    let path = root().join("web/src/documents.ts");
    let types = typescript(&[Report::shape(), OomReport::shape(), Diff::shape()]);
    let text = format!(
        "// The JSON documents, as Rust declares them. Written by a test: tests/it/document.rs of the core.\n\n{types}"
    );
    if std::env::var_os("VRAMLINE_WRITE_DOCS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let is_same = fs::read_to_string(&path).is_ok_and(|found| found == text);
    assert!(
        is_same,
        "web/src/documents.ts is older than the documents: run this test with VRAMLINE_WRITE_DOCS=1, then `make web`"
    );
}

/// `docs/reference/dataset.md` holds the table of every table. With `VRAMLINE_WRITE_DOCS=1` they are written into it.
#[test]
fn the_docs_hold_the_tables_of_a_dataset() {
    let path = root().join("docs/reference/dataset.md");
    let docs = fs::read_to_string(&path).unwrap();
    let row = |column: &TableColumn| {
        let null = if column.may_be_null { " or null" } else { "" };
        let why = column.null.map_or(String::new(), |reason| format!(". Null: {reason}"));
        format!("| `{}` | {}{null} | {}{why} |\n", column.name, column.kind.word(), column.meaning)
    };
    let table = |table: DatasetTable| {
        let columns: String = table.columns().iter().map(row).collect();
        format!(
            "### `{}`\n\n{}.\n\n| column | type | meaning |\n|---|---|---|\n{columns}",
            table.word(),
            capitalised(table.meaning())
        )
    };
    let partitions: String =
        PARTITIONS.iter().map(|(name, meaning)| format!("| `{name}` | text | {meaning} |\n")).collect();
    let tables: Vec<String> = DatasetTable::ALL.into_iter().map(table).collect();
    let written = format!(
        "## Tables\n\nSchema {SCHEMA}. Every table has these columns, which are the names of the folders:\n\n\
         | column | type | meaning |\n|---|---|---|\n{partitions}\n{}",
        tables.join("\n")
    );
    let (before, _) = docs.split_once("## Tables\n").unwrap();
    let expected = format!("{before}{written}");
    if std::env::var_os("VRAMLINE_WRITE_DOCS").is_some() {
        fs::write(&path, &expected).unwrap();
        return;
    }
    assert!(
        docs == expected,
        "docs/reference/dataset.md does not hold the tables: run this test with VRAMLINE_WRITE_DOCS=1"
    );
}
