//! The JSON document of `vramline doctor`: what can be measured on a machine, what cannot, why, and which setting would change it.
//!
//! Built from [`analysis::doctor`](crate::analysis::doctor).

use serde::Serialize;

use crate::analysis::doctor::{
    Capability, DoctorAnalysis, DoctorWord, DriverLook, FrameworkSupport, MachineLook, NumberedDevice,
    PythonLook,
};
use crate::document::{Document, Reason, Unknowns};
use crate::source::driver::probe::Costs;
use crate::source::driver::{DeviceMemory, DriverError, Identity};
use crate::units::{Bytes, Span};
use crate::warning::{Unknown, Warning};

/// The whole document.
#[derive(Debug, Serialize, Document)]
pub struct Doctor {
    /// `doctor`.
    pub kind: &'static str,
    /// The answer as a sentence.
    pub headline: String,
    /// The answer as a word, with its figures.
    pub verdict: DoctorVerdictView,
    /// The driver.
    pub driver: DriverView,
    /// Its devices.
    #[field(each)]
    pub devices: Vec<DeviceView>,
    /// Host memory.
    pub host: HostView,
    /// The Python that `vramline run` would use.
    pub python: PythonView,
    /// Its installed frameworks.
    pub frameworks: Vec<FrameworkView>,
    /// What can be measured here.
    pub measures: Vec<Measure>,
    /// Notes for the reader.
    pub warnings: Vec<Warning>,
    /// The reason for each null.
    pub unknowns: Vec<Unknown>,
}

/// The answer as a word, with its figures.
#[derive(Debug, Serialize, Document)]
pub struct DoctorVerdictView {
    /// What can be measured: `everything`, `some` or `nothing`.
    #[field(title = "verdict")]
    pub word: DoctorWord,
    /// Number of `measures` that can be measured.
    pub can: usize,
    /// Number of `measures`.
    pub all: usize,
}

/// The driver.
#[derive(Debug, Serialize, Document)]
pub struct DriverView {
    /// The driver's version.
    #[field(title = "driver", null_with = Self::why_silent)]
    pub version: Option<String>,
    /// The version of its library.
    #[field(title = "NVML", null_with = Self::why_silent)]
    pub nvml_version: Option<String>,
    /// The newest CUDA version that it supports.
    #[field(title = "CUDA", null_with = Self::why_silent)]
    pub cuda_version: Option<String>,
    /// Why there is no driver, such as `library-missing`.
    #[field(null = "the driver answers")]
    pub error: Option<&'static str>,
    /// Time to load the library and list the devices.
    #[field(null_with = Self::why_silent)]
    pub start_ns: Option<u64>,
    /// Time of one query of a device's memory.
    #[field(null_with = Self::why_silent)]
    pub memory_call_ns: Option<u64>,
    /// Time of one query of the process list.
    #[field(title = "process list", null_with = Self::why_silent)]
    pub process_list_call_ns: Option<u64>,
    /// Why any of the fields above is null.
    #[serde(skip)]
    silence: Reason,
}

/// A device.
#[derive(Debug, Serialize, Document)]
pub struct DeviceView {
    /// The driver's number for it.
    #[field(title = "GPU")]
    pub index: u32,
    /// Its unique id.
    pub uuid: String,
    /// The model; null if the device does not answer.
    #[field(null = "the driver does not report it")]
    pub name: Option<String>,
    /// CUDA's compute capability, as in `9.0`.
    #[field(null = "the driver does not report it")]
    pub capability: Option<String>,
    /// Its PCI address.
    #[field(title = "PCI", null = "the driver does not report it")]
    pub pci_bus_id: Option<String>,
    /// For a MIG part: the uuid of the whole device.
    #[field(null = "it is a whole device")]
    pub part_of: Option<String>,
    /// Its name in a job started here, such as `GPU:0`; null if the job does not see it.
    #[field(title = "seen as", null = "CUDA programs do not see it")]
    pub visible_as: Option<String>,
    /// Its total memory.
    #[field(null_with = Self::why_no_memory)]
    pub total_bytes: Option<Bytes>,
    /// Reserved by the driver.
    #[field(null_with = Self::why_no_memory)]
    pub reserved_bytes: Option<Bytes>,
    /// Free.
    #[field(null_with = Self::why_no_memory)]
    pub free_bytes: Option<Bytes>,
    /// Used, as counted by the driver.
    #[field(null_with = Self::why_no_memory)]
    pub used_bytes: Option<Bytes>,
    /// How the driver's figures add up: `used-excludes-reserved`: total = reserved + free + used; `used-includes-reserved`: total = free + used; `neither`.
    #[field(null_with = Self::why_no_memory)]
    pub identity: Option<Identity>,
    /// Number of processes in the driver's list.
    #[field(null_with = Self::why_no_processes)]
    pub processes: Option<usize>,
    /// Whether the driver records the peaks of processes (accounting mode).
    #[field(null = "the driver does not report it")]
    pub accounting: Option<bool>,
    /// Why its memory is unknown.
    #[serde(skip)]
    no_memory: Option<Reason>,
    /// Why its processes are unknown.
    #[serde(skip)]
    no_processes: Option<Reason>,
}

