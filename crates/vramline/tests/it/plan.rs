//! Plans against what large batches really took, on an H200 and in TensorFlow's pool; and probes that make none.

use std::collections::BTreeMap;
use std::fs;

use vramline::plan::{Basis, Compiled, Doubt, Fix, Largest, NotPlanned, Part, Plan};
use vramline::replay::Rehearsal;
use vramline::source::read_programs;
use vramline::units::Bytes;
use vramline::view::plan::{NoPlan, ProbeRead, Wanted, prepare, view};

use crate::fixture;

fn probe(batch: u64, name: &str) -> ProbeRead {
    let path = fixture(&format!("plan/{name}"));
    ProbeRead { batch, file: name.to_owned(), reading: vramline::read(&path).unwrap() }
}

fn torch(case: &str) -> Vec<ProbeRead> {
    [2, 4, 8].map(|batch| probe(batch, &format!("{case}-{batch}.pickle.gz"))).into()
}

fn autoencoder() -> Vec<ProbeRead> {
    [5, 7, 13].map(|batch| probe(batch, &format!("tf221_cpu_autoencoder-{batch}.xplane.pb.gz"))).into()
}

/// A network whose step XLA compiles.
fn compiled() -> Vec<ProbeRead> {
    [7, 11, 19].map(|batch| probe(batch, &format!("tf221_cpu_compiled-{batch}.xplane.pb.gz"))).into()
}

/// What XLA wrote when it compiled at batch 140, said to be of any.
fn dump(batch: u64) -> Compiled {
    let path = fixture("plan/tf221_cpu_compiled-140.hlo.pb.gz");
    Compiled { batch, file: "dump".to_owned(), programs: read_programs(&path).unwrap() }
}

fn plan(probes: &[ProbeRead]) -> Plan {
    prepare(probes, &Wanted::default()).unwrap()
}

fn refusal(probes: &[ProbeRead]) -> NotPlanned {
    match prepare(probes, &Wanted::default()) {
        Err(NoPlan::NotPlanned(why)) => {
            assert!(!why.hint().is_empty());
            why
        }
        other => panic!("planned: {:?}", other.map(|_| ())),
    }
}

/// Allocated and reserved bytes of unrecorded runs of a kind, by case and batch.
fn truths(kind: &str) -> BTreeMap<(String, u64), (u64, u64)> {
    let text = fs::read_to_string(fixture("plan/truths.jsonl")).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let free = rows.filter(|row| row["kind"] == kind);
    let row = |row: serde_json::Value| {
        let number = |field: &str| row[field].as_u64().unwrap();
        (
            (row["case"].as_str().unwrap().to_owned(), number("batch")),
            (number("allocated_bytes"), number("reserved_bytes")),
        )
    };
    free.map(row).collect()
}

fn off(found: Bytes, truth: u64) -> f64 {
    found.0 as f64 / truth as f64 - 1.0
}

#[test]
fn large_batches_of_real_models_on_an_h200_are_predicted_from_2_4_and_8() {
    let truths = truths("free");
    let cases: std::collections::BTreeSet<&String> = truths.keys().map(|(case, _)| case).collect();
    assert_eq!(cases.len(), 8);
    let (mut allocated, mut reserved) = (Vec::new(), Vec::new());
    for case in cases {
        let plan = plan(&torch(case));
        assert!(plan.probes.iter().all(|probe| probe.ran.is_exact()), "{case}");
        for batch in [16, 32, 64, 128, 256] {
            let (truth, pool) = truths[&(case.clone(), batch)];
            let found = plan.predict(batch, 3).unwrap();
            allocated.push(off(found.peak, truth).abs());
            reserved.push(off(found.pool[1], pool).abs());
            if case.starts_with("gpt") {
                assert_eq!((found.peak.0, found.pool[1].0), (truth, pool), "{case} at {batch}");
            }
        }
    }
    allocated.sort_by(f64::total_cmp);
    reserved.sort_by(f64::total_cmp);
    assert!(allocated[20] < 0.001 && allocated[39] < 0.005, "allocated: {allocated:?}");
    assert!(reserved[20] < 0.02 && reserved[39] < 0.08, "reserved: {reserved:?}");
}

