//! One thing that can or cannot be measured, the reason, and the setting that would change it.

use std::borrow::Cow;
use std::fmt;

use super::framework::GpuEvidence;
use crate::event::Framework;
use crate::source::driver::DriverError;
use crate::source::driver::own::not_listed;
use crate::source::procfs::Standing;
use crate::units::{Bytes, Span};

/// One thing that can be measured on a machine, or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capability {
    /// The source of the figure.
    pub subject: CapabilitySubject,
    /// What would be measured.
    pub what: Measurable,
    /// Why the answer is not a plain yes; `None` if it is.
    pub reason: Option<CapabilityReason>,
}

impl Capability {
    /// A stable word for the answer.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.reason.as_ref().and_then(CapabilityReason::code).unwrap_or_else(|| self.what.code())
    }

    /// Whether it can be measured; `None` where that is not certain.
    #[must_use]
    pub fn can(&self) -> Option<bool> {
        self.reason.as_ref().map_or(Some(true), CapabilityReason::can)
    }

    /// What would make it a plain yes, where something does.
    #[must_use]
    pub fn switch(&self) -> Option<Cow<'static, str>> {
        self.reason.as_ref().and_then(CapabilityReason::switch)
    }
}

/// The source of a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CapabilitySubject {
    /// The driver.
    Driver,
    /// The driver, of one device.
    Device {
        /// The driver's number for it.
        index: u32,
        /// Whether it is a part of a divided device.
        is_part: bool,
        /// The model.
        name: Option<String>,
    },
    /// The kernel.
    Kernel,
    /// The Python that would run a job.
    Python,
    /// A framework.
    Framework {
        /// Which framework.
        framework: Framework,
        /// Its version.
        version: String,
    },
}

impl fmt::Display for CapabilitySubject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CapabilitySubject::Driver => out.write_str("driver"),
            CapabilitySubject::Device { index, is_part, name } => {
                let part = if *is_part { " (a part)" } else { "" };
                let name = name.as_deref().unwrap_or("(name unknown)");
                out.write_str(format!("GPU {index}{part} {name}").trim_end())
            }
            CapabilitySubject::Kernel => out.write_str("kernel"),
            CapabilitySubject::Python => out.write_str("Python"),
            CapabilitySubject::Framework { framework, version } => {
                write!(out, "{} {version}", framework.title())
            }
        }
    }
}

/// What can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measurable {
    /// Everything that the driver reports.
    DevicesAndHolders,
    /// Which device CUDA's numbers mean.
    DeviceOrder,
    /// What a job does on a device that is hidden from it.
    HiddenDeviceUse,
    /// The memory of a whole device.
    DeviceMemory,
    /// The memory of each process on a device.
    ProcessMemory,
    /// The peak of each process on a device.
    ProcessPeak,
    /// The list of a device's processes, once a second.
    FrequentProcessList,
    /// The machine's own memory.
    HostMemory,
    /// What Vramline records inside a job.
    InsideJob,
    /// A framework's work on a GPU.
    GpuWork,
    /// TensorFlow's allocations.
    TensorFlowAllocations,
    /// JAX's allocations.
    JaxAllocations,
    /// PyTorch's allocations.
    TorchAllocations,
    /// JAX's counters.
    JaxCounters,
    /// PyTorch's counters.
    TorchCounters,
    /// What TensorFlow's pool reserved from the driver.
    PoolSize,
}

