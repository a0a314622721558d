//! Draws a run as text: its command, its steps, epochs and variables, and its events.

use std::fmt::Write;

use vramline::event::How;
use vramline::recording::manifest::Exit;
use vramline::recording::rows::RecordedMarkKind;
use vramline::snapshot::Role;
use vramline::units::{counted, thousands};
use vramline::view::report::{PoolView, Report};
use vramline::view::run::{EpochView, MarkView, PhaseView, StepView};

use super::{Style, heading, or_dash, printable, table};

pub(super) fn steps(out: &mut String, report: &Report, main: &PoolView, style: Style) {
    let steps: Vec<&StepView> = report
        .steps
        .iter()
        .filter(|step| step.pool == main.name && step.host == main.host && step.pid == main.pid)
        .collect();
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return };
    let Some(highest) = steps.iter().max_by_key(|step| step.peak_bytes) else { return };
    let Some(lowest) = steps.iter().min_by_key(|step| step.peak_bytes) else { return };
    let how = if first.how == How::Inferred { ", inferred" } else { "" };
    heading(out, &format!("{}{how}", counted(steps.len(), "step")), style);
    let _ = if steps.len() == 1 {
        let (peak, current) = (or_dash(first.peak_bytes), or_dash(first.current_bytes));
        writeln!(out, "  peak {peak}; in use at its end {current}")
    } else {
        writeln!(
            out,
            "  peaks from {} (step {}) to {} (step {}); in use at the end of the first step {}, of the last step {}",
            or_dash(lowest.peak_bytes),
            lowest.step,
            or_dash(highest.peak_bytes),
            highest.step,
            or_dash(first.current_bytes),
            or_dash(last.current_bytes)
        )
    };
}

/// The command, how it ended, and who took part.
pub(super) fn job(out: &mut String, report: &Report, style: Style) {
    let Some(run) = &report.run else { return };
    if !run.command.is_empty() {
        let exit = match run.ended {
            None => "still running, or the launcher was killed".to_owned(),
            Some(Exit::Code(0)) => "done".to_owned(),
            Some(Exit::Code(code)) => format!("failed with exit code {code}"),
            Some(Exit::Signal(signal)) => format!("killed by signal {signal}"),
        };
        let command = printable(&run.command.join(" "));
        let _ = writeln!(out, "{}{command}: {exit}{}", style.dim, style.plain);
    }
    if run.processes.len() > 1 {
        let _ = writeln!(out, "{}{} processes{}", style.dim, run.processes.len(), style.plain);
    }
}

/// Phases that fit a screen: a program may call fit again and again.
const PHASES: usize = 12;

/// Steps by phase, warm-up against steady state.
pub(super) fn phases(out: &mut String, report: &Report, style: Style) {
    if report.phases.is_empty() {
        return;
    }
    let several = report.run.as_ref().is_some_and(|run| run.processes.len() > 1);
    heading(out, "Steps", style);
    let titles = PhaseView::TITLES;
    let mut columns = vec![
        (titles.phase, false),
        (titles.steps, true),
        (titles.batches, true),
        (titles.first_peak_bytes, true),
        (titles.later_peak_bytes, true),
        (titles.later_peaks_known, true),
        (titles.current_bytes, true),
        (titles.how, false),
        (titles.pool, false),
    ];
    if several {
        columns.push((titles.pid, true));
    }
    // Of one fit there is nothing to tell apart.
    let has_fits = report.phases.iter().any(|phase| phase.fit > Some(1));
    if has_fits {
        columns.insert(0, (titles.fit, true));
    }
    let left_out = report.phases.len().saturating_sub(PHASES);
    let rows = report.phases.iter().skip(left_out).map(|phase| {
        let mut row = vec![
            phase.phase.word().to_owned(),
            thousands(phase.steps),
            thousands(phase.batches),
            or_dash(phase.first_peak_bytes),
            or_dash(phase.later_peak_bytes),
            thousands(phase.later_peaks_known),
            or_dash(phase.current_bytes),
            phase.how.word().to_owned(),
            phase.pool.clone(),
        ];
        if several {
            row.push(or_dash(phase.pid));
        }
        if has_fits {
            row.insert(0, or_dash(phase.fit));
        }
        row
    });
    table(out, &columns, &rows.collect::<Vec<_>>(), style);
    if left_out > 0 {
        let _ = writeln!(out, "  --json also lists the {} before these", counted(left_out, "row"));
    }
    if report.steps.iter().any(|step| step.peak_bytes.is_none()) {
        let _ = writeln!(
            out,
            "  {}Per-step peaks are recorded only for traced steps; `vramline run --step-peaks` records all of them.{}",
            style.dim, style.plain
        );
    }
}