#[test]
fn expandable_segments_are_predicted_before_they_are_switched_on() {
    for ((case, batch), (_, reserved)) in truths("expandable") {
        let plan = plan(&torch(&case));
        let fixed = plan.fixed(&[Fix::Expandable], batch, 3).unwrap();
        assert!(off(fixed.pool.unwrap(), reserved).abs() < 0.006, "{case} at {batch}: {fixed:?}, {reserved}");
        assert!(fixed.pool.unwrap() < plan.predict(batch, 3).unwrap().pool[1]);
    }
}

/// The scratch of convolutions doubles what VGG-16 reserves; it is predicted because it grows as copies of tensors do.
#[test]
fn the_scratch_of_vgg16_is_followed_through_a_change_of_algorithm() {
    let plan = plan(&torch("vgg16-sgd"));
    let found = plan.predict(128, 3).unwrap();
    let irregular = found
        .bases
        .iter()
        .find(|(basis, _)| *basis == Basis::Irregular)
        .map_or(Bytes::ZERO, |(_, bytes)| *bytes);
    assert!(found.pool[1].0 > found.peak.0 * 9 / 5, "{found:?}");
    assert!(irregular > Bytes::ZERO, "{found:?}");
    assert!(found.pool[0] < found.pool[1], "what is held instead is the lower end: {found:?}");
}

#[test]
fn recordings_on_a_gpu_tell_the_memory_of_the_process() {
    let read = |batch: u64| {
        let path = fixture(&format!("plan/torch2110_h200_small-{batch}.vram"));
        ProbeRead { batch, file: String::new(), reading: vramline::read(&path).unwrap() }
    };
    let (probes, wanted) = ([2, 4, 8].map(read), Wanted { batches: vec![64], steps: 6, ..Wanted::default() });
    let shown = view(&prepare(&probes, &wanted).unwrap(), &probes, &wanted);
    let [found] = shown.predictions.as_slice() else { panic!() };
    // What PyTorch and NVML told of a run at 64, unrecorded.
    assert_eq!(found.peak_bytes, Bytes(1_160_579_072));
    assert_eq!(found.pool_bytes, Bytes(2_040_528_896));
    assert_eq!(found.process_bytes, Some(Bytes(2_835_349_504)));
    assert_eq!(shown.outside_bytes, Some(Bytes(794_820_608)));
    // And with the driver's own pool.
    let plan = prepare(&probes, &wanted).unwrap();
    assert_eq!(plan.fixed(&[Fix::AsyncAllocator], 64, 6).unwrap().peak, Some(Bytes(1_160_573_839)));
    // Variables of the program are found in its trace.
    let optimizer = found.by_role["optimizer"];
    assert!(optimizer > Bytes::ZERO, "{:?}", found.by_role);
}

#[test]
fn a_run_without_a_trace_is_measured_by_its_framework() {
    let reading = vramline::read(&fixture("torch2110_h200_loop.vram")).unwrap();
    let told = vramline::view::report::report(&reading, &vramline::view::report::Wanted::default());
    let most = told.pools.iter().filter_map(|pool| pool.lifetime_peak_bytes).max();
    assert!(reading.hosts.is_empty() && most > Some(Bytes(1 << 20)));
    assert_eq!(vramline::view::verify::peak(&reading, None), most);
}

