//! `vramline unpickle`: prints a PyTorch snapshot as JSON.

use std::io::{self, Write};
use std::path::PathBuf;

use clap::Args;

use crate::exit::{Exit, Failure};

/// Print a PyTorch snapshot as JSON, to compare it with what Python reads.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct UnpickleArgs {
    /// PyTorch memory snapshot (*.pickle, gzipped or not).
    pub(crate) path: PathBuf,
}

pub(crate) fn run(args: &UnpickleArgs) -> Result<Exit, Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    vramline::source::write_snapshot_json(&args.path, &mut out)?;
    out.flush()?;
    Ok(Exit::Done)
}
