//! Keys and words that snapshots use.

use crate::names::Name;

/// Declares the texts; every table of names begins with them, in this order.
macro_rules! known {
    ($($name:ident = $text:literal),* $(,)?) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        enum Number { $($name),* }
        // The empty text comes before all of them.
        $(pub(crate) const $name: Name = Name(Number::$name as u32 + 1);)*
        pub(super) const KNOWN: &[&str] = &[$($text),*];
    };
}

known! {
    ACTION = "action",
    ADDR = "addr",
    SIZE = "size",
    STREAM = "stream",
    TIME_US = "time_us",
    COMPILE_CONTEXT = "compile_context",
    USER_METADATA = "user_metadata",
    FRAMES = "frames",
    DEVICE_FREE = "device_free",
    POOL_ID = "pool_id",
    FORWARD_FRAMES = "forward_frames",
    NAME = "name",
    FILENAME = "filename",
    LINE = "line",
    SEGMENTS = "segments",
    DEVICE_TRACES = "device_traces",
    ALLOCATOR_SETTINGS = "allocator_settings",
    EXTERNAL_ANNOTATIONS = "external_annotations",
    DEVICE = "device",
    ADDRESS = "address",
    TOTAL_SIZE = "total_size",
    ALLOCATED_SIZE = "allocated_size",
    ACTIVE_SIZE = "active_size",
    REQUESTED_SIZE = "requested_size",
    SEGMENT_TYPE = "segment_type",
    SEGMENT_POOL_ID = "segment_pool_id",
    IS_EXPANDABLE = "is_expandable",
    BLOCKS = "blocks",
    STATE = "state",
    STAGE = "stage",
    HISTORY = "history",
    REAL_SIZE = "real_size",
    ALLOC = "alloc",
    FREE_REQUESTED = "free_requested",
    FREE_COMPLETED = "free_completed",
    SEGMENT_ALLOC = "segment_alloc",
    SEGMENT_FREE = "segment_free",
    SEGMENT_MAP = "segment_map",
    SEGMENT_UNMAP = "segment_unmap",
    SNAPSHOT = "snapshot",
    OOM = "oom",
    ACTIVE_ALLOCATED = "active_allocated",
    ACTIVE_PENDING_FREE = "active_pending_free",
    ACTIVE_AWAITING_FREE = "active_awaiting_free",
    SMALL = "small",
    LARGE = "large",
    START = "START",
    END = "END",
    MAX_SPLIT_SIZE = "max_split_size",
    DIVISIONS = "roundup_power2_divisions",
}
