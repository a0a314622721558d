//! Room behind the end of a file: taken from the file system ahead of time, mapped, and filled by plain stores.
//!
//! A training step waits for its mark. With `write(2)` most of that wait is the kernel's: the file grows and its times
//! change with every mark. Room that is there already is filled without a call. What lies in it is the kernel's as much as what was
//! written: it survives the death of the process. The room is zero until it is filled, and a message's first word is stored last,
//! so a message is there whole or not at all. To every Arrow reader zeros are the end of the stream.
//!
//! **The training job comes first.** Stores can fail where writes return an error: the system sends SIGBUS when somebody else has
//! cut the file. A handler answers it for this memory, and only for it: the page is replaced by one that belongs to nobody, the program
//! goes on, and [`Room::put`] says that the file is lost. All other faults go where they went before. Room is made only
//! where the system promises it (see [`Room::behind`]); elsewhere messages are written.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{NonNull, null, null_mut};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

/// How much is taken at a time: some hundred marks.
const LENGTH: usize = 256 << 10;
/// The size of every page on the systems that we know; a larger one makes `mmap` refuse.
const PAGE: u64 = 4 << 10;
/// Messages begin at multiples of a word.
const WORD: usize = size_of::<u64>();

/// File systems that keep a promise of room: ext2 to 4, XFS, tmpfs, and overlays, which containers put on top of one of these.
const KEEP_PROMISES: [u64; 4] = [0xEF53, 0x5846_5342, 0x0102_1994, 0x794C_7630];

/// Mapped room behind the end of a file.
#[derive(Debug)]
pub(crate) struct Room {
    base: NonNull<u8>,
    /// How far it is filled.
    filled: usize,
    watched: &'static Watched,
}

// SAFETY: the mapping belongs to this value alone and is reached through `&mut self` only.
unsafe impl Send for Room {}

/// A message could not be put into the room.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It does not fit any more.
    Full,
    /// Somebody else has cut the file.
    Lost,
}

impl Room {
    /// Room behind the first `end` bytes of a file that is open for reading and writing. The file is longer by it afterwards,
    /// also where this fails.
    pub(crate) fn behind(file: &File, end: u64) -> io::Result<Room> {
        let descriptor = file.as_raw_fd();
        let begin = end / PAGE * PAGE;
        let offset = libc::off_t::try_from(begin).map_err(io::Error::other)?;
        let length = libc::off_t::try_from(LENGTH).map_err(io::Error::other)?;
        let filled = usize::try_from(end - begin).map_err(io::Error::other)?;
        // SAFETY: the struct is plain data that the kernel fills.
        let system = unsafe {
            let mut system: libc::statfs = std::mem::zeroed();
            done(libc::fstatfs(descriptor, &raw mut system))?;
            system
        };
        if !KEEP_PROMISES.contains(&(system.f_type.cast_unsigned() & 0xFFFF_FFFF)) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let watched = Watched::free().ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: numbers only.
        let room = unsafe { libc::fallocate(descriptor, 0, offset, length) };
        let base = done(room).and_then(|()| {
            // SAFETY: a new mapping, at a place that the kernel chooses.
            let base = unsafe {
                let (access, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
                libc::mmap(null_mut(), LENGTH, access, shared, descriptor, offset)
            };
            if base == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(base) }
        });
        let base = base.inspect_err(|_| watched.let_go())?;
        let room = Room { base: NonNull::new(base.cast()).ok_or(io::ErrorKind::Other)?, filled, watched };
        watched.watch(base.addr());
        // SAFETY: the mapping in full. A forked child has no use for it; asked like this, the kernel says what it cannot give
        // instead of sending a signal (older kernels do not know the question, and get no room).
        unsafe {
            done(libc::madvise(base, LENGTH, libc::MADV_DONTFORK))?;
            done(libc::madvise(base, LENGTH, libc::MADV_POPULATE_WRITE))?;
        }
        Ok(room)
    }

    /// Stores a message, whole or not at all. Its length is a multiple of a word, as that of every Arrow message.
    pub(crate) fn put(&mut self, message: &[u8]) -> Result<(), Refused> {
        let (Some((first, rest)), Some(end)) =
            (message.split_first_chunk::<WORD>(), self.filled.checked_add(message.len()))
        else {
            return Err(Refused::Full);
        };
        if end > LENGTH || !message.len().is_multiple_of(WORD) || !self.filled.is_multiple_of(WORD) {
            return Err(Refused::Full);
        }
        // SAFETY: from `filled` to `end` lies within the mapping, which nobody else refers to. The first word is aligned.
        unsafe {
            let place = self.base.as_ptr().add(self.filled);
            std::ptr::copy_nonoverlapping(rest.as_ptr(), place.add(WORD), rest.len());
            // Whoever sees the first word, another process too, sees the rest.
            AtomicU64::from_ptr(place.cast()).store(u64::from_ne_bytes(*first), Ordering::Release);
        }
        fence(Ordering::SeqCst);
        if self.watched.is_lost.load(Ordering::Relaxed) {
            return Err(Refused::Lost);
        }
        self.filled = end;
        Ok(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        // SAFETY: the mapping that `behind` made, in full; nothing refers to it any more.
        unsafe {
            libc::munmap(self.base.as_ptr().cast(), LENGTH);
        }
        self.watched.let_go();
    }
}

fn done(result: libc::c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where the handler finds what it answers for. It may neither lock nor allocate, so there are a few places for ever.
#[derive(Debug)]
struct Watched {
    is_taken: AtomicBool,
    /// The address of the mapping, 0 where there is none.
    base: AtomicUsize,
    is_lost: AtomicBool,
}

static WATCHED: [Watched; 16] = [const {
    Watched { is_taken: AtomicBool::new(false), base: AtomicUsize::new(0), is_lost: AtomicBool::new(false) }
}; 16];

impl Watched {
    /// A free place, with the handler in force. `None` where all are taken.
    fn free() -> Option<&'static Watched> {
        watch_for_faults()?;
        WATCHED.iter().find(|watched| !watched.is_taken.swap(true, Ordering::Acquire))
    }

    fn watch(&self, base: usize) {
        self.is_lost.store(false, Ordering::Relaxed);
        self.base.store(base, Ordering::SeqCst);
    }

    fn let_go(&self) {
        self.base.store(0, Ordering::SeqCst);
        self.is_taken.store(false, Ordering::Release);
    }
}

/// Whether the handler is in force.
static IN_FORCE: Mutex<bool> = Mutex::new(false);
/// What the process did with SIGBUS before.
static BEFORE_HANDLER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static BEFORE_WANTS_MORE: AtomicBool = AtomicBool::new(false);

type Simple = extern "C" fn(libc::c_int);
type Detailed = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);

