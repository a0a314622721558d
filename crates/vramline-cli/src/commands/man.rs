//! `vramline man`: the manual pages, from the definition of the command line.

use anyhow::Context;
use clap::CommandFactory;

use crate::cli::{Cli, ManArgs};
use crate::exit::Hinted;

pub(crate) fn run(args: &ManArgs) -> Result<(), Hinted> {
    Ok(clap_mangen::generate_to(Cli::command(), &args.folder)
        .with_context(|| format!("cannot write the manual pages into {}", args.folder.display()))?)
}
