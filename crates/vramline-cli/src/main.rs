//! The binary `vramline`. Parses, dispatches, and decides the exit code; each verb lives in `commands/`.

mod bug;
mod cli;
mod commands;
mod exit;
mod export;
mod launch;
mod lookout;
mod output;
mod page;
mod printer;
mod serve;
mod tui;
mod variables;
mod watched;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command};
use exit::{Hinted, Refusal};

fn main() -> ExitCode {
    bug::guarded(run)
}

fn run() -> ExitCode {
    let cli = Cli::parse();
    let done = match &cli.command {
        Command::Run(args) => commands::run::run(args),
        Command::Report(args) => commands::report::run(args).map(|()| ExitCode::SUCCESS),
        Command::Oom(args) => commands::oom::run(args).map(|()| ExitCode::SUCCESS),
        Command::Replay(args) => commands::replay::run(args),
        Command::Diff(args) => commands::diff::run(args),
        Command::Plan(args) => commands::plan::run(args),
        Command::Pack(args) => commands::pack::run(args),
        Command::Verify(args) => commands::verify::run(args),
        Command::Export(args) => commands::export::run(args).map(|()| ExitCode::SUCCESS),
        Command::Top(args) => commands::top::run(args),
        Command::Serve(args) => commands::serve::run(args).map(|()| ExitCode::SUCCESS),
        Command::Doctor(args) => commands::doctor::run(args).map(|()| ExitCode::SUCCESS),
        Command::Demo(args) => commands::demo::run(args),
        Command::Unpickle(args) => commands::unpickle::run(args).map(|()| ExitCode::SUCCESS),
        Command::Completions(args) => commands::completions::run(args).map(|()| ExitCode::SUCCESS),
        Command::Man(args) => commands::man::run(args).map(|()| ExitCode::SUCCESS),
    };
    match done {
        Ok(code) => code,
        Err(Hinted { error, .. }) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(Hinted { error, hint }) => {
            // Nothing can be said if even the error cannot be written.
            let mut stderr = io::stderr().lock();
            let _ = writeln!(stderr, "error: {}", told(&error));
            if !hint.is_empty() {
                let _ = writeln!(stderr, "hint: {hint}");
            }
            if error.is::<Refusal>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

/// An error with its causes; what a message has said already is not said again.
fn told(error: &anyhow::Error) -> String {
    error.chain().fold(String::new(), |said, cause| match cause.to_string() {
        more if said.is_empty() => more,
        more if said.contains(&more) => said,
        more => format!("{said}: {more}"),
    })
}

/// `vramline report ... | head` is not an error.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    })
}
