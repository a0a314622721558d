//! What the kernel says of processes and memory, from `/proc`. On systems without it, nothing is known.
//!
//! Numbers of processes belong to a namespace. In a container this process has one number inside and another on the host, and
//! drivers tell whichever they like; so nothing here assumes that a number is the same thing to both: [`Namespace`] and
//! [`standing`] find out.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// The inode that the kernel gives to the namespace it starts with, and to no other.
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The namespace that this process counts processes in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// This process's numbers, from the outermost namespace that `/proc` shows to its own. Empty where the kernel does not say.
    pub own_pids: Vec<u32>,
    /// Whether it is the machine's own namespace, not one inside; `None` where the kernel does not say.
    pub is_outermost: Option<bool>,
}

/// Finds out.
#[must_use]
pub fn namespace() -> Namespace {
    let own_pids =
        std::fs::read_to_string("/proc/self/status").map(|text| ns_pids(&text)).unwrap_or_default();
    let link = std::fs::read_link("/proc/self/ns/pid").ok();
    let inode = link.and_then(|link| inode_of(link.to_str()?));
    Namespace { own_pids, is_outermost: inode.map(|inode| inode == FIRST_NAMESPACE) }
}

/// Whether this is Windows' subsystem for Linux, whose kernel says who built it.
#[must_use]
pub fn is_wsl() -> bool {
    std::fs::read_to_string("/proc/sys/kernel/osrelease").is_ok_and(|release| is_release_of_wsl(&release))
}

/// `5.15.167.4-microsoft-standard-WSL2`; the first version wrote `Microsoft`.
fn is_release_of_wsl(release: &str) -> bool {
    release.to_ascii_lowercase().contains("microsoft")
}

/// The numbers behind `NSpid:`, outermost first.
fn ns_pids(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    line.split_whitespace().map_while(|word| word.parse().ok()).collect()
}

/// `pid:[4026531836]`
fn inode_of(link: &str) -> Option<u64> {
    link.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}

/// A process as `/proc` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Its number here.
    pub pid: u32,
    /// Its parent.
    pub parent: u32,
    /// When it started, in ticks since the machine did: with the number, a name that does not come back.
    pub start: u64,
    /// The command, as the kernel keeps it: fifteen signs.
    pub command: String,
}

/// The process of this number, if it is there.
#[must_use]
pub fn process(pid: u32) -> Option<Seen> {
    seen(pid, &std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn seen(pid: u32, stat: &str) -> Option<Seen> {
    // The command stands in parentheses, with any sign in it.
    let (before, rest) = stat.rsplit_once(')')?;
    let command = before.split_once('(')?.1.to_owned();
    let mut words = rest.split_whitespace();
    let parent = words.nth(1)?.parse().ok()?;
    let start = words.nth(17)?.parse().ok()?;
    Some(Seen { pid, parent, start, command })
}

/// Every process that is to be seen.
#[must_use]
pub fn processes() -> Vec<Seen> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter_map(process).collect()
}

/// The children of a process, their children, and so on; children stand behind their parents.
#[must_use]
pub fn descendants(root: u32) -> Vec<Seen> {
    below(&[root], processes())
}

/// The same of several processes, among those that were seen.
#[must_use]
pub fn below(roots: &[u32], mut all: Vec<Seen>) -> Vec<Seen> {
    all.sort_by_key(|seen| (seen.start, seen.pid));
    let mut children: rustc_hash::FxHashMap<u32, Vec<Seen>> = rustc_hash::FxHashMap::default();
    for seen in all {
        children.entry(seen.parent).or_default().push(seen);
    }
    let mut found: Vec<Seen> =
        roots.iter().flat_map(|root| children.remove(root).unwrap_or_default()).collect();
    let mut at = 0;
    // Each list of children is taken once, so a circle of parents, which a race could show, ends.
    while let Some(pid) = found.get(at).map(|seen| seen.pid) {
        found.extend(children.remove(&pid).unwrap_or_default());
        at += 1;
    }
    found
}

/// Every number that the process of this number here has, outermost namespace first.
#[must_use]
pub fn pids_of(pid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let mut pids = ns_pids(&status);
    if !pids.contains(&pid) {
        pids.insert(0, pid);
    }
    pids
}

/// Environments and command lines are read up to here.
const MOST_WORDS: u64 = 1 << 20;

fn words(pid: u32, file: &str) -> Option<Vec<u8>> {
    let mut words = Vec::new();
    let file = std::fs::File::open(format!("/proc/{pid}/{file}")).ok()?;
    file.take(MOST_WORDS).read_to_end(&mut words).ok()?;
    Some(words)
}

/// A variable of a process, as it was when its program started; `None` also where this user may not look.
#[must_use]
pub fn variable(pid: u32, name: &str) -> Option<OsString> {
    let words = words(pid, "environ")?;
    let of = |word: &[u8]| word.strip_prefix(name.as_bytes())?.strip_prefix(b"=").map(<[u8]>::to_vec);
    words.split(|&byte| byte == 0).find_map(of).and_then(text_of)
}

#[cfg(unix)]
fn text_of(bytes: Vec<u8>) -> Option<OsString> {
    Some(std::os::unix::ffi::OsStringExt::from_vec(bytes))
}

/// Text of Windows is no sequence of bytes; nor is there a `/proc`.
#[cfg(not(unix))]
fn text_of(bytes: Vec<u8>) -> Option<OsString> {
    String::from_utf8(bytes).ok().map(OsString::from)
}

/// A process' command and its arguments; what is not UTF-8 is replaced. Empty for a process of the kernel.
#[must_use]
pub fn command_line(pid: u32) -> Vec<String> {
    let words = words(pid, "cmdline").unwrap_or_default();
    let words = words.strip_suffix(b"\0").unwrap_or(&words);
    if words.is_empty() {
        return Vec::new();
    }
    words.split(|&byte| byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// The files that a process has open, as it names them; none where this user may not look.
#[must_use]
pub(crate) fn open_files(pid: u32) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok()).collect()
}

/// Where a process' own `/` is to be reached.
#[must_use]
pub fn root(pid: u32) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root"))
}

