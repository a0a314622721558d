//! Owners of JAX's memory, compared address by address with what the arrays of real trainings said of themselves.

use std::collections::BTreeMap;
use std::fs;

use vramline::analysis::held::GroupBy;
use vramline::analysis::report::ReportOptions;
use vramline::recording::process::ProcessRecorder;
use vramline::recording::reader;
use vramline::recording::rows::{Moment, OwnerKind, OwnerRow};
use vramline::snapshot::Role;
use vramline::trace::{Lifetime, Trace};
use vramline::units::{Bytes, Picos};
use vramline::view::report::{HeldView, Report};
use vramline::{Reading, read};

use crate::recorded::copy;
use crate::{checked_report, fixture};

/// The arrays at the end of one step: path, address, bytes; in the order of the trees.
type Step = Vec<(String, u64, Bytes)>;

fn truth(job: &str) -> (Bytes, Vec<Step>) {
    let text = fs::read(fixture(&format!("jax_owners/{job}.json"))).unwrap();
    let told: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let array = |(path, told): (&String, &serde_json::Value)| {
        (path.clone(), told[0].as_u64().unwrap(), Bytes(told[1].as_u64().unwrap()))
    };
    let steps = told["steps"].as_array().unwrap().iter();
    let steps = steps.map(|step| step.as_object().unwrap().iter().map(array).collect()).collect();
    (Bytes(told["peak"].as_u64().unwrap()), steps)
}

fn reading(job: &str) -> Reading {
    let trace = fixture(&format!("jax_owners/{job}.xplane.pb.gz"));
    read(if trace.exists() { trace } else { fixture(&format!("jax_owners/{job}.vram")) }.as_path()).unwrap()
}

fn reported(reading: &Reading) -> Report {
    checked_report(reading, &ReportOptions::default())
}

fn at_peak(report: &Report) -> &HeldView {
    let pool = report.pools.iter().find(|pool| pool.name.contains("GPU_0_bfc")).unwrap();
    pool.at_peak.as_ref().unwrap()
}

/// Bytes of the arrays of a role, by what the program calls its trees.
fn expected(arrays: &Step, role: Role) -> Bytes {
    arrays.iter().filter(|(path, ..)| role_of(path) == role).map(|(.., bytes)| *bytes).sum()
}

fn role_of(path: &str) -> Role {
    let path = path.trim_start_matches("state.");
    match path.split(['[', '.', ' ']).next().unwrap() {
        "params" | "weights" | "parameters" => Role::Parameters,
        "opt" | "opt_state" | "momentum" | "optimizer" => Role::Optimizer,
        "batch" | "images" | "labels" => Role::Inputs,
        _ => Role::Unknown,
    }
}

/// The blocks of the device that live at a moment, by address.
fn live(trace: &Trace, time: Picos) -> BTreeMap<u64, Lifetime> {
    let name = |pool: &&vramline::trace::PoolTrace| trace.history.pools[usize::from(pool.id.0)].name.clone();
    let pool = trace.pools.iter().find(|pool| name(pool) == "GPU_0_bfc").unwrap();
    let lives = trace.lifetimes(pool).filter(|life| life.born <= time);
    let lives = lives.filter(|life| life.freed.is_none_or(|freed| freed > time));
    lives.map(|life| (life.address.unwrap(), life)).collect()
}

/// Every array of every step: its block, by address, with the array's path.
fn blocks(trace: &Trace, steps: &[Step]) -> Vec<(String, Bytes, Lifetime)> {
    assert_eq!(trace.steps.len(), steps.len());
    let mut found = Vec::new();
    for (step, arrays) in trace.steps.iter().zip(steps) {
        let mut live = live(trace, step.end);
        for (path, address, bytes) in arrays {
            let life = live.remove(address).unwrap_or_else(|| panic!("no block at the address of {path}"));
            assert_eq!(life.held.requested, *bytes, "{path}");
            found.push((path.clone(), *bytes, life));
        }
    }
    found
}