impl Measurable {
    /// A stable word for the answer, where the reason has none of its own.
    fn code(self) -> &'static str {
        match self {
            Measurable::DevicesAndHolders => "driver",
            Measurable::DeviceOrder => "device-order",
            Measurable::HiddenDeviceUse => "hidden-device",
            Measurable::DeviceMemory => "device-memory",
            Measurable::ProcessMemory => "process-memory",
            Measurable::ProcessPeak => "process-peak",
            Measurable::FrequentProcessList => "slow-process-list",
            Measurable::HostMemory => "host-memory",
            Measurable::InsideJob => "attach",
            Measurable::GpuWork => "gpu-build",
            Measurable::TensorFlowAllocations | Measurable::JaxAllocations | Measurable::TorchAllocations => {
                "events"
            }
            Measurable::JaxCounters | Measurable::TorchCounters => "counters",
            Measurable::PoolSize => "pool-size",
        }
    }

    /// A phrase for people.
    #[must_use]
    pub(crate) fn phrase(self) -> &'static str {
        match self {
            Measurable::DevicesAndHolders => "devices, their memory and their processes",
            Measurable::DeviceOrder => "which GPU a device number refers to, before it is used",
            Measurable::HiddenDeviceUse => "memory of a job on it",
            Measurable::DeviceMemory => "memory of the whole device",
            Measurable::ProcessMemory => "memory of each process",
            Measurable::ProcessPeak => "exact peak of each process",
            Measurable::FrequentProcessList => "process list once a second at low cost",
            Measurable::HostMemory => "host memory, of the machine and of each process of a job",
            Measurable::InsideJob => "steps, phases and variables from inside a job",
            Measurable::GpuWork => "work on a GPU",
            Measurable::TensorFlowAllocations => "every allocation, with op and time",
            Measurable::JaxAllocations => "every allocation, with program and time",
            Measurable::TorchAllocations => "every allocation, with its Python stack",
            Measurable::JaxCounters => "bytes in use, peak, pool and limit",
            Measurable::TorchCounters => "bytes in use, peak and pool",
            Measurable::PoolSize => "bytes that the pool reserved",
        }
    }
}

/// Why something can be measured only in part, not at all, or not with certainty. Its text is one sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CapabilityReason {
    /// The driver has no answer.
    Driver(DriverError),
    /// The driver shows no device.
    NoDevice,
    /// The devices are of different kinds.
    MixedDevices,
    /// `CUDA_VISIBLE_DEVICES` does not name the device.
    Hidden {
        /// What it names.
        list: String,
    },
    /// The device has no memory of its own.
    SharedMemory,
    /// No sum of the driver's figures is the total.
    OddFigures,
    /// No process is listed, which a container may cause.
    EmptyProcessList,
    /// The driver lists processes without what they hold.
    NoProcessBytes,
    /// The driver under Windows' subsystem for Linux knows no single processes.
    Wsl,
    /// The driver numbers processes as another namespace does.
    OtherNamespace,
    /// The driver does not keep the peaks of processes, and could.
    AccountingOff {
        /// The driver's number for the device.
        index: u32,
    },
    /// The driver cannot keep the peaks of processes.
    NoAccounting,
    /// A list of processes takes long.
    SlowProcessList {
        /// How long, on average.
        each: Span,
    },
    /// The container has a limit of its own.
    ContainerLimit(Bytes),
    /// The kernel does not report the machine's memory.
    NoMeminfo,
    /// Python could not be asked.
    SilentPython {
        /// Why.
        error: String,
    },
    /// Python runs with flags that keep Vramline out.
    PythonFlags(Vec<&'static str>),
    /// Python is too old.
    OldPython {
        /// Its version's first number.
        major: u32,
        /// The second.
        minor: u32,
    },
    /// This program does not find its Python package.
    NoPackage {
        /// Why.
        error: String,
    },
    /// The package is not installed in the job's Python; `vramline run` brings its own.
    PackageElsewhere,
    /// No GPU is visible.
    NoVisibleGpu,
    /// The framework cannot use a GPU.
    NoGpuSupport {
        /// Which framework.
        framework: Framework,
        /// What tells that.
        evidence: GpuEvidence,
    },
    /// Whether the framework can use a GPU is not certain.
    GpuSupportNotCertain {
        /// What is known.
        evidence: GpuEvidence,
    },
    /// TensorFlow takes its memory from CUDA's pool.
    TensorFlowAsyncAllocator,
    /// JAX takes its memory from CUDA's pool.
    JaxAsyncAllocator,
    /// PyTorch takes its memory from CUDA's pool.
    TorchAsyncAllocator {
        /// The variable that says so.
        variable: &'static str,
    },
    /// JAX uses no pool.
    PlatformAllocator,
    /// TensorFlow's pool on the CPU is switched off.
    StandInOff,
    /// TensorFlow's pool on the CPU stands in for a GPU's.
    StandIn,
    /// Only a replay shows how much TensorFlow's pool reserved.
    ReplayOnly,
    /// JAX runs on the CPU.
    JaxOnCpu,
    /// PyTorch runs on the CPU.
    TorchOnCpu,
}

