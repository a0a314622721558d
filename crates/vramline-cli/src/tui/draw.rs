//! Draws the screen, for any size of terminal. The parts of a bar differ by character; colours only help.

use std::borrow::Cow;

use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Widget};
use vramline::analysis::top::{BarPart, HostState};
use vramline::event::Phase;
use vramline::units::{Bytes, Nanos};
use vramline::view::top::{TopDevice, TopHost, TopProcess};

use super::detail::detail;
use super::pen::{Paint, Pen};
use super::state::{Mode, Sort, State};
use crate::lookout::Look;
use crate::printer::top::{
    age, bytes, command, host_name, job_of, of_rank, part_title, ranks, state as state_of, steps, summary,
};
use crate::printer::{percent, printable};

/// Length of the history of a device.
const PAST: Nanos = Nanos(300_000_000_000);

/// The characters of a history, from empty to full.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The character and colour of a part of a bar.
fn look_of(part: BarPart) -> (char, Color) {
    match part {
        BarPart::DriverReserved => ('#', Color::Red),
        BarPart::InUse => ('█', Color::Green),
        BarPart::CachedFree => ('▒', Color::Cyan),
        BarPart::ContextAndOutside
        | BarPart::ContextCachedAndOutside
        | BarPart::ProgramsOwn
        | BarPart::CachedAndProgramsOwn => ('▓', Color::Magenta),
        BarPart::OtherProcesses => ('=', Color::Yellow),
        BarPart::Unattributed => ('-', Color::LightBlue),
        BarPart::NotResident | BarPart::Free => ('·', Color::DarkGray),
    }
}

pub(super) fn draw(frame: &mut Frame<'_>, state: &State, paint: Paint) {
    #[cfg(debug_assertions)]
    stumble();
    let area = frame.area();
    let buffer = frame.buffer_mut();
    // The last line lists the keys, if there is room.
    let footer = u16::from(area.height > 4);
    let body = Rect { height: area.height.saturating_sub(footer), ..area };
    let mut pen = Pen::new(buffer, body);
    header(&mut pen, state, paint);
    match &state.look {
        None => pen.line("  Reading the driver and recordings ..."),
        Some(look) => {
            let room = match state.mode {
                Mode::Detail => pen.left() / 3,
                _ => pen.left() / 2,
            };
            // The devices of this machine are not those of the hosts.
            if !state.shows_hosts {
                devices(&mut pen, look, room.max(1), paint);
            }
            if let Some(warning) = look.document.warnings.first().filter(|_| pen.left() > 5) {
                let more = look.document.warnings.len() - 1;
                let more = if more > 0 { format!(" (+{more})") } else { String::new() };
                pen.line(Line::styled(
                    format!("! {}{more}", printable(&warning.text)),
                    paint.colour(Color::Yellow),
                ));
            }
            if pen.left() > 8 {
                pen.line("");
            }
            if state.mode == Mode::Detail {
                detail(&mut pen, state, look, paint);
            } else if state.shows_hosts {
                hosts(&mut pen, state, look, paint);
            } else {
                table(&mut pen, state, paint);
            }
        }
    }
    if footer > 0 {
        let row = Rect { y: area.y + area.height - 1, height: 1, ..area };
        keys(&mut Pen::new(buffer, row), state, paint);
    }
    if state.mode == Mode::Help {
        help(buffer, area, paint);
    }
}

/// For tests: panics, to check that the terminal is restored.
#[cfg(debug_assertions)]
#[expect(clippy::panic, reason = "that is what is tested")]
fn stumble() {
    use std::sync::atomic::{AtomicU64, Ordering};
    static FRAMES: AtomicU64 = AtomicU64::new(0);
    let frame = FRAMES.fetch_add(1, Ordering::Relaxed) + 1;
    let at = std::env::var(crate::variables::TOP_PANIC).ok().and_then(|at| at.parse().ok());
    if at == Some(frame) {
        panic!("asked to stumble at frame {frame}");
    }
}

