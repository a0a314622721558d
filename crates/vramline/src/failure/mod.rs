//! *Internal.* A failed allocation as reported in the input: facts, no conclusions.
//!
//! Texts round their sizes, so most figures are a [`SizeRange`] between two whole numbers of bytes. Two lines
//! with the same figure narrow it. A figure that no line contains is `None`. Whether a pool was full, fragmented, or short because of
//! other processes is decided in `postmortem/`.

mod layout;

use std::path::PathBuf;

use crate::event::{Framework, device_of};
use crate::names::Names;
use crate::snapshot::{Held, Snapshot, Still, StillPool};
use crate::stack::Stacks;
use crate::units::{Bytes, plural};
use crate::warning::Warnings;

pub(crate) use layout::{BINS, bin_of};
pub use layout::{Bin, Chunk, Layout, Region, Sums, Tag};

/// A pool is cut into multiples of this (BFC).
pub(crate) const GRANULE: u64 = 256;

/// A size between two bounds; exact if they are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    /// The lower bound.
    pub low: Bytes,
    /// The upper bound.
    pub high: Bytes,
}

impl SizeRange {
    /// An exact size.
    #[must_use]
    pub fn exact(bytes: Bytes) -> SizeRange {
        SizeRange { low: bytes, high: bytes }
    }

    /// The size, if it is exact.
    #[must_use]
    pub fn value(self) -> Option<Bytes> {
        (self.low == self.high).then_some(self.low)
    }

    /// The intersection; `None` if they contradict each other.
    #[must_use]
    pub fn and(self, other: SizeRange) -> Option<SizeRange> {
        let both = SizeRange { low: self.low.max(other.low), high: self.high.min(other.high) };
        (both.low <= both.high).then_some(both)
    }

    /// The middle: the figure in a text that rounds to the nearest value.
    #[must_use]
    pub fn middle(self) -> Bytes {
        Bytes(self.low.0 + (self.high.0 - self.low.0) / 2)
    }

    /// The sum.
    #[must_use]
    pub(crate) fn plus(self, other: SizeRange) -> SizeRange {
        SizeRange { low: self.low + other.low, high: self.high + other.high }
    }

    /// The difference; zero if the other is larger.
    #[must_use]
    pub(crate) fn minus(self, other: SizeRange) -> SizeRange {
        SizeRange { low: self.low.saturating_sub(other.high), high: self.high.saturating_sub(other.low) }
    }

    /// Both bounds, rounded down to a multiple of [`GRANULE`].
    #[must_use]
    pub(crate) fn in_granules(self) -> SizeRange {
        let down = |bytes: Bytes| Bytes(bytes.0 - bytes.0 % GRANULE);
        SizeRange { low: down(self.low), high: down(self.high) }
    }
}

/// Narrows a range by another one; a contradiction changes nothing and returns false.
pub(crate) fn narrow(known: &mut Option<SizeRange>, told: Option<SizeRange>) -> bool {
    match (*known, told) {
        (_, None) => true,
        (None, Some(told)) => {
            *known = Some(told);
            true
        }
        (Some(before), Some(told)) => match before.and(told) {
            Some(both) => {
                *known = Some(both);
                true
            }
            None => false,
        },
    }
}

/// The format of a failure message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dialect {
    /// TensorFlow up to 1.13: `Chunk at 0x.. of size N`.
    BfcA,
    /// TensorFlow 1.14 to 2.0: `InUse at 0x.. next H of size N`.
    BfcB,
    /// TensorFlow 2.1 to 2.21: `InUse at HEX of size N next H`.
    BfcC,
    /// XLA since June 2026: chunks have a `tag`.
    BfcD,
    /// BFC's text without its list of chunks, so its version is unknown.
    Bfc,
    /// TensorFlow's error line alone.
    TensorFlowError,
    /// JAX's error line alone.
    JaxError,
    /// CUDA's asynchronous pool under TensorFlow or JAX.
    CudaMallocAsync,
    /// PyTorch's sentence.
    PyTorch,
    /// The lines that PyTorch writes about CUDA's asynchronous pool.
    TorchAsynchronous,
    /// The driver's refusal alone, as TensorFlow passes it on.
    DriverRefusal,
    /// A TPU's message.
    Tpu,
    /// The message of a library: CUDA's own errors, cuBLAS, NCCL, CuPy and others.
    Library,
    /// An entry in the history of a PyTorch snapshot.
    TorchSnapshot,
    /// The binary `MemoryDump` alone.
    MemoryDump,
}

