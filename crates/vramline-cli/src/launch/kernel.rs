//! Signals, which the standard library lacks: blocks them, waits for them and sends them. This is the only unsafe code of the
//! binary; `child` and `tui` decide what a signal means.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A signal that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) signal: i32,
    /// The process that sent it; `None` for the kernel, which sends the signals of the terminal.
    pub(crate) sender: Option<i32>,
}

/// Signals that are blocked and waited for. Dropping this restores the previous state.
pub(crate) struct Held {
    signals: libc::sigset_t,
    before: libc::sigset_t,
    child_action_before: libc::sigaction,
}

impl Held {
    /// Blocks `signals` and SIGCHLD, except signals that this process ignores (`nohup`).
    ///
    /// To be called while there is only one thread: later threads inherit it.
    pub(crate) fn hold(signals: &[i32]) -> Held {
        let mut set = empty_set();
        let mut before = empty_set();
        for &signal in signals {
            if action(signal).sa_sigaction != libc::SIG_IGN {
                // SAFETY: the set is initialised; an unknown number only returns an error.
                unsafe { libc::sigaddset(&raw mut set, signal) };
            }
        }
        let child_action_before = action(libc::SIGCHLD);
        let mut usual = child_action_before;
        usual.sa_sigaction = libc::SIG_DFL;
        usual.sa_flags = 0;
        // SAFETY: pointers are to live, initialised values. The default action replaces an inherited "ignore", with which
        // the kernel would discard the child's exit code.
        unsafe {
            libc::sigaddset(&raw mut set, libc::SIGCHLD);
            libc::sigaction(libc::SIGCHLD, &raw const usual, std::ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
        }
        Held { signals: set, before, child_action_before }
    }

    /// Lets `command` start with the signals as they were before they were blocked.
    pub(crate) fn release_in(&self, command: &mut Command) {
        let (before, child_action) = (self.before, self.child_action_before);
        let release = move || {
            // SAFETY: both calls are allowed between fork and exec, and take pointers to live, initialised values.
            unsafe {
                libc::sigaction(libc::SIGCHLD, &raw const child_action, std::ptr::null_mut());
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            }
            Ok(())
        };
        // SAFETY: the closure allocates nothing and takes no lock.
        unsafe { command.pre_exec(release) };
    }

    /// Waits for the next signal.
    pub(crate) fn wait(&self) -> io::Result<Arrived> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set is initialised, and there is room for the answer.
        let signal = unsafe { libc::sigwaitinfo(&raw const self.signals, info.as_mut_ptr()) };
        if signal < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(arrived(signal, info))
    }

    /// The next signal that is already pending.
    pub(crate) fn next(&self) -> Option<Arrived> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time are initialised, and there is room for the answer.
        let signal =
            unsafe { libc::sigtimedwait(&raw const self.signals, info.as_mut_ptr(), &raw const none) };
        (signal > 0).then(|| arrived(signal, info))
    }
}

/// The signal as the kernel describes it.
fn arrived(signal: i32, info: MaybeUninit<libc::siginfo_t>) -> Arrived {
    // SAFETY: all bits zero are a valid siginfo_t, and the kernel filled it in.
    let info = unsafe { info.assume_init() };
    // Signals from kill(2) and similar calls have a code of zero or less, and only those have a sender.
    // SAFETY: for these codes the field is filled in; the memory is initialised in any case.
    let sender = (info.si_code <= 0).then(|| unsafe { info.si_pid() });
    Arrived { signal, sender }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Pending signals were meant for the job, which has ended. They are removed first, because they would end this process
        // once they are unblocked.
        while self.next().is_some() {}
        // SAFETY: pointers are to live, initialised values.
        unsafe {
            libc::sigaction(libc::SIGCHLD, &raw const self.child_action_before, std::ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}

/// Sends a signal to a child that has not been waited for, or to a process that was just seen: its ID has not been reused.
pub(crate) fn send(signal: i32, child: i32) {
    // SAFETY: a system call without pointers. It fails if the child has just ended, which is fine.
    unsafe { libc::kill(child, signal) };
}

/// Stops this process and its group like Ctrl-Z, and returns when it is continued. The signal may be blocked.
pub(crate) fn stop() {
    let mut set = empty_set();
    // SAFETY: pointers are to live, initialised values. The signal is delivered to this thread, the only one that unblocks it,
    // before kill returns. Without a shell that could continue the process, the kernel ignores the signal.
    unsafe {
        libc::sigaddset(&raw mut set, libc::SIGTSTP);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::kill(0, libc::SIGTSTP);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigemptyset initialises the set and cannot fail.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// The action of this process for a signal.
fn action(signal: i32) -> libc::sigaction {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all bits zero are a valid sigaction; if the call fails, they stay.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    }
}
