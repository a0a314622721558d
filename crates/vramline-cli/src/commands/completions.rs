//! `vramline completions`: prints a completion script for a shell.

use std::io;

use clap::{Args, CommandFactory};

use crate::commands::Cli;
use crate::exit::{Exit, Failure};

/// Print a completion script for your shell.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
    vramline completions bash > ~/.local/share/bash-completion/completions/vramline
    vramline completions zsh > ~/.zfunc/_vramline
    vramline completions fish > ~/.config/fish/completions/vramline.fish")]
pub(crate) struct CompletionsArgs {
    /// Shell that the script is for.
    pub(crate) shell: clap_complete::Shell,
}

pub(crate) fn run(args: &CompletionsArgs) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "vramline", &mut script);
    io::Write::write_all(&mut io::stdout().lock(), &script)?;
    Ok(Exit::Done)
}
