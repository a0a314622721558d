//! What to do about a failure, from its own facts only.
//!
//! Nothing here is general advice: each sentence names figures of this failure, and is left out where they are not known. Advice is
//! ordered by the bytes that it would give.

use super::bridge::Bridge;
use super::{Conclusion, DeviceCause, Proof, Told, Verdict};
use crate::failure::{Dialect, Failure, Platform, SizeRange};
use crate::units::{Bytes, counted};

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// A sentence.
    pub text: String,
    /// Whether it is to raise a limit.
    pub raises_limit: bool,
    /// The bytes that it would give, where that is known.
    pub bytes: Option<Bytes>,
}

/// What to do about a failure, best first.
#[must_use]
pub fn advice(told: &Told<'_>, bridge: Option<&Bridge>) -> Vec<Advice> {
    let Told { failure, conclusion, proof, need } = *told;
    let mut list = List::default();
    let short = conclusion.short_by.map(|told| told.high);
    // A limit must leave room for the whole step, not only for the request that failed first.
    let least = need.zip(failure.limit).map(|(need, limit)| need.total().saturating_sub(limit.low));
    let short = short.max(least);
    match conclusion.verdict {
        Some(Verdict::Device) => device(failure, conclusion, &mut list),
        Some(Verdict::Fragmented) => fragmented(failure, conclusion, bridge, &mut list),
        Some(Verdict::Slack) => {
            slack(failure, short, &mut list);
            less(failure, conclusion, &mut list);
            raise(failure, short, &mut list);
        }
        Some(Verdict::Exhausted) => {
            less(failure, conclusion, &mut list);
            raise(failure, short, &mut list);
        }
        Some(Verdict::Limit) => {
            raise_limit(failure, short, proof, &mut list);
            less(failure, conclusion, &mut list);
            if conclusion.slack.zip(conclusion.short_by).is_some_and(|(slack, short)| slack.low >= short.high)
            {
                slack(failure, short, &mut list);
            }
        }
        None => unknown(failure, conclusion, &mut list),
    }
    // The first says what follows from the verdict; the others are sorted by what they give.
    if let Some(rest) = list.0.get_mut(1..) {
        rest.sort_by_key(|advice| std::cmp::Reverse(advice.bytes));
    }
    list.0
}

#[derive(Default)]
struct List(Vec<Advice>);

impl List {
    fn say(&mut self, text: impl Into<String>, bytes: Option<Bytes>) {
        self.0.push(Advice { text: text.into(), raises_limit: false, bytes });
    }
}

/// The tools and variables of a platform.
struct Tools {
    /// Lists who uses the device.
    monitor: &'static str,
    /// Chooses another device.
    visible: &'static str,
    /// Sets up PyTorch's pool.
    pool: Option<&'static str>,
}

fn tools(platform: Option<Platform>) -> Tools {
    let (monitor, visible, pool) = match platform {
        Some(Platform::Hip) => ("rocm-smi", "HIP_VISIBLE_DEVICES", Some("PYTORCH_HIP_ALLOC_CONF")),
        Some(Platform::Xpu) => ("xpu-smi", "ZE_AFFINITY_MASK", None),
        Some(Platform::Npu) => ("npu-smi", "ASCEND_RT_VISIBLE_DEVICES", Some("PYTORCH_NPU_ALLOC_CONF")),
        Some(Platform::Mlu) => ("cnmon", "MLU_VISIBLE_DEVICES", None),
        Some(Platform::Musa) => ("mthreads-gmi", "MUSA_VISIBLE_DEVICES", None),
        Some(Platform::Tpu) => ("tpu-info", "TPU_VISIBLE_CHIPS", None),
        Some(Platform::Metal | Platform::Host) => ("the system's monitor", "another machine", None),
        Some(Platform::Other) => (
            "the device's monitor, such as nvidia-smi, rocm-smi or the task manager",
            "its driver's setting",
            None,
        ),
        Some(Platform::Cuda) | None => {
            ("nvidia-smi", "CUDA_VISIBLE_DEVICES", Some("PYTORCH_CUDA_ALLOC_CONF"))
        }
    };
    Tools { monitor, visible, pool }
}

