//! Rows as the cells of a stream and back. Only recordings need it; the rows themselves are also what others work with.

use std::time::SystemTime;

use rustix::time::ClockId;

use super::rows::{
    Counters, DriverRow, Inventory, LayerPath, Mark, Moment, OwnerKind, OwnerRow, RecordedMarkKind, Sample,
    Subject, TraceState, Variable, WindowReason,
};
use super::schema::{DRIVER, INVENTORY, MARKS, OPENED_FOR, OWNERS, PATH, SAMPLES, TRACE_STATE, WINDOW};
use super::stream::{Cell, Table};
use crate::event::{How, Phase};
use crate::snapshot::Role;
use crate::units::Bytes;

impl Moment {
    /// Now.
    #[must_use]
    pub fn now() -> Moment {
        let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Moment {
            monotonic: Moment::monotonic_now(),
            wall: i64::try_from(wall.as_nanos()).unwrap_or(i64::MAX),
        }
    }

    /// The current time of the monotonic clock.
    #[must_use]
    pub fn monotonic_now() -> i64 {
        let time = rustix::time::clock_gettime(ClockId::Monotonic);
        time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
    }
}

impl Mark {
    /// One row for each device, and one where there is none.
    pub(crate) fn rows(&self, number: i64) -> Vec<[Cell<'_>; MARKS.columns.len()]> {
        let row = |device, current, peak, since| {
            [
                Cell::Int(Some(number)),
                Cell::Text(Some(self.kind.word())),
                Cell::Text(self.label.as_deref()),
                Cell::Text(self.phase.map(Phase::word)),
                Cell::Text(self.how.map(How::word)),
                Cell::Int(self.step),
                Cell::Int(self.batches),
                Cell::Int(self.epoch),
                Cell::Int(self.begin),
                Cell::Int(Some(self.time.monotonic)),
                Cell::Int(Some(self.time.wall)),
                Cell::Text(device),
                Cell::Int(current),
                Cell::Int(peak),
                Cell::Int(since),
                Cell::Text(self.trace_state.map(TraceState::word)),
                Cell::Int(self.window),
                Cell::Text(self.opened_for.map(WindowReason::word)),
                Cell::Text(self.path.as_deref()),
            ]
        };
        if self.counters.is_empty() {
            return vec![row(None, None, None, None)];
        }
        let rows = self.counters.iter();
        rows.map(|read| row(Some(read.device.as_str()), read.current, read.peak, read.peak_since)).collect()
    }

    /// The marks of a stream, in the order they were written. Rows that say no time are left out.
    pub(crate) fn all(table: &Table) -> Vec<Mark> {
        let ints = |name| table.ints(name).into_iter();
        let texts = |name| table.texts(name).into_iter();
        let mut numbers = ints("mark");
        let (mut steps, mut batches, mut epochs) = (ints("step"), ints("batches"), ints("epoch"));
        let (mut begins, mut times, mut walls) = (ints("begin_ns"), ints("time_ns"), ints("wall_ns"));
        let (mut kinds, mut labels) = (texts("kind"), texts("label"));
        let (mut phases, mut hows) = (texts("phase"), texts("how"));
        let (mut states, has_states) = (texts(TRACE_STATE), table.has(TRACE_STATE));
        let (mut windows, mut reasons, mut paths) = (ints(WINDOW), texts(OPENED_FOR), texts(PATH));
        let mut counters = Counters::all(table).into_iter();
        let mut marks: Vec<Mark> = Vec::new();
        let mut last = None;
        for _ in 0..table.len() {
            let number = numbers.next().flatten();
            let (monotonic, wall) = (times.next().flatten(), walls.next().flatten());
            let kind = RecordedMarkKind::of_word(kinds.next().flatten().unwrap_or_default());
            let (label, state) = (labels.next().flatten(), states.next().flatten());
            let trace_state = match kind {
                RecordedMarkKind::Trace if has_states => state.and_then(TraceState::of_word),
                RecordedMarkKind::Trace => label.and_then(state_of_label),
                _ => None,
            };
            let mark = Mark {
                kind,
                label: label.map(str::to_owned),
                phase: phases.next().flatten().map(|word| Phase::of_word(word).unwrap_or(Phase::Other)),
                how: hows.next().flatten().and_then(How::of_word),
                step: steps.next().flatten(),
                batches: batches.next().flatten(),
                epoch: epochs.next().flatten(),
                begin: begins.next().flatten(),
                time: Moment { monotonic: monotonic.unwrap_or_default(), wall: wall.unwrap_or_default() },
                counters: Vec::new(),
                trace_state,
                window: windows.next().flatten(),
                opened_for: reasons.next().flatten().and_then(WindowReason::of_word),
                path: paths.next().flatten().map(str::to_owned),
            };
            let read = counters.next().flatten();
            if monotonic.is_none() {
                continue;
            }
            if number.is_none() || number != last {
                marks.push(mark);
                last = number;
            }
            if let Some(mark) = marks.last_mut() {
                mark.counters.extend(read);
            }
        }
        marks
    }
}

