//! The live screen of `vramline top`. One thread collects data, one reads keys, one waits for signals; only the main thread draws.
//!
//! `terminal` owns the terminal and always restores it, `state` holds the selection, `draw` draws the screen with `pen`, and `detail`
//! draws one process. The data comes from `lookout`; nothing here calls the driver or reads a recording.

mod detail;
mod draw;
mod pen;
mod state;
mod terminal;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use crossterm::event::{self, Event};
use vramline::analysis::report::{ReportOptions, report};
use vramline::snapshot::Role;

use crate::bug;
use crate::exit::{Exit, Failure};
use crate::launch::kernel::{self, Held};
use crate::lookout::{Look, Lookout};
use pen::Paint;
use state::{Roles, State, Wish};
use terminal::Screen;

/// Signals that would otherwise end or stop the process without restoring the terminal.
const SIGNALS: [i32; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP, libc::SIGCONT];

enum News {
    Look(Box<Look>),
    Input(Event),
    NoInput(std::io::Error),
    Signal(i32),
    Roles(PathBuf, Roles),
}

/// Shows the screen until the user quits, at first the hosts or the processes.
pub(crate) fn run(paths: &[PathBuf], rate: f64, shows_hosts: bool) -> Result<Exit, Failure> {
    // Before other threads are started, because they inherit it.
    let held = Held::hold(&SIGNALS);
    let (tell, news) = channel();
    let mut screen = Screen::open().map_err(|error| {
        Failure::error(
            format!("cannot draw on this terminal: {error}"),
            "run `vramline top --once` to print once, as text",
        )
    })?;
    watch_signals(held, tell.clone());
    watch_keys(tell.clone());
    look_on(Lookout::new(paths, rate, None), rate, tell.clone());
    let mut state = State::default();
    state.shows_hosts = shows_hosts;
    let paint = Paint::of_terminal();
    let ended = loop {
        screen.draw(|frame| draw::draw(frame, &state, paint))?;
        // Every sender is gone, so a thread has panicked and reported it.
        let Ok(first) = news.recv() else { break Err(Failure::Bug) };
        let mut end = None;
        // All news that arrived in the meantime is drawn at once.
        for came in std::iter::once(first).chain(std::iter::from_fn(|| news.try_recv().ok())) {
            match came {
                News::Look(look) => state.take(*look),
                News::Roles(path, roles) => state.learn(path, roles),
                News::Input(Event::Key(key)) => match state.key(key) {
                    Wish::Nothing => {}
                    Wish::Quit => end = Some(Ok(Exit::Done)),
                    Wish::Stop => stop(&mut screen)?,
                    Wish::Roles(path) => find_roles(path, tell.clone()),
                },
                News::Input(_) => {}
                News::Signal(libc::SIGTSTP) => stop(&mut screen)?,
                // Another program may have used the terminal in the meantime.
                News::Signal(libc::SIGCONT) => screen.reopen()?,
                News::Signal(signal) => end = Some(Err(Failure::Interrupted { signal })),
                News::NoInput(error) => {
                    return Err(Failure::error(
                        format!("cannot read keys from the terminal: {error}"),
                        "run `vramline top --once` to print once, as text",
                    ));
                }
            }
        }
        if !screen.is_open() {
            break Err(Failure::Bug);
        }
        if let Some(end) = end {
            break end;
        }
    };
    drop(screen);
    ended
}

/// Ctrl-Z: returns the terminal to the shell until `fg`.
fn stop(screen: &mut Screen) -> Result<(), Failure> {
    terminal::close();
    kernel::stop();
    screen.reopen()?;
    Ok(())
}

fn watch_signals(held: Held, tell: Sender<News>) {
    bug::detach(move || {
        loop {
            if let Ok(arrived) = held.wait()
                && arrived.signal != libc::SIGCHLD
                && tell.send(News::Signal(arrived.signal)).is_err()
            {
                return;
            }
        }
    });
}

fn watch_keys(tell: Sender<News>) {
    bug::detach(move || {
        loop {
            let (news, is_last) = match event::read() {
                Ok(event) => (News::Input(event), false),
                Err(error) => (News::NoInput(error), true),
            };
            if tell.send(news).is_err() || is_last {
                return;
            }
        }
    });
}

fn look_on(mut lookout: Lookout, rate: f64, tell: Sender<News>) {
    let pace = Duration::try_from_secs_f64(1.0 / rate).unwrap_or(Duration::from_secs(1));
    bug::detach(move || {
        loop {
            let begin = Instant::now();
            if tell.send(News::Look(Box::new(lookout.look(false)))).is_err() {
                return;
            }
            // After a slow update, wait at least as long as it took.
            std::thread::sleep(pace.saturating_sub(begin.elapsed()).max(begin.elapsed()));
        }
    });
}

/// Reads the roles at the peak from the trace of a job. A trace may be large, so it is read on demand and once.
fn find_roles(path: PathBuf, tell: Sender<News>) {
    bug::detach(move || {
        let roles = roles_of(&path);
        // The screen may be closed by now.
        let _ = tell.send(News::Roles(path, roles));
    });
}

fn roles_of(path: &Path) -> Roles {
    let reading = match vramline::read(path) {
        Ok(reading) => reading,
        Err(error) => return Roles::Unknown(error.to_string()),
    };
    let report = report(&reading, &ReportOptions { top: Some(0), ..ReportOptions::default() });
    let found = report.pools.iter().find_map(|pool| Some((pool, pool.at_peak.as_ref()?)));
    let Some((pool, held)) = found else {
        return Roles::Unknown("The trace has no memory events".to_owned());
    };
    let mut rows: Vec<_> = Role::ALL.iter().map(|&role| (role.word(), held.of_role(role))).collect();
    rows.extend([("rounding", held.slack), ("before the recording", held.before_recording)]);
    rows.retain(|(_, bytes)| bytes.0 > 0);
    rows.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    Roles::Known { pool: pool.name.clone(), peak: held.in_use, rows }
}
