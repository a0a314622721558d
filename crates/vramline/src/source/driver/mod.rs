//! What the driver says: which devices there are, how much of each is taken, and by whom.
//!
//! [`Driver`] is the whole interface. Behind it stand `nvml` (NVIDIA's own library, loaded when it is first asked for; with the
//! feature `driver` only) and [`fake`] (a script, for tests). [`Probe`](probe::Probe) asks either and counts what that costs.
//!
//! Two lanes, because calls differ in price: a device's memory costs microseconds and may be read tens of times a second; the
//! list of processes can cost milliseconds under a lock of the driver's, and is read once a second. Nothing here makes a CUDA
//! context. Nothing is trusted that can be checked: texts differ on whether `used` holds what the driver
//! reserves, so [`DeviceMemory::identity`] says which sum holds. Whatever fails is a [`DriverError`], never a panic: a machine
//! without the library is an ordinary machine.

pub mod fake;
#[cfg(feature = "driver")]
pub mod nvml;
pub mod own;
pub mod probe;
pub mod visible;

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// The driver of this machine, or the one that a script plays.
pub fn open(script: Option<&Path>) -> Result<Box<dyn Driver>, DriverError> {
    match script {
        Some(script) => Ok(Box::new(fake::Fake::load(script)?)),
        None => native(),
    }
}

#[cfg(feature = "driver")]
fn native() -> Result<Box<dyn Driver>, DriverError> {
    Ok(Box::new(nvml::NvmlDriver::open()?))
}

#[cfg(not(feature = "driver"))]
fn native() -> Result<Box<dyn Driver>, DriverError> {
    let detail = "vramline was built without the feature `driver`".to_owned();
    Err(DriverError::LibraryMissing { detail })
}

/// Something that knows the machine's devices.
pub trait Driver: Send + std::fmt::Debug {
    /// Which driver answers.
    fn library(&mut self) -> Library;

    /// The newest CUDA that the driver runs, as in `13.0`. May load the CUDA library; makes no context.
    fn cuda_version(&mut self) -> Result<String, DriverError>;

    /// The devices, parts of a divided one behind the whole. Numbers in this list are what the other calls take.
    fn devices(&mut self) -> Result<Vec<DeviceFacts>, DriverError>;

    /// How much of a device is taken. The fast lane.
    fn memory(&mut self, device: usize) -> Result<DeviceMemory, DriverError>;

    /// Who holds memory on it. The slow lane.
    fn processes(&mut self, device: usize) -> Result<Vec<DeviceProcess>, DriverError>;

    /// The most that a process ever held on it, also after its end. Kept by the driver only where accounting is on.
    fn accounted_peak(&mut self, device: usize, pid: u32) -> Result<Bytes, DriverError>;
}

/// Which driver answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Library {
    /// The driver's version, as in `580.159.04`; nothing where it does not say.
    pub driver_version: Option<String>,
    /// The library's own, as in `13.580.159.04`.
    pub nvml_version: Option<String>,
}

/// What stays the same of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// The driver's number for it, which is not CUDA's.
    pub index: u32,
    /// Its name for ever: `GPU-...`, for a part `MIG-...`.
    pub uuid: String,
    /// The model; nothing where the device does not answer.
    pub name: Option<String>,
    /// CUDA's capability, such as (9, 0).
    pub capability: Option<(i32, i32)>,
    /// Where it sits, as in `00000000:1B:00.0`.
    pub pci_bus_id: Option<String>,
    /// Whether the device is divided into parts; nothing where it cannot be.
    pub is_divided: Option<bool>,
    /// Which part of a divided device this is; nothing for a whole one.
    pub part: Option<Part>,
    /// Whether the driver keeps the peaks of processes; nothing where it cannot tell.
    pub is_accounting: Option<bool>,
}

/// A part of a device that is divided (MIG).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Its number on the device.
    pub index: u32,
    /// The whole device.
    pub of: String,
}

/// One answer about a device's memory: the figures are of one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceMemory {
    /// All of it.
    pub total: Bytes,
    /// Kept by the driver and the firmware.
    pub reserved: Bytes,
    /// Not taken.
    pub free: Bytes,
    /// Taken; whether `reserved` is part of it, [`DeviceMemory::identity`] says.
    pub used: Bytes,
}

/// Which sum of a device's figures is its total.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Identity {
    /// total = reserved + free + used
    UsedExcludesReserved,
    /// total = free + used, and `used` holds what is reserved.
    UsedIncludesReserved,
    /// Neither.
    #[serde(other)]
    Neither,
}

written_as!(Identity ["used-excludes-reserved", "used-includes-reserved", "neither"]);

impl DeviceMemory {
    /// Which sum holds. Where nothing is reserved, both are the same.
    #[must_use]
    pub fn identity(&self) -> Identity {
        let sum = |parts: [Bytes; 3]| {
            parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.0)) == Some(self.total.0)
        };
        if sum([self.reserved, self.free, self.used]) {
            Identity::UsedExcludesReserved
        } else if sum([self.free, self.used, Bytes::ZERO]) {
            Identity::UsedIncludesReserved
        } else {
            Identity::Neither
        }
    }

    /// What processes hold: neither free nor reserved. `None` where the figures do not add up.
    #[must_use]
    pub fn in_processes(&self) -> Option<Bytes> {
        match self.identity() {
            Identity::UsedExcludesReserved => Some(self.used),
            Identity::UsedIncludesReserved => self.used.0.checked_sub(self.reserved.0).map(Bytes),
            Identity::Neither => None,
        }
    }
}

/// A process that holds memory on a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceProcess {
    /// Its number, in a namespace that has to be found out.
    pub pid: u32,
    /// What it holds; `None` where the driver does not tell.
    pub used: Option<Bytes>,
    /// What it uses the device for.
    pub work: Work,
}

