//! What `--redact` leaves: every figure, and nothing that people named.
//!
//! Two proofs for every real file: all documents have the same figures with and without; and where every text of a file is marked, as
//! if all of it were secret, no mark is left in any document.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use vramline::analysis::diff::{DiffOptions, RunSide, diff, names, pool_curves};
use vramline::analysis::doctor::{DeepLook, MachineLook};
use vramline::analysis::export;
use vramline::analysis::held::GroupBy;
use vramline::analysis::oom::oom;
use vramline::analysis::pack::{KnownNeed, PackJob, PackOptions, pack};
use vramline::analysis::picture::bounds::PAGE_PEAK_ROWS;
use vramline::analysis::picture::tiles::PictureTiles;
use vramline::analysis::plan::{self, PlanOptions, ProbeRead, prepare};
use vramline::analysis::reading::Host;
use vramline::analysis::redaction::Redaction;
use vramline::analysis::replay::{ReplayOptions, replay};
use vramline::analysis::report::{ReportOptions, report};
use vramline::names::Names;
use vramline::recording::folder::ProcessId;
use vramline::recording::live::News;
use vramline::recording::rows::{Mark, Moment, RecordedMarkKind};
use vramline::snapshot::{Held, Snapshot, Still, StillPool};
use vramline::source::driver::DriverError;
use vramline::source::{Content, SourceError};
use vramline::stack::{Stack, Stacks};
use vramline::units::{Bytes, Nanos};
use vramline::view::diff::Diff;
use vramline::view::doctor::Doctor;
use vramline::view::oom::OomReport;
use vramline::view::pack::PackView;
use vramline::view::plan::PlanView;
use vramline::view::replay::Replay;
use vramline::view::report::Report;
use vramline::view::tile::window_json;
use vramline::view::top::Top;
use vramline::view::{diff_page, export as rows, page};
use vramline::warning::{Warning, Warnings};
use vramline::{OutOfMemory, Reading, read_failures};

use crate::{doctor, fixture, root, top};

/// What stands for a secret, in every text of a file.
const SECRET: &str = "hunter";

/// Every file and recording that is there, those of the shared folders where they are.
fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let folders = ["fixtures", "fixtures/plan", "fixtures/torch", "../shared/fixtures", "../shared/wild/log"];
    let more = ["../shared/wild/prof", "../shared/wild/snap", "../shared/wild/xplane"];
    for folder in folders.into_iter().chain(more) {
        let Ok(entries) = std::fs::read_dir(root().join(folder)) else { continue };
        files.extend(entries.map(|entry| entry.unwrap().path()));
    }
    let is_read = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_other = [".md", ".py", ".json", ".jsonl"].iter().any(|ending| name.ends_with(ending));
        // Of the probes of a plan one will do.
        let is_probe = path.parent().is_some_and(|folder| folder.ends_with("plan"));
        let is_one = !is_probe || ["-2.", "-7.", "-20.", "-140."].iter().any(|batch| name.contains(batch));
        !is_other && is_one && (path.is_file() || name.ends_with(".vram"))
    };
    files.retain(is_read);
    files.sort();
    // Some files stand in two folders.
    let mut seen = BTreeSet::new();
    files.retain(|path| seen.insert(path.file_name().unwrap().to_owned()));
    assert!(files.len() > 40, "{}", files.len());
    files
}

/// Every document that can be made of a reading, each with its name; reports with these groupings.
fn documents(reading: Reading, groupings: &[GroupBy]) -> Vec<(String, Value)> {
    let mut all: Vec<(String, Value)> = Vec::new();
    for &by in groupings {
        let wanted = ReportOptions { by, at: Some(Nanos(1_000_000_000)), ..ReportOptions::default() };
        let document = Report::from(report(&reading, &wanted));
        all.push((format!("report by {by:?}"), serde_json::to_value(document).unwrap()));
    }
    let few = ReportOptions { top: Some(3), ..ReportOptions::default() };
    all.push((
        "report, 3 rows".to_owned(),
        serde_json::to_value(Report::from(report(&reading, &few))).unwrap(),
    ));
    if let Ok(pools) = export::pools(&reading, None) {
        let every: Vec<Value> =
            pools.iter().flat_map(rows::allocations).map(|row| serde_json::to_value(row).unwrap()).collect();
        all.push(("export".to_owned(), Value::Array(every)));
    }
    match replay(&reading, &ReplayOptions::default()) {
        Ok(analysis) => {
            all.push(("replay".to_owned(), serde_json::to_value(Replay::from(&analysis)).unwrap()));
        }
        Err(error) => all.push(("replay".to_owned(), json!(error.to_string()))),
    }
    let side = |name: &str| RunSide {
        name: name.to_owned(),
        reports: vec![report(&reading, &ReportOptions::default())],
    };
    let compared = diff(&[side("one"), side("other")], &DiffOptions::default());
    all.push(("diff".to_owned(), serde_json::to_value(Diff::from(&compared)).unwrap()));
    let curves: Vec<_> = [pool_curves(&reading), pool_curves(&reading)].into();
    all.push((
        "page of a diff".to_owned(),
        serde_json::from_str(&diff_page::payload(&compared, &curves)).unwrap(),
    ));
    let mut of_page =
        report(&reading, &ReportOptions { top: Some(PAGE_PEAK_ROWS), ..ReportOptions::default() });
    all.push(("page".to_owned(), serde_json::from_str(&page::payload(&reading, &mut of_page)).unwrap()));
    let tiles = PictureTiles::new(reading, of_page);
    if let Some(tile) = window_json(&tiles, 0, Nanos(0)..Nanos(2_000_000_000), 100) {
        all.push(("tile".to_owned(), serde_json::from_str(&tile).unwrap()));
    }
    all
}