#[test]
fn nearly_all_of_the_peak_has_an_owner_and_a_role() {
    for job in ["jax_lm", "jax_lm_donated", "jax_scan_mlp", "optax_lm", "flax_linen", "keras_jax"] {
        let (peak, steps) = truth(job);
        let report = reported(&reading(job));
        let held = at_peak(&report);
        assert_eq!(held.in_use_bytes, peak, "{job}");
        assert!(held.rest.is_none());
        let requested = held.named_bytes + held.unnamed_bytes;
        let is_known = |role: &str, layer: &str| role != "unknown" && !layer.is_empty();
        let known: u64 =
            held.rows.iter().filter(|row| is_known(row.role, &row.layer)).map(|row| row.bytes.0).sum();
        assert!(known * 1000 >= requested.0 * 999, "{job}: {known} of {requested:?}");
        for role in [Role::Parameters, Role::Optimizer] {
            assert_eq!(held.by_role.get(role), expected(&steps[0], role), "{job}: {role:?}");
        }
    }
}

#[test]
fn returned_arrays_have_the_paths_of_the_arguments() {
    for job in ["jax_lm", "jax_scan_mlp", "optax_lm"] {
        let (_, steps) = truth(job);
        let reading = reading(job);
        let trace = &reading.hosts[0].trace;
        let mut compared = 0;
        for (path, _, life) in blocks(trace, &steps) {
            // The loss is no argument.
            if role_of(&path) != Role::Unknown {
                assert_eq!((life.held.variable.as_str(), life.held.role), (path.as_str(), role_of(&path)));
                compared += 1;
            }
        }
        assert_eq!(
            compared,
            steps.iter().map(|step| step.len()).sum::<usize>() - usize::from(job == "jax_lm") * 6
        );
    }
}

#[test]
fn flax_has_the_names_that_people_know() {
    let (_, steps) = truth("flax_linen");
    let reading = reading("flax_linen");
    let found = blocks(&reading.hosts[0].trace, &steps);
    let of = |path: &str| {
        let blocks = found.iter().filter(|(of, ..)| of == path);
        let told = |(.., life): &(String, Bytes, Lifetime)| {
            (life.held.role, life.held.layer.clone(), life.held.variable.clone())
        };
        let mut told: Vec<_> = blocks.map(told).collect();
        assert_eq!(told.len(), 6);
        told.dedup();
        assert_eq!(told.len(), 1, "{told:?}");
        told.remove(0)
    };
    let told = |role, layer: &str, variable: &str| (role, layer.to_owned(), variable.to_owned());
    assert_eq!(of("state.params['Conv_0']['kernel']"), told(Role::Parameters, "Conv_0", "Conv_0.kernel"));
    assert_eq!(
        of("state.opt_state[0].nu['Dense_1']['bias']"),
        told(Role::Optimizer, "Dense_1", "Dense_1.bias nu")
    );
    assert_eq!(of("images"), told(Role::Inputs, "input data", "images"));
    // What a module computes is in the layer of its parameters.
    let trace = &reading.hosts[0].trace;
    let last = trace.steps.last().unwrap();
    let by_layer = ReportOptions { by: GroupBy::Layer, ..ReportOptions::default() };
    let report = checked_report(&reading, &by_layer);
    let layers: Vec<&str> = at_peak(&report).rows.iter().map(|row| row.layer.as_str()).collect();
    assert!(["XLA autotuning", "Dense_1", "Conv_1"].iter().all(|layer| layers.contains(layer)), "{layers:?}");
    let pool = &trace.pools[0];
    let during = trace.snapshot(pool, Picos(last.end.0 - 1_000_000)).unwrap();
    let roles = during.held.iter().filter(|held| held.layer == "Dense_1").map(|held| held.role);
    let roles: std::collections::BTreeSet<Role> = roles.collect();
    assert!(roles.contains(&Role::Parameters) && roles.contains(&Role::Optimizer), "{roles:?}");
}

