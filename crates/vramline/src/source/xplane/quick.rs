//! Second pass, the quick way: events as writers write them.
//!
//! Writers put an event's scalars first and in order, and give a memory event fourteen stats of an id and a number each.
//! This reads exactly that, several times faster than [`super::decode`] reads anything the format allows. Each function
//! answers `None`, having changed nothing, where an event is otherwise; then the careful way is taken.

use std::ops::Range;

use super::decode::{Counts, Decoded, Decoder, dtype_of};
use super::index::{Class, Plane, PlaneRole, StatEntry, StatKind};
use super::wire::{short_varint_at, signed, varint_at, word_at};
use crate::event::{Dtype, Event, Kind, Region};
use crate::names::Name;
use crate::units::{Bytes, Picos};

impl Decoder<'_> {
    /// Decodes the event at `at` as writers write it: scalars first and in order, stats of an id and a number. Says
    /// where the next field begins, or `None` (and has done nothing) where anything is otherwise.
    #[inline(always)]
    pub(super) fn quick_event(
        &mut self,
        plane: &Plane,
        bytes: &[u8],
        at: usize,
        out: &mut Decoded,
    ) -> Option<usize> {
        if plane.role != PlaneRole::Host || *bytes.get(at)? != 0x22 {
            return None;
        }
        let (length, begin) = short_varint_at(bytes, at + 1)?;
        let end = begin.checked_add(usize::try_from(length).ok()?).filter(|&end| end <= bytes.len())?;
        if *bytes.get(begin)? != 0x08 {
            return None;
        }
        let (metadata, mut at) = short_varint_at(bytes, begin + 1)?;
        let entry = plane.events.get(metadata)?;
        if entry.class != Class::Noise {
            let mut offset = 0;
            if *bytes.get(at)? == 0x10 && at < end {
                (offset, at) = varint_at(bytes, at + 1)?;
            }
            match entry.class {
                Class::Alloc => self.quick_memory_event(plane, bytes, at..end, Kind::Alloc, offset, out)?,
                Class::Free => self.quick_memory_event(plane, bytes, at..end, Kind::Free, offset, out)?,
                Class::Op if at < end && *bytes.get(at)? == 0x18 => {
                    let (duration, at) = varint_at(bytes, at + 1)?;
                    if at > end {
                        return None;
                    }
                    self.op_event(entry.name, Picos(signed(offset)), signed(duration), out);
                }
                _ => return None,
            }
        }
        Some(end)
    }

    /// A memory event whose stats in `range` are all an id and a number, each kind in its usual form.
    ///
    /// This is where a trace's time goes: a memory event has fourteen stats. The loop only notes where each kind's
    /// value stands, and those that matter are decoded: for a free half of them.
    #[inline(always)]
    fn quick_memory_event(
        &mut self,
        plane: &Plane,
        bytes: &[u8],
        range: Range<usize>,
        kind: Kind,
        offset: u64,
        out: &mut Decoded,
    ) -> Option<()> {
        let mut found = Found { places: [Place::default(); StatKind::COUNT] };
        let Range { start: mut at, end } = range;
        for expected in self.templates.of(kind) {
            if at >= end {
                break;
            }
            let head = word_at(bytes, at)?;
            if head & expected.mask != expected.value {
                *expected = Expected::of(plane, head)?;
            }
            let next = at + 2 + (head >> 8 & 0x7f) as usize;
            if let Some(place) = found.places.get_mut(expected.kind as usize) {
                *place = Place { tag: expected.tag, value: (at + expected.skip) as u32, end: next as u32 };
            }
            at = next;
        }
        if at != end {
            return None;
        }
        let pool_name = found.reference(plane, bytes, StatKind::AllocatorName)?.map(|entry| entry.name);
        let in_use = found.size(bytes, StatKind::BytesAllocated)?;
        // What has no allocator's name or no count is for the careful way.
        let (Some(pool_name), Some(level)) = (pool_name.filter(|name| !name.is_empty()), in_use) else {
            return None;
        };
        let mut event = Event {
            address: found.integer(bytes, StatKind::Address)?,
            requested: found.size(bytes, StatKind::RequestedBytes)?,
            chunk: found.size(bytes, StatKind::AllocationBytes)?,
            in_use,
            ..Event::bare(Picos(signed(offset)), kind)
        };
        if kind == Kind::Alloc {
            let name = |entry: Option<StatEntry>| entry.map_or(Name::EMPTY, |entry| entry.name);
            event.op = name(found.reference(plane, bytes, StatKind::TfOp)?);
            event.shape = name(found.reference(plane, bytes, StatKind::Shape)?);
            event.region = found
                .reference(plane, bytes, StatKind::RegionType)?
                .map_or(Region::Unknown, |entry| entry.region);
            event.run = found.integer(bytes, StatKind::RunId)?.map_or(0, signed);
            event.dtype =
                found.integer(bytes, StatKind::DataType)?.map_or(Dtype::Unknown, |n| dtype_of(signed(n)));
        }
        let mut counts = None;
        if out
            .pools
            .iter()
            .find(|(name, ..)| *name == pool_name)
            .is_none_or(|&(_, _, highest)| level > highest)
        {
            event.fragmentation = found.fraction(bytes, StatKind::Fragmentation)?;
            counts = Some(Counts {
                reserved: found.size(bytes, StatKind::BytesReserved)?,
                available: found.size(bytes, StatKind::BytesAvailable)?,
                peak: found.size(bytes, StatKind::PeakBytesInUse)?,
            });
        }
        self.keep(event, pool_name, counts, out);
        Some(())
    }
}

