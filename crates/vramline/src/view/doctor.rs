//! What can be measured on a machine, what cannot, why, and the switch for it: the JSON document of `vramline doctor`.
//!
//! [`Machine`] is what was found; nothing is asked here. Every answer is one [`Measure`]: a subject, a thing to measure, yes, no or
//! not certain, and where it is not a plain yes, why, and what would make it one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::source::driver::own::{NotTold, not_listed};
use crate::source::driver::probe::Costs;
use crate::source::driver::visible::visible;
use crate::source::driver::{DeviceFacts, DeviceMemory, DeviceProcess, DriverError, Identity, Library};
use crate::source::procfs::{HostMemory, Namespace, Standing};
use crate::units::{Bytes, Span};
use crate::warning::{Unknown, Warning};

/// A list of processes that takes longer is read more seldom.
const SLOW_LIST_NANOS: u64 = 1_000_000;

/// What was found on a machine.
#[derive(Debug)]
pub struct Machine {
    /// The driver, or why there is none.
    pub driver: Result<DriverLook, DriverError>,
    /// The machine's own memory.
    pub host: Option<HostMemory>,
    /// What this container may hold of it.
    pub container_limit: Option<Bytes>,
    /// How this process counts processes.
    pub namespace: Namespace,
    /// The variables that a job would inherit.
    pub environment: BTreeMap<String, String>,
    /// The Python that would run it, or why it could not be asked.
    pub python: Result<PythonLook, String>,
    /// Why `vramline run` would not reach into a job.
    pub no_boot: Option<String>,
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

/// What it said of a device.
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

/// The whole document.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct Doctor {
    pub kind: &'static str,
    pub driver: DriverView,
    pub devices: Vec<DeviceView>,
    pub host: HostView,
    pub python: PythonView,
    pub frameworks: Vec<FrameworkView>,
    pub measures: Vec<Measure>,
    pub warnings: Vec<Warning>,
    pub unknowns: Vec<Unknown>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct DriverView {
    pub version: Option<String>,
    pub nvml_version: Option<String>,
    pub cuda_version: Option<String>,
    pub error: Option<&'static str>,
    pub start_ns: Option<u64>,
    pub memory_call_ns: Option<u64>,
    pub process_list_call_ns: Option<u64>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct DeviceView {
    pub index: u32,
    pub uuid: String,
    pub name: Option<String>,
    pub capability: Option<String>,
    pub pci_bus_id: Option<String>,
    pub part_of: Option<String>,
    pub visible_as: Option<String>,
    pub total_bytes: Option<Bytes>,
    pub reserved_bytes: Option<Bytes>,
    pub free_bytes: Option<Bytes>,
    pub used_bytes: Option<Bytes>,
    pub identity: Option<Identity>,
    pub processes: Option<usize>,
    pub accounting: Option<bool>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct HostView {
    pub total_bytes: Option<Bytes>,
    pub available_bytes: Option<Bytes>,
    pub container_limit_bytes: Option<Bytes>,
    pub pids: Vec<u32>,
    pub is_outermost: Option<bool>,
}

#[derive(Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct PythonView {
    pub executable: Option<String>,
    pub version: Option<String>,
    pub vramline: Option<String>,
    pub error: Option<String>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct FrameworkView {
    pub name: &'static str,
    pub version: String,
    pub gpu: Option<bool>,
    pub evidence: String,
}

/// One thing that can be measured, or not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct Measure {
    pub code: &'static str,
    pub subject: String,
    pub what: &'static str,
    pub can: Option<bool>,
    pub why: Option<String>,
    pub switch: Option<String>,
}

/// Collects answers about one subject.
struct Answers<'a> {
    measures: &'a mut Vec<Measure>,
    subject: String,
}

impl Answers<'_> {
    fn add(&mut self, code: &'static str, what: &'static str, can: Option<bool>, why: &str, switch: &str) {
        let said = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let (why, switch) = (said(why), said(switch));
        self.measures.push(Measure { code, subject: self.subject.clone(), what, can, why, switch });
    }

