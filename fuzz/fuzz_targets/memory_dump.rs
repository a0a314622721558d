//! Any bytes behind the name of a pool, as TensorFlow's dump: no panic, and the sums of the report hold.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use vramline::OutOfMemory;
use vramline::postmortem::witness;
use vramline::units::Bytes;
use vramline::analysis::oom::oom;
use vramline::view::oom::OomReport;
use vramline::analysis::report::{ReportOptions, report};
use vramline::view::report::Report;

fuzz_target!(|bytes: &[u8]| {
    let path = Path::new("fuzz.1794708904662683");
    let mut dump = b"\x0a\x09GPU_0_bfc".to_vec();
    dump.extend_from_slice(bytes);
    let Ok(mut failures) = vramline::source::read_failures_in(&dump, path) else { return };
    let Ok(again) = vramline::source::read_failures_in(&dump, path) else { return };
    failures.append(again);
    witness::join(&mut failures);
    for sums in failures.list.iter().filter_map(|failure| failure.sums.as_ref()) {
        assert_eq!(sums.in_use + sums.free, sums.pool);
        assert!(sums.largest_usable <= sums.usable && sums.usable <= sums.free);
    }
    let proofs = vec![None; failures.list.len()];
    let read = OutOfMemory { failures, proofs, ..OutOfMemory::default() };
    let post_mortem = OomReport::from(&oom(&read));
    assert!(!serde_json::to_vec(&post_mortem).expect("JSON").is_empty());
    if let Ok(content) = vramline::source::read_bytes(&dump, path) {
        let reading = vramline::Reading::of(path.to_owned(), content);
        for pool in Report::from(report(&reading, &ReportOptions::default())).pools {
            let Some(held) = pool.at_peak else { continue };
            let requested: Bytes = held.named_bytes + held.unnamed_bytes;
            assert_eq!(requested + held.slack_bytes + held.before_recording_bytes, held.in_use_bytes);
        }
    }
});
