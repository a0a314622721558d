//! Finds the few places of a large log that may matter, without looking at every byte.
//!
//! Several words are looked for at once. All count with their first nine bytes, so that a window of nine bytes which
//! ends in a pair of bytes that no word has can be skipped whole (Wu and Manber's way). A log of gigabytes is mostly
//! such windows.

/// What a text about memory has somewhere, even where its lines are broken or its first half is missing.
const WORDS: [&[u8; LENGTH]; 48] = [
    b"of memory", // ran out of memory, CUDA out of memory, Out of memory while
    b"d to allo", // failed to allocate, Tried to allocate
    b"g to allo", // trying to allocate, Attempting to allocate
    b"g to rese", // Attempting to reserve
    b"t allocat", // Cannot allocate, can't allocate memory
    b"tion on d", // Allocation on device
    b"ALLOC_FAI", // CUBLAS_STATUS_ALLOC_FAILED
    b"OF_MEMORY", // CUDA_ERROR_OUT_OF_MEMORY
    b"DEVICE_ME", // UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY
    b"cache blo", // No available memory for the cache blocks
    b"on startu", // Free memory on device (1/2 GiB) on startup
    b"PT_DEVMEM", // MODULE:PT_DEVMEM Allocation failed
    b"e to allo", // Unable to allocate
    b"ough memo", // not enough memory
    b"Hbm usage", // TPU TensorCore Hbm usage
    b"cusolverD", // when calling cusolverDnCreate
    b"sted byte", // smaller than requested bytes
    b"pool size", // Maximum pool size exceeded
    b"he is nee", // KV cache is needed
    b"CUresult ", // CUresult error
    b"mem-fract", // --mem-fraction-static
    b"not initi", // Dst tensor is not initialized
    b"size foun", // No executable batch size found
    b"CUDA call", // Failed to CUDA calloc
    b"he base l", // exceeds the base limit
    b"reduce me", // Can't reduce memory use below
    b"OOM when ", // OOM when allocating tensor
    b"OOM Debug", // BufferAssignment OOM Debugging
    b"cuMemAllo", // cuMemAllocAsync failed to allocate
    b"BFCAlloca", // BFCAllocator dump for
    b"InUse at ",
    b"Chunk at ",
    b"Next regi", // Next region of size
    b"Tried to ", // Tried to allocate
    b"ient-requ", // client-requested in use in bin
    b"y_limit_:", // memory_limit_: of a dump whose list is missing
    b"tOfMemory", // Error Code 2: OutOfMemory, OutOfMemoryError
    b"iceMemory", // ErrorOutOfDeviceMemory
    b"nt Memory", // Insufficient Memory
    b"MemoryErr", // MemoryError
    b"OF_RESOUR", // UR_RESULT_ERROR_OUT_OF_RESOURCES
    b"N_FAILURE", // MEM_OBJECT_ALLOCATION_FAILURE
    b"t of devi", // out of device memory
    b" KV cache", // tokens that can be stored in KV cache
    b"n early b", // compilation early because it's unlikely to have enough device memory
    b"n't enoug", // memory isn't enough
    b"g <= avai", // enforce allocating <= available failed
    b"nvalid bu", // Invalid buffer size
];

const LENGTH: usize = 9;
const TABLE: usize = 4096;

/// The words, ready to be looked for.
#[derive(Debug)]
pub(crate) struct Needles {
    /// By a window's last two bytes: how far the window can move without missing a word.
    skip: Box<[u8; TABLE]>,
    /// By the same: which words end so, a bit for each.
    ends: Box<[u64; TABLE]>,
}

const _: () = assert!(WORDS.len() <= u64::BITS as usize, "each word has a bit");

impl Needles {
    pub(crate) fn new() -> Needles {
        let mut skip = Box::new([(LENGTH - 1) as u8; TABLE]);
        let mut ends = Box::new([0u64; TABLE]);
        for (number, word) in WORDS.iter().enumerate() {
            let [.., first, second] = **word;
            if let Some(entry) = ends.get_mut(slot(first, second)) {
                *entry |= 1 << number;
            }
            for (end, pair) in (2u8..).zip(word.windows(2)) {
                if let [first, second] = *pair
                    && let Some(entry) = skip.get_mut(slot(first, second))
                {
                    *entry = (*entry).min(LENGTH as u8 - end);
                }
            }
        }
        Needles { skip, ends }
    }

    /// Where in `bytes` the first word from `from` on begins. The last eight bytes may begin one that is not whole.
    pub(crate) fn find(&self, bytes: &[u8], from: usize) -> Option<usize> {
        let mut at = from;
        while let Some(window) = bytes.get(at..).and_then(|rest| rest.first_chunk::<LENGTH>()) {
            let [.., first, second] = *window;
            let slot = slot(first, second);
            let skip = self.skip.get(slot).copied().unwrap_or(1);
            if skip == 0 {
                let mut ends = self.ends.get(slot).copied().unwrap_or_default();
                while ends != 0 {
                    if WORDS.get(ends.trailing_zeros() as usize) == Some(&window) {
                        return Some(at);
                    }
                    ends &= ends - 1;
                }
                at += 1;
            } else {
                at += usize::from(skip);
            }
        }
        None
    }
}

/// How many bytes at the end of a piece must be looked at again with the next.
pub(crate) const OVERLAP: usize = LENGTH - 1;

#[inline(always)]
fn slot(first: u8, second: u8) -> usize {
    (usize::from(first) << 4 ^ usize::from(second)) & (TABLE - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_found_wherever_it_stands() {
        let needles = Needles::new();
        let dull: Vec<u8> =
            (0..300u32).map(|i| b"of memor OOM whe nUse at Chunk a\n"[i as usize % 33]).collect();
        assert_eq!(needles.find(&dull, 0), None);
        for word in WORDS {
            for at in 0..dull.len() {
                let mut text = dull.clone();
                text.splice(at..at, word.iter().copied());
                // What surrounds it may complete another word earlier.
                let first =
                    (0..text.len()).find(|&i| WORDS.iter().any(|word| text[i..].starts_with(&word[..])));
                assert_eq!(needles.find(&text, 0), first, "{at}");
                assert!(first.is_some_and(|first| first <= at));
            }
        }
    }
}
