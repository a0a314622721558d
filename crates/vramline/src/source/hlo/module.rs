//! The names of values: instructions, shapes, places in the program.
//!
//! ```text
//! HloModuleProto:       name=1, entry_computation_name=2, computations=3, entry_computation_id=6, stack_frame_index=17
//! HloComputationProto:  name=1, instructions=2, id=5, root_id=6
//! HloInstructionProto:  name=1, opcode=2, shape=3, metadata=7, id=35
//! ShapeProto:           element_type=2, dimensions=3, tuple_shapes=4
//! OpMetadata:           op_name=2, source_file=3, source_line=4, stack_frame_id=15
//! StackFrameIndexProto: file_names=1, function_names=2, file_locations=3, stack_frames=4
//! FileLocation:         file_name_id=1, function_name_id=2, line=3
//! StackFrame:           file_location_id=1, parent_frame_id=2
//! ```
//!
//! Only instructions that make a wanted value are decoded; the rest is stepped over. Newer files keep places in the
//! program in one table of frames, with positions that count from one.

use std::fmt::Write as _;

use rustc_hash::FxHashMap;

use super::assignment::Made;
use super::numbers;
use crate::dtype::Dtype;
use crate::executable::{Buffer, Executable};
use crate::names::{Name, Names};
use crate::source::wire::{Cursor, Value};
use crate::stack::{Stack, Stacks};

/// The number of dimensions of a shape that are kept.
const MOST_DIMENSIONS: usize = 64;
/// Calls of a stack, innermost first.
const DEEPEST: usize = 64;
/// Names longer than this are cut; no framework writes one.
const LONGEST: usize = 4 << 10;
/// Texts that many instructions share are written out up to so many times the file's size in all.
const GROWTH: usize = 8;

pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..LONGEST).unwrap_or(bytes)).into_owned()
}

/// The first string of a field.
pub(super) fn string(message: &[u8], wanted: u64) -> Option<&[u8]> {
    let mut cursor = Cursor(message);
    while let Ok(Some((field, value))) = cursor.field() {
        if let Value::Bytes(bytes) = value
            && field == wanted
        {
            return Some(bytes);
        }
    }
    None
}

pub(super) fn number(message: &[u8], wanted: u64) -> Option<i64> {
    let mut cursor = Cursor(message);
    while let Ok(Some((field, value))) = cursor.field() {
        if let Value::Varint(number) = value
            && field == wanted
        {
            return Some(number.cast_signed());
        }
    }
    None
}

/// The messages of a repeated field.
pub(super) fn messages(message: &[u8], wanted: u64) -> impl Iterator<Item = &[u8]> {
    let mut cursor = Cursor(message);
    std::iter::from_fn(move || {
        while let Ok(Some((field, value))) = cursor.field() {
            if let Value::Bytes(bytes) = value
                && field == wanted
            {
                return Some(bytes);
            }
        }
        None
    })
}

pub(super) fn name_of(modules: &[&[u8]]) -> String {
    modules.iter().find_map(|module| string(module, 1)).map(text).unwrap_or_default()
}

/// The computation that the program begins with.
pub(super) fn entry_of<'a>(modules: &[&'a [u8]]) -> Option<&'a [u8]> {
    let entry = modules.iter().find_map(|module| number(module, 6));
    let name = modules.iter().find_map(|module| string(module, 2));
    modules.iter().flat_map(|module| messages(module, 3)).find(|computation| match entry {
        Some(entry) => number(computation, 5) == Some(entry),
        None => string(computation, 1) == name,
    })
}

/// The instruction whose result is the program's.
pub(super) fn root_of(modules: &[&[u8]]) -> Option<i64> {
    number(entry_of(modules)?, 6)
}

