//! Recordings on disk: what is written is read back, and whatever else lies there costs a warning at most.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell as Count;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow_array::{Int32Array, NullArray, RecordBatch, RecordBatchOptions};
use arrow_ipc::writer::StreamWriter;
use arrow_schema::{DataType, Field, Schema};
use vramline::analysis::report::ReportOptions;
use vramline::event::{How, Phase};
use vramline::recording::folder::{Part, ProcessId};
use vramline::recording::process::ProcessRecorder;
use vramline::recording::reader::{self, ReadError, Recorded};
use vramline::recording::rows::{
    Counters, Inventory, LayerPath, Mark, Moment, OwnerKind, OwnerRow, RecordedMarkKind, Sample, TraceState,
    Variable, WindowReason,
};
use vramline::recording::schema::{
    Column, DRIVER, INVENTORY, Kind, MARKS, OWNERS, REVISION, SAMPLES, Stream, VERSION,
};
use vramline::recording::stream::{Appender, Cell, StreamError, Table, read, read_bytes};
use vramline::snapshot::Role;
use vramline::units::Bytes;

use crate::{checked_report, root};

/// Notes the largest allocation of each thread, so that a test sees what a reader asked for.
struct Watched;

thread_local! {
    static LARGEST: Count<usize> = const { Count::new(0) };
}

#[global_allocator]
static WATCHED: Watched = Watched;

#[expect(unsafe_code, reason = "an allocator")]
// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Watched {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.set(LARGEST.get().max(layout.size()));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LARGEST.set(LARGEST.get().max(size));
        // SAFETY: as the caller promised.
        unsafe { System.realloc(at, layout, size) }
    }
}

/// What `work` gives, and the largest allocation it made.
fn watched<T>(work: impl FnOnce() -> T) -> (T, usize) {
    LARGEST.set(0);
    let done = work();
    (done, LARGEST.get())
}

/// What a file of this length may cost in one piece: a row of four bytes becomes a row of the program's.
fn paid_by(length: usize) -> usize {
    64 * length + (64 << 10)
}

fn id() -> ProcessId {
    ProcessId::new("node-7", 4711, 98_765)
}

fn file_of(folder: &Path, part: Part) -> PathBuf {
    folder.join(part.name(&id()))
}

fn counters(device: &str, current: Option<i64>, peak: Option<i64>, since: Option<i64>) -> Counters {
    Counters { device: device.to_owned(), current, peak, peak_since: since, ..Counters::default() }
}

/// Marks with everything that a column can hold.
fn marks() -> Vec<Mark> {
    let text = |text: &str| Some(text.to_owned());
    let many = (0..40).map(|at| counters(&format!("GPU:{at}"), Some(at), Some(at << 40), None)).collect();
    vec![
        Mark {
            kind: RecordedMarkKind::Mark,
            time: Moment { monotonic: i64::MIN, wall: i64::MAX },
            ..Mark::default()
        },
        Mark {
            kind: RecordedMarkKind::Step,
            label: text("größer als 🜁 \u{0}\u{1b}[2J\u{202e}"),
            phase: Some(Phase::Train),
            how: Some(How::Api),
            step: Some(i64::MIN),
            batches: Some(i64::MAX),
            epoch: Some(-1),
            begin: Some(i64::MIN),
            time: Moment { monotonic: i64::MAX, wall: i64::MIN },
            counters: vec![
                counters("GPU:0", Some(i64::MAX), Some(i64::MIN), Some(0)),
                counters("", None, None, None),
            ],
            trace_state: None,
            window: Some(i64::MIN),
            opened_for: None,
            path: text("/ä/\u{0}"),
        },
        Mark {
            kind: RecordedMarkKind::Other(String::new()),
            label: Some(String::new()),
            step: Some(0),
            counters: many,
            ..Mark::default()
        },
        Mark { kind: RecordedMarkKind::Mark, label: Some("x".repeat(100_000)), ..Mark::default() },
        Mark {
            kind: RecordedMarkKind::Trace,
            trace_state: Some(TraceState::Lost),
            window: Some(2),
            opened_for: Some(WindowReason::Program),
            path: Some("logs/plugins".to_owned()),
            counters: vec![counters("GPU:0", Some(1), None, None), counters("GPU:1", None, Some(2), None)],
            ..Mark::default()
        },
    ]
}

