//! What one line says. Knows every shape of line that a framework writes about memory, and nothing of their order.
//!
//! Lines are taken without their blanks: then a line that a terminal broke anywhere reads like one that is whole. A
//! figure counts only where what follows it shows that it is whole. Each family of programs has its own file: [`super::bfc`],
//! [`super::tensorflow`], [`super::xla`], [`super::torch`], [`super::library`]; [`super::general`] reads what none of them knows.

use super::text::after;
use super::{bfc, general, library, tensorflow, torch, xla};
use crate::failure::{Bin, DeviceMemory, Dialect, Platform, ProgramNeed, SizeRange, Tag};
use crate::units::Bytes;

/// A line, joined from as many pieces as it was broken into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    /// As it was written.
    pub(crate) raw: &'a [u8],
    /// Without blanks.
    pub(crate) dense: &'a [u8],
    /// Where in `dense` the message begins, after the logger's prefix.
    pub(crate) message: usize,
    /// Whether its end was seen; else the file ends within it.
    pub(crate) is_ended: bool,
}

/// What came of reading a line.
#[derive(Debug)]
pub(crate) enum Reading {
    /// It is about something else.
    Foreign,
    /// It begins like a line that matters, and is not whole.
    Part,
    /// It says this.
    Says(Said),
    /// It says this, and ends in digits: a line of digits would be its rest.
    EndsInDigits(Said),
    /// It says this, and ends in a name: a line of one word may be its rest.
    EndsInName(Said),
}

/// A line's message.
#[derive(Debug)]
pub(crate) enum Said {
    RanOut {
        allocator: Option<String>,
        requested: Option<SizeRange>,
        rounded: Option<Bytes>,
        end: Tag,
        op: Option<String>,
    },
    /// A request that the program could do without.
    Soft {
        allocator: Option<String>,
        requested: SizeRange,
    },
    /// `Ran out of memory trying to allocate 1.0MiB.  See logs for memory state`: the last word of a failure.
    SeeLogs(SizeRange),
    /// The driver refused to give the pool that much.
    DriverRefused(Refused),
    /// The driver refused pinned memory of the host.
    HostRefused,
    /// A library could not start. Where memory is short, that is why.
    NoHandle(&'static str),
    DumpFor(String),
    Bin(Bin),
    BinFor,
    Region(Bytes),
    Chunk {
        dialect: Dialect,
        address: u64,
        size: Bytes,
        in_use: bool,
        tag: Tag,
        op: Option<String>,
    },
    Summary,
    SumTotal(SizeRange),
    Pool {
        pool: SizeRange,
        limit: SizeRange,
        available: SizeRange,
    },
    Memory {
        largest: Option<SizeRange>,
        unallocated: SizeRange,
        pool: SizeRange,
        limit: Option<SizeRange>,
    },
    Stats,
    Stat(Stat, SizeRange),
    Occupancy,
    TensorError(TensorError),
    /// `failed to allocate memory [Op:Sigmoid]`.
    OpFailed(String),
    /// `[[{{node NAME}}]]`, under an error line.
    Node(String),
    JaxError {
        requested: SizeRange,
        allocator: Option<String>,
        device: Option<String>,
        executable: Option<String>,
    },
    /// What XLA says a program needs, and what it may use.
    Program(ProgramNeed),
    AsyncFailed {
        allocator: Option<String>,
        requested: Bytes,
    },
    AsyncDevice {
        free: Bytes,
        total: Bytes,
    },
    AsyncReserved(Bytes),
    AsyncUsed(Bytes),
    /// A failure in a sentence of its own.
    Sentence(Box<Sentence>),
    /// The program died: a fatal check, a signal, an exception that nobody caught.
    Died,
    /// The program goes on after the failure that it told of just before.
    Retried,
    /// The system killed a process because the host's memory was full.
    HostKilled,
    /// A kernel wanted more memory on the chip than there is.
    OnChip,
    PeakBuffers,
    BufferBegins,
    BufferSize(SizeRange),
    BufferOperator(String),
    BufferLabel(String),
    BufferShape(String),
}

impl Said {
    /// Whether the name that it ends with is one that a framework gives a pool: nothing of it is missing.
    pub(crate) fn has_whole_name(&self) -> bool {
        let Said::TensorError(TensorError { allocator: Some(name), .. }) = self else { return false };
        let is_gpu = name.strip_prefix("GPU_").and_then(|rest| rest.strip_suffix("_bfc"));
        is_gpu.is_some_and(|number| number.parse::<u32>().is_ok())
            || ["cpu", "mklcpu", "gpu_host_bfc", "cuda_host_bfc", "bfc_cpu_allocator_for_gpu"]
                .contains(&name.as_str())
    }
}

/// What a driver refused a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) bytes: Bytes,
    /// Whose driver, where its words tell.
    pub(crate) platform: Option<Platform>,
    /// Whether the line is for information only, as TensorFlow writes it since 2.2.
    pub(crate) is_info: bool,
}

