//! The post-mortem as plain data: the JSON document of `vramline oom`, and what the terminal prints.
//!
//! A figure that the input tells rounded is null, with its two ends beside it. `unknowns` has the reason of each null.

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
use crate::warning::{Unknown, Warning};

/// What [`oom`](crate::oom()) answers: why each allocation failed, and what would have helped.
#[derive(Debug, Serialize, Document)]
pub struct OomReport {
    /// `oom`.
    pub kind: &'static str,
    /// The answer in a sentence.
    pub headline: String,
    /// The answer in a word, with its figures.
    pub verdict: OomVerdictView,
    /// The paths that were given.
    #[field(title = "file")]
    pub files: Vec<String>,
    /// The failed allocations: those that ended their process first, then in the order of the text.
    #[field(each)]
    pub failures: Vec<FailureView>,
    /// Failures that are alike.
    pub groups: Vec<GroupView>,
    /// Requests that failed without harm.
    pub soft: SoftView,
    /// What the reader should know.
    pub warnings: Vec<Warning>,
    /// Each null with its reason.
    pub unknowns: Vec<Unknown>,
}

/// The answer in a word, with its figures.
#[derive(Debug, Serialize, Document)]
pub struct OomVerdictView {
    /// The verdict on the first failure; `unknown` where it cannot be told, `went-on` where the job went on after all of them, `none` where no allocation fails.
    #[field(title = "verdict")]
    pub word: OomWord,
    /// How many allocations failed.
    pub failures: usize,
    /// What the first had to find in one piece.
    #[field(null = "no allocation fails, or its size is not told exactly")]
    pub requested_bytes: Option<Bytes>,
    /// By how much it did not fit.
    #[field(null = "no allocation fails, or what was missing is not told exactly")]
    pub short_by_bytes: Option<Bytes>,
}

/// Requests that failed, and that the program could do without. They are not among the failures.
#[derive(Debug, Serialize, Document)]
pub struct SoftView {
    /// The same in a sentence.
    #[field(null = "none failed without harm")]
    pub text: Option<String>,
    /// How many.
    pub count: u64,
    /// The smallest of them, at least.
    #[field(title = "at least", null = "none failed without harm")]
    pub low_bytes: Option<Bytes>,
    /// The largest of them, at most.
    #[field(title = "at most", null = "none failed without harm")]
    pub high_bytes: Option<Bytes>,
    /// The pools, as the framework names them.
    pub pools: Vec<String>,
    /// How often the driver refused to let a pool grow, in a program that went on.
    pub driver_refusals: u64,
    /// The largest request that it refused.
    #[field(null = "the driver refused none")]
    pub largest_refusal_bytes: Option<Bytes>,
}

