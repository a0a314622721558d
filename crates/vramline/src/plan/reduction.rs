//! Partial sums of PyTorch's reductions: a buffer whose size is a formula of the input, the result and the device.
//!
//! A sum over many rows, such as the gradient of a bias over batch and positions, is split into parts if each thread had 256 values or more.
//! Every part writes its sums into one buffer, and a counter for each group of results tells which part is the last. So a reduction
//! requests the result, the buffer and the counters, and frees the last two at once. The buffer grows with the batch until the parts fill
//! the device; from there on it stays. A line through small batches says several times too much for large ones.
//!
//! The formula is that of `aten/src/ATen/native/cuda/Reduce.cuh`, for results that are adjacent in memory.

use std::collections::BTreeMap;

use super::probe::{Ask, Probe};
use super::size::{Basis, Form, Parts, Size};

/// Threads of a block, before each takes several results.
const BLOCK_THREADS: u64 = 512;
/// Threads of a block side by side.
const WARP: u64 = 32;
/// Bytes of a partial sum: half precision is summed in single precision too.
const SUM_BYTES: u64 = 4;
/// Bytes of a counter.
const COUNTER_BYTES: u64 = 4;
/// Values that a thread sums up before a reduction is split, and at most in a part.
const MAX_VALUES: u64 = 256;
/// Values that it sums up at least in a part.
const MIN_VALUES: u64 = 16;
/// The fewest parts.
const MIN_PARTS: u64 = MAX_VALUES / MIN_VALUES;
/// Between the result and its buffer there is at most one other request.
const BEFORE: usize = 2;
/// Threads that a device runs at once if nothing tells: 132 multiprocessors, as many as an H100 has. An A100 has 108, a B200 148.
const TYPICAL_THREADS: u64 = 132 * 2048;

/// The threads that a device runs at once: its multiprocessors, by the model's name, times the threads of each.
#[must_use]
pub fn threads_at_once(model: &str, capability: Option<(i32, i32)>) -> Option<u64> {
    /// Names as the driver writes them, those that contain another one first.
    const MULTIPROCESSORS: [(&str, u64); 24] = [
        ("H100 PCIe", 114),
        ("GH200", 132),
        ("H200", 132),
        ("H100", 132),
        ("H800", 132),
        ("H20", 78),
        ("B200", 148),
        ("A100", 108),
        ("A800", 108),
        ("A30", 56),
        ("A40", 84),
        ("A10G", 80),
        ("A10", 72),
        ("L40", 142),
        ("L4", 58),
        ("V100", 80),
        ("T4", 40),
        ("RTX 6000 Ada", 142),
        ("RTX A6000", 84),
        ("RTX 5090", 170),
        ("RTX 4090", 128),
        ("RTX 4080", 76),
        ("RTX 3090 Ti", 84),
        ("RTX 3090", 82),
    ];
    let (_, multiprocessors) = MULTIPROCESSORS.iter().find(|(name, _)| model.contains(name))?;
    let threads = match capability? {
        (7, 5) => 1024,
        (8, 6 | 7 | 9) | (12, _) => 1536,
        (7..=10, _) => 2048,
        _ => return None,
    };
    Some(multiprocessors * threads)
}

/// The buffer of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Buffer {
    /// Bytes for each part.
    unit: u64,
    /// Groups of results, each with a counter.
    groups: u64,
    /// Results that a block computes.
    group: u64,
    /// Results that one thread computes.
    results: u64,
    /// Bytes of an element of the result.
    element: u64,
}

impl Buffer {
    /// The buffer of a reduction to `result` bytes, if it is split; `None` if these are not whole elements.
    pub(super) fn reducing_to(result: u64, element: u64) -> Option<Buffer> {
        let count = Some(result / element).filter(|&count| count > 0 && count * element == result)?;
        let results = [4, 2].into_iter().find(|&each| count.is_multiple_of(each)).unwrap_or(1);
        let side_by_side = WARP.min(1 << (count / results).max(1).ilog2());
        let group = side_by_side * results;
        let unit = SUM_BYTES.checked_mul(count)?.checked_mul(group)?;
        Some(Buffer { unit, groups: count.div_ceil(group), group, results, element })
    }

    /// The buffer of a reduction; `None` if the requests are not those of one.
    fn of(result: u64, buffer: u64, counters: u64, element: u64) -> Option<Buffer> {
        let found = Buffer::reducing_to(result, element)?;
        let is_it = found.counters() == counters
            && buffer.is_multiple_of(found.unit)
            && buffer / found.unit >= MIN_PARTS;
        is_it.then_some(found)
    }

