//! Room for large columns, in large pages: the one place of the core that calls the kernel directly.
//!
//! A trace of a million events fills a hundred megabytes that are new to the process. In pages of 4 KiB the kernel is
//! entered for each of them, which takes as long as a third of the decoding. Nothing but time depends on the answer.

#![allow(unsafe_code)]

const PAGE: usize = 4 << 10;
const LARGE_PAGE: usize = 2 << 20;

/// Reserves room for `count` values in all and asks for large pages.
///
/// Memory that is not written to costs nothing. The room is made so long that the whole mapping, with the page that the
/// C library adds, is a multiple of a large page: then the kernel puts it at the beginning of one.
pub(crate) fn reserve<T>(memory: &mut Vec<T>, count: usize) {
    let bytes = count.saturating_mul(size_of::<T>());
    if bytes < LARGE_PAGE {
        memory.reserve_exact(count.saturating_sub(memory.len()));
        return;
    }
    let whole = bytes.saturating_add(PAGE).next_multiple_of(LARGE_PAGE).saturating_sub(PAGE);
    memory.reserve_exact((whole / size_of::<T>().max(1)).saturating_sub(memory.len()));
    let begin = memory.as_ptr().addr() / PAGE * PAGE;
    let end = memory.as_ptr().addr().saturating_add(memory.capacity().saturating_mul(size_of::<T>()));
    // SAFETY: this advice changes neither the contents nor the validity of any memory, whoever owns it; the range is
    // that of a live allocation, widened to whole pages. An answer of "no" changes nothing.
    unsafe {
        libc::madvise(begin as *mut libc::c_void, end.saturating_sub(begin), libc::MADV_HUGEPAGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_and_what_was_there_stays() {
        for count in [0, 1, 1_000, 300_000, 1_000_000] {
            let mut memory = vec![7u64, 8, 9];
            reserve(&mut memory, count);
            assert!(memory.capacity() >= count);
            memory.extend(0..1_000);
            assert_eq!(memory.get(..5), Some(&[7, 8, 9, 0, 1][..]));
        }
    }
}