    fn yes(&mut self, code: &'static str, what: &'static str) {
        self.add(code, what, Some(true), "", "");
    }

    fn no(&mut self, code: &'static str, what: &'static str, why: &NotTold) {
        self.add(code, what, Some(false), &why.reason, why.switch);
    }
}

/// Says what can be measured.
#[must_use]
pub fn doctor(machine: &Machine) -> Doctor {
    let mut measures = Vec::new();
    let frameworks = frameworks(machine);
    let devices = driver(machine, &mut measures);
    kernel(machine, &mut measures);
    job(machine, &mut measures);
    let has_gpu = devices.iter().any(|device| device.visible_as.is_some());
    for framework in &frameworks {
        let mut answers =
            Answers { measures: &mut measures, subject: format!("{} {}", framework.name, framework.version) };
        gpu_use(framework, has_gpu, &mut answers);
        match framework.name {
            "TensorFlow" => tensorflow(machine, has_gpu && framework.gpu != Some(false), &mut answers),
            "JAX" => jax(machine, has_gpu && framework.gpu != Some(false), &mut answers),
            _ => torch(machine, has_gpu && framework.gpu != Some(false), &mut answers),
        }
    }
    let look = machine.driver.as_ref().ok();
    let each = |pick: fn(&Costs) -> Option<Span>| look.and_then(|look| pick(&look.costs)).map(Span::nanos);
    let mut document = Doctor {
        kind: "doctor",
        driver: DriverView {
            version: look.and_then(|look| look.library.driver_version.clone()),
            nvml_version: look.and_then(|look| look.library.nvml_version.clone()),
            cuda_version: look.and_then(|look| look.cuda.clone().ok()),
            error: machine.driver.as_ref().err().map(DriverError::code),
            start_ns: each(|costs| costs.start.each()),
            memory_call_ns: each(|costs| costs.memory.each()),
            process_list_call_ns: each(|costs| costs.processes.each()),
        },
        devices,
        host: HostView {
            total_bytes: machine.host.map(|host| host.total),
            available_bytes: machine.host.map(|host| host.available),
            container_limit_bytes: machine.container_limit,
            pids: machine.namespace.own_pids.clone(),
            is_outermost: machine.namespace.is_outermost,
        },
        python: python(machine),
        frameworks,
        measures,
        warnings: Vec::new(),
        unknowns: Vec::new(),
    };
    explain(machine, &mut document);
    document
}

fn name_of(device: &DeviceView) -> String {
    let number = device.part_of.as_ref().map_or(String::new(), |_| " (a part)".to_owned());
    format!("GPU {}{number} {}", device.index, device.name.as_deref().unwrap_or("without a name"))
        .trim_end()
        .to_owned()
}

