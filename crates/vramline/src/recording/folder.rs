//! The folder of a recording: how it gets its name, and what its files are called.
//!
//! ```text
//! NAME.vram/
//!   run.json               by the parent: command, settings, devices, clocks, exit
//!   driver.arrows          by the parent: what the driver and the kernel say while the job runs
//!   run-ID.json            the same by each further parent of the job, which joined later: on another host, or of another rank
//!   driver-ID.arrows       the same
//!   process-ID.json        by each process: versions, rank
//!   marks-ID.arrows        steps, epochs, labels, with the counters of that moment
//!   samples-ID.arrows      counters in the background
//!   inventory-ID.arrows    variables
//!   owners-ID.arrows       whose the ops of the program are
//!   calls-ID.bin           calls of NVIDIA's driver
//!   trace-ID/              what the framework's profiler wrote, untouched
//!   trace-ID.2/ ...        the same of later windows; their marks tell of them
//!   moment-ID.3/ ...       what a framework said of its pool at one moment; marks tell of it as of a window
//! ```
//!
//! ID is `host-pid-starttime`: a pid alone comes back in a long run, and several hosts may share the folder. What the
//! files hold is not known here.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The parent's file.
pub const RUN: &str = "run.json";

/// The parent's stream.
pub const DRIVER: &str = "driver.arrows";

/// What the name of every recording ends with.
pub const SUFFIX: &str = ".vram";

/// More recordings of one name than this are a mistake.
const MOST_OF_ONE_NAME: u32 = 10_000;

/// A folder that did not exist before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created {
    /// Where it is.
    pub path: PathBuf,
    /// Whether the requested name was taken, so that this is another one.
    pub is_renamed: bool,
}

/// Creates the folder `wanted`, or `NAME-2.vram`, `NAME-3.vram`, ... where that exists; folders above it too.
///
/// The kernel decides who gets a name, so runs that start at once do not share a folder, on a network file system either.
/// A name without `.vram` gets it.
pub fn create(wanted: &Path) -> io::Result<Created> {
    for (path, is_renamed) in candidates(wanted)? {
        match std::fs::create_dir(&path) {
            Ok(()) => return Ok(Created { path, is_renamed }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// The names for a recording that is to be called `wanted`, the best first, and whether each is another name. Makes the folders above it.
pub(super) fn candidates(wanted: &Path) -> io::Result<impl Iterator<Item = (PathBuf, bool)>> {
    let name = wanted
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path has no file name"))?;
    let above = wanted.parent().unwrap_or(Path::new("")).to_owned();
    if !above.as_os_str().is_empty() {
        std::fs::create_dir_all(&above)?;
    }
    let is_suffixed = wanted.extension().is_some_and(|extension| extension == "vram");
    let stem = if is_suffixed { wanted.file_stem().unwrap_or(name) } else { name }.to_owned();
    Ok((1..=MOST_OF_ONE_NAME).map(move |turn| {
        let mut name = OsString::from(&stem);
        if turn > 1 {
            name.push(format!("-{turn}"));
        }
        name.push(SUFFIX);
        (above.join(name), turn > 1)
    }))
}

/// A process, told apart from every other that wrote or will write into the folder.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProcessId {
    host: String,
    pid: u32,
    start: u64,
}

impl ProcessId {
    /// A process by its parts. Signs of `host` that do not belong into a file name become `_`.
    #[must_use]
    pub fn new(host: &str, pid: u32, start: u64) -> ProcessId {
        let mut host: String =
            host.trim().chars().take(64).map(|c| if is_plain(c) { c } else { '_' }).collect();
        if host.is_empty() {
            host.push_str("localhost");
        }
        ProcessId { host, pid, start }
    }

    /// A process that runs on this machine.
    pub fn of_running(pid: u32) -> io::Result<ProcessId> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
        let start = start_time(&stat).ok_or(io::ErrorKind::InvalidData)?;
        Ok(ProcessId::new(&host_name(), pid, start))
    }

    /// The host's name, as far as it fits a file name.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The process number on its host.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// When it started, in the kernel's ticks since the host's own start.
    #[must_use]
    pub fn start(&self) -> u64 {
        self.start
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}-{}", self.host, self.pid, self.start)
    }
}

/// A text that does not name a process.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("expected host-pid-starttime, found '{0}'")]
pub struct NotAProcess(String);

impl FromStr for ProcessId {
    type Err = NotAProcess;

    fn from_str(text: &str) -> Result<ProcessId, NotAProcess> {
        // From the right: hosts have dashes too.
        let mut parts = text.rsplitn(3, '-');
        let parsed = (|| {
            let start = parts.next()?.parse().ok()?;
            let pid = parts.next()?.parse().ok()?;
            Some(ProcessId::new(parts.next()?, pid, start))
        })();
        // What would be written differently ("+1", "007", a slash in the host) was not written by us.
        parsed.filter(|id| id.to_string() == text).ok_or_else(|| NotAProcess(text.to_owned()))
    }
}

/// The files of the parent of a run: of the one that made the folder, or of one that joined it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunPlace {
    /// The recording.
    pub folder: PathBuf,
    /// The parent, if it has joined.
    pub joined: Option<ProcessId>,
}

