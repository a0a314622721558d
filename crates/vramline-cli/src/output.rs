//! Output files: whole, or not there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file that is being written. It is removed again unless it is finished: half a file looks like a whole one.
pub(crate) struct OutputFile {
    file: File,
    /// What is removed: not a device or a pipe, which was there before.
    unfinished: Option<PathBuf>,
}

impl OutputFile {
    pub(crate) fn create(path: &Path) -> io::Result<OutputFile> {
        let file = File::create(path)?;
        let is_plain = file.metadata().is_ok_and(|found| found.is_file());
        Ok(OutputFile { file, unfinished: is_plain.then(|| path.to_owned()) })
    }

    /// Keeps the file: everything is in it.
    pub(crate) fn finish(mut self) {
        self.unfinished = None;
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
        if let Some(path) = &self.unfinished {
            // What cannot be removed stays: the error has been told.
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_finished_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.csv");
        let mut file = OutputFile::create(&path).unwrap();
        file.write_all(b"half").unwrap();
        drop(file);
        assert!(!path.exists());
        let mut file = OutputFile::create(&path).unwrap();
        file.write_all(b"whole").unwrap();
        file.finish();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        drop(OutputFile::create(Path::new("/dev/null")).unwrap());
        assert!(Path::new("/dev/null").exists());
    }
}