fn samples() -> Vec<Sample> {
    let time = Moment { monotonic: 5, wall: i64::MIN };
    let read = Counters {
        device: "GPU:1".to_owned(),
        current: Some(1),
        peak: None,
        peak_since: None,
        pool: Some(i64::MAX),
        limit: Some(i64::MIN),
        reason: Some("it does not tell ⟂".to_owned()),
    };
    vec![
        Sample { time, resident: Some(i64::MAX), counters: Some(read) },
        Sample { time: Moment::default(), resident: None, counters: None },
    ]
}

fn inventory() -> Inventory {
    let variable = |name: &str, address| Variable {
        name: name.to_owned(),
        role: Role::Parameters,
        bytes: Bytes(1 << 40),
        address,
        ..Variable::default()
    };
    let mut all = vec![variable("a", None), variable("ü/γ:0", Some(u64::MAX)), variable("", Some(1 << 63))];
    all[1].owner = Some("model".to_owned());
    all[1].shape = Some("[3,3,64]".to_owned());
    all[1].dtype = Some("bfloat16".to_owned());
    all[1].device = Some("GPU:0".to_owned());
    all[1].layer = LayerPath { model: Some("net".to_owned()), layer: Some("block/dense".to_owned()) };
    all[1].source = Some("train.py:3 build".to_owned());
    all[1].number = Some(7);
    Inventory { time: Moment { monotonic: -1, wall: 1 }, variables: all }
}

fn owners() -> Vec<OwnerRow> {
    let layer = LayerPath { model: Some("net".to_owned()), layer: Some(String::new()) };
    let scope = OwnerRow { name: "net_1/dense_1".to_owned(), layer, ..OwnerRow::default() };
    let op = OwnerRow {
        kind: OwnerKind::Op,
        name: "adam/AssignSubVariableOp".to_owned(),
        variable: Some("dense/kernel".to_owned()),
        variable_number: Some(7),
        role: Role::Parameters,
        ..OwnerRow::default()
    };
    let span = OwnerRow {
        time: Moment { monotonic: 9, wall: 10 },
        kind: OwnerKind::Span,
        source: Some("train.py:9 step".to_owned()),
        span: Some((3, 9)),
        ..OwnerRow::default()
    };
    let value = OwnerRow {
        kind: OwnerKind::Value,
        variable: Some("dense/kernel".to_owned()),
        role: Role::Parameters,
        address: Some(u64::MAX),
        ..OwnerRow::default()
    };
    let call =
        OwnerRow { kind: OwnerKind::Call, span: Some((3, 9)), function: Some(2), ..OwnerRow::default() };
    vec![scope, op, span, value, call]
}

/// A recording with every stream of a process.
fn write_all(folder: &Path) {
    let recorder = ProcessRecorder::new(folder, &id());
    for mark in marks() {
        recorder.mark(&mark).unwrap();
    }
    recorder.samples(&samples()).unwrap();
    recorder.samples(&[]).unwrap();
    recorder.inventory(&inventory()).unwrap();
    recorder.inventory(&Inventory::default()).unwrap();
    recorder.inventory(&inventory()).unwrap();
    recorder.owners(&owners()).unwrap();
    recorder.owners(&[]).unwrap();
    recorder.close();
}

/// The codes of what could not be read.
fn codes(recorded: &Recorded) -> Vec<&'static str> {
    recorded.warnings.as_slice().iter().map(|warning| warning.code).collect()
}

/// Reads a folder and reports on it, as the tool does.
fn reported(folder: &Path) -> Recorded {
    let reading = vramline::read(folder).unwrap();
    checked_report(&reading, &ReportOptions::default());
    reading.recorded.unwrap()
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    write_all(folder.path());
    let recorded = reported(folder.path());
    assert_eq!(codes(&recorded), [""; 0]);
    let [process] = recorded.processes.as_slice() else { panic!("one process") };
    assert_eq!(process.id, id());
    assert_eq!(process.marks, marks());
    assert_eq!(process.samples, samples());
    assert_eq!(process.inventories, [inventory(), inventory()]);
    assert_eq!(process.owners, owners());
}

/// A program that closes its recording and goes on with it finds its own files.
#[test]
fn a_second_recorder_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        write_all(folder.path());
    }
    let recorded = reported(folder.path());
    assert_eq!(codes(&recorded), [""; 0]);
    assert_eq!(recorded.processes[0].marks, [marks(), marks(), marks()].concat());
}