impl RunPlace {
    /// The place of the parent that made this folder.
    #[must_use]
    pub fn first(folder: &Path) -> RunPlace {
        RunPlace { folder: folder.to_owned(), joined: None }
    }

    /// Its manifest.
    #[must_use]
    pub fn manifest(&self) -> PathBuf {
        self.folder.join(self.joined.as_ref().map_or(RUN.to_owned(), |id| Part::Run.name(id)))
    }

    /// Its stream of driver figures.
    #[must_use]
    pub fn driver(&self) -> PathBuf {
        self.folder.join(self.joined.as_ref().map_or(DRIVER.to_owned(), |id| Part::Driver.name(id)))
    }
}

/// What a process writes, or a parent that has joined a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Part {
    /// `run-ID.json`, by a parent
    Run,
    /// `driver-ID.arrows`, by a parent
    Driver,
    /// `process-ID.json`
    Process,
    /// `marks-ID.arrows`
    Marks,
    /// `samples-ID.arrows`
    Samples,
    /// `inventory-ID.arrows`
    Inventory,
    /// `owners-ID.arrows`
    Owners,
    /// `trace-ID/`
    Trace,
    /// `calls-ID.bin`
    DriverCalls,
}

impl Part {
    /// Every part.
    pub const ALL: [Part; 9] = [
        Part::Run,
        Part::Driver,
        Part::Process,
        Part::Marks,
        Part::Samples,
        Part::Inventory,
        Part::Owners,
        Part::Trace,
        Part::DriverCalls,
    ];

    fn around(self) -> (&'static str, &'static str) {
        match self {
            Part::Run => ("run-", ".json"),
            Part::Driver => ("driver-", ".arrows"),
            Part::Process => ("process-", ".json"),
            Part::Marks => ("marks-", ".arrows"),
            Part::Samples => ("samples-", ".arrows"),
            Part::Inventory => ("inventory-", ".arrows"),
            Part::Owners => ("owners-", ".arrows"),
            Part::Trace => ("trace-", ""),
            Part::DriverCalls => ("calls-", ".bin"),
        }
    }

    /// Whether the parent of a run writes it, and not a process of the job.
    #[must_use]
    pub fn is_of_parent(self) -> bool {
        matches!(self, Part::Run | Part::Driver)
    }

    /// The name of this part of the process `id`.
    #[must_use]
    pub fn name(self, id: &ProcessId) -> String {
        let (before, after) = self.around();
        format!("{before}{id}{after}")
    }

    /// Which part of which process a name stands for; `None` for what others put there.
    #[must_use]
    pub(crate) fn of_name(name: &str) -> Option<(Part, ProcessId)> {
        Part::ALL.into_iter().find_map(|part| {
            let (before, after) = part.around();
            let id = name.strip_prefix(before)?.strip_suffix(after)?.parse().ok()?;
            Some((part, id))
        })
    }
}

/// The parts that a folder holds, in the order of their kinds and processes.
pub fn parts(folder: &Path) -> io::Result<Vec<(Part, ProcessId)>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        found.extend(entry?.file_name().to_str().and_then(Part::of_name));
    }
    found.sort();
    Ok(found)
}

/// Which moment of which process a name stands for; `None` for what is none.
#[must_use]
pub(crate) fn moment_of_name(name: &str) -> Option<(ProcessId, u64)> {
    let (id, number) = name.strip_prefix("moment-")?.rsplit_once('.')?;
    Some((
        id.parse().ok()?,
        number.parse().ok().filter(|_| number.bytes().all(|sign| sign.is_ascii_digit()))?,
    ))
}

/// The name of this machine; empty where the kernel does not tell.
#[must_use]
pub fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// The kernel's name for the time since this machine was booted.
#[must_use]
pub(super) fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned()).filter(|id| !id.is_empty())
}

