//! The state of the screen: sort order, filter, selected process, and the effect of each key. No drawing.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::PathBuf;

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use vramline::event::Phase;
use vramline::units::Bytes;
use vramline::view::top::{TopHost, TopProcess};

use crate::lookout::Look;
use crate::printer::top::{command, host_name, job_of, state};

/// The column that processes are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Held,
    InUse,
    Cached,
    StepPeak,
    Peak,
    Headroom,
    Step,
    Pid,
    Device,
    Command,
}

impl Sort {
    pub(super) const ALL: [Sort; 10] = [
        Sort::Held,
        Sort::InUse,
        Sort::Cached,
        Sort::StepPeak,
        Sort::Peak,
        Sort::Headroom,
        Sort::Step,
        Sort::Pid,
        Sort::Device,
        Sort::Command,
    ];

    pub(super) fn letter(self) -> char {
        match self {
            Sort::Held => 'm',
            Sort::InUse => 'u',
            Sort::Cached => 'c',
            Sort::StepPeak => 't',
            Sort::Peak => 'p',
            Sort::Headroom => 'h',
            Sort::Step => 'n',
            Sort::Pid => 'i',
            Sort::Device => 'd',
            Sort::Command => 'x',
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Sort::Held => "memory",
            Sort::InUse => "in use",
            Sort::Cached => "cached",
            Sort::StepPeak => "step peak",
            Sort::Peak => "peak",
            Sort::Headroom => "headroom",
            Sort::Step => "step",
            Sort::Pid => "pid",
            Sort::Device => "device",
            Sort::Command => "command",
        }
    }

    /// The order of two processes, most important first. Unknown values come last, also in reverse order.
    fn order(self, a: &TopProcess, b: &TopProcess, is_reversed: bool) -> Ordering {
        fn known<T: Ord>(a: Option<T>, b: Option<T>, is_down: bool) -> Ordering {
            match (a, b) {
                (Some(a), Some(b)) => {
                    if is_down {
                        b.cmp(&a)
                    } else {
                        a.cmp(&b)
                    }
                }
                (a, b) => b.is_some().cmp(&a.is_some()),
            }
        }
        let down = |pick: fn(&TopProcess) -> Option<Bytes>| known(pick(a), pick(b), !is_reversed);
        let first = match self {
            Sort::Held => down(|row| row.held_bytes),
            Sort::InUse => down(|row| row.in_use_bytes),
            Sort::Cached => down(|row| row.cached_bytes),
            Sort::StepPeak => down(|row| row.step_peak_bytes),
            Sort::Peak => down(|row| row.peak_bytes),
            // The smallest headroom is the most important.
            Sort::Headroom => known(a.headroom_bytes, b.headroom_bytes, is_reversed),
            Sort::Step => known(a.step, b.step, !is_reversed),
            Sort::Pid => known(Some(a.pid), Some(b.pid), is_reversed),
            Sort::Device => known(Some(&a.device), Some(&b.device), is_reversed),
            Sort::Command => known(Some(command(a)), Some(command(b)), is_reversed),
        };
        first.then_with(|| (a.pid, &a.device).cmp(&(b.pid, &b.device)))
    }
}

/// The content of the lower part of the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Mode {
    #[default]
    Table,
    /// The table, while the user types a filter.
    Filter,
    /// One process.
    Detail,
    Help,
}

/// The roles at the peak, from the trace of a job.
#[derive(Clone, Debug)]
pub(super) enum Roles {
    Loading,
    Unknown(String),
    Known { pool: String, peak: Bytes, rows: Vec<(&'static str, Bytes)> },
}

/// What a key asks the main loop to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Nothing,
    Quit,
    /// Stop the process, as Ctrl-Z does in a shell.
    Stop,
    /// Read the roles of this recording.
    Roles(PathBuf),
}

/// Everything that is drawn.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) look: Option<Look>,
    pub(super) sort: Sort,
    pub(super) is_reversed: bool,
    pub(super) filter: String,
    pub(super) mode: Mode,
    pub(super) is_paused: bool,
    pub(super) scroll: usize,
    /// Whether the table has the hosts of jobs instead of processes.
    pub(super) shows_hosts: bool,
    chosen: Option<(u32, String)>,
    roles: BTreeMap<PathBuf, Roles>,
}