impl CapabilityReason {
    /// A stable word; `None` where what is measured has it.
    fn code(&self) -> Option<&'static str> {
        match self {
            CapabilityReason::SilentPython { .. } => Some("python"),
            CapabilityReason::PythonFlags(_) => Some("python-flags"),
            CapabilityReason::OldPython { .. } => Some("python-version"),
            CapabilityReason::NoPackage { .. } => Some("package"),
            CapabilityReason::PackageElsewhere => Some("package-elsewhere"),
            CapabilityReason::NoVisibleGpu => Some("no-gpu"),
            CapabilityReason::NoGpuSupport { .. } => Some("no-gpu-build"),
            CapabilityReason::TensorFlowAsyncAllocator
            | CapabilityReason::JaxAsyncAllocator
            | CapabilityReason::TorchAsyncAllocator { .. } => Some("async-allocator"),
            CapabilityReason::PlatformAllocator => Some("platform-allocator"),
            CapabilityReason::StandInOff => Some("no-stand-in"),
            CapabilityReason::StandIn => Some("stand-in"),
            CapabilityReason::JaxOnCpu => Some("jax-cpu"),
            CapabilityReason::TorchOnCpu => Some("torch-cpu"),
            CapabilityReason::Driver(_)
            | CapabilityReason::NoDevice
            | CapabilityReason::MixedDevices
            | CapabilityReason::Hidden { .. }
            | CapabilityReason::SharedMemory
            | CapabilityReason::OddFigures
            | CapabilityReason::EmptyProcessList
            | CapabilityReason::NoProcessBytes
            | CapabilityReason::Wsl
            | CapabilityReason::OtherNamespace
            | CapabilityReason::AccountingOff { .. }
            | CapabilityReason::NoAccounting
            | CapabilityReason::SlowProcessList { .. }
            | CapabilityReason::ContainerLimit(_)
            | CapabilityReason::NoMeminfo
            | CapabilityReason::GpuSupportNotCertain { .. }
            | CapabilityReason::ReplayOnly => None,
        }
    }

    /// Whether the thing can be measured all the same; `None` where that is not certain.
    fn can(&self) -> Option<bool> {
        match self {
            CapabilityReason::ContainerLimit(_)
            | CapabilityReason::PackageElsewhere
            | CapabilityReason::StandIn
            | CapabilityReason::ReplayOnly => Some(true),
            CapabilityReason::MixedDevices
            | CapabilityReason::OddFigures
            | CapabilityReason::EmptyProcessList
            | CapabilityReason::SlowProcessList { .. }
            | CapabilityReason::SilentPython { .. }
            | CapabilityReason::GpuSupportNotCertain { .. } => None,
            CapabilityReason::Driver(_)
            | CapabilityReason::NoDevice
            | CapabilityReason::Hidden { .. }
            | CapabilityReason::SharedMemory
            | CapabilityReason::NoProcessBytes
            | CapabilityReason::Wsl
            | CapabilityReason::OtherNamespace
            | CapabilityReason::AccountingOff { .. }
            | CapabilityReason::NoAccounting
            | CapabilityReason::NoMeminfo
            | CapabilityReason::PythonFlags(_)
            | CapabilityReason::OldPython { .. }
            | CapabilityReason::NoPackage { .. }
            | CapabilityReason::NoVisibleGpu
            | CapabilityReason::NoGpuSupport { .. }
            | CapabilityReason::TensorFlowAsyncAllocator
            | CapabilityReason::JaxAsyncAllocator
            | CapabilityReason::TorchAsyncAllocator { .. }
            | CapabilityReason::PlatformAllocator
            | CapabilityReason::StandInOff
            | CapabilityReason::JaxOnCpu
            | CapabilityReason::TorchOnCpu => Some(false),
        }
    }

    /// What would make the answer a plain yes, where something does.
    fn switch(&self) -> Option<Cow<'static, str>> {
        let words = match self {
            CapabilityReason::Driver(error) => error.hint(),
            CapabilityReason::NoDevice => "start the container with --gpus all",
            CapabilityReason::MixedDevices => "CUDA_DEVICE_ORDER=PCI_BUS_ID",
            CapabilityReason::Hidden { .. } => "unset CUDA_VISIBLE_DEVICES, or use --gpus",
            CapabilityReason::SharedMemory => "read host memory instead",
            CapabilityReason::EmptyProcessList => not_listed(Standing::Empty).switch,
            CapabilityReason::OtherNamespace => not_listed(Standing::OfAnotherNamespace).switch,
            CapabilityReason::AccountingOff { index } => {
                return Some(format!("nvidia-smi -i {index} -am 1 (as root)").into());
            }
            CapabilityReason::NoMeminfo => "mount /proc",
            CapabilityReason::SilentPython { .. } => "pass another one with --python",
            CapabilityReason::PythonFlags(_) => "start Python without these flags",
            CapabilityReason::OldPython { .. } => "use Python 3.10 or newer",
            CapabilityReason::NoPackage { .. } => "pip install vramline in the environment of this program",
            CapabilityReason::PackageElsewhere => "pip install vramline in that Python",
            CapabilityReason::NoGpuSupport { framework, .. } => match framework {
                Framework::TensorFlow => "pip install 'tensorflow[and-cuda]'",
                Framework::Jax => "pip install 'jax[cuda12]'",
                Framework::PyTorch => "install PyTorch's build for CUDA (pytorch.org)",
            },
            CapabilityReason::GpuSupportNotCertain { .. } => {
                "`vramline doctor --deep` imports the framework to find out"
            }
            CapabilityReason::TensorFlowAsyncAllocator => "unset TF_GPU_ALLOCATOR",
            CapabilityReason::JaxAsyncAllocator | CapabilityReason::PlatformAllocator => {
                "unset XLA_PYTHON_CLIENT_ALLOCATOR"
            }
            CapabilityReason::TorchAsyncAllocator { variable } => {
                return Some(format!("remove backend from {variable}").into());
            }
            CapabilityReason::StandInOff => "unset TF_CPU_ALLOCATOR_USE_BFC",
            CapabilityReason::JaxOnCpu | CapabilityReason::TorchOnCpu => "run it on a GPU",
            CapabilityReason::OddFigures
            | CapabilityReason::NoProcessBytes
            | CapabilityReason::Wsl
            | CapabilityReason::NoAccounting
            | CapabilityReason::SlowProcessList { .. }
            | CapabilityReason::ContainerLimit(_)
            | CapabilityReason::NoVisibleGpu
            | CapabilityReason::StandIn
            | CapabilityReason::ReplayOnly => "",
        };
        (!words.is_empty()).then_some(Cow::Borrowed(words))
    }
}

