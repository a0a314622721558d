//! JAX's device memory profile: a pprof file, mostly packed, of what lives on the devices at one moment.
//!
//! ```text
//! Profile:   sample_type=1, sample=2, location=4, function=5, string_table=6
//! ValueType: type=1, unit=2
//! Sample:    location_id=1, value=2, label=3
//! Label:     key=1, str=2
//! Location:  id=1, line=4
//! Line:      function_id=1, line=2
//! Function:  id=1, name=2, filename=4
//! ```
//!
//! Texts are places in one table. JAX writes two values a sample, `allocations/count` and `space/bytes`, and two labels:
//! `kind`, which is `buffer` or `executable`, and `device`. Other programs write the same container: what a sample counts
//! tells them apart, and they are refused.

use std::collections::BTreeMap;
use std::io;

use rustc_hash::FxHashMap;

use super::input::Input;
use super::wire::{Cursor, Value};
use crate::event::Framework;
use crate::names::{Name, Names};
use crate::snapshot::{Held, Snapshot, Still, StillPool};
use crate::stack::{Stack, Stacks};
use crate::units::{Bytes, plural};
use crate::warning::Warnings;

/// The maximum file size; real profiles have a few kilobytes.
const LARGEST: usize = 256 << 20;
/// The maximum number of entries in a table, and of calls in all stacks.
const MAX_ENTRIES: usize = 4 << 20;
/// The maximum number of calls in a stack.
const DEEPEST: usize = 512;
/// Names longer than this are cut.
const LONGEST: usize = 1 << 10;
/// The maximum size of all texts, as a multiple of the file size: many places share a text.
const GROWTH: usize = 8;

const BUFFER: &str = "a live buffer, by the place where the program created it";
const EXECUTABLE: &str = "a loaded executable, by the place where the program compiled it";
const OTHER: &str = "JAX reports it neither as a buffer nor as an executable";

/// What a profile was good for.
#[derive(Debug)]
pub(crate) enum ProfileContent {
    /// What devices held.
    Still(Box<Still>),
    /// What a Go program had on its heap.
    GoHeap,
    /// Something else.
    Foreign,
}

pub(crate) fn read(input: &Input) -> io::Result<ProfileContent> {
    let bytes = input.whole(LARGEST)?;
    let profile = Profile::of(&bytes);
    let types: Vec<(&[u8], &[u8])> = profile.types.iter().map(|kind| profile.value_type(kind)).collect();
    let place = |wanted: (&[u8], &[u8])| types.iter().position(|&kind| kind == wanted);
    let counts = place((b"allocations", b"count"));
    match (place((b"space", b"bytes")), counts) {
        (Some(bytes_at), counts_at) => {
            Ok(ProfileContent::Still(Box::new(still(&profile, bytes_at, counts_at, bytes.len()))))
        }
        (None, _) if place((b"inuse_space", b"bytes")).is_some() => Ok(ProfileContent::GoHeap),
        (None, _) => Ok(ProfileContent::Foreign),
    }
}

/// The file's tables.
#[derive(Default)]
struct Profile<'a> {
    types: Vec<&'a [u8]>,
    samples: Vec<&'a [u8]>,
    texts: Vec<&'a [u8]>,
    locations: FxHashMap<u64, &'a [u8]>,
    functions: FxHashMap<u64, &'a [u8]>,
    is_malformed: bool,
}

impl<'a> Profile<'a> {
    fn of(bytes: &'a [u8]) -> Profile<'a> {
        let mut profile = Profile::default();
        let mut cursor = Cursor(bytes);
        loop {
            let (field, message) = match cursor.field() {
                Ok(Some((field, Value::Bytes(message)))) => (field, message),
                Ok(Some(_)) => continue,
                Ok(None) => break,
                Err(_) => {
                    profile.is_malformed = true;
                    break;
                }
            };
            match field {
                1 if profile.types.len() < MAX_ENTRIES => profile.types.push(message),
                2 if profile.samples.len() < MAX_ENTRIES => profile.samples.push(message),
                4 if profile.locations.len() < MAX_ENTRIES => {
                    profile.locations.insert(number(message, 1), message);
                }
                5 if profile.functions.len() < MAX_ENTRIES => {
                    profile.functions.insert(number(message, 1), message);
                }
                6 if profile.texts.len() < MAX_ENTRIES => profile.texts.push(message),
                _ => {}
            }
        }
        profile
    }

    fn text(&self, place: u64) -> &'a [u8] {
        let text = usize::try_from(place).ok().and_then(|place| self.texts.get(place).copied());
        text.map_or(&[], |text| text.get(..LONGEST).unwrap_or(text))
    }