/// Looks up the instructions that make `values` and fills in the executable's buffers.
pub(super) fn name_values(modules: &[&[u8]], values: &[Made<'_>], executable: &mut Executable) {
    let (names, stacks) = (&mut executable.names, &mut executable.stacks);
    let nothing = Buffer {
        instruction: Name::EMPTY,
        op: Name::EMPTY,
        shape: Name::EMPTY,
        dtype: Dtype::Unknown,
        source: Name::EMPTY,
        stack: Stack::EMPTY,
        is_scratch: false,
    };
    let mut buffers = vec![nothing; values.len()];
    let mut by_id: FxHashMap<i64, Vec<usize>> = FxHashMap::default();
    let mut by_name: FxHashMap<&[u8], Vec<usize>> = FxHashMap::default();
    for (at, made) in values.iter().enumerate() {
        if made.instruction == 0 && !made.name.is_empty() {
            by_name.entry(made.name).or_default().push(at);
        } else {
            by_id.entry(made.instruction).or_default().push(at);
        }
    }
    let mut frames = Frames::new(modules);
    let computations = modules.iter().flat_map(|module| messages(module, 3));
    for instruction in computations.flat_map(|computation| messages(computation, 2)) {
        if by_id.is_empty() && by_name.is_empty() {
            break;
        }
        // The first of several with the same id is taken.
        let found = by_id.remove(&number(instruction, 35).unwrap_or(0)).or_else(|| {
            let name = (!by_name.is_empty()).then(|| string(instruction, 1))??;
            by_name.remove(name)
        });
        let Some(found) = found else { continue };
        let told = Instruction::read(instruction);
        let place = frames.place(&told, names, stacks);
        let shared = Buffer {
            instruction: names.intern(&text(told.name)),
            op: names.intern(&text(told.op)),
            source: place.0,
            stack: place.1,
            ..nothing
        };
        // A tuple of many is gone through once, not for each of them.
        let elements: Vec<&[u8]> = messages(told.shape, 4).collect();
        for at in found {
            let (Some(buffer), Some(made)) = (buffers.get_mut(at), values.get(at)) else { continue };
            let path = made.path();
            let (shape, dtype, is_bytes) = shape(told.shape, &elements, &path, &mut frames.left);
            // Library calls give their results first and their working space, plain bytes, last.
            let is_last = path.first().is_some_and(|&at| at > 0);
            let is_scratch = told.opcode == b"custom-call" && is_last && is_bytes;
            *buffer = Buffer { shape: names.intern(&shape), dtype, is_scratch, ..shared };
        }
    }
    executable.buffers = buffers;
}

#[derive(Default)]
struct Instruction<'a> {
    name: &'a [u8],
    opcode: &'a [u8],
    shape: &'a [u8],
    op: &'a [u8],
    file: &'a [u8],
    line: i64,
    frame: i64,
}

impl<'a> Instruction<'a> {
    fn read(message: &'a [u8]) -> Instruction<'a> {
        let mut told = Instruction::default();
        let mut cursor = Cursor(message);
        while let Ok(Some((field, value))) = cursor.field() {
            match (field, value) {
                (1, Value::Bytes(name)) => told.name = name,
                (2, Value::Bytes(opcode)) => told.opcode = opcode,
                (3, Value::Bytes(shape)) => told.shape = shape,
                (7, Value::Bytes(metadata)) => told.read_metadata(metadata),
                _ => {}
            }
        }
        told
    }

    fn read_metadata(&mut self, metadata: &'a [u8]) {
        let mut cursor = Cursor(metadata);
        while let Ok(Some((field, value))) = cursor.field() {
            match (field, value) {
                (2, Value::Bytes(op)) => self.op = op,
                (3, Value::Bytes(file)) => self.file = file,
                (4, Value::Varint(line)) => self.line = line.cast_signed(),
                (15, Value::Varint(frame)) => self.frame = frame.cast_signed(),
                _ => {}
            }
        }
    }
}

/// The shape at a path into a result, as `[4,16]`, its element type, and whether it is a row of plain bytes.
pub(super) fn shape<'a>(
    mut shape: &'a [u8],
    elements: &[&'a [u8]],
    path: &[i64],
    left: &mut usize,
) -> (String, Dtype, bool) {
    for (depth, &step) in path.iter().enumerate() {
        // A tuple in a tuple is rare, and one that is looked through a million times is made to be.
        *left = left.saturating_sub(if depth > 0 { shape.len() } else { 0 });
        let inner = usize::try_from(step).ok().filter(|_| *left > 0).and_then(|step| {
            if depth == 0 { elements.get(step).copied() } else { messages(shape, 4).nth(step) }
        });
        let Some(inner) = inner else { return (String::new(), Dtype::Unknown, false) };
        shape = inner;
    }
    let (mut kind, mut dimensions) = (0, Vec::new());
    let mut cursor = Cursor(shape);
    while let Ok(Some((field, value))) = cursor.field() {
        match (field, value) {
            (2, Value::Varint(number)) => kind = number,
            (3, value) => numbers(value, |length| {
                if dimensions.len() < MOST_DIMENSIONS {
                    dimensions.push(length);
                }
            }),
            _ => {}
        }
    }
    // A tuple is a table of places.
    if kind == 13 {
        return ("tuple".to_owned(), Dtype::Unknown, false);
    }
    let mut told = String::from("[");
    for (at, length) in dimensions.iter().enumerate() {
        let comma = if at > 0 { "," } else { "" };
        let _ = write!(told, "{comma}{length}");
    }
    told.push(']');
    let dtype = dtype_of(kind);
    let is_bytes = dimensions.len() == 1 && matches!(dtype, Dtype::I8 | Dtype::U8);
    (told, dtype, is_bytes)
}

/// XLA's number of an element type.
fn dtype_of(number: u64) -> Dtype {
    match number {
        1 => Dtype::Bool,
        2 => Dtype::I8,
        3 => Dtype::I16,
        4 => Dtype::I32,
        5 => Dtype::I64,
        6 => Dtype::U8,
        7 => Dtype::U16,
        8 => Dtype::U32,
        9 => Dtype::U64,
        10 => Dtype::F16,
        11 => Dtype::F32,
        12 => Dtype::F64,
        15 => Dtype::C64,
        16 => Dtype::Bf16,
        18 => Dtype::C128,
        19 | 24 => Dtype::F8E5M2,
        20 | 23 | 25 | 28 => Dtype::F8E4M3,
        21 => Dtype::I4,
        22 => Dtype::U4,
        _ => Dtype::Unknown,
    }
}

/// The table of places in the program.
struct Frames<'a> {
    files: Vec<&'a [u8]>,
    functions: Vec<&'a [u8]>,
    locations: Vec<&'a [u8]>,
    frames: Vec<&'a [u8]>,
    /// Frames that were asked for before.
    known: FxHashMap<i64, (Name, Stack)>,
    /// How much more may be written out.
    left: usize,
}

