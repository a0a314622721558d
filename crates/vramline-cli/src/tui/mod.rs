//! The live screen of `vramline top`. One thread looks, one reads keys, one waits for signals; this one alone draws.
//!
//! `terminal` has the terminal and gives it back whatever happens, `state` knows what is chosen, `draw` paints it with `pen`, and `detail` paints one
//! process. What there is to see comes from `lookout`; nothing here asks a driver or reads a recording.

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

/// Signals that would leave the terminal as it is.
const SIGNALS: [i32; 6] =
    [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP, libc::SIGCONT];

enum News {
    Look(Box<Look>),
    Input(Event),
    NoInput(std::io::Error),
    Signal(i32),
    Roles(PathBuf, Roles),
}

/// Shows the machine until the user has seen enough.
pub(crate) fn run(paths: &[PathBuf], rate: f64) -> Result<Exit, Failure> {
    // Before there is another thread: they all inherit it.
    let held = Held::hold(&SIGNALS);
    let (tell, news) = channel();
    let mut screen = Screen::open().map_err(|error| {
        Failure::error(
            format!("this terminal cannot be drawn on: {error}"),
            "vramline top --once prints one look as text",
        )
    })?;
    watch_signals(held, tell.clone());
    watch_keys(tell.clone());
    look_on(Lookout::new(paths, rate, None), rate, tell.clone());
    let mut state = State::default();
    let paint = Paint::of_terminal();
    let ended = loop {
        screen.draw(|frame| draw::draw(frame, &state, paint))?;
        // Every thread that tells has gone: it has panicked, and said so.
        let Ok(first) = news.recv() else { break Err(Failure::Bug) };
        let mut end = None;
        // What came meanwhile is drawn together.
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
                // Somebody else may have used the terminal meanwhile.
                News::Signal(libc::SIGCONT) => screen.reopen()?,
                News::Signal(signal) => end = Some(Err(Failure::Interrupted { signal })),
                News::NoInput(error) => {
                    return Err(Failure::error(
                        format!("no keys can be read: {error}"),
                        "vramline top --once prints one look as text",
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

/// Ctrl-Z: the shell gets its terminal back until `fg`.
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
            // A look that takes long is not followed by another at once.
            std::thread::sleep(pace.saturating_sub(begin.elapsed()).max(begin.elapsed()));
        }
    });
}

/// What a job's trace says of its peak. A trace may be large: it is read when somebody asks, and once.
fn find_roles(path: PathBuf, tell: Sender<News>) {
    bug::detach(move || {
        let roles = roles_of(&path);
        // Nobody listens any more: so be it.
        let _ = tell.send(News::Roles(path, roles));
    });
}

fn roles_of(path: &Path) -> Roles {
    let reading = match vramline::read(path) {
        Ok(reading) => reading,
        Err(error) => return Roles::NotTold(error.to_string()),
    };
    let report = report(&reading, &ReportOptions { top: Some(0), ..ReportOptions::default() });
    let told = report.pools.iter().find_map(|pool| Some((pool, pool.at_peak.as_ref()?)));
    let Some((pool, held)) = told else {
        return Roles::NotTold("the trace holds no memory events".to_owned());
    };
    let mut rows: Vec<_> = Role::ALL.iter().map(|&role| (role.word(), held.of_role(role))).collect();
    rows.extend([("slack", held.slack), ("before the recording", held.before_recording)]);
    rows.retain(|(_, bytes)| bytes.0 > 0);
    rows.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    Roles::Told { pool: pool.name.clone(), peak: held.in_use, rows }
}
