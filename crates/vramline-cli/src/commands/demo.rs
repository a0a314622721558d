//! `vramline demo`: records a small training run and prints the report.

use std::path::PathBuf;

use clap::Args;

use crate::commands::run;
use crate::exit::{Exit, Failure};
use crate::launch::{JobSpec, package};

const HELP: &str = "\
The demo uses TensorFlow, JAX or PyTorch, whichever is installed, and a GPU if there is one.

Examples:
    vramline demo
    vramline demo --python .venv/bin/python
    vramline report demo.vram               # print the report again";

/// Train a small model, record it and print the report.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct DemoArgs {
    /// Folder to record into. If it exists, a number is added to the name.
    #[arg(short, long, value_name = "NAME.vram", default_value = "demo.vram")]
    pub(crate) output: PathBuf,
    /// Python to train with [default: the Python that vramline is installed in, else python3].
    #[arg(long, value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,
}

pub(crate) fn run(args: &DemoArgs) -> Result<Exit, Failure> {
    let boot = package::boot().map_err(|reason| {
        Failure::error(
            format!("cannot run the demo: {reason}"),
            "install the package: pip install vramline, or pip install . in a clone of the repository",
        )
    })?;
    let script = boot.parent().map(|package| package.join("_demo/train.py")).unwrap_or_default();
    let python = args.python.clone().unwrap_or_else(beside);
    let spec = JobSpec {
        command: vec![python.into(), script.into()],
        output: Some(args.output.clone()),
        ..JobSpec::default()
    };
    run::record(&spec, true, None)
}

/// The Python that this binary is installed with, because it has the user's frameworks.
fn beside() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("python3")));
    beside.filter(|python| python.is_file()).unwrap_or_else(|| "python3".into())
}
