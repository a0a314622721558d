//! Real runs of a plan's answer: which ones a search asks for, and what they change in the answer. The runs are made up here.

use vramline::analysis::plan::{
    self as analysis, Confirmation, ConfirmationState, PlanOptions, RealRun, Trial,
};
use vramline::units::Bytes;
use vramline::view::plan::PlanView;

use crate::plan::{autoencoder, plan, reason_of};

/// Runs that pass up to a batch size, as a search asks for them. Returns the runs in its words.
fn searched(truth: u64, batches: &[u64]) -> (Confirmation, Vec<(u64, bool)>) {
    let (probes, limit) = (autoencoder(), Bytes(128 << 20));
    let plan = plan(&probes);
    let options = PlanOptions { batches: batches.to_vec(), limit: Some(limit), ..PlanOptions::default() };
    let mut search = Confirmation::of(&plan, &probes, &options, None);
    let found = search.needs_largest().then(|| plan.largest(limit, 1000));
    let mut tried = Vec::new();
    while let Some(trial) = search.next(&plan, found) {
        tried.push((trial.batch, trial.only_measures));
        // A measured run would join the probes here, so that it is not asked for again.
        let trial = Trial { only_measures: false, ..trial };
        search.add(RealRun { trial, file: String::new(), steps: 12, ran_out: trial.batch > truth });
        assert!(tried.len() <= 32, "{tried:?}");
    }
    (search, tried)
}

#[test]
fn a_search_confirms_what_passes_and_steps_down_from_what_fails() {
    let expected = plan(&autoencoder()).largest(Bytes(128 << 20), 1000).to_confirm.unwrap();
    let (search, tried) = searched(expected, &[]);
    // The first run is far beyond the probes: it measures, with more memory than the limit.
    assert_eq!(tried[0], (expected, true));
    // Then larger ones are tried, and the answer is smaller than all that failed.
    assert!(
        tried[1].0 > expected && tried[1..].iter().all(|&(_, only_measures)| !only_measures),
        "{tried:?}"
    );
    assert_eq!(search.state(), ConfirmationState::Confirmed);
    let (confirmed, failed) = (search.confirmed().unwrap(), search.nearest_failure().unwrap());
    assert!(failed > expected && confirmed <= expected && confirmed * 13 <= failed * 12, "{tried:?}");
    let text = search.sentence("batch");
    assert!(
        text.contains("ran 3 times") && text.contains("12 steps each, and passed. The nearest failure"),
        "{text}"
    );

    let truth = expected * 2 / 3;
    let (search, _) = searched(truth, &[]);
    let confirmed = search.confirmed().unwrap();
    assert!(confirmed <= truth && confirmed > truth / 2, "{confirmed} of {truth}");
    assert!(
        search.nearest_failure().unwrap() > truth
            && search.sentence("batch").contains("The nearest failure seen is at")
    );
    // Nothing but the probes passes, and the largest of them is next to a failure.
    let (search, tried) = searched(13, &[]);
    assert_eq!((search.confirmed(), search.nearest_failure()), (Some(12), Some(14)), "{tried:?}");
    // A batch that was asked for is run, whether it fits or not.
    let (search, _) = searched(20, &[24]);
    assert_eq!(
        (search.confirmed(), search.state(), search.failures(24)),
        (None, ConfirmationState::RanOut, 1)
    );
    assert!(search.sentence("batch").contains("24 ran out of memory under 128 MiB in 1 of 1 runs"));
    let (search, _) = searched(20, &[20]);
    assert_eq!((search.confirmed(), search.passes(20)), (Some(20), 3));
}

#[test]
fn a_climb_ends_below_the_edge_that_runs_show() {
    let expected = plan(&autoencoder()).largest(Bytes(128 << 20), 1000).to_confirm.unwrap();
    for truth in expected..expected * 2 {
        let (search, tried) = searched(truth, &[]);
        let (confirmed, failed) = (search.confirmed().unwrap(), search.nearest_failure().unwrap());
        // It passed three times, a larger one twice, and what failed is farther away.
        assert!(confirmed <= truth && search.passes(confirmed) == 3, "{truth}: {tried:?}");
        assert!(confirmed * 13 <= failed * 12 && failed <= truth + truth / 12 + 2, "{truth}: {tried:?}");
        let above = search.passed_above();
        assert!(above.is_none_or(|above| above <= truth && search.passes(above) == 2), "{tried:?}");
        assert!(above.is_some() || confirmed <= expected, "{truth}: {tried:?}");
        // Batch sizes are small here: a whole one is lost by each rounding.
        assert!(confirmed + 3 + truth / 10 >= truth, "{confirmed} of {truth}: {tried:?}");
        assert!(tried.len() <= 16, "{tried:?}");
    }
    // It does not go on for ever.
    let (search, tried) = searched(u64::MAX, &[]);
    assert!(search.confirmed().unwrap() > expected * 2 && search.nearest_failure().is_none(), "{tried:?}");
    assert!(
        search.sentence("batch").contains(" passed, too. No run failed."),
        "{}",
        search.sentence("batch")
    );
}

