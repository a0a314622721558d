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
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use vramline::recording::manifest::Exit;
use vramline::source::procfs::{self, Seen};

use crate::launch::kernel::{self, Held};
use crate::launch::spec::Enough;

/// How often it is asked whether a job may be ended.
const PACE: Duration = Duration::from_millis(200);

/// How long a job that was asked to end may take for it.
const GRACE: Duration = Duration::from_secs(5);

/// Whether and why a job is ended before its time. Shared by the thread that waits for the job and one that ends it.
pub(crate) struct Ending<'a> {
    enough: Option<Enough<'a>>,
    /// Whether a signal of `TO_END` ends the job, whatever it does about it.
    must_obey: bool,
    is_over: AtomicBool,
    /// The first signal of `TO_END` that came; 0 where none did.
    signal: AtomicI32,
}

impl<'a> Ending<'a> {
    pub(crate) fn new(enough: Option<Enough<'a>>, must_obey: bool) -> Ending<'a> {
        Ending { enough, must_obey, is_over: AtomicBool::new(false), signal: AtomicI32::new(0) }
    }

    /// Whether anything could end the job: then somebody has to [`wait`](Ending::wait).
    pub(crate) fn may_come(&self) -> bool {
        self.enough.is_some() || self.must_obey
    }

    /// The signal with which somebody asked for an end.
    pub(crate) fn interrupted(&self) -> Option<i32> {
        Some(self.signal.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
    }

    fn arrived(&self, signal: i32) {
        if TO_END.contains(&signal) {
            let _ = self.signal.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Waits until the job is over, or until it has to end, and then ends it and all that it started.
    pub(crate) fn wait(&self, job: u32) {
        loop {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let is_asked_to = self.must_obey && self.interrupted().is_some();
            if is_asked_to || self.enough.is_some_and(|enough| enough()) {
                break;
            }
            thread::sleep(PACE);
        }
        end_family(job);
    }
}

/// Jobs are often started by scripts, and it is their children that work. Who is meant is seen before anybody ends.
fn end_family(job: u32) {
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

/// Signals with which people end programs.
const TO_END: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// Signals that are the job's business, not ours.
const FOR_THE_JOB: [i32; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// Starts `command`, tells `started` its number, and waits for its end. An error is that it could not be started. Threads that
/// `started` makes get no signals: they are held back by then.
pub(crate) fn run(mut command: Command, started: impl FnOnce(u32), ending: &Ending<'_>) -> io::Result<Exit> {
    let held = Held::hold(&FOR_THE_JOB);
    held.release_in(&mut command);
    let mut child = command.spawn()?;
    let pid = i32::try_from(child.id()).unwrap_or(i32::MAX);
    started(child.id());
    let status = loop {
        if let Some(status) = ended(&mut child) {
            break status;
        }
        // The child's end is among the signals, and one that came before this call is still waiting.
        let Ok(arrived) = held.wait() else { continue };
        if arrived.sender == Some(pid) {
            continue;
        }
        ending.arrived(arrived.signal);
        if arrived.signal != libc::SIGCHLD && arrived.sender.is_some() {
            kernel::send(arrived.signal, pid);
        }
    };
    // Ctrl-C reaches both at once: where the job's end was seen first, the signal is still waiting.
    while let Some(arrived) = held.next() {
        ending.arrived(arrived.signal);
    }
    ending.is_over.store(true, Ordering::Relaxed);
    Ok(exit_of(status))
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
