//! The post-mortem: the JSON document of `vramline oom`, which the terminal prints too.
//!
//! A figure that the input rounds is null, with its lower and upper bound in two further fields. `unknowns` has the reason for each null.

use serde::Serialize;

use crate::analysis::oom::{FailureAnalysis, Holder, OomAnalysis, OomWord, RegionPicture};
use crate::document::{Document, Reason, Unknowns};
use crate::failure::{Buffer, Dialect, Platform, SizeRange, SoftFailures, Witness};
use crate::names::Names;
use crate::postmortem::advice::{self, Advice};
use crate::postmortem::bridge::Bridge;
use crate::postmortem::headline;
use crate::postmortem::need::LeastNeed;
use crate::postmortem::outcome::FailureOutcome;
use crate::postmortem::{Proof, Verdict};
use crate::units::Bytes;
use crate::view::moments::HeldThenView;
use crate::warning::{Unknown, Warning};

/// The answer of [`oom`](crate::oom()): why each allocation failed, and what helps.
#[derive(Debug, Serialize, Document)]
pub struct OomReport {
    /// `oom`.
    pub kind: &'static str,
    /// The answer as a sentence.
    pub headline: String,
    /// The answer as a word, with its figures.
    pub verdict: OomVerdictView,
    /// The paths that were read.
    #[field(title = "file")]
    pub files: Vec<String>,
    /// The failed allocations: first those that ended their process, then in the order of the input.
    #[field(each)]
    pub failures: Vec<FailureView>,
    /// Similar failures.
    pub groups: Vec<GroupView>,
    /// If no allocation failed and a signal ended the job: who held the memory when that was last known.
    #[field(null = "an allocation failed, or no signal ended the job")]
    pub killed: Option<HeldThenView>,
    /// Requests that failed without ending the job.
    pub soft: SoftView,
    /// Notes for the reader.
    pub warnings: Vec<Warning>,
    /// The reason for each null.
    pub unknowns: Vec<Unknown>,
}

/// The answer as a word, with its figures.
#[derive(Debug, Serialize, Document)]
pub struct OomVerdictView {
    /// The verdict on the first failure; `unknown` if the input does not decide it, `went-on` if the job continued after all failures, `killed` if no allocation failed and a signal ended the job, `none` if no allocation failed.
    #[field(title = "verdict")]
    pub word: OomWord,
    /// Number of failed allocations.
    pub failures: usize,
    /// Size of the block that the first failure needed.
    #[field(null = "no allocation failed, or the exact size is unknown")]
    pub requested_bytes: Option<Bytes>,
    /// How much was missing.
    #[field(null = "no allocation failed, or the exact amount is unknown")]
    pub short_by_bytes: Option<Bytes>,
}

/// Requests that failed although the program could continue without them. They are not in `failures`.
#[derive(Debug, Serialize, Document)]
pub struct SoftView {
    /// The same as a sentence.
    #[field(null = "there is no such request")]
    pub text: Option<String>,
    /// Their number.
    pub count: u64,
    /// Lower bound of the smallest.
    #[field(title = "at least", null = "there is no such request")]
    pub low_bytes: Option<Bytes>,
    /// Upper bound of the largest.
    #[field(title = "at most", null = "there is no such request")]
    pub high_bytes: Option<Bytes>,
    /// The pools, as the framework names them.
    pub pools: Vec<String>,
    /// Number of times that the driver refused to let a pool grow, in a program that continued.
    pub driver_refusals: u64,
    /// The largest refused request.
    #[field(null = "the driver refused no request")]
    pub largest_refusal_bytes: Option<Bytes>,
}

