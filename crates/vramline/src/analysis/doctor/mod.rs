//! What can be measured on a machine, what cannot, why, and the switch for it.
//!
//! [`MachineLook`] is what was found; nothing is asked here. Every answer is one [`Capability`]: a subject, a thing to measure, and where
//! the answer is not a plain yes, the reason, which tells the answer and what would make it a yes.

mod capability;
mod framework;
mod look;

pub use capability::{Capability, CapabilityReason, CapabilitySubject, Measurable};
pub use framework::{FrameworkSupport, GpuEvidence};
pub use look::{DeepLook, DeviceLook, DriverLook, MachineLook, PythonLook};

use framework::frameworks;

use crate::event::Framework;
use crate::source::driver::visible::visible;
use crate::source::driver::{DeviceFacts, DeviceProcess, DriverError, Identity};

/// A list of processes that takes longer is read more seldom.
const SLOW_LIST_NANOS: u64 = 1_000_000;

/// The oldest Python that a job can be reached in.
const OLDEST_PYTHON: (u32, u32) = (3, 10);

/// The variables that configure PyTorch's allocator, the one that counts first.
const TORCH_ALLOCATOR_VARIABLES: [&str; 3] =
    ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// What can be measured on a machine.
#[derive(Debug)]
pub struct DoctorAnalysis<'a> {
    /// What was found on it.
    pub machine: &'a MachineLook,
    /// Its devices; none without a driver.
    pub devices: Vec<NumberedDevice<'a>>,
    /// The frameworks of its Python.
    pub frameworks: Vec<FrameworkSupport>,
    /// The answers.
    pub capabilities: Vec<Capability>,
}

/// A device, and the number by which a job knows it.
#[derive(Clone, Copy, Debug)]
pub struct NumberedDevice<'a> {
    /// What the driver said of it.
    pub look: &'a DeviceLook,
    /// CUDA's number for it; `None` where it is hidden from a job.
    pub number: Option<usize>,
}

/// Answers about one subject, collected.
struct SubjectAnswers<'a> {
    subject: CapabilitySubject,
    all: &'a mut Vec<Capability>,
}

impl SubjectAnswers<'_> {
    /// Adds an answer; without a reason it is a plain yes.
    fn add(&mut self, what: Measurable, reason: Option<CapabilityReason>) {
        self.all.push(Capability { subject: self.subject.clone(), what, reason });
    }
}

/// What can be measured, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DoctorWord {
    /// Everything.
    Everything,
    /// Some of it.
    Some,
    /// Nothing.
    Nothing,
}

words!(DoctorWord { Everything => "everything", Some => "some", Nothing => "nothing" });

impl DoctorAnalysis<'_> {
    /// How many things can be measured, of how many.
    #[must_use]
    pub fn count(&self) -> (usize, usize) {
        let can = self.capabilities.iter().filter(|capability| capability.can() == Some(true)).count();
        (can, self.capabilities.len())
    }

    /// What can be measured, in a word.
    #[must_use]
    pub fn word(&self) -> DoctorWord {
        match self.count() {
            (can, all) if can == all => DoctorWord::Everything,
            (0, _) => DoctorWord::Nothing,
            _ => DoctorWord::Some,
        }
    }

    /// The same in a sentence.
    #[must_use]
    pub fn headline(&self) -> String {
        match (self.word(), self.count()) {
            (DoctorWord::Everything, _) => "Vramline can measure everything on this machine.".to_owned(),
            (_, (can, all)) => format!("Vramline can measure {can} of {all} things on this machine."),
        }
    }
}

/// Concludes what can be measured.
#[must_use]
pub fn doctor(machine: &MachineLook) -> DoctorAnalysis<'_> {
    let mut all = Vec::new();
    let frameworks = machine.python.as_ref().map_or(Vec::new(), frameworks);
    let devices = of_driver(machine, &mut all);
    of_kernel(machine, &mut all);
    of_python(machine, &mut all);
    let has_gpu = devices.iter().any(|device| device.number.is_some());
    for support in &frameworks {
        let (framework, version) = (support.framework, support.version.clone());
        let subject = CapabilitySubject::Framework { framework, version };
        let mut answers = SubjectAnswers { subject, all: &mut all };
        answers.add(Measurable::GpuWork, no_gpu_work(support, has_gpu));
        let is_gpu = has_gpu && support.gpu() != Some(false);
        match framework {
            Framework::TensorFlow => of_tensorflow(machine, is_gpu, &mut answers),
            Framework::Jax => of_jax(machine, is_gpu, &mut answers),
            Framework::PyTorch => of_torch(machine, is_gpu, &mut answers),
        }
    }
    DoctorAnalysis { machine, devices, frameworks, capabilities: all }
}

