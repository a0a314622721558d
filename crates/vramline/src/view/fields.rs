//! Every field of the JSON documents: id, title, unit, meaning. The one table that terminal, JSON and docs share.
//!
//! The id is the path in the document, `[]` for each element. `docs/json.md` holds this table; a test compares both
//! with each other and with a real report.

/// A field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The path in the document.
    pub id: &'static str,
    /// What a column of it is headed with.
    pub title: &'static str,
    /// What its numbers count, or what sort of value it is.
    pub unit: &'static str,
    /// What it says.
    pub meaning: &'static str,
}

/// The title of a field; the id itself where there is no such field.
#[must_use]
pub fn title(id: &str) -> &'static str {
    REPORT.iter().find(|field| field.id == id).map_or("?", |field| field.title)
}

const fn f(id: &'static str, title: &'static str, unit: &'static str, meaning: &'static str) -> Field {
    Field { id, title, unit, meaning }
}

/// The document of `vramline report --json`.
pub const REPORT: &[Field] = &[
    f("kind", "kind", "word", "`report`"),
    f("source.format", "format", "word", "`xplane`"),
    f("source.framework", "framework", "word or null", "`tensorflow` or `jax`"),
    f("source.files[]", "file", "text", "the files that were read, one a host"),
    f("source.clock", "clock", "text", "what the zero of every `_ns` time is"),
    f("source.wall_clock_zero_ns", "began", "ns or null", "Unix time of that zero"),
    f("pools[].name", "pool", "text", "the allocator, as the framework names it"),
    f(
        "pools[].device",
        "device",
        "text",
        "`GPU:0`, `TPU:0`, `CPU:0`, `HOST` for pinned host memory, empty where the name does not tell",
    ),
    f("pools[].host", "host", "text", "the machine, as the profiler names it"),
    f("pools[].pid", "pid", "number or null", "the process"),
    f("pools[].rank", "rank", "number or null", "the process' rank in a distributed job"),
    f(
        "pools[].from_start",
        "from start",
        "bool or null",
        "true when the first event's counts are its own block: nothing was allocated before; false when they are more",
    ),
    f("pools[].limit_bytes", "limit", "bytes or null", "what the pool may take: in use + available"),
    f("pools[].allocs", "allocs", "number", "allocation events"),
    f("pools[].frees", "frees", "number", "free events"),
    f(
        "pools[].peak_bytes",
        "peak",
        "bytes or null",
        "the most in use in the trace, by the allocator's own count (whole chunks)",
    ),
    f(
        "pools[].lifetime_peak_bytes",
        "ever",
        "bytes or null",
        "the most in use since the process began, as the allocator tells it",
    ),
    f("pools[].peak_at_ns", "at", "ns or null", "when the peak was first reached"),
    f(
        "pools[].at_peak",
        "at the peak",
        "object or null",
        "what was held then; `pools[].at`, present with `--at`, has the same fields",
    ),
    f("pools[].at_peak.time_ns", "at", "ns", "the moment"),
    f(
        "pools[].at_peak.in_use_bytes",
        "in use",
        "bytes",
        "in use then: named + unnamed + slack + before_recording",
    ),
    f("pools[].at_peak.named_bytes", "named", "bytes", "requested by blocks whose op is known"),
    f(
        "pools[].at_peak.unnamed_bytes",
        "without a name",
        "bytes",
        "requested by blocks of which only size and time are known",
    ),
    f(
        "pools[].at_peak.slack_bytes",
        "slack",
        "bytes",
        "what those blocks take beyond their request: rounding, and chunks that were not split",
    ),
    f(
        "pools[].at_peak.before_recording_bytes",
        "before the recording",
        "bytes",
        "in use, but allocated before the trace begins (whole chunks)",
    ),
    f(
        "pools[].at_peak.by_role.parameters",
        "parameters",
        "bytes",
        "requested for weights and their non-trained companions",
    ),
    f(
        "pools[].at_peak.by_role.gradients",
        "gradients",
        "bytes",
        "requested for results of the backward pass",
    ),
    f("pools[].at_peak.by_role.optimizer", "optimizer", "bytes", "requested for the optimizer's state"),
    f(
        "pools[].at_peak.by_role.activations",
        "activations",
        "bytes",
        "requested for results of the forward pass that wait for the backward pass",
    ),
    f("pools[].at_peak.by_role.inputs", "inputs", "bytes", "requested for training data"),
    f(
        "pools[].at_peak.by_role.temporaries",
        "temporaries",
        "bytes",
        "requested for scratch and results that are soon consumed",
    ),
    f(
        "pools[].at_peak.by_role.unknown",
        "unknown",
        "bytes",
        "requested for what none of these rules can tell; the roles add up to named + unnamed",
    ),
    f(
        "pools[].at_peak.rows[].bytes",
        "bytes",
        "bytes",
        "requested by the blocks of this row; all rows (and `rest`) add up to named + unnamed",
    ),
    f("pools[].at_peak.rows[].count", "count", "number", "blocks"),
    f(
        "pools[].at_peak.rows[].op",
        "op",
        "text",
        "the op that asked; empty where nothing names it, or where a row joins several",
    ),
    f("pools[].at_peak.rows[].layer", "layer", "text", "the model layer, from the op's scope"),
    f("pools[].at_peak.rows[].role", "role", "word", "one of the roles; empty where a row joins several"),
    f("pools[].at_peak.rows[].shape", "shape", "text", "as the framework writes it"),
    f("pools[].at_peak.rows[].dtype", "type", "word", "element type"),
    f(
        "pools[].at_peak.rows[].source",
        "source",
        "text",
        "where in the program, as far as the trace shows it",
    ),
    f(
        "pools[].at_peak.rows[].evidence",
        "evidence",
        "text",
        "what the role rests on, or why there is no name",
    ),
    f("pools[].at_peak.rows[].slack_bytes", "slack", "bytes", "taken beyond the request"),
    f(
        "pools[].at_peak.rows[].age_ns",
        "age",
        "ns or null",
        "how long the oldest block of the row had been held",
    ),
    f("pools[].at_peak.rows[].op_calls", "calls", "number or null", "how often the op ran in the trace"),
    f(
        "pools[].at_peak.rows[].op_time_ns",
        "op time",
        "ns or null",
        "how long the op ran, all calls together",
    ),
    f(
        "pools[].at_peak.rest.rows",
        "rows",
        "number",
        "rows left out by `--top`; `rest` is absent where none is",
    ),
    f("pools[].at_peak.rest.bytes", "bytes", "bytes", "their bytes"),
    f("pools[].at_peak.rest.count", "count", "number", "their blocks"),
    f(
        "pools[].fragmentation_at_peak",
        "fragm.",
        "fraction or null",
        "share of the pool's free bytes outside its largest free block, as the allocator told it",
    ),
    f(
        "pools[].before_recording.at_begin_bytes",
        "before",
        "bytes",
        "in use when the trace begins (whole chunks)",
    ),
    f(
        "pools[].before_recording.freed_bytes",
        "freed since",
        "bytes",
        "of these, freed in the trace: frees without an allocation",
    ),
    f("pools[].before_recording.freed_blocks", "blocks", "number", "how many blocks that were"),
    f(
        "pools[].held_long[].bytes",
        "bytes",
        "bytes",
        "requested; the list has the ten blocks with the most bytes x seconds",
    ),
    f("pools[].held_long[].op", "op", "text", "as in rows"),
    f("pools[].held_long[].layer", "layer", "text", "as in rows"),
    f("pools[].held_long[].role", "role", "word", "as in rows"),
    f("pools[].held_long[].shape", "shape", "text", "as in rows"),
    f("pools[].held_long[].dtype", "type", "word", "as in rows"),
    f("pools[].held_long[].born_ns", "born", "ns", "when it was allocated"),
    f("pools[].held_long[].freed_ns", "freed", "ns or null", "when it was freed"),
    f("pools[].held_long[].held_ns", "held", "ns", "how long it was held in the trace"),
    f("pools[].held_long[].byte_seconds", "byte seconds", "bytes x s", "chunk bytes times seconds held"),
    f("steps[].pool", "pool", "text", "the pool that the figures are of"),
    f("steps[].host", "host", "text", "the machine"),
    f("steps[].step", "step", "number", "the program's own number, or counted from zero"),
    f("steps[].epoch", "epoch", "number or null", "traces do not mark epochs"),
    f(
        "steps[].phase",
        "phase",
        "word",
        "`train` where the step has a backward pass or an optimizer, else `other`",
    ),
    f(
        "steps[].how",
        "how",
        "word",
        "`trace` where the trace marks the step, `inferred` where it follows from what repeats",
    ),
    f("steps[].name", "name", "text", "what is called"),
    f("steps[].begin_ns", "begin", "ns", "when it begins; it lasts until the next begins"),
    f("steps[].peak_bytes", "peak", "bytes", "the most in use during the step"),
    f("steps[].current_bytes", "current", "bytes", "in use at its end"),
    f("ledger", "ledger", "list", "empty for a trace: it holds no figures of the driver"),
    f("findings", "findings", "list", "empty: no rule is applied yet"),
    f("warnings[].code", "code", "word", "stable, for machines"),
    f("warnings[].text", "text", "text", "what the reader of the report should know"),
    f("warnings[].hint", "hint", "text", "what to do about it; may be empty"),
    f("unknowns[].path", "path", "text", "where a null stands"),
    f("unknowns[].reason", "reason", "text", "why it is not known"),
    f("unknowns[].switch", "switch", "text or null", "the setting that would make it known"),
];