/// A failed allocation.
#[derive(Debug, Serialize, Document)]
pub struct FailureView {
    /// What happened, as a sentence.
    pub headline: String,
    /// What happened to the request: `ended-job`; `went-on`: it failed, and the job continued without it; `served-later`: a retry succeeded; `unknown`: the input does not say, for example a log.
    pub outcome: FailureOutcome,
    /// The pool, as the framework names it.
    #[field(title = "pool", null = "the input does not say")]
    pub allocator: Option<String>,
    /// The format of the message: `bfc-a` (TensorFlow up to 1.13), `bfc-b` (1.14 to 2.0), `bfc-c` (2.1 to 2.21), `bfc-d` (XLA since June 2026), `bfc` (no list of blocks), `tensorflow-error`, `jax-error`, `cuda-malloc-async`, `pytorch`, `pytorch-async`, `driver-refusal`, `tpu`, `library`, `torch-snapshot`, `memory-dump`; docs/reference/dialects.md lists them.
    pub dialect: Dialect,
    /// The kind of memory: `cuda`, `hip`, `xpu`, `npu`, `mlu`, `musa`, `metal`, `tpu`, `host` or `other`.
    #[field(null = "the input does not say")]
    pub platform: Option<Platform>,
    /// The library that reported the failure, if it is not the framework itself.
    #[field(null = "the framework reported the failure itself")]
    pub library: Option<String>,
    /// Requested bytes.
    #[field(null_with = Self::why_no_requested)]
    pub requested_bytes: Option<Bytes>,
    /// Its bounds, if the input rounds it; equal if it is known exactly.
    #[field(title = "at least", null_with = Self::why_no_requested)]
    pub requested_low_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at most", null_with = Self::why_no_requested)]
    pub requested_high_bytes: Option<Bytes>,
    /// R: the request as rounded by the allocator; for PyTorch, what it requested from the driver.
    #[field(null_with = Self::why_no_rounded)]
    pub rounded_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at least", null_with = Self::why_no_rounded)]
    pub rounded_low_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at most", null_with = Self::why_no_rounded)]
    pub rounded_high_bytes: Option<Bytes>,
    /// The op that requested it.
    #[field(null = "the input does not say")]
    pub op: Option<String>,
    /// The tensor's shape.
    #[field(null = "the input does not say")]
    pub shape: Option<String>,
    /// Its element type, as TensorFlow names it.
    #[field(title = "type", null = "the input does not say")]
    pub dtype: Option<String>,
    /// The device, as the text names it.
    #[field(null = "the input does not say")]
    pub device: Option<String>,
    /// The XLA executable that requested it.
    #[field(null = "the input does not say")]
    pub executable: Option<String>,
    /// The limit of the pool.
    #[field(null_with = Self::why_no_limit)]
    pub limit_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at least", null_with = Self::why_no_limit)]
    pub limit_low_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at most", null_with = Self::why_no_limit)]
    pub limit_high_bytes: Option<Bytes>,
    /// The setting that the limit comes from.
    #[field(title = "set by", null = "the input does not show that the limit is a setting")]
    pub limit_set_by: Option<String>,
    /// Bytes that the pool reserved from the device.
    #[field(null = "the input does not say")]
    pub pool_bytes: Option<Bytes>,
    /// Bytes in use, including rounding.
    #[field(null_with = Self::why_no_in_use)]
    pub in_use_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at least", null_with = Self::why_no_in_use)]
    pub in_use_low_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at most", null_with = Self::why_no_in_use)]
    pub in_use_high_bytes: Option<Bytes>,
    /// F: free bytes in blocks that the request may use.
    #[field(null_with = Self::why_no_free)]
    pub free_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at least", null_with = Self::why_no_free)]
    pub free_low_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at most", null_with = Self::why_no_free)]
    pub free_high_bytes: Option<Bytes>,
    /// The largest free block.
    #[field(title = "largest", null = "the input does not say", switch = "TF_BFC_MEMORY_DUMP")]
    pub largest_free_bytes: Option<Bytes>,
    /// U: bytes that the limit leaves unallocated, in whole granules; for PyTorch without a limit, what the device and other processes leave.
    #[field(null_with = Self::why_no_unallocated)]
    pub unallocated_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at least", null_with = Self::why_no_unallocated)]
    pub unallocated_low_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at most", null_with = Self::why_no_unallocated)]
    pub unallocated_high_bytes: Option<Bytes>,
    /// Rounding: bytes of blocks in use beyond their requests.
    #[field(null_with = Self::why_no_slack)]
    pub slack_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at least", null_with = Self::why_no_slack)]
    pub slack_low_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at most", null_with = Self::why_no_slack)]
    pub slack_high_bytes: Option<Bytes>,
    /// `device` if U >= R or other processes hold what is missing; else `fragmented` if F + U >= R and F is at least a twentieth of the pool; else `slack` if the rounding is at least R - F - U; else `exhausted`. `limit` replaces the last two if the limit is known to be a setting. The likeliest one if rounded figures allow several. Null if the input does not decide it.
    #[field(null_with = Self::why_no_verdict)]
    pub verdict: Option<Verdict>,
    /// All verdicts that the figures allow, likeliest first.
    pub open_verdicts: Vec<Verdict>,
    /// R - F - U, or 0.
    #[field(null_with = Self::why_no_short_by)]
    pub short_by_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at least", null_with = Self::why_no_short_by)]
    pub short_by_low_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at most", null_with = Self::why_no_short_by)]
    pub short_by_high_bytes: Option<Bytes>,
    /// Total memory of the device, as rounded in the input.
    #[field(title = "device", null = "the input does not say")]
    pub device_total_bytes: Option<Bytes>,
    /// Free memory of the device, as rounded in the input.
    #[field(null = "the input does not say")]
    pub device_free_bytes: Option<Bytes>,
    /// Memory of this process, including context and libraries, as rounded in the input.
    #[field(null = "the input does not say")]
    pub this_process_bytes: Option<Bytes>,
    /// O: memory of other processes: the device's total minus free memory and the memory of this process. If only the framework's pool is known, up to 2 GiB outside it count as this process. The middle of its bounds.
    #[field(title = "others", null = "the input does not contain enough figures")]
    pub other_processes_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at least", null = "the input does not contain enough figures")]
    pub other_processes_low_bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at most", null = "the input does not contain enough figures")]
    pub other_processes_high_bytes: Option<Bytes>,
    /// The request of the pool that the driver refused just before.
    #[field(null = "the input does not say")]
    pub driver_refused_bytes: Option<Bytes>,
    /// Lower bound of what a training step needs: parameters, gradients and optimizer state, including what was not allocated yet.
    #[field(null = "only recordings of PyTorch show it")]
    pub needs_at_least_bytes: Option<Bytes>,
    /// The compiled program's need, as estimated by XLA.
    #[field(null = "the input does not say")]
    pub program_needs_bytes: Option<Bytes>,
    /// XLA's budget for the program.
    #[field(null = "the input does not say")]
    pub program_budget_bytes: Option<Bytes>,
    /// Number of attempts: TensorFlow retries for ten seconds.
    pub attempts: u64,
    /// Where the failure is reported.
    pub told_by: Vec<WitnessView>,
    /// The regions of the pool.
    pub regions: Vec<RegionView>,
    /// For a fragmented pool: the range of blocks that would hold the request with the fewest bytes in use.
    #[field(null_with = Self::why_no_bridge)]
    pub bridge: Option<BridgeView>,
    /// Blocks in use by size and name, most bytes first.
    pub holders: Vec<HolderView>,
    /// Who held the memory at the failure, by owner.
    #[field(null = "only recordings of `vramline run` show it")]
    pub held: Option<HeldThenView>,
    /// The buffers that a compiled program lists.
    pub buffers: Vec<BufferView>,
    /// What helps.
    pub advice: Vec<AdviceView>,
    /// Why there is no verdict.
    #[serde(skip)]
    no_verdict: String,
}