    fn value_type(&self, message: &[u8]) -> (&'a [u8], &'a [u8]) {
        (self.text(number(message, 1)), self.text(number(message, 2)))
    }
}

/// The last number of a field; zero is left out on the wire.
fn number(message: &[u8], wanted: u64) -> u64 {
    let mut found = 0;
    let mut cursor = Cursor(message);
    while let Ok(Some((field, value))) = cursor.field() {
        if let Value::Varint(number) = value
            && field == wanted
        {
            found = number;
        }
    }
    found
}

/// Numbers of a repeated field, packed or one by one.
fn numbers(value: Value<'_>, into: &mut Vec<u64>, most: usize) {
    match value {
        Value::Varint(number) if into.len() < most => into.push(number),
        Value::Bytes(packed) => {
            let mut cursor = Cursor(packed);
            while into.len() < most && !cursor.0.is_empty() {
                let Ok(number) = cursor.varint() else { break };
                into.push(number);
            }
        }
        _ => {}
    }
}

/// Turns places of the file into frames.
struct Frames<'a> {
    profile: &'a Profile<'a>,
    /// The frames of a location, innermost first, each with whether it is the program's own.
    known: FxHashMap<u64, Vec<(Name, Name, bool)>>,
    /// How much more may be written out.
    left: usize,
}

impl Frames<'_> {
    fn of(&mut self, location: u64, names: &mut Names) -> &[(Name, Name, bool)] {
        self.known.entry(location).or_insert_with(|| {
            let mut frames = Vec::new();
            let Some(message) = self.profile.locations.get(&location) else { return frames };
            let mut cursor = Cursor(message);
            while let Ok(Some((field, value))) = cursor.field() {
                let (4, Value::Bytes(line)) = (field, value) else { continue };
                if self.left == 0 || frames.len() >= DEEPEST {
                    break;
                }
                let function = self.profile.functions.get(&number(line, 1)).copied().unwrap_or_default();
                let name = String::from_utf8_lossy(self.profile.text(number(function, 2)));
                // On Windows, Python writes paths with backslashes.
                let file = String::from_utf8_lossy(self.profile.text(number(function, 4))).replace('\\', "/");
                let whole = format!("{file}:{} {name}", number(line, 2));
                let cut = file.rmatch_indices('/').nth(1).map_or(0, |(at, _)| at + 1);
                let short = whole.get(cut..).unwrap_or(&whole);
                self.left = self.left.saturating_sub(whole.len() + short.len());
                frames.push((names.intern(&whole), names.intern(short), is_own(&file)));
            }
            frames
        })
    }
}

/// Whether a file is the program's, not the framework's or Python's.
fn is_own(file: &str) -> bool {
    let is_python = file.starts_with('<') || file.contains("/lib/python3") && !file.contains("-packages/");
    let is_jax = ["-packages/jax/", "-packages/jaxlib/", "/jax/_src/"].iter().any(|part| file.contains(part));
    !is_python && !is_jax
}

