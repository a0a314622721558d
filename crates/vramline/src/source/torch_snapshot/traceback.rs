//! Frames and lists of frames, each stored once even if the file repeats it.
//!
//! Most of a snapshot is lists of references to frames. Lists of equal frames get one number here, whether or not the
//! file shares them; that number is what an entry keeps.

use rustc_hash::FxHashMap;

use crate::names::Name;

/// A line of a traceback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    pub(crate) function: Name,
    pub(crate) file: Name,
    pub(crate) line: u32,
}

/// The table of frames and of lists of them. List 0 is empty.
#[derive(Debug)]
pub(crate) struct Tracebacks {
    frames: Vec<Frame>,
    frame_numbers: FxHashMap<Frame, u32>,
    /// The frames of all lists one after the other, and where each list ends.
    items: Vec<u32>,
    ends: Vec<usize>,
    /// Numbers of lists by their hash, with open addressing; zero means empty.
    slots: Vec<u32>,
    hashes: Vec<u32>,
}

impl Default for Tracebacks {
    fn default() -> Self {
        Tracebacks {
            frames: Vec::new(),
            frame_numbers: FxHashMap::default(),
            items: Vec::new(),
            ends: vec![0],
            slots: vec![0; 1 << 10],
            hashes: vec![0],
        }
    }
}

impl Tracebacks {
    pub(crate) const EMPTY: u32 = 0;

    /// The number of a frame, which is added if it is new; `None` if there are too many.
    pub(crate) fn frame(&mut self, frame: Frame) -> Option<u32> {
        let next = u32::try_from(self.frames.len()).ok()?;
        let frames = &mut self.frames;
        Some(*self.frame_numbers.entry(frame).or_insert_with(|| {
            frames.push(frame);
            next
        }))
    }

    pub(crate) fn get(&self, frame: u32) -> Option<&Frame> {
        self.frames.get(frame as usize)
    }

    /// The frames of a list, by number, in the order of the file.
    pub(crate) fn frames(&self, list: u32) -> &[u32] {
        let list = list as usize;
        let begin = list.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0);
        let end = self.ends.get(list).copied().unwrap_or(0);
        self.items.get(begin..end).unwrap_or_default()
    }

    /// The number of lists, including the empty one.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// The number of a list of frames, which is added if it is new; `None` if there are too many.
    pub(crate) fn intern(&mut self, frames: &[u32]) -> Option<u32> {
        if frames.is_empty() {
            return Some(Tracebacks::EMPTY);
        }
        let hash = hash(frames);
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            match self.slots.get(at).copied() {
                Some(0) | None => break,
                Some(list)
                    if self.hashes.get(list as usize) == Some(&hash) && self.frames(list) == frames =>
                {
                    return Some(list);
                }
                Some(_) => at = (at + 1) & mask,
            }
        }
        let list = u32::try_from(self.ends.len()).ok().filter(|&list| list < u32::MAX)?;
        self.items.extend_from_slice(frames);
        self.ends.push(self.items.len());
        self.hashes.push(hash);
        if let Some(slot) = self.slots.get_mut(at) {
            *slot = list;
        }
        if self.ends.len() > self.slots.len() / 2 {
            self.grow();
        }
        Some(list)
    }

    #[cold]
    fn grow(&mut self) {
        let mut slots = vec![0; self.slots.len() * 2];
        let mask = slots.len() - 1;
        for (list, &hash) in (0u32..).zip(&self.hashes).skip(1) {
            let mut at = hash as usize & mask;
            while slots.get(at).is_some_and(|&taken| taken != 0) {
                at = (at + 1) & mask;
            }
            if let Some(slot) = slots.get_mut(at) {
                *slot = list;
            }
        }
        self.slots = slots;
    }
}

/// Two lanes, so that multiplications do not wait for each other.
#[inline]
fn hash(frames: &[u32]) -> u32 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let (mut one, mut two) = (frames.len() as u64, ODD);
    let mut fours = frames.chunks_exact(4);
    for four in &mut fours {
        if let &[a, b, c, d] = four {
            one = (one.rotate_left(5) ^ (u64::from(a) << 32 | u64::from(b))).wrapping_mul(ODD);
            two = (two.rotate_left(5) ^ (u64::from(c) << 32 | u64::from(d))).wrapping_mul(ODD);
        }
    }
    for &frame in fours.remainder() {
        one = (one.rotate_left(5) ^ u64::from(frame)).wrapping_mul(ODD);
    }
    let mixed = (one ^ two.rotate_left(29)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    (mixed >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_lists_have_one_number() {
        let mut tracebacks = Tracebacks::default();
        let lists: Vec<Vec<u32>> = (0..5_000).map(|i| (0..1 + i % 40).map(|k| k ^ i).collect()).collect();
        let numbers: Vec<u32> = lists.iter().map(|list| tracebacks.intern(list).unwrap()).collect();
        for (list, &number) in lists.iter().zip(&numbers) {
            assert_eq!(tracebacks.intern(list), Some(number));
            assert_eq!(tracebacks.frames(number), list);
        }
        let mut distinct = numbers.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len() + 1, tracebacks.len());
        assert_eq!(tracebacks.intern(&[]), Some(Tracebacks::EMPTY));
        assert!(tracebacks.frames(Tracebacks::EMPTY).is_empty());
    }
}
