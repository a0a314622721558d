//! Entries of a device's trace, in columns.

use super::key;
use crate::names::Name;
use crate::pages::Page;

/// The action of a trace entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Alloc,
    FreeRequested,
    FreeCompleted,
    SegmentAlloc,
    SegmentFree,
    SegmentMap,
    SegmentUnmap,
    Snapshot,
    Oom,
    /// An action of a newer version.
    Other,
}

impl Action {
    fn of(name: Name) -> Action {
        match name {
            key::ALLOC => Action::Alloc,
            key::FREE_REQUESTED => Action::FreeRequested,
            key::FREE_COMPLETED => Action::FreeCompleted,
            key::SEGMENT_ALLOC => Action::SegmentAlloc,
            key::SEGMENT_FREE => Action::SegmentFree,
            key::SEGMENT_MAP => Action::SegmentMap,
            key::SEGMENT_UNMAP => Action::SegmentUnmap,
            key::SNAPSHOT => Action::Snapshot,
            key::OOM => Action::Oom,
            _ => Action::Other,
        }
    }
}

/// The fields that many entries have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Kind {
    pub(crate) action: Name,
    /// `None` if the file does not contain it, as for all fields here.
    pub(crate) stream: Option<i64>,
    pub(crate) compile_context: Option<Name>,
    pub(crate) user_metadata: Option<Name>,
    pub(crate) pool: Option<(i64, i64)>,
}

impl Kind {
    pub(crate) fn action(&self) -> Action {
        Action::of(self.action)
    }
}

/// The value of a number that is missing, or that cannot be an address or size.
pub(crate) const ABSENT: u64 = u64::MAX;
pub(crate) const NO_TIME: i64 = i64::MIN;
pub(crate) const NO_STACK: u32 = u32::MAX;

/// An entry of a device's trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    /// For `oom`: the free bytes of the device.
    pub(crate) address: u64,
    pub(crate) size: u64,
    pub(crate) time_us: i64,
    /// The number of its [`Kind`].
    pub(crate) kind: u32,
    /// The number of its stack; [`NO_STACK`] if the entry has no list of frames.
    pub(crate) stack: u32,
}

/// An entry while its keys are read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft {
    pub(super) entry: Entry,
    pub(super) kind: Kind,
    pub(super) forward: Option<u32>,
}

impl Draft {
    #[inline]
    pub(crate) fn new() -> Draft {
        Draft {
            entry: Entry { address: ABSENT, size: ABSENT, time_us: NO_TIME, kind: 0, stack: NO_STACK },
            kind: Kind {
                action: Name::EMPTY,
                stream: None,
                compile_context: None,
                user_metadata: None,
                pool: None,
            },
            forward: None,
        }
    }

    /// Whether it has an action; otherwise it is not an entry.
    #[inline]
    pub(crate) fn has_action(&self) -> bool {
        !self.kind.action.is_empty()
    }
}

/// Entries in columns of pages, so that the memory of processed entries can be returned.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pages: Vec<Option<Page>>,
    len: u32,
}

impl Entries {
    const WORDS: usize = 4;
    const PIECE: usize = Page::WORDS / Entries::WORDS;

    #[inline]
    pub(super) fn push(&mut self, entry: Entry) -> Option<u32> {
        let number = self.len;
        self.len = self.len.checked_add(1).filter(|&len| len < NO_STACK)?;
        let at = number as usize % Entries::PIECE;
        if at == 0 {
            // Most snapshots fill little of their first page.
            self.pages.push(Some(if self.pages.is_empty() { Page::new() } else { Page::large() }));
        }
        let page = self.pages.last_mut()?.as_mut()?;
        let room = page.words_mut().get_mut(at * Entries::WORDS..(at + 1) * Entries::WORDS)?;
        let words = [
            entry.address,
            entry.size,
            entry.time_us.cast_unsigned(),
            u64::from(entry.kind) << 32 | u64::from(entry.stack),
        ];
        room.copy_from_slice(&words);
        Some(number)
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<Entry> {
        let number = number as usize;
        let page = self.pages.get(number / Entries::PIECE)?.as_ref()?;
        let at = number % Entries::PIECE * Entries::WORDS;
        let &[address, size, time, rest] = page.words().get(at..at + Entries::WORDS)? else { return None };
        let (kind, stack) = ((rest >> 32) as u32, rest as u32);
        Some(Entry { address, size, time_us: time.cast_signed(), kind, stack })
    }

    /// Returns the memory of all entries before this one.
    pub(crate) fn forget_before(&mut self, number: u32) -> Vec<Page> {
        let whole = number as usize / Entries::PIECE;
        let gone = self.pages.iter_mut().take(whole).rev().take_while(|page| page.is_some());
        gone.filter_map(Option::take).collect()
    }
}
