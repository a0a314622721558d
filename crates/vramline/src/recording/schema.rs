//! The columns of the streams of a recording, and their version.
//!
//! A stream is a plain Arrow IPC stream without dictionaries, so pandas, Polars, DuckDB and pyarrow can read it without
//! Vramline. There are only two types, 64-bit integers and text. Every column may be null; a null means "unknown", never
//! zero. Times are in nanoseconds: `*_ns` on the monotonic clock, which never jumps and orders everything within a machine, and
//! `wall_ns` on the real-time clock at the same moment, so that jumps of that clock are visible and can be corrected.
//!
//! A reader selects columns by name and ignores unknown ones. A new column keeps the version; a changed meaning raises it. A column
//! that was added later has the revision that added it (`since`).

/// The version of everything in a recording.
pub const VERSION: u32 = 1;

/// The number of revisions that added columns to that version. Files do not contain it: a stream has a column or it does not.
pub const REVISION: u32 = 4;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A 64-bit signed integer.
    Int,
    /// Text.
    Text,
}

/// A column of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// What it contains.
    pub meaning: &'static str,
    /// The revision that added it; zero for the first one. Earlier recordings do not have the column, and an earlier Vramline ignores
    /// it.
    pub since: u32,
}

/// A kind of stream.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    /// The first part of its file's name.
    pub name: &'static str,
    /// Its columns.
    pub columns: &'static [Column],
}

const fn int(name: &'static str, meaning: &'static str) -> Column {
    Column { name, kind: Kind::Int, meaning, since: 0 }
}

const fn text(name: &'static str, meaning: &'static str) -> Column {
    Column { name, kind: Kind::Text, meaning, since: 0 }
}

impl Column {
    /// The same column, added by a revision.
    const fn since(self, revision: u32) -> Column {
        Column { since: revision, ..self }
    }
}

/// The column of the marks with the state of the trace.
pub(super) const TRACE_STATE: &str = "trace_state";

/// The columns with the number of the trace, why it was started, and the folder of the program's own profiler.
pub(super) const WINDOW: &str = "window";
pub(super) const OPENED_FOR: &str = "opened_for";
pub(super) const PATH: &str = "path";

/// What the program did, with the counters at that moment: one row for each device, or one row if no device is known.
pub const MARKS: Stream = Stream {
    name: "marks",
    columns: &[
        int("mark", "number of the mark; all rows of one mark (one for each device) share it"),
        text("kind", "step, call, epoch, phase, mark, trace, retrace, setting, exception or end"),
        text("label", "label of the program, name of the called function, or what happened"),
        text("phase", "train, validation, predict or other"),
        text("how", "how it is known: keras, trainer, api or inferred"),
        int("step", "number of the step, or of its last batch"),
        int("batches", "number of batches in the step"),
        int("epoch", "number of the epoch, from zero"),
        int("begin_ns", "start; null for a mark without a duration"),
        int("time_ns", "end, or time of the mark"),
        int("wall_ns", "the same moment on the real-time clock"),
        text("device", "device of the counters"),
        int("current_bytes", "in use"),
        int("peak_bytes", "peak bytes in use since `peak_since_ns`"),
        int("peak_since_ns", "last reset of the framework's peak; null: no known reset"),
        // Earlier recordings have only the label of a mark of kind `trace`, in English.
        text(
            TRACE_STATE,
            "kind trace: begun, stopped or written; failed: it could not be started; lost: it could not be written",
        )
        .since(1),
        int(WINDOW, "kind trace: number of the trace in its process, from 1").since(2),
        text(
            OPENED_FOR,
            "kind trace: why it was started: start, fit, validation, predict, retrace, rise, program (the program's own profiler), oom (an allocation failed) or request (`vramline snapshot`)",
        )
        .since(2),
        text(PATH, "kind trace: output folder of the program's own profiler").since(2),
    ],
};

/// Counters read in the background.
pub const SAMPLES: Stream = Stream {
    name: "samples",
    columns: &[
        int("time_ns", "time of the reading"),
        int("wall_ns", "the same moment on the real-time clock"),
        int("resident_bytes", "host memory that the process holds"),
        text("device", "device of the counters; null: no counters could be read yet"),
        int("current_bytes", "in use"),
        int("peak_bytes", "peak bytes in use, by the framework's count"),
        int("pool_bytes", "bytes that the framework's pool reserved"),
        int("limit_bytes", "limit of the pool"),
        text("reason", "why a figure is null"),
    ],
};

