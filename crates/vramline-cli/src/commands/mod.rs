//! The verbs: one file each, with its options, its help and one function. A new verb is a file here and two lines below.

mod completions;
mod demo;
mod diff;
mod doctor;
mod export;
mod man;
mod oom;
mod pack;
mod plan;
mod replay;
mod report;
mod run;
mod serve;
mod top;
mod unpickle;
mod verify;

use clap::{Parser, Subcommand};

use crate::exit::{Exit, Failure};
use crate::printer::ColorChoice;

/// Shows, to the byte, what holds a GPU's memory while a model trains.
#[derive(Debug, Parser)]
#[command(name = "vramline", version, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// When to use colour: auto colours a terminal, unless NO_COLOR is set.
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        hide_possible_values = true,
        default_value = "auto",
        hide_default_value = true
    )]
    pub(crate) color: ColorChoice,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Declares each verb's place in the list of commands, and what runs it.
macro_rules! verbs {
    ($($module:ident: $verb:ident($args:ident),)*) => {
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            // Boxed: a few have many options, and there is one of them at a time.
            $($verb(Box<$module::$args>),)*
        }

        impl Command {
            pub(crate) fn run(&self) -> Result<Exit, Failure> {
                match self {
                    $(Command::$verb(args) => $module::run(args),)*
                }
            }
        }
    };
}

// In the order of `vramline --help`.
verbs! {
    run: Run(RunArgs),
    report: Report(ReportArgs),
    oom: Oom(OomArgs),
    replay: Replay(ReplayArgs),
    diff: Diff(DiffArgs),
    plan: Plan(PlanArgs),
    verify: Verify(VerifyArgs),
    pack: Pack(PackArgs),
    serve: Serve(ServeArgs),
    export: Export(ExportArgs),
    top: Top(TopArgs),
    doctor: Doctor(DoctorArgs),
    demo: Demo(DemoArgs),
    unpickle: Unpickle(UnpickleArgs),
    completions: Completions(CompletionsArgs),
    man: Man(ManArgs),
}
