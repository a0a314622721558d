//! A page as a file on disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::anyhow;

use crate::exit::Hinted;

/// Files of killed processes with this process's number that are passed over.
const MOST_LEFT: u32 = 100;

/// Writes a page, whole or not at all: a file that is half written shows nothing. Only what is no plain file, such as
/// `/dev/stdout` or a pipe, gets the page piece by piece.
pub(crate) fn write(file: &Path, page: &str, out: &mut impl Write) -> Result<(), Hinted> {
    replace(file, page.as_bytes()).map_err(|error| Hinted {
        error: anyhow!("cannot write '{}': {error}", file.display()),
        hint: "give a file in a folder that you may write to".to_owned(),
    })?;
    writeln!(out, "{}: {:.1} MB, open it in a browser", file.display(), page.len() as f64 / 1e6)
        .map_err(anyhow::Error::from)?;
    Ok(())
}

/// Writes the bytes beside the file and then lets them take its place.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    // A rename would also replace a file that may not be written to, and a device.
    let permissions = match OpenOptions::new().write(true).open(file) {
        Ok(mut there) => {
            let known = there.metadata()?;
            if !known.is_file() {
                return there.write_all(bytes);
            }
            Some(known.permissions())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    // A link stays a link: what it points to is replaced.
    let file = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let (part, mut written) = beside(&file)?;
    if let Some(permissions) = permissions {
        // Not every file system has permissions.
        let _ = written.set_permissions(permissions);
    }
    let done = written.write_all(bytes).and_then(|()| fs::rename(&part, &file));
    if done.is_err() {
        let _ = fs::remove_file(&part);
    }
    done
}

/// A new file in the folder of another.
fn beside(file: &Path) -> io::Result<(PathBuf, File)> {
    let mut number = 0;
    loop {
        let path = file.with_file_name(format!(".vramline-{}-{number}.part", std::process::id()));
        match File::create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < MOST_LEFT => number += 1,
            made => return made.map(|file| (path, file)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;

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
        // Whoever reads the first while the second is written reads all of it.
        assert_eq!(io::read_to_string(before).unwrap(), "first");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(folder.path()), ["link.html", "page.html"]);
    }

    #[test]
    fn what_fails_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("folder")).unwrap();
        assert!(replace(&folder.path().join("folder"), b"page").is_err());
        assert!(replace(&folder.path().join("none/page.html"), b"page").is_err());
        // It ends like a folder: the bytes are written, and the last step fails.
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
    fn what_a_killed_process_left_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let left = format!(".vramline-{}-0.part", std::process::id());
        fs::write(folder.path().join(&left), "half").unwrap();
        replace(&folder.path().join("page.html"), b"page").unwrap();
        assert_eq!(names(folder.path()), [left.as_str(), "page.html"]);
    }
}
