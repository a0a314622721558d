//! Plans of programs that XLA compiles: known where they were compiled, and nowhere else.

use std::fs;

use vramline::plan::{Basis, Compiled, Doubt, Plan};
use vramline::source::read_programs;
use vramline::units::Bytes;

use crate::fixture;
use crate::plan::{autoencoder, compiled, dump, off, plan, probe};

#[test]
fn a_compiled_program_is_known_where_it_was_compiled_and_nowhere_else() {
    let probes = compiled();
    let mut plan = plan(&probes);
    let serious = |plan: &Plan, batch: u64| {
        let prediction = plan.predict(batch, 8).unwrap();
        let doubts = plan.doubts(&prediction).into_iter();
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
    let (prediction, doubts) = serious(&plan, 139);
    assert_eq!(doubts, [Doubt::NotCompiled(139)]);
    // A compiler's size is exact where it was compiled, and nowhere else.
    assert!(prediction.exact_share() < 0.6, "{prediction:?}");
    // What is called sure was compiled.
    let least = plan.minimum(140, 4, None).unwrap();
    let beyond = Bytes(least.0 * 3 / 2);
    assert_eq!(plan.largest(beyond, 8).sure, Some(140));
    assert!(plan.largest(beyond, 8).edge > Some(140));
    assert_eq!(plan.largest(Bytes(least.0 * 3 / 4), 8).sure, Some(19));
}

#[test]
fn kernels_that_xla_tries_are_matched_by_size_not_by_order() {
    let probes = [3, 5, 7].map(|batch| probe(batch, &format!("jax0112_h200_residual-{batch}.xplane.pb.gz")));
    let plan = plan(&probes);
    // A run without recording at 48, and a recorded one at 53.
    for (batch, truth) in [(48, 394_029_056), (53, 395_229_952)] {
        let found = plan.predict(batch, 1000).unwrap();
        assert!(off(found.peak, truth).abs() < 0.001, "{batch}: {found:?}");
        assert!(found.low.0 < truth && truth < found.high.0, "{batch}: {found:?}");
        let tried: Bytes =
            found.bases.iter().filter(|(basis, _)| *basis == Basis::Scratch).map(|(_, bytes)| *bytes).sum();
        assert!(tried.0 > found.peak.0 / 2, "the peak is where kernels are tried: {found:?}");
        assert!(found.exact_share() < 0.1, "another kernel may be tried at another batch: {found:?}");
    }
    let pool = plan.predict(48, 1000).unwrap().pool;
    assert!(pool[0].0 <= 551_550_976 && 551_550_976 <= pool[2].0, "{pool:?}");
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
        assert!(
            error.to_string().contains("no program compiled by XLA") && error.hint().contains("xla_dump_to")
        );
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
