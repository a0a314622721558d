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

mod assignment;
mod module;
pub(crate) mod role;

use super::wire::{Cursor, Value};
use crate::executable::Executable;

/// More values than this in one program are not read; the largest known have some hundred thousand.
const MOST_VALUES: usize = 4 << 20;

/// What a proto was good for.
#[derive(Debug)]
pub(crate) enum Found {
    /// A program with its buffers.
    Executable(Box<Executable>),
    /// A program without them: it was written before the compiler assigned any.
    Unassigned(String),
}

/// Reads a serialized `HloProto`. What is malformed ends the message it is in.
pub(crate) fn read(proto: &[u8]) -> Found {
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
        return Found::Unassigned(name);
    }
    let mut executable = Executable { name, ..Executable::default() };
    let root = module::root_of(&modules);
    let values = assignment::read(&assignments, root, &mut executable);
    module::name_values(&modules, &values, &mut executable);
    Found::Executable(Box::new(executable))
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