/// The driver and each device.
fn of_driver<'a>(machine: &'a MachineLook, all: &mut Vec<Capability>) -> Vec<NumberedDevice<'a>> {
    let mut answers = SubjectAnswers { subject: CapabilitySubject::Driver, all };
    let look = match &machine.driver {
        Ok(look) => look,
        Err(error) => {
            answers.add(Measurable::DevicesAndHolders, Some(CapabilityReason::Driver(error.clone())));
            return Vec::new();
        }
    };
    if look.devices.is_empty() {
        answers.add(Measurable::DevicesAndHolders, Some(CapabilityReason::NoDevice));
    }
    let facts: Vec<DeviceFacts> = look.devices.iter().map(|device| device.facts.clone()).collect();
    let list = machine.variable("CUDA_VISIBLE_DEVICES");
    let seen = visible(&facts, list, machine.variable("CUDA_DEVICE_ORDER"));
    if !seen.is_sure {
        answers.add(Measurable::DeviceOrder, Some(CapabilityReason::MixedDevices));
    }
    let mut devices = Vec::new();
    for (at, device) in look.devices.iter().enumerate() {
        let number = seen.devices.iter().position(|&seen| seen == at);
        let DeviceFacts { index, name, part, .. } = device.facts.clone();
        let subject = CapabilitySubject::Device { index, is_part: part.is_some(), name };
        let mut answers = SubjectAnswers { subject, all };
        of_device(machine, look, device, &mut answers);
        if let (None, Some(list)) = (number, list) {
            let reason = CapabilityReason::Hidden { list: list.to_owned() };
            answers.add(Measurable::HiddenDeviceUse, Some(reason));
        }
        devices.push(NumberedDevice { look: device, number });
    }
    devices
}

fn of_device(
    machine: &MachineLook,
    look: &DriverLook,
    device: &DeviceLook,
    answers: &mut SubjectAnswers<'_>,
) {
    let no_memory = match &device.memory {
        Err(DriverError::NotSupported) => Some(CapabilityReason::SharedMemory),
        Err(error) => Some(CapabilityReason::Driver(error.clone())),
        Ok(memory) if memory.identity() == Identity::Neither => Some(CapabilityReason::OddFigures),
        Ok(_) => None,
    };
    answers.add(Measurable::DeviceMemory, no_memory);
    let is_outermost = machine.namespace.is_outermost == Some(true);
    let has_bytes = |listed: &[DeviceProcess]| listed.iter().any(|process| process.used.is_some());
    let no_processes = match &device.processes {
        Ok(listed) if machine.is_wsl && !has_bytes(listed) => Some(CapabilityReason::Wsl),
        Err(DriverError::NotSupported) if machine.is_wsl => Some(CapabilityReason::Wsl),
        Err(error) => Some(CapabilityReason::Driver(error.clone())),
        Ok(listed) if listed.is_empty() => (!is_outermost).then_some(CapabilityReason::EmptyProcessList),
        Ok(listed) if !has_bytes(listed) => Some(CapabilityReason::NoProcessBytes),
        Ok(_) if device.seen_here.is_empty() && !is_outermost => Some(CapabilityReason::OtherNamespace),
        Ok(_) => None,
    };
    answers.add(Measurable::ProcessMemory, no_processes);
    let no_peak = match device.facts.is_accounting {
        Some(true) => None,
        Some(false) => Some(CapabilityReason::AccountingOff { index: device.facts.index }),
        None => Some(CapabilityReason::NoAccounting),
    };
    answers.add(Measurable::ProcessPeak, no_peak);
    let cost = look.costs.processes;
    if let Some(each) = cost.each().filter(|_| cost.longest_nanos > SLOW_LIST_NANOS) {
        answers.add(Measurable::FrequentProcessList, Some(CapabilityReason::SlowProcessList { each }));
    }
}

/// What the kernel tells of any job.
fn of_kernel(machine: &MachineLook, all: &mut Vec<Capability>) {
    let mut answers = SubjectAnswers { subject: CapabilitySubject::Kernel, all };
    let reason = match machine.host {
        Some(_) => machine.container_limit.map(CapabilityReason::ContainerLimit),
        None => Some(CapabilityReason::NoMeminfo),
    };
    answers.add(Measurable::HostMemory, reason);
}