impl fmt::Display for CapabilityReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: &str = match self {
            CapabilityReason::Driver(error) => return write!(out, "{error}"),
            CapabilityReason::NoDevice => "the driver answers but lists no device",
            CapabilityReason::MixedDevices => {
                "the GPUs are of different kinds, and CUDA orders them by its own estimate of speed"
            }
            CapabilityReason::Hidden { list } => {
                return write!(out, "CUDA_VISIBLE_DEVICES={list} hides it from a job");
            }
            CapabilityReason::SharedMemory => {
                "the driver does not report it: the device shares its memory with the CPU"
            }
            CapabilityReason::OddFigures => {
                "the driver's figures do not add up: total is neither reserved + free + used nor free + used"
            }
            CapabilityReason::EmptyProcessList => {
                "the driver lists no process now; in a container with its own PID namespace it may hide them"
            }
            CapabilityReason::NoProcessBytes => {
                "the driver lists processes but does not report their memory (N/A)"
            }
            CapabilityReason::Wsl => {
                "under WSL2 the driver does not report which process holds how much; what the whole device holds, \
                 and what each framework counts, is known"
            }
            CapabilityReason::OtherNamespace => {
                return out.write_str(&not_listed(Standing::OfAnotherNamespace).reason);
            }
            CapabilityReason::AccountingOff { .. } => "accounting is off, so peaks are sampled",
            CapabilityReason::NoAccounting => "this device does not support accounting, so peaks are sampled",
            CapabilityReason::SlowProcessList { each } => {
                return write!(out, "one query takes {each} here, so Vramline reads the list less often");
            }
            CapabilityReason::ContainerLimit(limit) => {
                let rest = "which the figures of the machine do not show";
                return write!(out, "but this container has a limit of {limit}, {rest}");
            }
            CapabilityReason::NoMeminfo => "/proc/meminfo cannot be read",
            CapabilityReason::SilentPython { error } | CapabilityReason::NoPackage { error } => error,
            CapabilityReason::PythonFlags(flags) => {
                let rest = "so it ignores PYTHONPATH and sitecustomize";
                return write!(out, "this Python runs with {}, {rest}", flags.join(" "));
            }
            CapabilityReason::OldPython { major, minor } => {
                return write!(out, "this is Python {major}.{minor}; Vramline needs 3.10 or newer");
            }
            CapabilityReason::PackageElsewhere => {
                "the package is not installed in this Python: `vramline run` works because it brings its own, but `import vramline` does not"
            }
            CapabilityReason::NoVisibleGpu => "no GPU is visible here",
            CapabilityReason::NoGpuSupport { evidence, .. }
            | CapabilityReason::GpuSupportNotCertain { evidence } => return write!(out, "{evidence}"),
            CapabilityReason::TensorFlowAsyncAllocator => {
                "TF_GPU_ALLOCATOR=cuda_malloc_async: CUDA's pool reports nothing to the profiler"
            }
            CapabilityReason::JaxAsyncAllocator => {
                "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async: CUDA's pool reports nothing to the profiler"
            }
            CapabilityReason::TorchAsyncAllocator { variable } => {
                let rest = "CUDA's pool has no segments and no history";
                return write!(out, "{variable} has backend:cudaMallocAsync: {rest}");
            }
            CapabilityReason::PlatformAllocator => {
                "XLA_PYTHON_CLIENT_ALLOCATOR=platform: JAX uses no pool, so there are no events"
            }
            CapabilityReason::StandInOff => {
                "TF_CPU_ALLOCATOR_USE_BFC is off: without its pool TensorFlow reports no names"
            }
            CapabilityReason::StandIn => {
                "on the CPU, with TensorFlow's CPU pool as a stand-in for a GPU pool; `vramline run` turns it on"
            }
            CapabilityReason::ReplayOnly => {
                "TensorFlow does not report it; Vramline computes it by replaying a trace from the start"
            }
            CapabilityReason::JaxOnCpu => {
                "JAX reports neither memory statistics nor allocation events on the CPU"
            }
            CapabilityReason::TorchOnCpu => "PyTorch does not count CPU memory",
        };
        out.write_str(words)
    }
}
