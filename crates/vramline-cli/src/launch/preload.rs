//! The library that records calls of NVIDIA's driver inside the job (`crates/vramline-driver`): where it is, and whether it can work.
//!
//! The loader would ignore it, or even refuse to start the job, in a program with another C library. So the program is looked at first.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::launch::spec::JobSpec;
use crate::launch::values::DriverTraceMode;
use crate::variables::PATH;

/// Its name in the package.
const LIBRARY: &str = "libvramline_driver.so";

/// As much of a program as is looked at: the headers are at its beginning.
const START: u64 = 4096;

/// Scripts name their interpreter; an interpreter may be a script again.
const MOST_SCRIPTS: usize = 4;

/// What `--driver-trace auto` means for a job on a machine with an NVIDIA GPU. It may become true when each supported framework has run under the
/// library on a GPU and the bars of `tests/gpu/driver_cost.py` are met. TensorFlow has not. Change with it: the help of `DriverTraceMode::Auto`
/// and the section "Why it is off by default" of `docs/how-to/driver-trace.md`.
const AUTO_RECORDS: bool = false;

/// The library to preload; nothing where it is not asked for. The error says why it cannot work.
pub(crate) fn of(
    spec: &JobSpec<'_>,
    boot: Option<&Path>,
    has_device: bool,
) -> Result<Option<PathBuf>, String> {
    let is_wanted = match spec.driver_trace {
        DriverTraceMode::On => true,
        DriverTraceMode::Off => false,
        DriverTraceMode::Auto => AUTO_RECORDS && has_device,
    };
    if !is_wanted {
        return Ok(None);
    }
    let library = found(boot)?;
    let path = spec.command.first().map(OsString::as_os_str).unwrap_or_default();
    // A program that is not found is an error of its own, later.
    if let Some(program) = program(path) {
        can_preload(&program)?;
    }
    Ok(Some(library))
}

/// Beside the package, else beside the binary, as a build leaves it.
fn found(boot: Option<&Path>) -> Result<PathBuf, String> {
    if !cfg!(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")) {
        return Err("it works on x86-64 Linux with glibc only".to_owned());
    }
    let package = boot.and_then(Path::parent).map(Path::to_owned);
    let executable = std::env::current_exe().ok();
    let bin = executable.as_deref().and_then(Path::parent);
    let built = bin.and_then(Path::parent).map(|target| target.join("interposer"));
    let library = [package, bin.map(Path::to_owned), built]
        .into_iter()
        .flatten()
        .map(|folder| folder.join(LIBRARY))
        .find(|path| path.is_file())
        .ok_or_else(|| format!("{LIBRARY} is not installed with the package"))?;
    let library = std::path::absolute(&library).unwrap_or(library);
    // The loader separates names by these.
    if library.as_os_str().as_bytes().iter().any(|&byte| byte == b' ' || byte == b':') {
        return Err(format!(
            "the path '{}' has a space or a colon, which LD_PRELOAD does not allow",
            library.display()
        ));
    }
    Ok(library)
}

/// The file that a command starts.
fn program(word: &OsStr) -> Option<PathBuf> {
    if word.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(word));
    }
    let path = std::env::var_os(PATH)?;
    std::env::split_paths(&path).map(|folder| folder.join(word)).find(|file| file.is_file())
}

/// Refuses programs in which a preloaded library has no effect, or one that it must not have.
fn can_preload(program: &Path) -> Result<(), String> {
    let mut program = program.to_owned();
    for _ in 0..MOST_SCRIPTS {
        let name = program.display();
        let Ok(file) = File::open(&program) else { return Ok(()) };
        if file.metadata().is_ok_and(|found| found.mode() & 0o6000 != 0) {
            return Err(format!(
                "'{name}' runs with the rights of its owner (setuid), and the loader ignores LD_PRELOAD then"
            ));
        }
        let mut start = Vec::new();
        if file.take(START).read_to_end(&mut start).is_err() {
            return Ok(());
        }
        if let Some(line) = start.strip_prefix(b"#!") {
            let line = line.split(|&byte| byte == b'\n').next().unwrap_or_default().trim_ascii();
            let word = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
            program = PathBuf::from(OsStr::from_bytes(word));
            continue;
        }
        return match loader(&start) {
            Loader::Glibc | Loader::Unknown => Ok(()),
            Loader::None => Err(format!("'{name}' is linked statically, so nothing can be preloaded")),
            Loader::Other(other) => Err(format!("'{name}' uses the loader '{other}' instead of glibc's")),
        };
    }
    Ok(())
}

/// The loader that a program names.
#[derive(Debug, PartialEq)]
enum Loader {
    Glibc,
    Other(String),
    None,
    /// It is no ELF file, or its headers are elsewhere.
    Unknown,
}