/// The state that the label of a mark of kind `trace` tells, for recordings of schema 1.0, which have no column for it. Their
/// labels are text for people; nothing else may take them apart.
fn state_of_label(label: &str) -> Option<TraceState> {
    let begin = |begin: &str| label.starts_with(begin);
    match label {
        _ if begin("stops") => Some(TraceState::Stopped),
        _ if begin("written") => Some(TraceState::Written),
        _ if begin("lost") => Some(TraceState::Lost),
        _ if label.contains(": not traced") => Some(TraceState::Failed),
        _ if label.ends_with(": begins") => Some(TraceState::Begun),
        _ => None,
    }
}

impl Counters {
    /// The counters of each row; `None` where the row is about no device.
    fn all(table: &Table) -> Vec<Option<Counters>> {
        let ints = |name| table.ints(name).into_iter();
        let (mut currents, mut peaks, mut since) =
            (ints("current_bytes"), ints("peak_bytes"), ints("peak_since_ns"));
        let (mut pools, mut limits) = (ints("pool_bytes"), ints("limit_bytes"));
        let mut reasons = table.texts("reason").into_iter();
        let row = |device: Option<&str>| {
            let rest = Counters {
                device: String::new(),
                current: currents.next().flatten(),
                peak: peaks.next().flatten(),
                peak_since: since.next().flatten(),
                pool: pools.next().flatten(),
                limit: limits.next().flatten(),
                reason: reasons.next().flatten().map(str::to_owned),
            };
            device.map(|device| Counters { device: device.to_owned(), ..rest })
        };
        table.texts("device").into_iter().map(row).collect()
    }
}

impl Sample {
    pub(crate) fn row(&self) -> [Cell<'_>; SAMPLES.columns.len()] {
        let read = self.counters.as_ref();
        [
            Cell::Int(Some(self.time.monotonic)),
            Cell::Int(Some(self.time.wall)),
            Cell::Int(self.resident),
            Cell::Text(read.map(|read| read.device.as_str())),
            Cell::Int(read.and_then(|read| read.current)),
            Cell::Int(read.and_then(|read| read.peak)),
            Cell::Int(read.and_then(|read| read.pool)),
            Cell::Int(read.and_then(|read| read.limit)),
            Cell::Text(read.and_then(|read| read.reason.as_deref())),
        ]
    }

    pub(crate) fn all(table: &Table) -> Vec<Sample> {
        let ints = |name| table.ints(name).into_iter();
        let (mut walls, mut residents) = (ints("wall_ns"), ints("resident_bytes"));
        let mut counters = Counters::all(table).into_iter();
        let row = |monotonic: Option<i64>| {
            let wall = walls.next().flatten();
            let sample = Sample {
                time: Moment { monotonic: monotonic.unwrap_or_default(), wall: wall.unwrap_or_default() },
                resident: residents.next().flatten(),
                counters: counters.next().flatten(),
            };
            monotonic.map(|_| sample)
        };
        ints("time_ns").filter_map(row).collect()
    }
}

impl Inventory {
    pub(crate) fn rows(&self, number: i64) -> Vec<[Cell<'_>; INVENTORY.columns.len()]> {
        let rows = self.variables.iter();
        rows.map(|variable| {
            [
                Cell::Int(Some(number)),
                Cell::Int(Some(self.time.monotonic)),
                Cell::Int(Some(self.time.wall)),
                Cell::Text(variable.owner.as_deref()),
                Cell::Text(Some(variable.name.as_str())),
                Cell::Text(Some(variable.role.word())),
                Cell::Text(variable.shape.as_deref()),
                Cell::Text(variable.dtype.as_deref()),
                Cell::Int(i64::try_from(variable.bytes.0).ok()),
                Cell::Text(variable.device.as_deref()),
                // An address may use all 64 bits: the sign carries the last one.
                Cell::Int(variable.address.map(u64::cast_signed)),
                Cell::Text(variable.layer.model.as_deref()),
                Cell::Text(variable.layer.layer.as_deref()),
                Cell::Text(variable.source.as_deref()),
                Cell::Int(variable.number),
            ]
        })
        .collect()
    }