fn header(pen: &mut Pen<'_>, state: &State, paint: Paint) {
    let mut spans = vec![Span::styled("vramline top", paint.bold())];
    if let Some(look) = &state.look {
        let document = &look.document;
        let seconds = document.time_ns.0.div_euclid(1_000_000_000).rem_euclid(86_400);
        spans.push(Span::raw(format!("  {}", summary(document))));
        if let Some(version) = &document.driver.version {
            spans.push(Span::styled(format!("  driver {}", printable(version)), paint.dim()));
        }
        let time = format!("  {:02}:{:02}:{:02} UTC", seconds / 3600, seconds / 60 % 60, seconds % 60);
        spans.push(Span::styled(time, paint.dim()));
    }
    if state.is_paused {
        spans.push(Span::styled("  paused", paint.bold()));
    }
    pen.line(spans);
}

/// Draws the devices in at most `room` lines: three lines each if they fit, else one.
fn devices(pen: &mut Pen<'_>, look: &Look, room: u16, paint: Paint) {
    let all = &look.document.devices;
    let room = usize::from(room.min(pen.left()));
    let width = usize::from(pen.area.width);
    let is_roomy = room > all.len() * 3 && width >= 40;
    if is_roomy {
        for device in all {
            roomy(pen, look, device, width, paint);
        }
    } else {
        let shown = if all.len() > room { room.saturating_sub(1) } else { all.len() };
        for device in all.iter().take(shown) {
            compact(pen, look, device, width, paint);
        }
        if shown < all.len() {
            let more = all.len() - shown;
            pen.line(Line::styled(
                format!(
                    "... {more} more {}: make the window taller to see all",
                    if more == 1 { "device" } else { "devices" }
                ),
                paint.dim(),
            ));
        }
    }
    if pen.left() > 6 && width >= 40 {
        legend(pen, look, paint);
    }
}

/// The memory of a device that is not free, as text.
fn taken(device: &TopDevice) -> String {
    match (device.total_bytes, device.free_bytes) {
        (Some(total), Some(free)) => {
            let taken = total.saturating_sub(free);
            format!("{taken} of {total}, {}", percent(taken, total))
        }
        _ => device.error.unwrap_or("unknown").to_owned(),
    }
}

fn roomy(pen: &mut Pen<'_>, look: &Look, device: &TopDevice, width: usize, paint: Paint) {
    let model = match &device.model {
        Some(model) => printable(model),
        None if device.is_stand_in => "host memory".to_owned(),
        None => String::new(),
    };
    let free = device.free_bytes.map_or(String::new(), |free| format!("  free {free}"));
    pen.line(vec![
        Span::styled(device.name.clone(), paint.bold()),
        Span::raw(format!("  {model}  ")),
        Span::raw(taken(device)),
        Span::raw(free),
    ]);
    pen.line(bar(device, width.saturating_sub(2), paint));
    let past = spark(look, device, width.saturating_sub(20));
    pen.line(vec![
        Span::styled(past, paint.colour(Color::Green)),
        Span::styled("  last 5 minutes", paint.dim()),
    ]);
}

fn compact(pen: &mut Pen<'_>, look: &Look, device: &TopDevice, width: usize, paint: Paint) {
    let figures = taken(device);
    let past = match width {
        0..60 => 0,
        60..120 => 12,
        _ => 40,
    };
    let name = format!("{:<7}", device.name);
    let room = width.saturating_sub(name.chars().count() + figures.chars().count() + past + 5);
    let mut spans = vec![Span::styled(name, paint.bold())];
    if room >= 8 {
        spans.extend(bar(device, room, paint).spans);
        spans.push(Span::raw(" "));
    }
    spans.push(Span::raw(figures));
    if past > 0 {
        spans.push(Span::styled(format!(" {}", spark(look, device, past)), paint.colour(Color::Green)));
    }
    pen.line(spans);
}

