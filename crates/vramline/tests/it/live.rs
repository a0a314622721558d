//! Recordings that are followed while they are written: the news together are what a reader finds at the end.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::Path;

use tempfile::TempDir;
use vramline::event::Phase;
use vramline::recording::folder::{Part, ProcessId};
use vramline::recording::follow::Follower;
use vramline::recording::live::{Live, News};
use vramline::recording::process::ProcessRecorder;
use vramline::recording::reader::{self, ReadError};
use vramline::recording::rows::{
    Counters, DriverRow, Inventory, Mark, Moment, RecordedMarkKind, Sample, Variable,
};
use vramline::recording::running::{Lookout, State, state};
use vramline::recording::stream::{StreamError, Table, read};
use vramline::source::procfs;
use vramline::units::Bytes;

use crate::fixture;

/// Everything that was told of a recording.
#[derive(Default)]
struct Told {
    manifests: usize,
    facts: BTreeMap<ProcessId, usize>,
    marks: Vec<(ProcessId, Mark)>,
    samples: Vec<(ProcessId, Sample)>,
    inventories: Vec<(ProcessId, Inventory)>,
    traces: usize,
    driver: Vec<DriverRow>,
}

impl Told {
    fn take(&mut self, news: News<'_>) {
        match news {
            News::Manifest(_) | News::Joined(..) => self.manifests += 1,
            News::Facts(id, _) => *self.facts.entry(id.clone()).or_default() += 1,
            News::Marks(id, all) => self.marks.extend(all.into_iter().map(|mark| (id.clone(), mark))),
            News::Samples(id, all) => self.samples.extend(all.into_iter().map(|one| (id.clone(), one))),
            News::Inventories(id, all) => {
                self.inventories.extend(all.into_iter().map(|one| (id.clone(), one)));
            }
            News::Trace(..) => self.traces += 1,
            News::Driver(rows) => self.driver.extend(rows),
            _ => {}
        }
    }

    fn is_what_a_reader_finds(&self, path: &Path) {
        let whole = reader::read(path).unwrap();
        for process in &whole.processes {
            let of = |all: &[(ProcessId, Mark)]| -> Vec<Mark> {
                all.iter().filter(|(id, _)| *id == process.id).map(|(_, one)| one.clone()).collect()
            };
            assert_eq!(of(&self.marks), process.marks);
            let samples = self.samples.iter().filter(|(id, _)| *id == process.id).map(|(_, one)| one);
            assert!(samples.eq(&process.samples));
            let inventories = self.inventories.iter().filter(|(id, _)| *id == process.id).map(|(_, one)| one);
            assert!(inventories.eq(&process.inventories));
        }
        assert_eq!(self.driver, whole.driver);
        assert_eq!(self.manifests, usize::from(whole.manifest.is_some()));
    }
}

fn looked(live: &mut Live, told: &mut Told) -> bool {
    live.look(u64::MAX, &mut |news| told.take(news)).unwrap()
}

#[test]
fn a_finished_recording_is_told_once_and_whole() {
    let path = fixture("tf221_cpu_keras.vram");
    let (mut live, mut told) = (Live::new(&path), Told::default());
    assert!(!looked(&mut live, &mut told));
    assert!(!told.marks.is_empty() && !told.samples.is_empty() && !told.inventories.is_empty());
    told.is_what_a_reader_finds(&path);
    assert_eq!((told.traces, told.facts.len()), (1, 1));
    // Nothing came since.
    let mut again = 0;
    live.look(u64::MAX, &mut |_| again += 1).unwrap();
    assert_eq!(again, 0);
    assert!(live.warnings.as_slice().is_empty());
}

#[test]
fn small_looks_come_to_the_same() {
    let path = fixture("tf221_cpu_keras.vram");
    let (mut live, mut told) = (Live::new(&path), Told::default());
    let mut looks = 0;
    while live.look(1, &mut |news| told.take(news)).unwrap() {
        looks += 1;
        assert!(looks < 10_000);
    }
    assert!(looks > 2);
    told.is_what_a_reader_finds(&path);
}