/// The document of a job that is packed alone.
fn packed(job: PackJob) -> Value {
    let wanted = PackOptions { memory: Some(Bytes(80 << 30)), ..PackOptions::default() };
    match pack(&[job], &wanted) {
        Ok(packed) => serde_json::to_value(PackView::from(packed)).unwrap(),
        Err(error) => json!(error.hint()),
    }
}

fn post_mortem(read: &OutOfMemory) -> Value {
    serde_json::to_value(OomReport::from(&oom(read))).unwrap()
}

/// Fields whose texts are the same in both, because nobody but a framework or Vramline names them.
const STAYS: [&str; 27] = [
    "role",
    "dtype",
    "shape",
    "evidence",
    "phase",
    "how",
    "code",
    "word",
    "rule",
    "format",
    "framework",
    "clock",
    "python",
    "frameworks",
    "backend",
    "exit",
    "verdict",
    "preset",
    "source_of",
    "data",
    "base",
    "map",
    "dialect",
    "fix",
    "verify",
    "aggregated",
    "notes",
];

/// How two documents differ besides in private texts: they have the same lists and numbers, also within sentences.
fn differences(one: &Value, other: &Value, at: &str, found: &mut Vec<String>) {
    let field = at.rsplit('.').next().unwrap().split('[').next().unwrap();
    let is_same = match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let pairs = one.iter().zip(other);
            pairs.clone().for_each(|((key, value), (_, other))| {
                differences(value, other, &format!("{at}.{key}"), found);
            });
            one.len() == other.len() && pairs.clone().all(|((key, _), (other, _))| key == other)
        }
        (Value::Array(one), Value::Array(other)) => {
            let pairs = one.iter().zip(other).enumerate();
            pairs.for_each(|(number, (one, other))| {
                differences(one, other, &format!("{at}[{number}]"), found);
            });
            one.len() == other.len()
        }
        (Value::String(one), Value::String(other)) => {
            let is_same = !STAYS.contains(&field) || one == other;
            is_same && one.is_empty() == other.is_empty() && sizes(one) == sizes(other)
        }
        (one, other) => one == other,
    };
    if !is_same {
        // Data of charts is longer than any terminal.
        let short = |value: &Value| value.to_string().chars().take(200).collect::<String>();
        found.push(format!("{at}: {} and {}", short(one), short(other)));
    }
}

/// The sizes in a sentence: `1.5 MiB`, `12 %`.
fn sizes(text: &str) -> Vec<String> {
    let words: Vec<&str> = text.split(' ').collect();
    let is_unit = |word: &str| {
        let letters: String = word.chars().take_while(|c| c.is_ascii_alphabetic() || *c == '%').collect();
        ["B", "KiB", "MiB", "GiB", "TiB", "%", "bytes"].contains(&letters.as_str())
    };
    words.windows(2).filter(|pair| is_unit(pair[1])).map(|pair| pair.join(" ")).collect()
}

/// All texts of a document, one a line.
fn texts(value: &Value, into: &mut String) {
    match value {
        Value::String(text) => {
            into.push_str(text);
            into.push('\n');
        }
        Value::Array(all) => all.iter().for_each(|value| texts(value, into)),
        Value::Object(all) => all.values().for_each(|value| texts(value, into)),
        _ => {}
    }
}