#[test]
fn real_runs_decide_what_is_called_sure() {
    let (probes, limit) = (autoencoder(), Bytes(128 << 20));
    let plan = plan(&probes);
    let options = PlanOptions { limit: Some(limit), ..PlanOptions::default() };
    let (passed, _) = searched(u64::MAX, &[]);
    let document = PlanView::from(analysis::plan_confirmed(&plan, &probes, &options, passed.clone()));
    let sure = document.largest_batch.sure.unwrap();
    assert_eq!(Some(sure), passed.confirmed());
    assert!(document.confirmation.confirmed && document.confirmation.passes == 3);
    assert_eq!((document.confirmation.steps, document.confirmation.nearest_failure_batch), (Some(12), None));
    assert_eq!(document.predictions[0].fits, Some(true));
    // A failure that the plan did not expect makes nothing sure that is not smaller.
    let mut failed = Confirmation::of(&plan, &probes, &options, Some(2));
    let trial = Trial { batch: 14, limit, only_measures: false, number: 0 };
    failed.add(RealRun { trial, file: String::new(), steps: 0, ran_out: true });
    failed.stop(ConfirmationState::OtherFailure, "the run failed with exit code 3");
    let document = PlanView::from(analysis::plan_confirmed(&plan, &probes, &options, failed));
    assert_eq!(document.largest_batch.sure, None);
    assert_eq!(reason_of(&document, "largest_batch.sure"), "real runs under the limit ran out of memory");
    assert!(
        document.confirmation.text.contains("another reason than memory: the run failed with exit code 3")
    );
    assert!(document.largest_batch.likely < Some(14));
}

#[test]
fn runs_unlike_the_probes_get_a_second_batch_size() {
    let (probes, limit) = (autoencoder(), Bytes(128 << 20));
    let plan = plan(&probes);
    let options = PlanOptions { limit: Some(limit), ..PlanOptions::default() };
    let mut search = Confirmation::of(&plan, &probes, &options, None);
    let found = Some(plan.largest(limit, 1000));
    let first = search.next(&plan, found).unwrap().batch;
    search.add_unlike(first, "other kernels");
    // A line needs two batch sizes, measured with more memory than the limit.
    let second = search.next(&plan, found).unwrap();
    assert_eq!((second.batch, second.only_measures), (first * 3 / 4, true));
    assert!(second.limit > limit);
    // With a plan of these runs the search goes on, and the answer says which probes it leaves out.
    let mut planned = search.clone();
    planned.leave_out(vec![5, 5, 7, 13]);
    assert_eq!(planned.next(&plan, found).unwrap().batch, first);
    let document = PlanView::from(analysis::plan_confirmed(&plan, &probes, &options, planned));
    let warning = document.warnings.iter().find(|warning| warning.code == "left-out").unwrap();
    assert!(warning.text.contains("other kernels than at 5, 7, 13"), "{}", warning.text);
    // Runs that are not even like each other end it.
    search.add_unlike(second.batch, "other kernels");
    search.add_unlike(second.batch / 2, "other kernels");
    assert_eq!((search.next(&plan, found), search.state()), (None, ConfirmationState::NotAProbe));
    // If the smaller one is like the probes, the kernels change in between: the second batch size is above the first.
    let mut changing = Confirmation::of(&plan, &probes, &options, None);
    changing.add_unlike(first, "other kernels");
    changing.add_like();
    let above = changing.next(&plan, found).unwrap();
    assert_eq!((above.batch, above.only_measures), (first + first.div_ceil(4), true));
    changing.add(RealRun { trial: above, file: String::new(), steps: 12, ran_out: true });
    let between = changing.next(&plan, found).unwrap().batch;
    assert!(between > first && between < above.batch, "{between}");
}

#[test]
fn a_batch_size_is_not_measured_for_ever() {
    let (probes, limit) = (autoencoder(), Bytes(128 << 20));
    let plan = plan(&probes);
    let options = PlanOptions { limit: Some(limit), ..PlanOptions::default() };
    let mut search = Confirmation::of(&plan, &probes, &options, None);
    let found = Some(plan.largest(limit, 1000));
    let mut count = 0;
    // None of these runs joins the probes.
    while let Some(trial) = search.next(&plan, found) {
        search.add(RealRun { trial, file: String::new(), steps: 12, ran_out: false });
        count += 1;
        assert!(trial.only_measures && count < 20, "{trial:?}");
    }
    assert_eq!(search.confirmed(), None);
}
