//! `vramline completions`: a completion script for a shell.

use std::io;

use clap::CommandFactory;

use crate::cli::{Cli, CompletionsArgs};
use crate::exit::Hinted;

pub(crate) fn run(args: &CompletionsArgs) -> Result<(), Hinted> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "vramline", &mut script);
    io::Write::write_all(&mut io::stdout().lock(), &script).map_err(anyhow::Error::from)?;
    Ok(())
}
