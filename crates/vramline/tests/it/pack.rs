//! Jobs on one device, from real recordings and from plans: every sum exact, every no and yes for its reason.

use std::collections::BTreeSet;

use vramline::analysis::pack::{
    ASSUMED_OUTSIDE, KnownNeed, NeedBasis, NotPacked, PackJob, PackOptions, pack,
};
use vramline::analysis::plan::PlanDocument;
use vramline::event::Framework;
use vramline::units::Bytes;
use vramline::view::pack::PackView;

use crate::document::paths;
use crate::fixture;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// The memory of the H200 that the recordings were made on, and what its driver kept.
const H200: u64 = 150_754_820_096;
const KEPT: u64 = 644_939_776;

fn run(name: &str) -> PackJob {
    let reading = vramline::read(&fixture(name)).unwrap();
    PackJob { name: name.to_owned(), file: name.to_owned(), known: KnownNeed::Run(Box::new(reading)) }
}

fn planned(minimum: &str, certain: bool, batch: Option<u64>) -> PackJob {
    let text = format!(
        r#"{{"kind":"plan","framework":"pytorch","certain":{certain},"verdict":"","limit_bytes":null,"warnings":[],
            "largest_batch":{{"sure":null,"likely":null}},
            "predictions":[
            {{"batch":32,"peak_bytes":4,"low_bytes":3,"high_bytes":5000000,"minimum_bytes":4194304}},
            {{"batch":64,"peak_bytes":4,"low_bytes":3,"high_bytes":9000000,"minimum_bytes":{minimum}}}]}}"#
    );
    PackJob {
        name: "planned".to_owned(),
        file: "plan.json".to_owned(),
        known: KnownNeed::Plan(Box::new(PlanDocument::parse(&text).unwrap()), batch),
    }
}

/// The sums of the document, made again.
fn packed(jobs: &[PackJob], wanted: &PackOptions) -> PackView {
    let document = PackView::from(pack(jobs, wanted).unwrap());
    let fixed = document.device.reserved_bytes.0 + document.device.taken_bytes.0;
    let mut sum = fixed;
    let mut least = fixed;
    for job in &document.jobs {
        assert_eq!(job.limit_bytes, job.minimum_bytes + job.headroom_bytes, "{}", job.name);
        // JAX rounds its limit up to whole pages of the driver.
        let granule = if job.framework == Some(Framework::Jax) { 2 * MIB } else { MIB };
        assert_eq!(job.limit_bytes.0 % granule, 0);
        assert!(job.headroom_bytes.0 >= job.minimum_bytes.0 * wanted.headroom / 100);
        assert!(job.headroom_bytes.0 < job.minimum_bytes.0 * wanted.headroom / 100 + granule);
        assert_eq!(job.total_bytes, job.limit_bytes + job.outside_counted_bytes);
        assert_eq!(job.outside_counted_bytes, job.outside_bytes.unwrap_or(ASSUMED_OUTSIDE));
        sum += job.total_bytes.0;
        least += job.minimum_bytes.0 + job.outside_bytes.unwrap_or_default().0;
    }
    assert_eq!(document.sum_bytes, Bytes(sum));
    assert_eq!(document.least_bytes, Bytes(least));
    assert_eq!(
        document.left_bytes,
        i64::try_from(document.device.total_bytes.0).unwrap() - i64::try_from(sum).unwrap()
    );
    document
}

