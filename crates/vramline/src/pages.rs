//! Asks the kernel for large pages: the one place of the core that calls it directly.
//!
//! A trace of a million events fills a hundred megabytes that are new to the process. In pages of 4 KiB the kernel is
//! entered for each of them, which takes as long as a third of the decoding. Nothing but time depends on the answer.

#![allow(unsafe_code)]

/// Memory smaller than this does not gain.
const LARGE_PAGE: usize = 2 << 20;

/// Advises the kernel to back a vector's memory, used or not, with large pages.
pub(crate) fn prefer_large<T>(memory: &Vec<T>) {
    let begin = memory.as_ptr() as usize;
    let Some(bytes) = memory.capacity().checked_mul(size_of::<T>()) else { return };
    // Whole large pages within the vector: its neighbours are none of our business.
    let first = begin.next_multiple_of(LARGE_PAGE);
    let length = begin.saturating_add(bytes).saturating_sub(first) / LARGE_PAGE * LARGE_PAGE;
    if length == 0 {
        return;
    }
    // SAFETY: the range lies within memory that `memory` owns, and this advice changes neither its contents nor its
    // validity. An answer of "no" changes nothing either.
    unsafe {
        libc::madvise(first as *mut libc::c_void, length, libc::MADV_HUGEPAGE);
    }
}
