//! Signals, which the standard library lacks: holding them back, waiting for them, sending them. The binary's only unsafe
//! code; what they mean is decided in `child` and in `tui`.

#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// A signal that arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) signal: i32,
    /// The process that sent it; `None` for the kernel, which acts for the terminal.
    pub(crate) sender: Option<i32>,
}

/// Signals that are held back from their usual effect until they are asked for; as before when dropped.
pub(crate) struct Held {
    signals: libc::sigset_t,
    before: libc::sigset_t,
    child_action_before: libc::sigaction,
}

impl Held {
    /// Holds back `signals`, except those that this process was told to ignore (`nohup`), and the news of a child's end.
    ///
    /// To be called while there is one thread: later ones inherit it.
    pub(crate) fn hold(signals: &[i32]) -> Held {
        let mut set = empty_set();
        let mut before = empty_set();
        for &signal in signals {
            if action(signal).sa_sigaction != libc::SIG_IGN {
                // SAFETY: the set is initialised; an unknown number would only be answered with an error.
                unsafe { libc::sigaddset(&raw mut set, signal) };
            }
        }
        let child_action_before = action(libc::SIGCHLD);
        let mut usual = child_action_before;
        usual.sa_sigaction = libc::SIG_DFL;
        usual.sa_flags = 0;
        // SAFETY: pointers are to live, initialised values. The default action replaces whatever was inherited: where
        // that is "ignore", the kernel would throw the child's exit code away.
        unsafe {
            libc::sigaddset(&raw mut set, libc::SIGCHLD);
            libc::sigaction(libc::SIGCHLD, &raw const usual, std::ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, &raw mut before);
        }
        Held { signals: set, before, child_action_before }
    }

    /// Lets `command` begin with the signals as they were before they were held back.
    pub(crate) fn release_in(&self, command: &mut Command) {
        let (before, child_action) = (self.before, self.child_action_before);
        let release = move || {
            // SAFETY: both calls may be made between fork and exec, and take pointers to live, initialised values.
            unsafe {
                libc::sigaction(libc::SIGCHLD, &raw const child_action, std::ptr::null_mut());
                libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
            }
            Ok(())
        };
        // SAFETY: the closure allocates nothing and takes no lock.
        unsafe { command.pre_exec(release) };
    }

    /// Waits for the next of them.
    pub(crate) fn wait(&self) -> io::Result<Arrived> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        // SAFETY: the set is initialised, and there is room for the answer.
        let signal = unsafe { libc::sigwaitinfo(&raw const self.signals, info.as_mut_ptr()) };
        if signal < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(arrived(signal, info))
    }

    /// The next of them that has come already.
    pub(crate) fn next(&self) -> Option<Arrived> {
        let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time are initialised, and there is room for the answer.
        let signal =
            unsafe { libc::sigtimedwait(&raw const self.signals, info.as_mut_ptr(), &raw const none) };
        (signal > 0).then(|| arrived(signal, info))
    }
}

/// What the kernel told of a signal.
fn arrived(signal: i32, info: MaybeUninit<libc::siginfo_t>) -> Arrived {
    // SAFETY: all bits zero are a valid siginfo_t, and the kernel filled it in.
    let info = unsafe { info.assume_init() };
    // What comes from kill(2) and its kin carries a code of zero or less, and then the sender.
    // SAFETY: for these codes the field is filled in; the memory is initialised in any case.
    let sender = (info.si_code <= 0).then(|| unsafe { info.si_pid() });
    Arrived { signal, sender }
}

impl Drop for Held {
    fn drop(&mut self) {
        // What is still waiting was meant for the job, which is over: it is taken away first, or it would end this process
        // when it is let through.
        while self.next().is_some() {}
        // SAFETY: pointers are to live, initialised values.
        unsafe {
            libc::sigaction(libc::SIGCHLD, &raw const self.child_action_before, std::ptr::null_mut());
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, std::ptr::null_mut());
        }
    }
}

/// Sends a signal to a child that has not been waited for yet, or to another process that was just seen: its number is still its own.
pub(crate) fn send(signal: i32, child: i32) {
    // SAFETY: a system call without pointers. It fails where the child has just ended, which is fine.
    unsafe { libc::kill(child, signal) };
}

/// Stops this process and its group as Ctrl-Z would, and goes on when it is continued. The signal may be among those that are held back.
pub(crate) fn stop() {
    let mut set = empty_set();
    // SAFETY: pointers are to live, initialised values. The signal reaches this thread, which alone lets it through, before
    // kill returns; without a shell that could continue it, the kernel passes it over.
    unsafe {
        libc::sigaddset(&raw mut set, libc::SIGTSTP);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const set, std::ptr::null_mut());
        libc::kill(0, libc::SIGTSTP);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: sigemptyset initialises the set that it is given, and cannot fail.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

/// What this process does at a signal.
fn action(signal: i32) -> libc::sigaction {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all bits zero are a valid sigaction, and stay where the call fails.
    unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    }
}
