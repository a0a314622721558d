//! The name of a pool, what it says about the device, and what a source says about the device itself.

use crate::units::Bytes;

/// Who made a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    /// AMD: ROCm and HIP.
    Amd,
    /// NVIDIA: CUDA.
    Nvidia,
}

words!(Vendor { Amd => "AMD", Nvidia => "NVIDIA" });

impl Vendor {
    /// As a profiler writes it.
    #[must_use]
    pub(crate) fn told(name: &str) -> Option<Vendor> {
        Vendor::ALL.into_iter().find(|vendor| vendor.word().eq_ignore_ascii_case(name.trim()))
    }
}

/// What a profiler reports about a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hardware {
    /// The device, as `GPU:0`.
    pub device: String,
    /// Who made it.
    pub vendor: Option<Vendor>,
    /// The compute capability, major and minor; of AMD the first two digits of the architecture, as 9 and 4 for gfx942.
    pub compute: Option<(u64, u64)>,
    /// All its memory.
    pub memory: Option<Bytes>,
}

/// The name of a pool without what follows the zero byte with which some versions of TensorFlow end it.
#[must_use]
pub(crate) fn pool_name(told: &str) -> String {
    told.split('\0').next().unwrap_or_default().to_owned()
}

/// The device that a pool is on, by the name the frameworks give it; empty where that does not tell.
#[must_use]
pub(crate) fn device_of(pool: &str) -> String {
    if pool.contains("host") {
        return "HOST".to_owned();
    }
    let number = |rest: &str| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        (!digits.is_empty()).then_some(digits)
    };
    if let Some(ordinal) =
        pool.strip_prefix("GPU_").or_else(|| pool.strip_prefix("gpu_async_")).and_then(number)
    {
        return format!("GPU:{ordinal}");
    }
    // CUDA is NVIDIA's, ROCm and HIP are AMD's; `gpu` was JAX's word for both.
    let gpu = ["cuda:", "rocm:", "hip:", "gpu:"].into_iter().find_map(|kind| pool.strip_prefix(kind));
    if let Some(ordinal) = gpu.and_then(number) {
        return format!("GPU:{ordinal}");
    }
    let tpu = ["TPU:", "tpu:", "TPU_"].into_iter().find_map(|kind| pool.strip_prefix(kind));
    if let Some(ordinal) = tpu.and_then(number) {
        return format!("TPU:{ordinal}");
    }
    if pool.contains("cpu") {
        return "CPU:0".to_owned();
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_named_up_to_its_zero_byte() {
        for told in ["GPU_0_bfc", "GPU_0_bfc\0", "GPU_0_bfc\0\u{1}"] {
            assert_eq!(pool_name(told), "GPU_0_bfc");
        }
        assert_eq!(pool_name(""), "");
    }

    #[test]
    fn a_name_tells_its_device_or_nothing() {
        for (pool, device) in [
            ("GPU_0_bfc", "GPU:0"),
            ("gpu_async_1", "GPU:1"),
            ("cuda:12", "GPU:12"),
            ("rocm:1", "GPU:1"),
            ("gpu:0", "GPU:0"),
            ("TPU:3", "TPU:3"),
            ("TPU_5(process=0,(1,0,0,1))", "TPU:5"),
            ("TPU:", ""),
            ("gpu_host_bfc", "HOST"),
            ("bfc_cpu_allocator_for_gpu", "CPU:0"),
            ("GPU_", ""),
            ("", ""),
        ] {
            assert_eq!(device_of(pool), device, "{pool}");
        }
    }
}