/// Host memory.
#[derive(Debug, Serialize, Document)]
pub struct HostView {
    /// Host memory.
    #[field(title = "memory", null = "the kernel does not report it")]
    pub total_bytes: Option<Bytes>,
    /// Memory that is available without swapping.
    #[field(null = "the kernel does not report it")]
    pub available_bytes: Option<Bytes>,
    /// The memory limit of this container; null if there is none below the machine's memory.
    #[field(title = "limit", null = "no limit is set")]
    pub container_limit_bytes: Option<Bytes>,
    /// The ids of this process, in the outermost visible namespace first.
    pub pids: Vec<u32>,
    /// Whether process ids are those of the machine's own namespace; false in most containers.
    #[field(title = "outermost", null = "the kernel does not report it")]
    pub is_outermost: Option<bool>,
}

/// The Python of a job.
#[derive(Debug, Serialize, Document)]
pub struct PythonView {
    /// Its executable.
    #[field(title = "Python", null_with = Self::why_silent)]
    pub executable: Option<String>,
    /// Its version.
    #[field(null_with = Self::why_silent)]
    pub version: Option<String>,
    /// The version of the package vramline in it; null if it is not installed.
    #[field(null_with = Self::why_silent)]
    pub vramline: Option<String>,
    /// Why Python could not be started.
    #[field(null = "Python answers")]
    pub error: Option<String>,
}

/// A framework.
#[derive(Debug, Serialize, Document)]
pub struct FrameworkView {
    /// `TensorFlow`, `JAX` or `PyTorch`.
    #[field(title = "framework")]
    pub name: &'static str,
    /// Its version.
    pub version: String,
    /// Whether it can use a GPU; null if its package does not show it.
    #[field(title = "GPU", null = "it is unknown without importing the framework")]
    pub gpu: Option<bool>,
    /// The evidence for that.
    pub evidence: String,
}

/// One thing that can be measured, or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Document)]
pub struct Measure {
    /// A stable code.
    pub code: &'static str,
    /// The driver, a device, Python or a framework.
    pub subject: String,
    /// What is measured.
    #[field(unit = "text")]
    pub what: &'static str,
    /// Whether it can be measured; null if that is not certain.
    #[field(null = "it is unknown on this machine")]
    pub can: Option<bool>,
    /// Why not, or how.
    #[field(null = "there is nothing to explain")]
    pub why: Option<String>,
    /// The setting that would make it possible.
    #[field(null = "no setting is needed, or none helps")]
    pub switch: Option<String>,
}

impl From<&DoctorAnalysis<'_>> for Doctor {
    fn from(analysis: &DoctorAnalysis<'_>) -> Doctor {
        let (can, all) = analysis.count();
        let mut document = Doctor {
            kind: "doctor",
            headline: analysis.headline(),
            verdict: DoctorVerdictView { word: analysis.word(), can, all },
            driver: DriverView::from(&analysis.machine.driver),
            devices: analysis.devices.iter().map(DeviceView::from).collect(),
            host: HostView::from(analysis.machine),
            python: PythonView::from(&analysis.machine.python),
            frameworks: analysis.frameworks.iter().map(FrameworkView::from).collect(),
            measures: analysis.capabilities.iter().map(Measure::from).collect(),
            warnings: Vec::new(),
            unknowns: Vec::new(),
        };
        document.unknowns = Unknowns::of(&document);
        document
    }
}

