//! The compiled programs in a trace: `/host:metadata` keeps XLA's proto of each as a stat of its event metadata.
//!
//! The first pass only notes where the entries are. Protos are large and mostly code, so they are read when the trace has
//! memory events, and of JAX's only those of functions that the trace calls. An entry is named `jit_step(13260)`: the module and
//! the number of the program.

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashSet;

use super::index::{Index, Plane};
use super::walk::{self, Head, Next};
use crate::event::History;
use crate::executable::{Executable, function_of};
use crate::source::hlo;
use crate::source::input::{Input, SMALL_PIECE, Stream};
use crate::units::plural;
use crate::worker;

/// A larger proto is not read.
const LARGEST: u64 = 256 << 20;
/// Protos in memory at the same time.
const MOST_WORKERS: usize = 4;
/// Less than this is not worth a second worker.
const WORTH_A_WORKER: u64 = 2 << 20;

/// Reads the programs into the history.
pub(crate) fn read(input: &Input, index: &Index, history: &mut History) -> io::Result<()> {
    if history.events.is_empty() || index.planes.iter().all(|plane| plane.programs.is_empty()) {
        return Ok(());
    }
    let called: FxHashSet<String> = history.names.iter().filter_map(|(_, text)| function_of(text)).collect();
    let mut protos = Vec::new();
    let mut stream = input.stream(SMALL_PIECE)?;
    let mut skipped = 0u64;
    for plane in &index.planes {
        for entry in &plane.programs {
            stream.go_to(entry.start)?;
            let Some((name, proto)) = find(&mut stream, entry, plane, history)? else { continue };
            let length = proto.end.saturating_sub(proto.start);
            // TensorFlow's modules have the names of its own functions, and what is there did run.
            let is_called = function_of(module_of(&name)).is_none_or(|function| called.contains(&function));
            if is_called && length <= LARGEST {
                protos.push(proto);
            } else {
                skipped += u64::from(is_called);
            }
        }
    }
    protos.sort_by_key(|proto| proto.start);
    let mut executables = decode(input, &protos)?;
    for executable in &mut executables {
        executable.move_names(&mut history.names, &mut history.stacks);
        history.names.intern(&executable.name);
    }
    history.executables = executables;
    if skipped > 0 {
        history.warnings.add(
            "large-programs",
            format!(
                "{} larger than {} MiB",
                plural(
                    skipped,
                    "compiled program was not read because it is",
                    "compiled programs were not read because they are"
                ),
                LARGEST >> 20
            ),
            "",
        );
    }
    Ok(())
}

/// `jit_step(13260)` -> `jit_step`
fn module_of(entry: &str) -> &str {
    entry.rsplit_once('(').map_or(entry, |(module, _)| module)
}

/// The name of an entry and where its proto is.
fn find(
    stream: &mut Stream,
    entry: &Range<u64>,
    plane: &Plane,
    history: &History,
) -> io::Result<Option<(String, Range<u64>)>> {
    let (mut name, mut proto) = (String::new(), None);
    // Entry, metadata, stat: each in the one before.
    let mut ends = vec![entry.end];
    let mut is_proto = false;
    while let Some(&end) = ends.last() {
        match walk::next(stream, end)? {
            Next::Field(2, Head::Length(length)) if ends.len() == 1 => {
                ends.push(stream.position().saturating_add(length));
            }
            Next::Field(2, Head::Length(length)) if ends.len() == 2 => {
                name = String::from_utf8_lossy(&walk::text(stream, length)?).into_owned();
            }
            Next::Field(5, Head::Length(length)) if ends.len() == 2 => {
                is_proto = false;
                ends.push(stream.position().saturating_add(length));
            }
            Next::Field(1, Head::Varint(id)) if ends.len() == 3 => {
                is_proto = plane.reference_text(id, &history.names).eq_ignore_ascii_case("hlo proto");
            }
            Next::Field(field, Head::Length(length)) => {
                if field == 6 && ends.len() == 3 && is_proto {
                    proto = Some(stream.position()..stream.position().saturating_add(length));
                }
                stream.skip(length)?;
            }
            Next::Field(..) => {}
            Next::End => {
                ends.pop();
            }
            Next::Cut | Next::Malformed => break,
        }
    }
    Ok(proto.map(|proto| (name, proto)))
}

/// Decodes protos side by side. Their order is that of the file.
fn decode(input: &Input, protos: &[Range<u64>]) -> io::Result<Vec<Executable>> {
    let total = protos.iter().map(|proto| proto.end - proto.start).fold(0, u64::saturating_add);
    let useful = usize::try_from(total / WORTH_A_WORKER).unwrap_or(usize::MAX).saturating_add(1);
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // A packed file is read forward only, and by one.
    let workers = if input.is_seekable() { cores.min(MOST_WORKERS).min(useful) } else { 1 };
    let next = AtomicUsize::new(0);
    let found: Mutex<Vec<(usize, Executable)>> = Mutex::default();
    let work = || -> io::Result<()> {
        let mut stream = input.stream(SMALL_PIECE)?;
        while let number = next.fetch_add(1, Ordering::Relaxed)
            && let Some(proto) = protos.get(number)
        {
            stream.go_to(proto.start)?;
            let length = usize::try_from(proto.end - proto.start).unwrap_or(usize::MAX);
            stream.ensure(length)?;
            let window = stream.window();
            if let Some(executable) = hlo::read(window.get(..length).unwrap_or(window)) {
                found.lock().unwrap_or_else(PoisonError::into_inner).push((number, executable));
            }
        }
        Ok(())
    };
    std::thread::scope(|threads| {
        let others: Vec<_> = (1..workers).map(|_| threads.spawn(work)).collect();
        let mine = work();
        others.into_iter().fold(mine, |so_far, other| so_far.and(worker::joined(other)))
    })?;
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.sort_by_key(|(number, _)| *number);
    Ok(found.into_iter().map(|(_, executable)| executable).collect())
}
