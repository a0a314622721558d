//! The binary `vramline`: parses and runs; each verb lives in `commands/`, and how it ends is for `exit`.

mod answer;
mod bug;
mod commands;
mod exit;
mod export;
mod input;
mod launch;
mod lookout;
mod output;
mod page;
mod printer;
mod serve;
mod tui;
mod variables;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    bug::guarded(|| {
        let cli = commands::Cli::parse();
        printer::choose_color(cli.color);
        exit::end(cli.command.run())
    })
}