words!(Dialect {
    BfcA => "bfc-a",
    BfcB => "bfc-b",
    BfcC => "bfc-c",
    BfcD => "bfc-d",
    Bfc => "bfc",
    TensorFlowError => "tensorflow-error",
    JaxError => "jax-error",
    CudaMallocAsync => "cuda-malloc-async",
    PyTorch => "pytorch",
    TorchAsynchronous => "pytorch-async",
    DriverRefusal => "driver-refusal",
    Tpu => "tpu",
    Library => "library",
    TorchSnapshot => "torch-snapshot",
    MemoryDump => "memory-dump",
});

impl Dialect {
    /// Whether the pool is BFC's.
    #[must_use]
    pub fn is_bfc(self) -> bool {
        use Dialect::{Bfc, BfcA, BfcB, BfcC, BfcD, JaxError, MemoryDump, TensorFlowError};
        matches!(self, BfcA | BfcB | BfcC | BfcD | Bfc | TensorFlowError | JaxError | MemoryDump)
    }
}

/// The kind of memory of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// NVIDIA's.
    Cuda,
    /// AMD's.
    Hip,
    /// Intel's.
    Xpu,
    /// Huawei's Ascend.
    Npu,
    /// Cambricon's.
    Mlu,
    /// Moore Threads'.
    Musa,
    /// Apple's.
    Metal,
    /// Google's TPU.
    Tpu,
    /// Host memory.
    Host,
    /// Another, or unknown.
    Other,
}

words!(Platform {
    Cuda => "cuda",
    Hip => "hip",
    Xpu => "xpu",
    Npu => "npu",
    Mlu => "mlu",
    Musa => "musa",
    Metal => "metal",
    Tpu => "tpu",
    Host => "host",
    Other => "other",
});

/// XLA's figures for a program that it compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProgramNeed {
    /// XLA's estimate of what it needs.
    pub needed: SizeRange,
    /// XLA's budget for it.
    pub budget: SizeRange,
}

/// Requests that failed although the program could continue without them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SoftFailures {
    /// Their number.
    pub count: u64,
    /// The smallest and the largest.
    pub sizes: Option<SizeRange>,
    /// The pools, as the framework names them.
    pub pools: Vec<String>,
    /// Number of times that the driver refused to let a pool grow, in a program that continued.
    pub refusals: u64,
    /// The largest refused request.
    pub largest_refusal: Option<Bytes>,
}

impl SoftFailures {
    /// Adds one.
    pub(crate) fn add(&mut self, pool: Option<&String>, size: Option<SizeRange>) {
        self.append(SoftFailures {
            count: 1,
            sizes: size,
            pools: pool.cloned().into_iter().collect(),
            ..SoftFailures::default()
        });
    }

    fn append(&mut self, other: SoftFailures) {
        self.count += other.count;
        self.sizes = match (self.sizes, other.sizes) {
            (Some(a), Some(b)) => Some(SizeRange { low: a.low.min(b.low), high: a.high.max(b.high) }),
            (a, b) => a.or(b),
        };
        self.pools.extend(other.pools);
        self.pools.sort_unstable();
        self.pools.dedup();
        self.refusals += other.refusals;
        self.largest_refusal = self.largest_refusal.max(other.largest_refusal);
    }
}

/// Figures of the whole device in a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceMemory {
    /// All of it.
    pub total: Option<SizeRange>,
    /// Its free memory.
    pub free: Option<SizeRange>,
    /// Memory of this process, including context and libraries.
    pub this_process: Option<SizeRange>,
    /// Memory of the other processes that the text lists.
    pub others: Option<SizeRange>,
}

/// A buffer that XLA lists as part of an executable's peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// Its size.
    pub size: SizeRange,
    /// The op with its source location, as written by XLA; empty for a parameter.
    pub operator: String,
    /// XLA's own name for the instruction.
    pub label: String,
    /// Its shape.
    pub shape: String,
}

/// Where a failure is reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    /// The file.
    pub path: PathBuf,
    /// The line, from 1; `None` in a binary file.
    pub line: Option<u64>,
    /// The time, as written in the text; empty if there is none.
    pub time: String,
    /// Wall-clock time in microseconds, from the name of a dump or of a text in a recording.
    pub micros: Option<u64>,
}

