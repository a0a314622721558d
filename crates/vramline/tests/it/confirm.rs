//! Real runs of a plan's answer: which ones a search asks for, and what they change in the answer. The runs are made up here.

use vramline::analysis::plan::{
    self as analysis, Confirmation, ConfirmationState, PlanOptions, ProbeRead, RealRun, Trial,
};
use vramline::plan::{Largest, Plan};
use vramline::units::Bytes;
use vramline::view::plan::PlanView;

use crate::plan::{autoencoder, plan, reason_of};

/// Searches for the largest batch size under a limit. The plan is the same for all of them.
struct Searches {
    probes: Vec<ProbeRead>,
    plan: Plan,
    found: Largest,
}

const LIMIT: Bytes = Bytes(128 << 20);

/// A run as a search asked for it.
fn ran(trial: Trial, steps: usize, ran_out: bool) -> RealRun {
    RealRun { trial, file: String::new(), steps, ran_out, peak: None, percent_of_others: None }
}

impl Searches {
    fn new() -> Searches {
        let probes = autoencoder();
        let plan = plan(&probes);
        let found = plan.largest(LIMIT, 1000);
        Searches { probes, plan, found }
    }

    /// The batch size that the plan would run first.
    fn expected(&self) -> u64 {
        self.found.to_confirm.unwrap()
    }

    /// A search, and the runs that it asks for.
    fn search(&self, batches: &[u64], mut fails: impl FnMut(u64) -> bool) -> (Confirmation, Vec<Trial>) {
        let options = PlanOptions { batches: batches.to_vec(), limit: Some(LIMIT), ..PlanOptions::default() };
        let mut search = Confirmation::of(&self.plan, &self.probes, &options, None);
        let found = search.needs_largest().then_some(self.found);
        let mut tried = Vec::new();
        while let Some(trial) = search.next(&self.plan, found) {
            tried.push(trial);
            let ran_out = fails(trial.batch);
            // A measured run would join the probes here, so that it is not asked for again.
            let trial = Trial { only_measures: false, ..trial };
            search.add(ran(trial, 12, ran_out));
            assert!(tried.len() <= 40, "{tried:?}");
        }
        (search, tried)
    }

    /// A search where all runs pass up to a batch size.
    fn up_to(&self, truth: u64) -> (Confirmation, Vec<Trial>) {
        self.search(&[], |batch| batch > truth)
    }
}

#[test]
fn a_search_confirms_what_passes_and_steps_down_from_what_fails() {
    let searches = Searches::new();
    let expected = searches.expected();
    let (search, tried) = searches.up_to(expected);
    // The first run is far beyond the probes: it measures, with more memory than the limit.
    assert_eq!((tried[0].batch, tried[0].only_measures, tried[0].is_traced), (expected, true, true));
    // Then larger ones are tried without a trace, and the answer is smaller than all that failed.
    assert!(tried[1].batch > expected, "{tried:?}");
    assert!(tried[1..].iter().all(|trial| !trial.only_measures && !trial.is_traced), "{tried:?}");
    assert_eq!(search.state(), ConfirmationState::Confirmed);
    let (confirmed, failed) = (search.confirmed().unwrap(), search.nearest_failure().unwrap());
    assert!(failed > expected && confirmed <= expected, "{tried:?}");
    let text = search.sentence("batch");
    assert!(
        text.contains("ran 3 times")
            && text.contains("12 steps each, and passed. Batch size 65 passed, too. The nearest"),
        "{text}"
    );

    let truth = expected * 2 / 3;
    let (search, _) = searches.up_to(truth);
    let confirmed = search.confirmed().unwrap();
    assert!(confirmed <= truth && confirmed > truth / 2, "{confirmed} of {truth}");
    assert!(
        search.nearest_failure().unwrap() > truth
            && search.sentence("batch").contains("The nearest failure seen is at")
    );
    // Nothing but the probes passes, and the largest of them is next to a failure.
    let (search, tried) = searches.up_to(13);
    assert_eq!((search.confirmed(), search.nearest_failure()), (Some(12), Some(14)), "{tried:?}");
    // A batch that was asked for is run, whether it fits or not.
    let (search, _) = searches.search(&[24], |batch| batch > 20);
    assert_eq!(
        (search.confirmed(), search.state(), search.failures(24)),
        (None, ConfirmationState::RanOut, 1)
    );
    assert!(search.sentence("batch").contains("24 ran out of memory under 128 MiB in 1 of 1 runs"));
    let (search, _) = searches.search(&[20], |batch| batch > 20);
    assert_eq!((search.confirmed(), search.passes(20)), (Some(20), 3));
}

#[test]
fn a_climb_ends_below_the_edge_that_runs_show() {
    let searches = Searches::new();
    let expected = searches.expected();
    for truth in expected..expected * 2 {
        let (search, tried) = searches.up_to(truth);
        let (confirmed, failed) = (search.confirmed().unwrap(), search.nearest_failure().unwrap());
        assert!(confirmed <= truth && search.passes(confirmed) == 3, "{truth}: {tried:?}");
        assert!(failed <= truth + truth / 12 + 2, "{truth}: {tried:?}");
        // Batch sizes are small here: a whole one is lost by each rounding.
        assert!(confirmed + 3 + truth / 12 >= truth, "{confirmed} of {truth}: {tried:?}");
    }
    // It does not go on for ever.
    let (search, tried) = searches.up_to(u64::MAX);
    assert!(search.confirmed().unwrap() > expected * 2 && search.nearest_failure().is_none(), "{tried:?}");
    assert!(search.sentence("batch").contains(" No run failed."), "{}", search.sentence("batch"));
}

