//! The job as a child process: started as a shell would, waited for, its exit told.
//!
//! It has our terminal, standard streams, process group and everything else that a child inherits; nothing is piped. If
//! this process is killed, the job goes on.
//!
//! Signals. What the terminal sends (Ctrl-C, Ctrl-\, a hang-up) goes to the whole process group, so the job has it
//! already and it is not passed on. What a process sent to us alone (`kill`, a scheduler, a container's stop) is passed
//! on, unless the job itself sent it. A process that signals the whole group cannot be told from one that signals us: the
//! job then gets that signal twice. In no case do we end before the job. Stopping and continuing keep their usual effect:
//! Ctrl-Z stops both and `fg` continues both; `kill -STOP` on us alone leaves the job running.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use vramline::recording::manifest::Exit;
use vramline::source::procfs::{self, Seen};

use crate::launch::kernel::{self, Held};

/// How often it is asked whether a job may be ended.
const PACE: Duration = Duration::from_millis(200);

/// How long a job that was asked to end may take for it.
const GRACE: Duration = Duration::from_secs(5);

/// Ends a job before its time.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    /// Whether the job has ended.
    pub(crate) is_over: AtomicBool,
    /// Whether it was ended from here.
    pub(crate) is_cut: AtomicBool,
}

impl Ending {
    /// Waits until the job is over, or until it is enough, and then ends it and all that it started.
    pub(crate) fn wait(&self, job: u32, enough: &dyn Fn() -> bool) {
        let is_over = || self.is_over.load(Ordering::Relaxed);
        while !is_over() && !enough() {
            thread::sleep(PACE);
        }
        if is_over() {
            return;
        }
        self.is_cut.store(true, Ordering::Relaxed);
        // Jobs are often started by scripts, and it is their children that work. Who is meant is seen before anybody ends.
        let family: Vec<Seen> = procfs::process(job).into_iter().chain(procfs::descendants(job)).collect();
        let send = |signal: i32| {
            for one in &family {
                let is_there = procfs::process(one.pid).is_some_and(|seen| seen.start == one.start);
                if let Ok(pid) = i32::try_from(one.pid)
                    && is_there
                {
                    kernel::send(signal, pid);
                }
            }
        };
        send(libc::SIGTERM);
        let is_gone = |one: &Seen| procfs::process(one.pid).is_none_or(|seen| seen.start != one.start);
        let asked = Instant::now();
        while asked.elapsed() < GRACE && !family.iter().all(is_gone) {
            thread::sleep(PACE);
        }
        send(libc::SIGKILL);
    }
}

/// Signals that are the job's business, not ours.
const FOR_THE_JOB: [i32; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// Starts `command`, tells `started` its number, and waits for its end. An error is that it could not be started. Threads that
/// `started` makes get no signals: they are held back by then.
pub(crate) fn run(mut command: Command, started: impl FnOnce(u32)) -> io::Result<Exit> {
    let held = Held::hold(&FOR_THE_JOB);
    held.release_in(&mut command);
    let mut child = command.spawn()?;
    let pid = i32::try_from(child.id()).unwrap_or(i32::MAX);
    started(child.id());
    loop {
        if let Some(status) = ended(&mut child) {
            return Ok(exit_of(status));
        }
        // The child's end is among the signals, and one that came before this call is still waiting.
        let Ok(arrived) = held.wait() else { continue };
        if arrived.signal != libc::SIGCHLD && arrived.sender.is_some_and(|sender| sender != pid) {
            kernel::send(arrived.signal, pid);
        }
    }
}

fn ended(child: &mut Child) -> Option<ExitStatus> {
    match child.try_wait() {
        Ok(status) => status,
        // Not possible for a child of ours; if it is, waiting on would be for ever.
        Err(_) => Some(ExitStatus::from_raw(1 << 8)),
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Code(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Code(1),
    }
}

/// The code that a shell would show.
pub(crate) fn code_of(exit: Exit) -> u8 {
    let code = match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => signal.saturating_add(128),
    };
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// The code that a shell would show for a command that cannot be started.
pub(crate) fn code_of_failure(error: &io::Error) -> u8 {
    if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 }
}