/// Where a failure is told.
#[derive(Debug, Serialize, Document)]
pub struct WitnessView {
    /// The file: a log or a dump.
    pub file: String,
    /// The first line of the message; null in a dump.
    #[field(null = "a dump has no lines")]
    pub line: Option<u64>,
    /// The time, as written in the log.
    pub time: String,
}

/// A region of a pool.
#[derive(Debug, Serialize, Document)]
pub struct RegionView {
    /// The first address of the region; the list is empty if the input has no list of blocks.
    pub address: u64,
    /// Its size.
    pub bytes: Bytes,
    /// Bytes in use in it.
    pub in_use_bytes: Bytes,
    /// Free bytes in it.
    pub free_bytes: Bytes,
    /// Its largest free block.
    #[field(title = "largest")]
    pub largest_free_bytes: Bytes,
    /// Number of its blocks.
    pub chunks: usize,
    /// A map to scale: `#` in use, `x` rounding, `:` mostly free, `.` free.
    pub map: String,
}

/// The range of blocks that would hold the request.
#[derive(Debug, Serialize, Document)]
pub struct BridgeView {
    /// The index of the region.
    pub region: usize,
    /// Size of the range.
    pub bytes: Bytes,
    /// Free bytes in it.
    pub free_bytes: Bytes,
    /// Number of free blocks in it.
    pub holes: usize,
    /// The blocks in use between the free blocks.
    pub live: Vec<ChunkView>,
}