/// Puts the handler in force, once.
fn watch_for_faults() -> Option<()> {
    let mut in_force = IN_FORCE.lock().ok()?;
    if *in_force {
        return Some(());
    }
    let handler: Detailed = on_fault;
    // SAFETY: the structs are plain data; the handler is valid for ever.
    unsafe {
        let mut found: libc::sigaction = std::mem::zeroed();
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = handler as usize;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        done(libc::sigaction(libc::SIGBUS, null(), &raw mut found)).ok()?;
        BEFORE_HANDLER.store(found.sa_sigaction, Ordering::SeqCst);
        BEFORE_WANTS_MORE.store(found.sa_flags & libc::SA_SIGINFO != 0, Ordering::SeqCst);
        done(libc::sigaction(libc::SIGBUS, &raw const ours, null_mut())).ok()?;
    }
    *in_force = true;
    Some(())
}

/// Runs in a signal handler: calls the kernel and touches atomics, nothing else.
extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid struct over.
    let address = unsafe { (*info).si_addr() }.addr();
    let is_here = |watched: &&Watched| {
        let base = watched.base.load(Ordering::SeqCst);
        base != 0 && (base..base + LENGTH).contains(&address)
    };
    let mut is_ours = false;
    // A forked child may have a mapping where its parent had one, so two places can know of it.
    for watched in WATCHED.iter().filter(is_here) {
        watched.is_lost.store(true, Ordering::SeqCst);
        is_ours = true;
    }
    if is_ours {
        let page = address / PAGE as usize * PAGE as usize;
        // SAFETY: a page of a mapping that only its `Room` refers to, and stores to.
        let replaced = unsafe {
            let (access, kind) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            );
            libc::mmap(page as *mut libc::c_void, PAGE as usize, access, kind, -1, 0)
        };
        if replaced != libc::MAP_FAILED {
            return;
        }
    }
    match BEFORE_HANDLER.load(Ordering::SeqCst) {
        // SAFETY: numbers only. The fault happens again when this returns, and ends the process as it would have.
        libc::SIG_DFL | libc::SIG_IGN => unsafe {
            libc::signal(signal, libc::SIG_DFL);
        },
        // SAFETY: what the program had put in force itself, called as it asked for.
        handler => unsafe {
            if BEFORE_WANTS_MORE.load(Ordering::SeqCst) {
                std::mem::transmute::<usize, Detailed>(handler)(signal, info, context);
            } else {
                std::mem::transmute::<usize, Simple>(handler)(signal);
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    fn file(folder: &tempfile::TempDir) -> File {
        let path = folder.path().join("file");
        OpenOptions::new().append(true).read(true).create(true).open(path).unwrap()
    }

    /// Where a system gives no room, there is nothing to test: messages are written there.
    fn room(file: &File, end: u64) -> Option<Room> {
        Room::behind(file, end).ok()
    }

    #[test]
    fn messages_stand_one_behind_the_other_and_zeros_follow() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(&folder);
        file.set_len(5_000).unwrap();
        let Some(mut room) = room(&file, 5_000) else { return };
        room.put(&[1; 24]).unwrap();
        room.put(&[2; 16]).unwrap();
        let found = std::fs::read(folder.path().join("file")).unwrap();
        assert_eq!(found.len(), 4096 + LENGTH);
        assert_eq!(found[5_000..5_040], [[1; 24].as_slice(), &[2; 16]].concat());
        assert!(found[..5_000].iter().chain(&found[5_040..]).all(|&byte| byte == 0));
    }

    #[test]
    fn a_full_room_takes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(&folder);
        let Some(mut room) = room(&file, 0) else { return };
        room.put(&vec![1; LENGTH - 8]).unwrap();
        assert_eq!(room.put(&[1; 16]), Err(Refused::Full));
        assert_eq!(room.put(&[1; 7]), Err(Refused::Full));
        room.put(&[1; 8]).unwrap();
    }

    /// Without the handler this test would not fail but die.
    #[test]
    fn a_file_that_somebody_cuts_is_lost_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let file = file(&folder);
        let Some(mut lost) = room(&file, 0) else { return };
        lost.put(&[1; 4096]).unwrap();
        file.set_len(0).unwrap();
        assert_eq!(lost.put(&[1; 4096]), Err(Refused::Lost));
        drop(lost);
        let mut next = room(&file, 0).unwrap();
        next.put(&[1; 8]).unwrap();
    }
}