/// A step without donation holds two copies of its state while it runs; one of them is the parameters.
#[test]
fn the_next_values_are_state_until_the_call_ends() {
    let (_, steps) = truth("jax_lm");
    let report = reported(&reading("jax_lm"));
    let held = at_peak(&report);
    let arrays: Bytes =
        [Role::Parameters, Role::Optimizer].map(|role| expected(&steps[0], role)).into_iter().sum();
    assert_eq!(held.by_role.get(Role::State), arrays);
    let next = held.rows.iter().find(|row| row.role == "state").unwrap();
    assert!(next.evidence.starts_with("the next value of an argument"), "{}", next.evidence);
    // With donation there is one.
    assert_eq!(at_peak(&reported(&reading("jax_lm_donated"))).by_role.get(Role::State), Bytes::ZERO);
}

/// Donated arguments stay where the program first put them. The trace tells what is parameters and what is the optimizer's; which of the
/// arrays of one size a block is, the process tells.
#[test]
fn donated_arrays_are_named_by_the_addresses_that_were_passed() {
    let (_, steps) = truth("jax_lm_donated");
    let reading = reading("jax_lm_donated");
    let trace = &reading.hosts[0].trace;
    for (path, _, life) in blocks(trace, &steps).iter().filter(|(path, ..)| role_of(path) != Role::Unknown) {
        assert!(path.starts_with(&life.held.variable), "{path}: {}", life.held.variable);
        assert_eq!(life.held.role, role_of(path), "{path}");
    }
    // The same recording with what the process notes at the first call.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("noted.vram");
    copy(&fixture("jax_owners/jax_lm_donated.vram"), &path);
    let process = reader::read(&path).unwrap().processes.remove(0);
    let zero = trace.history.monotonic_zero.unwrap().0 + trace.history.origin.0;
    let time = Moment { monotonic: zero + trace.steps[0].end.0 / 1000 - 100, wall: 0 };
    let row = |(number, (_, address, _)): (i64, &(String, u64, Bytes))| OwnerRow {
        time,
        kind: OwnerKind::Argument,
        name: "jit(step)".to_owned(),
        variable: Some(String::new()),
        variable_number: Some(number),
        address: Some(*address),
        ..OwnerRow::default()
    };
    // In the order of the parameters: JAX sorts the keys of a dict.
    let rank = |path: &str| ["params", "opt", "batch"].iter().position(|root| path.starts_with(root));
    let mut arguments: Vec<_> = steps[0].iter().filter(|(path, ..)| path != "loss").collect();
    arguments.sort_by_key(|(path, ..)| (rank(path), path.clone()));
    let rows: Vec<OwnerRow> = (0..).zip(arguments).map(row).collect();
    assert_eq!(rows.len(), 92);
    let recorder = ProcessRecorder::new(&path, &process.id);
    recorder.owners(&rows).unwrap();
    recorder.close();
    let noted = read(&path).unwrap();
    for (path, _, life) in &blocks(&noted.hosts[0].trace, &steps[..]) {
        if path != "loss" {
            assert_eq!((&life.held.variable, life.held.role), (path, role_of(path)));
        }
    }
    let report = reported(&noted);
    assert!(
        at_peak(&report)
            .rows
            .iter()
            .any(|row| row.evidence.contains("by the address that the process passed"))
    );
}

#[test]
fn keras_names_its_variables() {
    let (_, steps) = truth("keras_jax");
    let reading = reading("keras_jax");
    let trace = &reading.hosts[0].trace;
    let live = live(trace, Picos(i64::MAX));
    // JAX lets donated scalars change places, and the last list of variables is older than the last step.
    for (path, address, bytes) in steps[0].iter().filter(|(.., bytes)| bytes.0 > 4) {
        let (role, name) = path.split_once(' ').unwrap();
        let held = &live[address].held;
        assert_eq!((held.role.word(), held.variable.as_str(), held.requested), (role, name, *bytes));
    }
}