/// A stream as an earlier revision wrote it: without the columns that were added later.
fn before_revision(stream: Stream, revision: u32) -> Stream {
    let columns: Vec<Column> =
        stream.columns.iter().filter(|column| column.since < revision).copied().collect();
    Stream { columns: columns.leak(), ..stream }
}

/// Marks of kind `trace` as cells by the names of their columns.
fn trace_marks(stream: Stream, folder: &Path, marks: &[(&str, &str, Option<&str>)]) -> Vec<Mark> {
    let path = file_of(folder, Part::Marks);
    let _ = fs::remove_file(&path);
    let mut appender = Appender::open(&path, stream).unwrap();
    for ((kind, label, state), number) in marks.iter().zip(1..) {
        let cell = |column: &Column| match column.name {
            "kind" => Cell::Text(Some(kind)),
            "label" => Cell::Text(Some(label)),
            "trace_state" => Cell::Text(*state),
            "mark" | "time_ns" => Cell::Int(Some(number)),
            _ if column.kind == Kind::Int => Cell::Int(None),
            _ => Cell::Text(None),
        };
        appender.append(&[&stream.columns.iter().map(cell).collect::<Vec<_>>()]).unwrap();
    }
    appender.close();
    reported(folder).processes.remove(0).marks
}

/// Recordings of schema 1.0 say in the label of a mark what a column says since then.
#[test]
fn a_recording_without_trace_states_says_the_same() {
    let told = [
        ("trace", "jax: not traced: no profiler: begins", Some("failed")),
        ("trace", "tensorflow: begins", Some("begun")),
        ("mark", "stops: a label of the program", None),
        ("trace", "stops: its steps are over", Some("stopped")),
        ("trace", "written: 5 steps in 1.2 s, 3.4 MB", Some("written")),
        ("trace", "lost: no space left on device", Some("lost")),
        ("trace", "something else", None),
    ];
    let folder = tempfile::tempdir().unwrap();
    let older = trace_marks(before_revision(MARKS, 1), folder.path(), &told);
    let newer = trace_marks(MARKS, folder.path(), &told);
    assert_eq!(older, newer);
    let states: Vec<_> = newer.iter().map(|mark| mark.trace_state.map(TraceState::word)).collect();
    assert_eq!(states, told.map(|(_, _, state)| state));
    let process = reported(folder.path()).processes.remove(0);
    let at = |moment: Option<Moment>| moment.map(|moment| moment.monotonic);
    assert_eq!((at(process.trace_began()), at(process.trace_stopped())), (Some(2), Some(4)));

    // Where the column is, labels are for people, and a state of a later version is none that is known.
    let labels = [("trace", "tensorflow: begins", None), ("trace", "stops: x", Some("paused"))];
    let marks = trace_marks(MARKS, folder.path(), &labels);
    assert!(marks.iter().all(|mark| mark.trace_state.is_none()));
}

/// Words of a later version: the kind is kept, the others are not known.
#[test]
fn later_words_are_read() {
    let kinds: Vec<&str> = RecordedMarkKind::known().iter().map(RecordedMarkKind::word).collect();
    assert!(kinds.iter().all(|word| !matches!(RecordedMarkKind::of_word(word), RecordedMarkKind::Other(_))));
    assert_eq!(RecordedMarkKind::of_word("rest").word(), "rest");
    assert_eq!(serde_json::to_string(&RecordedMarkKind::of_word("rest")).unwrap(), "\"rest\"");
    assert_eq!(Phase::ALL.map(|phase| Phase::of_word(phase.word())), Phase::ALL.map(Some));
    assert_eq!(How::ALL.map(|how| How::of_word(how.word())), How::ALL.map(Some));
    assert_eq!(Role::ALL.map(|role| Role::of_word(role.word())), Role::ALL.map(Some));
    assert_eq!(TraceState::ALL.map(|state| TraceState::of_word(state.word())), TraceState::ALL.map(Some));
    assert_eq!((Phase::of_word("rest"), How::of_word("rest")), (None, None));
    assert_eq!((Role::of_word("rest"), TraceState::of_word("rest")), (None, None));
    assert_eq!(
        WindowReason::ALL.map(|reason| WindowReason::of_word(reason.word())),
        WindowReason::ALL.map(Some)
    );
    assert_eq!(WindowReason::of_word("rest"), None);
}

