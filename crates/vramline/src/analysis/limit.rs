//! Who set the limit of a pool. A default that no memory backs is no limit: nothing is measured against it.

use super::reading::Reading;
use super::report::PoolAnalysis;
use crate::recording::manifest::RunManifest;
use crate::units::Bytes;

/// The default of TensorFlow and XLA for pools in host memory, whatever the machine has: TensorFlow's on the CPU, and those of pinned memory.
const BUILT_IN_ON_HOST: Bytes = Bytes(64 << 30);

/// Limits are set in whole ones.
const MIB: u64 = 1 << 20;

/// Who set the limit of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSetter {
    /// Nobody: it is the framework's built-in default for a pool in host memory, such as TensorFlow's on the CPU.
    BuiltIn,
    /// `TF_CPU_BFC_MEM_LIMIT_IN_MB`, which alone sets another limit of the pool on the CPU.
    Environment,
    /// `vramline run --limit`.
    Run,
    /// The framework has it, and nothing tells who set it: a share of the device, a logical device, a call of the program.
    Framework,
}

words!(LimitSetter {
    BuiltIn => "built-in",
    Environment => "environment",
    Run => "run",
    Framework => "framework",
});

impl LimitSetter {
    /// Who set the limit of a pool on a device.
    fn of(device: &str, limit: Bytes, run: Option<&RunManifest>) -> LimitSetter {
        let asked = run.and_then(|run| run.settings.limit_bytes);
        // Frameworks take a limit in whole MiB or as a share of the device: it is no more than what was asked for, and little less.
        let is_asked = |asked: Bytes| {
            limit <= asked && limit.0 >= asked.0.saturating_sub(asked.0 / 100).saturating_sub(MIB)
        };
        if asked.is_some_and(is_asked) {
            return LimitSetter::Run;
        }
        let is_cpu = device.starts_with("CPU");
        if limit == BUILT_IN_ON_HOST && (is_cpu || device == "HOST") {
            LimitSetter::BuiltIn
        } else if is_cpu {
            LimitSetter::Environment
        } else {
            LimitSetter::Framework
        }
    }
}

/// Whether a limit is a framework's default that no memory backs.
pub(super) fn is_built_in(device: &str, limit: Bytes, run: Option<&RunManifest>) -> bool {
    LimitSetter::of(device, limit, run) == LimitSetter::BuiltIn
}

/// Says of every pool whose limit is known who set it.
pub(super) fn name_setters(pools: &mut [PoolAnalysis], reading: &Reading) {
    let run = reading.recorded.as_ref().and_then(|recorded| recorded.manifest.as_ref());
    for pool in pools {
        pool.limit_by = pool.limit.map(|limit| LimitSetter::of(&pool.device, limit, run));
    }
}