fn rows(table: &Table) -> Vec<(Option<i64>, Option<String>)> {
    let texts = table.texts("kind").into_iter().map(|text| text.map(str::to_owned));
    table.ints("time_ns").into_iter().zip(texts).collect()
}

/// A stream that arrives cut anywhere is read as if it had arrived whole.
#[test]
fn a_stream_may_be_cut_anywhere_for_a_while() {
    let recording = fixture("tf221_cpu_keras.vram");
    let marks = fs::read_dir(&recording).unwrap().map(|entry| entry.unwrap().path());
    let source = marks.into_iter().find(|path| path.to_string_lossy().contains("marks-")).unwrap();
    let (bytes, whole) = (fs::read(&source).unwrap(), rows(&read(&source).unwrap()));
    let scratch = tempfile::tempdir().unwrap();
    for step in [1_usize, 7, 64, 997, 100_000] {
        let path = scratch.path().join(format!("marks-h-1-{step}.arrows"));
        let mut follower = Follower::new(path.clone());
        assert!(follower.more().unwrap().is_none(), "there is no file yet");
        let (mut file, mut found) = (fs::File::create(&path).unwrap(), Vec::new());
        // One byte at a time is slow on a long file; its first messages tell.
        let end = if step == 1 { bytes.len().min(6000) } else { bytes.len() };
        for piece in bytes[..end].chunks(step) {
            file.write_all(piece).unwrap();
            while let Some(table) = follower.more().unwrap() {
                found.extend(rows(&table));
            }
        }
        assert_eq!(found, whole[..found.len()]);
        if end == bytes.len() {
            assert_eq!(found.len(), whole.len());
        }
        // Zeros behind the end are room that nobody has filled.
        file.write_all(&[0; 4096]).unwrap();
        assert!(follower.more().unwrap().is_none());
    }
}

#[test]
fn a_stream_that_begins_anew_is_read_anew() {
    let recording = fixture("tf221_cpu_keras.vram");
    let names = fs::read_dir(&recording).unwrap().map(|entry| entry.unwrap().path());
    let source = names.into_iter().find(|path| path.to_string_lossy().contains("samples-")).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("samples");
    fs::copy(&source, &path).unwrap();
    let mut follower = Follower::new(path.clone());
    let count = |follower: &mut Follower| {
        let mut rows = 0;
        while let Some(table) = follower.more().unwrap() {
            rows += table.len();
        }
        rows
    };
    let all = count(&mut follower);
    assert!(all > 0 && count(&mut follower) == 0);
    fs::write(&path, &fs::read(&source).unwrap()[..8]).unwrap();
    assert_eq!(count(&mut follower), 0);
    fs::copy(&source, &path).unwrap();
    assert_eq!(count(&mut follower), all);
}

fn step(number: i64) -> Mark {
    Mark {
        kind: RecordedMarkKind::Step,
        step: Some(number),
        phase: Some(Phase::Train),
        time: Moment::now(),
        counters: vec![Counters { device: "GPU:0".to_owned(), current: Some(number), ..Counters::default() }],
        ..Mark::default()
    }
}

/// A recorder of this process in a folder of its own.
fn recorder(scratch: &TempDir) -> (std::path::PathBuf, ProcessRecorder) {
    let path = scratch.path().join("own.vram");
    fs::create_dir(&path).unwrap();
    let id = ProcessId::of_running(std::process::id()).unwrap();
    let recorder = ProcessRecorder::new(&path, &id);
    (path, recorder)
}

