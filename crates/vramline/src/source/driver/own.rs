//! What this process holds on a device, and why that may not be known.

use super::DriverError;
use super::probe::Probe;
use crate::source::procfs::{self, Standing};
use crate::units::Bytes;

/// Why a figure is not to be had, and what would give it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTold {
    /// A stable word.
    pub code: &'static str,
    /// One sentence.
    pub reason: String,
    /// What would make it known; empty where nothing does.
    pub switch: &'static str,
}

impl From<&DriverError> for NotTold {
    fn from(error: &DriverError) -> NotTold {
        NotTold { code: error.code(), reason: error.to_string(), switch: error.hint() }
    }
}

/// What would make a driver and a container count alike.
const SHARE_NUMBERS: &str = "start the container with --pid=host (Kubernetes: hostPID: true)";

/// What this process holds on a device, by the driver's list.
pub fn held(probe: &mut Probe, device: usize) -> Result<Bytes, NotTold> {
    let listed = probe.processes(device).map_err(|error| NotTold::from(&error))?;
    let own = std::process::id();
    let numbers = procfs::pids_of(own);
    let pids: Vec<u32> = listed.iter().map(|process| process.pid).collect();
    let is_here = |pid| procfs::process(pid).is_some();
    let standing = procfs::standing(&pids, &[(own, numbers.clone())], is_here);
    let found = match standing {
        Standing::ByOwnNumber => listed.iter().find(|process| process.pid == own),
        Standing::ByOtherNumber => listed.iter().find(|process| numbers.contains(&process.pid)),
        other => return Err(not_listed(other)),
    };
    found.and_then(|process| process.used).ok_or(NotTold {
        code: "not-supported",
        reason: "the driver does not tell what a process holds on this device".to_owned(),
        switch: "",
    })
}

/// Why a process that should be in a driver's list is not.
#[must_use]
pub(crate) fn not_listed(standing: Standing) -> NotTold {
    let (reason, switch) = match standing {
        Standing::OfAnotherNamespace => (
            "the driver numbers processes as another namespace does: none of its numbers is to be seen from here",
            SHARE_NUMBERS,
        ),
        Standing::Empty => (
            "the driver lists no process: none has used this device, or the container hides them",
            SHARE_NUMBERS,
        ),
        _ => ("the driver's list does not hold this process: it has not used this device", ""),
    };
    NotTold { code: standing.word(), reason: reason.to_owned(), switch }
}