/// A failed allocation.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Where it is reported.
    pub witnesses: Vec<Witness>,
    /// The format of the message.
    pub dialect: Dialect,
    /// The pool; `None` if unknown.
    pub allocator: Option<String>,
    /// Requested bytes.
    pub requested: Option<SizeRange>,
    /// The same, as rounded by the allocator. PyTorch reports what it requested from the driver instead.
    pub rounded: Option<SizeRange>,
    /// The op that made the request.
    pub op: Option<String>,
    /// The tensor's shape.
    pub shape: Option<String>,
    /// Its element type.
    pub dtype: Option<String>,
    /// The device, as the framework names it.
    pub device: Option<String>,
    /// The executable that made the request.
    pub executable: Option<String>,
    /// XLA's figures for the program that made the request.
    pub program: Option<ProgramNeed>,
    /// The kind of memory.
    pub platform: Option<Platform>,
    /// The library that reported the failure, if it is not the framework itself.
    pub library: Option<&'static str>,
    /// The request of the pool that the driver refused just before.
    pub refused: Option<Bytes>,
    /// Whether the text does not speak of memory, which ran short just before.
    pub is_inferred: bool,
    /// Whether the process had not allocated anything on the device yet.
    pub is_at_start: bool,
    /// The end of the pool that it is placed at.
    pub end: Tag,
    /// The limit of the pool.
    pub limit: Option<SizeRange>,
    /// Whether the text itself says that the limit is a setting.
    pub is_limit_set: bool,
    /// Bytes that it reserved.
    pub pool: Option<SizeRange>,
    /// What the limit leaves, as reported.
    pub unallocated: Option<SizeRange>,
    /// Bytes in use, including rounding.
    pub in_use: Option<SizeRange>,
    /// Requested bytes of those in use.
    pub requested_in_use: Option<SizeRange>,
    /// Free bytes of the pool that the request may use.
    pub free: Option<SizeRange>,
    /// The largest free block.
    pub largest_free: Option<SizeRange>,
    /// Peak bytes in use.
    pub peak_in_use: Option<SizeRange>,
    /// Number of allocations.
    pub allocs: Option<u64>,
    /// The figures of the bins.
    pub bins: Vec<Bin>,
    /// The sums of the chunks, if the list is complete.
    pub sums: Option<Sums>,
    /// The chunks themselves, unless there are too many to keep.
    pub layout: Option<Layout>,
    /// The device as a whole.
    pub memory: DeviceMemory,
    /// The buffers of the executable's peak, as listed by XLA.
    pub buffers: Vec<Buffer>,
    /// Number of attempts: a binary dump is written at each.
    pub attempts: u64,
}

impl Failure {
    /// Whether the memory is the host's: a framework's CPU allocator, which has no pool, takes it from the system.
    #[must_use]
    pub fn is_of_host(&self) -> bool {
        let is_allocator = self.allocator.as_deref().is_some_and(|name| matches!(name, "cpu" | "mklcpu"));
        let has_pool =
            self.sums.is_some() || self.pool.is_some() || self.limit.is_some() || self.in_use.is_some();
        self.platform == Some(Platform::Host) || is_allocator && !has_pool
    }

    /// An empty failure.
    #[must_use]
    pub fn new(dialect: Dialect) -> Failure {
        Failure {
            witnesses: Vec::new(),
            dialect,
            allocator: None,
            requested: None,
            rounded: None,
            op: None,
            shape: None,
            dtype: None,
            device: None,
            executable: None,
            program: None,
            platform: None,
            library: None,
            refused: None,
            is_inferred: false,
            is_at_start: false,
            end: Tag::Lower,
            limit: None,
            is_limit_set: false,
            pool: None,
            unallocated: None,
            in_use: None,
            requested_in_use: None,
            free: None,
            largest_free: None,
            peak_in_use: None,
            allocs: None,
            bins: Vec::new(),
            sums: None,
            layout: None,
            memory: DeviceMemory::default(),
            buffers: Vec::new(),
            attempts: 1,
        }
    }