/// What a process uses a device for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// CUDA.
    Compute,
    /// Drawing.
    Graphics,
    /// Both.
    Both,
}

impl Work {
    /// One word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Work::Compute => "compute",
            Work::Graphics => "graphics",
            Work::Both => "both",
        }
    }
}

/// Puts the driver's two lists together: a process that is in both holds its memory once.
#[must_use]
pub fn joined(compute: Vec<DeviceProcess>, graphics: Vec<DeviceProcess>) -> Vec<DeviceProcess> {
    let mut all = compute;
    let mut places: rustc_hash::FxHashMap<u32, usize> =
        all.iter().enumerate().map(|(at, process)| (process.pid, at)).collect();
    for process in graphics {
        match places.get(&process.pid).and_then(|&at| all.get_mut(at)) {
            Some(known) => {
                known.used = known.used.max(process.used);
                known.work = Work::Both;
            }
            None => {
                places.insert(process.pid, all.len());
                all.push(process);
            }
        }
    }
    all.sort_by_key(|process| process.pid);
    all
}

/// Why the driver does not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[serde(tag = "code", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DriverError {
    /// The library cannot be loaded.
    #[error("cannot load the driver's library libnvidia-ml.so.1 ({detail})")]
    LibraryMissing {
        /// What the loader said.
        detail: String,
    },
    /// The library lacks a function.
    #[error("the driver is too old: its library has no {function}")]
    LibraryTooOld {
        /// The function.
        function: String,
    },
    /// The library is installed, but the kernel module is not loaded.
    #[error("the NVIDIA driver is not loaded in the kernel")]
    DriverNotLoaded,
    /// Library and kernel module have different versions.
    #[error("the driver's library and its kernel module have different versions")]
    VersionMismatch,
    /// This user has no permission.
    #[error("this user may not ask the driver: permission denied")]
    NoPermission,
    /// The device does not report it.
    #[error("this device does not report it")]
    NotSupported,
    /// The device no longer answers.
    #[error("the device has fallen off the bus")]
    GpuLost,
    /// There is no such device, process or part.
    #[error("the driver does not know it")]
    NotFound,
    /// Another error.
    #[error("the driver failed: {detail}")]
    Failed {
        /// What it said.
        detail: String,
    },
    /// An error that only a newer version of Vramline knows.
    #[error("the driver failed with an error that this version of Vramline does not know")]
    #[serde(other)]
    Other,
}

impl DriverError {
    /// A stable word for machines.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            DriverError::LibraryMissing { .. } => "library-missing",
            DriverError::LibraryTooOld { .. } => "library-too-old",
            DriverError::DriverNotLoaded => "driver-not-loaded",
            DriverError::VersionMismatch => "version-mismatch",
            DriverError::NoPermission => "no-permission",
            DriverError::NotSupported => "not-supported",
            DriverError::GpuLost => "gpu-lost",
            DriverError::NotFound => "not-found",
            DriverError::Failed { .. } => "failed",
            DriverError::Other => "other",
        }
    }

    /// What to do; empty where nothing can be done.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            DriverError::LibraryMissing { .. } => {
                "install NVIDIA's driver; start a container with --gpus all and NVIDIA_DRIVER_CAPABILITIES=compute,utility. \
                 Vramline does not support AMD's driver"
            }
            DriverError::LibraryTooOld { .. } => "update NVIDIA's driver to 525 or newer",
            DriverError::DriverNotLoaded => {
                "load the kernel module (modprobe nvidia), or reboot after installing the driver"
            }
            DriverError::VersionMismatch => {
                "reboot: the driver was updated while its old kernel module was loaded"
            }
            DriverError::NoPermission => {
                "run as root, or give this user access to the device files /dev/nvidia*"
            }
            DriverError::GpuLost => {
                "look for Xid errors in the kernel log (dmesg); reset the device or reboot the machine"
            }
            DriverError::NotSupported
            | DriverError::NotFound
            | DriverError::Failed { .. }
            | DriverError::Other => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_that_holds_is_found() {
        let memory = |total, reserved, free, used| DeviceMemory {
            total: Bytes(total),
            reserved: Bytes(reserved),
            free: Bytes(free),
            used: Bytes(used),
        };
        // Figures of an H200.
        let h200 = memory(150_754_820_096, 644_939_776, 149_445_345_280, 664_535_040);
        assert_eq!(h200.identity(), Identity::UsedExcludesReserved);
        assert_eq!(h200.in_processes(), Some(Bytes(664_535_040)));
        let older = memory(100, 5, 60, 40);
        assert_eq!(older.identity(), Identity::UsedIncludesReserved);
        assert_eq!(older.in_processes(), Some(Bytes(35)));
        assert_eq!(memory(100, 0, 60, 40).identity(), Identity::UsedExcludesReserved);
        assert_eq!(memory(100, 5, 60, 41).in_processes(), None);
        assert_eq!(memory(100, u64::MAX, u64::MAX, 2).identity(), Identity::Neither);
        assert_eq!(memory(0, u64::MAX, 1, 0).identity(), Identity::Neither);
    }

    #[test]
    fn a_process_in_both_lists_counts_once() {
        let process = |pid, used: Option<u64>, work| DeviceProcess { pid, used: used.map(Bytes), work };
        let all = joined(
            vec![process(7, Some(100), Work::Compute), process(3, None, Work::Compute)],
            vec![
                process(7, Some(100), Work::Graphics),
                process(3, Some(5), Work::Graphics),
                process(9, None, Work::Graphics),
            ],
        );
        assert_eq!(
            all,
            [
                process(3, Some(5), Work::Both),
                process(7, Some(100), Work::Both),
                process(9, None, Work::Graphics)
            ]
        );
    }
}