/// What the stats of the last allocation and of the last free began with. The next one's are nearly always of the same
/// kinds in the same order, so that one comparison tells what a stat is.
#[derive(Default)]
pub(super) struct Templates {
    alloc: [Expected; Templates::LONGEST],
    free: [Expected; Templates::LONGEST],
    /// The plane they are of, by its place in memory.
    plane: usize,
}

impl Templates {
    /// Events with more stats are decoded the careful way.
    const LONGEST: usize = 24;

    pub(super) fn begin(&mut self, plane: &Plane) {
        let address = std::ptr::from_ref(plane).addr();
        if self.plane != address {
            *self = Templates { plane: address, ..Templates::default() };
        }
    }

    #[inline(always)]
    fn of(&mut self, kind: Kind) -> &mut [Expected; Templates::LONGEST] {
        match kind {
            Kind::Alloc => &mut self.alloc,
            Kind::Free => &mut self.free,
        }
    }
}

/// The first bytes of a stat: 0x22, length, 0x08, id of one or two bytes, tag.
#[derive(Clone, Copy)]
struct Expected {
    mask: u64,
    value: u64,
    kind: StatKind,
    tag: u8,
    /// How far the value is from the beginning.
    skip: usize,
}

impl Default for Expected {
    /// Nothing is like this.
    fn default() -> Self {
        Expected { mask: 0, value: 1, kind: StatKind::Other, tag: 0, skip: 0 }
    }
}

impl Expected {
    /// What a stat that begins with `head` looks like; `None` where it is none, or too long.
    #[cold]
    fn of(plane: &Plane, head: u64) -> Option<Expected> {
        // The length must be below 128; otherwise it does not matter.
        const FRAME: u64 = 0xff_80ff;
        if head & FRAME != 0x08_0022 {
            return None;
        }
        let (id, tag, skip, mask) = match (head >> 31 & 1, head >> 39 & 1) {
            (0, _) => (head >> 24 & 0x7f, (head >> 32) as u8, 5, FRAME | 0xff_ff00_0000),
            (1, 0) => (
                head >> 24 & 0x7f | (head >> 32 & 0x7f) << 7,
                (head >> 40) as u8,
                6,
                FRAME | 0xffff_ff00_0000,
            ),
            _ => return None,
        };
        let kind = plane.stats.get(id).map_or(StatKind::Other, |entry| entry.kind);
        Some(Expected { mask, value: head & mask, kind, tag, skip })
    }
}

/// Where the values of an event's stats stand in a block, by kind.
struct Found {
    places: [Place; StatKind::COUNT],
}

/// A value: its tag (0 where there is none), and from where to where it stands.
#[derive(Clone, Copy, Default)]
struct Place {
    tag: u8,
    value: u32,
    end: u32,
}

/// Tags of an `XStat`'s values.
const DOUBLE: u8 = 0x11;
const UINT: u8 = 0x18;
const INT: u8 = 0x20;
const REF: u8 = 0x38;

/// Each answers `Some(None)` where the event has no such stat, and `None` where its form is not the usual one.
impl Found {
    #[inline(always)]
    fn varint(place: Place, bytes: &[u8]) -> Option<Option<u64>> {
        let (value, end) = varint_at(bytes, place.value as usize)?;
        (end == place.end as usize).then_some(Some(value))
    }

    #[inline(always)]
    fn integer(&self, bytes: &[u8], kind: StatKind) -> Option<Option<u64>> {
        let place = *self.places.get(kind as usize)?;
        match place.tag {
            INT | UINT => Found::varint(place, bytes),
            0 => Some(None),
            _ => None,
        }
    }

    #[inline(always)]
    fn size(&self, bytes: &[u8], kind: StatKind) -> Option<Option<Bytes>> {
        Some(self.integer(bytes, kind)?.map(|value| Bytes(signed(value).unsigned_abs())))
    }

    #[inline(always)]
    fn reference(&self, plane: &Plane, bytes: &[u8], kind: StatKind) -> Option<Option<StatEntry>> {
        let place = *self.places.get(kind as usize)?;
        match place.tag {
            REF => {
                let (id, end) = short_varint_at(bytes, place.value as usize)?;
                (end == place.end as usize).then(|| plane.stats.get(id))
            }
            0 => Some(None),
            _ => None,
        }
    }

    #[inline(always)]
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "six digits; or zero")]
    fn fraction(&self, bytes: &[u8], kind: StatKind) -> Option<Option<f32>> {
        let place = *self.places.get(kind as usize)?;
        match place.tag {
            DOUBLE if place.value + 8 == place.end => {
                Some(Some(f64::from_bits(word_at(bytes, place.value as usize)?) as f32))
            }
            INT | UINT => Some(Found::varint(place, bytes)?.map(|value| value as f32)),
            0 => Some(None),
            _ => None,
        }
    }
}