fn device(failure: &Failure, conclusion: &Conclusion, list: &mut List) {
    let Tools { monitor, visible, .. } = tools(failure.platform);
    let others = conclusion.others.filter(|others| others.low > Bytes::ZERO);
    if let Some(others) = others {
        list.say(
            format!(
                "end the other processes if they are yours; they hold {} ({monitor} lists them). Or use another device ({visible})",
                shown(others)
            ),
            Some(others.low),
        );
        return;
    }
    if conclusion.device == Some(DeviceCause::AtStart) {
        list.say(
            format!(
                "find out with {monitor} which processes use the device; end them, or use another device ({visible})"
            ),
            None,
        );
        return;
    }
    let refused = failure.refused.or(conclusion.request.map(SizeRange::middle));
    let refused = refused.map_or("this request".to_owned(), |bytes| bytes.to_string());
    list.say(
        format!(
            "find out with {monitor} which other processes use the device: the driver refused {refused}, although the pool's limit allowed it"
        ),
        None,
    );
    if failure.dialect == Dialect::DriverRefusal {
        list.say(
            "set TF_FORCE_GPU_ALLOW_GROWTH=true, so that TensorFlow's pool grows as needed instead of reserving the whole device at \
             once",
            None,
        );
    }
    if let Some(pool) = failure.pool.filter(|_| failure.dialect.is_bfc()) {
        list.say(
            format!(
                "set a limit of {} for the pool, so that the job fails at its start instead of here",
                shown(pool)
            ),
            None,
        );
    }
}

fn fragmented(failure: &Failure, conclusion: &Conclusion, bridge: Option<&Bridge>, list: &mut List) {
    let free = conclusion.free.map_or(String::new(), shown);
    let gives = conclusion.free.map(|told| told.low);
    if matches!(failure.dialect, Dialect::PyTorch | Dialect::TorchSnapshot) {
        match tools(failure.platform).pool {
            Some(variable) => list.say(
                format!("set {variable}=expandable_segments:True: PyTorch can then use the {free} that it reserved and that is fragmented now"),
                gives,
            ),
            None => list.say(
                format!("call empty_cache() before the largest requests: PyTorch reserved {free} that it does not use"),
                gives,
            ),
        }
        return;
    }
    if failure.dialect == Dialect::Tpu {
        list.say(
            format!(
                "load the large program first, or free the blocks in between: {free} is free but fragmented"
            ),
            gives,
        );
        return;
    }
    if let Some(bridge) = bridge {
        let live: Bytes = bridge.live.iter().map(|chunk| chunk.size).sum();
        list.say(
            format!(
                "free the {} ({live}) next to {}, or allocate the long-lived tensors earlier: joined, this memory would be large \
                 enough for the request",
                counted(bridge.live.len(), "live block"),
                counted(bridge.holes, "free block")
            ),
            Some(live),
        );
    }
    let regions = failure.sums.as_ref().map_or(0, |sums| sums.regions);
    let is_gpu = failure.allocator.as_ref().is_some_and(|name| name.starts_with("GPU_"));
    if regions > 1 && failure.layout.as_ref().is_none_or(|layout| layout.has_borders) {
        list.say(
            format!(
                "reserve the pool at once (no memory growth; JAX: XLA_PYTHON_CLIENT_PREALLOCATE=true): it grew in {regions} regions, \
                 and free blocks of different regions cannot be joined"
            ),
            None,
        );
    }
    if is_gpu {
        list.say(
            "set TF_GPU_ALLOCATOR=cuda_malloc_async (JAX: XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async): it joins free memory that the \
             framework's pool cannot join",
            None,
        );
    }
}

fn slack(failure: &Failure, short: Option<Bytes>, list: &mut List) {
    let chunks = failure.layout.iter().flat_map(|layout| layout.chunks());
    let mut wasteful: Vec<(Bytes, Bytes)> = chunks
        .filter(|chunk| chunk.in_use)
        .filter_map(|chunk| Some((chunk.size.saturating_sub(chunk.requested?), chunk.size)))
        .filter(|(slack, _)| *slack >= Bytes(1 << 16))
        .collect();
    wasteful.sort_unstable();
    let (mut saved, mut count) = (Bytes::ZERO, 0);
    for (slack, _) in wasteful.iter().rev() {
        saved += *slack;
        count += 1;
        if short.is_some_and(|short| saved >= short) {
            break;
        }
    }
    if count > 0 {
        list.say(
            format!(
                "allocate the same sizes every step, or large tensors first: rounding takes {saved} in {count} blocks, because the \
                 allocator reused larger free blocks whole"
            ),
            Some(saved),
        );
        return;
    }
    let worst = failure.sums.as_ref().and_then(|sums| {
        failure
            .bins
            .iter()
            .filter_map(|bin| {
                let in_use = SizeRange::exact(*sums.in_use_of_bin.get(bin.number)?);
                Some((in_use.minus(bin.requested).low, bin.number, bin.chunks_in_use))
            })
            .max()
    });
    if let Some((bytes, number, count)) = worst.filter(|(bytes, ..)| *bytes > Bytes::ZERO) {
        list.say(
            format!(
                "allocate the same sizes every step, or large tensors first: rounding takes at least {bytes} in {count} blocks of {} or \
                 more, because the allocator reused larger free blocks whole",
                Bytes(256 << number)
            ),
            Some(bytes),
        );
    }
}

