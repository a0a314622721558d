//! Any bytes as a log: no panic, and what is concluded is consistent with itself.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use vramline::OutOfMemory;
use vramline::postmortem::witness;
use vramline::analysis::oom::oom;
use vramline::view::oom::OomReport;
use vramline::analysis::report::{ReportOptions, report};
use vramline::view::report::Report;

fuzz_target!(|bytes: &[u8]| {
    let path = Path::new("fuzz");
    let Ok(mut failures) = vramline::source::read_failures_in(bytes, path) else { return };
    witness::join(&mut failures);
    let proofs = vec![None; failures.list.len()];
    let read = OutOfMemory { failures, proofs, ..OutOfMemory::default() };
    let post_mortem = OomReport::from(&oom(&read));
    for failure in &post_mortem.failures {
        let ends = [
            (failure.rounded_low_bytes, failure.rounded_bytes, failure.rounded_high_bytes),
            (failure.free_low_bytes, failure.free_bytes, failure.free_high_bytes),
            (failure.slack_low_bytes, failure.slack_bytes, failure.slack_high_bytes),
            (failure.short_by_low_bytes, failure.short_by_bytes, failure.short_by_high_bytes),
        ];
        for (low, exact, high) in ends {
            assert!(low <= high);
            assert!(exact.is_none() || exact == low && exact == high);
        }
    }
    assert_eq!(
        post_mortem.groups.iter().map(|group| group.failures.len()).sum::<usize>(),
        post_mortem.failures.len()
    );
    assert!(!serde_json::to_vec(&post_mortem).expect("JSON").is_empty());
    if let Ok(content) = vramline::source::read_bytes(bytes, path) {
        let reading = vramline::Reading::of(path.to_owned(), content);
        assert!(!serde_json::to_vec(&Report::from(report(&reading, &ReportOptions::default()))).expect("JSON").is_empty());
    }
});
