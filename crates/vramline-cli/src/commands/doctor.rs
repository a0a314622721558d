//! `vramline doctor`: checks what can be measured on this machine.
//!
//! The driver is called several times, to measure the cost of a call. Python runs in a separate process with a timeout, and imports
//! frameworks only with `--deep`.

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
use crate::progress::ProgressLine;

const HELP: &str = "\
doctor checks for each GPU whether the driver reports its memory, the memory of each process, and
exact peaks. It checks for each framework of the Python whether it can use a GPU, and whether its
allocator can be observed. For everything that cannot be measured, doctor prints the reason and
what enables it: an environment variable, a flag of the container, a package.

Common problems:
    per-process memory    in a container the driver may list other process IDs, or no processes;
                          --pid=host helps
    WSL2                  the driver reports no memory of single processes
    asynchronous pools    TF_GPU_ALLOCATOR=cuda_malloc_async, backend:cudaMallocAsync and
                          XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async hide allocations from profilers
    hidden devices        CUDA_VISIBLE_DEVICES may hide GPUs from the job
    python -I, -E, -S     Python with these options cannot be recorded by `vramline run`

doctor loads the driver's library, but creates no CUDA context and imports no framework unless you
give --deep. It checks the environment variables of this shell, so run it where the job will run.

Examples:
    vramline doctor
    vramline doctor --python .venv/bin/python
    vramline doctor --deep                    # import the frameworks and ask them
    vramline doctor --json | jq '.measures[] | select(.can != true)'

Exit codes: 0 always, also if something cannot be measured; 2 usage.";

/// Check what can be measured on this machine, and how to enable the rest.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct DoctorArgs {
    /// Python whose frameworks are checked [default: python, else python3].
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::CommandName)]
    pub(crate) python: Option<PathBuf>,
    /// Import the frameworks in a separate process, and ask them for GPUs.
    #[arg(long)]
    pub(crate) deep: bool,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) length: Length,
}

/// Number of calls to measure their cost.
const LOOKS: usize = 5;
/// Timeout of Python: long enough for a slow network file system and, with `--deep`, for the import of three frameworks.
const PATIENCE: Duration = Duration::from_secs(20);
const DEEP_PATIENCE: Duration = Duration::from_secs(180);
/// Timeout of the driver, which may hang.
const DRIVER_PATIENCE: Duration = Duration::from_secs(20);
/// Number of bytes that are read from Python at most.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;

/// Looks up distributions by name: reading all metadata of an environment takes seconds.
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
    let line = ProgressLine::timed("checking the driver and Python");
    let mut machine = MachineLook {
        driver: asked_of_driver(),
        host: procfs::host_memory(),
        container_limit: procfs::container_limit(),
        namespace: procfs::namespace(),
        is_wsl: procfs::is_wsl(),
        environment: environment::of_user(),
        python: match &args.python {
            Some(python) => asked_of_python(python, args.deep),
            // `python` first, because it is the Python of an active virtual environment.
            None => asked_of_python("python".as_ref(), args.deep)
                .or_else(|_| asked_of_python("python3".as_ref(), args.deep)),
        },
        no_boot: package::boot().err(),
    };
    drop(line);
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
    // If the driver hangs, the thread is abandoned.
    bug::detach(move || {
        let _ = tell.send(Box::new(look()));
    });
    told.recv_timeout(DRIVER_PATIENCE).map_or_else(
        |_| {
            Err(DriverError::Failed {
                detail: "it does not answer; look for Xid errors in the kernel log (dmesg)".to_owned(),
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

/// Asks a Python about its frameworks; an error says why it does not answer.
fn asked_of_python(python: &Path, is_deep: bool) -> Result<PythonLook, String> {
    let shown = python.display();
    let mut command = Command::new(python);
    command.args(["-c", QUESTION]).args(is_deep.then_some("deep"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| format!("cannot start '{shown}': {error}"))?;
    let Some(mut stdout) = child.stdout.take() else {
        return Err(format!("cannot read the output of '{shown}'"));
    };
    let (tell, told) = channel();
    bug::detach(move || {
        let mut text = Vec::new();
        let read = stdout.by_ref().take(MAX_OUTPUT_BYTES).read_to_end(&mut text);
        let _ = tell.send(read.map(|_| text));
    });
    let patience = if is_deep { DEEP_PATIENCE } else { PATIENCE };
    let answer = told.recv_timeout(patience);
    if answer.is_err() {
        let _ = child.kill();
    }
    let _ = child.wait();
    let text = answer
        .ok()
        .and_then(Result::ok)
        .ok_or_else(|| format!("'{shown}' did not answer within {} s", patience.as_secs()))?;
    // Frameworks may print anything; the answer is the last line.
    let line = text.split(|&byte| byte == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
    serde_json::from_slice(line).map_err(|_| format!("'{shown}' is not Python 3.8 or newer, or it failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_not_python_is_an_error() {
        for (program, word) in
            [("/no/such/python", "cannot start"), ("true", "is not Python"), ("echo", "is not Python")]
        {
            let error = asked_of_python(Path::new(program), false).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
