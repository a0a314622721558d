//! Formats of other tools. Each takes allocations one at a time and keeps none, whatever the trace's size.

pub(crate) mod parquet;
pub(crate) mod perfetto;
pub(crate) mod table;