/// A small stream of marks, and where each of its messages ends; the first is the header.
fn small() -> (Vec<u8>, Vec<usize>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("marks");
    let mut ends = Vec::new();
    let mut appender = Appender::open(&path, MARKS).unwrap();
    let mut note = || ends.push(usize::try_from(fs::metadata(&path).unwrap().len()).unwrap());
    note();
    for number in 0..6 {
        let row = row(number);
        let rows: Vec<&[Cell<'_>]> = (0..=number % 3).map(|_| row.as_slice()).collect();
        appender.append(&rows).unwrap();
        note();
    }
    (fs::read(&path).unwrap(), ends)
}

fn row(number: i64) -> Vec<Cell<'static>> {
    let cell = |(at, column): (usize, &Column)| match column.kind {
        Kind::Int => Cell::Int((at % 4 != 3).then_some(number)),
        Kind::Text => Cell::Text((at % 3 != 1).then_some("step")),
    };
    MARKS.columns.iter().enumerate().map(cell).collect()
}

/// Everything that a table tells.
fn use_all(table: &Table) -> usize {
    let columns = table.columns();
    for (name, is_text) in &columns {
        let length = if *is_text { table.texts(name).len() } else { table.ints(name).len() };
        assert_eq!(length, table.len());
    }
    columns.len()
}

#[test]
fn cut_at_every_byte() {
    let (bytes, ends) = small();
    for cut in 0..=bytes.len() {
        let table = read_bytes(bytes[..cut].to_vec(), Path::new("cut")).unwrap();
        let messages = ends.iter().filter(|&&end| end <= cut).count();
        let whole = ends[..messages].last().copied().unwrap_or(0);
        assert_eq!((table.whole_bytes, table.torn_bytes), (whole as u64, (cut - whole) as u64), "at {cut}");
        let rows: usize = (0..messages.saturating_sub(1)).map(|message| message % 3 + 1).sum();
        assert_eq!(table.len(), rows, "at {cut}");
        // The columns are known as soon as the header is there.
        assert_eq!(use_all(&table), if messages > 0 { MARKS.columns.len() } else { 0 });
    }
}

/// Whatever the bytes are: rows or an error, within the memory that the file paid for.
fn survive(bytes: &[u8]) -> Option<usize> {
    let (read, largest) = watched(|| {
        let table = read_bytes(bytes.to_vec(), Path::new("damaged"))
            .map_err(|error| assert!(!error.to_string().is_empty()))
            .ok()?;
        // What is neither is room for more.
        let rest = bytes.iter().skip(usize::try_from(table.whole_bytes + table.torn_bytes).unwrap());
        assert!(
            rest.clone().all(|&byte| byte == 0) && table.whole_bytes + table.torn_bytes <= bytes.len() as u64
        );
        use_all(&table);
        Some(table.len())
    });
    assert!(largest <= paid_by(bytes.len()), "{largest} bytes for a file of {}", bytes.len());
    read
}

#[test]
fn every_byte_flipped() {
    let (bytes, _) = small();
    let folder = tempfile::tempdir().unwrap();
    for at in 0..bytes.len() {
        let mut flipped = bytes.clone();
        for flip in [0xff, 1 << (at % 8)] {
            flipped[at] = bytes[at] ^ flip;
            if survive(&flipped).is_some() {
                fs::write(file_of(folder.path(), Part::Marks), &flipped).unwrap();
                reported(folder.path());
            }
        }
    }
}

/// A writer that finds a torn tail cuts it off, wherever the tear is, and the file is whole from then on.
#[test]
fn a_torn_tail_is_cut_off_and_the_writer_goes_on() {
    let (bytes, ends) = small();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("marks");
    for cut in (0..=bytes.len()).step_by(5) {
        fs::write(&path, &bytes[..cut]).unwrap();
        let before = read(&path).unwrap().len();
        let mut appender = Appender::open(&path, MARKS).unwrap();
        for _ in 0..2 {
            appender.append(&[&row(7)]).unwrap();
        }
        let table = read(&path).unwrap();
        assert_eq!((table.len(), table.torn_bytes), (before + 2, 0), "at {cut}");
        let whole = ends.iter().rfind(|&&end| end <= cut).copied().unwrap_or(0);
        assert_eq!(fs::read(&path).unwrap()[..whole], bytes[..whole], "at {cut}");
    }
}

