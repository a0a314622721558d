//! Draws the details of one process: its command, memory, roles and steps.

use ratatui::layout::Rect;
use ratatui::style::Color;
use ratatui::text::{Line, Span};
use vramline::units::{Bytes, Nanos};
use vramline::view::top::{TopJob, TopProcess};

use super::pen::{Paint, Pen};
use super::state::{Roles, State};
use crate::lookout::Look;
use crate::printer::top::{bytes, command, elapsed};
use crate::printer::{percent, printable, signed};

/// Draws the details of the selected process.
pub(super) fn detail(pen: &mut Pen<'_>, state: &State, look: &Look, paint: Paint) {
    let rows = state.rows();
    let Some(row) = state.chosen(&rows) else {
        pen.line("  This process has ended. Press Esc to go back.");
        return;
    };
    let job = row.job.and_then(|job| look.document.jobs.get(job));
    about(pen, row, job, look, paint);
    let (left, right) = (roles(state, row, job, paint), steps(row, paint));
    let area = Rect { y: pen.area.y + pen.used, height: pen.left(), ..pen.area };
    // Side by side if there is room, else one below the other. Both scroll.
    if area.width >= 100 {
        let half = (area.width / 2).min(60);
        let mut pen_left = Pen::new(pen.buffer, Rect { width: half.saturating_sub(2), ..area });
        left.into_iter().for_each(|line| pen_left.line(line));
        let rest = Rect { x: area.x + half, width: area.width - half, ..area };
        let mut pen_right = Pen::new(pen.buffer, rest);
        right.into_iter().skip(state.scroll).for_each(|line| pen_right.line(line));
    } else {
        left.into_iter().chain(right).skip(state.scroll).for_each(|line| pen.line(line));
    }
}

fn about(pen: &mut Pen<'_>, row: &TopProcess, job: Option<&TopJob>, look: &Look, paint: Paint) {
    let rank = row.rank.map_or(String::new(), |rank| format!(", rank {rank}"));
    pen.line(vec![
        Span::styled(format!("process {} on {}{rank}  ", row.pid, row.device), paint.bold()),
        Span::raw(command(row)),
    ]);
    if let Some(job) = job {
        let age = job.began_ns.map_or(String::new(), |began| {
            format!(" for {}", elapsed(Nanos(look.document.time_ns.0.saturating_sub(began.0))))
        });
        let framework =
            row.framework.as_deref().map_or(String::new(), |name| format!(", {}", printable(name)));
        pen.line(format!("{}{age}{framework}, {}", job.state.word(), printable(&job.path)));
    } else {
        pen.line(Line::styled("not recorded: only the driver reports its memory", paint.dim()));
        pen.line(Line::styled(
            "start it with `vramline run -- CMD` to see pools, roles and steps",
            paint.dim(),
        ));
    }
    let figure = |name: &str, value: Option<Bytes>| format!("{name} {}   ", bytes(value));
    pen.line(
        [
            figure("memory", row.held_bytes),
            figure("reserved", row.pool_bytes),
            figure("in use", row.in_use_bytes),
            figure("cached", row.cached_bytes),
        ]
        .concat(),
    );
    pen.line(
        [
            figure("peak", row.peak_bytes),
            figure("limit", row.limit_bytes),
            figure("headroom", row.headroom_bytes),
            row.silent_ns
                .filter(|silent| silent.0 > 3_000_000_000)
                .map_or(String::new(), |silent| format!("no data for {}", elapsed(silent))),
        ]
        .concat(),
    );
    if let Some(exception) = &row.exception {
        pen.line(Line::styled(printable(exception), paint.colour(Color::Red)));
    }
}

fn roles(state: &State, row: &TopProcess, job: Option<&TopJob>, paint: Paint) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if job.is_none() {
        return lines;
    }
    let title = |text: String| Line::styled(text, paint.bold());
    match state.roles(row) {
        Some(Roles::Known { pool, peak, rows }) => {
            lines.push(title(format!(
                "In use at the peak of the traced steps: {peak} in {}",
                printable(pool)
            )));
            for (role, bytes) in rows {
                let share = percent(*bytes, *peak);
                lines.push(Line::from(format!("  {:>9} {share:>7}  {role}", bytes.to_string())));
            }
        }
        Some(Roles::Loading) => lines.push(title("Reading the trace ...".to_owned())),
        Some(Roles::Unknown(why)) => lines.push(title(printable(why))),
        None => lines.push(Line::styled("roles are unknown until the first trace is written", paint.dim())),
    }
    if !row.roles.is_empty() {
        lines.push(title("Variables of the program".to_owned()));
    }
    for role in &row.roles {
        lines.push(Line::from(format!(
            "  {:>9}  {} in {} {}",
            role.bytes.to_string(),
            role.role.word(),
            role.variables,
            if role.variables == 1 { "variable" } else { "variables" }
        )));
    }
    if !row.outside.is_empty() {
        lines.push(title("Outside the pool, by driver calls".to_owned()));
    }
    for held in &row.outside {
        let text = format!("  {:>9}  {}: {}", signed(held.bytes), held.line.title(), held.detail);
        lines.push(Line::from(printable(&text)));
    }
    lines
}

fn steps(row: &TopProcess, paint: Paint) -> Vec<Line<'static>> {
    if row.steps.is_empty() {
        return Vec::new();
    }
    let head =
        format!("{:>8} {:>6} {:<11}{:>9} {:>9} {:>9}", "STEP", "EPOCH", "PHASE", "TIME", "PEAK", "AT END");
    let mut lines = vec![Line::styled(head, paint.bold())];
    let most = row.steps.iter().filter_map(|step| step.peak_bytes.or(step.current_bytes)).max();
    for step in row.steps.iter().rev() {
        let size = step.peak_bytes.or(step.current_bytes).zip(most);
        let length = size.and_then(|(size, most)| {
            usize::try_from(u128::from(size.0) * 16 / u128::from(most.0.max(1))).ok()
        });
        let epoch = step.epoch.map_or("-".to_owned(), |epoch| epoch.to_string());
        lines.push(Line::from(vec![
            Span::raw(format!(
                "{:>8} {epoch:>6} {:<11}{:>9} {:>9} {:>9} ",
                step.step,
                step.phase.word(),
                step.duration_ns.to_string(),
                bytes(step.peak_bytes),
                bytes(step.current_bytes)
            )),
            Span::styled("█".repeat(length.unwrap_or(0)), paint.colour(Color::Green)),
        ]));
    }
    lines
}