/// What all documents of a path are, with and without what `change` does to it first; failures and packing among them.
fn both(
    path: &Path,
    groupings: &[GroupBy],
    change: &dyn Fn(&mut Reading),
    change_failures: &dyn Fn(&mut OutOfMemory),
) -> Vec<(String, Value, Value)> {
    let mut all = Vec::new();
    let read = || {
        let mut reading = vramline::read(path).ok()?;
        change(&mut reading);
        Some(reading)
    };
    if let (Some(plain), Some(mut redacted)) = (read(), read()) {
        Redaction::default().reading(&mut redacted);
        let pairs = documents(plain, groupings).into_iter().zip(documents(redacted, groupings));
        all.extend(pairs.map(|((name, plain), (_, redacted))| (name, plain, redacted)));
    }
    let job = || {
        let (name, file) = (marked("my job"), marked(&path.display().to_string()));
        Some(PackJob { name, file, known: KnownNeed::Run(Box::new(read()?)) })
    };
    // Packing looks for limits, which takes its time.
    let is_packed = path.extension().is_some_and(|extension| extension == "vram");
    if let (true, Some(plain), Some(mut redacted)) = (is_packed, job(), job()) {
        Redaction::default().job(&mut redacted);
        all.push(("pack".to_owned(), packed(plain), packed(redacted)));
    }
    let failures = || {
        let mut read = read_failures(&[path.to_owned()], Some(Bytes(8 << 30)), &Arc::default()).ok()?;
        change_failures(&mut read);
        Some(read)
    };
    if let (Some(plain), Some(mut redacted)) = (failures(), failures()) {
        Redaction::default().failures(&mut redacted);
        all.push(("oom".to_owned(), post_mortem(&plain), post_mortem(&redacted)));
    }
    all
}

/// Does something with every file, on all cores.
fn with_every_file(check: impl Fn(&Path, &mut Vec<String>) + Sync) {
    let (files, next, found) = (files(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut wrong = Vec::new();
            check(path, &mut wrong);
            found.lock().unwrap().extend(wrong);
        }
    };
    std::thread::scope(|threads| {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        (0..cores).for_each(|_| drop(threads.spawn(work)));
    });
    let found = found.into_inner().unwrap();
    assert!(found.is_empty(), "{} are wrong:\n{}", found.len(), found[..found.len().min(40)].join("\n"));
}

#[test]
fn figures_are_the_same_and_private_words_are_gone() {
    let all = [GroupBy::Op, GroupBy::Layer, GroupBy::Role, GroupBy::Stack];
    with_every_file(|path, wrong| {
        let private = vramline::read(path).map_or(BTreeSet::new(), |reading| private_words(&reading));
        for (name, plain, redacted) in both(path, &all, &|_| {}, &|_| {}) {
            let at = format!("{}: {name}", path.display());
            differences(&plain, &redacted, &at, wrong);
            let mut words = BTreeSet::new();
            named_words(&redacted, "", &mut words);
            let leaked: Vec<_> = words.intersection(&private).collect();
            wrong.extend((!leaked.is_empty()).then(|| format!("{at}: {leaked:?} are shown")));
        }
    });
}

/// Fields that hold names, not sentences.
const NAMES: [&str; 22] = [
    "op",
    "layer",
    "source",
    "variable",
    "stack",
    "name",
    "label",
    "host",
    "id",
    "files",
    "file",
    "command",
    "strings",
    "pool",
    "device",
    "program",
    "executable",
    "operator",
    "allocator",
    "runs",
    "launch",
    "forked_from",
];

/// The words of all names in a document.
fn named_words(value: &Value, field: &str, into: &mut BTreeSet<String>) {
    match value {
        // Names on the page stand beside sentences.
        Value::String(text) if field == "strings" && text.contains(' ') => {}
        Value::String(text) if NAMES.contains(&field) => into.extend(words_of(text).map(str::to_owned)),
        Value::Array(all) => all.iter().for_each(|value| named_words(value, field, into)),
        Value::Object(all) => all.iter().for_each(|(field, value)| named_words(value, field, into)),
        _ => {}
    }
}

/// The words of a text that have letters.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| word.contains(|c: char| c.is_alphabetic()))
}

/// Whether a word is a framework's: then it may be shown.
fn is_public(word: &str) -> bool {
    thread_local! {
        static KNOWN: RefCell<(Redaction, HashMap<String, bool>)> = RefCell::default();
    }
    KNOWN.with_borrow_mut(|(redaction, known)| {
        if let Some(&is_known) = known.get(word) {
            return is_known;
        }
        let mut is_kept = |text: &str| redaction.op(text) == text;
        let forms = ["", "/x", "[0]"].map(|behind| format!("{word}{behind}"));
        let is_name = forms.iter().any(|text| is_kept(text)) || is_kept(&format!("PjitFunction({word})"));
        let is_named = is_name || redaction.pool(word) == word || redaction.label(word) == word;
        // Words of placeholders and of Vramline's own, of PyTorch's own code, and those by which plans know layers.
        const OWN: &str = "function layer variable frame python PjitFunction XLA compiler xplane memorydump snapshot pickle prof vramline \
                           vram jit lambda torch framework program driver replay trace bool _ops redispatch empty_strided sum_dim_IntList \
                           normalization batchnorm layer_norm layernorm embedding compile_loss crossentropy backward";
        let letters = word.trim_end_matches(char::is_numeric);
        let is_type = ["int", "uint", "float", "bfloat"].contains(&letters);
        let is_own = OWN.split_whitespace().any(|own| own == word) || letters.ends_with("Backward");
        let is_known = is_named || is_type || is_own || word.starts_with("__inference_");
        known.insert(word.to_owned(), is_known);
        is_known
    })
}

