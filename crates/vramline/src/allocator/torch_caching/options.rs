//! The allocator's settings, as `PYTORCH_CUDA_ALLOC_CONF` and the version give them.

use crate::units::Bytes;

/// The smallest block; sizes are rounded up to a multiple of it.
pub(super) const GRANULE: u64 = 512;
/// The largest small request.
pub(super) const SMALL: u64 = 1 << 20;
/// The segment size of small requests.
pub(super) const SMALL_SEGMENT: u64 = 2 << 20;
/// The smallest request that gets its own segment.
const OWN_SEGMENT: u64 = 10 << 20;
/// The size of such a segment is a multiple of this.
const SEGMENT_STEP: u64 = 2 << 20;
/// A large block is split if more than this remains.
pub(super) const LARGEST_SLACK: u64 = 1 << 20;
/// More than the memory of any device; the sum of a few of these does not overflow.
pub(super) const LARGEST: u64 = 1 << 56;

const LARGE_SEGMENT: u64 = 20 << 20;
const MIB: u64 = 1 << 20;

/// The order of free blocks of the same size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TieBreak {
    /// The lowest address first.
    #[default]
    Address,
    /// The oldest segment first, then the lowest address (since May 2026).
    Segment,
}

/// The number of rounding steps between two powers of two, for each power of two.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Divisions([u32; Divisions::COUNT]);

impl Divisions {
    const COUNT: usize = 16;

    /// The same number for all sizes; 0 and 1 mean no rounding.
    #[must_use]
    pub fn all(divisions: u32) -> Divisions {
        Divisions([divisions; Divisions::COUNT])
    }

    /// Sets the entry for sizes from a number of MiB, which is a power of two.
    pub fn set(&mut self, mebibytes: u64, divisions: u32) {
        let number = (mebibytes.max(1).ilog2() as usize).min(Divisions::COUNT - 1);
        if let Some(entry) = self.0.get_mut(number) {
            *entry = divisions;
        }
    }

    #[inline]
    fn of(&self, size: u64) -> u64 {
        let number = (size.max(1).ilog2().saturating_sub(20) as usize).min(Divisions::COUNT - 1);
        u64::from(self.0.get(number).copied().unwrap_or_default())
    }

    /// Parses the value of `roundup_power2_divisions:`: a number, or a list such as `[256:1,512:2,>:8]`.
    fn parse(text: &str) -> Option<Divisions> {
        let number = |text: &str| {
            text.trim().parse::<u32>().ok().filter(|&parts| parts == 0 || parts.is_power_of_two())
        };
        let Some(list) = text.strip_prefix('[') else { return number(text).map(Divisions::all) };
        let mut made = Divisions::default();
        let mut last = None;
        for pair in list.strip_suffix(']')?.split(',') {
            let (key, parts) = pair.split_once(':')?;
            let parts = number(parts)?;
            let key = key.trim();
            let begin = if key == ">" {
                last.map_or(0, |last: usize| last + 1)
            } else {
                let key: u64 = key.parse().ok().filter(|key: &u64| key.is_power_of_two())?;
                (key.ilog2() as usize).min(Divisions::COUNT - 1)
            };
            let end = if key == ">" { Divisions::COUNT } else { begin + 1 };
            // The first key applies to all smaller sizes.
            let begin = if last.is_none() { 0 } else { begin };
            made.0.iter_mut().take(end).skip(begin).for_each(|entry| *entry = parts);
            last = Some(end - 1);
        }
        Some(made)
    }
}

/// The settings of the allocator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// The order of free blocks of the same size.
    pub tie_break: TieBreak,
    /// Blocks of at least this size are not split, and serve only requests of at least this size (`max_split_size_mb`).
    pub max_split: Option<Bytes>,
    /// Such a block may exceed its request by less than this (`max_non_split_rounding_mb`).
    pub max_non_split_rounding: Bytes,
    /// How sizes are rounded beyond 512 bytes (`roundup_power2_divisions`).
    pub divisions: Divisions,
    /// The share of the cap above which idle segments are returned (`garbage_collection_threshold`); 0 means never.
    pub garbage_collection_threshold: f64,
    /// Whether segments grow in place (`expandable_segments`).
    pub expandable: bool,
    /// The segment size of large requests below 10 MiB (`large_segment_size_mb`).
    pub large_segment: Bytes,
    /// The most that may be reserved from the driver (`set_per_process_memory_fraction`).
    pub cap: Option<Bytes>,
    /// The memory of the device, which determines the address space of an expandable segment.
    pub device_total: Bytes,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            tie_break: TieBreak::Address,
            max_split: None,
            max_non_split_rounding: Bytes(LARGE_SEGMENT),
            divisions: Divisions::default(),
            garbage_collection_threshold: 0.0,
            expandable: false,
            large_segment: Bytes(LARGE_SEGMENT),
            cap: None,
            device_total: Bytes(1 << 40),
        }
    }
}