/// What a job is reached by.
fn of_python(machine: &MachineLook, all: &mut Vec<Capability>) {
    let mut answers = SubjectAnswers { subject: CapabilitySubject::Python, all };
    answers.add(Measurable::InsideJob, not_reached(machine));
}

/// Why a job is not reached from inside.
fn not_reached(machine: &MachineLook) -> Option<CapabilityReason> {
    let python = match &machine.python {
        Ok(python) => python,
        Err(error) => return Some(CapabilityReason::SilentPython { error: error.clone() }),
    };
    let flags = [(python.isolated, "-I"), (python.ignore_environment, "-E"), (python.no_site, "-S")];
    let set: Vec<&str> = flags.into_iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| flag).collect();
    let (major, minor, _) = python.version;
    if !set.is_empty() {
        Some(CapabilityReason::PythonFlags(set))
    } else if (major, minor) < OLDEST_PYTHON {
        Some(CapabilityReason::OldPython { major, minor })
    } else if let Some(error) = &machine.no_boot {
        Some(CapabilityReason::NoPackage { error: error.clone() })
    } else if !python.packages.contains_key("vramline") {
        Some(CapabilityReason::PackageElsewhere)
    } else {
        None
    }
}

/// Why a framework does not work on a GPU.
fn no_gpu_work(support: &FrameworkSupport, has_gpu: bool) -> Option<CapabilityReason> {
    let (framework, evidence) = (support.framework, support.evidence.clone());
    match (has_gpu, support.gpu()) {
        (false, _) => Some(CapabilityReason::NoVisibleGpu),
        (true, Some(true)) => None,
        (true, Some(false)) => Some(CapabilityReason::NoGpuSupport { framework, evidence }),
        (true, None) => Some(CapabilityReason::GpuSupportNotCertain { evidence }),
    }
}

fn of_tensorflow(machine: &MachineLook, is_gpu: bool, answers: &mut SubjectAnswers<'_>) {
    let is_on = |value: &str| matches!(value.to_lowercase().as_str(), "1" | "true");
    let is_async = machine.variable("TF_GPU_ALLOCATOR") == Some("cuda_malloc_async");
    let reason = if is_gpu {
        is_async.then_some(CapabilityReason::TensorFlowAsyncAllocator)
    } else if machine.variable("TF_CPU_ALLOCATOR_USE_BFC").is_some_and(|value| !is_on(value)) {
        Some(CapabilityReason::StandInOff)
    } else {
        Some(CapabilityReason::StandIn)
    };
    answers.add(Measurable::TensorFlowAllocations, reason);
    answers.add(Measurable::PoolSize, Some(CapabilityReason::ReplayOnly));
}

fn of_jax(machine: &MachineLook, is_gpu: bool, answers: &mut SubjectAnswers<'_>) {
    if !is_gpu {
        answers.add(Measurable::JaxAllocations, Some(CapabilityReason::JaxOnCpu));
        return;
    }
    let allocator = machine.variable("XLA_PYTHON_CLIENT_ALLOCATOR").map(str::to_lowercase);
    let reason = match allocator.as_deref() {
        Some("cuda_async" | "cuda_malloc_async") => Some(CapabilityReason::JaxAsyncAllocator),
        Some("platform") => Some(CapabilityReason::PlatformAllocator),
        _ => None,
    };
    answers.add(Measurable::JaxAllocations, reason);
    answers.add(Measurable::JaxCounters, None);
}

fn of_torch(machine: &MachineLook, is_gpu: bool, answers: &mut SubjectAnswers<'_>) {
    if !is_gpu {
        answers.add(Measurable::TorchCounters, Some(CapabilityReason::TorchOnCpu));
        return;
    }
    let first = TORCH_ALLOCATOR_VARIABLES.into_iter().find_map(|name| Some((name, machine.variable(name)?)));
    let is_async = |value: &str| value.replace(' ', "").contains("backend:cudaMallocAsync");
    let reason = first
        .filter(|(_, value)| is_async(value))
        .map(|(variable, _)| CapabilityReason::TorchAsyncAllocator { variable });
    answers.add(Measurable::TorchAllocations, reason);
    answers.add(Measurable::TorchCounters, None);
}