#[test]
fn tensorflow_is_predicted_eight_times_beyond_its_probes() {
    let plan = plan(&autoencoder());
    assert!(plan.probes.iter().all(|probe| probe.ran.is_exact() && probe.steps == 4));
    for (batch, median) in [(52, 110.8), (104, 155.9)] {
        let found = plan.predict(batch, 4).unwrap();
        let off = found.peak.0 as f64 / (median * 1_048_576.0) - 1.0;
        assert!(off.abs() < 0.02, "{batch}: {found:?}");
        assert!(found.low < found.peak && found.peak < found.high);
        assert!(found.exact_share() > 0.95, "{found:?}");
        let parts: Vec<Part> = found.parts.iter().map(|part| part.part).collect();
        assert_eq!(parts, [Part::Start, Part::FirstStep, Part::Step]);
        let roles: Bytes = found.roles.iter().map(|(_, bytes)| *bytes).sum();
        let bases: Bytes = found.bases.iter().map(|(_, bytes)| *bytes).sum();
        assert_eq!(roles, bases, "every byte has a role and a basis");
    }
    // A probe at its own batch is what was recorded, but for where regions lie.
    for (number, probe) in plan.probes.iter().enumerate() {
        let program = plan.program_at(number, probe.batch, vramline::plan::Irregular::Scaled).unwrap();
        let again = plan.rehearse(number, &program, vramline::allocator::Placement::Ascending).unwrap();
        assert!(
            off(again.peak, probe.ran.exact.peak.0).abs() < 0.01,
            "{} and {}",
            again.peak,
            probe.ran.exact.peak
        );
    }
}

#[test]
fn a_limit_is_met_and_one_step_less_is_not() {
    let plan = plan(&autoencoder());
    let least = plan.minimum(52).unwrap();
    let passes = |limit: Bytes| {
        let mut orders = (0..plan.probes.len()).map(|order| {
            let program = plan.program_at(order, 52, vramline::plan::Irregular::Scaled).unwrap();
            let (rules, placement) =
                (&plan.probes[order].ran.rules, vramline::allocator::Placement::Ascending);
            Rehearsal { program: &program, rules, limit: Some(limit), placement }.passes()
        });
        orders.all(|passes| passes)
    };
    assert!(passes(least) && !passes(Bytes(least.0 - (1 << 20))));
}

#[test]
fn the_largest_batches_pass_and_twice_as_many_do_not() {
    let plan = plan(&autoencoder());
    let limit = Bytes(128 << 20);
    let largest = plan.largest(limit, 4);
    let (sure, likely) = (largest.sure.unwrap(), largest.likely.unwrap());
    assert!(sure <= likely && sure > 13, "{largest:?}");
    assert_eq!(plan.fits(sure, limit, 4), Some(true));
    assert_eq!(plan.fits(likely * 2, limit, 4), Some(false));
    let chance = plan.chance(likely, limit, 4);
    assert!(chance.run >= 0.5 && chance.run <= chance.short && chance.short <= 1.0, "{chance:?}");
    assert_eq!(plan.chance(sure, limit, 4).run, 1.0);
    // The longer a run, the surer it meets its worst order.
    assert!(plan.chance(likely, limit, 1000).run <= chance.run);
    assert!(plan.largest(limit, 1000).sure.unwrap() <= sure);
    assert_eq!(plan.largest(Bytes(1 << 20), 4), Largest { sure: None, edge: None, likely: None });
}

#[test]
fn fixes_are_the_requests_edited_and_run_again() {
    let plan = plan(&autoencoder());
    let before = plan.predict(104, 4).unwrap().peak;
    let fixes = plan.fixes(104, plan.largest(Bytes(120 << 20), 4).sure, 4);
    let of = |name: &str| fixes.iter().find(|fixed| fixed.fixes.len() == 1 && fixed.fixes[0].name() == name);
    let accumulate = of("accumulate").unwrap();
    let Fix::Accumulate { micro, times } = accumulate.fixes[0] else { panic!() };
    assert_eq!(micro * times, 104);
    assert!(accumulate.peak.unwrap() < before && accumulate.time_ratio.unwrap() > 0.5);
    assert!(of("mixed-precision").unwrap().peak.unwrap() < before);
    assert!(of("one-thread").unwrap().peak.is_none(), "what requests do not tell has no figure");
    let together = fixes.iter().find(|fixed| fixed.fixes.len() == 2).unwrap();
    assert!(
        together.peak.unwrap()
            <= fixes
                .iter()
                .filter(|fixed| fixed.fixes.len() == 1)
                .filter_map(|fixed| fixed.peak)
                .min()
                .unwrap()
    );
    assert!(fixes.iter().all(|fixed| fixed.fixes.iter().all(|fix| !fix.text().is_empty())));
}

