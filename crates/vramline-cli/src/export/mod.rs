//! Export formats. Each writes allocations one at a time, so memory use does not depend on the size of the trace.

pub(crate) mod dataset;
pub(crate) mod parquet;
pub(crate) mod perfetto;
pub(crate) mod table;