/// What the program must do without.
fn less(failure: &Failure, conclusion: &Conclusion, list: &mut List) {
    let short = conclusion.short_by.map(|told| told.high).filter(|short| *short > Bytes::ZERO);
    if let Some(program) = failure.program {
        let beyond = program.needed.minus(program.budget);
        list.say(
            format!(
                "make the compiled program {} smaller: a smaller batch size, or rematerialisation (jax.checkpoint)",
                shown(beyond)
            ),
            Some(beyond.low),
        );
        return;
    }
    if let Some(instead) = settings(failure.library) {
        list.say(instead, short);
        return;
    }
    // A process that holds nothing cannot hold less.
    let is_empty = failure.in_use.is_some_and(|held| held.high == Bytes::ZERO);
    let asked = conclusion.request.map_or("this much".to_owned(), shown);
    if is_empty {
        let by = short.map_or(String::new(), |short| format!(" ({short} too much)"));
        list.say(
            format!("request less than {asked} at once{by}: a smaller batch size or a smaller model"),
            short,
        );
        return;
    }
    match (short, conclusion.request) {
        (Some(short), _) => list.say(
            format!(
                "use {short} less at the peak: a smaller batch size, or free tensors that are no longer needed"
            ),
            Some(short),
        ),
        // Enough lies in pieces: what a smaller program needs less is at least the request.
        (None, Some(request)) if conclusion.short_by.is_some() => list.say(
            format!(
                "use at least {} less at the peak: a smaller batch size, or free tensors that are no longer needed",
                shown(request)
            ),
            Some(request.high),
        ),
        _ => list.say("use a smaller batch size, or free tensors that are no longer needed", None),
    }
}

/// A pool that is full up to a limit which its device may exceed.
fn raise(failure: &Failure, short: Option<Bytes>, list: &mut List) {
    if let (Some(limit), Some(short), true) = (failure.limit, short, failure.dialect.is_bfc()) {
        let wanted = whole_mib(limit.high + short);
        list.say(
            format!(
                "if you set the limit of {} yourself, raise it to {} MiB or more",
                shown(limit),
                wanted.0 >> 20
            ),
            Some(short),
        );
    }
    if failure.platform == Some(Platform::Metal)
        && let Some(limit) = failure.limit
    {
        list.say(
            format!(
                "set PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to remove PyTorch's own limit of {}; the system may become unstable",
                shown(limit)
            ),
            None,
        );
    }
}

fn raise_limit(failure: &Failure, short: Option<Bytes>, proof: Option<&Proof>, list: &mut List) {
    let by = proof.map_or_else(|| set_by(failure).to_owned(), |proof| proof.by.clone());
    let text = match (short, failure.limit) {
        (Some(short), Some(limit)) => {
            let wanted = whole_mib(limit.high + short);
            // PyTorch's limit is a fraction of the device.
            let total = failure.memory.total.filter(|_| by == TORCH_FRACTION);
            let fraction = total.and_then(|total| fraction_of(wanted, total.low));
            let fraction = fraction.map_or(String::new(), |fraction| format!(", a fraction of {fraction}"));
            let short = match short {
                // The text rounds its figures.
                Bytes(0) => String::new(),
                short => format!("; it is {short} too low"),
            };
            format!("raise the limit ({by}) to {} MiB or more{fraction}{short}", wanted.0 >> 20)
        }
        _ => format!("raise the limit ({by})"),
    };
    list.0.push(Advice { text, raises_limit: true, bytes: short });
}

const TORCH_FRACTION: &str = "set_per_process_memory_fraction";

/// A part of the whole in thousandths, rounded up: `0.156`. None if it is more than the whole.
fn fraction_of(part: Bytes, whole: Bytes) -> Option<String> {
    let thousandths = (u128::from(part.0) * 1000).div_ceil(u128::from(whole.0.max(1)));
    (thousandths <= 1000).then(|| format!("{}.{:03}", thousandths / 1000, thousandths % 1000))
}

/// The setting that a text speaks of when it says that a limit was set.
#[must_use]
pub(crate) fn set_by(failure: &Failure) -> &'static str {
    match (failure.dialect, failure.library) {
        (Dialect::PyTorch | Dialect::TorchAsynchronous, _) => TORCH_FRACTION,
        (_, Some("ONNX Runtime")) => "gpu_mem_limit",
        (_, Some("CuPy")) => "the memory pool's set_limit, or CUPY_GPU_MEMORY_LIMIT",
        (_, Some("vLLM")) => "gpu_memory_utilization",
        (_, Some("SGLang")) => "--mem-fraction-static",
        (_, Some("RMM")) => "the pool's maximum size",
        _ => "a setting",
    }
}