/// The variables of models and optimizers.
pub const INVENTORY: Stream = Stream {
    name: "inventory",
    columns: &[
        int("taken", "number of the inventory; all its rows share it"),
        int("time_ns", "time of the inventory"),
        int("wall_ns", "the same moment on the real-time clock"),
        text("owner", "model or optimizer; null: another variable of the program"),
        text("name", "name of the variable"),
        text("role", "parameters, optimizer, state or unknown"),
        text("shape", "as in [3,3,64]"),
        text("dtype", "element type"),
        int("bytes", "bytes of its value"),
        text("device", "device of the value"),
        int("address", "address in device memory; null: the framework does not report it"),
        text("model", "the outermost model of the layer").since(2),
        text("layer", "its layer in that model; for optimizer state, the layer of its weight").since(2),
        text("source", "file and line where the program created it").since(2),
        int("variable", "number of the variable in its process: several may have the same name").since(4),
    ],
};

/// The owners of a program's ops: layers, variables, lines of code.
pub const OWNERS: Stream = Stream {
    name: "owners",
    columns: &[
        int("time_ns", "time of the entry").since(2),
        int("wall_ns", "the same moment on the real-time clock").since(2),
        text(
            "kind",
            "scope: all ops of a graph below this name; op: one op of a graph; span: what the program's main thread ran in a time span; \
             value: the first value of a variable that a step created; call: the compiled function that was called in a time span; \
             module: the module of PyTorch that ran in a time span, if the allocator cannot be told; \
             argument: an argument of a compiled program of JAX",
        )
        .since(2),
        text(
            "name",
            "name of the scope or op, as in the graph; gradient_tape: a span that computes gradients; forward, backward: the pass of a \
             module; argument: the program, as in `jit(step)`",
        )
        .since(2),
        text("model", "the outermost model of the layer").since(2),
        text("layer", "the layer, inside that model").since(2),
        text("variable", "variable that the op assigns or belongs to").since(2),
        text("role", "role of that variable: parameters, optimizer, state or unknown").since(2),
        text("source", "function, file and line of the program").since(2),
        int("begin_ns", "span, call or module: its start").since(2),
        int("end_ns", "span, call or module: its end").since(2),
        int("address", "value or argument: its address").since(3),
        int(
            "function",
            "number of the compiled function that was called, or that was being traced when the scope or op was created",
        )
        .since(3),
        int(
            "variable_number",
            "number of that variable, as in the inventory; argument: the number of the program's parameter",
        )
        .since(4),
    ],
};

/// Readings of the driver and the kernel while a job runs, written by `vramline run`. A row is written when its figures change: it is valid
/// until the next row of the same kind, device and process. Devices are those of `run.json`.
pub const DRIVER: Stream = Stream {
    name: "driver",
    columns: &[
        int("time_ns", "time of the reading"),
        int("wall_ns", "the same moment on the real-time clock"),
        text(
            "kind",
            "device: a whole device; process: one process on it; gone: the process no longer uses it",
        ),
        text("device", "uuid of the device, as in run.json; CPU for host memory"),
        int("pid", "process id, from the driver; on the CPU, from the kernel"),
        int(
            "start",
            "start time of the process, in kernel ticks; null: the process is not visible from here",
        ),
        text("command", "command of the process, from the kernel"),
        int(
            "job",
            "1: it belongs to the job; 0: it does not; null: unknown, because the process ids are of another namespace",
        ),
        text("work", "what the process uses the device for: compute, graphics or both"),
        int("total_bytes", "total memory of the device; on the CPU, MemTotal"),
        int("reserved_bytes", "reserved by the driver"),
        int("free_bytes", "free; on the CPU, MemAvailable, recorded when it changes by 1 MiB"),
        int(
            "used_bytes",
            "used, with or without the reserved bytes (see run.json); for a process, its memory on the device",
        ),
        int("peak_bytes", "peak of the process on the device, if the driver's accounting is on"),
        text("reason", "why figures are null: a code of the driver's errors"),
    ],
};