/// How the numbers in a driver's list relate to ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// The list has a process of ours under the number that it has here.
    ByOwnNumber,
    /// The list has it under its number in another namespace, which the kernel told.
    ByOtherNumber,
    /// The list has processes, none of which is ours or is to be seen here: it counts in another namespace.
    OfAnotherNamespace,
    /// The list has processes that are to be seen here, ours is not among them.
    NotListed,
    /// The list is empty.
    Empty,
    /// A word of a newer version.
    #[serde(other)]
    Other,
}

impl Standing {
    /// One word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Standing::ByOwnNumber => "by-own-number",
            Standing::ByOtherNumber => "by-other-number",
            Standing::OfAnotherNamespace => "of-another-namespace",
            Standing::NotListed => "not-listed",
            Standing::Empty => "empty",
            Standing::Other => "other",
        }
    }
}

/// Finds out whether a driver's list (numbers) holds one of `ours`, each with all of its numbers, its own here first.
#[must_use]
pub fn standing(listed: &[u32], ours: &[(u32, Vec<u32>)], is_here: impl Fn(u32) -> bool) -> Standing {
    if listed.is_empty() {
        Standing::Empty
    } else if ours.iter().any(|(own, _)| listed.contains(own)) {
        Standing::ByOwnNumber
    } else if ours.iter().flat_map(|(_, others)| others).any(|other| listed.contains(other)) {
        Standing::ByOtherNumber
    } else if listed.iter().any(|&pid| is_here(pid)) {
        Standing::NotListed
    } else {
        Standing::OfAnotherNamespace
    }
}

/// The machine's own memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostMemory {
    /// `MemTotal`
    pub total: Bytes,
    /// `MemAvailable`: what can be had without swapping.
    pub available: Bytes,
}

/// What `/proc/meminfo` says.
#[must_use]
pub fn host_memory() -> Option<HostMemory> {
    meminfo(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn meminfo(text: &str) -> Option<HostMemory> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kibibytes.checked_mul(1024).map(Bytes)
    };
    Some(HostMemory { total: field("MemTotal:")?, available: field("MemAvailable:")? })
}

/// Host memory that a process holds. Only who records asks, and brings along what knows the size of a page.
#[cfg(feature = "recording")]
#[must_use]
pub fn resident(pid: u32) -> Option<Bytes> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_ascii_whitespace().nth(1)?.parse().ok()?;
    pages.checked_mul(u64::try_from(rustix::param::page_size()).ok()?).map(Bytes)
}

/// Processor time so far, in ticks of the kernel's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorTime {
    /// Of all processors, busy or not.
    all: u64,
    /// Of them, busy.
    busy: u64,
    /// Of this process and of its children that have ended.
    own: u64,
}

