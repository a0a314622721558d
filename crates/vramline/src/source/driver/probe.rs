//! A driver that is asked, and what asking costs.
//!
//! Every call is timed by lane, so that a recording can say what watching took, and so that whoever asks can keep his
//! distance from a driver that is slow.

use std::fmt;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::{DeviceFacts, DeviceMemory, DeviceProcess, Driver, DriverError, Library};
use crate::units::{Bytes, Span};

/// What calls took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// How many were made.
    pub calls: u64,
    /// How many of them failed.
    pub failed: u64,
    /// All of them together.
    pub nanos: u64,
    /// The longest.
    pub longest_nanos: u64,
    /// The last.
    pub last_nanos: u64,
}

impl Cost {
    /// Makes a call and counts it.
    pub fn count<T, E>(&mut self, call: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let begin = Instant::now();
        let answer = call();
        let nanos = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.calls += 1;
        self.failed += u64::from(answer.is_err());
        self.nanos = self.nanos.saturating_add(nanos);
        self.longest_nanos = self.longest_nanos.max(nanos);
        self.last_nanos = nanos;
        answer
    }

    /// What one call took on average; `None` where there was none.
    #[must_use]
    pub fn each(&self) -> Option<Span> {
        self.nanos.checked_div(self.calls).map(|nanos| Span(nanos.saturating_mul(1000)))
    }
}

impl fmt::Display for Cost {
    /// `600 calls, 7.02 µs each, 31.0 µs at most`
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(each) = self.each() else { return out.pad("no call") };
        let longest = Span(self.longest_nanos.saturating_mul(1000));
        let calls = if self.calls == 1 { "call" } else { "calls" };
        let mut text = format!("{} {calls}, {each} each, {longest} at most", self.calls);
        if self.failed > 0 {
            text.push_str(&format!(", {} failed", self.failed));
        }
        out.pad(&text)
    }
}

/// What asking cost, by lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Costs {
    /// Loading the library and listing the devices.
    pub start: Cost,
    /// A device's memory: the fast lane.
    pub memory: Cost,
    /// The list of processes: the slow lane.
    pub processes: Cost,
}

/// A driver and what asking it has cost.
#[derive(Debug)]
pub struct Probe {
    driver: Box<dyn Driver>,
    library: Library,
    devices: Vec<DeviceFacts>,
    costs: Costs,
}

impl Probe {
    /// Opens a driver with `open` and lists its devices. A driver that answers with no device is one.
    pub fn open(open: impl FnOnce() -> Result<Box<dyn Driver>, DriverError>) -> Result<Probe, DriverError> {
        let mut costs = Costs::default();
        let (driver, library, devices) = costs.start.count(|| {
            let mut driver = open()?;
            let library = driver.library();
            let devices = driver.devices()?;
            Ok::<_, DriverError>((driver, library, devices))
        })?;
        Ok(Probe { driver, library, devices, costs })
    }

    /// Which driver answers.
    #[must_use]
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// The devices, as they were found at first.
    #[must_use]
    pub fn devices(&self) -> &[DeviceFacts] {
        &self.devices
    }

    /// What asking has cost so far.
    #[must_use]
    pub fn costs(&self) -> Costs {
        self.costs
    }

    /// The newest CUDA that the driver runs.
    pub fn cuda_version(&mut self) -> Result<String, DriverError> {
        self.driver.cuda_version()
    }

    /// How much of a device is taken.
    pub fn memory(&mut self, device: usize) -> Result<DeviceMemory, DriverError> {
        let driver = &mut self.driver;
        self.costs.memory.count(|| driver.memory(device))
    }

    /// Who holds memory on it.
    pub fn processes(&mut self, device: usize) -> Result<Vec<DeviceProcess>, DriverError> {
        let driver = &mut self.driver;
        self.costs.processes.count(|| driver.processes(device))
    }

    /// The most that a process ever held on it.
    pub fn accounted_peak(&mut self, device: usize, pid: u32) -> Result<Bytes, DriverError> {
        let driver = &mut self.driver;
        self.costs.processes.count(|| driver.accounted_peak(device, pid))
    }
}