/// The driver and each device.
fn driver(machine: &Machine, measures: &mut Vec<Measure>) -> Vec<DeviceView> {
    let look = match &machine.driver {
        Ok(look) => look,
        Err(error) => {
            let mut answers = Answers { measures, subject: "driver".to_owned() };
            answers.no("driver", "devices, their memory, and who holds it", &NotTold::from(error));
            return Vec::new();
        }
    };
    if look.devices.is_empty() {
        let mut answers = Answers { measures, subject: "driver".to_owned() };
        let why = "the driver answers, and shows no device";
        answers.add(
            "driver",
            "devices, their memory, and who holds it",
            Some(false),
            why,
            "in a container, start it with --gpus all",
        );
    }
    let facts: Vec<DeviceFacts> = look.devices.iter().map(|device| device.facts.clone()).collect();
    let list = machine.environment.get("CUDA_VISIBLE_DEVICES").map(String::as_str);
    let order = machine.environment.get("CUDA_DEVICE_ORDER").map(String::as_str);
    let seen = visible(&facts, list, order);
    if !seen.is_sure {
        let mut answers = Answers { measures, subject: "driver".to_owned() };
        answers.add(
            "device-order",
            "which GPU a framework's number means, before it is used",
            None,
            "the GPUs are of different kinds, and CUDA puts the fastest first by a rule of its own",
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
        );
    }
    let mut views = Vec::new();
    for (at, device) in look.devices.iter().enumerate() {
        let visible_as =
            seen.devices.iter().position(|&seen| seen == at).map(|number| format!("GPU:{number}"));
        let memory = device.memory.as_ref().ok();
        let view = DeviceView {
            index: device.facts.index,
            uuid: device.facts.uuid.clone(),
            name: device.facts.name.clone(),
            capability: device.facts.capability.map(|(major, minor)| format!("{major}.{minor}")),
            pci_bus_id: device.facts.pci_bus_id.clone(),
            part_of: device.facts.part.as_ref().map(|part| part.of.clone()),
            visible_as,
            total_bytes: memory.map(|memory| memory.total),
            reserved_bytes: memory.map(|memory| memory.reserved),
            free_bytes: memory.map(|memory| memory.free),
            used_bytes: memory.map(|memory| memory.used),
            identity: memory.map(DeviceMemory::identity),
            processes: device.processes.as_ref().ok().map(Vec::len),
            accounting: device.facts.is_accounting,
        };
        let mut answers = Answers { measures, subject: name_of(&view) };
        of_device(machine, look, device, &view, &mut answers);
        if let (None, Some(list)) = (&view.visible_as, list) {
            answers.add(
                "hidden-device",
                "what a job does on it",
                Some(false),
                &format!("CUDA_VISIBLE_DEVICES={list} hides it from a job"),
                "unset CUDA_VISIBLE_DEVICES, or use --gpus",
            );
        }
        views.push(view);
    }
    views
}

fn of_device(
    machine: &Machine,
    look: &DriverLook,
    device: &DeviceLook,
    view: &DeviceView,
    answers: &mut Answers<'_>,
) {
    let whole = "memory of the whole device";
    match &device.memory {
        Err(DriverError::NotSupported) => answers.add(
            "device-memory",
            whole,
            Some(false),
            "the driver does not tell: the device has its memory in common with the processor",
            "read the machine's own memory instead",
        ),
        Err(error) => answers.no("device-memory", whole, &NotTold::from(error)),
        Ok(memory) if memory.identity() == Identity::Neither => answers.add(
            "device-memory",
            whole,
            None,
            "the driver's figures do not add up: total is neither reserved + free + used nor free + used",
            "",
        ),
        Ok(_) => answers.yes("device-memory", whole),
    }
    let each = "memory of each process";
    match &device.processes {
        Err(error) => answers.no("process-memory", each, &NotTold::from(error)),
        Ok(listed) if listed.is_empty() => match machine.namespace.is_outermost {
            Some(true) => answers.yes("process-memory", each),
            _ => answers.add(
                "process-memory",
                each,
                None,
                "no process is listed now, and in a container (a namespace of its own) the driver may hide them",
                not_listed(Standing::Empty).switch,
            ),
        },
        Ok(listed) if listed.iter().all(|process| process.used.is_none()) => answers.add(
            "process-memory",
            each,
            Some(false),
            "the driver lists processes and does not tell what they hold (N/A)",
            "",
        ),
        Ok(_) if device.seen_here.is_empty() && machine.namespace.is_outermost != Some(true) => {
            answers.no("process-memory", each, &not_listed(Standing::OfAnotherNamespace));
        }
        Ok(_) => answers.yes("process-memory", each),
    }
    let peak = "peak of each process, exactly";
    match view.accounting {
        Some(true) => answers.yes("process-peak", peak),
        Some(false) => answers.add(
            "process-peak",
            peak,
            Some(false),
            "accounting is off, so peaks are sampled",
            &format!("nvidia-smi -i {} -am 1 (as root)", view.index),
        ),
        None => answers.add(
            "process-peak",
            peak,
            Some(false),
            "this device keeps no accounts; peaks are sampled",
            "",
        ),
    }
    let cost = look.costs.processes;
    if let Some(span) = cost.each().filter(|_| cost.longest_nanos > SLOW_LIST_NANOS) {
        answers.add(
            "slow-process-list",
            "processes once a second without a cost",
            None,
            &format!("a list takes {span} here, so it is read less often"),
            "",
        );
    }
}

