//! The binary `vramline`: parses the arguments and runs the verb. Each verb is in `commands/`; exit codes are in `exit`.

// `eprintln!` panics where standard error is closed or full: warnings go through `exit`.
#![deny(clippy::print_stderr)]

mod answer;
mod bug;
mod commands;
mod exit;
mod export;
mod input;
mod launch;
mod lookout;
mod metrics;
mod output;
mod page;
mod printer;
mod progress;
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