/// What `/proc/stat` and `/proc/self/stat` say.
#[must_use]
pub fn processor_time() -> Option<ProcessorTime> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    ticks(&read("/proc/stat")?, &read("/proc/self/stat")?)
}

fn ticks(machine: &str, own: &str) -> Option<ProcessorTime> {
    let numbers =
        |text: &str| text.split_whitespace().map_while(|word| word.parse().ok()).collect::<Vec<u64>>();
    // user, nice, system, idle, iowait, irq, softirq, steal; time of guests is in `user`.
    let counted = numbers(machine.lines().find_map(|line| line.strip_prefix("cpu "))?);
    let all: u64 = counted.iter().take(8).sum();
    let idle: u64 = counted.get(3..5)?.iter().sum();
    // utime, stime, cutime, cstime. The name of the program may hold anything.
    let fields: Vec<&str> = own.rsplit_once(')')?.1.split_whitespace().collect();
    let own = fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum::<Option<u64>>()?;
    Some(ProcessorTime { all, busy: all.checked_sub(idle)?, own })
}

impl ProcessorTime {
    /// How much of all processors other programs have used since an earlier time, in percent.
    #[must_use]
    pub fn percent_of_others(self, since: ProcessorTime) -> Option<u64> {
        let all = self.all.checked_sub(since.all).filter(|all| *all > 0)?;
        let busy = self.busy.saturating_sub(since.busy);
        Some(busy.saturating_sub(self.own.saturating_sub(since.own)).saturating_mul(100) / all)
    }
}

/// The most that this container may hold, where its control group says; the machine's limit else.
#[must_use]
pub fn container_limit() -> Option<Bytes> {
    let limit = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim().parse::<u64>().ok().map(Bytes);
    let root = Path::new("/sys/fs/cgroup");
    let found = limit(root.join("memory.max")).or_else(|| limit(root.join("memory/memory.limit_in_bytes")));
    // Without a limit the older files hold a number larger than any machine.
    found.filter(|limit| host_memory().is_some_and(|host| limit.0 < host.total.0))
}

/// The type of the file system that a path is on, as the table of mounts names it: `ext4`, `nfs4`, `fuse.sshfs`. `statfs` would give one
/// number for all of FUSE.
#[cfg(feature = "recording")]
#[must_use]
pub fn file_system(path: &Path) -> Option<String> {
    let device = std::os::unix::fs::MetadataExt::dev(&path.metadata().ok()?);
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    type_of_mount(&mounts, &format!("{}:{}", libc::major(device), libc::minor(device)))
}

