//! Runs the batch size that a plan answers with, and plans again if a run disagrees. Which runs to make is decided in the core.

use std::path::Path;
use std::sync::Arc;

use vramline::analysis::causes::read_failures;
use vramline::analysis::plan::{
    self, Confirmation, ConfirmationState, PlanOptions, ProbeRead, RealRun, Trial, peak_of, ran_out,
    training_steps,
};
use vramline::plan::Plan;
use vramline::source::procfs::processor_time;

use super::PlanArgs;
use crate::exit::Failure;
use crate::input::Input;
use crate::launch::probes::{self, Attempt, ProbeJob, last_words};
use crate::launch::values::Variables;
use crate::progress::ProgressLine;

/// Confirms the answer of a plan with real runs. A run that shows more than the probes did joins them, and the plan is made again.
pub(super) fn confirm(
    args: &PlanArgs,
    options: &PlanOptions,
    plan: &mut Plan,
    read: &mut Vec<ProbeRead>,
) -> Result<Confirmation, Failure> {
    if args.job.command.is_empty() {
        let why =
            if options.limit.is_none() { ConfirmationState::NoLimit } else { ConfirmationState::NoCommand };
        return Ok(Confirmation::none(why));
    }
    if args.no_confirm {
        return Ok(Confirmation::none(ConfirmationState::SwitchedOff));
    }
    let mut confirmation = Confirmation::of(plan, read, options, args.confirm);
    let Some(limit) = options.limit else { return Ok(confirmation) };
    let mut found = None;
    // Runs that are not like the probes.
    let mut unlike: Vec<ProbeRead> = Vec::new();
    loop {
        if found.is_none() && confirmation.needs_largest() {
            let _line = ProgressLine::timed("planning");
            found = Some(plan.largest(limit, options.steps));
        }
        let Some(trial) = confirmation.next(plan, found) else { return Ok(confirmation) };
        let Some((run, probe)) = run(args, trial, &mut confirmation)? else { return Ok(confirmation) };
        let probe = probe.filter(|_| confirmation.is_new(plan, &run));
        confirmation.add(run);
        let Some(probe) = probe else { continue };
        read.push(probe);
        let line = ProgressLine::timed("planning");
        let again = plan::prepare(read, options);
        drop(line);
        match again {
            Ok(again) => {
                confirmation.add_like();
                (*plan, found) = (again, None);
            }
            Err(error) if !error.is_other_program() => {
                // The plan from the probes before it stands.
                read.pop();
                confirmation.stop(ConfirmationState::NotAProbe, error.to_string());
            }
            Err(error) => {
                let Some(probe) = read.pop() else { continue };
                confirmation.add_unlike(probe.batch, &error.to_string());
                unlike.push(probe);
                if let Ok(again) = plan::prepare(&unlike, options) {
                    *read = std::mem::take(&mut unlike);
                    confirmation.leave_out(std::mem::replace(plan, again));
                    found = None;
                }
            }
        }
    }
}

/// Makes one run. `None`, with the reason in the confirmation, if it shows nothing about memory.
fn run(
    args: &PlanArgs,
    trial: Trial,
    confirmation: &mut Confirmation,
) -> Result<Option<(RealRun, Option<ProbeRead>)>, Failure> {
    let job = &args.job;
    let Trial { batch, limit, number, .. } = trial;
    let begin = if trial.only_measures {
        format!("measuring {} {batch} under {limit}", job.variable)
    } else if confirmation.is_climbing() {
        format!("trying {} {batch} under {limit}", job.variable)
    } else {
        format!(
            "confirming {} {batch} under {limit}: run {} of {}",
            job.variable,
            number + 1,
            confirmation.wanted
        )
    };
    let before = processor_time();
    let attempt = probes::attempt(
        &ProbeJob {
            batches: &[batch],
            repeats: 1,
            steps: job.trace_steps,
            is_traced: trial.is_traced,
            variable: &job.variable,
            command: &job.command,
            folder: &job.output,
            name: if trial.only_measures { "measured-near" } else { "confirmed" },
            label: "run",
            more: &Variables::new(),
            allocator: None,
            limit: Some(limit),
            is_anew: false,
        },
        batch,
        number,
        &begin,
    );
    let Attempt { recording, log, failed, is_earlier } = match attempt {
        Ok(attempt) => attempt,
        Err(failure @ Failure::Interrupted { .. }) => return Err(failure),
        Err(failure) => {
            confirmation.stop(ConfirmationState::NotStarted, failure.text());
            return Ok(None);
        }
    };
    let times = before.zip(processor_time()).filter(|_| !is_earlier);
    let percent_of_others = times.and_then(|(before, after)| after.percent_of_others(before));
    let reading = Input::new(false).read_as_it_is(&recording);
    let ran_out = failed.is_some() && (reading.as_ref().is_ok_and(ran_out) || is_in_log(&log));
    if let (Some(failed), false) = (&failed, ran_out) {
        let words = last_words(&log);
        let last = words.lines().last().unwrap_or_default();
        let details = format!(
            "the run with {} {batch} {failed}; the last line of '{}' is: {last}",
            job.variable,
            log.display()
        );
        confirmation.stop(ConfirmationState::OtherFailure, details);
        return Ok(None);
    }
    let file = recording.display().to_string();
    let (known, pool) = (reading.as_ref().ok(), job.pool.as_deref());
    let run = RealRun {
        trial,
        file: file.clone(),
        steps: known.map_or(0, |reading| training_steps(reading, pool)),
        ran_out,
        peak: known.and_then(|reading| peak_of(reading, pool)),
        percent_of_others,
    };
    match reading {
        _ if ran_out => Ok(Some((run, None))),
        Ok(reading) => Ok(Some((run, Some(ProbeRead { batch, file, reading })))),
        Err(failure) => Err(failure.context(format!("cannot read the run '{file}'"))),
    }
}

/// Whether a log tells of a request for memory that failed. A program may catch the error and end with a code of its own.
fn is_in_log(log: &Path) -> bool {
    let found = read_failures(&[log.to_owned()], None, &Arc::default());
    found.is_ok_and(|found| !found.failures.list.is_empty())
}