#[test]
fn every_look_at_a_running_recording_sees_what_was_announced() {
    let scratch = tempfile::tempdir().unwrap();
    let (path, recorder) = recorder(&scratch);
    let (mut live, mut told) = (Live::new(&path), Told::default());
    for number in 0..1000 {
        recorder.mark(&step(number)).unwrap();
        if number % 7 == 0 {
            recorder.samples(&[Sample { time: Moment::now(), ..Sample::default() }]).unwrap();
        }
        if number == 500 {
            let variable = Variable { name: "w".repeat(300_000), bytes: Bytes(4), ..Variable::default() };
            // Longer than what is read at once.
            let inventory = Inventory { time: Moment::now(), variables: vec![variable; 3] };
            recorder.inventory(&inventory).unwrap();
        }
        if number % 3 == 0 {
            looked(&mut live, &mut told);
            assert_eq!(told.marks.len(), usize::try_from(number).unwrap() + 1);
        }
    }
    looked(&mut live, &mut told);
    told.is_what_a_reader_finds(&path);
    assert_eq!(told.inventories.len(), 1);
    recorder.close();
    assert_eq!(reader::read(&path).unwrap().processes[0].marks.len(), 1000);
}

#[test]
fn what_is_none_of_ours_is_told_of_once() {
    let scratch = tempfile::tempdir().unwrap();
    let id = ProcessId::new("h", 1, 2);
    fs::write(scratch.path().join(Part::Marks.name(&id)), "no stream at all, but longer than a mark")
        .unwrap();
    fs::write(scratch.path().join(Part::Process.name(&id)), "{").unwrap();
    fs::write(scratch.path().join("run.json"), "[]").unwrap();
    fs::create_dir(scratch.path().join(Part::Samples.name(&id))).unwrap();
    let mut live = Live::new(scratch.path());
    for _ in 0..3 {
        assert!(!live.look(u64::MAX, &mut |news| panic!("{news:?}")).unwrap());
    }
    let mut codes: Vec<&str> = live.warnings.as_slice().iter().map(|warning| warning.code).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["unreadable-facts", "unreadable-manifest", "unreadable-stream", "unreadable-stream"]);
    fs::write(scratch.path().join("run.json"), r#"{"kind":"vramline-recording","schema":99}"#).unwrap();
    assert!(matches!(live.look(1, &mut |_| ()), Err(ReadError::Newer { .. })));
    assert!(matches!(Live::new(Path::new("/no/such")).look(1, &mut |_| ()), Err(ReadError::Io { .. })));
    let foreign = Follower::new(scratch.path().join(Part::Marks.name(&id))).more();
    assert!(matches!(foreign, Err(StreamError::Foreign { .. })));
}

#[test]
fn a_process_is_found_by_the_files_it_writes_and_by_its_variable() {
    let scratch = tempfile::tempdir().unwrap();
    let (path, recorder) = recorder(&scratch);
    recorder.mark(&step(1)).unwrap();
    let own = procfs::process(std::process::id()).unwrap();
    let mut lookout = Lookout::new("VRAMLINE_RECORD_OF_A_TEST");
    let found = lookout.look(std::slice::from_ref(&own));
    assert_eq!(found.len(), 1);
    assert_eq!(
        (found[0].path.canonicalize().unwrap(), &found[0].pids),
        (path.canonicalize().unwrap(), &vec![own.pid])
    );
    // Another one, which does not write: only its variable tells.
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .env("VRAMLINE_RECORD_OF_A_TEST", &path)
        .spawn()
        .unwrap();
    let seen = procfs::process(child.id()).unwrap();
    // A program that has just been started has no environment for a moment.
    while procfs::variable(child.id(), "VRAMLINE_RECORD_OF_A_TEST").is_none() {
        assert!(procfs::process(child.id()).is_some());
        std::thread::yield_now();
    }
    let found = lookout.look(std::slice::from_ref(&seen));
    assert_eq!(found.iter().flat_map(|found| found.pids.clone()).collect::<Vec<_>>(), [child.id()]);
    assert_eq!(Lookout::new("VRAMLINE_NO_SUCH").look(&[seen]), []);
    child.kill().unwrap();
    child.wait().unwrap();
    let id = ProcessId::of_running(own.pid).unwrap();
    assert_eq!(state(None, [&id], &[]), State::Running);
    assert_eq!(state(None, [&ProcessId::new(id.host(), id.pid(), 1)], &[]), State::Gone);
    assert_eq!(state(None, [&ProcessId::new("another-machine", 1, 1)], &[]), State::Elsewhere);
    assert_eq!(state(None, [], &[7]), State::Running);
}