/// The memory of a device as a bar of `width` characters between brackets. Each part starts where the previous one ends.
fn bar(device: &TopDevice, width: usize, paint: Paint) -> Line<'static> {
    let Some(total) = device.total_bytes.filter(|total| total.0 > 0) else {
        return Line::from(format!("[{}]", "?".repeat(width)));
    };
    let mut spans = vec![Span::raw("[")];
    // Pages that a pool has reserved and never touched use no memory.
    let mut less: i128 = 0;
    let mut parts: Vec<(BarPart, i128)> = Vec::new();
    for part in device.parts.iter().rev() {
        let bytes = i128::from(part.bytes) + less;
        less = bytes.min(0);
        parts.push((part.part, bytes.max(0)));
    }
    parts.reverse();
    let (mut before, mut at) = (0_i128, 0_usize);
    let cells = i128::try_from(width).unwrap_or(0);
    for (part, bytes) in parts {
        before += bytes;
        let end = ((before * cells * 2 + i128::from(total.0)) / (i128::from(total.0) * 2)).clamp(0, cells);
        let end = usize::try_from(end).unwrap_or(0);
        let (sign, colour) = look_of(part);
        let count = end.saturating_sub(at);
        spans.push(Span::styled(sign.to_string().repeat(count), paint.colour(colour)));
        at = at.max(end);
    }
    spans.push(Span::raw(format!("{}]", " ".repeat(width.saturating_sub(at)))));
    Line::from(spans)
}

fn legend(pen: &mut Pen<'_>, look: &Look, paint: Paint) {
    let mut sums: Vec<(BarPart, i64)> = Vec::new();
    for part in look.document.devices.iter().flat_map(|device| &device.parts) {
        match sums.iter_mut().find(|(known, _)| *known == part.part) {
            Some((_, sum)) => *sum = sum.saturating_add(part.bytes),
            None => sums.push((part.part, part.bytes)),
        }
    }
    let mut spans = Vec::new();
    for (part, sum) in sums.into_iter().filter(|(part, _)| *part != BarPart::NotResident) {
        let (sign, colour) = look_of(part);
        let shown = u64::try_from(sum).map_or("-".to_owned(), |sum| Bytes(sum).to_string());
        spans.push(Span::styled(sign.to_string(), paint.colour(colour)));
        spans.push(Span::raw(format!(" {} {shown}  ", part_title(part))));
    }
    pen.line(spans);
}

/// The history of a device: the highest value of each interval.
fn spark(look: &Look, device: &TopDevice, width: usize) -> String {
    let (Some(uuid), Some(total)) = (&device.uuid, device.total_bytes) else { return " ".repeat(width) };
    let columns = look.history.columns(uuid, look.now, PAST, width);
    let height = |max: u64| {
        let step = u128::from(max) * HEIGHTS.len() as u128 / u128::from(total.0.max(1));
        let step = usize::try_from(step).unwrap_or(usize::MAX).min(HEIGHTS.len() - 1);
        HEIGHTS.get(step).copied().unwrap_or(' ')
    };
    let signs: String = columns.iter().map(|column| height(column.summary.max)).collect();
    format!("{signs:>width$}")
}

/// A column of the table: title, width, narrowest screen that shows it, and sort order.
struct Column {
    title: &'static str,
    width: usize,
    from: u16,
    sort: Sort,
    is_right: bool,
    cell: fn(&TopProcess) -> String,
}