fn still(profile: &Profile<'_>, bytes_at: usize, counts_at: Option<usize>, length: usize) -> Still {
    let mut still = Still {
        format: "pprof",
        framework: Some(Framework::Jax),
        names: Names::default(),
        stacks: Stacks::default(),
        pools: Vec::new(),
        warnings: Warnings::default(),
    };
    let mut frames =
        Frames { profile, known: FxHashMap::default(), left: length.saturating_mul(GROWTH).max(1 << 16) };
    let mut pools: BTreeMap<String, Vec<Held>> = BTreeMap::new();
    let (mut executables, mut code, mut broken, mut calls) = (0u64, Bytes::ZERO, 0u64, 0usize);
    for sample in &profile.samples {
        let sample = Sample::of(sample, profile);
        let value = |at: usize| sample.values.get(at).copied().filter(|&value| value <= i64::MAX as u64);
        // The size is -1 if JAX does not know the size of executables.
        if let (b"executable", None, Some(count)) =
            (sample.kind, value(bytes_at), counts_at.map_or(Some(1), value))
        {
            executables = executables.saturating_add(count);
            continue;
        }
        // A profile without counts says nothing of them; a sample is then one.
        let (Some(bytes), Some(count)) = (value(bytes_at), counts_at.map_or(Some(1), value)) else {
            broken += 1;
            continue;
        };
        let mut stack = Stack::EMPTY;
        let (mut innermost, mut own) = (Name::EMPTY, Name::EMPTY);
        for &location in sample.locations.iter().rev() {
            for &(whole, short, is_own) in frames.of(location, &mut still.names).iter().rev() {
                calls += 1;
                if calls > MAX_ENTRIES {
                    break;
                }
                stack = still.stacks.push(stack, whole);
                innermost = short;
                if is_own {
                    own = short;
                }
            }
        }
        let evidence = match sample.kind {
            b"buffer" => BUFFER,
            b"executable" => EXECUTABLE,
            _ => OTHER,
        };
        if sample.kind == b"executable" {
            executables = executables.saturating_add(count);
            code += Bytes(bytes);
            if bytes == 0 {
                continue;
            }
        }
        let pool = match (sample.device, sample.kind) {
            (b"", b"executable") => "executables".to_owned(),
            (b"", _) => "unknown device".to_owned(),
            (device, _) => String::from_utf8_lossy(device).into_owned(),
        };
        pools.entry(pool).or_default().push(Held {
            op: if own.is_empty() { innermost } else { own },
            stack,
            count,
            ..Held::bare(Bytes(bytes), Bytes(bytes), evidence)
        });
    }
    if profile.is_malformed {
        still.warnings.add(
            "malformed",
            "the file is cut off or damaged; only the part before that was read",
            "copy the file again, or save the profile again",
        );
    }
    if broken > 0 {
        let what =
            plural(broken, "sample has no size and was skipped", "samples have no size and were skipped");
        still.warnings.add("broken-samples", what, "");
    }
    if executables > 0 && code == Bytes::ZERO {
        still.warnings.add(
            "executables-without-size",
            format!(
                "{}; JAX does not report how much memory that takes",
                plural(executables, "executable is loaded", "executables are loaded")
            ),
            "",
        );
    }
    still.pools = pools.into_iter().map(|(name, held)| pool(name, held)).collect();
    still.pools.sort_by_key(|pool| std::cmp::Reverse(pool.snapshot.in_use));
    still
}

fn pool(name: String, held: Vec<Held>) -> StillPool {
    let in_use = held.iter().map(|held| held.requested).sum();
    StillPool {
        device: device_of(&name),
        name,
        limit: None,
        lifetime_peak: None,
        fragmentation: None,
        allocs: None,
        snapshot: Snapshot { time: None, in_use, before_recording: Bytes::ZERO, held },
    }
}

/// `cuda:0` is `GPU:0`.
fn device_of(label: &str) -> String {
    match label.split_once(':') {
        Some(("cpu" | "TFRT_CPU", number)) => format!("CPU:{number}"),
        _ => crate::event::device_of(label),
    }
}

struct Sample<'a> {
    locations: Vec<u64>,
    values: Vec<u64>,
    kind: &'a [u8],
    device: &'a [u8],
}

impl<'a> Sample<'a> {
    fn of(message: &[u8], profile: &Profile<'a>) -> Sample<'a> {
        let mut sample = Sample { locations: Vec::new(), values: Vec::new(), kind: b"", device: b"" };
        let mut cursor = Cursor(message);
        while let Ok(Some((field, value))) = cursor.field() {
            match (field, value) {
                (1, value) => numbers(value, &mut sample.locations, DEEPEST),
                (2, value) => numbers(value, &mut sample.values, 16),
                (3, Value::Bytes(label)) => {
                    let text = profile.text(number(label, 2));
                    match profile.text(number(label, 1)) {
                        b"kind" => sample.kind = text,
                        b"device" => sample.device = text,
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        sample
    }
}
