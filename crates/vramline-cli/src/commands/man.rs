//! `vramline man`: the manual pages, from the definition of the command line.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};

use crate::commands::Cli;
use crate::exit::{Exit, Failure};

/// Write the manual pages, one for each command, into a folder. For those who make packages.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct ManArgs {
    /// An existing folder.
    pub(crate) folder: PathBuf,
}

pub(crate) fn run(args: &ManArgs) -> Result<Exit, Failure> {
    clap_mangen::generate_to(Cli::command(), &args.folder)
        .with_context(|| format!("cannot write the manual pages into {}", args.folder.display()))?;
    Ok(Exit::Done)
}