/// A block of a pool.
#[derive(Debug, Serialize, Document)]
pub struct ChunkView {
    /// Its address.
    pub address: u64,
    /// Its size.
    #[field(title = "block")]
    pub bytes: Bytes,
    /// Requested bytes; only dumps have it.
    #[field(null = "the input does not say")]
    pub requested_bytes: Option<Bytes>,
    /// Its op; empty if unknown.
    pub op: String,
}

/// Blocks in use with the same size and name.
#[derive(Debug, Serialize, Document)]
pub struct HolderView {
    /// Total bytes of the blocks in use with the same size, request and name; the twenty largest groups are listed.
    pub bytes: Bytes,
    /// Their number.
    #[field(title = "blocks")]
    pub count: u64,
    /// The size of each.
    #[field(title = "each")]
    pub chunk_bytes: Bytes,
    /// Requested bytes of each; only dumps have it.
    #[field(null = "the input does not say")]
    pub requested_bytes: Option<Bytes>,
    /// Their op; empty if unknown.
    pub op: String,
}

/// A buffer that a compiled program lists.
#[derive(Debug, Serialize, Document)]
pub struct BufferView {
    /// Size of a buffer at the executable's peak, as listed by XLA; null if rounded.
    #[field(null = "the input rounds it; see the two bounds")]
    pub bytes: Option<Bytes>,
    /// Its bounds, as above.
    #[field(title = "at least")]
    pub low_bytes: Bytes,
    /// Its bounds, as above.
    #[field(title = "at most")]
    pub high_bytes: Bytes,
    /// The op and its source location, as written by XLA.
    #[field(title = "op")]
    pub operator: String,
    /// XLA's name for the instruction.
    pub label: String,
    /// Its shape.
    pub shape: String,
}

/// What helps.
#[derive(Debug, Serialize, Document)]
pub struct AdviceView {
    /// What to do, based on this failure only; best first.
    #[field(title = "what to do")]
    pub text: String,
    /// The bytes it concerns; null if there are none.
    #[field(null = "the advice does not concern a size")]
    pub bytes: Option<Bytes>,
}

/// Similar failures.
#[derive(Debug, Serialize, Document)]
pub struct GroupView {
    /// Indices in `failures` of failures that differ only in their time.
    pub failures: Vec<usize>,
    /// Their verdict.
    #[field(null = "see the `verdict` of each failure")]
    pub verdict: Option<Verdict>,
}

impl From<&OomAnalysis<'_>> for OomReport {
    fn from(analysis: &OomAnalysis<'_>) -> OomReport {
        let names = &analysis.read.failures.names;
        let first = analysis.failures.first();
        let failures: Vec<FailureView> =
            analysis.failures.iter().map(|failure| failure_view(failure, names)).collect();
        let verdict = |at: usize| analysis.failures.get(at).and_then(|failure| failure.conclusion.verdict);
        let group = |places: &Vec<usize>| GroupView {
            verdict: places.first().and_then(|&first| verdict(first)),
            failures: places.clone(),
        };
        let mut document = OomReport {
            kind: "oom",
            headline: analysis.headline(),
            verdict: OomVerdictView {
                word: analysis.word(),
                failures: analysis.failures.len(),
                requested_bytes: first.and_then(|first| first.conclusion.request).and_then(SizeRange::value),
                short_by_bytes: first.and_then(|first| first.conclusion.short_by).and_then(SizeRange::value),
            },
            files: analysis.read.files.iter().map(|path| path.display().to_string()).collect(),
            groups: analysis.groups.iter().map(group).collect(),
            killed: analysis.killed().map(HeldThenView::from),
            soft: SoftView::from(&analysis.read.failures.soft),
            failures,
            warnings: analysis.read.failures.warnings.as_slice().to_vec(),
            unknowns: Vec::new(),
        };
        document.unknowns = Unknowns::of(&document);
        document
    }
}

