//! The memory profile that xprof and TensorBoard's profiler compute from a trace: `memory_profile.json.gz`. It has the peak of each pool
//! and names some of its blocks.
//!
//! It is their `MemoryProfile` message as JSON, with 64-bit numbers as text. It lists only blocks that the step of the peak allocated; it
//! calls the rest of the peak "unused preallocated device memory", although it is in use. Here the rest has no name.

use std::collections::BTreeMap;
use std::io;

use serde::{Deserialize, Deserializer};

use super::input::Input;
use crate::event::{Dtype, Framework, device_of, pool_name};
use crate::names::Names;
use crate::snapshot::{Held, Snapshot, Still, StillPool};
use crate::stack::Stacks;
use crate::units::Bytes;
use crate::warning::Warnings;

/// The maximum file size; xprof thins out its lists, so its files are smaller.
const LARGEST: usize = 128 << 20;

const LISTED: &str = "listed in the memory profile as allocated at the peak";
const REST: &str =
    "in use at the peak, but the memory profile lists only blocks that the step of the peak allocated";

/// A 64-bit number, which JSON has as text.
#[derive(Clone, Copy, Debug, Default)]
struct Wide(i64);

impl<'de> Deserialize<'de> for Wide {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Wide, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(i64),
            Text(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(number) => Ok(Wide(number)),
            Written::Text(text) => text.parse().map(Wide).map_err(serde::de::Error::custom),
        }
    }
}

impl Wide {
    fn bytes(self) -> Option<Bytes> {
        u64::try_from(self.0).ok().map(Bytes)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    memory_profile_per_allocator: BTreeMap<String, Allocator>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Allocator {
    memory_profile_snapshots: Vec<Event>,
    profile_summary: Summary,
    active_allocations: Vec<Active>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Summary {
    peak_bytes_usage_lifetime: Wide,
    peak_stats: Stats,
    memory_capacity: Wide,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Stats {
    stack_reserved_bytes: Wide,
    heap_allocated_bytes: Wide,
    fragmentation: Option<f32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Event {
    activity_metadata: Block,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Block {
    requested_bytes: Wide,
    allocation_bytes: Wide,
    tf_op_name: String,
    data_type: String,
    tensor_shape: String,
}

/// A block that is held, by its place in one of two lists; the place in the other is -1.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Active {
    snapshot_index: Wide,
    special_index: Wide,
    num_occurrences: Wide,
}

/// Reads such a profile; `None` where the JSON is something else or damaged.
pub(crate) fn read(input: &Input) -> io::Result<Option<Still>> {
    let bytes = input.whole(LARGEST)?;
    let Ok(profile) = serde_json::from_slice::<Profile>(&bytes) else { return Ok(None) };
    let mut names = Names::default();
    let pools = profile.memory_profile_per_allocator.into_iter();
    let mut pools: Vec<StillPool> = pools.map(|(name, told)| pool(&name, &told, &mut names)).collect();
    pools.sort_by_key(|pool| std::cmp::Reverse(pool.snapshot.in_use));
    let mut warnings = Warnings::default();
    warnings.add(
        "memory-profile",
        "the file is a memory profile by xprof: it names only blocks that the step of the peak allocated",
        "the trace has more detail: use the .xplane.pb file in the same folder",
    );
    // JAX reports no op names in its pools.
    let is_tensorflow = pools.iter().any(|pool| pool.snapshot.held.iter().any(|held| !held.op.is_empty()));
    Ok(Some(Still {
        format: "memory-profile",
        framework: is_tensorflow.then_some(Framework::TensorFlow),
        names,
        stacks: Stacks::default(),
        pools,
        warnings,
    }))
}

fn pool(name: &str, told: &Allocator, names: &mut Names) -> StillPool {
    let name = pool_name(name);
    let stats = &told.profile_summary.peak_stats;
    let in_use = stats.heap_allocated_bytes.bytes().unwrap_or_default()
        + stats.stack_reserved_bytes.bytes().unwrap_or_default();
    let mut held: Vec<Held> =
        told.active_allocations.iter().filter_map(|one| block(one, told, names)).collect();
    let listed: Bytes = held.iter().map(|held| held.chunk).sum();
    let rest = in_use.saturating_sub(listed);
    if rest > Bytes::ZERO {
        held.push(Held::bare(rest, rest, REST));
    }
    let lifetime = told.profile_summary.peak_bytes_usage_lifetime.bytes();
    StillPool {
        device: device_of(&name),
        name,
        limit: told.profile_summary.memory_capacity.bytes().filter(|&limit| limit > Bytes::ZERO),
        lifetime_peak: lifetime.map(|lifetime| lifetime.max(in_use)),
        fragmentation: stats.fragmentation,
        allocs: None,
        // Where the lists say more than the allocator's count, all of it adds up at least.
        snapshot: Snapshot { time: None, in_use: in_use.max(listed), before_recording: Bytes::ZERO, held },
    }
}

fn block(one: &Active, told: &Allocator, names: &mut Names) -> Option<Held> {
    if one.special_index.0 >= 0 {
        return None;
    }
    let place = usize::try_from(one.snapshot_index.0).ok()?;
    let block = &told.memory_profile_snapshots.get(place)?.activity_metadata;
    let count = u64::try_from(one.num_occurrences.0).ok().filter(|&count| count > 0)?;
    let all = |bytes: Wide| bytes.bytes().map(|bytes| Bytes(bytes.0.saturating_mul(count)));
    let chunk = all(block.allocation_bytes)?;
    let requested = all(block.requested_bytes)?.min(chunk);
    let known =
        |text: &str| if matches!(text, "unknown" | "INVALID") { String::new() } else { text.to_owned() };
    Some(Held {
        op: names.intern(&known(&block.tf_op_name)),
        shape: names.intern(&known(&block.tensor_shape)),
        dtype: dtype_of(&block.data_type),
        count,
        ..Held::bare(requested, chunk, LISTED)
    })
}

/// TensorFlow's name of an element type.
fn dtype_of(name: &str) -> Dtype {
    match name {
        "bool" => Dtype::Bool,
        "int8" => Dtype::I8,
        "int16" => Dtype::I16,
        "int32" => Dtype::I32,
        "int64" => Dtype::I64,
        "uint8" => Dtype::U8,
        "uint16" => Dtype::U16,
        "uint32" => Dtype::U32,
        "uint64" => Dtype::U64,
        "half" => Dtype::F16,
        "bfloat16" => Dtype::Bf16,
        "float" => Dtype::F32,
        "double" => Dtype::F64,
        "complex64" => Dtype::C64,
        "complex128" => Dtype::C128,
        "string" => Dtype::Text,
        "resource" => Dtype::Resource,
        "variant" => Dtype::Variant,
        _ => Dtype::Unknown,
    }
}