#[test]
fn recordings_of_a_device_tell_what_is_beside_the_pools_and_what_the_driver_keeps() {
    let jobs = [run("torch2110_h200_near_full.vram"), run("jax0112_h200_preallocated_pool.vram")];
    let document = packed(&jobs, &PackOptions { headroom: 10, ..PackOptions::default() });
    assert_eq!(document.device.total_bytes, Bytes(H200));
    assert_eq!(document.device.reserved_bytes, Bytes(KEPT));
    let [torch, jax] = document.jobs.as_slice() else { panic!("two jobs") };
    assert_eq!((torch.framework, jax.framework), (Some(Framework::PyTorch), Some(Framework::Jax)));
    assert_eq!(
        (torch.minimum_bytes, torch.outside_bytes),
        (Bytes(141_968_801_792), Some(Bytes(708_837_376)))
    );
    // Not the 45 GB that it took beforehand: its peak. Its context, and what it took later outside the pool.
    assert_eq!(
        (jax.minimum_bytes, jax.outside_bytes),
        (Bytes(939_527_424), Some(Bytes(576_716_800 + 71_303_168)))
    );
    assert_eq!((torch.basis, jax.basis), (NeedBasis::Peak, NeedBasis::Peak));
    assert_eq!(document.fits, None, "only peaks are known, and headroom goes beyond the device");
    assert!(document.left_bytes < 0);
    // Alone, and with little headroom.
    let alone = packed(&jobs[1..], &PackOptions { headroom: 10, ..PackOptions::default() });
    assert_eq!(alone.fits, None, "its peak is not all that its pool needs");
    assert!(alone.left_bytes > 0 && alone.headline.starts_with("One job probably fits"));
    // On a smaller device it is certain that they do not.
    let smaller =
        PackOptions { memory: Some(Bytes(143 * 1_000_000_000)), headroom: 0, ..PackOptions::default() };
    let document = packed(&jobs, &smaller);
    assert_eq!(
        (document.fits, document.device.reserved_bytes),
        (Some(false), Bytes::ZERO),
        "{}",
        document.headline
    );
    assert!(document.warnings.iter().any(|warning| warning.code == "no-reserve"));
}

#[test]
fn jax_takes_its_limit_as_a_share_of_what_cuda_tells() {
    let jobs = [run("jax0112_h200_preallocated_pool.vram")];
    let document = packed(&jobs, &PackOptions { headroom: 0, ..PackOptions::default() });
    let command = "python tests/gpu/workloads.py jax_jitted";
    let limit = document.jobs[0].limit_bytes;
    assert_eq!(document.jobs[0].limit_bytes, Bytes(939_527_424_u64.next_multiple_of(2 * MIB)));
    let share = document.jobs[0].limit_bytes.0 * 1_000_000 / (H200 - KEPT);
    assert_eq!(document.jobs[0].launch[1], format!("XLA_PYTHON_CLIENT_MEM_FRACTION=0.{share:06} {command}"));
    assert_eq!(document.jobs[0].launch[0], format!("vramline run --limit {}MiB -- {command}", limit.0 / MIB));
    // As it was recorded: 0.30 of what CUDA tells, in whole pieces of 2 MiB.
    assert_eq!(((H200 - KEPT) * 30 / 100).next_multiple_of(2 * MIB), 45_034_242_048);
}

#[test]
fn a_replay_tells_the_least_limit_unless_the_run_went_higher() {
    let exact = run("tf221_cpu_cnn_from_start.xplane.pb");
    let wanted = PackOptions {
        memory: Some(Bytes(GIB)),
        context: Some(Bytes(100 * MIB)),
        headroom: 10,
        ..PackOptions::default()
    };
    let document = packed(&[exact], &wanted);
    assert_eq!(
        (document.jobs[0].basis, document.fits),
        (NeedBasis::Replay, Some(true)),
        "{:?}",
        document.warnings
    );
    assert!(document.jobs[0].minimum_bytes.0 >= 72_000_000 / 2);
    // 83,556,608 bytes were held after the traced steps.
    let document = packed(&[run("tf221_cpu_keras.vram")], &wanted);
    assert_eq!(
        (document.jobs[0].basis, document.jobs[0].minimum_bytes),
        (NeedBasis::Peak, Bytes(83_556_608))
    );
    assert_eq!(document.fits, None);
}

