//! Which live chunks keep a pool's holes apart.
//!
//! A request fits where a run of chunks of one region is as large as it is and nobody holds any of them. Of all runs that
//! are large enough, the one with the fewest live bytes is what would have to be freed, or to lie elsewhere.

use crate::failure::{Chunk, Layout, Tag};
use crate::units::Bytes;

/// A run of chunks that would hold the request if its live ones were gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bridge {
    /// Which region, counted from zero.
    pub region: usize,
    /// All bytes of the run.
    pub size: Bytes,
    /// Of these, free now.
    pub free: Bytes,
    /// How many holes there are in it.
    pub holes: usize,
    /// The live chunks between them.
    pub live: Vec<Chunk>,
}

/// The run with the fewest live bytes; `None` where no region is large enough.
#[must_use]
pub fn bridge(layout: &Layout, request: Bytes, end: Tag) -> Option<Bridge> {
    let mut best: Option<(Bytes, usize, usize, usize)> = None;
    for (number, region) in layout.regions.iter().enumerate() {
        let chunks = &region.chunks;
        let (mut size, mut live, mut last) = (0u64, 0u64, 0);
        for first in 0..chunks.len() {
            while size < request.0
                && let Some(chunk) = chunks.get(last)
            {
                size = size.saturating_add(chunk.size.0);
                live = live.saturating_add(if chunk.is_free_for(end) { 0 } else { chunk.size.0 });
                last += 1;
            }
            if size < request.0 {
                break;
            }
            let has_hole = size > live;
            if has_hole && best.is_none_or(|(least, ..)| live < least.0) {
                best = Some((Bytes(live), number, first, last));
            }
            if let Some(chunk) = chunks.get(first) {
                size = size.saturating_sub(chunk.size.0);
                live = live.saturating_sub(if chunk.is_free_for(end) { 0 } else { chunk.size.0 });
            }
        }
    }
    let (_, region, first, last) = best?;
    let run = layout.regions.get(region)?.chunks.get(first..last)?;
    let (free, live): (Vec<&Chunk>, Vec<&Chunk>) = run.iter().partition(|chunk| chunk.is_free_for(end));
    Some(Bridge {
        region,
        size: run.iter().map(|chunk| chunk.size).sum(),
        free: free.iter().map(|chunk| chunk.size).sum(),
        holes: free.len(),
        live: live.into_iter().copied().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Region;
    use crate::names::Name;

    /// Regions of chunk sizes; those below zero are free.
    fn layout(regions: &[&[i64]]) -> Layout {
        let chunk = |size: &i64| Chunk {
            address: 0,
            size: Bytes(size.unsigned_abs()),
            requested: None,
            in_use: *size > 0,
            tag: Tag::Lower,
            op: Name::EMPTY,
        };
        let regions = regions.iter().map(|sizes| Region { chunks: sizes.iter().map(chunk).collect() });
        Layout { regions: regions.collect(), has_borders: true }
    }

    /// From each chunk on the shortest run that is large enough; of those with a hole, the fewest live bytes.
    fn least_live(layout: &Layout, request: u64) -> Option<u64> {
        let size = |run: &[Chunk]| run.iter().map(|chunk| chunk.size.0).sum::<u64>();
        let runs = layout.regions.iter().flat_map(|region| {
            let chunks = &region.chunks;
            (0..chunks.len()).filter_map(move |first| {
                (first + 1..=chunks.len()).map(|last| &chunks[first..last]).find(|run| size(run) >= request)
            })
        });
        runs.filter(|run| run.iter().any(|chunk| !chunk.in_use))
            .map(|run| run.iter().filter(|chunk| chunk.in_use).map(|chunk| chunk.size.0).sum())
            .min()
    }

    #[test]
    fn the_cheapest_run_is_found() {
        let two = layout(&[&[10, -40, 5, -40, 100], &[-30, 2, -30, 8]]);
        let found = bridge(&two, Bytes(60), Tag::Lower).unwrap();
        assert_eq!((found.region, found.free, found.holes), (1, Bytes(60), 2));
        assert_eq!(found.live.iter().map(|chunk| chunk.size.0).collect::<Vec<_>>(), [2]);
        assert_eq!(bridge(&two, Bytes(80), Tag::Lower).unwrap().region, 0);
        assert_eq!(bridge(&two, Bytes(1000), Tag::Lower), None);
    }

    #[test]
    fn no_run_is_cheaper() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..2000 {
            let regions: Vec<Vec<i64>> = (0..1 + random(3))
                .map(|_| {
                    (0..1 + random(7))
                        .map(|_| (1 + random(20)).cast_signed() * if random(2) == 0 { 1 } else { -1 })
                        .collect()
                })
                .collect();
            let layout = layout(&regions.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let request = 1 + random(60);
            let found = bridge(&layout, Bytes(request), Tag::Lower);
            let live = found.as_ref().map(|found| found.live.iter().map(|chunk| chunk.size.0).sum());
            assert_eq!(live, least_live(&layout, request), "{regions:?} {request}");
        }
    }
}