    pub(crate) fn all(table: &Table) -> Vec<Inventory> {
        let ints = |name| table.ints(name).into_iter();
        let texts = |name| table.texts(name).into_iter();
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let (mut times, mut walls, mut bytes) = (ints("time_ns"), ints("wall_ns"), ints("bytes"));
        let (mut owners, mut names, mut roles) = (texts("owner"), texts("name"), texts("role"));
        let (mut shapes, mut dtypes, mut devices) = (texts("shape"), texts("dtype"), texts("device"));
        let (mut addresses, mut numbers) = (ints("address"), ints("variable"));
        let (mut models, mut layers, mut sources) = (texts("model"), texts("layer"), texts("source"));
        let mut all: Vec<Inventory> = Vec::new();
        let mut last = None;
        for number in ints("taken") {
            let (monotonic, wall) = (times.next().flatten(), walls.next().flatten());
            let size = bytes.next().flatten();
            let variable = Variable {
                owner: owned(owners.next().flatten()),
                name: owned(names.next().flatten()).unwrap_or_default(),
                role: roles.next().flatten().and_then(Role::of_word).unwrap_or_default(),
                shape: owned(shapes.next().flatten()),
                dtype: owned(dtypes.next().flatten()),
                bytes: Bytes(size.and_then(|size| u64::try_from(size).ok()).unwrap_or_default()),
                device: owned(devices.next().flatten()),
                address: addresses.next().flatten().map(i64::cast_unsigned),
                layer: LayerPath {
                    model: owned(models.next().flatten()),
                    layer: owned(layers.next().flatten()),
                },
                source: owned(sources.next().flatten()),
                number: numbers.next().flatten(),
            };
            let (Some(monotonic), Some(_)) = (monotonic, size) else { continue };
            if number.is_none() || number != last {
                let time = Moment { monotonic, wall: wall.unwrap_or_default() };
                all.push(Inventory { time, variables: Vec::new() });
                last = number;
            }
            if let Some(inventory) = all.last_mut() {
                inventory.variables.push(variable);
            }
        }
        all
    }
}

impl OwnerRow {
    pub(crate) fn row(&self) -> [Cell<'_>; OWNERS.columns.len()] {
        [
            Cell::Int(Some(self.time.monotonic)),
            Cell::Int(Some(self.time.wall)),
            Cell::Text(Some(self.kind.word())),
            Cell::Text(Some(self.name.as_str()).filter(|name| !name.is_empty())),
            Cell::Text(self.layer.model.as_deref()),
            Cell::Text(self.layer.layer.as_deref()),
            Cell::Text(self.variable.as_deref()),
            Cell::Text(self.variable.as_ref().map(|_| self.role.word())),
            Cell::Text(self.source.as_deref()),
            Cell::Int(self.span.map(|(begin, _)| begin)),
            Cell::Int(self.span.map(|(_, end)| end)),
            Cell::Int(self.address.map(u64::cast_signed)),
            Cell::Int(self.function),
            Cell::Int(self.variable_number),
        ]
    }

    pub(crate) fn all(table: &Table) -> Vec<OwnerRow> {
        let ints = |name| table.ints(name).into_iter();
        let texts = |name| table.texts(name).into_iter();
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let (mut walls, mut begins, mut ends) = (ints("wall_ns"), ints("begin_ns"), ints("end_ns"));
        let (mut kinds, mut names, mut roles) = (texts("kind"), texts("name"), texts("role"));
        let (mut models, mut layers) = (texts("model"), texts("layer"));
        let (mut variables, mut sources) = (texts("variable"), texts("source"));
        let (mut addresses, mut functions) = (ints("address"), ints("function"));
        let mut numbers = ints("variable_number");
        let row = |monotonic: Option<i64>| {
            let kind = kinds.next().flatten().and_then(OwnerKind::of_word);
            let row = OwnerRow {
                time: Moment {
                    monotonic: monotonic.unwrap_or_default(),
                    wall: walls.next().flatten().unwrap_or_default(),
                },
                kind: kind.unwrap_or_default(),
                name: owned(names.next().flatten()).unwrap_or_default(),
                layer: LayerPath {
                    model: owned(models.next().flatten()),
                    layer: owned(layers.next().flatten()),
                },
                variable: owned(variables.next().flatten()),
                role: roles.next().flatten().and_then(Role::of_word).unwrap_or_default(),
                source: owned(sources.next().flatten()),
                span: begins.next().flatten().zip(ends.next().flatten()),
                address: addresses.next().flatten().map(i64::cast_unsigned),
                function: functions.next().flatten(),
                variable_number: numbers.next().flatten(),
            };
            // A kind that a later Vramline writes is not for this one.
            (monotonic.is_some() && kind.is_some()).then_some(row)
        };
        ints("time_ns").filter_map(row).collect()
    }
}

