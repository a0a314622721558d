//! What to do about a failure, from its own facts only.
//!
//! Nothing here is general advice: each sentence names figures of this failure, and is left out where they are not known.

use super::bridge::Bridge;
use super::{Conclusion, Proof, Verdict};
use crate::failure::{Dialect, Failure, SizeRange};
use crate::units::Bytes;

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// A sentence.
    pub text: String,
    /// The bytes that it is about, where it is about some.
    pub bytes: Option<Bytes>,
}

/// What to do about a failure, best first.
#[must_use]
pub fn advice(
    failure: &Failure,
    conclusion: &Conclusion,
    bridge: Option<&Bridge>,
    proof: Option<&Proof>,
) -> Vec<Advice> {
    let mut list = Vec::new();
    let mut add = |text: String, bytes: Option<Bytes>| list.push(Advice { text, bytes });
    let short = conclusion.short_by.map(|told| told.high);
    match conclusion.verdict {
        Some(Verdict::Device) => device(failure, conclusion, &mut add),
        Some(Verdict::Fragmented) => fragmented(failure, conclusion, bridge, &mut add),
        Some(Verdict::Slack) => {
            slack(failure, short, &mut add);
            raise(failure, short, &mut add);
        }
        Some(Verdict::Exhausted) => {
            less(short, &mut add);
            raise(failure, short, &mut add);
        }
        Some(Verdict::Limit) => {
            let by = proof.map_or("", |proof| &proof.by);
            if let (Some(short), Some(limit)) = (short, failure.limit) {
                let wanted = whole_mib(limit.high + short);
                add(
                    format!("raise the limit ({by}) to {} MiB or more: it is {short} short", wanted.0 >> 20),
                    Some(wanted),
                );
            }
            less(short, &mut add);
            if conclusion.slack.zip(conclusion.short_by).is_some_and(|(slack, short)| slack.low >= short.high)
            {
                slack(failure, short, &mut add);
            }
        }
        None => unknown(failure, conclusion, &mut add),
    }
    list
}

fn device(failure: &Failure, conclusion: &Conclusion, add: &mut impl FnMut(String, Option<Bytes>)) {
    if let Some(others) = failure.memory.others.filter(|others| others.low > Bytes::ZERO) {
        add(
            format!("other processes hold {} of the device: end them, or use another device", shown(others)),
            Some(others.low),
        );
        return;
    }
    let left = conclusion.unallocated.map_or(String::new(), shown);
    add(
        format!(
            "the pool's limit left {left}, the driver did not have it: see with nvidia-smi who else uses the device"
        ),
        conclusion.unallocated.map(|told| told.low),
    );
    if let Some(pool) = failure.pool.filter(|_| failure.dialect.is_bfc()) {
        add(
            format!("a limit of {} would have said so at the start of the job instead of here", shown(pool)),
            Some(pool.low),
        );
    }
}

fn fragmented(
    failure: &Failure,
    conclusion: &Conclusion,
    bridge: Option<&Bridge>,
    add: &mut impl FnMut(String, Option<Bytes>),
) {
    if matches!(failure.dialect, Dialect::PyTorch | Dialect::TorchSnapshot) {
        let free = conclusion.free.map_or(String::new(), shown);
        add(
            format!(
                "{free} are reserved and unused: set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, so that they can be joined"
            ),
            conclusion.free.map(|told| told.low),
        );
        return;
    }
    if let Some(bridge) = bridge {
        let live: Bytes = bridge.live.iter().map(|chunk| chunk.size).sum();
        add(
            format!(
                "{} live chunks ({live}) lie between {} holes that together would hold the request: free them first, or \
                 allocate them before what was freed",
                bridge.live.len(),
                bridge.holes
            ),
            Some(live),
        );
    }
    let regions = failure.sums.as_ref().map_or(0, |sums| sums.regions);
    let is_gpu = failure.allocator.as_ref().is_some_and(|name| name.starts_with("GPU_"));
    if regions > 1 && failure.layout.as_ref().is_none_or(|layout| layout.has_borders) {
        add(
            format!(
                "the pool grew in {regions} pieces, and holes of different pieces never join: let it take its memory at \
                 once (no memory growth; JAX: XLA_PYTHON_CLIENT_PREALLOCATE=true)"
            ),
            None,
        );
    }
    if is_gpu {
        add(
            "TF_GPU_ALLOCATOR=cuda_malloc_async (JAX: XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async) joins pieces that this pool \
             cannot"
                .to_owned(),
            None,
        );
    }
}

fn slack(failure: &Failure, short: Option<Bytes>, add: &mut impl FnMut(String, Option<Bytes>)) {
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
        add(
            format!(
                "{count} chunks hold {saved} beyond what was asked for: they were handed out whole, because less than \
                 their own size would have been left; requests of the same sizes again, or the large ones first, fit"
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
        add(
            format!(
                "{count} chunks of {} or more hold at least {bytes} beyond what was asked for: they were handed out whole; \
                 requests of the same sizes again, or the large ones first, fit",
                Bytes(256 << number)
            ),
            Some(bytes),
        );
    }
}

fn less(short: Option<Bytes>, add: &mut impl FnMut(String, Option<Bytes>)) {
    if let Some(short) = short {
        add(
            format!("hold {short} less at this moment: a smaller batch, or free what is no longer needed"),
            Some(short),
        );
    }
}

/// A pool that is full up to a limit which its device may exceed.
fn raise(failure: &Failure, short: Option<Bytes>, add: &mut impl FnMut(String, Option<Bytes>)) {
    if let (Some(limit), Some(short), true) = (failure.limit, short, failure.dialect.is_bfc()) {
        let wanted = whole_mib(limit.high + short);
        add(
            format!(
                "if the limit of {} is a setting of yours, {} MiB would do (say so with --limit)",
                shown(limit),
                wanted.0 >> 20
            ),
            Some(wanted),
        );
    }
}

fn unknown(failure: &Failure, conclusion: &Conclusion, add: &mut impl FnMut(String, Option<Bytes>)) {
    if failure.dialect == Dialect::MemoryDump {
        add(
            "the dump does not say what was asked for: give the job's log too (vramline oom LOG DUMP)"
                .to_owned(),
            None,
        );
    } else if failure.sums.is_none() && failure.dialect.is_bfc() {
        add(
            "the log does not hold the pool's list of chunks: set TF_CPP_MIN_LOG_LEVEL=0, or TF_BFC_MEMORY_DUMP=/tmp/dump \
             for a binary one, or run the job under `vramline run`"
                .to_owned(),
            None,
        );
    }
    if conclusion.unallocated.is_none() && failure.sums.is_some() {
        add("the pool's limit is not told: give it with --limit".to_owned(), None);
    }
}

fn whole_mib(bytes: Bytes) -> Bytes {
    Bytes(bytes.0.checked_next_multiple_of(1 << 20).unwrap_or(u64::MAX))
}

/// A size for people; both ends where they read differently.
#[must_use]
pub fn shown(told: SizeRange) -> String {
    let (low, high) = (told.low.to_string(), told.high.to_string());
    if low == high { low } else { format!("{low} to {high}") }
}
