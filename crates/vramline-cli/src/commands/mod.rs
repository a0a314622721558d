//! The verbs, one file each: options, help and one function. A new verb is a file here and two lines below.

mod completions;
mod demo;
mod diff;
mod doctor;
mod export;
mod exporter;
mod gather;
mod man;
mod oom;
mod pack;
mod plan;
mod replay;
mod report;
mod run;
mod serve;
mod snapshot;
mod top;
mod unpickle;
mod verify;

use clap::{Parser, Subcommand};

use crate::exit::{Exit, Failure};
use crate::printer::ColorChoice;

const HELP: &str = "\
Start here:
    vramline doctor                     # check what can be measured on this machine
    vramline run -- python train.py     # record a job and print its report
    vramline oom train.log              # explain why a job ran out of memory

`vramline COMMAND --help` shows all options of a command, with examples.";

/// Show what holds a GPU's memory while a model trains, to the byte.
#[derive(Debug, Parser)]
#[command(name = "vramline", version, arg_required_else_help = true, max_term_width = 100, after_help = HELP)]
pub(crate) struct Cli {
    /// When to use colour: always, never, or auto (on a terminal, unless NO_COLOR is set).
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

/// Declares the list of commands and the function that runs each.
macro_rules! verbs {
    ($($module:ident: $verb:ident($args:ident),)*) => {
        #[derive(Debug, Subcommand)]
        pub(crate) enum Command {
            // Boxed, because some verbs have many options.
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
    snapshot: Snapshot(SnapshotArgs),
    replay: Replay(ReplayArgs),
    diff: Diff(DiffArgs),
    plan: Plan(PlanArgs),
    verify: Verify(VerifyArgs),
    pack: Pack(PackArgs),
    serve: Serve(ServeArgs),
    export: Export(ExportArgs),
    gather: Gather(GatherArgs),
    top: Top(TopArgs),
    exporter: Exporter(ExporterArgs),
    doctor: Doctor(DoctorArgs),
    demo: Demo(DemoArgs),
    unpickle: Unpickle(UnpickleArgs),
    completions: Completions(CompletionsArgs),
    man: Man(ManArgs),
}