/// Epochs that fit a screen.
const EPOCHS: usize = 8;

pub(super) fn epochs(out: &mut String, report: &Report, main: &PoolView, style: Style) {
    let epochs: Vec<_> =
        report.epochs.iter().filter(|epoch| epoch.pool == main.name && epoch.host == main.host).collect();
    if epochs.is_empty() {
        return;
    }
    heading(out, &counted(epochs.len(), "epoch"), style);
    let titles = EpochView::TITLES;
    let mut columns = vec![(titles.epoch, true), (titles.peak_bytes, true), (titles.current_bytes, true)];
    let has_fits = epochs.iter().any(|epoch| epoch.fit > Some(1));
    if has_fits {
        columns.insert(0, (titles.fit, true));
    }
    let row = |epoch: &&EpochView| {
        let fit = has_fits.then(|| or_dash(epoch.fit));
        let rest = [epoch.epoch.to_string(), or_dash(epoch.peak_bytes), or_dash(epoch.current_bytes)];
        fit.into_iter().chain(rest).collect::<Vec<_>>()
    };
    let left_out = epochs.len().saturating_sub(EPOCHS);
    table(out, &columns, &epochs.iter().skip(left_out).map(row).collect::<Vec<_>>(), style);
    if left_out > 0 {
        let _ = writeln!(out, "  --json also lists the {} before these", counted(left_out, "epoch"));
    }
}

pub(super) fn inventory(out: &mut String, report: &Report, style: Style) {
    let told: Vec<String> = report
        .inventory
        .iter()
        .filter(|entry| entry.role != Role::Unknown)
        .map(|entry| {
            format!("{} {} in {}", entry.role.word(), entry.bytes, counted(entry.variables, "variable"))
        })
        .collect();
    if !told.is_empty() {
        heading(out, "Variables that the program lists", style);
        let _ = writeln!(out, "  {}", told.join(", "));
    }
}

/// Labels, settings, the trace's ends and exceptions; the last ones, where there are many.
const HAPPENINGS: usize = 10;

pub(super) fn happenings(out: &mut String, report: &Report, style: Style) {
    let is_told = |kind: &RecordedMarkKind| {
        use RecordedMarkKind::{Exception, Mark, Setting, Trace};
        matches!(kind, Mark | Trace | Setting | Exception)
    };
    let mut marks: Vec<_> = report.marks.iter().filter(|mark| is_told(&mark.kind)).collect();
    let left_out = marks.len().saturating_sub(HAPPENINGS);
    marks.drain(..left_out);
    if marks.is_empty() {
        return;
    }
    heading(out, "What happened", style);
    let titles = MarkView::TITLES;
    let columns = [
        (titles.time_ns, true),
        (titles.kind, false),
        (titles.current_bytes, true),
        (titles.peak_bytes, true),
        (titles.label, false),
    ];
    let row = |mark: &&MarkView| {
        let label = mark.label.lines().next().unwrap_or_default();
        let label: String = label.chars().take(100).collect();
        vec![
            mark.time_ns.to_string(),
            mark.kind.word().to_owned(),
            or_dash(mark.current_bytes),
            or_dash(mark.peak_bytes),
            label,
        ]
    };
    table(out, &columns, &marks.iter().map(row).collect::<Vec<_>>(), style);
    if left_out > 0 {
        let _ = writeln!(out, "  --json also lists the {} before these", counted(left_out, "event"));
    }
}
