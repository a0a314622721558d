//! `vramline doctor`: what can be measured here, what cannot, why, and the switch for it.
//!
//! The driver is asked a few times, so that what a call takes is known; Python is asked in a process of its own, which has a time
//! to answer in and imports no framework unless it is told to.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use clap::Args;
use vramline::analysis::doctor::{DeviceLook, DriverLook, MachineLook, PythonLook, doctor};
use vramline::analysis::redaction::Redaction;
use vramline::source::driver::DriverError;
use vramline::source::driver::probe::Probe;
use vramline::source::procfs;
use vramline::view::doctor::Doctor;

use crate::answer::{Form, Length, Sink};
use crate::bug;
use crate::exit::{Exit, Failure};
use crate::launch::{driver, environment, package};
use crate::printer;

const HELP: &str = "\
For each GPU: whether the driver tells its memory, what each process holds, and exact peaks.
For each framework that the Python has: whether it can use a GPU, and whether its allocator tells
what it does. Each thing that is not to be had comes with its reason, and with the switch that
would give it: a variable, a flag of the container, a package.

The usual traps:
    per-process figures   in a container the driver may number processes as the host does, or
                          list none; --pid=host helps
    asynchronous pools    TF_GPU_ALLOCATOR=cuda_malloc_async, XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async
                          and backend:cudaMallocAsync blind the profilers
    hidden devices        CUDA_VISIBLE_DEVICES is looked at as a job would
    python -I, -E, -S     such a Python ignores `vramline run`

Nothing is initialised: the driver's library is loaded, no CUDA context is made, and no framework is
imported without --deep. Variables count as they are set here: run it where the job would run.

Examples:
    vramline doctor
    vramline doctor --python .venv/bin/python
    vramline doctor --deep                    imports the frameworks and asks them
    vramline doctor --json | jq '.measures[] | select(.can != true)'

Exit codes: 0 whatever is found; 2 usage.";

/// Say what can be measured on this machine, what cannot, why, and the switch for it.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct DoctorArgs {
    /// The Python whose frameworks are looked at [default: python, then python3].
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::CommandName)]
    pub(crate) python: Option<PathBuf>,
    /// Import the frameworks, in a process of their own, and ask them for GPUs.
    #[arg(long)]
    pub(crate) deep: bool,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) length: Length,
}

/// How often a call is made to know what it takes.
const LOOKS: usize = 5;
/// How long Python may take: a start on a slow network file system; with `--deep`, the import of three frameworks.
const PATIENCE: Duration = Duration::from_secs(20);
const DEEP_PATIENCE: Duration = Duration::from_secs(180);
/// A driver that hangs is not waited for.
const DRIVER_PATIENCE: Duration = Duration::from_secs(20);
/// More than Python has to say.
const MOST_WORDS: u64 = 1 << 20;

/// Distributions by name only: reading all of an environment's metadata takes seconds.
const QUESTION: &str = r#"
import json, sys
from importlib import metadata
names = """tensorflow tensorflow-cpu tensorflow-gpu tf-nightly keras jax jaxlib jax-cuda12-plugin jax-cuda13-plugin torch
nvidia-cudnn-cu11 nvidia-cudnn-cu12 nvidia-cudnn-cu13 vramline""".split()
packages = {}
for name in names:
    try:
        packages[name] = metadata.version(name)
    except Exception:
        pass
deep = {}
if sys.argv[1:] == ["deep"]:
    def tensorflow():
        import tensorflow as tf
        return tf.test.is_built_with_cuda(), len(tf.config.list_physical_devices("GPU"))
    def jax():
        import jax
        return None, len([device for device in jax.devices() if device.platform in ("gpu", "cuda", "rocm")])
    def torch():
        import torch
        return torch.version.cuda is not None, torch.cuda.device_count()
    for ask in (tensorflow, jax, torch):
        if not any(name in packages for name in (ask.__name__, "tensorflow-cpu" if ask is tensorflow else "-")):
            continue
        try:
            built, gpus = ask()
            deep[ask.__name__] = {"is_built": built, "gpus": gpus}
        except Exception as error:
            deep[ask.__name__] = {"error": f"{type(error).__name__}: {error}"[:300]}
