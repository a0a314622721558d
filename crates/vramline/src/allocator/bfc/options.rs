//! The differences between versions of the allocator as explicit options, and the presets of the frameworks.

use crate::units::Bytes;

/// The format of the out-of-memory log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// TensorFlow 2.5 to 2.11: bytes as numbers, `total_region_allocated_bytes_`.
    RegionBytes,
    /// TensorFlow 2.12 to 2.20: bytes as numbers, `Total bytes in pool`.
    PoolBytes,
    /// TensorFlow 2.21: sizes for people, `Total size in pool`.
    PoolSize,
    /// XLA since June 2026: tags, and a summary of its own.
    Tagged,
}

/// When a pool tries a smaller region after a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backpedal {
    /// For the first refused region only (before February 2024).
    Once,
    /// For every region.
    Always,
}

/// The settings of a BFC allocator, except its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Options {
    /// Whether it starts with 2 MiB and doubles, or reserves its limit at the first request.
    pub growth: bool,
    /// Whether regions without a live chunk are returned before a request fails.
    pub garbage_collection: bool,
    /// Whether a failed request is tried again.
    pub retry: bool,
    /// The share of the limit by which a chunk may exceed its request; zero means 128 MiB.
    pub fragmentation_fraction: f64,
    /// When it tries smaller regions.
    pub backpedal: Backpedal,
    /// Whether the next size tried is always smaller: before August 2026, small sizes were rounded up to themselves.
    pub backpedal_shrinks: bool,
    /// Whether the alignment of a request is respected (since April 2026).
    pub aligned: bool,
    /// Regions and the limit are multiples of this; 1 means no rounding.
    pub granularity: Bytes,
    /// Whether ordinary memory is taken from the lower end and collective memory from the upper (since June 2026).
    pub spatial: bool,
    /// Whether freed chunks wait for a frontier before they are merged.
    pub timed: bool,
    /// The format of its log.
    pub dialect: Dialect,
}

const VMM_GRANULARITY: Bytes = Bytes(2 << 20);

const TENSORFLOW: Options = Options {
    growth: false,
    garbage_collection: true,
    retry: true,
    fragmentation_fraction: 0.0,
    backpedal: Backpedal::Always,
    backpedal_shrinks: false,
    aligned: false,
    granularity: Bytes(1),
    spatial: false,
    timed: false,
    dialect: Dialect::PoolSize,
};

const TENSORFLOW_HOST: Options = Options { growth: true, garbage_collection: false, ..TENSORFLOW };

const TENSORFLOW_2_17: Options = Options { dialect: Dialect::PoolBytes, ..TENSORFLOW };

const TENSORFLOW_2_15: Options = Options { backpedal: Backpedal::Once, ..TENSORFLOW_2_17 };

const JAX_CLASSIC: Options = Options { garbage_collection: false, ..TENSORFLOW_2_17 };

const JAX: Options = Options {
    garbage_collection: false,
    backpedal_shrinks: true,
    aligned: true,
    granularity: VMM_GRANULARITY,
    spatial: true,
    dialect: Dialect::Tagged,
    ..TENSORFLOW
};

/// Options with the name of the framework and version that use them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// Framework, version and kind of pool.
    pub name: &'static str,
    /// Its options.
    pub options: Options,
}

/// All presets. A version applies until the next listed version of the same framework.
pub const PRESETS: &[Preset] = &[
    Preset { name: "tensorflow-2.15-gpu", options: TENSORFLOW_2_15 },
    Preset { name: "tensorflow-2.15-gpu-growth", options: Options { growth: true, ..TENSORFLOW_2_15 } },
    Preset {
        name: "tensorflow-2.15-cpu",
        options: Options { growth: true, garbage_collection: false, ..TENSORFLOW_2_15 },
    },
    Preset { name: "tensorflow-2.17-gpu", options: TENSORFLOW_2_17 },
    Preset { name: "tensorflow-2.17-gpu-growth", options: Options { growth: true, ..TENSORFLOW_2_17 } },
    Preset {
        name: "tensorflow-2.17-cpu",
        options: Options { growth: true, garbage_collection: false, ..TENSORFLOW_2_17 },
    },
    Preset { name: "tensorflow-2.21-gpu", options: TENSORFLOW },
    Preset { name: "tensorflow-2.21-gpu-growth", options: Options { growth: true, ..TENSORFLOW } },
    Preset { name: "tensorflow-2.21-cpu", options: TENSORFLOW_HOST },
    Preset { name: "jax-0.4-preallocated", options: JAX_CLASSIC },
    Preset { name: "jax-0.4-growth", options: Options { growth: true, ..JAX_CLASSIC } },
    Preset { name: "jax-0.11-preallocated", options: JAX },
    Preset { name: "jax-0.11-growth", options: Options { growth: true, spatial: false, ..JAX } },
    Preset {
        name: "jax-0.11-host",
        options: Options { growth: true, spatial: false, granularity: Bytes(1), ..JAX },
    },
];

impl Preset {
    /// The preset of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Preset> {
        PRESETS.iter().copied().find(|preset| preset.name == name)
    }
}

impl Options {
    /// The name of the allocator in documents.
    #[must_use]
    pub fn model(&self) -> &'static str {
        if self.spatial { "bfc-spatial" } else { "bfc-classic" }
    }

    /// The limit, rounded to whole granules.
    #[must_use]
    pub fn limit(&self, asked: Bytes) -> Bytes {
        Bytes(asked.0.checked_next_multiple_of(self.granularity.0.max(1)).unwrap_or(asked.0))
    }

    /// The most by which a chunk may exceed its request without being split; `None` if the fraction is so small
    /// that even empty chunks would be split off, which no real pool does.
    #[must_use]
    pub(crate) fn largest_slack(&self, limit: Bytes) -> Option<Bytes> {
        const DEFAULT: Bytes = Bytes(128 << 20);
        if self.fragmentation_fraction <= 0.0 {
            return Some(DEFAULT);
        }
        #[expect(clippy::cast_precision_loss, reason = "the real one computes in double precision too")]
        let bytes = self.fragmentation_fraction * limit.0 as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "truncated, as there")]
        (bytes >= 1.0).then_some(Bytes(bytes as u64))
    }
}