/// The error of a setting that PyTorch would reject too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected settings such as max_split_size_mb:128,expandable_segments:True, found '{0}'")]
pub(crate) struct NotOptions(String);

impl Options {
    /// Applies a text in the format of `PYTORCH_CUDA_ALLOC_CONF`. Keys that do not affect where blocks are
    /// placed are ignored.
    pub(crate) fn configured(self, text: &str) -> Result<Options, NotOptions> {
        let mut options = self;
        for (key, value) in pairs(text) {
            let wrong = || NotOptions(format!("{key}:{value}"));
            let mebibytes = |least: u64| {
                let number =
                    value.parse::<u64>().ok().filter(|&number| number >= least && number < LARGEST / MIB);
                number.map(|number| Bytes(number * MIB)).ok_or_else(wrong)
            };
            match key {
                "max_split_size_mb" => options.max_split = Some(mebibytes(LARGE_SEGMENT / MIB)?),
                "max_non_split_rounding_mb" => {
                    options.max_non_split_rounding = mebibytes(LARGE_SEGMENT / MIB)?;
                }
                "large_segment_size_mb" => options.large_segment = mebibytes(OWN_SEGMENT / MIB + 1)?,
                "garbage_collection_threshold" => {
                    let share = value.parse::<f64>().ok().filter(|share| *share > 0.0 && *share < 1.0);
                    options.garbage_collection_threshold = share.ok_or_else(wrong)?;
                }
                "expandable_segments" => {
                    options.expandable = match value {
                        "True" => true,
                        "False" => false,
                        _ => return Err(wrong()),
                    };
                }
                "roundup_power2_divisions" => {
                    options.divisions = Divisions::parse(value).ok_or_else(wrong)?;
                }
                _ => {}
            }
        }
        Ok(options)
    }

    /// The rounded size of a request; `None` if no device has that much memory.
    #[must_use]
    #[inline]
    pub fn rounded(&self, bytes: Bytes) -> Option<Bytes> {
        let size = bytes.0;
        if size > LARGEST {
            return None;
        }
        if size < GRANULE {
            return Some(Bytes(GRANULE));
        }
        let parts = self.divisions.of(size);
        if parts > 1 && size > GRANULE * parts && !size.is_power_of_two() {
            let power = 1u64 << size.ilog2();
            let step = power >> parts.ilog2();
            return Some(Bytes(if step == 0 { power << 1 } else { size.next_multiple_of(step) }));
        }
        Some(Bytes(size.next_multiple_of(GRANULE)))
    }

    /// The segment size for a rounded request.
    #[must_use]
    pub fn segment(&self, rounded: Bytes) -> Bytes {
        if rounded.0 <= SMALL {
            Bytes(SMALL_SEGMENT)
        } else if rounded.0 < OWN_SEGMENT {
            self.large_segment.max(rounded)
        } else {
            Bytes(rounded.0.next_multiple_of(SEGMENT_STEP))
        }
    }

    /// Whether idle segments are returned before the cap is reached.
    #[inline]
    pub(super) fn collects(&self) -> bool {
        self.cap.is_some() && self.garbage_collection_threshold > 0.0
    }

    /// The reserved bytes above which that happens.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "truncated in double precision, as there"
    )]
    pub(super) fn collects_from(&self) -> u64 {
        (self.garbage_collection_threshold * self.cap.unwrap_or_default().0 as f64) as u64
    }

    /// The smallest size of blocks that are not split.
    #[inline]
    pub(super) fn split_below(&self) -> u64 {
        self.max_split.map_or(u64::MAX, |bytes| bytes.0)
    }

    /// The page of an expandable segment.
    pub(super) fn page(&self, is_small: bool) -> u64 {
        if is_small { SMALL_SEGMENT } else { self.large_segment.0.clamp(GRANULE, LARGEST) }
    }

    /// The address space of an expandable segment.
    pub(super) fn address_space(&self, is_small: bool) -> u64 {
        let total = self.device_total.0.min(LARGEST);
        (total + total / 8).next_multiple_of(self.page(is_small))
    }
}

/// Splits keys and values at commas outside brackets.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut depth = 0i32;
        let ends = |symbol: char| {
            match symbol {
                '[' => depth += 1,
                ']' => depth -= 1,
                _ => {}
            }
            symbol == ',' && depth <= 0
        };
        let (pair, after) = match rest.find(ends) {
            Some(at) => (rest.get(..at)?, rest.get(at + 1..)?),
            None => (rest, ""),
        };
        rest = after;
        if pair.is_empty() && after.is_empty() {
            return None;
        }
        Some(pair.split_once(':').map_or((pair.trim(), ""), |(key, value)| (key.trim(), value.trim())))
    })
}