const COLUMNS: [Column; 11] = [
    column("PID", 8, 0, Sort::Pid, |row| row.pid.to_string()),
    Column { is_right: false, ..column("DEVICE", 7, 0, Sort::Device, |row| row.device.clone()) },
    column("MEMORY", 9, 0, Sort::Held, |row| bytes(row.held_bytes)),
    column("IN USE", 9, 40, Sort::InUse, |row| bytes(row.in_use_bytes)),
    column("CACHED", 9, 110, Sort::Cached, |row| bytes(row.cached_bytes)),
    column("STEP", 7, 50, Sort::Step, |row| row.step.map_or("-".to_owned(), |step| step.to_string())),
    column("STEP PEAK", 9, 70, Sort::StepPeak, |row| bytes(row.step_peak_bytes)),
    column("PEAK", 9, 100, Sort::Peak, |row| bytes(row.peak_bytes)),
    column("HEADROOM", 9, 80, Sort::Headroom, |row| bytes(row.headroom_bytes)),
    Column {
        is_right: false,
        ..column("PHASE", 10, 140, Sort::Step, |row| row.phase.map_or("-", Phase::word).to_owned())
    },
    Column { is_right: false, ..column("COMMAND", 0, 0, Sort::Command, command) },
];

const fn column(
    title: &'static str,
    width: usize,
    from: u16,
    sort: Sort,
    cell: fn(&TopProcess) -> String,
) -> Column {
    Column { title, width, from, sort, is_right: true, cell }
}

impl Column {
    fn fit<'b>(&self, text: impl Into<Cow<'b, str>>) -> String {
        let text: String = text.into().into_owned();
        let width = self.width;
        // Numbers are never cut: the rest of the row moves instead.
        let is_whole = self.is_right || width == 0;
        let text: String = if is_whole { text } else { text.chars().take(width).collect() };
        match self.is_right {
            true => format!("{text:>width$} "),
            false => format!("{text:<width$} "),
        }
    }
}

fn table(pen: &mut Pen<'_>, state: &State, paint: Paint) {
    let shown: Vec<&Column> = COLUMNS.iter().filter(|column| pen.area.width >= column.from).collect();
    let mut titles = Vec::new();
    let mut is_marked = false;
    for column in &shown {
        let is_sorted = column.sort == state.sort && !is_marked;
        is_marked |= is_sorted;
        let mark = if state.is_reversed { "^" } else { "v" };
        let title = if is_sorted { format!("{}{mark}", column.title) } else { column.title.to_owned() };
        let style = if is_sorted { paint.bold().add_modifier(Modifier::UNDERLINED) } else { paint.bold() };
        titles.push(Span::styled(column.fit(title), style));
    }
    pen.line(titles);
    let rows = state.rows();
    if rows.is_empty() {
        let all = state.look.as_ref().map_or(0, |look| look.document.processes.len());
        let (text, hint) = match all {
            0 => (
                "  No process uses memory on these devices.",
                "  Start a job with: vramline run -- python train.py",
            ),
            _ => ("  No process matches the filter.", "  Press Esc to show all processes."),
        };
        pen.line(Line::styled(text, paint.dim()));
        pen.line(Line::styled(hint, paint.dim()));
        return;
    }
    let (place, room) = (state.place(&rows), usize::from(pen.left()));
    // The selected row stays visible.
    let first = (place + 1).saturating_sub(room);
    for (at, row) in rows.iter().enumerate().skip(first).take(room) {
        let cells: String = shown.iter().map(|column| column.fit((column.cell)(row))).collect();
        let style = if row.job.is_some() { paint.colour(Color::Green) } else { Style::new() };
        let line = Line::styled(cells, style);
        if at == place { pen.band(line, paint.chosen()) } else { pen.line(line) }
    }
}

