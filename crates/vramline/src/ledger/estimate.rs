//! What lies outside the pools without a recording of driver calls, by what was measured elsewhere with the same driver, device and framework.
//!
//! `measured.json` is written by `make gpu-proof` from recordings with `--driver-trace on`. Other versions are not guessed at. A context always
//! takes the same. Streams, first launches and libraries take the same amount where they take any, so memory whose size matches is named after
//! them. The result is an estimate: something else may have the same size.

use std::sync::LazyLock;

use serde::Deserialize;

use super::{GrowthGroup, LineKind};
use crate::units::Bytes;

/// The page size of the driver. Sizes may differ by one.
const PAGE: i64 = 2 << 20;

/// The most steps of which all combinations are tried.
const MOST_STEPS: usize = 10;

/// What is known about memory outside the pools of a process whose driver calls were not recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OutsideEstimate {
    /// Nothing was looked up.
    #[default]
    None,
    /// Measured with the same versions.
    Measured(&'static MeasuredOutside),
    /// Not measured, and why.
    NotMeasured(String),
}

/// What a driver, a device and a version of a framework take outside the pools.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub struct MeasuredOutside {
    driver: String,
    gpu: String,
    framework: String,
    version: String,
    #[serde(rename = "context_bytes")]
    context: u64,
    steps: Vec<MeasuredStep>,
}

/// What a library takes at once, by NVML.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct MeasuredStep {
    /// The kind of its line, by its word.
    line: String,
    library: String,
    bytes: u64,
}

/// Memory that is named after a library because of its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EstimatedStep {
    /// The kind of the line.
    pub kind: LineKind,
    /// The library.
    pub library: String,
    /// The change that it was; `None` for memory that the process had at the first reading.
    pub growth: Option<GrowthGroup>,
}

impl EstimatedStep {
    /// The line in a sentence: `streams of PyTorch`, `cuBLAS`.
    #[must_use]
    pub fn phrase(&self) -> String {
        match self.kind {
            LineKind::LibraryMemory => self.library.clone(),
            kind => format!("{} of {}", kind.word(), self.library),
        }
    }

    /// The library, the cause of the change, and how it is known.
    #[must_use]
    pub fn detail(&self) -> String {
        let cause = self.growth.as_ref().map_or(String::new(), |growth| format!(", {growth}"));
        format!("{}{cause}, by its size", self.library)
    }
}

static TABLE: LazyLock<Vec<MeasuredOutside>> =
    LazyLock::new(|| serde_json::from_str(include_str!("measured.json")).unwrap_or_default());

impl OutsideEstimate {
    /// Looks up what was measured.
    #[must_use]
    pub fn of(driver: Option<&str>, gpu: Option<&str>, framework: Option<(&str, &str)>) -> OutsideEstimate {
        let (Some(driver), Some(gpu), Some((name, version))) = (driver, gpu, framework) else {
            return OutsideEstimate::None;
        };
        let is_it = |known: &&MeasuredOutside| {
            known.driver == driver && known.gpu == gpu && known.framework == name && known.version == version
        };
        TABLE.iter().find(is_it).map_or_else(
            || {
                OutsideEstimate::NotMeasured(format!(
                    "not split: no context was measured with driver {driver}, {gpu} and {name} {version}"
                ))
            },
            OutsideEstimate::Measured,
        )
    }

    /// What the context takes.
    #[must_use]
    pub fn context(&self) -> Option<Bytes> {
        match self {
            OutsideEstimate::Measured(measured) => Some(Bytes(measured.context)),
            OutsideEstimate::None | OutsideEstimate::NotMeasured(_) => None,
        }
    }

    /// The steps that a process may take, each once.
    pub(super) fn steps(&self) -> OpenSteps {
        let OutsideEstimate::Measured(measured) = self else { return OpenSteps(Vec::new()) };
        let step = |step: &MeasuredStep| {
            let kind = LineKind::of_word(&step.line)?;
            Some(OpenStep { kind, library: step.library.clone(), bytes: i64::try_from(step.bytes).ok()? })
        };
        OpenSteps(measured.steps.iter().filter_map(step).take(MOST_STEPS).collect())
    }
}

/// Steps whose memory has not been found yet.
pub(super) struct OpenSteps(Vec<OpenStep>);

struct OpenStep {
    kind: LineKind,
    library: String,
    bytes: i64,
}

impl OpenSteps {
    /// Names memory of several steps: the only combination that has this size, but for one page. Each step comes with its bytes, which
    /// together are at most `bytes`.
    pub(super) fn take_several(&mut self, bytes: i64) -> Vec<(EstimatedStep, i64)> {
        let sum = |chosen: u32| -> i64 { self.chosen(chosen).map(|step| step.bytes).sum() };
        let all = 1..1_u32 << self.0.len();
        self.take(&all.filter(|&chosen| is_like(sum(chosen), bytes)).collect::<Vec<u32>>(), bytes)
    }

    /// Names a change: the only step that has this size, but for one page.
    pub(super) fn take_one(&mut self, bytes: i64) -> Option<(EstimatedStep, i64)> {
        let like = self.0.iter().enumerate().filter(|(_, step)| is_like(step.bytes, bytes));
        let like: Vec<u32> = like.map(|(place, _)| 1 << place).collect();
        self.take(&like, bytes).pop()
    }

    fn chosen(&self, chosen: u32) -> impl Iterator<Item = &OpenStep> {
        self.0.iter().enumerate().filter(move |(place, _)| chosen >> place & 1 == 1).map(|(_, step)| step)
    }

    fn take(&mut self, candidates: &[u32], bytes: i64) -> Vec<(EstimatedStep, i64)> {
        // Several would be a guess.
        let &[chosen] = candidates else { return Vec::new() };
        let mut left = bytes;
        let mut named = Vec::new();
        for step in self.chosen(chosen) {
            // Only the last may have less than was measured.
            let size = step.bytes.min(left);
            left -= size;
            named
                .push((EstimatedStep { kind: step.kind, library: step.library.clone(), growth: None }, size));
        }
        let mut places = chosen;
        self.0.retain(|_| {
            let is_left = places & 1 == 0;
            places >>= 1;
            is_left
        });
        named
    }
}

fn is_like(measured: i64, bytes: i64) -> bool {
    (measured - bytes).abs() <= PAGE
}
