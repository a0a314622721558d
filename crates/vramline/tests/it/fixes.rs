//! What fixes save in a plan, against real runs with the fixes written into them; and which fixes are offered.

use std::fs;

use vramline::analysis::plan::{PlanOptions, ProbeRead, prepare};
use vramline::plan::{Fix, Plan};
use vramline::snapshot::Role;
use vramline::units::Bytes;

use crate::fixture;
use crate::plan::{autoencoder, compiled, off, plan, torch, view};

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

/// A recorded model of `fixtures/held-out`.
fn held_out(case: &str, batches: [u64; 3]) -> Vec<ProbeRead> {
    let read = |batch: u64| {
        let file = format!("held-out/{case}-{batch}.vram");
        ProbeRead { batch, reading: vramline::read(&fixture(&file)).unwrap(), file }
    };
    batches.map(read).into()
}

#[test]
fn gradients_and_updates_of_pytorch_are_told_apart_by_their_stacks() {
    let peaks = |case: &str, batch: u64| {
        let plan = plan(&held_out(case, [2, 4, 8]));
        let all = plan.fixes(batch, None, 3);
        let of =
            |name: &str| all.iter().find(|fixed| fixed.fixes.len() == 1 && fixed.fixes[0].name() == name);
        let saved = |name: &str| {
            let before = plan.predict(batch, 3).unwrap().peak;
            of(name).map(|fixed| before.0.cast_signed() - fixed.peak.unwrap().0.cast_signed())
        };
        let gradients = plan.predict(batch, 3).unwrap().roles;
        let gradients = gradients.iter().find(|(role, _)| *role == Role::Gradients).unwrap().1;
        (
            gradients.0.cast_signed(),
            ["accumulate", "step-in-backward", "one-by-one", "set-to-none"].map(saved),
        )
    };
    // Its peak is at the end of the backward pass, where all gradients are there and nothing of the update.
    let (gradients, [_, in_backward, one_by_one, to_none]) = peaks("swin-amp", 1);
    assert!(
        (gradients * 9 / 10..=gradients).contains(&in_backward.unwrap()),
        "{in_backward:?} of {gradients}"
    );
    assert!(one_by_one.unwrap() < gradients / 10, "only the pool");
    assert_eq!(to_none, None, "gradients are freed already");
    // One whose peak at a small batch is in the update. What it saves there another peak takes back.
    let (gradients, [_, _, one_by_one, _]) = peaks("gpt-compiled", 1);
    assert!((1..gradients).contains(&one_by_one.unwrap()), "{one_by_one:?}");
    // Half the batch, and the gradients of the other half.
    let (_, [accumulate, _, one_by_one, _]) = peaks("gpt-compiled", 32);
    assert!(accumulate.unwrap() > 1 << 30, "{accumulate:?}");
    assert_eq!(one_by_one, None, "the peak is elsewhere");
}

/// Jobs of `tests/gpu/torch_fixes.py`, as they are and with fixes written into them.
#[test]
fn fixes_of_pytorch_save_what_real_runs_saved() {
    let text = fs::read_to_string(fixture("fixes/measured.jsonl")).unwrap();
    let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (job, batches) in [("decoder", [3, 5, 7]), ("mlp", [11, 17, 23]), ("accumulated", [12, 20, 28])] {
        let plan = plan_of("fixes", job, batches, "vram");
        let rows: Vec<_> = rows.iter().filter(|row| row["job"] == job).collect();
        let batch = rows[0]["batch"].as_u64().unwrap();
        let base = rows.iter().find(|row| row["fix"] == "").unwrap()["allocated"].as_u64().unwrap();
        let predicted = plan.predict(batch, 4).unwrap().peak;
        assert!(off(predicted, base).abs() < 0.005, "{job}: {predicted} and {base}");
        let fixes = plan.fixes(batch, None, 4);
        for row in rows.iter().filter(|row| row["fix"] != "") {
            let fix = row["fix"].as_str().unwrap();
            let found = fixes.iter().find(|fixed| fixed.fixes.len() == 1 && fixed.fixes[0].name() == fix);
            let after = found.map_or(predicted, |fixed| fixed.peak.unwrap());
            let (said, real) = (
                predicted.0.saturating_sub(after.0),
                base.saturating_sub(row["allocated"].as_u64().unwrap()),
            );
            assert!(said.abs_diff(real) * 40 < base, "{job} with {fix}: {said} and {real} of {base}");
        }
        let accumulates = |fix: &Fix| matches!(fix, Fix::Accumulate { .. });
        let is_offered = plan.candidates(batch, None).iter().any(accumulates);
        assert_eq!(is_offered, job != "accumulated", "{job}");
    }
}

