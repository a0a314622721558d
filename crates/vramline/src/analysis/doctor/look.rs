//! What was found on a machine: the driver's answers, the kernel's, and Python's.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::source::driver::probe::Costs;
use crate::source::driver::{DeviceFacts, DeviceMemory, DeviceProcess, DriverError, Library};
use crate::source::procfs::{HostMemory, Namespace};
use crate::units::Bytes;

/// What was found on a machine.
#[derive(Debug)]
pub struct MachineLook {
    /// The driver, or why there is none.
    pub driver: Result<DriverLook, DriverError>,
    /// The machine's own memory.
    pub host: Option<HostMemory>,
    /// What this container may hold of it.
    pub container_limit: Option<Bytes>,
    /// How this process counts processes.
    pub namespace: Namespace,
    /// Whether the kernel is that of Windows' subsystem for Linux.
    pub is_wsl: bool,
    /// The variables that a job would inherit.
    pub environment: BTreeMap<String, String>,
    /// The Python that would run it, or why it could not be asked.
    pub python: Result<PythonLook, String>,
    /// Why `vramline run` would not reach into a job.
    pub no_boot: Option<String>,
}

impl MachineLook {
    /// A variable that a job would inherit.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str)
    }
}

/// What a driver said.
#[derive(Debug)]
pub struct DriverLook {
    /// Which driver.
    pub library: Library,
    /// The CUDA that it runs.
    pub cuda: Result<String, DriverError>,
    /// Its devices.
    pub devices: Vec<DeviceLook>,
    /// What asking cost.
    pub costs: Costs,
}

/// What a driver said of a device.
#[derive(Clone, Debug)]
pub struct DeviceLook {
    /// What stays the same of it.
    pub facts: DeviceFacts,
    /// How much of it is taken.
    pub memory: Result<DeviceMemory, DriverError>,
    /// By whom.
    pub processes: Result<Vec<DeviceProcess>, DriverError>,
    /// Those of them that are to be seen from here.
    pub seen_here: Vec<u32>,
}

/// What Python told of itself and of the frameworks that are installed beside it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PythonLook {
    /// Its program.
    pub executable: String,
    /// Its version.
    pub version: (u32, u32, u32),
    /// `-I`
    pub isolated: bool,
    /// `-E`
    pub ignore_environment: bool,
    /// `-S`
    pub no_site: bool,
    /// Distributions that matter, with their versions.
    pub packages: BTreeMap<String, String>,
    /// With `--deep`: by framework, whether it uses a GPU, and the words for it.
    pub deep: BTreeMap<String, DeepLook>,
}

/// What a framework said when it was imported.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DeepLook {
    /// Whether it was built for CUDA.
    pub is_built: Option<bool>,
    /// How many GPUs it sees.
    pub gpus: Option<u32>,
    /// Why it could not be asked.
    pub error: Option<String>,
}