#[test]
fn mixed_precision_takes_what_real_runs_took() {
    let plan = plan(&autoencoder());
    // Medians of five unrecorded runs with Keras' policy `mixed_bfloat16`.
    for (batch, median) in [(52, 96.6), (104, 122.9)] {
        let fixed = plan.fixed(&[Fix::MixedPrecision], batch, 4).unwrap().peak.unwrap();
        let off = fixed.0 as f64 / (median * 1_048_576.0) - 1.0;
        assert!(off.abs() < 0.05, "{batch}: {fixed} is {off:+.3} off");
    }
    // Together with recomputation it takes no more than alone.
    let alone = plan.fixed(&[Fix::MixedPrecision], 104, 4).unwrap().peak.unwrap();
    let both = plan.fixed(&[Fix::MixedPrecision, Fix::Recompute], 104, 4).unwrap().peak.unwrap();
    assert!(both <= alone, "{both} and {alone}");
}

#[test]
fn probes_without_element_types_have_no_16_bits_to_offer() {
    let plan = plan(&torch("gpt-adamw"));
    assert!(!plan.candidates(64, None).contains(&Fix::MixedPrecision));
}

#[test]
fn probes_that_make_no_plan_say_why() {
    let one = vec![probe(8, "vgg16-sgd-8.pickle.gz")];
    assert!(matches!(refusal(&one), NotPlanned::OneBatch { batch: 8 }));
    assert!(matches!(refusal(&[]), NotPlanned::NoProbe));
    let same = vec![probe(2, "vgg16-sgd-8.pickle.gz"), probe(4, "vgg16-sgd-8.pickle.gz")];
    assert!(matches!(refusal(&same), NotPlanned::NothingGrows { smallest: 2, largest: 4 }));
    let two = vec![probe(2, "vgg16-sgd-2.pickle.gz"), probe(4, "gpt-adamw-4.pickle.gz")];
    assert!(matches!(refusal(&two), NotPlanned::Different { .. }));
    let frameworks =
        vec![probe(2, "vgg16-sgd-2.pickle.gz"), probe(13, "tf221_cpu_autoencoder-13.xplane.pb.gz")];
    assert!(matches!(refusal(&frameworks), NotPlanned::Different { .. }));
}

#[test]
fn wrong_batches_are_never_a_confident_answer() {
    // The files of 5, 7 and 13, said to be of others.
    let names = [5, 7, 13].map(|batch| format!("tf221_cpu_autoencoder-{batch}.xplane.pb.gz"));
    let said = [40, 20, 10];
    let probes: Vec<ProbeRead> = said.iter().zip(&names).map(|(&batch, name)| probe(batch, name)).collect();
    let wanted = Wanted { batches: vec![104], limit: Some(Bytes(1 << 40)), steps: 4, ..Wanted::default() };
    let plan = prepare(&probes, &wanted).unwrap();
    let document = view(&plan, &probes, &wanted);
    assert!(!document.certain && document.predictions[0].fits.is_none(), "{document:?}");
    assert!(document.largest_batch.sure.is_none());
    let codes: Vec<&str> = document.warnings.iter().map(|warning| warning.code).collect();
    assert!(codes.contains(&"falls") || codes.contains(&"inexact"), "{codes:?}");
}

#[test]
fn absurd_batches_stay_finite() {
    let plan = plan(&torch("vgg16-sgd"));
    for batch in [1, 3, u64::from(u32::MAX), u64::MAX] {
        let found = plan.predict(batch, u64::MAX);
        assert!(found.is_some_and(|found| found.peak > Bytes::ZERO), "{batch}");
    }
}