/// Jobs that were recorded in host memory share that: there is no context and no driver.
#[test]
fn jobs_of_the_cpu_share_host_memory() {
    let jobs = [run("tf221_cpu_keras.vram"), run("tf215_cpu_keras2.vram")];
    let wanted = PackOptions { memory: Some(Bytes(16 * GIB)), headroom: 10, ..PackOptions::default() };
    let document = packed(&jobs, &wanted);
    assert!(document.device.is_host && document.device.name == "host memory");
    let codes: Vec<&str> = document.warnings.iter().map(|warning| warning.code).collect();
    assert!(codes.contains(&"host-memory") && !codes.contains(&"no-reserve"), "{codes:?}");
    let unknown: Vec<&str> = document
        .warnings
        .iter()
        .filter(|warning| warning.code == "no-context")
        .map(|warning| warning.text.as_str())
        .collect();
    assert!(!unknown.is_empty() && unknown.iter().all(|text| text.contains("Python and its libraries")));
    let said = document.advice.iter().chain([&document.headline]);
    assert!(said.into_iter().all(|text| !text.to_lowercase().contains("context")), "{:?}", document.advice);
    // Where somebody tells of a GPU's context, or one of them ran on a GPU, they share a GPU.
    let with_context = PackOptions { context: Some(Bytes(500 * MIB)), ..wanted.clone() };
    let document = packed(&jobs, &with_context);
    assert!(!document.device.is_host);
    assert!(document.jobs.iter().all(|job| job.outside_bytes == with_context.context));
    let mixed = [run("tf221_cpu_keras.vram"), run("jax0112_h200_preallocated_pool.vram")];
    let document = packed(&mixed, &PackOptions { headroom: 10, ..PackOptions::default() });
    assert!(!document.device.is_host && document.jobs[0].outside_bytes.is_none());
    assert!(document.warnings.iter().any(|warning| warning.text.contains("recorded on the CPU")));
}

#[test]
fn plans_are_certain_where_nothing_is_assumed() {
    let room = |gib: u64| PackOptions {
        memory: Some(Bytes(gib * GIB)),
        reserved: Some(Bytes(GIB)),
        headroom: 25,
        ..PackOptions::default()
    };
    let with_context = |gib: u64| PackOptions { context: Some(Bytes(600 * MIB)), ..room(gib) };
    let two = || [planned("4294967296", true, Some(64)), planned("4294967296", true, None)];
    let document = packed(&two(), &with_context(8));
    let figures: Vec<(Option<u64>, Bytes)> =
        document.jobs.iter().map(|job| (job.batch, job.limit_bytes)).collect();
    assert_eq!(figures, [(Some(64), Bytes(5 * GIB)), (Some(32), Bytes(5 * MIB))]);
    assert_eq!(document.sum_bytes, Bytes(6 * GIB + 1205 * MIB));
    assert_eq!((document.fits, document.warnings.len()), (Some(true), 0), "{:?}", document.warnings);
    assert_eq!(packed(&two(), &with_context(7)).fits, None, "only with less headroom");
    assert_eq!(packed(&two(), &with_context(6)).fits, Some(false), "not even without");
    let assumed = packed(&two(), &room(40));
    assert_eq!(assumed.fits, None);
    assert!(assumed.warnings.iter().any(|warning| warning.text.contains("1.00 GiB is assumed")));
    assert_eq!(
        packed(&[planned("4294967296", false, None)], &with_context(40)).fits,
        None,
        "its plan is not certain"
    );
    let high = packed(&[planned("null", true, Some(64))], &with_context(40));
    assert_eq!((high.jobs[0].basis, high.jobs[0].minimum_bytes), (NeedBasis::PlanHigh, Bytes(9_000_000)));
}

