//! Any bytes as a stream of a recording: read, and where that succeeds, reported on as each of the three streams.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use vramline::recording::folder::{Part, ProcessId};
use vramline::recording::stream;
use vramline::analysis::report::{ReportOptions, report};
use vramline::view::report::Report;

thread_local! {
    /// One folder for all runs; in memory where the system has such a place.
    static FOLDER: tempfile::TempDir = {
        let memory = Path::new("/dev/shm");
        let above = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        tempfile::tempdir_in(above).expect("a folder")
    };
}

fuzz_target!(|bytes: &[u8]| {
    let Ok(table) = stream::read_bytes(bytes.to_vec(), Path::new("fuzz")) else { return };
    assert_eq!(table.whole_bytes + table.torn_bytes, bytes.len() as u64);
    for (name, is_text) in table.columns() {
        let length = if is_text { table.texts(&name).len() } else { table.ints(&name).len() };
        assert_eq!(length, table.len());
    }
    if table.is_empty() {
        return;
    }
    let id = ProcessId::new("fuzz", 1, 1);
    FOLDER.with(|folder| {
        for part in [Part::Marks, Part::Samples, Part::Inventory] {
            std::fs::write(folder.path().join(part.name(&id)), bytes).expect("room");
        }
        let reading = vramline::read(folder.path()).expect("a recording");
        let json = serde_json::to_vec(&Report::from(report(&reading, &ReportOptions::default()))).expect("JSON");
        assert!(!json.is_empty());
    });
});
