//! Which allocator a pool is: by framework, version and name, and where these leave a choice, by what the trace shows.

use crate::allocator::bfc::Preset;
use crate::event::Framework;

/// A version as `major.minor`.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split(['.', '-', '+']).map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

/// The presets that a pool may have, likeliest first; none where its allocator is no BFC.
#[must_use]
pub fn candidates(framework: Option<Framework>, told: Option<&str>, pool: &str) -> Vec<Preset> {
    // These are the driver's pools, or none at all.
    if !pool.contains("bfc") {
        return Vec::new();
    }
    let told = told.and_then(version);
    let is_host = pool.contains("cpu") || pool.contains("host");
    let names: &[&str] = match framework {
        Some(Framework::Jax) if is_host => &["jax-0.11-host", "jax-0.4-growth"],
        Some(Framework::Jax) => match told {
            Some(told) if told >= (0, 11) => &["jax-0.11-preallocated", "jax-0.11-growth"],
            Some(told) if told < (0, 10) => &["jax-0.4-preallocated", "jax-0.4-growth"],
            _ => &["jax-0.11-preallocated", "jax-0.11-growth", "jax-0.4-preallocated", "jax-0.4-growth"],
        },
        Some(Framework::PyTorch) => &[],
        Some(Framework::TensorFlow) | None => match (told, is_host) {
            (Some(told), true) if told < (2, 17) => &["tensorflow-2.15-cpu"],
            (Some(told), true) if told < (2, 21) => &["tensorflow-2.17-cpu"],
            (_, true) => &["tensorflow-2.21-cpu"],
            (Some(told), false) if told < (2, 17) => &["tensorflow-2.15-gpu", "tensorflow-2.15-gpu-growth"],
            (Some(told), false) if told < (2, 21) => &["tensorflow-2.17-gpu", "tensorflow-2.17-gpu-growth"],
            (_, false) => &["tensorflow-2.21-gpu", "tensorflow-2.21-gpu-growth"],
        },
    };
    names.iter().filter_map(|name| Preset::named(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framework_version_and_name_choose() {
        let first =
            |framework, told, pool| candidates(framework, told, pool).first().map(|preset| preset.name);
        let tensorflow = Some(Framework::TensorFlow);
        assert_eq!(first(tensorflow, None, "bfc_cpu_allocator_for_gpu"), Some("tensorflow-2.21-cpu"));
        assert_eq!(first(tensorflow, Some("2.15.1"), "GPU_0_bfc"), Some("tensorflow-2.15-gpu"));
        assert_eq!(first(tensorflow, Some("2.18.0-rc1"), "GPU_0_bfc"), Some("tensorflow-2.17-gpu"));
        assert_eq!(first(Some(Framework::Jax), Some("0.4.38"), "GPU_0_bfc"), Some("jax-0.4-preallocated"));
        assert_eq!(candidates(Some(Framework::Jax), None, "GPU_0_bfc").len(), 4);
        assert_eq!(first(Some(Framework::Jax), Some("0.11.2"), "xla_gpu_host_bfc"), Some("jax-0.11-host"));
        assert_eq!(first(tensorflow, None, "mklcpu"), None);
        assert_eq!(first(tensorflow, None, "gpu_async_0"), None);
    }
}