impl From<&SoftFailures> for SoftView {
    fn from(soft: &SoftFailures) -> SoftView {
        SoftView {
            text: headline::without_harm(soft),
            count: soft.count,
            low_bytes: soft.sizes.map(|sizes| sizes.low),
            high_bytes: soft.sizes.map(|sizes| sizes.high),
            pools: soft.pools.clone(),
            driver_refusals: soft.refusals,
            largest_refusal_bytes: soft.largest_refusal,
        }
    }
}

fn failure_view(analysed: &FailureAnalysis<'_>, names: &Names) -> FailureView {
    let exact = |told: Option<SizeRange>| told.and_then(SizeRange::value);
    let middle = |told: Option<SizeRange>| told.map(SizeRange::middle);
    let low = |told: Option<SizeRange>| told.map(|told| told.low);
    let high = |told: Option<SizeRange>| told.map(|told| told.high);
    let FailureAnalysis { failure, conclusion, proof, .. } = analysed;
    FailureView {
        headline: analysed.headline.clone(),
        outcome: analysed.outcome,
        allocator: failure.allocator.clone(),
        dialect: failure.dialect,
        platform: failure.platform,
        library: failure.library.map(str::to_owned),
        requested_bytes: exact(failure.requested),
        requested_low_bytes: low(failure.requested),
        requested_high_bytes: high(failure.requested),
        rounded_bytes: exact(conclusion.request),
        rounded_low_bytes: low(conclusion.request),
        rounded_high_bytes: high(conclusion.request),
        op: failure.op.clone(),
        shape: failure.shape.clone(),
        dtype: failure.dtype.clone(),
        device: failure.device.clone(),
        executable: failure.executable.clone(),
        limit_bytes: exact(failure.limit),
        limit_low_bytes: low(failure.limit),
        limit_high_bytes: high(failure.limit),
        limit_set_by: proof
            .map(|proof: &Proof| proof.by.clone())
            .or_else(|| failure.is_limit_set.then(|| advice::set_by(failure).to_owned())),
        pool_bytes: exact(failure.pool),
        in_use_bytes: exact(failure.in_use),
        in_use_low_bytes: low(failure.in_use),
        in_use_high_bytes: high(failure.in_use),
        free_bytes: exact(conclusion.free),
        free_low_bytes: low(conclusion.free),
        free_high_bytes: high(conclusion.free),
        largest_free_bytes: exact(failure.largest_free),
        unallocated_bytes: exact(conclusion.unallocated),
        unallocated_low_bytes: low(conclusion.unallocated),
        unallocated_high_bytes: high(conclusion.unallocated),
        slack_bytes: exact(conclusion.slack),
        slack_low_bytes: low(conclusion.slack),
        slack_high_bytes: high(conclusion.slack),
        verdict: conclusion.verdict,
        open_verdicts: conclusion.open.clone(),
        short_by_bytes: exact(conclusion.short_by),
        short_by_low_bytes: low(conclusion.short_by),
        short_by_high_bytes: high(conclusion.short_by),
        device_total_bytes: middle(failure.memory.total),
        device_free_bytes: middle(failure.memory.free),
        this_process_bytes: middle(failure.memory.this_process),
        other_processes_bytes: middle(conclusion.others),
        other_processes_low_bytes: low(conclusion.others),
        other_processes_high_bytes: high(conclusion.others),
        driver_refused_bytes: failure.refused,
        needs_at_least_bytes: analysed.need.map(LeastNeed::total),
        program_needs_bytes: middle(failure.program.map(|program| program.needed)),
        program_budget_bytes: middle(failure.program.map(|program| program.budget)),
        attempts: failure.attempts,
        told_by: failure.witnesses.iter().map(WitnessView::from).collect(),
        regions: analysed.regions.iter().map(RegionView::from).collect(),
        bridge: analysed.bridge.as_ref().map(|bridge| bridge_view(bridge, names)),
        holders: analysed.holders.iter().map(HolderView::from).collect(),
        held: analysed.held.map(HeldThenView::from),
        buffers: failure.buffers.iter().map(BufferView::from).collect(),
        advice: analysed.advice.iter().map(AdviceView::from).collect(),
        no_verdict: conclusion.why_none.clone().unwrap_or_default(),
    }
}

impl From<&Witness> for WitnessView {
    fn from(witness: &Witness) -> WitnessView {
        WitnessView {
            file: witness.path.display().to_string(),
            line: witness.line,
            time: witness.time.clone(),
        }
    }
}

