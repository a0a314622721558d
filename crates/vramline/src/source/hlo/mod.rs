//! XLA's buffer assignment: where the compiler put every value of a program.
//!
//! ```text
//! HloProto:              hlo_module=1, buffer_assignment=3
//! BufferAssignmentProto: logical_buffers=1, buffer_aliases=2, buffer_allocations=3, heap_simulator_traces=4,
//!                        peak_buffers=5
//! ```
//!
//! It stands in traces, one for each program that ran, and in the files that `--xla_dump_hlo_as_proto` writes. A proto may
//! be tens of megabytes, most of it code: [`assignment`] reads what lies where, [`module`] then looks up the names of
//! those values only.

pub(crate) mod argument;
mod assignment;
mod module;
pub(crate) mod role;
mod signature;

use std::collections::BTreeMap;
use std::io;

use super::input::Input;
use super::wire::{Cursor, Value};
use crate::event::Framework;
use crate::executable::{Executable, Purpose};
use crate::snapshot::{Held, Snapshot, Still, StillPool};
use crate::units::Bytes;
use crate::warning::Warnings;

/// More values than this in one program are not read; the largest known have some hundred thousand.
const MOST_VALUES: usize = 2 << 20;

/// A larger file is not read; protobuf itself ends at twice that.
const LARGEST: usize = 1 << 30;

/// Reads a dumped proto; `None` where it was written before the compiler assigned buffers.
pub(crate) fn read_file(input: &Input) -> io::Result<Option<Still>> {
    Ok(read(&input.whole(LARGEST)?).map(still))
}

/// Reads a dumped proto that was written to its end; `None` where it was not, or before the compiler assigned buffers.
pub(crate) fn read_program(input: &Input) -> io::Result<Option<Executable>> {
    let proto = input.whole(LARGEST)?;
    let mut cursor = Cursor(&proto);
    loop {
        match cursor.field() {
            Ok(Some(_)) => {}
            Ok(None) => return Ok(read(&proto)),
            Err(_) => return Ok(None),
        }
    }
}

/// What a program asks for while it runs, as one pool for each purpose and kind of memory.
fn still(mut executable: Executable) -> Still {
    let mut pools: BTreeMap<(usize, i64), Vec<Held>> = BTreeMap::new();
    for allocation in &executable.allocations {
        let Some(place) = PURPOSES.iter().position(|(_, is_of)| is_of(allocation.purpose)) else { continue };
        let held = pools.entry((place, allocation.space)).or_default();
        held.extend(allocation.parts.iter().map(|part| {
            let buffer = executable.buffer(part);
            role::held(&executable.names, allocation.purpose, part.bytes, buffer, part.how, role::By::File)
        }));
    }
    let pools = pools.into_iter().map(|((place, space), held)| {
        let purpose = PURPOSES.get(place).map_or("", |(word, _)| *word);
        let space = if space == 0 { String::new() } else { format!(", memory space {space}") };
        let in_use = held.iter().map(|held| held.requested).sum();
        StillPool {
            name: format!("{} {purpose}{space}", executable.name),
            device: String::new(),
            limit: None,
            lifetime_peak: None,
            fragmentation: None,
            allocs: None,
            snapshot: Snapshot { time: None, in_use, before_recording: Bytes::ZERO, held },
        }
    });
    let mut warnings = Warnings::default();
    if executable.is_cut {
        warnings.add(
            "large-program",
            format!("the program has more than {MOST_VALUES} buffers; the rest was not read"),
            "",
        );
    }
    Still {
        format: "hlo",
        framework: executable.name.starts_with("jit_").then_some(Framework::Jax),
        pools: pools.collect(),
        names: std::mem::take(&mut executable.names),
        stacks: std::mem::take(&mut executable.stacks),
        warnings,
    }
}

/// Whether an allocation is of a purpose.
type IsOf = fn(Purpose) -> bool;

/// The pools of a program, in the order in which they are shown. The stack is not included.
const PURPOSES: [(&str, IsOf); 4] = [
    ("temporaries", |purpose| purpose == Purpose::Temporary),
    ("arguments", |purpose| matches!(purpose, Purpose::Parameter { .. })),
    ("results", |purpose| purpose == Purpose::Output),
    ("constants", |purpose| purpose == Purpose::Constant),
];

/// Reads a serialized `HloProto`. What is malformed ends the message it is in. `None` where it has no assignment.
pub(crate) fn read(proto: &[u8]) -> Option<Executable> {
    let (mut modules, mut assignments) = (Vec::new(), Vec::new());
    let mut cursor = Cursor(proto);
    while let Ok(Some((field, value))) = cursor.field() {
        match (field, value) {
            (1, Value::Bytes(module)) => modules.push(module),
            (3, Value::Bytes(assignment)) => assignments.push(assignment),
            _ => {}
        }
    }
    let name = module::name_of(&modules);
    if assignments.is_empty() {
        return None;
    }
    let mut executable = Executable { name, ..Executable::default() };
    let root = module::root_of(&modules);
    let (values, homes) = assignment::read(&assignments, root, &mut executable);
    module::name_values(&modules, &values, &mut executable);
    signature::read(&modules, &homes, &mut executable);
    Some(executable)
}

/// Numbers of a repeated field, packed or one by one.
fn numbers(value: Value<'_>, mut take: impl FnMut(i64)) {
    match value {
        Value::Varint(number) => take(number.cast_signed()),
        Value::Bytes(packed) => {
            let mut cursor = Cursor(packed);
            while !cursor.0.is_empty() {
                let Ok(number) = cursor.varint() else { break };
                take(number.cast_signed());
            }
        }
        _ => {}
    }
}