/// Every private word in what was read: longer than three letters, and no framework's.
fn private_words(reading: &Reading) -> BTreeSet<String> {
    let mut texts: Vec<String> = Vec::new();
    let mut add = |text: &str| texts.push(text.to_owned());
    for host in &reading.hosts {
        let history = &host.trace.history;
        add(&host.path.display().to_string());
        add(&history.host);
        history.names.iter().for_each(|(_, text)| add(text));
        history.executables.iter().for_each(|executable| add(&executable.name));
    }
    for (path, still) in &reading.stills {
        add(&path.display().to_string());
        still.names.iter().for_each(|(_, text)| add(text));
        for held in still.pools.iter().flat_map(|pool| &pool.snapshot.held) {
            [&held.layer, &held.source, &held.variable].into_iter().for_each(|text| add(text));
        }
    }
    if let Some(recorded) = &reading.recorded {
        add(&recorded.path.display().to_string());
        if let Some(manifest) = &recorded.manifest {
            manifest.command.iter().chain([&manifest.cwd, &manifest.host]).for_each(|text| add(text));
            manifest.devices.iter().filter_map(|device| device.uuid.as_ref()).for_each(|uuid| add(uuid));
        }
        for process in &recorded.processes {
            add(process.id.host());
            let labels = process.marks.iter().filter_map(|mark| mark.label.as_ref());
            labels.filter(|label| Redaction::default().label(label) != **label).for_each(|label| add(label));
            for variable in process.inventories.iter().flat_map(|inventory| &inventory.variables) {
                add(&variable.name);
                variable.owner.iter().for_each(|owner| add(owner));
            }
        }
    }
    let words = texts.iter().flat_map(|text| words_of(text)).filter(|word| word.len() > 3);
    let words: BTreeSet<&str> = words.collect();
    words.into_iter().filter(|word| !is_public(word)).map(str::to_owned).collect()
}

/// A text with the secret behind each of its words.
fn marked(text: &str) -> String {
    marked_unless(text, &|_| false)
}

/// The same, but words that are public stay, so that names still mean something.
fn marked_where_private(text: &str) -> String {
    marked_unless(text, &is_public)
}

fn marked_unless(text: &str, keeps: &dyn Fn(&str) -> bool) -> String {
    // A shape is not private.
    if text == "tuple" || text.contains('[') && is_public(text) {
        return text.to_owned();
    }
    let mut marked = String::new();
    for word in text.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_') {
        let letters = word.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '_');
        let is_word = letters.contains(|c: char| c.is_alphabetic());
        marked.push_str(letters);
        marked.push_str(if is_word && !keeps(letters) { SECRET } else { "" });
        marked.push_str(&word[letters.len()..]);
    }
    marked
}

/// A table with other texts behind the same names.
fn renamed(names: &Names, mark: &dyn Fn(&str) -> String) -> Names {
    let mut renamed = Names::default();
    for (name, text) in names.iter().skip(1) {
        let mut text = mark(text);
        // Two texts may become one; a table has each once.
        while renamed.find(&text).is_some() {
            text.push_str(SECRET);
        }
        assert_eq!(renamed.intern(&text), name);
    }
    renamed
}