    /// The bytes of its counters.
    fn counters(self) -> u64 {
        COUNTER_BYTES * self.groups
    }

    /// The buffer and the counters of a reduction over so many rows, each of as many values as there are results; `None` if it is not split.
    pub(super) fn over(self, rows: u64, threads: Option<u64>) -> Option<[u64; 2]> {
        let values = rows.div_ceil(BLOCK_THREADS / self.group);
        let most = self.most(threads.unwrap_or(TYPICAL_THREADS));
        let parts = values.div_ceil(MIN_VALUES).min(most).max(values.div_ceil(MAX_VALUES));
        (values >= MAX_VALUES).then(|| [self.unit.saturating_mul(parts), self.counters()])
    }

    /// The parts that fill a device.
    fn most(self, threads: u64) -> u64 {
        let blocks = threads / (BLOCK_THREADS / self.results);
        blocks.div_ceil(self.groups.max(1))
    }

    /// The size of the buffer at any batch, from what it took at some.
    fn size(self, points: &BTreeMap<u64, u64>, threads: Option<u64>) -> Option<Size> {
        let most = self.most(threads.unwrap_or(TYPICAL_THREADS));
        let parts = points.iter().filter(|(_, bytes)| bytes.is_multiple_of(self.unit));
        let parts: Vec<(u64, u64)> =
            parts.map(|(&batch, bytes)| (batch, bytes / self.unit)).filter(|of| of.1 >= MIN_PARTS).collect();
        // What fills the device does not tell how much there would be.
        let growing = parts.iter().copied().filter(|&(_, parts)| parts < most);
        // Parts are rounded up: where that adds least, the number of parts for each sample is smallest.
        let least = |one: &(u64, u64), other: &(u64, u64)| {
            (u128::from(one.1) * u128::from(other.0)).cmp(&(u128::from(other.1) * u128::from(one.0)))
        };
        let at = growing.min_by(least).or_else(|| parts.iter().copied().max_by_key(|of| of.0))?;
        let form = Form::Parts(Parts { unit: self.unit, at, most });
        let agree = parts.iter().filter(|(batch, parts)| form.at(*batch).0 == parts * self.unit).count();
        let basis = match agree {
            _ if threads.is_none() => Basis::Irregular,
            0 | 1 => Basis::TwoProbes,
            _ => Basis::Exact,
        };
        Some(Size { form, basis })
    }
}

/// Replaces the sizes of a probe's buffers of partial sums; `seen` is what each request took at each batch.
pub(super) fn resize(probe: &Probe, seen: &[BTreeMap<u64, u64>], sizes: &mut [Size]) {
    let found: Vec<(usize, Vec<Buffer>)> =
        (0..probe.asks.len()).map(|at| (at, buffers(probe, at))).filter(|(_, all)| !all.is_empty()).collect();
    // A few results of four bytes are also many of two. Whether there are any of two, others tell.
    let is_half = |all: &[Buffer]| all.iter().all(|buffer| buffer.element == 2);
    let element = if found.iter().any(|(_, all)| is_half(all)) { 2 } else { 4 };
    for (at, all) in found {
        let buffer = all.iter().find(|buffer| buffer.element == element).or(all.first());
        let (Some(buffer), Some(points)) = (buffer, seen.get(at)) else { continue };
        if let (Some(known), Some(size)) = (buffer.size(points, probe.threads), sizes.get_mut(at)) {
            *size = known;
        }
    }
}

/// The buffer and the counters that a request begins, if it does.
pub(super) fn pair(asks: &[Ask], at: usize) -> Option<(&Ask, &Ask)> {
    let (buffer, counters) = (asks.get(at)?, asks.get(at + 1)?);
    let is_pair = counters.act == buffer.act + 1 && counters.life == Some(1) && buffer.life == Some(3);
    (is_pair && counters.bytes < buffer.bytes).then_some((buffer, counters))
}