    /// Uses the sums of all chunks of the pool: nothing is more precise.
    pub(crate) fn set_sums(&mut self, sums: Sums) {
        self.pool = Some(SizeRange::exact(sums.pool));
        self.in_use = Some(SizeRange::exact(sums.in_use));
        self.free = Some(SizeRange::exact(sums.usable));
        self.largest_free = Some(SizeRange::exact(sums.largest_usable));
        if let Some(requested) = sums.requested {
            self.requested_in_use = Some(SizeRange::exact(requested));
        }
        self.sums = Some(sums);
    }

    /// Wall-clock time of the last attempt in microseconds, if a dump or a text has it.
    #[must_use]
    pub(crate) fn last_micros(&self) -> Option<u64> {
        self.witnesses.iter().filter_map(|witness| witness.micros).max()
    }

    /// The same for the last dump; a text is written later, when the pool may have changed.
    #[must_use]
    pub(crate) fn last_dump_micros(&self) -> Option<u64> {
        self.witnesses
            .iter()
            .filter(|witness| witness.line.is_none())
            .filter_map(|witness| witness.micros)
            .max()
    }

    /// Rounding: bytes of chunks in use beyond their requests.
    #[must_use]
    pub fn slack(&self) -> Option<SizeRange> {
        Some(self.in_use?.minus(self.requested_in_use?))
    }
}

/// The failures in a source.
#[derive(Clone, Debug, Default)]
pub struct Failures {
    /// In the order of the source.
    pub list: Vec<Failure>,
    /// The names of [`Chunk::op`].
    pub names: Names,
    /// Requests that failed without ending the job.
    pub soft: SoftFailures,
    /// What could not be read.
    pub warnings: Warnings,
}

impl Failures {
    /// Adds the failures of another source.
    pub fn append(&mut self, mut other: Failures) {
        for failure in &mut other.list {
            let regions = failure.layout.iter_mut().flat_map(|layout| &mut layout.regions);
            for chunk in regions.flat_map(|region| &mut region.chunks) {
                chunk.op = self.names.intern(other.names.get(chunk.op));
            }
        }
        self.list.append(&mut other.list);
        self.soft.append(other.soft);
        self.warnings.append(other.warnings);
    }

    /// The pools as they were at their first failure.
    #[must_use]
    pub fn still(self, format: &'static str) -> Still {
        let Failures { list, names, mut warnings, .. } = self;
        let mut pools: Vec<StillPool> = Vec::new();
        let mut later = 0u64;
        let mut has_gpu_tag = false;
        for failure in &list {
            let Some((layout, sums)) = failure.layout.as_ref().zip(failure.sums.as_ref()) else { continue };
            let name = failure.allocator.clone().unwrap_or_default();
            if pools.iter().any(|pool| pool.name == name) {
                later += 1;
                continue;
            }
            has_gpu_tag |= failure.dialect == Dialect::BfcD;
            let held = layout.chunks().filter(|chunk| chunk.in_use).map(|chunk| match chunk.requested {
                Some(requested) => Held {
                    op: chunk.op,
                    ..Held::bare(requested.min(chunk.size), chunk.size, "the allocator's list of blocks")
                },
                None => Held {
                    op: chunk.op,
                    ..Held::bare(
                        chunk.size,
                        chunk.size,
                        "the block's size; the log does not show the requested size",
                    )
                },
            });
            if let (None, Some(slack)) = (sums.requested, failure.slack()) {
                warnings.add(
                    "requests-unknown",
                    format!(
                        "the log shows block sizes but not requested sizes: {} to {} bytes of {name} are rounding",
                        slack.low.0, slack.high.0
                    ),
                    "set TF_BFC_MEMORY_DUMP=prefix to get a dump with both",
                );
            }
            #[expect(
                clippy::cast_precision_loss,
                clippy::cast_possible_truncation,
                reason = "a share for people"
            )]
            let fragmentation = (sums.free > Bytes::ZERO).then(|| {
                let largest = layout.chunks().filter(|chunk| !chunk.in_use).map(|chunk| chunk.size).max();
                let rest = sums.free.saturating_sub(largest.unwrap_or_default());
                (rest.0 as f64 / sums.free.0 as f64) as f32
            });
            pools.push(StillPool {
                device: device_of(&name),
                name,
                limit: failure.limit.and_then(SizeRange::value),
                lifetime_peak: failure.peak_in_use.and_then(SizeRange::value),
                fragmentation,
                allocs: failure.allocs,
                snapshot: Snapshot {
                    time: None,
                    in_use: sums.in_use,
                    before_recording: Bytes::ZERO,
                    held: held.collect(),
                },
            });
        }
        if later > 0 {
            warnings.add(
                "more-failures",
                format!(
                    "{} the same pools; the report shows the first failure of each pool",
                    plural(later, "more failure is in", "more failures are in")
                ),
                "`vramline oom` shows all failures",
            );
        }
        if pools.is_empty() && !list.is_empty() {
            warnings.add(
                "no-chunks",
                "the log shows a failed allocation, but not what the pool held",
                "`vramline oom` shows what the log says about it",
            );
        }
        let framework = match list.first().map(|failure| failure.dialect) {
            _ if has_gpu_tag => Some(Framework::Jax),
            Some(Dialect::JaxError) => Some(Framework::Jax),
            Some(Dialect::PyTorch | Dialect::TorchAsynchronous | Dialect::TorchSnapshot) => {
                Some(Framework::PyTorch)
            }
            Some(Dialect::TensorFlowError) => Some(Framework::TensorFlow),
            _ if list.iter().any(|failure| failure.shape.is_some()) => Some(Framework::TensorFlow),
            _ => None,
        };
        Still { format, framework, names, stacks: Stacks::default(), pools, warnings }
    }
}

