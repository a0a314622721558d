//! The frameworks that are installed, and whether they can use a GPU.

use std::fmt;

use super::look::{DeepLook, PythonLook};
use crate::event::Framework;

/// The distributions that bring TensorFlow.
const TENSORFLOW_PACKAGES: [&str; 4] = ["tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly"];

/// A framework that is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameworkSupport {
    /// Which framework.
    pub framework: Framework,
    /// Its version.
    pub version: String,
    /// What tells whether it can use a GPU.
    pub evidence: GpuEvidence,
}

impl FrameworkSupport {
    /// The framework's name, as people write it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.framework.title()
    }

    /// Whether it can use a GPU; `None` where that is not certain.
    #[must_use]
    pub fn gpu(&self) -> Option<bool> {
        self.evidence.gpu()
    }
}

/// What tells whether a framework can use a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuEvidence {
    /// The distribution is `tensorflow-cpu`.
    TensorFlowForCpu,
    /// NVIDIA's libraries are installed beside TensorFlow.
    LibrariesFound {
        /// TensorFlow's distribution.
        package: &'static str,
    },
    /// NVIDIA's libraries are not installed beside TensorFlow; the machine may have its own.
    LibrariesMissing {
        /// TensorFlow's distribution.
        package: &'static str,
    },
    /// JAX's plugin for CUDA is installed.
    PluginFound,
    /// JAX's plugin for CUDA is not installed.
    PluginMissing,
    /// A version of PyTorch that was built for the CPU.
    CpuBuild,
    /// A version of PyTorch that was built for CUDA.
    CudaBuild,
    /// A version of PyTorch that does not show which device it was built for.
    UnmarkedBuild,
    /// The framework failed when it was imported.
    AskingFailed {
        /// What it said.
        error: String,
    },
    /// The framework says that it was built without support for GPUs.
    BuiltWithout,
    /// The number of GPUs that the framework sees.
    GpusSeen(u32),
    /// The framework does not report its GPUs.
    NoAnswer,
}

impl GpuEvidence {
    /// Whether the framework can use a GPU; `None` where that is not certain.
    #[must_use]
    pub fn gpu(&self) -> Option<bool> {
        match self {
            GpuEvidence::PluginFound | GpuEvidence::CudaBuild => Some(true),
            GpuEvidence::TensorFlowForCpu
            | GpuEvidence::PluginMissing
            | GpuEvidence::CpuBuild
            | GpuEvidence::BuiltWithout => Some(false),
            GpuEvidence::GpusSeen(count) => Some(*count > 0),
            GpuEvidence::LibrariesFound { .. }
            | GpuEvidence::LibrariesMissing { .. }
            | GpuEvidence::UnmarkedBuild
            | GpuEvidence::AskingFailed { .. }
            | GpuEvidence::NoAnswer => None,
        }
    }

    /// What a framework said when it was imported.
    fn of_deep_look(look: &DeepLook) -> GpuEvidence {
        match (&look.error, look.is_built, look.gpus) {
            (Some(error), ..) => GpuEvidence::AskingFailed { error: error.clone() },
            (None, Some(false), _) => GpuEvidence::BuiltWithout,
            (None, _, Some(count)) => GpuEvidence::GpusSeen(count),
            (None, _, None) => GpuEvidence::NoAnswer,
        }
    }
}

impl fmt::Display for GpuEvidence {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GpuEvidence::TensorFlowForCpu => out.write_str("tensorflow-cpu is built without GPU support"),
            GpuEvidence::LibrariesFound { package } => {
                write!(out, "{package} is installed with NVIDIA's libraries")
            }
            GpuEvidence::LibrariesMissing { package } => {
                write!(out, "{package} is installed without NVIDIA's libraries; it needs CUDA on the machine")
            }
            GpuEvidence::PluginFound => out.write_str("JAX's CUDA plugin is installed"),
            GpuEvidence::PluginMissing => out.write_str("JAX's CUDA plugin is not installed"),
            GpuEvidence::CpuBuild => out.write_str("this is a CPU build"),
            GpuEvidence::CudaBuild => out.write_str("this is a CUDA build"),
            GpuEvidence::UnmarkedBuild => {
                out.write_str("its version does not show which device it was built for")
            }
            GpuEvidence::AskingFailed { error } => write!(out, "importing it failed: {error}"),
            GpuEvidence::BuiltWithout => out.write_str("it was built without GPU support"),
            GpuEvidence::GpusSeen(0) => out.write_str("it sees no GPU"),
            GpuEvidence::GpusSeen(1) => out.write_str("it sees 1 GPU"),
            GpuEvidence::GpusSeen(count) => write!(out, "it sees {count} GPUs"),
            GpuEvidence::NoAnswer => out.write_str("it does not report its GPUs"),
        }
    }
}

/// The frameworks that a Python has. What a framework says itself counts more than its distribution.
pub(super) fn frameworks(python: &PythonLook) -> Vec<FrameworkSupport> {
    let all = [tensorflow(python), jax(python), torch(python)];
    let mut installed: Vec<FrameworkSupport> = all.into_iter().flatten().collect();
    for support in &mut installed {
        let module = match support.framework {
            Framework::PyTorch => "torch",
            other => other.word(),
        };
        if let Some(look) = python.deep.get(module) {
            support.evidence = GpuEvidence::of_deep_look(look);
        }
    }
    installed
}

fn tensorflow(python: &PythonLook) -> Option<FrameworkSupport> {
    let version_of = |package: &'static str| Some((package, python.packages.get(package)?));
    let (package, version) = TENSORFLOW_PACKAGES.into_iter().find_map(version_of)?;
    let evidence = if package == "tensorflow-cpu" {
        GpuEvidence::TensorFlowForCpu
    } else if has_package(python, "nvidia-cudnn") {
        GpuEvidence::LibrariesFound { package }
    } else {
        GpuEvidence::LibrariesMissing { package }
    };
    Some(FrameworkSupport { framework: Framework::TensorFlow, version: version.clone(), evidence })
}

fn jax(python: &PythonLook) -> Option<FrameworkSupport> {
    let version = python.packages.get("jax")?.clone();
    let has_plugin = has_package(python, "jax-cuda");
    let evidence = if has_plugin { GpuEvidence::PluginFound } else { GpuEvidence::PluginMissing };
    Some(FrameworkSupport { framework: Framework::Jax, version, evidence })
}

fn torch(python: &PythonLook) -> Option<FrameworkSupport> {
    let version = python.packages.get("torch")?.clone();
    let evidence = if version.contains("+cpu") {
        GpuEvidence::CpuBuild
    } else if version.contains("+cu") || has_package(python, "nvidia-cudnn") {
        GpuEvidence::CudaBuild
    } else {
        GpuEvidence::UnmarkedBuild
    };
    Some(FrameworkSupport { framework: Framework::PyTorch, version, evidence })
}

/// Whether a distribution is installed whose name begins so.
fn has_package(python: &PythonLook, prefix: &str) -> bool {
    python.packages.keys().any(|name| name.starts_with(prefix))
}