fn mark_reading(reading: &mut Reading, mark: &dyn Fn(&str) -> String) {
    let path = |path: &mut PathBuf| *path = PathBuf::from(mark(&path.display().to_string()));
    reading.hosts.iter_mut().for_each(|host| mark_host(host, mark));
    for (file, still) in &mut reading.stills {
        path(file);
        still.names = renamed(&still.names, mark);
        for held in still.pools.iter_mut().flat_map(|pool| &mut pool.snapshot.held) {
            for text in [&mut held.layer, &mut held.source, &mut held.variable] {
                *text = mark(text);
            }
        }
    }
    reading.other_runs.push(PathBuf::from(format!("/{SECRET}/run")));
    reading.missing.push(PathBuf::from(format!("/{SECRET}/logs")));
    let broken = PathBuf::from(format!("/{SECRET}/x.xplane.pb"));
    reading.unreadable.push(SourceError::Empty { path: broken.clone() });
    reading.unreadable.push(SourceError::Pickle { path: broken, what: SECRET.to_owned(), hint: "" });
    reading.unreadable.push(SourceError::Recording { text: SECRET.to_owned(), hint: "" });
    if let Some(recorded) = &mut reading.recorded {
        path(&mut recorded.path);
        if let Some(manifest) = &mut recorded.manifest {
            manifest.command.push(format!("--key={SECRET}"));
            manifest.command.iter_mut().for_each(|word| *word = mark(word));
            manifest.cwd = mark(&manifest.cwd);
            manifest.host = mark(&manifest.host);
            manifest.environment.insert("TF_CONFIG".to_owned(), format!("{{{SECRET}}}"));
            for device in &mut manifest.devices {
                device.pci_bus_id = Some(SECRET.to_owned());
                device.uuid = device.uuid.as_ref().map(|uuid| format!("{uuid}{SECRET}"));
            }
        }
        for row in &mut recorded.driver {
            if row.device != "CPU" {
                row.device.push_str(SECRET);
            }
            row.command = row.command.as_ref().map(|command| mark(command));
            row.reason = Some(SECRET.to_owned());
        }
        for process in &mut recorded.processes {
            let id = &process.id;
            process.id = ProcessId::new(&mark(id.host()), id.pid(), id.start());
            process.facts.forked_from = Some(process.id.to_string());
            for mark_row in &mut process.marks {
                mark_row.label = mark_row.label.as_ref().map(|label| mark(label));
                mark_row.path = Some(format!("/{SECRET}/logs"));
                mark_row.counters.iter_mut().for_each(|read| read.reason = Some(SECRET.to_owned()));
            }
            for variable in process.inventories.iter_mut().flat_map(|inventory| &mut inventory.variables) {
                variable.name = mark(&variable.name);
                variable.owner = variable.owner.as_ref().map(|owner| mark(owner));
            }
        }
    }
    if let Some(failures) = &mut reading.failures {
        mark_failures(failures, mark);
    }
}

fn mark_host(host: &mut Host, mark: &dyn Fn(&str) -> String) {
    host.path = PathBuf::from(mark(&host.path.display().to_string()));
    let history = &mut host.trace.history;
    history.names = renamed(&history.names, mark);
    history.host = mark(&history.host);
    history.warnings.add("profiler", format!("the profiler reported: {SECRET}"), "");
    for executable in &mut history.executables {
        executable.name = mark(&executable.name);
    }
}

fn mark_failures(read: &mut OutOfMemory, mark: &dyn Fn(&str) -> String) {
    read.hosts.iter_mut().for_each(|host| mark_host(host, mark));
    read.files.iter_mut().for_each(|path| *path = PathBuf::from(mark(&path.display().to_string())));
    read.failures.names = renamed(&read.failures.names, mark);
    read.failures.warnings.add("unreadable", format!("cannot read '/{SECRET}/x'"), "");
    for failure in &mut read.failures.list {
        for witness in &mut failure.witnesses {
            witness.path = PathBuf::from(mark(&witness.path.display().to_string()));
            witness.time.push_str(SECRET);
        }
        failure.device = failure.device.as_ref().map(|device| device.replace("localhost", SECRET));
        for text in [&mut failure.op, &mut failure.executable] {
            *text = text.as_ref().map(|text| mark(text));
        }
        for buffer in &mut failure.buffers {
            for text in [&mut buffer.operator, &mut buffer.label] {
                *text = mark(text);
            }
        }
    }
}

/// Whatever a file's texts are, none of them is in any document; and figures are still the same.
#[test]
fn no_text_of_a_file_is_in_any_document() {
    with_every_file(|path, wrong| {
        let marks: [&dyn Fn(&str) -> String; 2] = [&marked, &marked_where_private];
        for mark in marks {
            let by = [GroupBy::Op, GroupBy::Stack];
            let documents =
                both(path, &by, &|read| mark_reading(read, mark), &|read| mark_failures(read, mark));
            let mut has_secret = documents.is_empty();
            for (name, plain, redacted) in documents {
                let at = format!("{}: {name}", path.display());
                differences(&plain, &redacted, &at, wrong);
                has_secret |= plain.to_string().contains(SECRET);
                let mut shown = String::new();
                texts(&redacted, &mut shown);
                let leaked: BTreeSet<&str> = shown.lines().filter(|line| line.contains(SECRET)).collect();
                wrong.extend(leaked.into_iter().map(|line| format!("{at}: '{line}' is shown")));
            }
            wrong.extend((!has_secret).then(|| format!("{}: nothing to hide", path.display())));
        }
    });
}

