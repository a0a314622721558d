//! Lists the NVIDIA devices of the machine without the driver's library.

use std::path::Path;

use vramline::recording::manifest::Device;

/// The devices that the kernel lists in the files under `root` (`/`).
pub(crate) fn devices(root: &Path) -> Vec<Device> {
    let mut listed: Vec<_> = entries(&root.join("proc/driver/nvidia/gpus"));
    listed.sort();
    if !listed.is_empty() {
        let information = |name: &String| root.join("proc/driver/nvidia/gpus").join(name).join("information");
        return listed
            .iter()
            .map(|name| Device {
                name: std::fs::read_to_string(information(name)).ok().as_deref().and_then(model),
                ..Device::default()
            })
            .collect();
    }
    let is_device = |name: &String| {
        name.strip_prefix("nvidia")
            .is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
    };
    let files = entries(&root.join("dev")).into_iter().filter(is_device).count();
    // Under WSL one file stands for all devices.
    let is_wsl = root.join("dev/dxg").exists() && root.join("usr/lib/wsl/lib/libcuda.so.1").exists();
    vec![Device::default(); files.max(usize::from(is_wsl))]
}

fn entries(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// The text after `Model:`.
fn model(information: &str) -> Option<String> {
    let line = information.lines().find_map(|line| line.strip_prefix("Model:"))?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    fn names(files: &[(&str, &str)]) -> Vec<Option<String>> {
        devices(root(files).path()).into_iter().map(|device| device.name).collect()
    }

    #[test]
    fn models_come_from_the_driver() {
        let h200 = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 90\nGPU UUID: \t GPU-1\n";
        let found = names(&[
            ("proc/driver/nvidia/gpus/0000:1b:00.0/information", h200),
            ("proc/driver/nvidia/gpus/0000:0a:00.0/information", "Model:\n"),
            ("dev/nvidia0", ""),
        ]);
        assert_eq!(found, [None, Some("NVIDIA H200".to_owned())]);
    }

    #[test]
    fn device_files_are_counted() {
        assert_eq!(
            names(&[
                ("dev/nvidia0", ""),
                ("dev/nvidia12", ""),
                ("dev/nvidiactl", ""),
                ("dev/nvidia-uvm", "")
            ])
            .len(),
            2
        );
        assert_eq!(names(&[("dev/dxg", ""), ("usr/lib/wsl/lib/libcuda.so.1", "")]).len(), 1);
        assert!(names(&[("dev/nvidiactl", ""), ("dev/nvidia", ""), ("dev/dxg", "")]).is_empty());
        assert!(names(&[]).is_empty());
    }
}
