//! Output files that are either complete or not there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// Number of names to try, because killed processes with the same ID may have left their files.
const MAX_PARTS_LEFT: u32 = 100;

/// A file that is written under a temporary name in the same folder and renamed when it is complete. Until then an existing file stays
/// as it is. A target that is not a regular file, such as `/dev/stdout` or a pipe, is written directly.
pub(crate) struct OutputFile {
    file: File,
    /// The temporary file and the target.
    part: Option<(PathBuf, PathBuf)>,
}

impl OutputFile {
    pub(crate) fn create(path: &Path) -> io::Result<OutputFile> {
        // Opened first, because a rename would also replace a read-only file or a device.
        let permissions = match OpenOptions::new().write(true).open(path) {
            Ok(there) => {
                let known = there.metadata()?;
                if !known.is_file() {
                    return Ok(OutputFile { file: there, part: None });
                }
                Some(known.permissions())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        // A link stays a link: its target is replaced.
        let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let (part, file) = beside(&target)?;
        if let Some(permissions) = permissions {
            // Not every file system has permissions.
            let _ = file.set_permissions(permissions);
        }
        Ok(OutputFile { file, part: Some((part, target)) })
    }

    /// Renames the complete file to its target.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        let Some((part, target)) = self.part.take() else { return Ok(()) };
        fs::rename(&part, target).inspect_err(|_| drop(fs::remove_file(&part)))
    }
}

impl Write for OutputFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some((part, _)) = &self.part {
            // The error that led here has been reported.
            let _ = fs::remove_file(part);
        }
    }
}

/// Creates a new file in the folder of another, readable and writable.
pub(crate) fn beside(file: &Path) -> io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let path = file.with_file_name(format!(".vramline-{}-{number}.part", std::process::id()));
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MAX_PARTS_LEFT => {
                number += 1;
            }
            made => return made.map(|file| (path, file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

    fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut out = OutputFile::create(file)?;
        out.write_all(bytes)?;
        out.finish()
    }

    #[test]
    fn only_a_finished_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        let half = || {
            let mut file = OutputFile::create(&path).unwrap();
            file.write_all(b"half").unwrap();
        };
        half();
        assert!(!path.exists());
        replace(&path, b"whole").unwrap();
        half();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        drop(OutputFile::create(Path::new("/dev/null")).unwrap());
        assert!(Path::new("/dev/null").exists());
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_page_takes_the_place_of_another() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("page.html"), folder.path().join("link.html"));
        std::os::unix::fs::symlink("page.html", &link).unwrap();
        replace(&file, b"first").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let before = File::open(&file).unwrap();
        replace(&link, b"second").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "second");
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o640);
        // A reader of the first file still gets all of it.
        assert_eq!(io::read_to_string(before).unwrap(), "first");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(folder.path()), ["link.html", "page.html"]);
    }

    #[test]
    fn an_error_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        assert!(replace(&folder.path().join("folder"), b"page").is_err());
        assert!(replace(&folder.path().join("none/page.html"), b"page").is_err());
        // The path ends like a folder: the bytes are written, and the rename fails.
        assert!(replace(&folder.path().join("page.html/"), b"page").is_err());
        assert_eq!(names(folder.path()), ["folder"]);
    }

    #[test]
    fn a_pipe_stays_a_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read_to_string(pipe).unwrap()
        });
        replace(&pipe, b"page").unwrap();
        assert_eq!(reader.join().unwrap(), "page");
        assert_eq!(names(folder.path()), ["pipe"]);
        assert!(!fs::metadata(&pipe).unwrap().is_file());
    }

    #[test]
    fn files_of_killed_processes_are_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let left = format!(".vramline-{}-0.part", std::process::id());
        fs::write(folder.path().join(&left), "half").unwrap();
        replace(&folder.path().join("page.html"), b"page").unwrap();
        assert_eq!(names(folder.path()), [left.as_str(), "page.html"]);
    }
}