/// Runs that are compared meet as they did: one text has one placeholder in all of them.
#[test]
fn compared_runs_meet_as_before() {
    for pair in [
        ["tf221_cpu_autoencoder-5.xplane.pb.gz", "tf221_cpu_autoencoder-7.xplane.pb.gz"],
        ["gpt-adam-2.pickle.gz", "gpt-adamw-4.pickle.gz"],
        ["torch2110_h200_small-2.vram", "torch2110_h200_small-8.vram"],
        ["tf221_cpu_compiled-7.xplane.pb.gz", "tf221_cpu_compiled-140.hlo.pb.gz"],
    ] {
        let paths = pair.map(|name| fixture("plan").join(name));
        let compared = |redaction: Option<&mut Redaction>| {
            let mut redaction = redaction;
            let mut sides: Vec<Vec<PathBuf>> = Vec::new();
            let mut reports = Vec::new();
            for path in &paths {
                let mut reading = vramline::read(path).unwrap();
                let mut path = path.clone();
                if let Some(redaction) = redaction.as_deref_mut() {
                    redaction.reading(&mut reading);
                    path = redaction.path(&path);
                }
                sides.push(vec![path]);
                reports.push(report(&reading, &ReportOptions::default()));
            }
            let sides = names(&sides).into_iter().zip(reports);
            let sides: Vec<RunSide> =
                sides.map(|(name, report)| RunSide { name, reports: vec![report] }).collect();
            serde_json::to_value(Diff::from(&diff(&sides, &DiffOptions::default()))).unwrap()
        };
        let (plain, redacted) = (compared(None), compared(Some(&mut Redaction::default())));
        let mut wrong = Vec::new();
        differences(&plain, &redacted, pair[0], &mut wrong);
        assert!(wrong.is_empty(), "{wrong:#?}");
        let mut shown = String::new();
        texts(&redacted, &mut shown);
        for secret in ["autoencoder", "gpt", "small", "/fixtures", "conv2d"] {
            assert!(!shown.contains(secret), "{secret} in {shown}");
        }
    }
}

/// A plan of redacted probes is the same plan, and one that is redacted itself has no names.
#[test]
fn plans_predict_the_same() {
    let wanted = PlanOptions {
        batches: vec![16, 64],
        limit: Some(Bytes(1 << 30)),
        steps: 4,
        variable: Redaction::default().varied("batch"),
        curve: true,
        fixes: true,
        ..PlanOptions::default()
    };
    for (case, batches) in [
        ("tf221_cpu_autoencoder-#.xplane.pb.gz", [5, 7, 13]),
        ("tf221_cpu_compiled-#.xplane.pb.gz", [7, 11, 19]),
        ("gpt-adamw-#.pickle.gz", [2, 4, 8]),
        ("torch2110_h200_small-#.vram", [2, 4, 8]),
    ] {
        let probes = || {
            batches.map(|batch| {
                let path = fixture("plan").join(case.replace('#', &batch.to_string()));
                ProbeRead { batch, file: path.display().to_string(), reading: vramline::read(&path).unwrap() }
            })
        };
        let answer = |probes: &[ProbeRead]| plan::plan(&prepare(probes, &wanted).unwrap(), probes, &wanted);
        let document = |plan| serde_json::to_value(PlanView::from(plan)).unwrap();
        let plain = answer(&probes());
        let mut redacted = plain.clone();
        Redaction::default().plan(&mut redacted);
        let (plain, redacted) = (document(plain), document(redacted));
        let mut wrong = Vec::new();
        differences(&plain, &redacted, case, &mut wrong);
        assert!(wrong.is_empty(), "{wrong:#?}");
        let mut shown = String::new();
        texts(&redacted, &mut shown);
        assert!(!["fixtures", "small-", "gpt-"].iter().any(|secret| shown.contains(secret)), "{shown}");
    }
}