/// A failed allocation.
#[derive(Debug, Serialize, Document)]
pub struct FailureView {
    /// What happened, in a sentence.
    pub headline: String,
    /// What became of the request: `ended-job`; `went-on`: it failed, and the job went on without it; `served-later`: it was tried again and served; `unknown`: the input does not say, as a log.
    pub outcome: FailureOutcome,
    /// The pool, as the framework names it.
    #[field(title = "pool", null = "the input does not say")]
    pub allocator: Option<String>,
    /// In which words it is told: `bfc-a` (TensorFlow up to 1.13), `bfc-b` (1.14 to 2.0), `bfc-c` (2.1 to 2.21), `bfc-d` (XLA since June 2026), `bfc` (no list of chunks), `tensorflow-error`, `jax-error`, `cuda-malloc-async`, `pytorch`, `pytorch-async`, `driver-refusal`, `tpu`, `library`, `torch-snapshot`, `memory-dump`; docs/reference/dialects.md lists them.
    pub dialect: Dialect,
    /// Whose memory it is: `cuda`, `hip`, `xpu`, `npu`, `mlu`, `musa`, `metal`, `tpu`, `host` or `other`.
    #[field(null = "the input does not say")]
    pub platform: Option<Platform>,
    /// The library that says so, where it is not the framework itself.
    #[field(null = "the framework says so itself")]
    pub library: Option<String>,
    /// What was asked for.
    #[field(null_with = Self::why_no_requested)]
    pub requested_bytes: Option<Bytes>,
    /// Its ends, where a text rounds it; equal where it is known.
    #[field(title = "at least", null_with = Self::why_no_requested)]
    pub requested_low_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at most", null_with = Self::why_no_requested)]
    pub requested_high_bytes: Option<Bytes>,
    /// R: the request as the allocator rounds it; of PyTorch what it asked the driver for.
    #[field(null_with = Self::why_no_rounded)]
    pub rounded_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at least", null_with = Self::why_no_rounded)]
    pub rounded_low_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at most", null_with = Self::why_no_rounded)]
    pub rounded_high_bytes: Option<Bytes>,
    /// The op that asked.
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
    /// XLA's executable that asked.
    #[field(null = "the input does not say")]
    pub executable: Option<String>,
    /// The most that the pool may take.
    #[field(null_with = Self::why_no_limit)]
    pub limit_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at least", null_with = Self::why_no_limit)]
    pub limit_low_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at most", null_with = Self::why_no_limit)]
    pub limit_high_bytes: Option<Bytes>,
    /// What proves that the limit is a setting of the user's.
    #[field(title = "set by", null = "nothing proves that the limit is a setting of yours")]
    pub limit_set_by: Option<String>,
    /// What the pool has taken from the device.
    #[field(null = "the input does not say")]
    pub pool_bytes: Option<Bytes>,
    /// In use, whole chunks.
    #[field(null_with = Self::why_no_in_use)]
    pub in_use_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at least", null_with = Self::why_no_in_use)]
    pub in_use_low_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at most", null_with = Self::why_no_in_use)]
    pub in_use_high_bytes: Option<Bytes>,
    /// F: free in chunks that the request may use.
    #[field(null_with = Self::why_no_free)]
    pub free_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at least", null_with = Self::why_no_free)]
    pub free_low_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at most", null_with = Self::why_no_free)]
    pub free_high_bytes: Option<Bytes>,
    /// The largest of these chunks.
    #[field(title = "largest", null = "the input does not say", switch = "TF_BFC_MEMORY_DUMP")]
    pub largest_free_bytes: Option<Bytes>,
    /// U: what the limit leaves, in whole granules; of PyTorch without a limit what the device and other processes would leave.
    #[field(null_with = Self::why_no_unallocated)]
    pub unallocated_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at least", null_with = Self::why_no_unallocated)]
    pub unallocated_low_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at most", null_with = Self::why_no_unallocated)]
    pub unallocated_high_bytes: Option<Bytes>,
    /// Held by chunks in use beyond what was asked for.
    #[field(null_with = Self::why_no_slack)]
    pub slack_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at least", null_with = Self::why_no_slack)]
    pub slack_low_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at most", null_with = Self::why_no_slack)]
    pub slack_high_bytes: Option<Bytes>,
    /// `device` when U >= R or other processes hold what is missing, else `fragmented` when F + U >= R and F is at least a twentieth of the pool, else `slack` when slack >= R - F - U, else `exhausted`; `limit` in place of the last two where a setting is proved. The likeliest where rounding leaves several open. Null where the input does not decide.
    #[field(null_with = Self::why_no_verdict)]
    pub verdict: Option<Verdict>,
    /// All verdicts that the figures leave open, the likeliest first.
    pub open_verdicts: Vec<Verdict>,
    /// R - F - U, or 0.
    #[field(null_with = Self::why_no_short_by)]
    pub short_by_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at least", null_with = Self::why_no_short_by)]
    pub short_by_low_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at most", null_with = Self::why_no_short_by)]
    pub short_by_high_bytes: Option<Bytes>,
    /// All memory of the device, as the text rounds it.
    #[field(title = "device", null = "the input does not say")]
    pub device_total_bytes: Option<Bytes>,
    /// Free on the device then, as the text rounds it.
    #[field(null = "the input does not say")]
    pub device_free_bytes: Option<Bytes>,
    /// Held by this process, contexts and libraries included, as the text rounds it.
    #[field(null = "the input does not say")]
    pub this_process_bytes: Option<Bytes>,
    /// O: held by other processes; the device less what is free and what this process has. Where only the framework's pool is told, up to 2 GiB beside it count as the process's own. The middle of its ends.
    #[field(title = "others", null = "the input neither says nor implies it")]
    pub other_processes_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at least", null = "the input neither says nor implies it")]
    pub other_processes_low_bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at most", null = "the input neither says nor implies it")]
    pub other_processes_high_bytes: Option<Bytes>,
    /// What the driver had refused the pool just before.
    #[field(null = "the input does not say")]
    pub driver_refused_bytes: Option<Bytes>,
    /// What a training step needs at least: parameters, gradients and optimizer state, also what is still to come.
    #[field(null = "only a recording of PyTorch tells")]
    pub needs_at_least_bytes: Option<Bytes>,
    /// The compiled program's need, as XLA reckons.
    #[field(null = "the input does not say")]
    pub program_needs_bytes: Option<Bytes>,
    /// What XLA wanted it to stay below.
    #[field(null = "the input does not say")]
    pub program_budget_bytes: Option<Bytes>,
    /// Dumps of the same state: TensorFlow tries for ten seconds.
    pub attempts: u64,
    /// Where the failure is told.
    pub told_by: Vec<WitnessView>,
    /// The regions of the pool.
    pub regions: Vec<RegionView>,
    /// Of a fragmented pool: the run of chunks with the fewest live bytes that would hold the request.
    #[field(null_with = Self::why_no_bridge)]
    pub bridge: Option<BridgeView>,
    /// Chunks in use by size and name, the most bytes first.
    pub holders: Vec<HolderView>,
    /// The buffers that a compiled program lists.
    pub buffers: Vec<BufferView>,
    /// What would help.
    pub advice: Vec<AdviceView>,
    /// Why there is no verdict.
    #[serde(skip)]
    no_verdict: String,
}