impl From<&Result<DriverLook, DriverError>> for DriverView {
    fn from(driver: &Result<DriverLook, DriverError>) -> DriverView {
        let look = driver.as_ref().ok();
        let each =
            |pick: fn(&Costs) -> Option<Span>| look.and_then(|look| pick(&look.costs)).map(Span::nanos);
        DriverView {
            version: look.and_then(|look| look.library.driver_version.clone()),
            nvml_version: look.and_then(|look| look.library.nvml_version.clone()),
            cuda_version: look.and_then(|look| look.cuda.clone().ok()),
            error: driver.as_ref().err().map(DriverError::code),
            start_ns: each(|costs| costs.start.each()),
            memory_call_ns: each(|costs| costs.memory.each()),
            process_list_call_ns: each(|costs| costs.processes.each()),
            silence: match driver {
                Ok(_) => Reason::new("the driver does not report it, or was not queried", None),
                Err(error) => reason_of(error),
            },
        }
    }
}

impl From<&NumberedDevice<'_>> for DeviceView {
    fn from(device: &NumberedDevice<'_>) -> DeviceView {
        let (facts, memory) = (&device.look.facts, device.look.memory.as_ref().ok());
        DeviceView {
            index: facts.index,
            uuid: facts.uuid.clone(),
            name: facts.name.clone(),
            capability: facts.capability.map(|(major, minor)| format!("{major}.{minor}")),
            pci_bus_id: facts.pci_bus_id.clone(),
            part_of: facts.part.as_ref().map(|part| part.of.clone()),
            visible_as: device.number.map(|number| format!("GPU:{number}")),
            total_bytes: memory.map(|memory| memory.total),
            reserved_bytes: memory.map(|memory| memory.reserved),
            free_bytes: memory.map(|memory| memory.free),
            used_bytes: memory.map(|memory| memory.used),
            identity: memory.map(DeviceMemory::identity),
            processes: device.look.processes.as_ref().ok().map(Vec::len),
            accounting: facts.is_accounting,
            no_memory: device.look.memory.as_ref().err().map(reason_of),
            no_processes: device.look.processes.as_ref().err().map(reason_of),
        }
    }
}

impl From<&MachineLook> for HostView {
    fn from(machine: &MachineLook) -> HostView {
        HostView {
            total_bytes: machine.host.map(|host| host.total),
            available_bytes: machine.host.map(|host| host.available),
            container_limit_bytes: machine.container_limit,
            pids: machine.namespace.own_pids.clone(),
            is_outermost: machine.namespace.is_outermost,
        }
    }
}

impl From<&Result<PythonLook, String>> for PythonView {
    fn from(python: &Result<PythonLook, String>) -> PythonView {
        let look = python.as_ref().ok();
        PythonView {
            executable: look.map(|look| look.executable.clone()),
            version: look.map(|look| {
                let (major, minor, micro) = look.version;
                format!("{major}.{minor}.{micro}")
            }),
            vramline: look.and_then(|look| look.packages.get("vramline").cloned()),
            error: python.as_ref().err().cloned(),
        }
    }
}

impl From<&FrameworkSupport> for FrameworkView {
    fn from(support: &FrameworkSupport) -> FrameworkView {
        FrameworkView {
            name: support.name(),
            version: support.version.clone(),
            gpu: support.gpu(),
            evidence: support.evidence.to_string(),
        }
    }
}

impl From<&Capability> for Measure {
    fn from(capability: &Capability) -> Measure {
        Measure {
            code: capability.code(),
            subject: capability.subject.to_string(),
            what: capability.what.phrase(),
            can: capability.can(),
            why: capability.reason.as_ref().map(ToString::to_string),
            switch: capability.switch().map(String::from),
        }
    }
}

impl DriverView {
    fn why_silent(&self) -> Reason {
        self.silence.clone()
    }
}

impl DeviceView {
    fn why_no_memory(&self) -> Reason {
        self.no_memory.clone().unwrap_or_default()
    }

    fn why_no_processes(&self) -> Reason {
        self.no_processes.clone().unwrap_or_default()
    }
}

impl PythonView {
    fn why_silent(&self) -> Reason {
        match &self.error {
            Some(error) => Reason::new(error.clone(), Some("--python FILE")),
            None => Reason::new("the package is not installed in this Python", None),
        }
    }
}

/// Why the driver does not answer, and what helps.
fn reason_of(error: &DriverError) -> Reason {
    let hint = error.hint();
    Reason::new(error.to_string(), (!hint.is_empty()).then_some(hint))
}