/// Looks for the loader in the program headers of an ELF file of 64 bits, little-endian.
fn loader(start: &[u8]) -> Loader {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, size: usize| -> Option<usize> {
        let bytes = start.get(at..at.checked_add(size)?)?;
        let mut word = [0; 8];
        word.get_mut(..size)?.copy_from_slice(bytes);
        usize::try_from(u64::from_le_bytes(word)).ok()
    };
    if !start.starts_with(b"\x7fELF\x02\x01") {
        return Loader::Unknown;
    }
    let (Some(headers), Some(size), Some(count)) = (number(32, 8), number(54, 2), number(56, 2)) else {
        return Loader::Unknown;
    };
    for place in 0..count {
        let header = place.checked_mul(size).and_then(|distance| headers.checked_add(distance));
        let Some(header) =
            header.filter(|header| header.checked_add(56).is_some_and(|end| end <= start.len()))
        else {
            return Loader::Unknown;
        };
        if number(header, 4) != Some(INTERPRETER as usize) {
            continue;
        }
        let path = number(header + 8, 8)
            .zip(number(header + 32, 8))
            .and_then(|(at, length)| start.get(at..at.checked_add(length)?));
        let Some(path) = path else { return Loader::Unknown };
        let path = String::from_utf8_lossy(path).trim_end_matches('\0').to_owned();
        return if path.contains("ld-linux-x86-64") { Loader::Glibc } else { Loader::Other(path) };
    }
    Loader::None
}

/// Puts the library before those that the user preloads. Another one of the same name, from an outer `vramline run`, is left out.
pub(crate) fn first(library: &Path, before: Option<OsString>) -> OsString {
    let mut all = OsString::from(library);
    let before = before.unwrap_or_default();
    let words = before.as_bytes().split(|&byte| byte == b' ' || byte == b':');
    for word in words.filter(|word| !word.is_empty() && !word.ends_with(LIBRARY.as_bytes())) {
        all.push(":");
        all.push(OsStr::from_bytes(word));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_library_comes_first_and_once() {
        let ours = Path::new("/x/libvramline_driver.so");
        let all = |before: Option<&str>| first(ours, before.map(OsString::from)).into_string().unwrap();
        assert_eq!(all(None), "/x/libvramline_driver.so");
        assert_eq!(all(Some("")), "/x/libvramline_driver.so");
        assert_eq!(
            all(Some("libjemalloc.so.2 /a/b.so")),
            "/x/libvramline_driver.so:libjemalloc.so.2:/a/b.so"
        );
        assert_eq!(all(Some("/old/libvramline_driver.so:/a/b.so")), "/x/libvramline_driver.so:/a/b.so");
    }

    /// An ELF file that has one program header of this kind, which points behind itself.
    fn elf(kind: u8, path: &str) -> Vec<u8> {
        let mut file = vec![0_u8; 120];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[32] = 64;
        file[54] = 56;
        file[56] = 1;
        file[64] = kind;
        file[72] = 120;
        file[96] = u8::try_from(path.len() + 1).unwrap();
        file.extend(path.bytes().chain([0]));
        file
    }

    #[test]
    fn the_loader_is_read_from_the_program() {
        let glibc = elf(3, "/lib64/ld-linux-x86-64.so.2");
        assert_eq!(loader(&glibc), Loader::Glibc);
        assert_eq!(
            loader(&elf(3, "/lib/ld-musl-x86_64.so.1")),
            Loader::Other("/lib/ld-musl-x86_64.so.1".to_owned())
        );
        assert_eq!(loader(&elf(1, "")), Loader::None);
        assert_eq!(loader(b"MZ"), Loader::Unknown);
        // Every cut and every wrong byte has an answer.
        for end in 0..glibc.len() {
            loader(&glibc[..end]);
        }
        for place in 0..glibc.len() {
            let mut wrong = glibc.clone();
            wrong[place] ^= 0xff;
            loader(&wrong);
        }
    }

    #[test]
    fn programs_in_which_it_cannot_work_are_named() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let glibc = write("glibc", &elf(3, "/lib64/ld-linux-x86-64.so.2"));
        let musl = write("musl", &elf(3, "/lib/ld-musl-x86_64.so.1"));
        let script = write("script", format!("#! {} -u\nprint()\n", musl.display()).as_bytes());
        let endless = write("endless", b"");
        std::fs::write(&endless, format!("#!{}\n", endless.display())).unwrap();
        assert_eq!(can_preload(&glibc), Ok(()));
        assert_eq!(can_preload(&endless), Ok(()));
        assert_eq!(can_preload(Path::new("/no/such/program")), Ok(()));
        assert!(can_preload(&musl).unwrap_err().contains("ld-musl"));
        assert!(can_preload(&script).unwrap_err().contains("ld-musl"));
        assert!(can_preload(&write("static", &elf(1, ""))).unwrap_err().contains("statically"));
        std::fs::set_permissions(&glibc, std::fs::Permissions::from_mode(0o4755)).unwrap();
        assert!(can_preload(&glibc).unwrap_err().contains("setuid"));
    }
}
