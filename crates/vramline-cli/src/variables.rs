//! Every environment variable that the binary reads or sets by name, in one place.
//!
//! Two kinds: those by which `vramline run` tells its Python side inside the job what to do, and those of frameworks,
//! which launch settings set. What they are set to is decided in `launch/environment.rs`. Not here: what libraries read by
//! themselves (`TMPDIR`, `PATH`), and which variables of a job a recording keeps (`recording/manifest.rs` of the core).

/// Read: whether to write without colour (any value but the empty one).
pub(crate) const NO_COLOR: &str = "NO_COLOR";

/// Read: the kind of terminal; on one that is `dumb`, `top` prints one look instead of drawing.
pub(crate) const TERM: &str = "TERM";

/// Read: the folder of the Python package `vramline`, where it is not found by itself.
pub(crate) const PACKAGE: &str = "VRAMLINE_PACKAGE";

/// Read, for tests: a script (JSON) that a fake driver plays in place of NVIDIA's library. The job inherits it.
pub(crate) const FAKE_DRIVER: &str = "VRAMLINE_FAKE_DRIVER";

/// Read, for tests and in builds with debug assertions only: the frame at which `top` panics.
#[cfg(debug_assertions)]
pub(crate) const TOP_PANIC: &str = "VRAMLINE_TOP_PANIC";

/// Read, for tests and in builds with debug assertions only: the place at which a command panics.
#[cfg(debug_assertions)]
pub(crate) const PANIC: &str = "VRAMLINE_PANIC";

/// Set, and read of other processes: the folder of the recording, absolute. Without it nothing is recorded.
pub(crate) const RECORD: &str = "VRAMLINE_RECORD";
/// Set: `auto`, `off`, `steps=N` or `all`.
pub(crate) const TRACE: &str = "VRAMLINE_TRACE";
/// Set: after so many seconds a trace ends in any case.
pub(crate) const TRACE_SECONDS: &str = "VRAMLINE_TRACE_SECONDS";
/// Set: samples a second, 0 for none.
pub(crate) const RATE: &str = "VRAMLINE_RATE";
/// Set to 1: reset the peak at each step.
pub(crate) const STEP_PEAKS: &str = "VRAMLINE_STEP_PEAKS";
/// Set: the most bytes that a pool may hold, applied inside the process where no variable of the framework does it.
pub(crate) const LIMIT: &str = "VRAMLINE_LIMIT";
/// Set: `on` or `off`.
pub(crate) const GROWTH: &str = "VRAMLINE_GROWTH";
/// Set: `default`, `async`, `platform` or `expandable`.
pub(crate) const ALLOCATOR: &str = "VRAMLINE_ALLOCATOR";
/// Set to 1: end the process, with code 0, when its trace is over.
pub(crate) const STOP: &str = "VRAMLINE_STOP";
/// Set: fixes that are tried inside the process, such as `mixed-precision,accumulate=4`.
pub(crate) const FIX: &str = "VRAMLINE_FIX";
/// Set to 1: `run` switched TensorFlow's pool on the CPU on.
pub(crate) const STAND_IN: &str = "VRAMLINE_STAND_IN";

/// What `run` tells its Python side. One that is not set for this job is removed: it would be of a run around this one.
pub(crate) const TO_PYTHON: [&str; 11] =
    [RECORD, TRACE, TRACE_SECONDS, RATE, STEP_PEAKS, LIMIT, GROWTH, ALLOCATOR, STOP, FIX, STAND_IN];

/// Read and set: where Python looks for modules; ours come first.
pub(crate) const PYTHONPATH: &str = "PYTHONPATH";

/// Read and set (`--gpus`): the devices that CUDA shows to the job; empty or -1 for none.
pub(crate) const CUDA_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// Read and set (`--growth`): TensorFlow, exactly `true` or `false`.
pub(crate) const TF_FORCE_GPU_ALLOW_GROWTH: &str = "TF_FORCE_GPU_ALLOW_GROWTH";
/// Read and set (`--growth`): JAX; `false`, `False` and `0` mean that the pool grows.
pub(crate) const XLA_PREALLOCATE: &str = "XLA_PYTHON_CLIENT_PREALLOCATE";
/// Read and set (`--allocator`): TensorFlow.
pub(crate) const TF_GPU_ALLOCATOR: &str = "TF_GPU_ALLOCATOR";
/// Read and set (`--allocator`): JAX.
pub(crate) const XLA_ALLOCATOR: &str = "XLA_PYTHON_CLIENT_ALLOCATOR";
/// Read and set (`--allocator`): PyTorch, `key:value` pairs. Of these names the first that is set counts.
pub(crate) const TORCH_CONF: [&str; 3] =
    ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
/// Read (`--limit`): JAX's own limits, as a share of the device.
pub(crate) const XLA_FRACTIONS: [&str; 2] = ["XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"];
/// Read and set (`plan`, where a program is compiled): XLA's own flags; a value that begins with no dash is the name of a file of them.
pub(crate) const XLA_FLAGS: &str = "XLA_FLAGS";
/// Set (the same): whether JAX takes programs from its cache.
pub(crate) const JAX_CACHE: &str = "JAX_ENABLE_COMPILATION_CACHE";
/// Read and set (the stand-in): TensorFlow's pool allocator on the CPU.
pub(crate) const TF_CPU_BFC: &str = "TF_CPU_ALLOCATOR_USE_BFC";
/// Read and set (`--limit` with the stand-in): whole MiB.
pub(crate) const TF_CPU_BFC_LIMIT: &str = "TF_CPU_BFC_MEM_LIMIT_IN_MB";
/// Set (`verify --fix one-thread`): how many ops TensorFlow runs at a time.
pub(crate) const TF_INTEROP_THREADS: &str = "TF_NUM_INTEROP_THREADS";
/// Set (`verify --fix scratch-limit`): MiB of scratch that TensorFlow gives a convolution.
pub(crate) const TF_CUDNN_SCRATCH: &str = "TF_CUDNN_WORKSPACE_LIMIT_IN_MB";