impl Subject {
    fn word(self) -> &'static str {
        match self {
            Subject::Device => "device",
            Subject::Process => "process",
            Subject::Gone => "gone",
        }
    }

    fn of_word(word: &str) -> Option<Subject> {
        [Subject::Device, Subject::Process, Subject::Gone].into_iter().find(|subject| subject.word() == word)
    }
}

impl DriverRow {
    pub(crate) fn row(&self) -> [Cell<'_>; DRIVER.columns.len()] {
        let bytes = |bytes: Option<Bytes>| Cell::Int(bytes.and_then(|bytes| i64::try_from(bytes.0).ok()));
        [
            Cell::Int(Some(self.time.monotonic)),
            Cell::Int(Some(self.time.wall)),
            Cell::Text(Some(self.subject.word())),
            Cell::Text(Some(self.device.as_str())),
            Cell::Int(self.pid.map(i64::from)),
            Cell::Int(self.start.and_then(|start| i64::try_from(start).ok())),
            Cell::Text(self.command.as_deref()),
            Cell::Int(self.is_job.map(i64::from)),
            Cell::Text(self.work.as_deref()),
            bytes(self.total),
            bytes(self.reserved),
            bytes(self.free),
            bytes(self.used),
            bytes(self.peak),
            Cell::Text(self.reason.as_deref()),
        ]
    }

    /// The rows of a stream, in the order they were written. Rows without a time, or of a kind that is not known, are left out.
    pub(crate) fn all(table: &Table) -> Vec<DriverRow> {
        let ints = |name| table.ints(name).into_iter();
        let texts = |name| table.texts(name).into_iter();
        let owned = |text: Option<&str>| text.map(str::to_owned);
        let bytes = |found: Option<Option<i64>>| {
            found.flatten().and_then(|found| u64::try_from(found).ok()).map(Bytes)
        };
        let (mut walls, mut pids, mut starts, mut jobs) =
            (ints("wall_ns"), ints("pid"), ints("start"), ints("job"));
        let (mut kinds, mut devices) = (texts("kind"), texts("device"));
        let (mut commands, mut works, mut reasons) = (texts("command"), texts("work"), texts("reason"));
        let (mut totals, mut reserved, mut free) =
            (ints("total_bytes"), ints("reserved_bytes"), ints("free_bytes"));
        let (mut used, mut peaks) = (ints("used_bytes"), ints("peak_bytes"));
        let row = |monotonic: Option<i64>| {
            let wall = walls.next().flatten().unwrap_or_default();
            let subject = kinds.next().flatten().and_then(Subject::of_word);
            let row = DriverRow {
                time: Moment { monotonic: monotonic.unwrap_or_default(), wall },
                subject: subject.unwrap_or_default(),
                device: owned(devices.next().flatten()).unwrap_or_default(),
                pid: pids.next().flatten().and_then(|pid| u32::try_from(pid).ok()),
                start: starts.next().flatten().and_then(|start| u64::try_from(start).ok()),
                command: owned(commands.next().flatten()),
                is_job: jobs.next().flatten().map(|job| job != 0),
                work: owned(works.next().flatten()),
                total: bytes(totals.next()),
                reserved: bytes(reserved.next()),
                free: bytes(free.next()),
                used: bytes(used.next()),
                peak: bytes(peaks.next()),
                reason: owned(reasons.next().flatten()),
            };
            monotonic.and(subject).map(|_| row)
        };
        ints("time_ns").filter_map(row).collect()
    }
}
