//! Second pass, the quick way: events as writers write them.
//!
//! Writers put an event's scalars first and in order, and give a memory event fourteen stats of an id and a number each.
//! This reads exactly that, several times faster than [`super::decode`] reads anything the format allows. Each function
//! answers `None`, having changed nothing, where an event is otherwise; then the careful way is taken.

use std::ops::Range;

use super::decode::{Counts, Decoded, Decoder, dtype_of};
use super::index::{Class, Plane, PlaneRole, StatEntry, StatKind};
use crate::event::{Dtype, Event, ExecutorRun, Kind, Region};
use crate::names::Name;
use crate::source::wire::{short_varint_at, signed, varint_at, word_at};
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
    /// This is where a trace's time goes: a memory event has fourteen stats. Where they stand follows from the event
    /// before, and those that matter are decoded: for a free half of them.
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
        let (template, lengths) = self.templates.of(kind);
        let mut places = [0; Template::LONGEST + 1];
        if template.find(bytes, range.clone(), &mut places).is_none() {
            *template = Template::of(plane, bytes, range.clone(), lengths)?;
            template.find(bytes, range, &mut places)?;
        }
        let found = EventStats { template, places: &places };
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
            let run = found.integer(bytes, StatKind::RunId)?;
            event.executor_run = run.and_then(|number| ExecutorRun::new(signed(number)));
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

/// How the stats of the last allocation and of the last free were laid out. The next one's are nearly always of the
/// same kinds in the same order.
#[derive(Default)]
pub(super) struct Templates {
    alloc: Template,
    free: Template,
    lengths: Lengths,
    /// The plane they are of, by its place in memory.
    plane: usize,
}

impl Templates {
    pub(super) fn begin(&mut self, plane: &Plane) {
        let address = std::ptr::from_ref(plane).addr();
        if self.plane != address {
            *self = Templates { plane: address, ..Templates::default() };
        }
    }

    #[inline(always)]
    fn of(&mut self, kind: Kind) -> (&mut Template, &mut Lengths) {
        match kind {
            Kind::Alloc => (&mut self.alloc, &mut self.lengths),
            Kind::Free => (&mut self.free, &mut self.lengths),
        }
    }
}

/// What was seen of the lengths of each kind of stat.
type Lengths = [Length; StatKind::COUNT];

#[derive(Clone, Copy, Default, PartialEq)]
enum Length {
    #[default]
    Unseen,
    Always(u64),
    Varies,
}

impl Length {
    /// Takes note of one more; says whether all were the same.
    fn is_always(&mut self, length: u64) -> bool {
        *self = match *self {
            Length::Unseen => Length::Always(length),
            Length::Always(known) if known == length => *self,
            _ => Length::Varies,
        };
        *self != Length::Varies
    }
}

/// The stats of an event as they are expected.
///
/// Each stat is compared at its own place, and only one whose length varies has to be read before it is known where
/// the next begins: waiting for each to tell where the next one is would take longer than all the rest.
#[derive(Default)]
struct Template {
    stats: [Expected; Template::LONGEST],
    /// Groups of stats: each begins where the one before ended, and only its last stat's length may vary. The number of
    /// stats up to the end of each.
    groups: [u8; Template::LONGEST],
    group_count: usize,
    slots: [Slot; StatKind::COUNT],
}

/// The first bytes of a stat: 0x22, length, 0x08, id of one or two bytes, tag.
#[derive(Clone, Copy, Default)]
struct Expected {
    mask: u64,
    value: u64,
    /// Where it is, from the beginning of its group.
    offset: usize,
}

/// Which stat of an event is of a kind.
#[derive(Clone, Copy, Default)]
struct Slot {
    /// The tag of its value; 0 where there is no such stat.
    tag: u8,
    /// The stat's number.
    stat: u8,
    /// How far the value is from the beginning of the stat.
    skip: u8,
}

/// Where each stat of an event begins and, behind the last, where that ends.
type Places = [u32; Template::LONGEST + 1];

impl Template {
    /// Events with more stats are decoded the careful way.
    const LONGEST: usize = 24;