impl State {
    /// Takes an update, unless the screen is paused.
    pub(super) fn take(&mut self, look: Look) {
        if !self.is_paused || self.look.is_none() {
            self.look = Some(look);
        }
    }

    pub(super) fn learn(&mut self, path: PathBuf, roles: Roles) {
        self.roles.insert(path, roles);
    }

    /// The processes that match the filter, sorted.
    pub(super) fn rows(&self) -> Vec<&TopProcess> {
        let Some(look) = &self.look else { return Vec::new() };
        let wanted = self.filter.to_lowercase();
        let matches = |row: &&TopProcess| {
            let job = row.job.and_then(|job| look.document.jobs.get(job));
            let words = [
                row.pid.to_string(),
                row.device.clone(),
                row.command.clone(),
                row.phase.map_or("", Phase::word).to_owned(),
                row.framework.clone().unwrap_or_default(),
                job.map_or(String::new(), |job| job.path.clone()),
            ];
            wanted.is_empty() || words.iter().any(|word| word.to_lowercase().contains(&wanted))
        };
        let mut rows: Vec<&TopProcess> = look.document.processes.iter().filter(matches).collect();
        rows.sort_by(|a, b| self.sort.order(a, b, self.is_reversed));
        rows
    }

    /// The hosts that match the filter, in their own order.
    pub(super) fn hosts(&self) -> Vec<&TopHost> {
        let Some(look) = &self.look else { return Vec::new() };
        let wanted = self.filter.to_lowercase();
        let matches = |host: &&TopHost| {
            let words = [job_of(host, &look.document), host_name(host), state(host)];
            wanted.is_empty() || words.iter().any(|word| word.to_lowercase().contains(&wanted))
        };
        look.document.hosts.iter().filter(matches).collect()
    }

    /// The position of the selected process among the rows; the first row if the process has ended.
    pub(super) fn place(&self, rows: &[&TopProcess]) -> usize {
        let is_chosen = |row: &&TopProcess| {
            self.chosen.as_ref().is_some_and(|(pid, device)| row.pid == *pid && row.device == *device)
        };
        rows.iter().position(is_chosen).unwrap_or(0)
    }