#[test]
fn a_compiled_program_is_known_where_it_was_compiled_and_nowhere_else() {
    let probes = compiled();
    let mut plan = plan(&probes);
    let serious = |plan: &Plan, batch: u64| {
        let prediction = plan.predict(batch, 8).unwrap();
        let doubts = plan.doubts(batch, prediction.exact_share()).into_iter();
        (prediction, doubts.filter(Doubt::is_serious).collect::<Vec<_>>())
    };
    // The traces hold the programs that ran in them.
    assert_eq!(plan.compiled_batches(), Some(vec![7, 11, 19]));
    assert_eq!(serious(&plan, 140).1, [Doubt::NotCompiled(140)]);
    plan.add_compiled(vec![dump(140)]);
    assert!(dump(140).has(plan.places()) && !plan.places().is_empty());
    let (prediction, doubts) = serious(&plan, 140);
    assert_eq!(doubts, []);
    // Two unrecorded runs had 158,075,648 and 158,065,408.
    assert!(off(prediction.peak, 158_075_648).abs() < 0.001, "{prediction:?}");
    assert!(prediction.bases.contains(&(Basis::Compiled, Bytes(70_408_424))), "{prediction:?}");
    assert!(prediction.exact_share() > 0.99);
    assert_eq!(serious(&plan, 139).1, [Doubt::NotCompiled(139)]);
    // What is called sure was compiled.
    let least = plan.minimum(140).unwrap();
    let beyond = Bytes(least.0 * 3 / 2);
    assert_eq!(plan.largest(beyond, 8).sure, Some(140));
    assert!(plan.largest(beyond, 8).edge > Some(140));
    assert_eq!(plan.largest(Bytes(least.0 * 3 / 4), 8).sure, Some(19));
}

#[test]
fn a_program_of_another_batch_is_not_taken_for_one_of_this() {
    let probes = compiled();
    let mut plan = plan(&probes);
    // Data with fewer samples than the batch: the program is for as many as there are.
    plan.add_compiled(vec![dump(200)]);
    assert_eq!(plan.compiled_batches(), Some(vec![7, 11, 19]));
    // One that has nothing to do with the probes changes nothing.
    let before = plan.predict(40, 8).unwrap().peak;
    let other = read_programs(&fixture("jax0102_cpu_step.hlo.pb")).unwrap();
    plan.add_compiled(vec![Compiled { batch: 40, file: String::new(), programs: other }]);
    assert_eq!(plan.predict(40, 8).unwrap().peak, before);
    assert_eq!(plan.compiled_batches(), Some(vec![7, 11, 19]));
}

#[test]
fn nothing_is_compiled_where_ops_have_names() {
    let plan = plan(&autoencoder());
    assert!([5, 7, 13].iter().all(|&batch| plan.is_explained(batch) && plan.unexplained(batch).is_empty()));
    assert_eq!(plan.compiled_batches(), None);
}

#[test]
fn dumps_that_hold_no_compiled_program_are_errors_with_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let whole = fs::read(fixture("jax0102_cpu_step.hlo.pb")).unwrap();
    let refused = |path: &std::path::Path| {
        let error = read_programs(path).unwrap_err();
        assert!(error.to_string().contains("no compiled program") && error.hint().contains("xla_dump_to"));
    };
    refused(folder.path());
    let file = folder.path().join("module_0007.jit_step.cpu_after_optimizations.hlo.pb");
    for bytes in [&b""[..], b"garbage", &[0xff; 4096], whole.get(..whole.len() - 1).unwrap()] {
        fs::write(&file, bytes).unwrap();
        refused(&file);
        refused(folder.path());
    }
    // As they were compiled, whatever lies beside them.
    let later = folder.path().join("module_0010.jit_other.gpu_after_optimizations.hlo.pb");
    fs::write(&later, &whole).unwrap();
    assert_eq!(read_programs(folder.path()).unwrap().len(), 1);
    fs::write(&file, &whole).unwrap();
    assert_eq!(read_programs(folder.path()).unwrap().len(), 2);
    assert!(read_programs(&folder.path().join("none")).is_err());
}