/// What the kernel tells of any job.
fn kernel(machine: &Machine, measures: &mut Vec<Measure>) {
    let what = "the machine's own memory, and what a job's processes hold of it";
    let mut answers = Answers { measures, subject: "kernel".to_owned() };
    match (machine.host, machine.container_limit) {
        (Some(_), None) => answers.yes("host-memory", what),
        (Some(_), Some(limit)) => {
            let why = format!("but this container ends at {limit}, which the machine's figures do not show");
            answers.add("host-memory", what, Some(true), &why, "");
        }
        (None, _) => {
            answers.add("host-memory", what, Some(false), "/proc/meminfo cannot be read", "mount /proc");
        }
    }
}

/// What a job is reached by.
fn job(machine: &Machine, measures: &mut Vec<Measure>) {
    let what = "steps, phases and variables from inside a job";
    let mut answers = Answers { measures, subject: "Python".to_owned() };
    let python = match &machine.python {
        Ok(python) => python,
        Err(error) => {
            answers.add("python", what, None, error, "give another with --python");
            return;
        }
    };
    let flags = [(python.isolated, "-I"), (python.ignore_environment, "-E"), (python.no_site, "-S")];
    let set: Vec<&str> = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, flag)| *flag).collect();
    let (major, minor, _) = python.version;
    if !set.is_empty() {
        let why = format!(
            "this Python runs with {}, and then looks at no PYTHONPATH or sitecustomize",
            set.join(" ")
        );
        answers.add("python-flags", what, Some(false), &why, "start it without these flags");
    } else if (major, minor) < (3, 10) {
        let why = format!("this Python is {major}.{minor}; 3.10 and newer are reached");
        answers.add("python-version", what, Some(false), &why, "use Python 3.10 or newer");
    } else if let Some(reason) = &machine.no_boot {
        answers.add(
            "package",
            what,
            Some(false),
            reason,
            "pip install vramline in the environment of this program",
        );
    } else if !python.packages.contains_key("vramline") {
        answers.add(
            "package-elsewhere",
            what,
            Some(true),
            "the package is not installed in this Python; `vramline run` brings its own, `import vramline` does not work",
            "pip install vramline in it",
        );
    } else {
        answers.yes("attach", what);
    }
}

fn gpu_use(framework: &FrameworkView, has_gpu: bool, answers: &mut Answers<'_>) {
    let what = "work on a GPU";
    let switch = match framework.name {
        "TensorFlow" => "pip install 'tensorflow[and-cuda]'",
        "JAX" => "pip install 'jax[cuda12]'",
        _ => "install PyTorch's build for CUDA (pytorch.org)",
    };
    match (has_gpu, framework.gpu) {
        (false, _) => answers.add("no-gpu", what, Some(false), "no GPU is visible here", ""),
        (true, Some(true)) => answers.yes("gpu-build", what),
        (true, Some(false)) => answers.add("no-gpu-build", what, Some(false), &framework.evidence, switch),
        (true, None) => answers.add(
            "gpu-build",
            what,
            None,
            &framework.evidence,
            "vramline doctor --deep imports it and asks",
        ),
    }
}

fn is_on(value: Option<&String>) -> bool {
    value.is_some_and(|value| matches!(value.to_lowercase().as_str(), "1" | "true"))
}

