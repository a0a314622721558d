//! What a CUDA context takes without a recording of driver calls: measured elsewhere, with the same driver, device and framework.
//!
//! `contexts.json` is written by `make gpu-proof` from recordings with `--driver-trace on`. Other versions are not guessed at.

use std::sync::LazyLock;

use serde::Deserialize;

use crate::units::Bytes;

/// What is known about the context of a process whose driver calls were not recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ContextEstimate {
    /// Nothing was looked up.
    #[default]
    None,
    /// Measured with the same versions.
    Measured(Bytes),
    /// Not measured, and why.
    NotMeasured(String),
}

/// A line of the table.
#[derive(Debug, Deserialize)]
struct MeasuredContext {
    driver: String,
    gpu: String,
    framework: String,
    version: String,
    context_bytes: u64,
}

static TABLE: LazyLock<Vec<MeasuredContext>> =
    LazyLock::new(|| serde_json::from_str(include_str!("contexts.json")).unwrap_or_default());

impl ContextEstimate {
    /// Looks up the context of a process.
    #[must_use]
    pub fn of(driver: Option<&str>, gpu: Option<&str>, framework: Option<(&str, &str)>) -> ContextEstimate {
        let (Some(driver), Some(gpu), Some((name, version))) = (driver, gpu, framework) else {
            return ContextEstimate::None;
        };
        let is_it = |known: &&MeasuredContext| {
            known.driver == driver && known.gpu == gpu && known.framework == name && known.version == version
        };
        TABLE.iter().find(is_it).map_or_else(
            || {
                ContextEstimate::NotMeasured(format!(
                    "not split: no context was measured with driver {driver}, {gpu} and {name} {version}"
                ))
            },
            |known| ContextEstimate::Measured(Bytes(known.context_bytes)),
        )
    }
}
