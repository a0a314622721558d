//! A driver that plays a script, for tests: processes come and go, devices fall off the bus, figures are unavailable.
//!
//! A script is plain data, written in Rust or as JSON:
//!
//! ```json
//! {"driver_version": "580.159.04",
//!  "devices": [{"name": "NVIDIA H200", "total": 150754820096, "reserved": 644939776,
//!               "processes": [{"pid": "job", "from_ms": 200, "until_ms": 900, "used": [[0, 500000000], [400, 900000000]]},
//!                             {"pid": 4711, "used": null}],
//!               "lost_at_ms": 2000}]}
//! ```
//!
//! Its time is that of the clock since it was opened, or, with `step_ms`, goes on by that much at each look at the first
//! device's memory, so that a test need not wait. A device's figures are made of its processes': what they hold is used, the rest
//! is free. It knows no more of the machine than `/proc` tells.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::{DeviceFacts, DeviceMemory, DeviceProcess, Driver, DriverError, Identity, Library, Part, Work};
use crate::source::procfs;
use crate::units::Bytes;

/// Larger files are no script.
const LARGEST: u64 = 4 << 20;

/// What a fake driver does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// Why there is no driver at all.
    pub error: Option<DriverError>,
    /// Its version.
    pub driver_version: Option<String>,
    /// The CUDA that it runs.
    pub cuda_version: Option<String>,
    /// What is there.
    pub devices: Vec<FakeDevice>,
    /// By how much time goes on at each look; without it, the clock's time counts.
    pub step_ms: Option<u64>,
    /// What is added to the numbers of `self` and `job`: a driver that tells another namespace's.
    pub pid_offset: u32,
    /// How long a list of processes takes.
    pub list_takes_ms: u64,
    /// How long a look at a device's memory takes.
    pub memory_takes_ms: u64,
}

/// A device of a script.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FakeDevice {
    /// By its number where it is empty.
    pub uuid: String,
    /// The model.
    pub name: Option<String>,
    /// CUDA's capability.
    pub capability: Option<(i32, i32)>,
    /// Where it sits.
    pub pci_bus_id: Option<String>,
    /// All of its memory.
    pub total: u64,
    /// What the driver keeps.
    pub reserved: u64,
    /// How `used` is counted; [`Identity::Neither`] makes figures that do not add up.
    pub identity: Option<Identity>,
    /// Memory that no listed process holds.
    pub unlisted: u64,
    /// Why its memory is unknown.
    pub memory_error: Option<DriverError>,
    /// Why its processes are unknown.
    pub processes_error: Option<DriverError>,
    /// Whether peaks are kept.
    pub accounting: Option<bool>,
    /// Who uses it.
    pub processes: Vec<FakeProcess>,
    /// When it falls off the bus.
    pub lost_at_ms: Option<u64>,
    /// When it comes back.
    pub back_at_ms: Option<u64>,
    /// Its parts, where it is divided. They follow it in the list of devices.
    pub parts: Vec<FakeDevice>,
}

/// A process of a script.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FakeProcess {
    /// Its number.
    pub pid: Pid,
    /// When it comes.
    pub from_ms: u64,
    /// When it goes.
    pub until_ms: Option<u64>,
    /// What it holds.
    pub used: Used,
    /// What it uses the device for; CUDA where it is left out.
    pub work: Option<Work>,
    /// The peak that accounting reports.
    pub peak: Option<u64>,
}

/// The number of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", untagged)]
pub enum Pid {
    /// This one.
    Number(u32),
    /// A word.
    Word(PidWord),
    /// Not said.
    #[default]
    None,
}

/// A process that is known by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PidWord {
    /// The process that asks.
    #[serde(rename = "self")]
    Own,
    /// The first child of the process that asks; nobody while it has none.
    Job,
}

/// What a process holds over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Used {
    /// The driver does not tell.
    #[default]
    Unknown,
    /// The same all the time.
    Bytes(u64),
    /// From each moment (milliseconds of the script) on, so much.
    Steps(Vec<(u64, u64)>),
}

impl Used {
    fn at(&self, now: u64) -> Option<u64> {
        match self {
            Used::Unknown => None,
            Used::Bytes(bytes) => Some(*bytes),
            Used::Steps(steps) => {
                Some(steps.iter().rev().find(|(from, _)| *from <= now).map_or(0, |(_, bytes)| *bytes))
            }
        }
    }
}

impl FakeProcess {
    fn is_there(&self, now: u64) -> bool {
        self.from_ms <= now && self.until_ms.is_none_or(|until| now < until)
    }
}

/// The driver that plays it.
#[derive(Debug)]
pub struct Fake {
    script: Script,
    /// Devices with their parts, in the order of the list.
    devices: Vec<(DeviceFacts, FakeDevice)>,
    opened: Instant,
    now_ms: u64,
    own: u32,
}

