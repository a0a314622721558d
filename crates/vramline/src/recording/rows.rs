//! The rows of the streams as types: what a process writes down, and what a reader gets back.

pub use super::kinds::{RecordedMarkKind, TraceState, WindowReason};
use crate::event::{How, Phase};
use crate::snapshot::Role;
use crate::units::Bytes;

/// A moment on both clocks, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// The monotonic clock.
    pub monotonic: i64,
    /// The real-time clock.
    pub wall: i64,
}

/// What a framework says about one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// The device, as in `GPU:0`.
    pub device: String,
    /// In use.
    pub current: Option<i64>,
    /// The most that was in use since `peak_since`.
    pub peak: Option<i64>,
    /// When the peak was last reset; `None`: never, as far as we know.
    pub peak_since: Option<i64>,
    /// Taken from the driver.
    pub pool: Option<i64>,
    /// The most the pool may take.
    pub limit: Option<i64>,
    /// Why a figure is not there.
    pub reason: Option<String>,
}

/// What the program did, without the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// What it is about.
    pub kind: RecordedMarkKind,
    /// Its name.
    pub label: Option<String>,
    /// What the program was doing.
    pub phase: Option<Phase>,
    /// How it is known.
    pub how: Option<How>,
    /// Number of the step, or of its last batch.
    pub step: Option<i64>,
    /// Batches that the step ran.
    pub batches: Option<i64>,
    /// Number of the epoch, from zero.
    pub epoch: Option<i64>,
    /// When it began, on the monotonic clock.
    pub begin: Option<i64>,
    /// When it ended or happened.
    pub time: Moment,
    /// The counters at that moment.
    pub counters: Vec<Counters>,
    /// What became of the trace; of marks of kind `Trace` only.
    pub trace_state: Option<TraceState>,
    /// The number of the trace that it is about; of marks of kind `Trace` only.
    pub window: Option<i64>,
    /// Why that trace was begun.
    pub opened_for: Option<WindowReason>,
    /// Where the program's own profiler writes.
    pub path: Option<String>,
}

impl Mark {
    /// When it began; when it ended, where that is not known.
    #[must_use]
    pub(crate) fn began(&self) -> Moment {
        let monotonic = self.begin.unwrap_or(self.time.monotonic);
        let lasted = self.time.monotonic.saturating_sub(monotonic);
        Moment { monotonic, wall: self.time.wall.saturating_sub(lasted) }
    }
}

/// Counters read in the background.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When.
    pub time: Moment,
    /// Host memory that the process holds.
    pub resident: Option<i64>,
    /// What the framework says of a device.
    pub counters: Option<Counters>,
}

/// A variable of a model or optimizer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variable {
    /// The model or optimizer.
    pub owner: Option<String>,
    /// Its name.
    pub name: String,
    /// What the program says it is for.
    pub role: Role,
    /// As in `[3,3,64]`.
    pub shape: Option<String>,
    /// Element type.
    pub dtype: Option<String>,
    /// Bytes of its value.
    pub bytes: Bytes,
    /// Where it lies.
    pub device: Option<String>,
    /// Where in that device's memory.
    pub address: Option<u64>,
    /// The layer that it belongs to.
    pub layer: LayerPath,
    /// File and line where the program made it.
    pub source: Option<String>,
    /// Its number in its process: several may have the same name.
    pub number: Option<i64>,
}

/// A layer of a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LayerPath {
    /// The outermost model; `None` for a layer that stands alone.
    pub model: Option<String>,
    /// The names of the layers inside it, outermost first, with slashes between; `None` where no layer is known.
    pub layer: Option<String>,
}

/// What a row of the owners' stream is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OwnerKind {
    /// Every op of a graph below a name.
    #[default]
    Scope,
    /// One op of a graph.
    Op,
    /// What the program's own thread ran in a span of time.
    Span,
    /// Where the first value of a variable lay that was made in a step.
    Value,
    /// The compiled function that the program's own thread called in a span of time.
    Call,
    /// The module of PyTorch that ran in a span of time, for an allocator that could not be told.
    Module,
    /// Where an argument lay that was passed to a compiled program of JAX. The name is the program's, the number the parameter's.
    Argument,
}