/// A figure of the block of statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stat {
    Limit,
    InUse,
    MaxInUse,
    LargestFreeBlock,
    NumAllocs,
    /// One that says nothing about the failure.
    Other,
}

/// TensorFlow's `OOM when allocating tensor with shape[2,3] and type float on DEVICE by allocator NAME`; in 2016 the shape was all.
#[derive(Debug)]
pub(crate) struct TensorError {
    pub(crate) shape: String,
    pub(crate) dtype: Option<String>,
    pub(crate) device: Option<String>,
    pub(crate) allocator: Option<String>,
    pub(crate) op: Option<String>,
}

/// A failure that one sentence tells, with the figures that it has.
#[derive(Clone, Debug)]
pub(crate) struct Sentence {
    pub(crate) dialect: Dialect,
    pub(crate) platform: Option<Platform>,
    /// The library that says so, where it is not the framework itself.
    pub(crate) library: Option<&'static str>,
    /// What the tensor needs.
    pub(crate) requested: Option<SizeRange>,
    /// What the driver was asked for, where that is told instead.
    pub(crate) tried: Option<SizeRange>,
    pub(crate) device: Option<String>,
    pub(crate) memory: DeviceMemory,
    /// The limit, and whether the text says that the user set it.
    pub(crate) limit: Option<SizeRange>,
    pub(crate) is_limit_set: bool,
    pub(crate) allocated: Option<SizeRange>,
    /// Allocated and cached.
    pub(crate) reserved: Option<SizeRange>,
    /// Cached: reserved and not allocated.
    pub(crate) cached: Option<SizeRange>,
    /// What may still be taken, by the text's own word.
    pub(crate) left: Option<SizeRange>,
    /// The largest piece of what is free.
    pub(crate) largest: Option<SizeRange>,
    /// Whether the device was asked for the first time: nothing of the process was there yet.
    pub(crate) is_at_start: bool,
    /// Whether the program says in the same line that it goes on.
    pub(crate) is_survived: bool,
    /// Whether the text does not speak of memory, which ran short just before.
    pub(crate) is_inferred: bool,
    /// What a compiled program needs, and what it may use.
    pub(crate) program: Option<ProgramNeed>,
}

impl Sentence {
    pub(crate) fn new(dialect: Dialect) -> Sentence {
        Sentence {
            dialect,
            platform: None,
            library: None,
            requested: None,
            tried: None,
            device: None,
            memory: DeviceMemory::default(),
            limit: None,
            is_limit_set: false,
            allocated: None,
            reserved: None,
            cached: None,
            left: None,
            largest: None,
            is_at_start: false,
            is_survived: false,
            is_inferred: false,
            program: None,
        }
    }

    pub(crate) fn said(self) -> Said {
        Said::Sentence(Box::new(self))
    }
}

type Reader = fn(&Line<'_>, &[u8]) -> Reading;

/// In this order: a line that several could read means what the first says.
const READERS: [Reader; 23] = [
    bfc::ran_out,
    bfc::bin,
    bfc::region,
    bfc::summary,
    bfc::pool,
    bfc::driver_refused,
    tensorflow::tensor_error,
    tensorflow::op_failed,
    tensorflow::node,
    library::on_chip,
    xla::tpu,
    xla::jax_error,
    xla::program,
    bfc::cuda_async,
    torch::sentence,
    torch::asynchronous,
    library::sentence,
    library::no_handle,
    library::retried,
    general::sentence,
    library::died,
    xla::buffers,
    bfc::stat,
];

/// Reads a line.
pub(crate) fn read(line: &Line<'_>) -> Reading {
    let message = line.dense.get(line.message..).unwrap_or_default();
    // By far the commonest line of a dump.
    for (word, in_use) in [(&b"InUseat"[..], true), (b"Freeat", false), (b"Chunkat", true)] {
        if let Some(rest) = message.strip_prefix(word).or_else(|| after(message, word)) {
            return bfc::chunk(rest, in_use, word == b"Chunkat");
        }
    }
    for reader in READERS {
        match reader(line, message) {
            Reading::Foreign => {}
            found => return found,
        }
    }
    Reading::Foreign
}

/// What can be had of a line that was cut for good.
pub(crate) fn salvage(line: &Line<'_>) -> Option<Said> {
    let message = line.dense.get(line.message..)?;
    torch::salvage(line, message)
        .or_else(|| tensorflow::salvage(message))
        .or_else(|| bfc::salvage(message))
        .or_else(|| library::salvage(line, message))
        .or_else(|| general::salvage(line, message))
}