/// Where a failure is told.
#[derive(Debug, Serialize, Document)]
pub struct WitnessView {
    /// Who told: a log or a dump.
    pub file: String,
    /// The line it begins in; null in a dump.
    #[field(null = "a dump has no lines")]
    pub line: Option<u64>,
    /// When, as the log writes it.
    pub time: String,
}

/// A region of a pool.
#[derive(Debug, Serialize, Document)]
pub struct RegionView {
    /// Where the region begins; the list is empty where the chunks are not told.
    pub address: u64,
    /// Its size.
    pub bytes: Bytes,
    /// Of these, in use.
    pub in_use_bytes: Bytes,
    /// Of these, free.
    pub free_bytes: Bytes,
    /// Its largest free chunk.
    #[field(title = "largest")]
    pub largest_free_bytes: Bytes,
    /// How many chunks it is cut into.
    pub chunks: usize,
    /// A picture, to scale: `#` in use, `x` slack, `:` mostly free, `.` free.
    pub map: String,
}

/// What keeps holes apart.
#[derive(Debug, Serialize, Document)]
pub struct BridgeView {
    /// Which region, from zero.
    pub region: usize,
    /// All of the run.
    pub bytes: Bytes,
    /// Of these, free now.
    pub free_bytes: Bytes,
    /// In how many holes.
    pub holes: usize,
    /// The live chunks between the holes.
    pub live: Vec<ChunkView>,
}

/// A chunk of a pool.
#[derive(Debug, Serialize, Document)]
pub struct ChunkView {
    /// A live chunk between them.
    pub address: u64,
    /// Its size.
    #[field(title = "chunk")]
    pub bytes: Bytes,
    /// What was asked for; only dumps tell it.
    #[field(null = "the input does not say")]
    pub requested_bytes: Option<Bytes>,
    /// What names it; empty where nothing does.
    pub op: String,
}

/// Chunks in use of one size and name.
#[derive(Debug, Serialize, Document)]
pub struct HolderView {
    /// Chunks in use of one size, request and name, together; the twenty largest.
    pub bytes: Bytes,
    /// How many.
    #[field(title = "chunks")]
    pub count: u64,
    /// The size of each.
    #[field(title = "each")]
    pub chunk_bytes: Bytes,
    /// What was asked for by each; only dumps tell it.
    #[field(null = "the input does not say")]
    pub requested_bytes: Option<Bytes>,
    /// What names them; empty where nothing does.
    pub op: String,
}

/// A buffer that a compiled program lists.
#[derive(Debug, Serialize, Document)]
pub struct BufferView {
    /// A buffer of the executable's peak, as XLA lists it; null where rounded.
    #[field(null = "the text rounds it; it lies between the two ends")]
    pub bytes: Option<Bytes>,
    /// As above.
    #[field(title = "at least")]
    pub low_bytes: Bytes,
    /// As above.
    #[field(title = "at most")]
    pub high_bytes: Bytes,
    /// The op and its place in the program, as XLA writes them.
    #[field(title = "op")]
    pub operator: String,
    /// XLA's name of the instruction.
    pub label: String,
    /// Its shape.
    pub shape: String,
}

/// What would help.
#[derive(Debug, Serialize, Document)]
pub struct AdviceView {
    /// From facts of this failure only, best first.
    #[field(title = "what to do")]
    pub text: String,
    /// The bytes it is about; null where it is about none.
    #[field(null = "the advice is about no size")]
    pub bytes: Option<Bytes>,
}

/// Failures that are alike.
#[derive(Debug, Serialize, Document)]
pub struct GroupView {
    /// Failures that are alike but for their time, by their place in `failures`.
    pub failures: Vec<usize>,
    /// Their verdict.
    #[field(null = "the failures say why, each in its own `verdict`")]
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
    /// Why a figure is not told exactly: rounded, where its lower end is known.
    fn why_none(low: Option<Bytes>, otherwise: &'static str, switch: Option<&'static str>) -> Reason {
        let text = if low.is_some() { "the text rounds it; it lies between the two ends" } else { otherwise };
        Reason::new(text, switch)
    }

    fn why_no_requested(&self) -> Reason {
        let otherwise = match self.dialect {
            Dialect::MemoryDump => "a dump does not say what was asked for",
            Dialect::PyTorch => "PyTorch says what it asked the driver for, not the tensor's size",
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
            Some(Verdict::Fragmented) if !self.regions.is_empty() => {
                "no region is as large as the request: its holes could not hold it even if they were joined"
            }
            Some(Verdict::Fragmented) => "the chunks are not told",
            _ => "only a fragmented pool has one",
        };
        Reason::new(text, None)
    }
}

const NOT_SAID: &str = "the input does not say";
const DUMP: &str = "TF_BFC_MEMORY_DUMP";
