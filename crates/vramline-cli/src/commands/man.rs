//! `vramline man`: writes the manual pages.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, CommandFactory};

use crate::commands::Cli;
use crate::exit::{Exit, Failure};

/// Write the manual pages, one per command, into a folder. For packagers.
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct ManArgs {
    /// Existing folder to write to.
    pub(crate) folder: PathBuf,
}

pub(crate) fn run(args: &ManArgs) -> Result<Exit, Failure> {
    clap_mangen::generate_to(Cli::command(), &args.folder)
        .with_context(|| format!("cannot write the manual pages to '{}'", args.folder.display()))?;
    Ok(Exit::Done)
}