#[test]
fn only_fixes_that_verify_can_apply_have_a_command() {
    let outside = |plan: &Plan| -> Vec<&str> {
        let offered = plan.candidates(64, None).into_iter();
        offered.filter(|&fix| plan.is_from_outside(fix)).map(Fix::name).collect()
    };
    // Vramline reaches into Keras, not into a loop of PyTorch: there it sets the allocator only.
    let torch = plan_of("fixes", "decoder", [3, 5, 7], "vram");
    assert!(torch.candidates(64, None).contains(&Fix::MixedPrecision));
    assert_eq!(outside(&torch), ["expandable", "async-allocator"]);
    let keras = plan(&autoencoder());
    assert_eq!(outside(&keras), ["accumulate", "mixed-precision", "one-thread", "compile"]);
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

/// A plan from three recordings of a folder.
fn plan_of(folder: &str, job: &str, batches: [u64; 3], ending: &str) -> Plan {
    let read = |batch: u64| {
        let file = format!("{folder}/{job}-{batch}.{ending}");
        ProbeRead { batch, reading: vramline::read(&fixture(&file)).unwrap(), file }
    };
    plan(&batches.map(read))
}

/// Jobs of `fixtures/fake_torch.py`, as they are and under autocast.
#[test]
fn autocast_saves_what_it_saved() {
    let text = fs::read_to_string(fixture("autocast/truths.jsonl")).unwrap();
    let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for row in rows.iter().filter(|row| row["fix"] == "") {
        let (job, batch) = (row["job"].as_str().unwrap(), row["batch"].as_u64().unwrap());
        let base = row["allocated"].as_u64().unwrap();
        let cast = rows.iter().find(|cast| cast["job"] == job && cast["fix"] == "mixed-precision").unwrap();
        let real = base.saturating_sub(cast["allocated"].as_u64().unwrap());
        let plan = plan_of("autocast", job, [3, 5, 7], "pickle.gz");
        assert!(plan.candidates(batch, None).contains(&Fix::MixedPrecision), "{job}");
        let before = plan.fixed(&[Fix::AsyncAllocator], batch, 3).and_then(|fixed| fixed.peak).unwrap().0;
        match (job, plan.fixed(&[Fix::MixedPrecision], batch, 3)) {
            // A softmax in the program's own code could be any function.
            ("attention", fixed) => assert_eq!(fixed.unwrap().peak, None),
            // Copies in 32 bits for norms and in 16 for convolutions take more than they save.
            ("unet-relu", fixed) => assert!(real == 0 && fixed.is_none(), "{fixed:?}"),
            (_, fixed) => {
                let said = before.saturating_sub(fixed.unwrap().peak.unwrap().0);
                assert!(said.abs_diff(real) * 20 < base, "{job}: {said} and {real} of {base}");
            }
        }
    }
}

#[test]
fn autocast_is_not_offered_to_programs_that_have_it() {
    let is_offered = |folder: &str, job: &str, batches: [u64; 3]| {
        plan_of(folder, job, batches, "vram").candidates(16, None).contains(&Fix::MixedPrecision)
    };
    assert!(!is_offered("held-out", "swin-amp", [2, 4, 8]));
    assert!(!is_offered("held-out-2", "regnet-amp", [2, 4, 8]));
    assert!(!is_offered("held-out-2", "deeplab-bf16", [2, 4, 8]));
    assert!(is_offered("held-out-2", "resnext-adam", [2, 4, 8]));
}

#[test]
fn autocast_is_measured_where_requests_do_not_tell_its_effect() {
    let peak = |plan: &Plan| plan.fixed(&[Fix::MixedPrecision], 16, 4).unwrap().peak;
    assert_eq!(peak(&plan(&torch("gpt-adamw"))), None, "no module is told");
    assert_eq!(peak(&plan_of("held-out", "lstm-adam", [3, 6, 12], "vram")), None, "cuDNN decides");
    assert_eq!(peak(&plan_of("held-out", "gpt-compiled", [2, 4, 8], "vram")), None, "a compiler decides");
}

#[test]
fn fixes_are_of_the_kind_of_pool_and_save_something() {
    let names = |plan: &Plan, batch| -> Vec<&str> {
        plan.candidates(batch, None).into_iter().map(Fix::name).collect()
    };
    let of_host = names(&plan(&autoencoder()), 97);
    assert!(of_host.contains(&"accumulate") && of_host.contains(&"one-thread"), "{of_host:?}");
    assert!(["async-allocator", "scratch-limit", "expandable"].iter().all(|name| !of_host.contains(name)));
    let of_device = names(&plan(&torch("gpt-adamw")), 97);
    assert!(["async-allocator", "expandable"].iter().all(|name| of_device.contains(name)), "{of_device:?}");
    assert!(!names(&plan(&compiled()), 97).contains(&"compile"));
    assert!(!names(&plan(&autoencoder()), 1).contains(&"accumulate"));
    let probes = torch("gpt-adamw");
    let wanted = PlanOptions { batches: vec![64], steps: 4, fixes: true, ..PlanOptions::default() };
    let document = view(&prepare(&probes, &wanted).unwrap(), &probes, &wanted);
    assert!(!document.fixes.is_empty());
    assert!(document.fixes.iter().all(|fix| fix.saving_in_words() != "0 B"), "{:?}", document.fixes);
}
