//! The post-mortem as plain data: the JSON document of `vramline oom`, and what the terminal prints.
//!
//! A figure that the input tells rounded is null, with its two ends beside it. `unknowns` has the reason of each null.

use serde::Serialize;

use super::replayed;
use crate::OutOfMemory;
use crate::failure::{Dialect, Failure, Layout, Told};
use crate::names::Names;
use crate::postmortem::advice::{self, Advice};
use crate::postmortem::bridge::{self, Bridge};
use crate::postmortem::{self, Conclusion, Proof};
use crate::units::Bytes;
use crate::warning::{Unknown, Warning};

/// The whole document.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct OomReport {
    pub kind: &'static str,
    pub files: Vec<String>,
    pub failures: Vec<FailureView>,
    pub groups: Vec<GroupView>,
    pub warnings: Vec<Warning>,
    pub unknowns: Vec<Unknown>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct FailureView {
    pub allocator: Option<String>,
    pub dialect: &'static str,
    pub requested_bytes: Option<Bytes>,
    pub requested_low_bytes: Option<Bytes>,
    pub requested_high_bytes: Option<Bytes>,
    pub rounded_bytes: Option<Bytes>,
    pub rounded_low_bytes: Option<Bytes>,
    pub rounded_high_bytes: Option<Bytes>,
    pub op: Option<String>,
    pub shape: Option<String>,
    pub dtype: Option<String>,
    pub device: Option<String>,
    pub executable: Option<String>,
    pub limit_bytes: Option<Bytes>,
    pub limit_low_bytes: Option<Bytes>,
    pub limit_high_bytes: Option<Bytes>,
    pub limit_set_by: Option<String>,
    pub pool_bytes: Option<Bytes>,
    pub in_use_bytes: Option<Bytes>,
    pub in_use_low_bytes: Option<Bytes>,
    pub in_use_high_bytes: Option<Bytes>,
    pub free_bytes: Option<Bytes>,
    pub free_low_bytes: Option<Bytes>,
    pub free_high_bytes: Option<Bytes>,
    pub largest_free_bytes: Option<Bytes>,
    pub unallocated_bytes: Option<Bytes>,
    pub unallocated_low_bytes: Option<Bytes>,
    pub unallocated_high_bytes: Option<Bytes>,
    pub slack_bytes: Option<Bytes>,
    pub slack_low_bytes: Option<Bytes>,
    pub slack_high_bytes: Option<Bytes>,
    pub verdict: Option<&'static str>,
    pub short_by_bytes: Option<Bytes>,
    pub short_by_low_bytes: Option<Bytes>,
    pub short_by_high_bytes: Option<Bytes>,
    pub device_total_bytes: Option<Bytes>,
    pub device_free_bytes: Option<Bytes>,
    pub other_processes_bytes: Option<Bytes>,
    pub attempts: u64,
    pub told_by: Vec<WitnessView>,
    pub regions: Vec<RegionView>,
    pub bridge: Option<BridgeView>,
    pub holders: Vec<HolderView>,
    pub buffers: Vec<BufferView>,
    pub advice: Vec<AdviceView>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct WitnessView {
    pub file: String,
    pub line: Option<u64>,
    pub time: String,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct RegionView {
    pub address: u64,
    pub bytes: Bytes,
    pub in_use_bytes: Bytes,
    pub free_bytes: Bytes,
    pub largest_free_bytes: Bytes,
    pub chunks: usize,
    pub map: String,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct BridgeView {
    pub region: usize,
    pub bytes: Bytes,
    pub free_bytes: Bytes,
    pub holes: usize,
    pub live: Vec<ChunkView>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct ChunkView {
    pub address: u64,
    pub bytes: Bytes,
    pub requested_bytes: Option<Bytes>,
    pub op: String,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct HolderView {
    pub bytes: Bytes,
    pub count: u64,
    pub chunk_bytes: Bytes,
    pub requested_bytes: Option<Bytes>,
    pub op: String,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct BufferView {
    pub bytes: Option<Bytes>,
    pub low_bytes: Bytes,
    pub high_bytes: Bytes,
    pub operator: String,
    pub label: String,
    pub shape: String,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct AdviceView {
    pub text: String,
    pub bytes: Option<Bytes>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct GroupView {
    pub failures: Vec<usize>,
    pub verdict: Option<&'static str>,
}

/// Sizes of which a pool's holders are listed.
const HOLDERS: usize = 20;

/// Signs of the longest row of the picture.
pub const MAP_WIDTH: usize = 64;

/// Makes the post-mortem of what was read.
#[must_use]
pub fn oom(read: &OutOfMemory) -> OomReport {
    let failures = &read.failures.list;
    let proofs = || read.proofs.iter().map(Option::as_ref).chain(std::iter::repeat(None));
    let conclusions: Vec<Conclusion> =
        failures.iter().zip(proofs()).map(|(failure, proof)| postmortem::conclude(failure, proof)).collect();
    let groups = postmortem::groups(failures, &conclusions);
    let mut unknowns = Vec::new();
    let mut views: Vec<FailureView> = failures
        .iter()
        .zip(&conclusions)
        .zip(proofs())
        .enumerate()
        .map(|(at, ((failure, conclusion), proof))| {
            let view = view(failure, conclusion, proof, &read.failures.names);
            explain(at, failure, conclusion, &view, &mut unknowns);
            view
        })
        .collect();
    advise_by_replay(read, &mut views);
    let word = |at: Option<&usize>| at.and_then(|&at| views.get(at)).and_then(|view| view.verdict);
    let groups =
        groups.into_iter().map(|failures| GroupView { verdict: word(failures.first()), failures }).collect();
    OomReport {
        kind: "oom",
        files: read.files.iter().map(|path| path.display().to_string()).collect(),
        groups,
        failures: views,
        warnings: read.failures.warnings.as_slice().to_vec(),
        unknowns,
    }
}

/// What a replay adds, where there is a trace: for the first failure of each that it knows.
fn advise_by_replay(read: &OutOfMemory, views: &mut [FailureView]) {
    for host in &read.hosts {
        let mine = |at: &usize| read.of_process.get(*at).copied().flatten() == host.process;
        let failures = read.failures.list.iter().enumerate().filter(|(at, _)| mine(at));
        let found = failures.into_iter().find_map(|(at, failure)| {
            Some((at, replayed::advice(&host.trace, failure, host.version.as_deref())?))
        });
        if let Some((at, Advice { text, bytes })) = found
            && let Some(view) = views.get_mut(at)
        {
            view.advice.push(AdviceView { text, bytes });
        }
    }
}

/// The first failure in one sentence, for the report on a recording.
#[must_use]
pub fn in_short(read: &OutOfMemory) -> Option<Warning> {
    let failure = read.failures.list.first()?;
    let conclusion = postmortem::conclude(failure, read.proofs.first().and_then(Option::as_ref));
    let size = conclusion.request.map_or("an allocation".to_owned(), advice::shown);
    let pool = failure.allocator.as_deref().map_or(String::new(), |name| format!(" in {name}"));
    let short = conclusion.short_by.filter(|told| told.high > Bytes::ZERO);
    let short = short.map_or(String::new(), |told| format!(", short by {}", advice::shown(told)));
    let why =
        conclusion.verdict.map_or("why, cannot be told".to_owned(), |verdict| verdict.word().to_owned());
    let more = match read.failures.list.len() {
        1 => String::new(),
        count => format!("; {} more failed", count - 1),
    };
    Some(Warning {
        code: "out-of-memory",
        text: format!("memory ran out: {size} did not fit{pool}{short} ({why}){more}"),
        hint: "vramline oom with the same path shows why".to_owned(),
    })
}

fn view(failure: &Failure, conclusion: &Conclusion, proof: Option<&Proof>, names: &Names) -> FailureView {
    let exact = |told: Option<Told>| told.and_then(Told::value);
    let low = |told: Option<Told>| told.map(|told| told.low);
    let high = |told: Option<Told>| told.map(|told| told.high);
    let is_fragmented = conclusion.verdict == Some(postmortem::Verdict::Fragmented);
    let bridge = failure
        .layout
        .as_ref()
        .zip(conclusion.request)
        .filter(|_| is_fragmented)
        .and_then(|(layout, request)| bridge::bridge(layout, request.high, failure.end));
    let advice = advice::advice(failure, conclusion, bridge.as_ref(), proof);
    FailureView {
        allocator: failure.allocator.clone(),
        dialect: failure.dialect.word(),
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
        limit_set_by: proof.map(|proof| proof.by.clone()),
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
        verdict: conclusion.verdict.map(postmortem::Verdict::word),
        short_by_bytes: exact(conclusion.short_by),
        short_by_low_bytes: low(conclusion.short_by),
        short_by_high_bytes: high(conclusion.short_by),
        device_total_bytes: exact(failure.memory.total),
        device_free_bytes: exact(failure.memory.free),
        other_processes_bytes: exact(failure.memory.others),
        attempts: failure.attempts,
        told_by: failure.witnesses.iter().map(witness_view).collect(),
        regions: failure.layout.as_ref().map(regions).unwrap_or_default(),
        bridge: bridge.map(|bridge| bridge_view(&bridge, names)),
        holders: failure.layout.as_ref().map(|layout| holders(layout, names)).unwrap_or_default(),
        buffers: failure.buffers.iter().map(buffer_view).collect(),
        advice: advice.into_iter().map(|Advice { text, bytes }| AdviceView { text, bytes }).collect(),
    }
}

fn witness_view(witness: &crate::failure::Witness) -> WitnessView {
    WitnessView { file: witness.path.display().to_string(), line: witness.line, time: witness.time.clone() }
}

fn buffer_view(buffer: &crate::failure::Buffer) -> BufferView {
    BufferView {
        bytes: buffer.size.value(),
        low_bytes: buffer.size.low,
        high_bytes: buffer.size.high,
        operator: buffer.operator.clone(),
        label: buffer.label.clone(),
        shape: buffer.shape.clone(),
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

/// Chunks in use by size and name, the most bytes first.
fn holders(layout: &Layout, names: &Names) -> Vec<HolderView> {
    let mut groups = rustc_hash::FxHashMap::default();
    for chunk in layout.chunks().filter(|chunk| chunk.in_use) {
        *groups.entry((chunk.size, chunk.requested, chunk.op)).or_insert(0u64) += 1;
    }
    let mut holders: Vec<HolderView> = groups
        .into_iter()
        .map(|((size, requested, op), count)| HolderView {
            bytes: Bytes(size.0.saturating_mul(count)),
            count,
            chunk_bytes: size,
            requested_bytes: requested,
            op: names.get(op).to_owned(),
        })
        .collect();
    holders.sort_by(|a, b| {
        (b.bytes, b.chunk_bytes, b.requested_bytes, &a.op).cmp(&(
            a.bytes,
            a.chunk_bytes,
            a.requested_bytes,
            &b.op,
        ))
    });
    holders.truncate(HOLDERS);
    holders
}

/// One row for each region: `#` in use, `x` slack, `.` free, `:` where a sign's bytes are more than half free but not all.
fn regions(layout: &Layout) -> Vec<RegionView> {
    let largest = layout.regions.iter().map(|region| region.size().0).max().unwrap_or(0);
    layout
        .regions
        .iter()
        .map(|region| {
            let size = region.size();
            let free = |in_use: bool| region.chunks.iter().filter(move |chunk| chunk.in_use == in_use);
            RegionView {
                address: region.chunks.first().map_or(0, |chunk| chunk.address),
                bytes: size,
                in_use_bytes: free(true).map(|chunk| chunk.size).sum(),
                free_bytes: free(false).map(|chunk| chunk.size).sum(),
                largest_free_bytes: free(false).map(|chunk| chunk.size).max().unwrap_or_default(),
                chunks: region.chunks.len(),
                map: map(region, largest),
            }
        })
        .collect()
}

fn map(region: &crate::failure::Region, largest: u64) -> String {
    let size = region.size().0;
    if size == 0 || largest == 0 {
        return String::new();
    }
    let width =
        (u128::from(size) * MAP_WIDTH as u128).div_ceil(u128::from(largest)).clamp(1, MAP_WIDTH as u128);
    // Bytes of each sign: in use and asked for, slack, free.
    let mut cells = vec![[0u128; 3]; usize::try_from(width).unwrap_or(1)];
    let mut paint = |from: u128, length: u128, kind: usize| {
        let end = from + length;
        // Positions are counted in 1/size of a sign, so that all borders are whole numbers.
        let (mut at, size) = (from * width, u128::from(size));
        while at < end * width {
            let cell = at / size;
            let until = ((cell + 1) * size).min(end * width);
            let slot = usize::try_from(cell).ok().and_then(|cell| cells.get_mut(cell));
            if let Some(slot) = slot.and_then(|cell| cell.get_mut(kind)) {
                *slot += until - at;
            }
            at = until;
        }
    };
    let mut offset = 0u128;
    for chunk in &region.chunks {
        let size = u128::from(chunk.size.0);
        if chunk.in_use {
            let asked = chunk.requested.map_or(size, |asked| u128::from(asked.0).min(size));
            paint(offset, asked, 0);
            paint(offset + asked, size - asked, 1);
        } else {
            paint(offset, size, 2);
        }
        offset += size;
    }
    let sign = |&[used, slack, free]: &[u128; 3]| {
        let whole = used + slack + free;
        if free == whole {
            '.'
        } else if free * 2 >= whole {
            ':'
        } else if slack * 2 >= whole {
            'x'
        } else {
            '#'
        }
    };
    cells.iter().map(sign).collect()
}

/// A reason for each null.
fn explain(
    at: usize,
    failure: &Failure,
    conclusion: &Conclusion,
    view: &FailureView,
    unknowns: &mut Vec<Unknown>,
) {
    let mut add = |field: &str, reason: String, switch: Option<&str>| {
        let path = format!("failures[{at}].{field}");
        unknowns.push(Unknown { path, reason, switch: switch.map(str::to_owned) });
    };
    const DUMP: &str = "TF_BFC_MEMORY_DUMP";
    let is_dump = failure.dialect == Dialect::MemoryDump;
    type Figure<'a> = (&'a str, Option<Bytes>, Option<Bytes>, Option<&'a str>);
    let figures: [Figure<'_>; 9] = [
        ("requested", view.requested_bytes, view.requested_low_bytes, None),
        ("rounded", view.rounded_bytes, view.rounded_low_bytes, None),
        ("limit", view.limit_bytes, view.limit_low_bytes, Some("--limit")),
        ("in_use", view.in_use_bytes, view.in_use_low_bytes, Some(DUMP)),
        ("free", view.free_bytes, view.free_low_bytes, Some(DUMP)),
        ("unallocated", view.unallocated_bytes, view.unallocated_low_bytes, Some("--limit")),
        ("slack", view.slack_bytes, view.slack_low_bytes, Some(DUMP)),
        ("short_by", view.short_by_bytes, view.short_by_low_bytes, None),
        ("largest_free", view.largest_free_bytes, None, Some(DUMP)),
    ];
    for (name, exact, low, switch) in figures {
        if exact.is_some() {
            continue;
        }
        let reason = match low {
            Some(_) => "the text rounds it; it lies between the two ends".to_owned(),
            None if name == "requested" && is_dump => "a dump does not say what was asked for".to_owned(),
            None if name == "requested" && failure.dialect == Dialect::PyTorch => {
                "PyTorch says what it asked the driver for, not the tensor's size".to_owned()
            }
            None if name == "short_by" => conclusion.why_none.clone().unwrap_or_default(),
            None => "the input does not say".to_owned(),
        };
        add(&format!("{name}_bytes"), reason.clone(), switch);
        if low.is_none() && name != "largest_free" {
            add(&format!("{name}_low_bytes"), reason.clone(), switch);
            add(&format!("{name}_high_bytes"), reason, switch);
        }
    }
    let others: [(&str, bool); 11] = [
        ("allocator", view.allocator.is_none()),
        ("op", view.op.is_none()),
        ("shape", view.shape.is_none()),
        ("dtype", view.dtype.is_none()),
        ("device", view.device.is_none()),
        ("executable", view.executable.is_none()),
        ("limit_set_by", view.limit_set_by.is_none()),
        ("pool_bytes", view.pool_bytes.is_none()),
        ("device_total_bytes", view.device_total_bytes.is_none()),
        ("device_free_bytes", view.device_free_bytes.is_none()),
        ("other_processes_bytes", view.other_processes_bytes.is_none()),
    ];
    for (name, _) in others.iter().filter(|(_, is_null)| *is_null) {
        let reason = match *name {
            "limit_set_by" => "nothing proves that the limit is a setting of yours",
            _ => "the input does not say",
        };
        add(name, reason.to_owned(), None);
    }
    if let (None, Some(reason)) = (view.verdict, &conclusion.why_none) {
        add("verdict", reason.clone(), None);
    }
    if view.bridge.is_none() {
        let reason = match conclusion.verdict {
            Some(postmortem::Verdict::Fragmented) if failure.layout.is_some() => {
                "no region is as large as the request: its holes could not hold it even if they were joined"
            }
            Some(postmortem::Verdict::Fragmented) => "the chunks are not told",
            _ => "only a fragmented pool has one",
        };
        add("bridge", reason.to_owned(), None);
    }
}