/// A column of the table of hosts: title, least width, narrowest screen that shows it.
type HostColumn = (&'static str, usize, u16, fn(&TopHost) -> String);

const HOST_COLUMNS: [HostColumn; 8] = [
    ("HOST", 8, 0, host_name),
    ("STATE", 7, 0, state_of),
    ("RANKS", 6, 40, ranks),
    ("STEP", 5, 60, steps),
    ("HEADROOM", 8, 80, |host| of_rank(host.headroom_bytes, host.headroom_rank)),
    ("PEAK", 8, 100, |host| of_rank(host.peak_bytes, host.peak_rank)),
    ("AGE", 4, 120, age),
    ("IN USE", 8, 130, |host| bytes(host.in_use_bytes)),
];

/// Draws the hosts of jobs, those that need attention first. Columns are as wide as their cells.
fn hosts(pen: &mut Pen<'_>, state: &State, look: &Look, paint: Paint) {
    let rows = state.hosts();
    if rows.is_empty() {
        let (text, hint) = match look.document.hosts.len() {
            0 => ("  No recorded job.", "  Give the recording: vramline top --hosts /shared/job.vram"),
            _ => ("  No host matches the filter.", "  Press Esc to show all hosts."),
        };
        pen.line(Line::styled(text, paint.dim()));
        pen.line(Line::styled(hint, paint.dim()));
        return;
    }
    let shown = || HOST_COLUMNS.iter().filter(|(_, _, from, _)| pen.area.width >= *from);
    let mut titles = vec!["JOB"];
    titles.extend(shown().map(|(title, ..)| *title));
    let mut widths = vec![6];
    widths.extend(shown().map(|(_, width, ..)| *width));
    let room = usize::from(pen.left()).saturating_sub(1);
    // The last rows fill the screen.
    let first = state.scroll.min(rows.len().saturating_sub(room));
    let cells = |host: &&TopHost| {
        let mut cells = vec![job_of(host, &look.document)];
        cells.extend(shown().map(|(.., cell)| cell(host)));
        cells
    };
    let lines: Vec<(HostState, Vec<String>)> =
        rows.iter().skip(first).take(room).map(|host| (host.state, cells(host))).collect();
    for (_, cells) in &lines {
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = cell.chars().count().max(*width);
        }
    }
    let joined = |cells: &mut dyn Iterator<Item = &str>| {
        cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}  ")).collect::<String>()
    };
    pen.line(Line::styled(joined(&mut titles.iter().copied()), paint.bold()));
    for (state, cells) in &lines {
        let style = match state {
            HostState::Running => paint.colour(Color::Green),
            HostState::Unseen | HostState::Silent | HostState::Gone => paint.colour(Color::Yellow),
            HostState::Elsewhere | HostState::Ended => Style::new(),
        };
        pen.line(Line::styled(joined(&mut cells.iter().map(String::as_str)), style));
    }
}

fn keys(pen: &mut Pen<'_>, state: &State, paint: Paint) {
    let line = match state.mode {
        Mode::Filter => {
            format!("filter: {}_   Enter keep   Esc show all", printable(&state.filter))
        }
        Mode::Detail => "Esc back   up/down scroll   q quit   ? help".to_owned(),
        Mode::Table | Mode::Help => {
            let filter = match state.filter.as_str() {
                "" => "/ filter".to_owned(),
                filter => format!("/ filter: {}", printable(filter)),
            };
            if state.shows_hosts {
                let line = format!("q quit   ? help   H processes   {filter}   up/down scroll");
                return pen.band(line, paint.chosen());
            }
            let reversed = if state.is_reversed { ", reversed" } else { "" };
            format!(
                "q quit   ? help   Enter roles and steps   {filter}   s sort: {}{reversed}",
                state.sort.word()
            )
        }
    };
    pen.band(line, paint.chosen());
}