impl From<&Buffer> for BufferView {
    fn from(buffer: &Buffer) -> BufferView {
        BufferView {
            bytes: buffer.size.value(),
            low_bytes: buffer.size.low,
            high_bytes: buffer.size.high,
            operator: buffer.operator.clone(),
            label: buffer.label.clone(),
            shape: buffer.shape.clone(),
        }
    }
}

impl From<&RegionPicture> for RegionView {
    fn from(region: &RegionPicture) -> RegionView {
        RegionView {
            address: region.address,
            bytes: region.size,
            in_use_bytes: region.in_use,
            free_bytes: region.free,
            largest_free_bytes: region.largest_free,
            chunks: region.chunks,
            map: region.map.clone(),
        }
    }
}

impl From<&Holder> for HolderView {
    fn from(holder: &Holder) -> HolderView {
        HolderView {
            bytes: holder.bytes,
            count: holder.count,
            chunk_bytes: holder.chunk,
            requested_bytes: holder.requested,
            op: holder.op.clone(),
        }
    }
}

impl From<&Advice> for AdviceView {
    fn from(advice: &Advice) -> AdviceView {
        AdviceView { text: advice.text.clone(), bytes: advice.bytes }
    }
}

fn bridge_view(bridge: &Bridge, names: &Names) -> BridgeView {
    let live = bridge.live.iter().map(|chunk| ChunkView {
        address: chunk.address,
        bytes: chunk.size,
        requested_bytes: chunk.requested,
        op: names.get(chunk.op).to_owned(),
    });
    BridgeView {
        region: bridge.region,
        bytes: bridge.size,
        free_bytes: bridge.free,
        holes: bridge.holes,
        live: live.collect(),
    }
}

impl FailureView {
    /// Why a figure is not known exactly: if its lower bound is known, the input rounds it.
    fn why_none(low: Option<Bytes>, otherwise: &'static str, switch: Option<&'static str>) -> Reason {
        let text = if low.is_some() { "the input rounds it; see the two bounds" } else { otherwise };
        Reason::new(text, switch)
    }

    fn why_no_requested(&self) -> Reason {
        let otherwise = match self.dialect {
            Dialect::MemoryDump => "a dump does not contain the failed request",
            Dialect::PyTorch => {
                "PyTorch reports what it requested from the driver, not the size of the tensor"
            }
            _ => NOT_SAID,
        };
        FailureView::why_none(self.requested_low_bytes, otherwise, None)
    }

    fn why_no_rounded(&self) -> Reason {
        FailureView::why_none(self.rounded_low_bytes, NOT_SAID, None)
    }

    fn why_no_limit(&self) -> Reason {
        FailureView::why_none(self.limit_low_bytes, NOT_SAID, Some("--limit"))
    }

    fn why_no_in_use(&self) -> Reason {
        FailureView::why_none(self.in_use_low_bytes, NOT_SAID, Some(DUMP))
    }

    fn why_no_free(&self) -> Reason {
        FailureView::why_none(self.free_low_bytes, NOT_SAID, Some(DUMP))
    }

    fn why_no_unallocated(&self) -> Reason {
        FailureView::why_none(self.unallocated_low_bytes, NOT_SAID, Some("--limit"))
    }

    fn why_no_slack(&self) -> Reason {
        FailureView::why_none(self.slack_low_bytes, NOT_SAID, Some(DUMP))
    }

    fn why_no_short_by(&self) -> Reason {
        match self.short_by_low_bytes {
            Some(_) => FailureView::why_none(self.short_by_low_bytes, NOT_SAID, None),
            None => self.why_no_verdict(),
        }
    }

    fn why_no_verdict(&self) -> Reason {
        Reason::new(self.no_verdict.clone(), None)
    }

    fn why_no_bridge(&self) -> Reason {
        let text = match self.verdict {
            Some(Verdict::Fragmented) if !self.regions.is_empty() => "no region is as large as the request",
            Some(Verdict::Fragmented) => "the input has no list of blocks",
            _ => "the pool is not fragmented",
        };
        Reason::new(text, None)
    }
}

const NOT_SAID: &str = "the input does not say";
const DUMP: &str = "TF_BFC_MEMORY_DUMP";