fn tensorflow(machine: &Machine, is_gpu: bool, answers: &mut Answers<'_>) {
    let variable = |name: &str| machine.environment.get(name);
    let events = "every allocation, with op and time";
    if is_gpu {
        if variable("TF_GPU_ALLOCATOR").is_some_and(|value| value == "cuda_malloc_async") {
            answers.add(
                "async-allocator",
                events,
                Some(false),
                "TF_GPU_ALLOCATOR=cuda_malloc_async: CUDA's pool tells the profiler nothing",
                "unset TF_GPU_ALLOCATOR",
            );
        } else {
            answers.yes("events", events);
        }
    } else if variable("TF_CPU_ALLOCATOR_USE_BFC").is_some() && !is_on(variable("TF_CPU_ALLOCATOR_USE_BFC")) {
        answers.add(
            "no-stand-in",
            events,
            Some(false),
            "TF_CPU_ALLOCATOR_USE_BFC is off: without its pool TensorFlow tells no names",
            "unset TF_CPU_ALLOCATOR_USE_BFC",
        );
    } else {
        let why = "on the CPU, by TensorFlow's pool for it, which stands in for a GPU's: `vramline run` switches it on";
        answers.add("stand-in", events, Some(true), why, "");
    }
    answers.add(
        "pool-size",
        "what the pool took from the driver",
        Some(true),
        "TensorFlow does not say it; the replay of a trace from the start does",
        "",
    );
}

fn jax(machine: &Machine, is_gpu: bool, answers: &mut Answers<'_>) {
    let (events, counters) =
        ("every allocation, with program and time", "bytes in use, peak, pool and limit");
    if !is_gpu {
        let why = "JAX keeps no memory statistics of a CPU, and its allocations there have no events";
        answers.add("jax-cpu", events, Some(false), why, "run it on a GPU");
        return;
    }
    let allocator = machine.environment.get("XLA_PYTHON_CLIENT_ALLOCATOR").map(|value| value.to_lowercase());
    match allocator.as_deref() {
        Some("cuda_async" | "cuda_malloc_async") => {
            let why = "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async: CUDA's pool tells the profiler nothing";
            answers.add("async-allocator", events, Some(false), why, "unset XLA_PYTHON_CLIENT_ALLOCATOR");
        }
        Some("platform") => {
            let why = "XLA_PYTHON_CLIENT_ALLOCATOR=platform: there is no pool, so there are no events of it";
            answers.add("platform-allocator", events, Some(false), why, "unset XLA_PYTHON_CLIENT_ALLOCATOR");
        }
        _ => answers.yes("events", events),
    }
    answers.yes("counters", counters);
}

fn torch(machine: &Machine, is_gpu: bool, answers: &mut Answers<'_>) {
    let (events, counters) = ("every allocation, with its Python stack", "bytes in use, peak and pool");
    if !is_gpu {
        let why = "PyTorch counts no memory of a CPU";
        answers.add("torch-cpu", counters, Some(false), why, "run it on a GPU");
        return;
    }
    let names = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
    let found = names.iter().find_map(|name| machine.environment.get(*name).map(|value| (*name, value)));
    match found {
        Some((name, value)) if value.replace(' ', "").contains("backend:cudaMallocAsync") => {
            let why =
                format!("{name} has backend:cudaMallocAsync: CUDA's pool has no segments and no history");
            answers.add("async-allocator", events, Some(false), &why, &format!("take backend out of {name}"));
        }
        _ => answers.yes("events", events),
    }
    answers.yes("counters", counters);
}

fn python(machine: &Machine) -> PythonView {
    match &machine.python {
        Err(error) => PythonView { error: Some(error.clone()), ..PythonView::default() },
        Ok(python) => {
            let (major, minor, micro) = python.version;
            PythonView {
                executable: Some(python.executable.clone()),
                version: Some(format!("{major}.{minor}.{micro}")),
                vramline: python.packages.get("vramline").cloned(),
                error: None,
            }
        }
    }
}