/// Field 22 of `/proc/PID/stat`. The second field is the command in parentheses, with any sign in it.
fn start_time(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(19)?.parse().ok()
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-')
}

/// Opens a file that ends. A pipe or device in its place could keep a reader for ever.
pub(super) fn open_plain(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    File::open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_taken_name_is_counted_up() {
        let scratch = tempfile::tempdir().unwrap();
        let wanted = scratch.path().join("a/b/train.vram");
        let names: Vec<_> = (0..3).map(|_| create(&wanted).unwrap()).collect();
        let expected = ["train.vram", "train-2.vram", "train-3.vram"];
        for (created, name) in names.iter().zip(expected) {
            assert_eq!(created.path, scratch.path().join("a/b").join(name));
            assert_eq!(created.is_renamed, name != "train.vram");
            assert!(created.path.is_dir());
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_file_or_a_dangling_link_takes_a_name_too() {
        let scratch = tempfile::tempdir().unwrap();
        std::fs::write(scratch.path().join("x.vram"), "").unwrap();
        std::os::unix::fs::symlink("nowhere", scratch.path().join("x-2.vram")).unwrap();
        assert_eq!(create(&scratch.path().join("x")).unwrap().path, scratch.path().join("x-3.vram"));
    }

    #[test]
    fn many_at_once_get_a_folder_each() {
        let scratch = tempfile::tempdir().unwrap();
        let wanted = scratch.path().join("v1.5.vram");
        let mut paths: Vec<PathBuf> = std::thread::scope(|threads| {
            let runs: Vec<_> = (0..16).map(|_| threads.spawn(|| create(&wanted).unwrap().path)).collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), 16);
        assert!(paths.contains(&scratch.path().join("v1.5-16.vram")), "{paths:?}");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn no_name_no_folder() {
        assert!(create(Path::new("/")).is_err());
        assert!(create(Path::new("..")).is_err());
        assert!(create(Path::new("/proc/no/such.vram")).is_err());
    }

    #[test]
    fn names_are_read_back() {
        for host in ["node", "gpu-node-07.cluster", "a-1-2", "-", "_"] {
            let id = ProcessId::new(host, 4711, 98_765_432);
            assert_eq!(id.to_string().parse(), Ok(id.clone()));
            for part in Part::ALL {
                assert_eq!(Part::of_name(&part.name(&id)), Some((part, id.clone())), "{host}");
            }
        }
        assert_eq!(
            Part::Marks.name(&ProcessId::new("böse/../host name", 1, 2)),
            "marks-b_se_.._host_name-1-2.arrows"
        );
        assert_eq!(ProcessId::new(" \n", 1, 2).host(), "localhost");
    }

    #[test]
    fn a_moment_has_a_process_and_a_number() {
        let id = ProcessId::new("gpu.cluster-7", 4711, 98);
        assert_eq!(moment_of_name("moment-gpu.cluster-7-4711-98.12"), Some((id, 12)));
        for other in ["moment-h-1-2", "moment-h-1-2.", "moment-h-1-2.+3", "moment-h-1.3", "trace-h-1-2.3"] {
            assert_eq!(moment_of_name(other), None, "{other}");
        }
    }

    #[test]
    fn other_names_are_not_ours() {
        let others = [
            "",
            "run.json",
            "process-.json",
            "process-1-2.json",
            "process--1-2.json",
            "process-h-1-x.json",
            "process-h-+1-2.json",
            "process-h-01-2.json",
            "process-h-4294967296-2.json",
            "trace-",
            "marks-h-1-2",
            "process-a b-1-2.json",
            "samples-h-1-2.arrows.tmp",
            "driver.arrows",
        ];
        for name in others {
            assert_eq!(Part::of_name(name), None, "{name}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_running_process_has_a_start() {
        let mine = ProcessId::of_running(std::process::id()).unwrap();
        assert_eq!(mine.pid(), std::process::id());
        assert!(mine.start() > 0);
        assert!(ProcessId::of_running(u32::MAX).is_err());
    }

    #[test]
    fn a_command_may_look_like_anything() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 424242 20";
        assert_eq!(start_time(&format!("7 (sh) {rest}")), Some(424_242));
        assert_eq!(start_time(&format!("7 (a) b ( 1 2) {rest}")), Some(424_242));
        assert_eq!(start_time("7 (sh) S 1 2"), None);
        assert_eq!(start_time(""), None);
    }
}
