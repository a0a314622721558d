//! The names of all environment variables that the binary reads or sets.
//!
//! There are two kinds: variables that configure Vramline's Python side inside the job, and variables of frameworks that launch
//! settings set. Their values are decided in `launch/environment.rs`. Not listed here: variables that libraries read (`TMPDIR`),
//! and the variables of a job that a recording keeps (`recording/manifest.rs` of the core).

/// Read: turns colour off if it is set and not empty.
pub(crate) const NO_COLOR: &str = "NO_COLOR";

/// Read: the kind of terminal. On a `dumb` terminal `top` prints once instead of drawing.
pub(crate) const TERM: &str = "TERM";

/// Read: the folder of the Python package `vramline`, if it is not found automatically.
pub(crate) const PACKAGE: &str = "VRAMLINE_PACKAGE";

/// Read, for tests: a JSON script for a fake driver that replaces NVIDIA's library. The job inherits it.
pub(crate) const FAKE_DRIVER: &str = "VRAMLINE_FAKE_DRIVER";

/// Read, for tests and in builds with debug assertions only: the frame at which `top` panics.
#[cfg(debug_assertions)]
pub(crate) const TOP_PANIC: &str = "VRAMLINE_TOP_PANIC";

/// Read, for tests and in builds with debug assertions only: the place at which a command panics.
#[cfg(debug_assertions)]
pub(crate) const PANIC: &str = "VRAMLINE_PANIC";

/// Set, and read from other processes: the absolute path of the recording. Without it nothing is recorded.
pub(crate) const RECORD: &str = "VRAMLINE_RECORD";
/// Set: the name of the job, the name of this run, and the user's labels. The core reads them in each process.
pub(crate) use vramline::recording::identity::{JOB, LABELS, RUN_NAME};

/// Set: `auto`, `off`, `steps=N` or `all`.
pub(crate) const TRACE: &str = "VRAMLINE_TRACE";
/// Set: the longest duration of one trace, in seconds.
pub(crate) const TRACE_SECONDS: &str = "VRAMLINE_TRACE_SECONDS";
/// Set: `auto`, `on` or `off`.
pub(crate) const UNTIL_OOM: &str = "VRAMLINE_UNTIL_OOM";
/// Set: samples per second, 0 for none.
pub(crate) const RATE: &str = "VRAMLINE_RATE";
/// Set to 1: reset the peak counter at each step.
pub(crate) const STEP_PEAKS: &str = "VRAMLINE_STEP_PEAKS";
/// Set: the limit of a pool in bytes, applied inside the process if the framework has no variable for it.
pub(crate) const LIMIT: &str = "VRAMLINE_LIMIT";
/// Set: `on` or `off`.
pub(crate) const GROWTH: &str = "VRAMLINE_GROWTH";
/// Set: `default`, `async`, `platform` or `expandable`.
pub(crate) const ALLOCATOR: &str = "VRAMLINE_ALLOCATOR";
/// Set: end the process with exit code 0 when its trace ends (`trace`), or after so many training steps.
pub(crate) const STOP: &str = "VRAMLINE_STOP";
/// Set: fixes to apply inside the process, such as `mixed-precision,accumulate=4`.
pub(crate) const FIX: &str = "VRAMLINE_FIX";
/// Set to 1: `run` switched on TensorFlow's pool allocator for the CPU.
pub(crate) const STAND_IN: &str = "VRAMLINE_STAND_IN";

/// Read (`--driver-trace`): the folders in which the program of a job is looked for.
pub(crate) const PATH: &str = "PATH";
/// Set (`--driver-trace`): the absolute path of the recording, for the library that records calls of the driver.
pub(crate) const DRIVER_TRACE: &str = "VRAMLINE_DRIVER_TRACE";
/// Read and set (`--driver-trace`): libraries that the loader puts before all others; ours comes first.
pub(crate) const LD_PRELOAD: &str = "LD_PRELOAD";

/// The settings for the Python side. Those that are not set for this job are removed, because they belong to an outer run.
pub(crate) const TO_PYTHON: [&str; 15] = [
    RECORD,
    JOB,
    RUN_NAME,
    LABELS,
    TRACE,
    TRACE_SECONDS,
    UNTIL_OOM,
    RATE,
    STEP_PEAKS,
    LIMIT,
    GROWTH,
    ALLOCATOR,
    STOP,
    FIX,
    STAND_IN,
];

/// Read and set: Python's module path; ours comes first.
pub(crate) const PYTHONPATH: &str = "PYTHONPATH";

/// Read and set (`--gpus`): the devices that the job can use; empty or -1 for none.
pub(crate) const CUDA_VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// Read and set (`--growth`): TensorFlow, exactly `true` or `false`.
pub(crate) const TF_FORCE_GPU_ALLOW_GROWTH: &str = "TF_FORCE_GPU_ALLOW_GROWTH";
/// Read and set (`--growth`): JAX; `false`, `False` and `0` mean that the pool grows.
pub(crate) const XLA_PREALLOCATE: &str = "XLA_PYTHON_CLIENT_PREALLOCATE";
/// Read and set (`--allocator`): TensorFlow.
pub(crate) const TF_GPU_ALLOCATOR: &str = "TF_GPU_ALLOCATOR";
/// Read and set (`--allocator`): JAX.
pub(crate) const XLA_ALLOCATOR: &str = "XLA_PYTHON_CLIENT_ALLOCATOR";
/// Read and set (`--allocator`): PyTorch, `key:value` pairs. The first of these names that is set counts.
pub(crate) const TORCH_CONF: [&str; 3] =
    ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];
/// Read (`--limit`): JAX's limits, as a fraction of the device.
pub(crate) const XLA_FRACTIONS: [&str; 2] = ["XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION"];
/// Read and set (`plan`, to keep compiled programs): XLA's flags. A value that does not begin with a dash is the name of a file with flags.
pub(crate) const XLA_FLAGS: &str = "XLA_FLAGS";
/// Set (`plan`, to keep compiled programs): whether JAX uses its cache of programs.
pub(crate) const JAX_CACHE: &str = "JAX_ENABLE_COMPILATION_CACHE";
/// Read and set (without a GPU): TensorFlow's pool allocator on the CPU.
pub(crate) const TF_CPU_BFC: &str = "TF_CPU_ALLOCATOR_USE_BFC";
/// Read and set (`--limit` without a GPU): the limit of that pool, in MiB.
pub(crate) const TF_CPU_BFC_LIMIT: &str = "TF_CPU_BFC_MEM_LIMIT_IN_MB";
/// Set (`verify --fix one-thread`): number of ops that TensorFlow runs at a time.
pub(crate) const TF_INTEROP_THREADS: &str = "TF_NUM_INTEROP_THREADS";
/// Set (`verify --fix scratch-limit`): MiB of scratch memory for a convolution.
pub(crate) const TF_CUDNN_SCRATCH: &str = "TF_CUDNN_WORKSPACE_LIMIT_IN_MB";