fn help(buffer: &mut Buffer, area: Rect, paint: Paint) {
    let letters: Vec<String> =
        Sort::ALL.iter().map(|sort| format!("{} {}", sort.letter(), sort.word())).collect();
    let (first, second) = letters.split_at(letters.len() / 2);
    let lines = [
        "up, down, j, k       select a process; also PgUp, PgDn, Home, End".to_owned(),
        "Enter                show its roles and steps; Esc goes back".to_owned(),
        "/                    filter processes; Esc shows all".to_owned(),
        "s, S                 sort by the next or previous column, or press:".to_owned(),
        format!("                     {}", first.join(", ")),
        format!("                     {}", second.join(", ")),
        "r                    reverse the order".to_owned(),
        "H                    hosts of jobs, or processes".to_owned(),
        "space                pause, continue".to_owned(),
        "q, Ctrl-C            quit".to_owned(),
        "Ctrl-Z               suspend; fg continues".to_owned(),
        String::new(),
        "memory     memory of the process, from the driver or the kernel".to_owned(),
        "in use     allocated by the framework; cached: held by its pool".to_owned(),
        "step peak  peak of the last step, if it was recorded".to_owned(),
        "headroom   how much the peak can rise before memory runs out".to_owned(),
        "-          unknown; `vramline top --json` says why".to_owned(),
    ];
    let width = area.width.min(72);
    let height = area.height.min(u16::try_from(lines.len() + 2).unwrap_or(u16::MAX));
    let (x, y) = (area.x + (area.width - width) / 2, area.y + (area.height - height) / 2);
    let place = Rect { x, y, width, height };
    Clear.render(place, buffer);
    let mut pen = Pen::new(buffer, place);
    pen.band("  Keys and columns (press any key to go back)", paint.chosen());
    for line in lines {
        pen.line(format!("  {line}"));
    }
    while pen.left() > 0 {
        pen.band("", paint.chosen());
    }
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "compared with a tolerance")]
mod tests {
    use std::collections::BTreeMap;

    use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
    use proptest::prelude::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use vramline::analysis::doctor::DeviceLook;
    use vramline::analysis::top::{DeviceHistory, DriverSight, LiveJob, MachineSight, SeenProcess, top};
    use vramline::recording::live::Live;
    use vramline::recording::rows::Moment;
    use vramline::recording::running::State as JobState;
    use vramline::source::driver::fake::{Fake, FakeDevice, FakeProcess, Pid, Script, Used};
    use vramline::source::driver::{Driver, DriverError};
    use vramline::source::procfs::HostMemory;
    use vramline::view::top::Top;

    use super::*;

    fn driver(gpus: u32, processes: u32) -> Result<DriverSight, DriverError> {
        let process = |pid: u32| FakeProcess {
            pid: Pid::Number(pid),
            used: if pid.is_multiple_of(7) { Used::Unknown } else { Used::Bytes(u64::from(pid) << 20) },
            ..FakeProcess::default()
        };
        let device = |number: u32| FakeDevice {
            name: Some("NVIDIA \u{1b}[2J H200 東京".to_owned()),
            total: 140 << 30,
            reserved: 1 << 30,
            memory_error: (number == 5).then_some(DriverError::GpuLost),
            processes: (1..=processes).filter(|pid| pid % gpus == number).map(process).collect(),
            ..FakeDevice::default()
        };
        let script = Script { devices: (0..gpus).map(device).collect(), ..Script::default() };
        let mut fake = Fake::new(script)?;
        let facts = fake.devices()?;
        let look = |(at, facts)| DeviceLook {
            facts,
            memory: fake.memory(at),
            processes: fake.processes(at),
            seen_here: vec![1, 2, 3],
        };
        let devices = facts.into_iter().enumerate().map(look).collect();
        Ok(DriverSight { library: fake.library(), devices, age_ns: Nanos(0) })
    }

    /// A machine with a number of devices and processes, and a recorded job.
    fn look(gpus: u32, processes: u32) -> Look {
        let path =
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tf221_cpu_keras.vram");
        let (mut live, mut job) = (Live::new(&path), LiveJob::new(path));
        live.look(u64::MAX, &mut |news| job.take(news)).unwrap();
        job.state = JobState::Running;
        job.pids = job.ids().map(|id| (id.pid(), vec![id.pid()])).collect();
        let seen =
            SeenProcess { command: "/usr/bin/python train.py \u{7} 東京 🔥".to_owned(), resident: None };
        let now = Moment { monotonic: 10_000_000_000, wall: 10_000_000_000 };
        let jobs = [job];
        let sight = MachineSight {
            now,
            host: "here".to_owned(),
            memory: Some(HostMemory { total: Bytes(64 << 30), available: Bytes(30 << 30) }),
            driver: if gpus == 0 { Err(DriverError::DriverNotLoaded) } else { driver(gpus, processes) },
            jobs: &jobs,
            seen: BTreeMap::from([(1, seen)]),
        };
        let analysis = top(&sight);
        let mut history = DeviceHistory::default();
        history.take(now, &analysis, &jobs);
        Look { now, document: Top::from(&analysis), history }
    }

