//! `vramline completions`: a completion script for a shell.

use std::io;

use clap::{Args, CommandFactory};

use crate::commands::Cli;
use crate::exit::{Exit, Failure};

/// Print a script that completes commands and options in your shell.
#[derive(Debug, Args)]
#[command(
    after_help = "For bash: vramline completions bash > ~/.local/share/bash-completion/completions/vramline"
)]
pub(crate) struct CompletionsArgs {
    pub(crate) shell: clap_complete::Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "vramline", &mut script);
    io::Write::write_all(&mut io::stdout().lock(), &script)?;
    Ok(Exit::Done)
}
