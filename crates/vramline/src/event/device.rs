//! What a pool's name tells of its device.

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
    if let Some(ordinal) = pool.strip_prefix("cuda:").and_then(number) {
        return format!("GPU:{ordinal}");
    }
    if pool.starts_with("TPU:") {
        return pool.to_owned();
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
    fn a_name_tells_its_device_or_nothing() {
        for (pool, device) in [
            ("GPU_0_bfc", "GPU:0"),
            ("gpu_async_1", "GPU:1"),
            ("cuda:12", "GPU:12"),
            ("TPU:3", "TPU:3"),
            ("gpu_host_bfc", "HOST"),
            ("bfc_cpu_allocator_for_gpu", "CPU:0"),
            ("GPU_", ""),
            ("", ""),
        ] {
            assert_eq!(device_of(pool), device, "{pool}");
        }
    }
}
