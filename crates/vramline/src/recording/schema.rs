//! What stands in the streams of a recording: their columns, and the version of all of them.
//!
//! A stream is a plain Arrow IPC stream without dictionaries, so that pandas, Polars, DuckDB and pyarrow read it without
//! us. There are two types only, 64-bit integers and text; every column may be null, and a null means "not known", never
//! zero. Times are nanoseconds: `*_ns` of the monotonic clock, which never jumps and orders everything within a machine, and
//! `wall_ns` of the real-time clock at the same moment, so that a jump of that clock shows and can be undone.
//!
//! A reader takes columns by name and ignores those it does not know. Adding a column keeps the version; changing the meaning
//! of one raises it. A column that was added says since when it is there (`since`).

/// The version of everything in a recording.
pub const VERSION: u32 = 1;

/// How often columns were added since that version began. Files do not hold it: a stream has a column or it does not.
pub const REVISION: u32 = 3;

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
    /// What it holds.
    pub meaning: &'static str,
    /// The revision of the version that added it; zero: it was there from the beginning. Earlier recordings do not have the
    /// column, and an earlier Vramline ignores it.
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

/// The column of the marks that says what became of the trace.
pub(super) const TRACE_STATE: &str = "trace_state";

/// Those that say which trace it is, why it was begun, and where the program's own lies.
pub(super) const WINDOW: &str = "window";
pub(super) const OPENED_FOR: &str = "opened_for";
pub(super) const PATH: &str = "path";

/// What the program did, with the counters of that moment: one row for each device, and one where no device is known.
pub const MARKS: Stream = Stream {
    name: "marks",
    columns: &[
        int("mark", "number of the mark; the rows of one mark, one a device, share it"),
        text("kind", "step, call, epoch, phase, mark, trace, retrace, setting, exception or end"),
        text("label", "name given by the program, of the function called, or what happened"),
        text("phase", "train, validation, predict or other"),
        text("how", "who told: keras, api or inferred"),
        int("step", "number of the step, or of its last batch"),
        int("batches", "how many batches the step ran"),
        int("epoch", "number of the epoch, from zero"),
        int("begin_ns", "when it began; null for a mark that is a moment"),
        int("time_ns", "when it ended or happened"),
        int("wall_ns", "the same moment on the real-time clock"),
        text("device", "the device the counters are of"),
        int("current_bytes", "in use"),
        int("peak_bytes", "the most that was in use since `peak_since_ns`"),
        int("peak_since_ns", "when the framework's peak was last reset; null: never, as far as we know"),
        // Before it only the label of a mark of kind `trace` said it, in English.
        text(
            TRACE_STATE,
            "of kind trace: begun, stopped or written; failed: it could not begin; lost: it could not be written",
        )
        .since(1),
        int(WINDOW, "of kind trace: number of the trace in its process, from 1").since(2),
        text(
            OPENED_FOR,
            "of kind trace: why it was begun: start, fit, validation, predict, retrace, rise or program (the program's own profiler)",
        )
        .since(2),
        text(PATH, "of kind trace: where the program's own profiler writes, or has written").since(2),
    ],
};

/// Counters read in the background.
pub const SAMPLES: Stream = Stream {
    name: "samples",
    columns: &[
        int("time_ns", "when"),
        int("wall_ns", "the same moment on the real-time clock"),
        int("resident_bytes", "host memory that the process holds"),
        text("device", "the device the counters are of; null: none could be read yet"),
        int("current_bytes", "in use"),
        int("peak_bytes", "the most that was in use, as the framework counts"),
        int("pool_bytes", "taken from the driver by the framework's pool"),
        int("limit_bytes", "the most the pool may take"),
        text("reason", "why a figure is null"),
    ],
};

/// The variables of models and optimizers.
pub const INVENTORY: Stream = Stream {
    name: "inventory",
    columns: &[
        int("taken", "number of the inventory; its rows share it"),
        int("time_ns", "when it was taken"),
        int("wall_ns", "the same moment on the real-time clock"),
        text("owner", "the model or optimizer; null: a variable of the program's own"),
        text("name", "the variable"),
        text("role", "parameters, optimizer, state or unknown"),
        text("shape", "as in [3,3,64]"),
        text("dtype", "element type"),
        int("bytes", "bytes of its value"),
        text("device", "where it lies"),
        int("address", "where in that device's memory; null where the framework does not tell"),
        text("model", "the outermost model of the layer").since(2),
        text(
            "layer",
            "the layer that it belongs to, inside that model; of an optimizer's state that of its weight",
        )
        .since(2),
        text("source", "file and line where the program made it").since(2),
    ],
};

/// Whose the ops of a program are: layers, variables, lines of code.
pub const OWNERS: Stream = Stream {
    name: "owners",
    columns: &[
        int("time_ns", "when it was learned").since(2),
        int("wall_ns", "the same moment on the real-time clock").since(2),
        text(
            "kind",
            "scope: every op of a graph below this name; op: one op of a graph; span: what the program's own thread ran in a span of time; \
             value: where the first value of a variable lay that a step made; call: the compiled function that was called in a span of time",
        )
        .since(2),
        text("name", "the scope's or op's, as in the graph").since(2),
        text("model", "the outermost model of the layer").since(2),
        text("layer", "the layer, inside that model").since(2),
        text("variable", "the variable that the op assigns to, or works for").since(2),
        text("role", "what that variable is for: parameters, optimizer, state or unknown").since(2),
        text("source", "function, file and line of the program").since(2),
        int("begin_ns", "of a span or call: when it began").since(2),
        int("end_ns", "of a span or call: when it ended").since(2),
        int("address", "of a value: where it lay").since(3),
        int(
            "function",
            "number of the compiled function that was called, or that was traced when the scope or op was made",
        )
        .since(3),
    ],
};

/// What the driver and the kernel say while a job runs, by the parent of the run. A row is written when its figures have changed: what a
/// row says holds until the next one of the same kind, device and process. Devices are those of `run.json`.
pub const DRIVER: Stream = Stream {
    name: "driver",
    columns: &[
        int("time_ns", "when it was read"),
        int("wall_ns", "the same moment on the real-time clock"),
        text(
            "kind",
            "device: a whole device; process: one process on it; gone: that process is no longer on it",
        ),
        text("device", "uuid of the device as in run.json; CPU for the machine's own memory"),
        int("pid", "the process, as the driver numbers it; on the CPU as this machine's kernel does"),
        int(
            "start",
            "when the process started, in the kernel's ticks; null where it is not to be seen from here",
        ),
        text("command", "the process's command, as the kernel keeps it"),
        int(
            "job",
            "1: it belongs to the job; 0: it does not; null: it cannot be told, as numbers are of another namespace",
        ),
        text("work", "what the process uses the device for: compute, graphics or both"),
        int("total_bytes", "the device's memory; on the CPU MemTotal"),
        int("reserved_bytes", "kept by the driver"),
        int("free_bytes", "not taken; on the CPU MemAvailable, noted when it has moved by 1 MiB"),
        int(
            "used_bytes",
            "taken, with or without what is reserved: run.json says which; of a process what it holds there",
        ),
        int("peak_bytes", "the most that the process held there, where the driver keeps accounts"),
        text("reason", "why figures are null: a word of the driver's errors"),
    ],
};
