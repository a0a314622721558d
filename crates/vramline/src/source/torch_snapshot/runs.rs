//! Lists of references to frames, known by their bytes.
//!
//! A snapshot has millions of such lists, but only a few thousand different ones. If the same bytes were seen before, the
//! references need not be followed. The cache is bounded; an unknown list is read reference by reference.

/// Bytes of lists that are kept.
const MOST_BYTES: usize = 16 << 20;
/// The number of slots that a lookup tries.
const FARTHEST: usize = 8;
const ODD: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Copy, Debug)]
struct Run {
    begin: u32,
    length: u32,
    hash: u32,
    stack: u32,
}

/// Lists by their bytes.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    runs: Vec<Run>,
    bytes: Vec<u8>,
    /// The number of a run plus one, by its hash; zero means empty.
    slots: Vec<u32>,
}

/// Reads references up to the end of their list: their bytes with the end, their hash, and the rest. `None` if there
/// is something else among them.
#[inline]
pub(crate) fn scan(args: &[u8]) -> Option<(&[u8], u32, &[u8])> {
    let (mut hash, mut factor) = (0u64, ODD);
    let mut rest = args;
    loop {
        let (number, after) = match rest {
            [b'j', a, b, c, d, after @ ..] => (u32::from_le_bytes([*a, *b, *c, *d]), after),
            [b'h', a, after @ ..] => (u32::from(*a), after),
            [b'e', after @ ..] => {
                let length = args.len() - after.len();
                let mixed = (hash ^ length as u64).wrapping_mul(0xff51_afd7_ed55_8ccd);
                return args.get(..length).map(|bytes| (bytes, (mixed >> 32) as u32, after));
            }
            _ => return None,
        };
        // The multiplications are independent of each other.
        hash = hash.wrapping_add(u64::from(number).wrapping_mul(factor));
        factor = factor.wrapping_add(ODD << 1);
        rest = after;
    }
}

impl Runs {
    /// The stack of a list, if its bytes are known.
    #[inline]
    pub(crate) fn find(&self, bytes: &[u8], hash: u32) -> Option<u32> {
        let mask = self.slots.len().checked_sub(1)?;
        for step in 0..FARTHEST {
            let number = *self.slots.get((hash as usize + step) & mask)?;
            let run = self.runs.get((number as usize).checked_sub(1)?)?;
            if run.hash == hash && self.bytes_of(run) == bytes {
                return Some(run.stack);
            }
        }
        None
    }

    fn bytes_of(&self, run: &Run) -> &[u8] {
        let begin = run.begin as usize;
        self.bytes.get(begin..begin + run.length as usize).unwrap_or_default()
    }

    /// Adds a list to the cache, if there is room.
    #[cold]
    pub(crate) fn keep(&mut self, bytes: &[u8], hash: u32, stack: u32) {
        if self.bytes.len() + bytes.len() > MOST_BYTES {
            return;
        }
        if self.slots.len() < self.runs.len() * 2 + 16 {
            self.slots = vec![0; (self.slots.len() * 2).max(1 << 12)];
            for number in 0..self.runs.len() {
                self.place(number);
            }
        }
        let begin = self.bytes.len() as u32;
        self.bytes.extend_from_slice(bytes);
        self.runs.push(Run { begin, length: bytes.len() as u32, hash, stack });
        self.place(self.runs.len() - 1);
    }

    fn place(&mut self, number: usize) {
        let Some(run) = self.runs.get(number).copied() else { return };
        let mask = self.slots.len().saturating_sub(1);
        for step in 0..FARTHEST {
            if let Some(slot @ 0) = self.slots.get_mut((run.hash as usize + step) & mask) {
                *slot = number as u32 + 1;
                return;
            }
        }
    }

    /// Clears the cache, because a reference may have a new meaning.
    #[cold]
    pub(crate) fn forget(&mut self) {
        *self = Runs::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_found_by_their_bytes() {
        let mut runs = Runs::default();
        let lists: Vec<Vec<u8>> = (0..5_000u32)
            .map(|i| {
                let far = (0..1 + i % 30).flat_map(|k| [&b"j"[..], &(i * 31 + k).to_le_bytes()].concat());
                far.chain(*b"h\x07e").collect()
            })
            .collect();
        for (stack, list) in (0..).zip(&lists) {
            let (bytes, hash, after) = scan(list).unwrap();
            assert!(bytes == list && after.is_empty());
            assert_eq!(runs.find(bytes, hash), None);
            runs.keep(bytes, hash, stack);
        }
        let found = |list: &Vec<u8>| scan(list).and_then(|(bytes, hash, _)| runs.find(bytes, hash));
        let right = (0..).zip(&lists).filter(|&(stack, list)| found(list) == Some(stack)).count();
        assert!(right > 4_990, "{right}");
        assert!((0..).zip(&lists).all(|(stack, list)| found(list).is_none_or(|known| known == stack)));
        assert!(scan(b"h\x01K\x02e").is_none() && scan(b"h\x01").is_none());
        runs.forget();
        assert_eq!(scan(&lists[0]).and_then(|(bytes, hash, _)| runs.find(bytes, hash)), None);
    }
}
