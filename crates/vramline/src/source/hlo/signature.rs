//! What is passed to a program and what it returns: entry parameters with the paths of the arguments, and results in order.
//!
//! ```text
//! HloInstructionProto:   opcode=2, shape=3, metadata=7, parameter_number=9, tuple_index=13, id=35, operand_ids=36
//! ```
//!
//! JAX writes the path of an argument into the metadata of its parameter: `params['l'][0]['q']`. Results have no names, but the entry
//! computation ends in a tuple, whose elements are in the order of the tree that the function returns.

use rustc_hash::FxHashMap;

use super::assignment::Made;
use super::module::{self, messages, number, shape, string, text};
use super::numbers;
use crate::executable::{Allocation, Executable, ProgramParameter, ProgramResult, Purpose};
use crate::source::wire::Cursor;

/// More parameters or results than this are not read.
const MOST: usize = 1 << 16;
/// Instructions between a result and the one that makes its value.
const DEEPEST: usize = 16;

/// Reads the parameters and results of the program. `homes` says in which allocation a value lies.
pub(super) fn read(modules: &[&[u8]], homes: &Homes, executable: &mut Executable) {
    let Some(entry) = module::entry_of(modules) else { return };
    let mut left = modules.iter().map(|module| module.len()).sum::<usize>().saturating_mul(8);
    let number_of = |allocation: &Allocation| match allocation.purpose {
        Purpose::Parameter { number, .. } => Some(number),
        _ => None,
    };
    let places = executable.allocations.iter().zip(0u32..);
    let passed: FxHashMap<i64, u32> = places.filter_map(|(each, at)| Some((number_of(each)?, at))).collect();
    let mut instructions: FxHashMap<i64, &[u8]> = FxHashMap::default();
    for instruction in messages(entry, 2) {
        instructions.entry(number(instruction, 35).unwrap_or(0)).or_insert(instruction);
        if string(instruction, 2) == Some(b"parameter") && executable.parameters.len() < MOST {
            let parameter = parameter(instruction, &passed, executable, &mut left);
            executable.parameters.push(parameter);
        }
    }
    executable.parameters.sort_by_key(|parameter| parameter.number);
    let root = number(entry, 6).and_then(|root| instructions.get(&root).copied());
    let Some(root) = root else { return };
    let operands = if string(root, 2) == Some(b"tuple") { operands(root) } else { Vec::new() };
    let root_id = number(root, 35).unwrap_or(0);
    let elements: Vec<&[u8]> = messages(string(root, 3).unwrap_or_default(), 4).take(MOST).collect();
    let results: Vec<(i64, &[u8])> = match elements.is_empty() {
        true => vec![(root_id, string(root, 3).unwrap_or_default())],
        false => operands.into_iter().zip(elements).collect(),
    };
    for (id, of) in results {
        let (shape, dtype, _) = shape(of, &[], &[], &mut left);
        let (maker, path) = maker(&instructions, id);
        let op = instructions.get(&maker).map(|maker| op_of(maker)).unwrap_or_default();
        executable.results.push(ProgramResult {
            op: executable.names.intern(&op),
            shape: executable.names.intern(&shape),
            dtype,
            allocation: homes.get(&(maker, path)).copied(),
        });
    }
}

/// The allocation of a value: by the instruction that makes it and the place in its result.
pub(super) type Homes = FxHashMap<(i64, Vec<i64>), u32>;

/// Notes where a value lies that stays when the program ends.
pub(super) fn note(homes: &mut Homes, made: &Made<'_>, allocation: usize) {
    if let Ok(allocation) = u32::try_from(allocation) {
        homes.entry((made.instruction, made.path())).or_insert(allocation);
    }
}

fn op_of(instruction: &[u8]) -> String {
    string(instruction, 7).and_then(|metadata| string(metadata, 2)).map(text).unwrap_or_default()
}

fn parameter(
    instruction: &[u8],
    passed: &FxHashMap<i64, u32>,
    executable: &mut Executable,
    left: &mut usize,
) -> ProgramParameter {
    let number = number(instruction, 9).unwrap_or(0);
    let (shape, dtype, _) = shape(string(instruction, 3).unwrap_or_default(), &[], &[], left);
    ProgramParameter {
        number,
        path: executable.names.intern(&op_of(instruction)),
        shape: executable.names.intern(&shape),
        dtype,
        allocation: passed.get(&number).copied(),
    }
}

fn operands(instruction: &[u8]) -> Vec<i64> {
    let mut found = Vec::new();
    let mut cursor = Cursor(instruction);
    while let Ok(Some((field, value))) = cursor.field() {
        if field == 36 {
            numbers(value, |id| found.extend((found.len() < MOST).then_some(id)));
        }
    }
    found
}

/// The instruction that makes a value, and the place in its result: `get-tuple-element` and `bitcast` only pass it on.
fn maker(instructions: &FxHashMap<i64, &[u8]>, id: i64) -> (i64, Vec<i64>) {
    let (mut id, mut path) = (id, Vec::new());
    for _ in 0..DEEPEST {
        let Some(&instruction) = instructions.get(&id) else { break };
        match string(instruction, 2) {
            Some(b"get-tuple-element") => path.insert(0, number(instruction, 13).unwrap_or(0)),
            Some(b"bitcast") => {}
            _ => break,
        }
        let Some(&from) = operands(instruction).first() else { break };
        id = from;
    }
    (id, path)
}
