//! Finds the Python package `vramline`, whose `_boot` folder is loaded inside the job. The package is not imported here.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::variables::PACKAGE;

/// The file that identifies the package.
const BOOT: &str = "_boot/sitecustomize.py";

/// Prints where the package is, without importing it. Ignores a folder of that name in the current folder.
const QUESTION: &str = "import sys; sys.path[:] = [p for p in sys.path if p]; import importlib.util as u; \
                        print(u.find_spec('vramline').submodule_search_locations[0])";

/// The folder to put first on Python's path, or the reason why there is none.
pub(crate) fn boot() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(PACKAGE).filter(|path| !path.is_empty()) {
        let named = std::path::absolute(&named).unwrap_or(named.into());
        return boot_of(&named)
            .ok_or_else(|| format!("{PACKAGE} is '{}', which does not contain {BOOT}", named.display()));
    }
    std::env::current_exe()
        .ok()
        .and_then(|executable| beside(&executable))
        .or_else(asked_of_python)
        .ok_or_else(|| "the Python package vramline is not installed (pip install vramline)".to_owned())
}

/// `<prefix>/bin/vramline` belongs to `<prefix>/lib/python3.12/site-packages/vramline`; with `pip --target`,
/// `<target>/bin/vramline` belongs to `<target>/vramline`.
fn beside(executable: &Path) -> Option<PathBuf> {
    let bin = executable.parent().filter(|bin| bin.ends_with("bin"))?;
    let prefix = bin.parent()?;
    let mut pythons: Vec<PathBuf> = ["lib", "lib64", "local/lib"]
        .iter()
        .flat_map(|lib| std::fs::read_dir(prefix.join(lib)).into_iter().flatten().flatten())
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .map(|entry| entry.path())
        .collect();
    pythons.sort();
    let installed = pythons.iter().flat_map(|python| {
        ["site-packages", "dist-packages"].map(|packages| python.join(packages).join("vramline"))
    });
    installed.chain([prefix.join("vramline")]).find_map(|package| boot_of(&package))
}

/// Asks `python3`. Starting Python takes time, so this is the last resort.
fn asked_of_python() -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    let mut python = Command::new("python3");
    python.args(["-c", QUESTION]).stdin(Stdio::null()).stderr(Stdio::null());
    let output = python.output().ok().filter(|output| output.status.success())?;
    let line = output.stdout.strip_suffix(b"\n")?;
    boot_of(Path::new(&OsString::from_vec(line.to_vec())))
}

fn boot_of(package: &Path) -> Option<PathBuf> {
    let boot = package.join(BOOT);
    boot.is_file().then(|| boot.parent().map(Path::to_owned)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_lies_beside_the_binary() {
        for place in [
            "lib/python3.12/site-packages",
            "local/lib/python3.10/dist-packages",
            "lib64/python3/dist-packages",
            "",
        ] {
            let prefix = tempfile::tempdir().unwrap();
            let boot = prefix.path().join(place).join("vramline/_boot");
            let executable = prefix.path().join("bin/vramline");
            assert_eq!(beside(&executable), None);
            std::fs::create_dir_all(&boot).unwrap();
            assert_eq!(beside(&executable), None, "an empty folder is no package");
            std::fs::write(boot.join("sitecustomize.py"), "").unwrap();
            assert_eq!(beside(&executable), Some(boot), "{place}");
            assert_eq!(beside(&prefix.path().join("debug/vramline")), None);
        }
    }
}
