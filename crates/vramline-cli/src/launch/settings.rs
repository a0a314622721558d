//! What a user may ask of `vramline run`: values, which of them exclude each other, and how they are recorded.
//!
//! What they do to the job's environment is in `environment`.

use std::fmt;
use std::str::FromStr;

use vramline::recording::manifest::{self, StandIn};
use vramline::units::Bytes;

use crate::cli::{Allocator, RunArgs, Switch};
use crate::exit::{Hinted, refusal};

/// How much of the job's allocations is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trace {
    Auto,
    Off,
    Steps(u32),
    All,
}

impl FromStr for Trace {
    type Err = String;

    fn from_str(text: &str) -> Result<Trace, String> {
        match text {
            "auto" => Ok(Trace::Auto),
            "off" => Ok(Trace::Off),
            "all" => Ok(Trace::All),
            _ => text
                .strip_prefix("steps=")
                .and_then(|steps| steps.parse().ok())
                .filter(|&steps| steps > 0)
                .map(Trace::Steps)
                .ok_or_else(|| "expected auto, off, all, or steps=N with N from 1 on".to_owned()),
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trace::Auto => out.write_str("auto"),
            Trace::Off => out.write_str("off"),
            Trace::Steps(steps) => write!(out, "steps={steps}"),
            Trace::All => out.write_str("all"),
        }
    }
}

/// Samples a second.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=1000.0).contains(rate));
    rate.ok_or_else(|| "expected samples a second, from 0 (off) to 1000".to_owned())
}

/// Looks a second.
pub(crate) fn looks(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.1..=20.0).contains(rate));
    rate.ok_or_else(|| "expected looks a second, from 0.1 to 20".to_owned())
}

/// The devices that a job may use; empty for none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gpus(Vec<String>);

impl Gpus {
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// What CUDA takes. An empty list hides all devices too, but an empty variable gets lost on the way through scripts.
    pub(crate) fn variable(&self) -> String {
        if self.is_none() { "-1".to_owned() } else { self.0.join(",") }
    }
}

impl FromStr for Gpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Gpus, String> {
        if text == "none" {
            return Ok(Gpus(Vec::new()));
        }
        let mut gpus: Vec<String> = Vec::new();
        for gpu in text.split(',').map(str::trim) {
            let is_number = !gpu.is_empty() && gpu.bytes().all(|digit| digit.is_ascii_digit());
            if !is_number && !gpu.starts_with("GPU-") && !gpu.starts_with("MIG-") {
                return Err("expected none, or a list such as 0,1 or GPU-8c5a...".to_owned());
            }
            // CUDA would silently drop the list from a device that stands there twice.
            if gpus.iter().any(|known| known == gpu) {
                return Err(format!("{gpu} is named twice"));
            }
            gpus.push(gpu.to_owned());
        }
        Ok(Gpus(gpus))
    }
}

impl fmt::Display for Gpus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_none() { out.write_str("none") } else { out.write_str(&self.0.join(",")) }
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_and_told_alike() {
        for text in ["auto", "off", "all", "steps=1", "steps=250"] {
            assert_eq!(text.parse::<Trace>().unwrap().to_string(), text);
        }
        for text in ["none", "0", "0,1", "GPU-8c5a,MIG-77"] {
            assert_eq!(text.parse::<Gpus>().unwrap().to_string(), text);
        }
        assert_eq!("1, 0".parse::<Gpus>().unwrap().variable(), "1,0");
        assert_eq!("none".parse::<Gpus>().unwrap().variable(), "-1");
    }

    #[test]
    fn other_values_are_refused() {
        for text in ["", "steps", "steps=", "steps=0", "steps=-1", "Auto"] {
            assert!(text.parse::<Trace>().is_err(), "{text}");
        }
        for text in ["", "0,", "-1", "0,0", "all", "0;1", "None"] {
            assert!(text.parse::<Gpus>().is_err(), "{text}");
        }
        for text in ["", "-1", "nan", "inf", "1001", "fast"] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert_eq!(rate("0.5"), Ok(0.5));
    }
}