#[test]
fn a_machine_keeps_its_answers_and_loses_its_names() {
    let secret = |text: &str| format!("{text}-{SECRET}");
    let looks = || {
        let mut devices = vec![doctor::device(0), doctor::device(1)];
        for device in &mut devices {
            device.facts.uuid = secret(&format!("GPU-{}", device.facts.index));
            device.facts.pci_bus_id = Some(secret("0000"));
        }
        let mut machine = doctor::machine(devices);
        let variables = [
            ("CUDA_VISIBLE_DEVICES", secret("GPU-1")),
            ("TF_GPU_ALLOCATOR", "cuda_malloc_async".to_owned()),
            ("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync,max_split_size_mb:64".to_owned()),
            ("XLA_FLAGS", secret("--xla_dump_to=/home")),
        ];
        machine.environment.extend(variables.map(|(name, value)| (name.to_owned(), value)));
        machine.no_boot = Some(format!("VRAMLINE_PACKAGE is '/{SECRET}', which holds no package"));
        let python = machine.python.as_mut().unwrap();
        python.executable = format!("/home/{SECRET}/bin/python");
        let error = Some(format!("ImportError: /home/{SECRET}/lib.so"));
        python.deep.insert("torch".to_owned(), DeepLook { error, ..DeepLook::default() });
        machine
    };
    let document = |machine: &MachineLook| {
        serde_json::to_value(Doctor::from(&vramline::analysis::doctor::doctor(machine))).unwrap()
    };
    let (plain, mut redacted) = (looks(), looks());
    Redaction::default().machine(&mut redacted);
    let (plain, redacted) = (document(&plain), document(&redacted));
    let mut wrong = Vec::new();
    differences(&plain, &redacted, "doctor", &mut wrong);
    // What a framework said when it was asked may name files.
    wrong.retain(|text| !text.contains("importing it failed"));
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(plain.to_string().contains(SECRET) && !redacted.to_string().contains(SECRET), "{redacted}");
    assert!(redacted.to_string().contains("NVIDIA H200"));

    let mut silent = looks();
    silent.driver = Err(DriverError::LibraryMissing { detail: secret("/lib") });
    silent.python = Err(format!("'/home/{SECRET}/python' cannot be started"));
    Redaction::default().machine(&mut silent);
    assert!(!document(&silent).to_string().contains(SECRET));
}

#[test]
fn the_live_view_keeps_its_figures_and_loses_its_names() {
    let mut job = top::job(Some(100), Some(200), Some(300));
    job.path = PathBuf::from(format!("/home/{SECRET}/train.vram"));
    let failed = Mark {
        kind: RecordedMarkKind::Exception,
        label: Some(format!("ValueError: {SECRET}")),
        time: Moment { monotonic: 6, wall: 6 },
        ..Mark::default()
    };
    job.take(News::Marks(&ProcessId::new("here", 77, 1), vec![failed]));
    job.warnings.push(Warning {
        code: "unreadable-stream",
        text: format!("'/{SECRET}/marks.arrows' cannot be read"),
        hint: String::new(),
    });
    let jobs = [job];
    let mut sight = top::sight(top::asked(&top::script()), &jobs);
    sight.host = SECRET.to_owned();
    sight.seen.values_mut().for_each(|seen| seen.command = format!("python --key {SECRET}"));
    let plain = vramline::analysis::top::top(&sight);
    let mut redacted = plain.clone();
    let mut redaction = Redaction::default();
    redaction.top(&mut redacted);
    let [plain, redacted] = [plain, redacted].map(|one| serde_json::to_value(Top::from(&one)).unwrap());
    let mut wrong = Vec::new();
    differences(&plain, &redacted, "top", &mut wrong);
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(plain.to_string().contains(SECRET) && !redacted.to_string().contains(SECRET), "{redacted}");
    assert!(!redacted.to_string().contains("train.py") && redacted.to_string().contains("NVIDIA H200"));
}

/// `--pool` picks the same pools, whatever they are called now.
#[test]
fn a_part_of_a_pool_picks_the_same_pools() {
    for (name, part) in [
        ("jax0102_cpu_step.hlo.pb", "jit_step"),
        ("jax0102_cpu_step.hlo.pb", "temporaries"),
        ("jax0102_cpu_step.hlo.pb", "step arg"),
        ("jax0102_cpu_step.hlo.pb", "nothing"),
        ("jax0112_h200_from_start.xplane.pb", "GPU_0"),
        ("jax0112_h200_from_start.xplane.pb", "host"),
    ] {
        let (plain, mut redacted) =
            (vramline::read(&fixture(name)).unwrap(), vramline::read(&fixture(name)).unwrap());
        let mut redaction = Redaction::default();
        redaction.reading(&mut redacted);
        let peaks = |reading: &Reading, part: &str| {
            let wanted = ReportOptions { pool: Some(part.to_owned()), ..ReportOptions::default() };
            report(reading, &wanted).pools.iter().map(|pool| pool.peak).collect::<Vec<_>>()
        };
        assert_eq!(peaks(&plain, part), peaks(&redacted, &redaction.pool_part(part)), "{name}: {part}");
    }
}