const SEARCHES: u32 = 40;

/// Where the edge is not sharp the answer keeps its distance from it: it hardly ever fails, whatever the runs of the search happened to show.
#[test]
fn an_answer_keeps_its_distance_from_an_edge_that_is_not_sharp() {
    let mut state = 7_u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let chance = |batch: u64, middle: f64, width: f64| {
        1.0 / (1.0 + (((middle.ln() - (batch as f64).ln()) / width).exp()))
    };
    let searches = Searches::new();
    let expected = searches.expected() as f64;
    for (width, least, most_failures) in [(0.004, 0.9, 0.01), (0.012, 0.87, 0.05), (0.03, 0.8, 0.3)] {
        let (mut distance, mut failures, mut runs) = (0.0, 0.0, 0);
        for _ in 0..SEARCHES {
            let middle = expected * (1.0 + random() / 5.0) * 1.05;
            let (search, tried) = searches.search(&[], |batch| random() < chance(batch, middle, width));
            let confirmed = search.confirmed().unwrap();
            distance += confirmed as f64 / middle / f64::from(SEARCHES);
            failures += 20.0 * chance(confirmed, middle, width) / f64::from(SEARCHES);
            runs = runs.max(tried.len());
        }
        assert!(distance > least && distance < 1.0, "{width}: {distance}");
        assert!(failures < most_failures, "{width}: {failures} of 20 further runs fail");
        assert!(runs <= 24, "{width}: {runs} runs");
    }
}

#[test]
fn real_runs_decide_what_is_called_sure() {
    let (probes, limit) = (autoencoder(), Bytes(128 << 20));
    let plan = plan(&probes);
    let options = PlanOptions { limit: Some(limit), ..PlanOptions::default() };
    let (passed, _) = Searches::new().up_to(u64::MAX);
    let document = PlanView::from(analysis::plan_confirmed(&plan, &probes, &options, passed.clone()));
    let sure = document.largest_batch.sure.unwrap();
    assert_eq!(Some(sure), passed.confirmed());
    assert!(document.confirmation.confirmed && document.confirmation.passes == 3);
    assert_eq!((document.confirmation.steps, document.confirmation.nearest_failure_batch), (Some(12), None));
    assert_eq!(document.predictions[0].fits, Some(true));
    // A failure that the plan did not expect makes nothing sure that is not smaller.
    let mut failed = Confirmation::of(&plan, &probes, &options, Some(2));
    let trial = Trial { batch: 14, limit, only_measures: false, is_traced: false, number: 0 };
    failed.add(ran(trial, 0, true));
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
    planned.leave_out(self::plan(&probes));
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
    changing.add(ran(above, 12, true));
    let between = changing.next(&plan, found).unwrap().batch;
    assert!(between > first && between < above.batch, "{between}");
}

#[test]
fn a_batch_size_is_predicted_with_the_kernels_that_its_run_used() {
    let small = autoencoder();
    // As if larger batch sizes needed an eighth.
    let large: Vec<ProbeRead> =
        autoencoder().into_iter().map(|probe| ProbeRead { batch: probe.batch * 8, ..probe }).collect();
    let (of_small, of_large) = (plan(&small), plan(&large));
    let options = PlanOptions { batches: vec![20], limit: Some(LIMIT), ..PlanOptions::default() };
    let peak = |plan: &Plan| plan.predict(20, options.steps).unwrap().peak;
    let (peak_of_small, peak_of_large) = (peak(&of_small), peak(&of_large));
    assert!(peak_of_small > peak_of_large);
    for real in [peak_of_small, peak_of_large] {
        let mut search = Confirmation::of(&of_large, &large, &options, None);
        search.leave_out(plan(&small));
        let trial = Trial { batch: 20, limit: LIMIT, only_measures: false, is_traced: false, number: 0 };
        search.add(RealRun { peak: Some(real), ..ran(trial, 12, false) });
        let answer = analysis::plan_confirmed(&of_large, &large, &options, search);
        assert_eq!(answer.predictions.first().unwrap().taken.peak, real);
    }
}

#[test]
fn other_programs_that_use_the_processors_are_a_warning() {
    let searches = Searches::new();
    let (search, _) = searches.up_to(searches.expected());
    let options = PlanOptions { limit: Some(LIMIT), ..PlanOptions::default() };
    let warned = |percents: &[u64]| -> Option<String> {
        let mut search = search.clone();
        for (run, percent) in search.runs.iter_mut().zip(percents) {
            run.percent_of_others = Some(*percent);
        }
        let plan = analysis::plan_confirmed(&searches.plan, &searches.probes, &options, search);
        plan.warnings
            .into_iter()
            .find(|warning| warning.code == "busy-processors")
            .map(|warning| warning.text)
    };
    let text = warned(&[3, 12, 40]).unwrap();
    assert!(text.starts_with("other programs used up to 40 % of the processors during 2 of"), "{text}");
    assert_eq!((warned(&[]), warned(&[9, 0])), (None, None));
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
        search.add(ran(trial, 12, false));
        count += 1;
        assert!(trial.only_measures && count < 20, "{trial:?}");
    }
    assert_eq!(search.confirmed(), None);
}
