//! What a pool held before the trace begins, as far as the trace shows it.
//!
//! The trace shows the bytes in use at its start, and the address and size of every block that is freed later. The position of the other
//! blocks is unknown, but they cannot be where the trace puts a block. So address ranges between blocks of the trace that no block uses count
//! as in use, smallest first, until the known bytes are used up; larger ranges count as space between regions. The remaining bytes are placed
//! outside the address range of the trace. Free memory that the trace never uses may thereby count as in use. It fitted no request, so
//! this changes little.

use rustc_hash::{FxHashMap, FxHashSet};

use super::program::Program;
use crate::allocator::bfc::{Bfc, RegionView, Ticket};
use crate::units::{Bytes, plural};

/// A block that is in use at the start: address, chunk size, and requested size if known.
type Held = (u64, Bytes, Option<Bytes>);

/// The maximum number of regions; with more, the addresses are not real addresses.
const MOST_REGIONS: usize = 256;

/// Fills a new pool. Returns the tickets of earlier blocks by slot, and the assumptions in words.
pub(crate) fn seed(bfc: &mut Bfc, program: &Program) -> (Vec<(usize, Ticket)>, Vec<String>) {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for (act, answer) in program.acts.iter().zip(&program.answers) {
        if let Some(asked) = act.requested() {
            let size = if answer.chunk > Bytes::ZERO { answer.chunk } else { asked };
            ranges.push((answer.address, answer.address.saturating_add(size.0)));
        }
    }
    let block = |address: u64, chunk: Bytes| (address, address.saturating_add(chunk.0));
    ranges.extend(program.earlier.iter().map(|earlier| block(earlier.address, earlier.chunk)));
    let ranges = joined(ranges);
    let (regions, mut held, rest) = clusters(&ranges, program);
    let mut tickets = Vec::new();
    if regions.len() > MOST_REGIONS {
        let words = format!(
            "no block from before the trace is modelled: the addresses are in {} separate ranges",
            regions.len()
        );
        return (tickets, vec![words]);
    }
    held.sort_unstable_by_key(|held| held.0);
    let slots: FxHashMap<u64, u32> =
        program.earlier.iter().map(|earlier| (earlier.address, earlier.slot)).collect();
    let mut assumed = vec![format!(
        "{} were in use before the trace: {} in {} are known from their frees, {} are placed where the trace has no block, \
         and {} outside the addresses of the trace",
        bfc_bytes(program),
        program.earlier.iter().map(|earlier| earlier.chunk).sum::<Bytes>(),
        plural(program.earlier.len(), "block", "blocks"),
        program.always_held.saturating_sub(rest),
        rest
    )];
    let mut taken = rest;
    let count = regions.len();
    for (number, (base, end)) in regions.into_iter().enumerate() {
        let first = held.partition_point(|held| held.0 < base);
        let after = held.partition_point(|held| held.0 < end);
        let inside = held.get(first..after).unwrap_or_default();
        taken += Bytes(end.saturating_sub(base));
        // A preallocated pool has the rest of its limit above.
        let tail = if !bfc.options().growth && number + 1 == count {
            bfc.stats().limit.saturating_sub(taken)
        } else {
            Bytes::ZERO
        };
        let size = Bytes(end.saturating_sub(base).saturating_add(tail.0));
        let Some(made) = bfc.seed(RegionView { base, size }, inside) else { continue };
        for (held, ticket) in inside.iter().zip(made) {
            tickets.extend(slots.get(&held.0).map(|&slot| (slot as usize, ticket)));
        }
    }
    if rest > Bytes::ZERO {
        // One block, far from all others.
        let base = 1 << 63;
        bfc.seed(RegionView { base, size: rest }, &[(base, rest, None)]);
    }
    let shape = if bfc.options().growth {
        format!(
            "{} as large as what the trace uses; the size of the next growth is unknown",
            plural(count, "region,", "regions, each")
        )
    } else {
        "one region, with the rest of the limit above the addresses of the trace".to_owned()
    };
    assumed.push(shape);
    (tickets, assumed)
}

fn bfc_bytes(program: &Program) -> Bytes {
    program.earlier.iter().map(|earlier| earlier.chunk).sum::<Bytes>() + program.always_held
}

/// Ranges in order; those that touch or overlap are merged.
fn joined(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (begin, end) in ranges {
        match joined.last_mut() {
            Some(last) if begin <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((begin, end)),
        }
    }
    joined
}

/// Regions, the blocks in them, and the bytes elsewhere.
fn clusters(ranges: &[(u64, u64)], program: &Program) -> (Vec<(u64, u64)>, Vec<Held>, Bytes) {
    let mut held: Vec<Held> =
        program.earlier.iter().map(|earlier| (earlier.address, earlier.chunk, earlier.requested)).collect();
    let between = |pair: &[(u64, u64)]| match pair {
        [low, high] => (low.1, high.0.saturating_sub(low.1)),
        _ => (0, 0),
    };
    let mut gaps: Vec<(u64, u64)> = ranges.windows(2).map(between).collect();
    gaps.sort_unstable_by_key(|gap| gap.1);
    let mut left = program.always_held;
    let mut seams = FxHashSet::default();
    for (begin, length) in gaps {
        if length <= left.0 && seams.is_empty() {
            left = left.saturating_sub(Bytes(length));
            held.push((begin, Bytes(length), None));
        } else {
            seams.insert(begin);
        }
    }
    let mut regions: Vec<(u64, u64)> = Vec::new();
    let mut is_new = true;
    for &(begin, end) in ranges {
        match regions.last_mut() {
            Some(region) if !is_new => region.1 = end,
            _ => regions.push((begin, end)),
        }
        is_new = seams.contains(&end);
    }
    (regions, held, left)
}