/// What a request may be the buffer of.
fn buffers(probe: &Probe, at: usize) -> Vec<Buffer> {
    let Some((buffer, counters)) = pair(&probe.asks, at) else { return Vec::new() };
    let most = probe.threads.unwrap_or(TYPICAL_THREADS);
    let of = |result: &Ask, element| {
        let found = Buffer::of(result.bytes, buffer.bytes, counters.bytes, element)?;
        (buffer.bytes / found.unit <= found.most(most)).then_some(found)
    };
    let results = probe.asks.get(at.saturating_sub(BEFORE)..at).unwrap_or_default().iter().rev();
    let mut each =
        results.map(|result| [4, 2].into_iter().filter_map(|element| of(result, element)).collect());
    each.find(|all: &Vec<Buffer>| !all.is_empty()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Option<u64> = Some(132 * 2048);

    fn size_at(buffer: Buffer, points: &[(u64, u64)], threads: Option<u64>, batch: u64) -> (Basis, u64) {
        let size = buffer.size(&points.iter().copied().collect(), threads).unwrap();
        (size.basis, size.form.at(batch).0)
    }

    #[test]
    fn partial_sums_grow_until_they_fill_the_device() {
        // The gradient of a bias of 8000 over 128 positions, as an H200 ran it.
        let buffer = Buffer::of(32_000, 122_880_000, 252, 4).unwrap();
        assert_eq!((buffer.unit, buffer.groups, buffer.results), (4_096_000, 63, 4));
        let points = [(10, 81_920_000), (15, 122_880_000)];
        let at = |batch| size_at(buffer, &points, H200, batch);
        assert_eq!(at(15), (Basis::Exact, 122_880_000));
        assert_eq!(at(30), (Basis::Exact, 34 * 4_096_000));
        assert_eq!(at(120), at(30));
        // From then on a part has 256 values a thread at most.
        assert_eq!(at(1200).1, 150 * 4_096_000);
        let (basis, bytes) = size_at(buffer, &points, None, 120);
        assert_eq!((basis, bytes), (Basis::Irregular, 34 * 4_096_000), "the device is not known");
    }

    #[test]
    fn parts_that_were_rounded_up_tell_less_than_those_that_were_not() {
        let buffer = Buffer::of(768, 77_070_336, 12, 2).unwrap();
        assert_eq!(buffer.unit, 196_608);
        let points = [(2, 98 * 196_608), (4, 196 * 196_608), (8, 392 * 196_608)];
        assert_eq!(size_at(buffer, &points, H200, 16), (Basis::Exact, 704 * 196_608));
        let points = [(2, 25 * 196_608), (4, 49 * 196_608)];
        assert_eq!(size_at(buffer, &points, H200, 8), (Basis::Exact, 98 * 196_608));
        assert_eq!(size_at(buffer, &points[..1], H200, 8), (Basis::TwoProbes, 100 * 196_608));
    }

    #[test]
    fn a_reduction_over_few_rows_is_not_split() {
        // The gradient of a bias of 10,000: 48 words in each of 13, 26, 52 and 104 sentences.
        let buffer = Buffer::reducing_to(40_000, 4).unwrap();
        let over = |rows| buffer.over(rows, H200);
        assert_eq!([over(48 * 13), over(1020)], [None, None]);
        assert_eq!(over(1021), Some([16 * 5_120_000, 316]));
        assert_eq!(over(48 * 26), Some([20 * 5_120_000, 316]));
        assert_eq!([over(48 * 52), over(48 * 104)], [Some([27 * 5_120_000, 316]); 2]);
        assert_eq!(Buffer::reducing_to(40_001, 4), None, "no whole elements");
    }

    #[test]
    fn other_requests_are_no_partial_sums() {
        assert_eq!(Buffer::of(32_000, 122_880_000, 256, 4), None, "of the counters");
        assert_eq!(Buffer::of(32_000, 122_880_512, 252, 4), None, "of the parts");
        assert_eq!(Buffer::of(32_000, 15 * 4_096_000, 252, 4), None, "too few parts to be split");
        assert_eq!(Buffer::of(0, 4096, 4, 4), None);
        assert_eq!(Buffer::of(u64::MAX, u64::MAX, 4, 1), None);
    }

    #[test]
    fn devices_are_known_by_name() {
        assert_eq!(threads_at_once("NVIDIA H200", Some((9, 0))), H200);
        assert_eq!(threads_at_once("NVIDIA H100 PCIe", Some((9, 0))), Some(114 * 2048));
        assert_eq!(threads_at_once("NVIDIA L4", Some((8, 9))), Some(58 * 1536));
        assert_eq!(threads_at_once("NVIDIA H200", None), None);
        assert_eq!(threads_at_once("A card of another maker", Some((9, 0))), None);
    }
}