#[cfg(feature = "recording")]
fn type_of_mount(mounts: &str, device: &str) -> Option<String> {
    let of_line = |line: &str| {
        let (before, after) = line.split_once(" - ")?;
        let is_it = before.split(' ').nth(2) == Some(device);
        after.split(' ').next().filter(|_| is_it).map(str::to_owned)
    };
    mounts.lines().rev().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "recording")]
    #[test]
    fn a_mount_has_a_type() {
        let mounts = "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
                      98 22 0:44 / /home/a\\040b rw - fuse.sshfs user@host:/x rw,user_id=0\nbroken\n";
        assert_eq!(type_of_mount(mounts, "0:44").as_deref(), Some("fuse.sshfs"));
        assert_eq!(type_of_mount(mounts, "254:0").as_deref(), Some("ext4"));
        assert_eq!(type_of_mount(mounts, "8:1"), None);
        assert_eq!(file_system(Path::new("/proc")).as_deref(), Some("proc"));
        assert_eq!(file_system(Path::new("/no/such/path")), None);
    }

    #[test]
    fn the_kernel_of_wsl_names_its_maker() {
        assert!(is_release_of_wsl("5.15.167.4-microsoft-standard-WSL2\n"));
        assert!(is_release_of_wsl("4.4.0-19041-Microsoft\n"));
        assert!(!is_release_of_wsl("6.8.0-45-generic\n"));
    }

    #[test]
    fn numbers_of_namespaces_are_read() {
        assert_eq!(ns_pids("Name:\tx\nNSpid:\t4711\t12\t1\nNSpgid:\t1\n"), [4711, 12, 1]);
        assert_eq!(ns_pids("Name:\tx\n"), [] as [u32; 0]);
        assert_eq!(ns_pids("NSpid:\t7\tx\t1"), [7]);
        assert_eq!(inode_of("pid:[4026531836]"), Some(FIRST_NAMESPACE));
        assert_eq!(inode_of("pid:[x]"), None);
        assert!(pids_of(std::process::id()).contains(&std::process::id()));
    }

    #[test]
    fn a_driver_may_count_in_another_namespace() {
        let here = |pid: u32| pid < 100;
        let ours = [(7, vec![7]), (8, vec![8, 4008])];
        assert_eq!(standing(&[], &ours, here), Standing::Empty);
        assert_eq!(standing(&[3, 7], &ours, here), Standing::ByOwnNumber);
        assert_eq!(standing(&[4008], &ours, here), Standing::ByOtherNumber);
        assert_eq!(standing(&[3], &ours, here), Standing::NotListed);
        assert_eq!(standing(&[5000, 6000], &ours, here), Standing::OfAnotherNamespace);
    }

    #[test]
    fn a_command_may_look_like_anything() {
        let rest = "S 42 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 424242 20";
        let found = seen(7, &format!("7 (a) b ( 1 2) {rest}")).unwrap();
        assert_eq!((found.parent, found.start, found.command.as_str()), (42, 424_242, "a) b ( 1 2"));
        assert_eq!(seen(7, "7 (sh) S 1 2"), None);
        assert_eq!(seen(7, ""), None);
    }

    #[test]
    fn children_of_children_are_found_and_circles_end() {
        let process = |pid, parent, start| Seen { pid, parent, start, command: String::new() };
        let all =
            vec![process(9, 5, 4), process(5, 1, 2), process(6, 1, 3), process(7, 2, 1), process(1, 0, 0)];
        let pids = |root| below(&[root], all.clone()).iter().map(|seen| seen.pid).collect::<Vec<_>>();
        assert_eq!(pids(1), [5, 6, 9]);
        assert_eq!(pids(9), [] as [u32; 0]);
        let circle = vec![process(2, 3, 1), process(3, 2, 2)];
        assert_eq!(below(&[2], circle).len(), 2);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_process_tells_its_variables_and_its_files() {
        let own = std::process::id();
        // What was set later is not there.
        let path = std::env::var_os("PATH");
        assert_eq!(variable(own, "PATH"), path);
        assert_eq!((variable(own, "PAT"), variable(u32::MAX, "PATH")), (None, None));
        assert_eq!(command_line(own).first().map(String::as_str), std::env::args().next().as_deref());
        assert_eq!(command_line(u32::MAX), [] as [&str; 0]);
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(open_files(own).contains(&file.path().canonicalize().unwrap()));
        assert!(root(own).join("proc").is_dir());
    }

    #[test]
    fn processor_time_of_others_is_told_from_ones_own() {
        let own = |ticks: u64| format!("7 (a) b) S 1 7 7 0 -1 0 1 2 3 4 {ticks} 5 90 5 20 0 1");
        let machine = |user: u64, idle: u64| format!("cpu  {user} 1 9 {idle} 20 0 0 0 5 0\ncpu0 1 2\n");
        let before = ticks(&machine(100, 1_000), &own(10)).unwrap();
        assert_eq!(before, ProcessorTime { all: 1_130, busy: 110, own: 110 });
        // 300 ticks later, 200 of them busy, half of these for this process.
        let after = ticks(&machine(300, 1_100), &own(110)).unwrap();
        assert_eq!(after.percent_of_others(before), Some(33));
        assert_eq!((before.percent_of_others(before), before.percent_of_others(after)), (None, None));
        assert_eq!(ticks("cpu 1 2", &own(1)), None);
        assert_eq!(ticks(&machine(1, 1), "7 (x) S 1"), None);
        assert!(!cfg!(target_os = "linux") || processor_time().is_some());
    }

    #[test]
    fn memory_is_read() {
        let text = "MemTotal:       16384 kB\nMemFree: 1 kB\nMemAvailable:    8192 kB\n";
        assert_eq!(meminfo(text), Some(HostMemory { total: Bytes(16 << 20), available: Bytes(8 << 20) }));
        assert_eq!(meminfo("MemTotal: 5 kB\n"), None);
        assert_eq!(meminfo(&format!("MemTotal: {} kB\nMemAvailable: 1 kB", u64::MAX)), None);
        assert_eq!(process(u32::MAX), None);
    }

    #[cfg(feature = "recording")]
    #[test]
    fn memory_of_a_process_is_read() {
        assert!(resident(std::process::id()).is_some_and(|bytes| bytes.0 > 0));
        assert_eq!(resident(u32::MAX), None);
    }
}
