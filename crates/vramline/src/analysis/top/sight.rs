//! One look at a machine: what the driver, the kernel and the recordings of jobs say at a moment.

use std::collections::BTreeMap;

use super::job::LiveJob;
use crate::analysis::doctor::DeviceLook;
use crate::recording::rows::Moment;
use crate::source::driver::{DriverError, Library};
use crate::source::procfs::HostMemory;
use crate::units::{Bytes, Nanos};

/// One look at a machine.
#[derive(Debug)]
pub struct MachineSight<'a> {
    /// When.
    pub now: Moment,
    /// The machine's name.
    pub host: String,
    /// Its own memory.
    pub memory: Option<HostMemory>,
    /// What the driver said, or why it says nothing.
    pub driver: Result<DriverSight, DriverError>,
    /// The recordings.
    pub jobs: &'a [LiveJob],
    /// What the kernel knows of processes that matter: a command, and the host memory they hold.
    pub seen: BTreeMap<u32, SeenProcess>,
}

impl MachineSight<'_> {
    /// What the kernel says of a process that may have several numbers.
    pub(super) fn seen_as(&self, pids: &[u32]) -> Option<&SeenProcess> {
        pids.iter().find_map(|pid| self.seen.get(pid))
    }
}

/// What the driver said.
#[derive(Clone, Debug)]
pub struct DriverSight {
    /// Which driver.
    pub library: Library,
    /// Its devices, with what they hold.
    pub devices: Vec<DeviceLook>,
    /// How old its answer is.
    pub age_ns: Nanos,
}

/// What the kernel says of a process.
#[derive(Clone, Debug, Default)]
pub struct SeenProcess {
    /// Its command line.
    pub command: String,
    /// Host memory that it holds.
    pub resident: Option<Bytes>,
}