#[test]
fn a_header_alone_is_whole_and_empty() {
    for stream in [MARKS, SAMPLES, INVENTORY, OWNERS, DRIVER] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("stream");
        drop(Appender::open(&path, stream).unwrap());
        let length = fs::metadata(&path).unwrap().len();
        let table = read(&path).unwrap();
        assert_eq!((table.len(), table.torn_bytes, table.whole_bytes), (0, 0, length));
        assert!(table.is_empty());
        assert_eq!(table.columns().len(), stream.columns.len());
        drop(Appender::open(&path, stream).unwrap());
        assert_eq!(fs::metadata(&path).unwrap().len(), length);
    }
}

/// An Arrow stream of any schema, with the version of ours where one is given.
fn stream_of(
    fields: Vec<Field>,
    version: Option<&str>,
    batches: &[(Vec<arrow_array::ArrayRef>, usize)],
) -> Vec<u8> {
    let metadata: HashMap<String, String> =
        version.map(|version| ("vramline.version".to_owned(), version.to_owned())).into_iter().collect();
    let schema = Arc::new(Schema::new(fields).with_metadata(metadata));
    let mut writer = StreamWriter::try_new(Vec::new(), &schema).unwrap();
    for (columns, rows) in batches {
        let options = RecordBatchOptions::new().with_row_count(Some(*rows));
        writer
            .write(
                &RecordBatch::try_new_with_options(Arc::clone(&schema), columns.clone(), &options).unwrap(),
            )
            .unwrap();
    }
    writer.finish().unwrap();
    writer.into_inner().unwrap()
}

fn noise(length: usize) -> Vec<u8> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_le_bytes()[6]
    };
    (0..length).map(|_| next()).collect()
}

