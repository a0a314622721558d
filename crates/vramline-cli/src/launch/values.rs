//! The values of job settings: how each is parsed and shown.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use clap::ValueEnum;

/// Environment variables by name. Bytes that are not UTF-8 are replaced; no variable that is compared or recorded has any.
pub(crate) type Variables = BTreeMap<String, String>;

/// Which steps of the job are traced.
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
                .ok_or_else(|| "expected auto, off, all, or steps=N with N of at least 1".to_owned()),
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

/// When a job is ended before its program ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// When its trace ends.
    AfterTrace,
    /// After so many training steps.
    AfterSteps(u32),
}

impl Stop {
    /// The number of training steps, if that is what ends the job.
    pub(crate) fn steps(self) -> Option<u32> {
        match self {
            Stop::AfterTrace => None,
            Stop::AfterSteps(steps) => Some(steps),
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Stop::AfterTrace => out.write_str("trace"),
            Stop::AfterSteps(steps) => write!(out, "{steps}"),
        }
    }
}

/// The GPUs that a job may use; an empty list hides all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gpus(Vec<String>);

impl Gpus {
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The first GPU number that does not exist on a machine with this number of devices.
    pub(crate) fn beyond(&self, devices: usize) -> Option<&str> {
        self.0
            .iter()
            .map(String::as_str)
            .find(|gpu| gpu.parse::<usize>().is_ok_and(|number| number >= devices))
    }

    /// The value of `CUDA_VISIBLE_DEVICES`. An empty value would hide all devices too, but scripts often drop empty variables.
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
            // CUDA silently ignores the rest of the list after a repeated device.
            if gpus.iter().any(|known| known == gpu) {
                return Err(format!("GPU {gpu} is listed twice"));
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

/// A setting that is on or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

impl Switch {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Switch::On => "on",
            Switch::Off => "off",
        }
    }
}

/// Whether PyTorch's allocator records live blocks after the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum UntilOom {
    /// Yes if the job is traced; without call stacks if these would take more than 1 % of the time.
    Auto,
    /// Yes, with call stacks, also without a trace.
    On,
    /// No: nothing goes on after the trace.
    Off,
}

impl UntilOom {
    pub(crate) fn word(self) -> &'static str {
        match self {
            UntilOom::Auto => "auto",
            UntilOom::On => "on",
            UntilOom::Off => "off",
        }
    }
}

/// Whether a recording is written to a local folder first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LocalFirst {
    /// If the file system of the recording needs it.
    Auto,
    /// Yes.
    On,
    /// No.
    Off,
}

/// Whether calls of NVIDIA's driver are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DriverTraceMode {
    /// Off in this version.
    Auto,
    /// Recorded.
    On,
    /// Not recorded.
    Off,
}

/// How the framework gets memory from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Allocator {
    /// The framework's own pool.
    Default,
    /// CUDA's asynchronous pool (cudaMallocAsync).
    Async,
    /// No pool: every request goes to the driver (JAX only).
    Platform,
    /// The framework's own pool with expandable segments (PyTorch only).
    Expandable,
}

impl Allocator {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Allocator::Default => "default",
            Allocator::Async => "async",
            Allocator::Platform => "platform",
            Allocator::Expandable => "expandable",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_parsed_and_shown_alike() {
        for text in ["auto", "off", "all", "steps=1", "steps=250"] {
            assert_eq!(text.parse::<Trace>().unwrap().to_string(), text);
        }
        for text in ["none", "0", "0,1", "GPU-8c5a,MIG-77"] {
            assert_eq!(text.parse::<Gpus>().unwrap().to_string(), text);
        }
        assert_eq!("1, 0".parse::<Gpus>().unwrap().variable(), "1,0");
        assert_eq!("none".parse::<Gpus>().unwrap().variable(), "-1");
        assert_eq!("0,7,GPU-8c5a".parse::<Gpus>().unwrap().beyond(2), Some("7"));
        assert_eq!("0,1,GPU-8c5a".parse::<Gpus>().unwrap().beyond(2), None);
    }

    #[test]
    fn other_values_are_refused() {
        for text in ["", "steps", "steps=", "steps=0", "steps=-1", "Auto"] {
            assert!(text.parse::<Trace>().is_err(), "{text}");
        }
        for text in ["", "0,", "-1", "0,0", "all", "0;1", "None"] {
            assert!(text.parse::<Gpus>().is_err(), "{text}");
        }
    }
}
