//! What this process holds on a device, and why that may be unknown.

use super::DriverError;
use super::probe::Probe;
use crate::source::procfs::{self, Standing};
use crate::units::Bytes;

/// Why a figure is unknown, and what would make it known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTold {
    /// A stable word.
    pub code: &'static str,
    /// One sentence.
    pub reason: String,
    /// The setting that would make it known; empty if there is none.
    pub switch: &'static str,
}

impl From<&DriverError> for NotTold {
    fn from(error: &DriverError) -> NotTold {
        NotTold { code: error.code(), reason: error.to_string(), switch: error.hint() }
    }
}

/// The setting with which driver and container use the same process ids.
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
        reason: "the driver does not report the memory of each process on this device".to_owned(),
        switch: "",
    })
}

/// Why a process that should be in a driver's list is not.
#[must_use]
pub(crate) fn not_listed(standing: Standing) -> NotTold {
    let (reason, switch) = match standing {
        Standing::OfAnotherNamespace => {
            ("the driver uses process ids of another namespace, which are not visible here", SHARE_NUMBERS)
        }
        Standing::Empty => (
            "the driver lists no process: either none uses this device, or the container hides them",
            SHARE_NUMBERS,
        ),
        _ => ("the driver does not list this process: it has not used this device", ""),
    };
    NotTold { code: standing.word(), reason: reason.to_owned(), switch }
}