/// What is not ours is refused, and a writer leaves it as it is.
#[test]
fn what_is_not_ours_is_refused() {
    let numbers: arrow_array::ArrayRef = Arc::new(Int32Array::from(vec![1, 2]));
    let field = |kind| vec![Field::new("time_ns", kind, true)];
    let foreign = [
        stream_of(field(DataType::Int64), None, &[]),
        stream_of(field(DataType::Int64), Some("one"), &[]),
        stream_of(field(DataType::Int64), Some("-1"), &[]),
        stream_of(field(DataType::Int32), Some("1"), &[(vec![numbers], 2)]),
        b"text\n".to_vec(),
        b"{}".to_vec(),
        vec![0],
        vec![0; 100],
        vec![0; 1 << 20],
        vec![0xff; 100],
        noise(3),
        noise(1_000),
        noise(1 << 20),
        [&[0xff; 4][..], &[0xff, 0xff, 0xff, 0x7f], &[0; 100]].concat(),
        [&[0xff; 4][..], &[0; 4]].concat(),
        fs::read(root().join("fixtures/tf221_cpu_mlp_nobfc_window.xplane.pb")).unwrap(),
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("marks");
    for (number, bytes) in foreign.iter().enumerate() {
        fs::write(&path, bytes).unwrap();
        assert!(matches!(read(&path), Err(StreamError::Foreign { .. })), "number {number}");
        assert!(matches!(Appender::open(&path, MARKS), Err(StreamError::Foreign { .. })), "number {number}");
        assert_eq!(&fs::read(&path).unwrap(), bytes, "number {number}");
    }
    // A stream of ours, but another one.
    fs::remove_file(&path).unwrap();
    drop(Appender::open(&path, SAMPLES).unwrap());
    assert!(matches!(Appender::open(&path, MARKS), Err(StreamError::Foreign { .. })));

    let newer = stream_of(field(DataType::Int64), Some("2"), &[]);
    fs::write(&path, newer).unwrap();
    assert!(matches!(read(&path), Err(StreamError::Newer { found: 2, .. })));
    assert!(matches!(Appender::open(&path, MARKS), Err(StreamError::Newer { found: 2, .. })));
}

/// Other programs end a stream with a mark of their own; nothing is torn then, and a writer can go on.
#[test]
fn a_stream_that_says_where_it_ends() {
    let (mut bytes, ends) = small();
    bytes.extend([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("marks");
    fs::write(&path, &bytes).unwrap();
    let table = read(&path).unwrap();
    assert_eq!((table.len(), table.torn_bytes), (12, 0));
    assert_eq!(table.whole_bytes, *ends.last().unwrap() as u64);
    Appender::open(&path, MARKS).unwrap().append(&[&row(1)]).unwrap();
    assert_eq!(read(&path).unwrap().len(), 13);
}

/// Lengths and counts that lie.
#[test]
fn hostile_lengths() {
    // Columns that cost no bytes, and no columns at all: a few hundred bytes that claim 2^40 rows.
    let nulls = |rows: usize| -> arrow_array::ArrayRef { Arc::new(NullArray::new(rows)) };
    let rows = 1 << 40;
    let free =
        stream_of(vec![Field::new("time_ns", DataType::Null, true)], Some("1"), &[(vec![nulls(rows)], rows)]);
    assert_eq!(survive(&free), None);
    assert_eq!(survive(&stream_of(Vec::new(), Some("1"), &[(Vec::new(), rows)])), None);

    // Every aligned word of a real stream as every length that could hurt.
    let (bytes, _) = small();
    for at in (0..bytes.len() - 8).step_by(4) {
        for lie in [u64::MAX, 1 << 63, 1 << 62, 1 << 40, 0x7fff_ffff, 0x1_0000_0000, 0, 1] {
            let mut lying = bytes.clone();
            lying[at..at + 8].copy_from_slice(&lie.to_le_bytes());
            survive(&lying);
            lying[at..at + 8].copy_from_slice(&bytes[at..at + 8]);
            lying[at..at + 4].copy_from_slice(&lie.to_le_bytes()[..4]);
            survive(&lying);
        }
    }
    // A large file of nothing is not read to its end.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("marks");
    fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    let (result, largest) = watched(|| read(&path));
    assert!(matches!(result, Err(StreamError::Foreign { .. })));
    assert!(largest < 1 << 20);
}

/// One bad file costs its own rows and a warning.
#[test]
fn a_folder_with_damaged_files_opens() {
    let folder = tempfile::tempdir().unwrap();
    write_all(folder.path());
    let at = |part| file_of(folder.path(), part);
    // Others put things there too.
    for name in
        ["notes.txt", "marks-.arrows", "marks-x-1.arrows", "process-a-b-c.json", ".process-a-1-2.json"]
    {
        fs::write(folder.path().join(name), "{").unwrap();
    }
    fs::create_dir(folder.path().join("samples-node-1-1.arrows")).unwrap();
    assert_eq!(codes(&reported(folder.path())), ["unreadable-stream"]);
    fs::remove_dir(folder.path().join("samples-node-1-1.arrows")).unwrap();

    fs::write(at(Part::Samples), noise(10_000)).unwrap();
    let inventory = fs::read(at(Part::Inventory)).unwrap();
    fs::write(at(Part::Inventory), &inventory[..inventory.len() - 1]).unwrap();
    fs::write(at(Part::Process), "{\"schema\":").unwrap();
    fs::write(folder.path().join("run.json"), "[]").unwrap();
    let recorded = reported(folder.path());
    let mut found = codes(&recorded);
    found.sort_unstable();
    assert_eq!(found, ["torn-tail", "unreadable-facts", "unreadable-manifest", "unreadable-stream"]);
    let process = &recorded.processes[0];
    assert_eq!(process.marks, marks());
    assert_eq!(process.inventories, [self::inventory()]);
    assert!(process.samples.is_empty() && recorded.manifest.is_none());

    for part in [Part::Samples, Part::Inventory, Part::Process] {
        fs::remove_file(at(part)).unwrap();
    }
    fs::remove_file(folder.path().join("run.json")).unwrap();
    let recorded = reported(folder.path());
    assert_eq!(codes(&recorded), [""; 0]);
    assert_eq!(recorded.processes[0].marks, marks());
}

/// What a process or the launcher says of itself, by someone who means no good.
#[test]
fn hostile_facts() {
    let folder = tempfile::tempdir().unwrap();
    write_all(folder.path());
    let deep = "[".repeat(1_000_000);
    let long = format!("{{\"python\":\"{}\"}}", "x".repeat(5 << 20));
    let readable =
        ["{}", r#"{"schema":1,"rank":18446744073709551615,"frameworks":{"":"\u001b[2J"},"new":[1,{}]}"#];
    let unreadable = [
        "",
        "null",
        "\"",
        r#"{"schema":-1}"#,
        r#"{"schema":1e400}"#,
        r#"{"rank":-1}"#,
        r#"{"frameworks":[]}"#,
        deep.as_str(),
        long.as_str(),
    ];
    for (text, expected) in
        readable.iter().map(|text| (text, 0)).chain(unreadable.iter().map(|text| (text, 1)))
    {
        fs::write(file_of(folder.path(), Part::Process), text).unwrap();
        let recorded = reported(folder.path());
        assert_eq!(codes(&recorded), vec!["unreadable-facts"; expected], "{}", &text[..text.len().min(80)]);
        assert_eq!(recorded.processes[0].marks, marks());
    }
    fs::remove_file(file_of(folder.path(), Part::Process)).unwrap();
    for text in ["", "null", "{}", deep.as_str(), r#"{"kind":"vramline-recording","schema":1}"#] {
        fs::write(folder.path().join("run.json"), text).unwrap();
        let recorded = reported(folder.path());
        assert_eq!(codes(&recorded), ["unreadable-manifest"]);
        assert_eq!(recorded.processes[0].marks, marks());
    }
    // A later version is refused, whoever says it: half of a recording would be told as if it were all.
    let newer = |folder: &Path| matches!(reader::read(folder), Err(ReadError::Newer { .. }));
    fs::write(folder.path().join("run.json"), r#"{"kind":"vramline-recording","schema":2}"#).unwrap();
    assert!(newer(folder.path()));
    fs::remove_file(folder.path().join("run.json")).unwrap();
    fs::write(file_of(folder.path(), Part::Process), r#"{"schema":2}"#).unwrap();
    assert!(newer(folder.path()));
    let error = vramline::read(folder.path()).unwrap_err();
    assert!(error.hint().contains("update"), "{error}");
}

/// A pipe or a device in the place of a file keeps nobody waiting.
#[test]
fn a_pipe_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    write_all(folder.path());
    for name in ["run.json".to_owned(), Part::Process.name(&id()), Part::Samples.name(&id())] {
        let path = folder.path().join(name);
        let _ = fs::remove_file(&path);
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    }
    std::os::unix::fs::symlink("/dev/zero", folder.path().join("samples-node-1-1.arrows")).unwrap();
    let recorded = reported(folder.path());
    assert_eq!(
        codes(&recorded),
        ["unreadable-manifest", "unreadable-facts", "unreadable-stream", "unreadable-stream"]
    );
}

/// The real-time clock jumps by hours while the program runs: order and durations come from the other one.
#[test]
fn a_clock_that_jumps() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = ProcessRecorder::new(folder.path(), &id());
    let hour = 3_600_000_000_000;
    let step = |number: i64| Mark {
        kind: RecordedMarkKind::Step,
        phase: Some(Phase::Train),
        how: Some(How::Api),
        step: Some(number),
        begin: Some(number * 1_000),
        time: Moment {
            monotonic: number * 1_000 + 900,
            wall: 9 * hour + [hour, -9 * hour][usize::from(number % 2 == 0)],
        },
        counters: vec![counters("GPU:0", Some(number), Some(number), None)],
        ..Mark::default()
    };
    for number in 0..20 {
        recorder.mark(&step(number)).unwrap();
    }
    let reading = vramline::read(folder.path()).unwrap();
    let report = serde_json::to_value(checked_report(&reading, &ReportOptions::default())).unwrap();
    let steps = report["steps"].as_array().unwrap();
    let numbers: Vec<i64> = steps.iter().map(|step| step["step"].as_i64().unwrap()).collect();
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    assert_eq!(reading.recorded.unwrap().processes[0].marks, (0..20).map(step).collect::<Vec<_>>());
}

/// What the process below is asked to do, and where.
const CHILD: &str = "VRAMLINE_TEST_FULL_DISK";

/// No room: a message that was written in part is cut off again, and as soon as there is room the writer goes on.
///
/// A limit on the size of files stands for a full disk: the kernel writes as much as fits there too, then refuses.
#[test]
fn a_full_disk() {
    let folder = tempfile::tempdir().unwrap();
    let script =
        "trap '' XFSZ; ulimit -S -f 16; exec \"$0\" --exact recording::full_disk_child --ignored --nocapture";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(std::env::current_exe().unwrap())
        .env(CHILD, folder.path())
        .output()
        .unwrap();
    let told =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    // The child did the work: a filter that matches nothing succeeds too.
    assert!(folder.path().join("done").is_file(), "{told}");
}

#[test]
#[ignore = "the process that a_full_disk starts"]
fn full_disk_child() {
    let Some(folder) = std::env::var_os(CHILD) else { return };
    let folder = Path::new(&folder);
    let recorder = ProcessRecorder::new(folder, &id());
    let mark = Mark { kind: RecordedMarkKind::Step, label: Some("x".repeat(700)), ..Mark::default() };
    let mut written = 0;
    while recorder.mark(&mark).is_ok() {
        written += 1;
        assert!(written < 1_000, "no limit");
    }
    let whole = |expected: usize| {
        let table = read(&file_of(folder, Part::Marks)).unwrap();
        assert_eq!((table.len(), table.torn_bytes), (expected, 0));
    };
    whole(written);
    for _ in 0..5 {
        assert!(matches!(recorder.mark(&mark), Err(StreamError::Io { .. })));
        whole(written);
    }
    // A smaller one may still find room.
    recorder.samples(&samples()).unwrap();
    make_room();
    for _ in 0..5 {
        recorder.mark(&mark).unwrap();
        written += 1;
        whole(written);
    }
    fs::write(folder.join("done"), "").unwrap();
}

/// Lifts the limit on the size of files.
#[expect(unsafe_code, reason = "the standard library has no limits")]
fn make_room() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointers are to a live local.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit), 0);
    }
}

