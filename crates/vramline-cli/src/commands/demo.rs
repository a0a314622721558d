//! `vramline demo`: a real small training on whatever is here, recorded and reported on.

use std::path::PathBuf;

use clap::Args;

use crate::commands::run;
use crate::exit::{Exit, Failure};
use crate::launch::{JobSpec, package};

/// Train a small model on whatever is here, recorded and reported on.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The folder to record into; a name that is taken gets a number.
    #[arg(short, long, value_name = "NAME.vram", default_value = "demo.vram")]
    pub(crate) output: PathBuf,
    /// The Python to train with [default: the one that vramline is installed in, else python3].
    #[arg(long, value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,
}

pub(crate) fn run(args: &DemoArgs) -> Result<Exit, Failure> {
    let boot = package::boot().map_err(|reason| {
        Failure::error(
            format!("the demo is part of the Python package: {reason}"),
            "install it from a clone: pip install .",
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

/// The Python that this binary is installed with; it has the frameworks that a user of it has.
fn beside() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("python3")));
    beside.filter(|python| python.is_file()).unwrap_or_else(|| "python3".into())
}