#[test]
fn placeholders_say_what_they_stand_for() {
    let mut redaction = Redaction::default();
    let mut path = |text: &str| redaction.path(Path::new(text)).display().to_string();
    assert_eq!(path("/home/me/secret.vram"), "file-1.vram");
    assert_eq!(path("secret/vm.xplane.pb"), "file-2.xplane.pb");
    assert_eq!(path("/home/me/secret.vram/"), "file-1.vram");
    assert_eq!(path("secret.of.mine"), "file-3");
    assert_eq!(
        (redaction.host("node-17"), redaction.host("localhost")),
        ("host-1".to_owned(), "localhost".to_owned())
    );
    let command = ["python", "train.py", "--key=secret", "python"].map(str::to_owned);
    assert_eq!(redaction.command(&command), ["word-1", "word-2", "word-3", "word-1"]);
    assert_eq!(
        (redaction.label("customers loaded"), redaction.label("exit")),
        ("label-1".to_owned(), "exit".to_owned())
    );
    assert_eq!(redaction.pool("GPU_0_bfc"), "GPU_0_bfc");
    assert_eq!(redaction.pool("GPU_3_customers_bfc"), "GPU_3_pool-1_bfc");
    assert_eq!(
        (redaction.varied("batch"), redaction.varied("customers")),
        ("batch".to_owned(), "variable-1".to_owned())
    );
}

/// A secret of each kind, in facts that are put together here.
#[test]
fn a_secret_of_each_kind_is_nowhere() {
    let mut names = Names::default();
    let mut stacks = Stacks::default();
    let frame = names.intern("/home/secretframe/train.py:3 secretfunction");
    let stack = stacks.push(Stack::EMPTY, frame);
    let op = names.intern("jit(secretfunction)/transpose(jvp(SecretModel))/secretlayer_17/dot_general");
    let held = Held {
        op,
        stack,
        layer: "SecretModel/secretlayer_17".to_owned(),
        source: "/home/secretframe/train.py:3".to_owned(),
        variable: "secretlayer_17/secretvariable:0".to_owned(),
        ..Held::bare(Bytes(100), Bytes(128), "the allocator's list of blocks")
    };
    let bare = Held {
        op: names.intern("secretop2"),
        ..Held::bare(Bytes(7), Bytes(7), "the allocator's list of blocks")
    };
    let snapshot =
        Snapshot { time: None, in_use: Bytes(135), before_recording: Bytes::ZERO, held: vec![held, bare] };
    let pool = StillPool {
        name: "jit_secretfunction temporaries".to_owned(),
        device: String::new(),
        limit: None,
        lifetime_peak: None,
        fragmentation: None,
        allocs: None,
        snapshot,
    };
    let mut warnings = Warnings::default();
    warnings.add("profiler", "the profiler reported: secrettext", "");
    let still = Still { format: "hlo", framework: None, names, stacks, pools: vec![pool], warnings };
    let content = Content::Still(Box::new(still));
    let mut reading = Reading::of(PathBuf::from("/home/secretpath/x.hlo.pb"), content);
    let mut recorded = vramline::read(&fixture("tf221_cpu_keras.vram")).unwrap().recorded.unwrap();
    let manifest = recorded.manifest.as_mut().unwrap();
    manifest.command = vec!["python".to_owned(), "--password=secretcommand".to_owned()];
    (manifest.host, manifest.cwd) = ("secrethost".to_owned(), "/secretpath".to_owned());
    let process = &mut recorded.processes[0];
    process.id = ProcessId::new("secrethost", 1, 2);
    for (number, mark) in process.marks.iter_mut().enumerate() {
        mark.label = Some(format!("secretlabel {number}"));
    }
    reading.recorded = Some(recorded);

    let all = [GroupBy::Op, GroupBy::Layer, GroupBy::Role, GroupBy::Stack];
    let mut plain = String::new();
    texts(&json!(documents(Reading::of(PathBuf::new(), of_reading(&reading)), &all)), &mut plain);
    Redaction::default().reading(&mut reading);
    let mut shown = String::new();
    texts(&json!(documents(reading, &all)), &mut shown);
    assert!(
        plain.contains("secretlayer_17") && plain.contains("secretvariable") && plain.contains("secretframe")
    );
    let leaked: Vec<&str> = shown.lines().filter(|line| line.to_lowercase().contains("secret")).collect();
    assert!(leaked.is_empty(), "{leaked:#?}");
    assert!(
        shown.contains("jit(function-a)/transpose(jvp(Layer-") && shown.contains("/dot_general"),
        "{shown}"
    );
    assert!(
        shown.contains("jit_function-a temporaries")
            && shown.contains("host-1-1-2")
            && shown.contains("label-3")
    );
}

/// The only moment that a reading has, once more.
fn of_reading(reading: &Reading) -> Content {
    Content::Still(Box::new(reading.stills[0].1.clone()))
}
