//! NVIDIA's own library, NVML, through `nvml-wrapper`: loaded when it is asked for, so that a machine without it works.
//!
//! Once loaded, the library stays until the process ends. Giving it back would gain nothing, and a program that uses it too
//! (PyTorch does) would have to count with us. NVML makes no CUDA context. What this version of the driver cannot do fails call
//! by call, with the name of the function that it lacks.

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use nvml_wrapper::{Device, Nvml, cuda_driver_version_major, cuda_driver_version_minor};

use super::{DeviceFacts, DeviceMemory, DeviceProcess, Driver, DriverError, Library, Part, Work, joined};
use crate::units::Bytes;
use std::ffi::OsStr;

/// Where the library is: by the loader's own rules, then where Windows' Linux keeps it.
const PLACES: [&str; 2] = ["libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"];

/// More parts of one device than this are a mistake; there are seven at most.
const MOST_PARTS: u32 = 64;

/// The real driver.
#[derive(Debug)]
pub struct NvmlDriver {
    nvml: &'static Nvml,
    devices: Vec<Device<'static>>,
}

impl NvmlDriver {
    /// Loads the library.
    pub fn open() -> Result<NvmlDriver, DriverError> {
        let [usual, other] = PLACES;
        NvmlDriver::open_at(usual.as_ref()).or_else(|first| match first {
            DriverError::LibraryMissing { .. } => NvmlDriver::open_at(other.as_ref()).map_err(|_| first),
            first => Err(first),
        })
    }

    /// Loads the library that is this file.
    pub fn open_at(library: &OsStr) -> Result<NvmlDriver, DriverError> {
        let nvml = Nvml::builder().lib_path(library).init().map_err(|error| error_of(&error))?;
        Ok(NvmlDriver { nvml: Box::leak(Box::new(nvml)), devices: Vec::new() })
    }

    fn device(&self, number: usize) -> Result<&Device<'static>, DriverError> {
        self.devices.get(number).ok_or(DriverError::NotFound)
    }

    fn facts_of(index: u32, device: &Device<'static>, part: Option<Part>) -> DeviceFacts {
        DeviceFacts {
            index,
            // A device that fell off the bus has a number still.
            uuid: device.uuid().unwrap_or_else(|_| format!("GPU-unknown-{index}")),
            name: device.name().ok(),
            capability: device.cuda_compute_capability().ok().map(|found| (found.major, found.minor)),
            pci_bus_id: device.pci_info().ok().map(|found| found.bus_id),
            is_divided: device.mig_mode().ok().map(|mode| mode.current == 1),
            part,
            is_accounting: device.is_accounting_enabled().ok(),
        }
    }
}

impl Driver for NvmlDriver {
    fn library(&mut self) -> Library {
        Library {
            driver_version: self.nvml.sys_driver_version().ok(),
            nvml_version: self.nvml.sys_nvml_version().ok(),
        }
    }

    fn cuda_version(&mut self) -> Result<String, DriverError> {
        let version = self.nvml.sys_cuda_driver_version().map_err(|error| error_of(&error))?;
        Ok(format!("{}.{}", cuda_driver_version_major(version), cuda_driver_version_minor(version)))
    }

    fn devices(&mut self) -> Result<Vec<DeviceFacts>, DriverError> {
        let count = self.nvml.device_count().map_err(|error| error_of(&error))?;
        let (mut devices, mut facts) = (Vec::new(), Vec::new());
        for index in 0..count {
            // The count holds devices that this user or container may not see.
            let Ok(device) = self.nvml.device_by_index(index) else { continue };
            let whole = NvmlDriver::facts_of(index, &device, None);
            let parts = if whole.is_divided == Some(true) {
                device.mig_device_count().unwrap_or_default().min(MOST_PARTS)
            } else {
                0
            };
            let mut divided = Vec::new();
            for number in 0..parts {
                let Ok(found) = device.mig_device_by_index(number) else { continue };
                let part = Part { index: number, of: whole.uuid.clone() };
                let mut told = NvmlDriver::facts_of(index, &found, Some(part));
                // What a part does not say of itself is the whole's.
                told.capability = told.capability.or(whole.capability);
                told.pci_bus_id = told.pci_bus_id.or_else(|| whole.pci_bus_id.clone());
                divided.push((found, told));
            }
            devices.push(device);
            facts.push(whole);
            for (device, told) in divided {
                devices.push(device);
                facts.push(told);
            }
        }
        self.devices = devices;
        Ok(facts)
    }

    fn memory(&mut self, device: usize) -> Result<DeviceMemory, DriverError> {
        let found = self.device(device)?.memory_info().map_err(|error| error_of(&error))?;
        Ok(DeviceMemory {
            total: Bytes(found.total),
            reserved: Bytes(found.reserved),
            free: Bytes(found.free),
            used: Bytes(found.used),
        })
    }

    fn processes(&mut self, device: usize) -> Result<Vec<DeviceProcess>, DriverError> {
        let device = self.device(device)?;
        let compute = device.running_compute_processes().map_err(|error| error_of(&error))?;
        // Parts and data-centre devices do not draw, and say so.
        let graphics = match device.running_graphics_processes() {
            Ok(found) => found,
            Err(NvmlError::NotSupported | NvmlError::InvalidArg | NvmlError::NoPermission) => Vec::new(),
            Err(error) => return Err(error_of(&error)),
        };
        let told = |found: Vec<ProcessInfo>, work| {
            found.into_iter().map(|process| process_of(&process, work)).collect()
        };
        Ok(joined(told(compute, Work::Compute), told(graphics, Work::Graphics)))
    }

    fn accounted_peak(&mut self, device: usize, pid: u32) -> Result<Bytes, DriverError> {
        let stats = self.device(device)?.accounting_stats_for(pid).map_err(|error| error_of(&error))?;
        stats.max_memory_usage.map(Bytes).ok_or(DriverError::NotSupported)
    }
}

fn process_of(process: &ProcessInfo, work: Work) -> DeviceProcess {
    let used = match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => Some(Bytes(bytes)),
        UsedGpuMemory::Unavailable => None,
    };
    DeviceProcess { pid: process.pid, used, work }
}

fn error_of(error: &NvmlError) -> DriverError {
    match error {
        NvmlError::LibloadingError(error) => DriverError::LibraryMissing { detail: error.to_string() },
        NvmlError::LibraryNotFound => {
            DriverError::LibraryMissing { detail: "the library is incomplete".to_owned() }
        }
        // The loader's sentence ends with the function's name.
        NvmlError::FailedToLoadSymbol(text) => DriverError::LibraryTooOld { function: function_in(text) },
        NvmlError::FunctionNotFound => DriverError::LibraryTooOld { function: "such function".to_owned() },
        NvmlError::DriverNotLoaded => DriverError::DriverNotLoaded,
        NvmlError::LibRmVersionMismatch => DriverError::VersionMismatch,
        NvmlError::NoPermission | NvmlError::OperatingSystem => DriverError::NoPermission,
        NvmlError::NotSupported | NvmlError::NoData => DriverError::NotSupported,
        NvmlError::GpuLost | NvmlError::ResetRequired => DriverError::GpuLost,
        NvmlError::NotFound | NvmlError::InvalidArg => DriverError::NotFound,
        other => DriverError::Failed { detail: other.to_string() },
    }
}

/// The name of NVML's function that the loader's words speak of.
fn function_in(text: &str) -> String {
    let begin = text.find("nvml").unwrap_or_default();
    let rest = text.get(begin..).unwrap_or_default();
    let name: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    if name.is_empty() { "such function".to_owned() } else { name }
}