    fn drawn(state: &State, columns: u16, lines: u16, is_coloured: bool) -> Buffer {
        let mut terminal = Terminal::new(TestBackend::new(columns, lines)).unwrap();
        terminal.draw(|frame| draw(frame, state, Paint { is_coloured })).unwrap();
        terminal.backend().buffer().clone()
    }

    fn key(code: KeyCode) -> KeyEvent {
        KeyEvent::new(code, KeyModifiers::NONE)
    }

    #[test]
    fn help_is_drawn_on_a_terminal_without_width() {
        let mut state = State::default();
        state.take(look(1, 3));
        let _ = state.key(key(KeyCode::Char('?')));
        for (columns, lines) in [(0, 24), (24, 0), (0, 0), (1, 1)] {
            let _ = drawn(&state, columns, lines, true);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

        /// The screen is drawn for any size and any keys, and contains no control characters.
        #[test]
        fn every_size_is_drawn(
            columns in 0_u16..220, lines in 0_u16..70, gpus in 0_u32..9, processes in 0_u32..220,
            typed in prop::collection::vec(prop_oneof![
                Just(KeyCode::Enter), Just(KeyCode::Esc), Just(KeyCode::Down), Just(KeyCode::Up), Just(KeyCode::PageDown),
                Just(KeyCode::End), Just(KeyCode::Backspace), Just(KeyCode::Char('H')), prop::char::any().prop_map(KeyCode::Char),
                "[a-z/? ]".prop_map(|text| KeyCode::Char(text.chars().next().unwrap_or('s'))),
            ], 0..12),
            is_coloured: bool,
        ) {
            let mut state = State::default();
            let _ = drawn(&state, columns, lines, is_coloured);
            state.take(look(gpus, processes));
            for code in typed {
                let _ = state.key(key(code));
            }
            let buffer = drawn(&state, columns, lines, is_coloured);
            for cell in buffer.content() {
                prop_assert!(!cell.symbol().contains(char::is_control));
                prop_assert!(is_coloured || cell.fg == Color::Reset);
            }
        }
    }

    #[test]
    fn a_bar_is_as_long_as_its_room_and_keeps_proportions() {
        let look = look(1, 100);
        let device = look.document.devices.first().unwrap();
        for width in 0..200 {
            let line = bar(device, width, Paint { is_coloured: false });
            assert_eq!(line.width(), width + 2);
        }
        let text = bar(device, 140, Paint { is_coloured: false }).to_string();
        // One character is one GiB.
        assert_eq!(text.matches('#').count(), 1);
        let part = |name: BarPart| device.parts.iter().find(|part| part.part == name).unwrap().bytes;
        let free = f64::from(u32::try_from(text.matches('·').count()).unwrap());
        assert!((free - part(BarPart::Free) as f64 / f64::from(1 << 30)).abs() <= 1.0, "{text}");
    }

    #[test]
    fn what_is_not_known_comes_last_in_either_order() {
        let mut state = State::default();
        state.take(look(3, 50));
        for turn in [false, true] {
            state.is_reversed = turn;
            let held: Vec<_> = state.rows().iter().map(|row| row.held_bytes).collect();
            let known = held.iter().take_while(|held| held.is_some()).count();
            assert!(known > 20 && held.iter().skip(known).all(Option::is_none));
            let is_sorted = held.iter().take(known).collect::<Vec<_>>();
            assert!(is_sorted.windows(2).all(|pair| if turn {
                pair[0] <= pair[1]
            } else {
                pair[0] >= pair[1]
            }));
        }
    }
}
