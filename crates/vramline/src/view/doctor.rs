//! The JSON document of `vramline doctor`: what can be measured on a machine, what cannot, why, and the switch for it.
//!
//! [`analysis::doctor`](crate::analysis::doctor) concludes it; here it gets its form.

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
    /// The answer in a sentence.
    pub headline: String,
    /// The answer in a word, with its figures.
    pub verdict: DoctorVerdictView,
    /// The driver.
    pub driver: DriverView,
    /// Its devices.
    #[field(each)]
    pub devices: Vec<DeviceView>,
    /// The machine's own memory.
    pub host: HostView,
    /// The Python that `vramline run` would record.
    pub python: PythonView,
    /// Frameworks that it has.
    pub frameworks: Vec<FrameworkView>,
    /// What can be measured here.
    pub measures: Vec<Measure>,
    /// What the reader should know.
    pub warnings: Vec<Warning>,
    /// Each null with its reason.
    pub unknowns: Vec<Unknown>,
}

/// The answer in a word, with its figures.
#[derive(Debug, Serialize, Document)]
pub struct DoctorVerdictView {
    /// `everything`, `some` or `nothing` can be measured.
    #[field(title = "verdict")]
    pub word: DoctorWord,
    /// How many of `measures` can be had.
    pub can: usize,
    /// How many there are.
    pub all: usize,
}

/// The driver.
#[derive(Debug, Serialize, Document)]
pub struct DriverView {
    /// The driver's version.
    #[field(title = "driver", null_with = Self::why_silent)]
    pub version: Option<String>,
    /// Its library's version.
    #[field(title = "NVML", null_with = Self::why_silent)]
    pub nvml_version: Option<String>,
    /// The newest CUDA that it runs.
    #[field(title = "CUDA", null_with = Self::why_silent)]
    pub cuda_version: Option<String>,
    /// Why there is no driver, such as `library-missing`.
    #[field(null = "the driver answers")]
    pub error: Option<&'static str>,
    /// What loading the library and listing the devices took.
    #[field(null_with = Self::why_silent)]
    pub start_ns: Option<u64>,
    /// What a look at a device's memory took.
    #[field(null_with = Self::why_silent)]
    pub memory_call_ns: Option<u64>,
    /// What a list of processes took.
    #[field(title = "process list", null_with = Self::why_silent)]
    pub process_list_call_ns: Option<u64>,
    /// Why any of these is null.
    #[serde(skip)]
    silence: Reason,
}

/// A device.
#[derive(Debug, Serialize, Document)]
pub struct DeviceView {
    /// The driver's number for it.
    #[field(title = "GPU")]
    pub index: u32,
    /// Its name for ever.
    pub uuid: String,
    /// The model; null where the device does not answer.
    #[field(null = "the driver does not say")]
    pub name: Option<String>,
    /// CUDA's compute capability, as in `9.0`.
    #[field(null = "the driver does not say")]
    pub capability: Option<String>,
    /// Where it sits.
    #[field(title = "PCI", null = "the driver does not say")]
    pub pci_bus_id: Option<String>,
    /// Of a part (MIG): the whole device's uuid.
    #[field(null = "it is a whole device")]
    pub part_of: Option<String>,
    /// What a job started here would call it, as in `GPU:0`; null where it does not see it.
    #[field(title = "seen as", null = "CUDA programs do not see it")]
    pub visible_as: Option<String>,
    /// Its memory.
    #[field(null_with = Self::why_no_memory)]
    pub total_bytes: Option<Bytes>,
    /// Kept by the driver.
    #[field(null_with = Self::why_no_memory)]
    pub reserved_bytes: Option<Bytes>,
    /// Not taken.
    #[field(null_with = Self::why_no_memory)]
    pub free_bytes: Option<Bytes>,
    /// Taken, as the driver counts.
    #[field(null_with = Self::why_no_memory)]
    pub used_bytes: Option<Bytes>,
    /// The sum that was checked: `used-excludes-reserved`: total = reserved + free + used; `used-includes-reserved`: total = free + used; `neither`.
    #[field(null_with = Self::why_no_memory)]
    pub identity: Option<Identity>,
    /// Processes in the driver's list.
    #[field(null_with = Self::why_no_processes)]
    pub processes: Option<usize>,
    /// Whether the driver keeps the peaks of processes.
    #[field(null = "the driver does not say")]
    pub accounting: Option<bool>,
    /// Why its memory is not told.
    #[serde(skip)]
    no_memory: Option<Reason>,
    /// Why its processes are not listed.
    #[serde(skip)]
    no_processes: Option<Reason>,
}

/// The machine's own memory.
#[derive(Debug, Serialize, Document)]
pub struct HostView {
    /// The machine's own memory.
    #[field(title = "memory", null = "the kernel does not say")]
    pub total_bytes: Option<Bytes>,
    /// What of it can be had without swapping.
    #[field(null = "the kernel does not say")]
    pub available_bytes: Option<Bytes>,
    /// The most that this container may hold; null: no less than the machine.
    #[field(title = "limit", null = "no limit is set")]
    pub container_limit_bytes: Option<Bytes>,
    /// This process's numbers, outermost namespace that is to be seen first.
    pub pids: Vec<u32>,
    /// Whether processes are counted in the machine's own namespace; false in most containers.
    #[field(title = "outermost", null = "the kernel does not say")]
    pub is_outermost: Option<bool>,
}

/// The Python that would be recorded.
#[derive(Debug, Serialize, Document)]
pub struct PythonView {
    /// The Python that was asked.
    #[field(title = "Python", null_with = Self::why_silent)]
    pub executable: Option<String>,
    /// Its version.
    #[field(null_with = Self::why_silent)]
    pub version: Option<String>,
    /// The version of the package vramline in it; null where it is not installed.
    #[field(null_with = Self::why_silent)]
    pub vramline: Option<String>,
    /// Why Python could not be asked.
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
    /// Whether it can use a GPU; null where its package does not tell.
    #[field(title = "GPU", null = "nothing shows it without starting the framework")]
    pub gpu: Option<bool>,
    /// What says so.
    pub evidence: String,
}

/// One thing that can be measured, or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Document)]
pub struct Measure {
    /// Stable, for machines.
    pub code: &'static str,
    /// The driver, a device, Python or a framework.
    pub subject: String,
    /// What would be measured.
    #[field(unit = "text")]
    pub what: &'static str,
    /// Whether it can be; null where that is not certain.
    #[field(null = "it cannot be told here")]
    pub can: Option<bool>,
    /// Why not, or how.
    #[field(null = "there is nothing to explain")]
    pub why: Option<String>,
    /// What would make it possible.
    #[field(null = "no switch is needed, or none helps")]
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
                Ok(_) => Reason::new("the driver does not tell, or was not asked", None),
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
            None => Reason::new("the package is not installed in it", None),
        }
    }
}

/// Why the driver does not answer, and what would help.
fn reason_of(error: &DriverError) -> Reason {
    let hint = error.hint();
    Reason::new(error.to_string(), (!hint.is_empty()).then_some(hint))
}