/// Where the text does not say enough: how to learn more.
fn unknown(failure: &Failure, conclusion: &Conclusion, list: &mut List) {
    const RECORD: &str = "run the job under `vramline run -- ...`, which records what holds the memory";
    match (failure.dialect, failure.library) {
        _ if failure.is_of_host() => list.say(
            "give the job more host memory, or load less at once: smaller batches in the input pipeline, fewer workers",
            None,
        ),
        (Dialect::MemoryDump, _) => list.say(
            "pass the job's log too (vramline oom LOG DUMP): the dump does not say what was requested",
            None,
        ),
        (_, Some("cuBLAS" | "cuDNN" | "cuSOLVER" | "cuSPARSE" | "cuFFT" | "NCCL")) => list.say(
            "leave room for this library, which allocates outside the framework's pool: limit the pool, let it grow as needed, or use a \
             smaller batch size",
            None,
        ),
        (Dialect::Library, _) => library(failure, conclusion, RECORD, list),
        (dialect, _) if dialect.is_bfc() && failure.sums.is_none() => {
            list.say(
                "run the job under `vramline run`, or set TF_BFC_MEMORY_DUMP=/tmp/dump for a binary dump, or TF_CPP_MIN_LOG_LEVEL=0: \
                 this log does not have the pool's list of blocks",
                None,
            );
            if let Some(asked) = conclusion.request {
                list.say(format!("or use a smaller batch size: {} did not fit", shown(asked)), None);
            }
        }
        _ => list.say(format!("{RECORD}. The text is incomplete: pass the whole log if you have it"), None),
    }
    if conclusion.unallocated.is_none() && failure.sums.is_some() {
        list.say("pass the limit of the pool with --limit: the input does not contain it", None);
    }
}

/// A library that says at most what it asked for.
fn library(failure: &Failure, conclusion: &Conclusion, record: &str, list: &mut List) {
    if let Some(instead) = settings(failure.library) {
        list.say(instead, None);
    }
    let said = match (failure.memory.free, conclusion.request) {
        (Some(free), _) => format!("only {} was free", shown(free)),
        (None, Some(_)) => "the text does not say how much was free".to_owned(),
        (None, None) => "the text has no figures".to_owned(),
    };
    let monitor = tools(failure.platform).monitor;
    list.say(format!("check with {monitor} whether another process uses the device: {said}"), None);
    if settings(failure.library).is_none() {
        let asked =
            conclusion.request.map_or(String::new(), |asked| format!(" ({} was requested)", shown(asked)));
        list.say(format!("if none does, use a smaller batch size or a smaller model{asked}"), None);
    }
    if matches!(failure.platform, Some(Platform::Cuda | Platform::Other) | None) {
        list.say(record, None);
    }
}

/// What a library's own settings can do.
fn settings(library: Option<&str>) -> Option<&'static str> {
    Some(match library? {
        "ggml" => "put fewer layers on the device (-ngl), use a shorter context (-c), or a smaller model",
        "vLLM" => "lower max_model_len, use a smaller model, or raise gpu_memory_utilization",
        "SGLang" => "lower --context-length, use a smaller model, or raise --mem-fraction-static",
        "Text Generation Inference" => "lower --max-batch-prefill-tokens, or use a smaller model",
        "TensorRT" => "lower the memory limit of the workspace or the largest batch of the profile",
        "Accelerate" => "use a smaller model or shorter inputs: even a batch size of 1 did not fit",
        _ => return None,
    })
}

fn whole_mib(bytes: Bytes) -> Bytes {
    Bytes(bytes.0.checked_next_multiple_of(1 << 20).unwrap_or(u64::MAX))
}

/// How much a request was short by, as the end of a sentence.
#[must_use]
pub fn short_by(missing: SizeRange) -> String {
    // The lower end is then only what follows from the failure itself.
    if missing.low <= Bytes(1) && missing.high > Bytes(1) {
        format!(", short by up to {}", missing.high)
    } else {
        format!(", short by {}", shown(missing))
    }
}

/// A size for people: the figure of the text, or both ends if they are far apart.
#[must_use]
pub fn shown(told: SizeRange) -> String {
    // Half of a text's last digit to either side is how texts round; more is not known.
    let is_narrow = (told.high.0 - told.low.0).saturating_mul(50) <= told.high.0;
    let (low, high) = (told.low.to_string(), told.high.to_string());
    if low == high {
        low
    } else if is_narrow {
        told.middle().to_string()
    } else {
        format!("{low} to {high}")
    }
}