/// The text with the rows of a stream's table replaced: the rows that name the same columns in the same order.
fn with_table(docs: &str, columns: &[Column], table: &str) -> String {
    let lines: Vec<&str> = docs.split_inclusive('\n').collect();
    let is_row = |(line, column): (&&str, &Column)| line.starts_with(&format!("| `{}` |", column.name));
    let place = lines.windows(columns.len()).position(|rows| rows.iter().zip(columns).all(is_row));
    let Some(place) = place else { return docs.to_owned() };
    let (before, after) = (lines[..place].concat(), lines[place + columns.len()..].concat());
    format!("{before}{table}{after}")
}

#[test]
fn the_docs_hold_the_columns() {
    let file = root().join("docs/reference/recording.md");
    let mut docs = fs::read_to_string(&file).unwrap();
    let writes = std::env::var_os("VRAMLINE_WRITE_DOCS").is_some();
    for Stream { name, columns } in [MARKS, SAMPLES, INVENTORY, OWNERS] {
        let row = |column: &Column| {
            let kind = match column.kind {
                Kind::Int => "int64",
                Kind::Text => "utf8",
            };
            let since = match column.since {
                0 => String::new(),
                revision => format!(" (since {VERSION}.{revision})"),
            };
            format!("| `{}` | {kind} | {}{since} |\n", column.name, column.meaning)
        };
        let table: String = columns.iter().map(row).collect();
        if writes {
            docs = with_table(&docs, columns, &table);
        }
        assert!(
            docs.contains(&table),
            "docs/reference/recording.md does not hold the columns of {name}: run this test with VRAMLINE_WRITE_DOCS=1\n{table}"
        );
    }
    if writes {
        fs::write(&file, docs).unwrap();
    }
    let columns = [MARKS, SAMPLES, INVENTORY, OWNERS, DRIVER].map(|stream| stream.columns).concat();
    assert_eq!(columns.iter().map(|column| column.since).max(), Some(REVISION));
    // The words of a column are those of its type.
    let kinds = RecordedMarkKind::known().iter().map(RecordedMarkKind::word);
    let words: [(&str, Vec<&str>); 5] = [
        ("kind", kinds.collect()),
        ("phase", Phase::ALL.map(Phase::word).to_vec()),
        ("how", [How::Keras, How::Trainer, How::Api, How::Inferred].map(How::word).to_vec()),
        ("trace_state", TraceState::ALL.map(TraceState::word).to_vec()),
        ("opened_for", WindowReason::ALL.map(WindowReason::word).to_vec()),
    ];
    for (name, words) in words {
        let column = MARKS.columns.iter().find(|column| column.name == name).unwrap();
        for word in words {
            assert!(column.meaning.contains(word), "{name} does not say {word}");
        }
    }
}