impl Fake {
    /// The driver of a script, for the process that has this number.
    pub fn new(script: Script) -> Result<Fake, DriverError> {
        if let Some(error) = script.error.clone() {
            return Err(error);
        }
        let mut devices = Vec::new();
        for (index, device) in (0_u32..).zip(&script.devices) {
            let facts = |device: &FakeDevice, uuid: String, part: Option<Part>| DeviceFacts {
                index,
                uuid: if device.uuid.is_empty() { uuid } else { device.uuid.clone() },
                name: device.name.clone(),
                capability: device.capability,
                pci_bus_id: device.pci_bus_id.clone(),
                is_divided: part.is_none().then_some(!device.parts.is_empty()),
                part,
                is_accounting: device.accounting,
            };
            let whole = facts(device, format!("GPU-fake-{index}"), None);
            let of = whole.uuid.clone();
            devices.push((whole, device.clone()));
            for (number, part) in (0_u32..).zip(&device.parts) {
                let place = Part { index: number, of: of.clone() };
                devices.push((facts(part, format!("MIG-fake-{index}-{number}"), Some(place)), part.clone()));
            }
        }
        Ok(Fake { script, devices, opened: Instant::now(), now_ms: 0, own: std::process::id() })
    }

    /// The driver of a script in a file.
    pub fn load(path: &Path) -> Result<Fake, DriverError> {
        let failed = |what: String| DriverError::Failed { detail: format!("'{}': {what}", path.display()) };
        let length = std::fs::metadata(path).map_err(|error| failed(error.to_string()))?.len();
        if length > LARGEST {
            return Err(failed("too large for a script".to_owned()));
        }
        let text = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
        Fake::new(serde_json::from_slice(&text).map_err(|error| failed(error.to_string()))?)
    }

    /// Sets the script's time, where a test drives it.
    pub fn set_time(&mut self, milliseconds: u64) {
        self.script.step_ms = Some(0);
        self.now_ms = milliseconds;
    }

    fn now(&self) -> u64 {
        match self.script.step_ms {
            Some(_) => self.now_ms,
            None => u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// The device, unless it is lost by now.
    fn device(&self, number: usize) -> Result<&FakeDevice, DriverError> {
        let (_, device) = self.devices.get(number).ok_or(DriverError::NotFound)?;
        let now = self.now();
        let is_lost =
            device.lost_at_ms.is_some_and(|at| at <= now) && device.back_at_ms.is_none_or(|at| now < at);
        if is_lost { Err(DriverError::GpuLost) } else { Ok(device) }
    }

    fn pid(&self, pid: Pid) -> Option<u32> {
        let place = match pid {
            Pid::Number(number) => return Some(number),
            Pid::None => return None,
            Pid::Word(PidWord::Own) => Some(self.own),
            Pid::Word(PidWord::Job) => procfs::descendants(self.own).first().map(|found| found.pid),
        };
        place.and_then(|pid| pid.checked_add(self.script.pid_offset))
    }
}

impl Driver for Fake {
    fn library(&mut self) -> Library {
        Library { driver_version: self.script.driver_version.clone(), nvml_version: None }
    }

    fn cuda_version(&mut self) -> Result<String, DriverError> {
        self.script.cuda_version.clone().ok_or(DriverError::NotSupported)
    }

    fn devices(&mut self) -> Result<Vec<DeviceFacts>, DriverError> {
        Ok(self.devices.iter().map(|(facts, _)| facts.clone()).collect())
    }

    fn memory(&mut self, number: usize) -> Result<DeviceMemory, DriverError> {
        std::thread::sleep(Duration::from_millis(self.script.memory_takes_ms));
        if number == 0 {
            self.now_ms = self.now_ms.saturating_add(self.script.step_ms.unwrap_or_default());
        }
        let now = self.now();
        let device = self.device(number)?;
        if let Some(error) = &device.memory_error {
            return Err(error.clone());
        }
        let held = device.processes.iter().filter(|process| process.is_there(now));
        let held: Bytes = held.filter_map(|process| process.used.at(now)).map(Bytes).sum();
        let held = held + Bytes(device.unlisted);
        let (total, reserved) = (Bytes(device.total), Bytes(device.reserved));
        let free = total.saturating_sub(reserved).saturating_sub(held);
        let used = match device.identity.unwrap_or(Identity::UsedExcludesReserved) {
            Identity::UsedExcludesReserved => held,
            Identity::UsedIncludesReserved => held + reserved,
            Identity::Neither => held + Bytes(1),
        };
        Ok(DeviceMemory { total, reserved, free, used })
    }

    fn processes(&mut self, number: usize) -> Result<Vec<DeviceProcess>, DriverError> {
        std::thread::sleep(Duration::from_millis(self.script.list_takes_ms));
        let now = self.now();
        let device = self.device(number)?;
        if let Some(error) = &device.processes_error {
            return Err(error.clone());
        }
        let mut all: Vec<DeviceProcess> = device
            .processes
            .iter()
            .filter(|process| process.is_there(now))
            .filter_map(|process| {
                let used = process.used.at(now).map(Bytes);
                Some(DeviceProcess {
                    pid: self.pid(process.pid)?,
                    used,
                    work: process.work.unwrap_or(Work::Compute),
                })
            })
            .collect();
        all.sort_by_key(|process| process.pid);
        Ok(all)
    }

    fn accounted_peak(&mut self, number: usize, pid: u32) -> Result<Bytes, DriverError> {
        let device = self.device(number)?;
        if device.accounting != Some(true) {
            return Err(DriverError::NotSupported);
        }
        let process = device.processes.iter().find(|process| self.pid(process.pid) == Some(pid));
        process.and_then(|process| process.peak).map(Bytes).ok_or(DriverError::NotFound)
    }
}
