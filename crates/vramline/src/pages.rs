//! Room for events and other large columns, in large pages: the one place of the core that calls the kernel directly.
//!
//! A trace of a million events fills fifty megabytes that are new to the process. In pages of 4 KiB the kernel is
//! entered for each of them, which takes as long as a third of the decoding. Nothing but time depends on the answer.
//! Other systems than Linux get their memory from the allocator of the standard library.

#![allow(unsafe_code)]

use std::alloc::{Layout, handle_alloc_error};

const PAGE: usize = 4 << 10;
const LARGE_PAGE: usize = 2 << 20;

/// A large page of words, all zero at first. Words that are never touched cost nothing.
///
/// It is not taken from the C library: that writes a line of its own at the front of what it hands out, and a page once
/// touched stays a small one.
#[derive(Debug)]
pub(crate) struct Page(&'static mut [u64; Page::WORDS]);

impl Page {
    pub(crate) const WORDS: usize = LARGE_PAGE / size_of::<u64>();

    /// A page of which perhaps little will be used.
    pub(crate) fn new() -> Page {
        // SAFETY: `zeroed` returns new memory of the size and alignment of the array, all zero, or null. Nobody else knows of it, and only
        // `drop` ends it: the reference is unique, and valid for as long as the page lives.
        unsafe {
            let begin = zeroed();
            if begin.is_null() {
                handle_alloc_error(LAYOUT);
            }
            Page(&mut *begin.cast())
        }
    }

    /// A page that will be used up: the kernel is asked to make it a large one.
    pub(crate) fn large() -> Page {
        let page = Page::new();
        advise_large(page.0.as_ptr().addr(), LARGE_PAGE);
        page
    }

    #[inline(always)]
    pub(crate) fn words(&self) -> &[u64; Page::WORDS] {
        self.0
    }

    #[inline(always)]
    pub(crate) fn words_mut(&mut self) -> &mut [u64; Page::WORDS] {
        self.0
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: what `new` took, in full; nothing refers to it any more.
        unsafe {
            release(self.0.as_mut_ptr().cast());
        }
    }
}

const LAYOUT: Layout = Layout::new::<[u64; Page::WORDS]>();

/// New memory of one large page, all zero; null if there is none.
#[cfg(target_os = "linux")]
unsafe fn zeroed() -> *mut u8 {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping overlaps no other. The kernel puts it at the beginning of a page, so that it is aligned.
    let begin = unsafe {
        libc::mmap(std::ptr::null_mut(), LARGE_PAGE, access, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    if begin == libc::MAP_FAILED { std::ptr::null_mut() } else { begin.cast() }
}

/// Gives such a page back.
#[cfg(target_os = "linux")]
unsafe fn release(begin: *mut u8) {
    // SAFETY: the caller gives what `zeroed` returned, and uses it no more.
    unsafe {
        libc::munmap(begin.cast(), LARGE_PAGE);
    }
}

/// The same from the allocator of the standard library.
#[cfg(not(target_os = "linux"))]
unsafe fn zeroed() -> *mut u8 {
    // SAFETY: the layout is not empty.
    unsafe { std::alloc::alloc_zeroed(LAYOUT) }
}

/// Gives such a page back.
#[cfg(not(target_os = "linux"))]
unsafe fn release(begin: *mut u8) {
    // SAFETY: the caller gives what `zeroed` returned for the same layout, and uses it no more.
    unsafe { std::alloc::dealloc(begin, LAYOUT) }
}

impl Clone for Page {
    fn clone(&self) -> Self {
        let page = Page::new();
        page.0.copy_from_slice(self.0);
        page
    }
}

/// A column of words that grows by whole pages, so that nothing is copied.
#[derive(Debug, Default)]
pub(crate) struct Words {
    pages: Vec<Page>,
    len: usize,
}

impl Words {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn push(&mut self, word: u64) {
        if self.len >= self.pages.len() * Page::WORDS {
            self.grow();
        }
        let at = self.len;
        self.len += 1;
        self.set(at, word);
    }

    /// Most files fill little of the first page, so that this one is not taken whole.
    #[cold]
    fn grow(&mut self) {
        self.pages.push(if self.pages.is_empty() { Page::new() } else { Page::large() });
    }

    /// Forgets the words from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// The room, for other uses. What is in it is of no meaning.
    pub(crate) fn into_pages(self) -> Vec<Page> {
        self.pages
    }

    #[inline]
    pub(crate) fn get(&self, at: usize) -> Option<u64> {
        if at >= self.len {
            return None;
        }
        self.pages.get(at / Page::WORDS).and_then(|page| page.words().get(at % Page::WORDS)).copied()
    }

    /// Changes a word that is there.
    #[inline]
    pub(crate) fn set(&mut self, at: usize, word: u64) {
        if at >= self.len {
            return;
        }
        let page = self.pages.get_mut(at / Page::WORDS);
        if let Some(slot) = page.and_then(|page| page.words_mut().get_mut(at % Page::WORDS)) {
            *slot = word;
        }
    }
}

/// A column of `count` zeros, in large pages where it is long.
///
/// Memory that is not written to costs nothing. The column is made so long that the whole mapping, with the page that
/// the C library adds, is a multiple of a large page: then the kernel puts it at the beginning of one.
pub(crate) fn zeros(count: usize) -> Vec<u32> {
    let bytes = count.saturating_mul(size_of::<u32>());
    if bytes < LARGE_PAGE {
        return vec![0; count];
    }
    let whole = bytes.saturating_add(PAGE).next_multiple_of(LARGE_PAGE).saturating_sub(PAGE);
    let mut column = vec![0; whole / size_of::<u32>()];
    advise_large(column.as_ptr().addr() / PAGE * PAGE, whole);
    column.truncate(count);
    column
}

/// Asks for large pages. An answer of "no" changes nothing.
#[cfg(target_os = "linux")]
fn advise_large(begin: usize, length: usize) {
    // SAFETY: this advice changes neither the contents nor the validity of any memory, whoever owns it.
    unsafe {
        libc::madvise(begin as *mut libc::c_void, length, libc::MADV_HUGEPAGE);
    }
}

/// Other systems decide for themselves.
#[cfg(not(target_os = "linux"))]
fn advise_large(_: usize, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_zero_and_each_its_own() {
        let mut pages = [Page::new(), Page::large(), Page::large()];
        for (page, number) in pages.iter_mut().zip(1..) {
            assert!(page.words().iter().all(|&word| word == 0));
            page.words_mut().fill(number);
        }
        let copy = pages[1].clone();
        drop(pages);
        assert!(copy.words().iter().all(|&word| word == 2));
    }

    #[test]
    fn words_stay_where_they_are_put() {
        let mut words = Words::default();
        let count = Page::WORDS + 5;
        (0..count as u64).for_each(|word| words.push(word));
        words.set(Page::WORDS + 1, 7);
        words.set(count, 9);
        assert_eq!(words.len(), count);
        assert_eq!(words.get(Page::WORDS), Some(Page::WORDS as u64));
        assert_eq!((words.get(Page::WORDS + 1), words.get(count)), (Some(7), None));
        words.truncate(Page::WORDS);
        words.push(8);
        assert_eq!((words.get(Page::WORDS), words.len()), (Some(8), Page::WORDS + 1));
        assert_eq!(words.into_pages().len(), 2);
    }

    #[test]
    fn columns_are_zero_and_as_long_as_asked_for() {
        for count in [0, 1, 1_000, 600_000, 1_000_000] {
            assert_eq!(zeros(count), vec![0; count]);
        }
    }
}