flags = sys.flags
print("\n" + json.dumps({"executable": sys.executable, "version": list(sys.version_info[:3]), "isolated": bool(flags.isolated),
    "ignore_environment": bool(flags.ignore_environment), "no_site": bool(flags.no_site), "packages": packages, "deep": deep}))
"#;

pub(crate) fn run(args: &DoctorArgs) -> Result<Exit, Failure> {
    let mut machine = MachineLook {
        driver: asked_of_driver(),
        host: procfs::host_memory(),
        container_limit: procfs::container_limit(),
        namespace: procfs::namespace(),
        environment: environment::of_user(),
        python: match &args.python {
            Some(python) => asked_of_python(python, args.deep),
            // Jobs are started with either; the first is what a virtual environment means.
            None => asked_of_python("python".as_ref(), args.deep)
                .or_else(|_| asked_of_python("python3".as_ref(), args.deep)),
        },
        no_boot: package::boot().err(),
    };
    if args.form.redact {
        Redaction::default().machine(&mut machine);
    }
    let document = Doctor::from(&doctor(&machine));
    Sink::stdout().answer(&document, args.form.json, |style| {
        printer::doctor::doctor(&document, args.length.full, style)
    })?;
    Ok(Exit::Done)
}

fn asked_of_driver() -> Result<DriverLook, DriverError> {
    let (tell, told) = channel();
    // Left behind where it does not answer.
    bug::detach(move || {
        let _ = tell.send(Box::new(look()));
    });
    told.recv_timeout(DRIVER_PATIENCE).map_or_else(
        |_| {
            Err(DriverError::Failed {
                detail: "it does not answer: look for Xid in the kernel's log".to_owned(),
            })
        },
        |look| *look,
    )
}

fn look() -> Result<DriverLook, DriverError> {
    let mut probe = Probe::open(driver::open)?;
    let facts = probe.devices().to_vec();
    let mut devices = Vec::new();
    for (at, facts) in facts.into_iter().enumerate() {
        let mut memory = probe.memory(at);
        let mut processes = probe.processes(at);
        for _ in 1..LOOKS {
            (memory, processes) = (probe.memory(at), probe.processes(at));
        }
        let pids = processes.iter().flatten().map(|process| process.pid);
        let seen_here = pids.filter(|&pid| procfs::process(pid).is_some()).collect();
        devices.push(DeviceLook { facts, memory, processes, seen_here });
    }
    let (library, cuda) = (probe.library().clone(), probe.cuda_version());
    Ok(DriverLook { library, cuda, devices, costs: probe.costs() })
}

/// What a Python says of itself, or why it says nothing.
fn asked_of_python(python: &Path, is_deep: bool) -> Result<PythonLook, String> {
    let shown = python.display();
    let mut command = Command::new(python);
    command.args(["-c", QUESTION]).args(is_deep.then_some("deep"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("'{shown}' cannot be started: {error}"))?;
    let Some(mut stdout) = child.stdout.take() else { return Err(format!("'{shown}' has no output")) };
    let (tell, told) = channel();
    bug::detach(move || {
        let mut text = Vec::new();
        let read = stdout.by_ref().take(MOST_WORDS).read_to_end(&mut text);
        let _ = tell.send(read.map(|_| text));
    });
    let answer = told.recv_timeout(if is_deep { DEEP_PATIENCE } else { PATIENCE });
    if answer.is_err() {
        let _ = child.kill();
    }
    let _ = child.wait();
    let text =
        answer.ok().and_then(Result::ok).ok_or_else(|| format!("'{shown}' does not answer in time"))?;
    // Frameworks print as they please; the answer is the last line.
    let line = text.split(|&byte| byte == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
    serde_json::from_slice(line).map_err(|_| format!("'{shown}' is no Python 3.8 or newer, or failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_no_python_is_told_of() {
        for (program, word) in
            [("/no/such/python", "cannot be started"), ("true", "is no Python"), ("echo", "is no Python")]
        {
            let error = asked_of_python(Path::new(program), false).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
