//! `vramline demo`: a real small training on whatever is here, recorded and reported on.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::anyhow;

use crate::cli::{DemoArgs, RunArgs};
use crate::commands::run;
use crate::exit::Hinted;
use crate::launch::package;

pub(crate) fn run(args: &DemoArgs) -> Result<ExitCode, Hinted> {
    let boot = package::boot().map_err(|reason| Hinted {
        error: anyhow!("the demo is part of the Python package: {reason}"),
        hint: "install it from a clone: pip install .".to_owned(),
    })?;
    let script = boot.parent().map(|package| package.join("_demo/train.py")).unwrap_or_default();
    let python = args.python.clone().unwrap_or_else(beside);
    run::run(&RunArgs::of(args.output.clone(), vec![python.into(), script.into()]))
}

/// The Python that this binary is installed with; it has the frameworks that a user of it has.
fn beside() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("python3")));
    beside.filter(|python| python.is_file()).unwrap_or_else(|| "python3".into())
}