    /// The layout of an event like the one in `range`; `None` where there is anything unusual about it.
    #[cold]
    fn of(plane: &Plane, bytes: &[u8], range: Range<usize>, lengths: &mut Lengths) -> Option<Template> {
        /// The parts of a stat's head that tell what it is, and the length.
        const FRAME: u64 = 0xff_00ff;
        const LENGTH: u64 = 0xff00;
        let mut template = Template::default();
        let (mut at, mut group) = (range.start, range.start);
        let mut count = 0u8;
        while at < range.end {
            let head = word_at(bytes, at)?;
            let length = head >> 8 & 0xff;
            if head & FRAME != 0x08_0022 || length >= 0x80 {
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
            *template.slots.get_mut(kind as usize)? = Slot { tag, stat: count, skip };
            let is_always = lengths.get_mut(kind as usize)?.is_always(length);
            // A length of several bytes must not pass for one of one.
            let mask = mask | if is_always { LENGTH } else { 0x8000 };
            *template.stats.get_mut(usize::from(count))? =
                Expected { mask, value: head & mask, offset: at - group };
            count += 1;
            at += 2 + length as usize;
            if !is_always || at >= range.end {
                *template.groups.get_mut(template.group_count)? = count;
                template.group_count += 1;
                group = at;
            }
        }
        (at == range.end).then_some(template)
    }

    /// Notes where the stats of the event in `range` stand, if they are as expected.
    #[inline(always)]
    fn find(&self, bytes: &[u8], range: Range<usize>, places: &mut Places) -> Option<()> {
        let mut base = range.start;
        let mut first = 0;
        for &end in self.groups.get(..self.group_count)? {
            let end = usize::from(end);
            let (mut at, mut head) = (base, 0);
            for (expected, place) in self.stats.get(first..end)?.iter().zip(places.get_mut(first..end)?) {
                at = base + expected.offset;
                head = word_at(bytes, at)?;
                if head & expected.mask != expected.value {
                    return None;
                }
                *place = at as u32;
            }
            base = at + 2 + (head >> 8 & 0x7f) as usize;
            first = end;
        }
        *places.get_mut(first)? = base as u32;
        (base == range.end).then_some(())
    }
}

/// The values of an event's stats.
struct EventStats<'t> {
    template: &'t Template,
    places: &'t Places,
}

/// A value: its tag (0 where there is none), and from where to where it stands.
#[derive(Clone, Copy)]
struct Place {
    tag: u8,
    value: usize,
    end: usize,
}

/// Tags of an `XStat`'s values.
const DOUBLE: u8 = 0x11;
const UINT: u8 = 0x18;
const INT: u8 = 0x20;
const REF: u8 = 0x38;

/// Each answers `Some(None)` where the event has no such stat, and `None` where its form is not the usual one.
impl EventStats<'_> {
    #[inline(always)]
    fn place(&self, kind: StatKind) -> Option<Place> {
        let slot = self.template.slots.get(kind as usize)?;
        let &[begin, end] = self.places.get(usize::from(slot.stat)..)?.first_chunk::<2>()?;
        Some(Place { tag: slot.tag, value: begin as usize + usize::from(slot.skip), end: end as usize })
    }

    #[inline(always)]
    fn varint(place: Place, bytes: &[u8]) -> Option<Option<u64>> {
        let (value, end) = varint_at(bytes, place.value)?;
        (end == place.end).then_some(Some(value))
    }

    #[inline(always)]
    fn integer(&self, bytes: &[u8], kind: StatKind) -> Option<Option<u64>> {
        let place = self.place(kind)?;
        match place.tag {
            INT | UINT => EventStats::varint(place, bytes),
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
        let place = self.place(kind)?;
        match place.tag {
            REF => {
                let (id, end) = short_varint_at(bytes, place.value)?;
                (end == place.end).then(|| plane.stats.get(id))
            }
            0 => Some(None),
            _ => None,
        }
    }

    #[inline(always)]
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "six digits; or zero")]
    fn fraction(&self, bytes: &[u8], kind: StatKind) -> Option<Option<f32>> {
        let place = self.place(kind)?;
        match place.tag {
            DOUBLE if place.value + 8 == place.end => {
                Some(Some(f64::from_bits(word_at(bytes, place.value)?) as f32))
            }
            INT | UINT => Some(EventStats::varint(place, bytes)?.map(|value| value as f32)),
            0 => Some(None),
            _ => None,
        }
    }
}