    pub(super) fn chosen<'a>(&self, rows: &[&'a TopProcess]) -> Option<&'a TopProcess> {
        rows.get(self.place(rows)).copied()
    }

    pub(super) fn roles(&self, row: &TopProcess) -> Option<&Roles> {
        self.roles.get(&self.path(row)?)
    }

    fn path(&self, row: &TopProcess) -> Option<PathBuf> {
        let job = self.look.as_ref()?.document.jobs.get(row.job?)?;
        Some(PathBuf::from(&job.path))
    }

    pub(super) fn key(&mut self, key: KeyEvent) -> Wish {
        if key.kind == KeyEventKind::Release {
            return Wish::Nothing;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c' | 'd') => Wish::Quit,
                KeyCode::Char('z') => Wish::Stop,
                KeyCode::Char('u') if self.mode == Mode::Filter => {
                    self.filter.clear();
                    Wish::Nothing
                }
                _ => Wish::Nothing,
            };
        }
        match self.mode {
            Mode::Filter => self.typed(key.code),
            Mode::Help => {
                match key.code {
                    KeyCode::Char('q') => return Wish::Quit,
                    _ => self.mode = Mode::Table,
                }
                Wish::Nothing
            }
            Mode::Table | Mode::Detail => self.pressed(key.code),
        }
    }

    /// Handles a key while the user types a filter.
    fn typed(&mut self, code: KeyCode) -> Wish {
        match code {
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Table;
            }
            KeyCode::Enter => self.mode = Mode::Table,
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) if self.filter.chars().count() < 100 => self.filter.push(letter),
            KeyCode::Up => self.step(-1),
            KeyCode::Down => self.step(1),
            _ => {}
        }
        Wish::Nothing
    }

    fn pressed(&mut self, code: KeyCode) -> Wish {
        match code {
            KeyCode::Char('q') => return Wish::Quit,
            KeyCode::Esc if self.mode == Mode::Detail => self.mode = Mode::Table,
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Esc => return Wish::Quit,
            KeyCode::Enter if self.mode == Mode::Detail => self.mode = Mode::Table,
            KeyCode::Char('H') => {
                (self.shows_hosts, self.mode, self.scroll) = (!self.shows_hosts, Mode::Table, 0);
            }
            KeyCode::Enter if self.shows_hosts => {}
            KeyCode::Enter => return self.open(),
            KeyCode::Char('?') | KeyCode::F(1) => self.mode = Mode::Help,
            KeyCode::Char('/') => self.mode = Mode::Filter,
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('r') => self.is_reversed = !self.is_reversed,
            KeyCode::Char('s') => self.turn(1),
            KeyCode::Char('S') => self.turn(Sort::ALL.len() - 1),
            KeyCode::Up | KeyCode::Char('k') if self.mode == Mode::Detail => {
                self.scroll = self.scroll.saturating_sub(1);
            }
            KeyCode::Down | KeyCode::Char('j') if self.mode == Mode::Detail => self.scroll += 1,
            KeyCode::Up | KeyCode::Char('k') => self.step(-1),
            KeyCode::Down | KeyCode::Char('j') => self.step(1),
            KeyCode::PageUp => self.step(-10),
            KeyCode::PageDown => self.step(10),
            KeyCode::Home => self.step(isize::MIN),
            KeyCode::End => self.step(isize::MAX),
            KeyCode::Char(letter) => {
                if let Some(sort) = Sort::ALL.into_iter().find(|sort| sort.letter() == letter) {
                    // The same key again reverses the order.
                    self.is_reversed = self.sort == sort && !self.is_reversed;
                    self.sort = sort;
                }
            }
            _ => {}
        }
        Wish::Nothing
    }

    fn turn(&mut self, by: usize) {
        let place = Sort::ALL.iter().position(|sort| *sort == self.sort).unwrap_or(0);
        self.sort = Sort::ALL.into_iter().cycle().nth(place + by).unwrap_or_default();
        self.is_reversed = false;
    }

    fn step(&mut self, by: isize) {
        if self.shows_hosts {
            let last = self.hosts().len().saturating_sub(1);
            self.scroll = self.scroll.min(last).saturating_add_signed(by).min(last);
            return;
        }
        let rows = self.rows();
        let place = self.place(&rows).saturating_add_signed(by).min(rows.len().saturating_sub(1));
        self.chosen = rows.get(place).map(|row| (row.pid, row.device.clone()));
    }

    /// Shows the selected process, and asks for its roles if there is a trace.
    fn open(&mut self) -> Wish {
        let rows = self.rows();
        let Some(row) = self.chosen(&rows) else { return Wish::Nothing };
        let (key, path) = ((row.pid, row.device.clone()), self.path(row));
        let is_traced = row
            .job
            .and_then(|job| self.look.as_ref()?.document.jobs.get(job))
            .is_some_and(|job| job.is_traced);
        (self.chosen, self.mode, self.scroll) = (Some(key), Mode::Detail, 0);
        let Some(path) = path.filter(|path| is_traced && !self.roles.contains_key(path)) else {
            return Wish::Nothing;
        };
        self.roles.insert(path.clone(), Roles::Loading);
        Wish::Roles(path)
    }
}