/// The size of an element of a TensorFlow type; `None` for those without one.
#[must_use]
pub(crate) fn size_of_dtype(name: &str) -> Option<u64> {
    Some(match name {
        "bool" | "int8" | "uint8" | "qint8" | "quint8" | "float8_e5m2" | "float8_e4m3fn" => 1,
        "half" | "bfloat16" | "int16" | "uint16" | "qint16" | "quint16" => 2,
        "float" | "int32" | "uint32" | "qint32" => 4,
        "double" | "int64" | "uint64" | "complex64" => 8,
        "complex128" => 16,
        _ => return None,
    })
}

/// Bytes of a tensor with shape `[2,3]` and type `float`.
#[must_use]
pub(crate) fn size_of_tensor(shape: &str, dtype: &str) -> Option<Bytes> {
    let sizes = shape.trim().strip_prefix('[')?.strip_suffix(']')?;
    let mut bytes = size_of_dtype(dtype)?;
    for size in sizes.split(',').filter(|_| !sizes.trim().is_empty()) {
        bytes = bytes.checked_mul(size.trim().parse().ok()?)?;
    }
    Some(Bytes(bytes))
}

/// The sizes that a tensor of unknown type may have.
#[must_use]
pub(crate) fn sizes_of_tensor(shape: &str) -> Vec<Bytes> {
    ["int8", "half", "float", "double", "complex128"]
        .iter()
        .filter_map(|dtype| size_of_tensor(shape, dtype))
        .collect()
}

/// A size rounded up to a multiple of 256 bytes.
#[must_use]
pub fn rounded(size: Bytes) -> Bytes {
    Bytes(size.0.checked_next_multiple_of(GRANULE).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_lines_tell_is_narrower_than_each() {
        let told = |low, high| SizeRange { low: Bytes(low), high: Bytes(high) };
        assert_eq!(told(5, 9).and(told(9, 20)), Some(told(9, 9)));
        assert_eq!(told(5, 9).and(told(10, 20)), None);
        assert_eq!(told(5, 9).minus(told(4, 7)), told(0, 5));
        let mut known = Some(told(5, 9));
        assert!(!narrow(&mut known, Some(told(10, 20))));
        assert_eq!(known, Some(told(5, 9)));
    }

    #[test]
    fn bins_begin_at_powers_of_two() {
        let bins = [0, 256, 511, 512, 1 << 20, (256 << 20) - 1, 256 << 20, u64::MAX].map(Bytes).map(bin_of);
        assert_eq!(bins, [0, 0, 0, 1, 12, 19, 20, 20]);
    }

    #[test]
    fn tensors_have_sizes() {
        assert_eq!(size_of_tensor("[1000,1000,5]", "float"), Some(Bytes(20_000_000)));
        assert_eq!(size_of_tensor("[]", "double"), Some(Bytes(8)));
        assert_eq!(size_of_tensor("[2,?]", "double"), None);
        assert_eq!(size_of_tensor("[4294967296,4294967296,16]", "double"), None);
        assert_eq!(size_of_tensor("[2]", "string"), None);
    }
}