#[test]
fn the_verdict_is_a_word_for_the_sentence() {
    let said = |gib: u64, context: Option<u64>| {
        let options = PackOptions {
            memory: Some(Bytes(gib * GIB)),
            reserved: Some(Bytes(GIB)),
            context: context.map(|mib| Bytes(mib * MIB)),
            headroom: 25,
            ..PackOptions::default()
        };
        let told = pack(&[planned("4294967296", true, Some(64))], &options).unwrap();
        (told.verdict.word(), told.headline)
    };
    let [fits, fails] = [said(8, Some(600)), said(4, Some(600))];
    assert!(fits.0 == "fits" && fits.1.starts_with("One job fits in 8.00 GiB: "), "{fits:?}");
    assert!(
        fails.0 == "does-not-fit" && fails.1.starts_with("One job does not fit in 4.00 GiB: "),
        "{fails:?}"
    );
    let [assumed, tight] = [said(8, None), said(6, Some(600))];
    assert!(assumed.0 == "probably-fits" && assumed.1.starts_with("One job probably fits "), "{assumed:?}");
    assert!(tight.0 == "not-certain" && tight.1.starts_with("Not certain: "), "{tight:?}");
}

#[test]
fn what_cannot_be_packed_is_said() {
    let refused = |jobs: &[PackJob], wanted: &PackOptions| pack(jobs, wanted).unwrap_err();
    let room = PackOptions { memory: Some(Bytes(GIB)), ..PackOptions::default() };
    assert!(matches!(refused(&[planned("1", true, Some(7))], &room), NotPacked::OtherBatches { .. }));
    assert!(matches!(
        refused(&[planned("1", true, None)], &PackOptions::default()),
        NotPacked::UnknownDevice
    ));
}

#[test]
fn what_is_no_plan_is_said() {
    let whole = r#"{"kind":"plan","headline":"","certain":true,"predictions":[],"warnings":[]"#;
    let none = r#","largest_batch":{"sure":null,"likely":null}}"#;
    assert!(PlanDocument::parse(&format!(r#"{whole},"limit_bytes":null{none}"#)).is_ok());
    for (text, said) in [
        ("", "text that is not JSON: "),
        ("[]", "JSON that is not an object"),
        ("{}", "a document without a kind"),
        (r#"{"kind":"report"}"#, "a document whose kind is 'report'"),
        (r#"{"kind":"plan"}"#, "an incomplete plan: "),
        (r#"{"kind":"plan","headline":"","certain":1,"predictions":[]}"#, "an incomplete plan: "),
        (&format!("{whole}{none}"), "an incomplete plan: "),
        (&format!(r#"{whole},"limit_bytes":0{none}"#), "a plan whose limit_bytes is 0"),
        (
            &format!(r#"{whole},"limit_bytes":null,"largest_batch":{{"sure":0,"likely":1}}}}"#),
            "a plan whose largest_batch is 0",
        ),
    ] {
        let error = PlanDocument::parse(text).unwrap_err().to_string();
        assert!(error.starts_with(said), "{text}: {error}");
    }
}

#[test]
fn every_field_is_in_the_table_and_every_null_explained() {
    let mut found = BTreeSet::new();
    let wanted = PackOptions { memory: Some(Bytes(H200)), headroom: 10, ..PackOptions::default() };
    let jobs = [
        run("jax0112_h200_preallocated_pool.vram"),
        run("tf221_cpu_keras.vram"),
        planned("4194304", true, None),
    ];
    let document = packed(&jobs, &wanted);
    for (at, job) in document.jobs.iter().enumerate() {
        let nulls = [
            ("outside_bytes", job.outside_bytes.is_none()),
            ("framework", job.framework.is_none()),
            ("batch", job.batch.is_none()),
        ];
        for (field, is_null) in nulls {
            let path = format!("jobs[{at}].{field}");
            assert_eq!(document.unknowns.iter().any(|unknown| unknown.path == path), is_null, "{path}");
        }
    }
    assert!(document.unknowns.iter().any(|unknown| unknown.path == "fits"));
    paths(&serde_json::to_value(&document).unwrap(), "", &mut found);
    let table: BTreeSet<String> = crate::table::<PackView>();
    assert_eq!(found, table);
}
