//! The job as a child process: starts it as a shell would, waits for it and returns how it ended.
//!
//! The job inherits our terminal, standard streams, process group and everything else; nothing is piped. If this process is
//! killed, the job keeps running.
//!
//! Signals: the terminal sends its signals (Ctrl-C, Ctrl-\, a hang-up) to the whole process group. The job gets them directly, so
//! they are not passed on. A signal that another process sends to us alone (`kill`, a scheduler, a container's stop) is passed on,
//! unless the job itself sent it. A signal to the whole group looks the same as a signal to us, so the job gets that one twice. This
//! process never ends before the job. Ctrl-Z stops both and `fg` continues both; `kill -STOP` on us alone leaves the job running.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use vramline::recording::manifest::Exit;
use vramline::source::procfs::{self, Seen};

use crate::launch::kernel::{self, Held};
use crate::launch::spec::Enough;

/// Time between two checks whether the job is to be ended.
const PACE: Duration = Duration::from_millis(200);

/// Time between the request to end and the kill.
const GRACE: Duration = Duration::from_secs(5);

/// The same if the user wants the end: the job was asked once already, and its recording is discarded.
const GRACE_AFTER_SIGNAL: Duration = Duration::from_secs(1);

/// Whether and why a job is ended early. Shared by the thread that waits for the job and the thread that ends it.
pub(crate) struct Ending<'a> {
    enough: Option<Enough<'a>>,
    /// Whether a signal of `TO_END` ends the job even if the job ignores it.
    must_obey: bool,
    is_over: AtomicBool,
    /// The first signal of `TO_END` that arrived; 0 if none did.
    signal: AtomicI32,
}

impl<'a> Ending<'a> {
    pub(crate) fn new(enough: Option<Enough<'a>>, must_obey: bool) -> Ending<'a> {
        Ending { enough, must_obey, is_over: AtomicBool::new(false), signal: AtomicI32::new(0) }
    }

    /// Whether the job may have to be ended. If so, a thread must call [`wait`](Ending::wait).
    pub(crate) fn may_come(&self) -> bool {
        self.enough.is_some() || self.must_obey
    }

    /// The first signal that asked for an end.
    pub(crate) fn interrupted(&self) -> Option<i32> {
        Some(self.signal.load(Ordering::Relaxed)).filter(|&signal| signal != 0)
    }

    fn arrived(&self, signal: i32) {
        if TO_END.contains(&signal) {
            let _ = self.signal.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Waits until the job has ended or has to end. In the second case, ends the job and every process that it started.
    pub(crate) fn wait(&self, job: u32) {
        let grace = loop {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            if self.must_obey && self.interrupted().is_some() {
                break GRACE_AFTER_SIGNAL;
            }
            if self.enough.is_some_and(|enough| enough()) {
                break GRACE;
            }
            thread::sleep(PACE);
        };
        end_family(job, grace);
    }
}

/// Ends the job and its descendants: a job is often a script whose children do the work. They are listed before the first one ends.
fn end_family(job: u32, grace: Duration) {
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
    while asked.elapsed() < grace && !family.iter().all(is_gone) {
        thread::sleep(PACE);
    }
    send(libc::SIGKILL);
}

/// Signals that ask a program to end.
const TO_END: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

/// Signals that are left to the job.
const FOR_THE_JOB: [i32; 6] =
    [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2];

/// Starts `command`, calls `started` with its process ID and waits for its end. Fails if it cannot be started. Signals are blocked
/// when `started` is called, so threads that it creates get none.
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
        // The child's end is one of the signals. A signal that arrived before this call is still pending.
        let Ok(arrived) = held.wait() else { continue };
        if arrived.sender == Some(pid) {
            continue;
        }
        ending.arrived(arrived.signal);
        if arrived.signal != libc::SIGCHLD && arrived.sender.is_some() {
            kernel::send(arrived.signal, pid);
        }
    };
    // Ctrl-C reaches both at once: if the job's end was seen first, the signal is still pending.
    while let Some(arrived) = held.next() {
        ending.arrived(arrived.signal);
    }
    ending.is_over.store(true, Ordering::Relaxed);
    Ok(exit_of(status))
}

fn ended(child: &mut Child) -> Option<ExitStatus> {
    match child.try_wait() {
        Ok(status) => status,
        // Impossible for our own child; if it happens, waiting would never end.
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