words!(OwnerKind {
    Scope => "scope",
    Op => "op",
    Span => "span",
    Value => "value",
    Call => "call",
    Module => "module",
    Argument => "argument",
});

/// Whose ops are: a layer's, a variable's, a line's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerRow {
    /// When it was learned.
    pub time: Moment,
    /// What it is about.
    pub kind: OwnerKind,
    /// The scope or op.
    pub name: String,
    /// The layer.
    pub layer: LayerPath,
    /// The variable that the op assigns to, or works for.
    pub variable: Option<String>,
    /// The number of that variable.
    pub variable_number: Option<i64>,
    /// What that variable is for.
    pub role: Role,
    /// Function, file and line.
    pub source: Option<String>,
    /// Of a span or call: from when to when, on the monotonic clock.
    pub span: Option<(i64, i64)>,
    /// Of a value: where it lay.
    pub address: Option<u64>,
    /// The number of the compiled function that was called, or whose graph has the name.
    pub function: Option<i64>,
}

/// Variables as they were at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// When it was taken.
    pub time: Moment,
    /// Each once.
    pub variables: Vec<Variable>,
}

/// What a row of the driver's stream is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// A whole device.
    #[default]
    Device,
    /// One process on a device.
    Process,
    /// A process that is no longer on a device.
    Gone,
}

/// The name that the machine's own memory has among the devices.
pub const HOST: &str = "CPU";

/// The name that the host memory has which a program pinned for its devices.
pub const PINNED: &str = "HOST:pinned";

/// What the driver or the kernel said of a device, or of one process on it. It holds until the next row of the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverRow {
    /// When it was read.
    pub time: Moment,
    /// What it is about.
    pub subject: Subject,
    /// The device: its uuid, or [`HOST`].
    pub device: String,
    /// The process, as the driver numbers it.
    pub pid: Option<u32>,
    /// When the process started, in the kernel's ticks.
    pub start: Option<u64>,
    /// The process's command.
    pub command: Option<String>,
    /// Whether it belongs to the job; `None` if that is unknown.
    pub is_job: Option<bool>,
    /// compute, graphics or both.
    pub work: Option<String>,
    /// The device's memory.
    pub total: Option<Bytes>,
    /// Kept by the driver.
    pub reserved: Option<Bytes>,
    /// Not taken.
    pub free: Option<Bytes>,
    /// Taken; of a process what it holds there. On the host that is its resident set.
    pub used: Option<Bytes>,
    /// The most that the process held there, where the driver keeps accounts.
    pub peak: Option<Bytes>,
    /// Why figures are not there.
    pub reason: Option<String>,
}

/// What the driver's rows say of one moment: the newest of each device, and of each process that was there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverState<'a> {
    /// One for each device, in the order they were first read.
    pub devices: Vec<&'a DriverRow>,
    /// One for each process on each device that was there.
    pub processes: Vec<&'a DriverRow>,
}

impl<'a> DriverState<'a> {
    /// What held at a moment of the monotonic clock.
    #[must_use]
    pub fn at(rows: &'a [DriverRow], monotonic: i64) -> DriverState<'a> {
        let mut state = DriverState::default();
        for row in rows.iter().take_while(|row| row.time.monotonic <= monotonic) {
            state.take(row);
        }
        state
    }

    /// Goes on by one row.
    pub fn take(&mut self, row: &'a DriverRow) {
        let is_same = |other: &&DriverRow| other.device == row.device && other.pid == row.pid;
        match row.subject {
            Subject::Device => match self.devices.iter_mut().find(|known| known.device == row.device) {
                Some(known) => *known = row,
                None => self.devices.push(row),
            },
            Subject::Process => match self.processes.iter_mut().find(|known| is_same(known)) {
                Some(known) => *known = row,
                None => self.processes.push(row),
            },
            Subject::Gone => self.processes.retain(|known| !is_same(known)),
        }
    }
}
