//! What a user may ask of `vramline run`: which settings exclude each other, and how they are recorded.
//!
//! The values themselves are in `cli`; what they do to the job's environment is in `environment`.

use vramline::recording::manifest::{self, StandIn};
use vramline::units::Bytes;

use crate::cli::values::Gpus;
use crate::cli::{Allocator, RunArgs, Switch};
use crate::exit::{Hinted, refusal};

/// Refuses options that exclude each other, whatever the machine and the environment are.
pub(crate) fn check(args: &RunArgs) -> Result<(), Hinted> {
    let hides_gpus = args.gpus.as_ref().is_some_and(Gpus::is_none);
    let own_pool = matches!(args.allocator, Some(Allocator::Async | Allocator::Platform));
    let allocator = args.allocator.map_or("", Allocator::word);
    if let Some(limit) = args.limit {
        if limit < MIB {
            return Err(refusal(
                format!("--limit is {limit}, and pools are limited in whole MiB"),
                "give at least 1MiB, and a unit: --limit 8GiB",
            ));
        }
        if args.growth == Some(Switch::On) {
            return Err(refusal(
                "--limit contradicts --growth on: TensorFlow does not combine memory growth with a limit",
                "leave --growth out: the limit alone keeps the rest of the GPU free",
            ));
        }
        if own_pool {
            return Err(refusal(
                format!(
                    "--limit contradicts --allocator {allocator}, which has no pool that a limit would bound"
                ),
                "leave one of them out",
            ));
        }
        if hides_gpus && args.no_stand_in {
            return Err(refusal(
                "--limit has nothing to limit with --gpus none and --no-stand-in",
                "leave --no-stand-in out: the limit then holds for TensorFlow's pool on the CPU",
            ));
        }
    }
    if args.growth == Some(Switch::Off) && own_pool {
        return Err(refusal(
            format!("--growth off contradicts --allocator {allocator}, which takes memory as it is needed"),
            "leave one of them out",
        ));
    }
    if hides_gpus && (args.growth.is_some() || args.allocator.is_some()) {
        let option = if args.growth.is_some() { "--growth" } else { "--allocator" };
        return Err(refusal(
            format!("{option} is about a GPU's memory, and --gpus none leaves no GPU"),
            format!("leave {option} or --gpus none out"),
        ));
    }
    Ok(())
}

pub(crate) const MIB: Bytes = Bytes(1 << 20);

/// The settings as a recording tells them.
pub(crate) fn recorded(args: &RunArgs, stand_in: StandIn) -> manifest::Settings {
    manifest::Settings {
        trace: args.trace.to_string(),
        trace_seconds: args.trace_seconds,
        rate: args.rate,
        step_peaks: args.step_peaks,
        gpus: args.gpus.as_ref().map(Gpus::to_string),
        growth: args.growth.map(|growth| growth == Switch::On),
        limit_bytes: args.limit,
        allocator: args.allocator.map(|allocator| allocator.word().to_owned()),
        stand_in,
    }
}