fn frameworks(machine: &Machine) -> Vec<FrameworkView> {
    let Ok(python) = &machine.python else { return Vec::new() };
    let version = |names: &[&str]| {
        names
            .iter()
            .find_map(|name| python.packages.get(*name).map(|version| ((*name).to_owned(), version.clone())))
    };
    let has = |prefix: &str| python.packages.keys().any(|name| name.starts_with(prefix));
    let mut found = Vec::new();
    if let Some((name, version)) = version(&["tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly"])
    {
        let (gpu, evidence) = if name == "tensorflow-cpu" {
            (Some(false), "tensorflow-cpu is built without support for GPUs".to_owned())
        } else if has("nvidia-cudnn") {
            (None, format!("{name} with NVIDIA's libraries beside it"))
        } else {
            (
                None,
                format!("{name} without NVIDIA's libraries from pip; CUDA would have to be on the machine"),
            )
        };
        found.push(FrameworkView { name: "TensorFlow", version, gpu, evidence });
    }
    if let Some((_, version)) = version(&["jax"]) {
        let plugin = has("jax-cuda");
        let evidence =
            if plugin { "JAX's CUDA plugin is installed" } else { "JAX's CUDA plugin is not installed" };
        found.push(FrameworkView { name: "JAX", version, gpu: Some(plugin), evidence: evidence.to_owned() });
    }
    if let Some((_, version)) = version(&["torch"]) {
        let (gpu, evidence) = if version.contains("+cpu") {
            (Some(false), "a build for the CPU".to_owned())
        } else if version.contains("+cu") || has("nvidia-cudnn") {
            (Some(true), "a build for CUDA".to_owned())
        } else {
            (None, "its version does not tell for which device it was built".to_owned())
        };
        found.push(FrameworkView { name: "PyTorch", version, gpu, evidence });
    }
    for framework in &mut found {
        let key =
            if framework.name == "PyTorch" { "torch".to_owned() } else { framework.name.to_lowercase() };
        let Some(deep) = python.deep.get(&key) else { continue };
        let gpus = deep.gpus.unwrap_or_default();
        (framework.gpu, framework.evidence) = match (&deep.error, deep.is_built, deep.gpus) {
            (Some(error), ..) => (None, format!("it could not be asked: {error}")),
            (None, Some(false), _) => {
                (Some(false), "it says that it was built without support for GPUs".to_owned())
            }
            (None, _, Some(0)) => (Some(false), "it sees no GPU".to_owned()),
            (None, _, Some(_)) => {
                (Some(true), format!("it sees {gpus} GPU{}", if gpus == 1 { "" } else { "s" }))
            }
            (None, ..) => (None, "it does not say".to_owned()),
        };
    }
    found
}

/// A reason for each null.
fn explain(machine: &Machine, document: &mut Doctor) {
    let mut unknown = |path: String, reason: String, switch: &str| {
        let switch = (!switch.is_empty()).then(|| switch.to_owned());
        document.unknowns.push(Unknown { path, reason, switch });
    };
    match &machine.driver {
        Err(error) => {
            for field in [
                "version",
                "nvml_version",
                "cuda_version",
                "start_ns",
                "memory_call_ns",
                "process_list_call_ns",
            ] {
                unknown(format!("driver.{field}"), error.to_string(), error.hint());
            }
        }
        Ok(look) => {
            let view = &document.driver;
            let fields = [
                ("version", view.version.is_none()),
                ("nvml_version", view.nvml_version.is_none()),
                ("cuda_version", view.cuda_version.is_none()),
                ("memory_call_ns", view.memory_call_ns.is_none()),
                ("process_list_call_ns", view.process_list_call_ns.is_none()),
            ];
            for (field, _) in fields.into_iter().filter(|(_, is_null)| *is_null) {
                unknown(
                    format!("driver.{field}"),
                    "the driver does not tell, or was not asked".to_owned(),
                    "",
                );
            }
            for (at, device) in look.devices.iter().enumerate() {
                if let Err(error) = &device.memory {
                    for field in ["total_bytes", "reserved_bytes", "free_bytes", "used_bytes", "identity"] {
                        unknown(format!("devices[{at}].{field}"), error.to_string(), error.hint());
                    }
                }
                if let Err(error) = &device.processes {
                    unknown(format!("devices[{at}].processes"), error.to_string(), error.hint());
                }
            }
        }
    }
    if let Err(error) = &machine.python {
        for field in ["executable", "version", "vramline"] {
            unknown(format!("python.{field}"), error.clone(), "--python FILE");
        }
    }
}