/// A position that counts from one.
fn at<'a>(table: &[&'a [u8]], position: Option<i64>) -> Option<&'a [u8]> {
    table.get(usize::try_from(position?.checked_sub(1)?).ok()?).copied()
}

impl<'a> Frames<'a> {
    fn new(modules: &[&'a [u8]]) -> Frames<'a> {
        let all = |field: u64| {
            let tables = modules.iter().flat_map(|module| messages(module, 17));
            tables.flat_map(|table| messages(table, field)).take(super::MOST_VALUES).collect()
        };
        Frames {
            files: all(1),
            functions: all(2),
            locations: all(3),
            frames: all(4),
            known: FxHashMap::default(),
            left: modules.iter().map(|module| module.len()).sum::<usize>().saturating_mul(GROWTH),
        }
    }

    /// Where in the program an instruction comes from, and through which calls.
    fn place(&mut self, told: &Instruction<'_>, names: &mut Names, stacks: &mut Stacks) -> (Name, Stack) {
        if !told.file.is_empty() {
            let place = names.intern(&format!("{}:{}", text(told.file), told.line));
            return (place, Stack::EMPTY);
        }
        if told.frame == 0 || self.left == 0 {
            return (Name::EMPTY, Stack::EMPTY);
        }
        if let Some(&known) = self.known.get(&told.frame) {
            return known;
        }
        let mut place = Name::EMPTY;
        let mut calls = Vec::new();
        let mut frame = told.frame;
        // Frames may go round in circles in a file that lies.
        for depth in 0..DEEPEST {
            let Some(message) = at(&self.frames, Some(frame)) else { break };
            let location = at(&self.locations, number(message, 1)).unwrap_or_default();
            let file = at(&self.files, number(location, 1)).map(text).unwrap_or_default();
            let function = at(&self.functions, number(location, 2)).map(text).unwrap_or_default();
            let line = number(location, 3).unwrap_or(0);
            let here = format!("{file}:{line}");
            let call = if function.is_empty() { here.clone() } else { format!("{here} {function}") };
            self.left = self.left.saturating_sub(here.len() + call.len());
            if depth == 0 {
                place = names.intern(&here);
            }
            calls.push(names.intern(&call));
            frame = number(message, 2).unwrap_or(0);
        }
        let stack = calls.into_iter().rev().fold(Stack::EMPTY, |caller, call| stacks.push(caller, call));
        self.known.insert(told.frame, (place, stack));
        (place, stack)
    }
}
