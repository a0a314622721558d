//! Why a trace has few or no memory events: finds which of the known reasons applies, and names the setting to change.

use super::{PoolTrace, Trace};
use crate::event::{DumpState, Framework, History};
use crate::units::thousands;
use crate::warning::Warning;

const TF_LEVEL: &str = "set host_tracer_level=2 in the capture or callback that records; \
                        tf.profiler.experimental.start(logdir) uses level 2 by default";
const JAX_LEVEL: &str = "options = jax.profiler.ProfileOptions(); options.host_tracer_level = 2; \
                         jax.profiler.start_trace(logdir, profiler_options=options)";
const CPU_POOL: &str = "set TF_CPU_ALLOCATOR_USE_BFC=1 in the environment before TensorFlow is imported";
const FROM_START: &str =
    "start the profiler before the first tensor is created, and train a few steps while it runs";

const TORCH_START: &str = "call torch.cuda.memory._record_memory_history() before the first tensor is created, with \
                           max_entries large enough for the whole run";

const TORCH_DUMP: &str = "in the process that uses the GPU, call torch.cuda.memory._record_memory_history() before the first \
                          tensor is created, and torch.cuda.memory._dump_snapshot(file) while tensors are alive";

/// Names of TensorFlow's CPU allocators other than the pool allocator.
const PLAIN_CPU: [&str; 4] = ["cpu", "mklcpu", "cpu_pool", "cpu_rdma_bfc"];

impl Trace {
    /// Why there are no memory events or, if a GPU was used, none of a GPU pool; `None` if there are events.
    #[must_use]
    pub(crate) fn why_empty(&self) -> Option<Warning> {
        let history = &self.history;
        if history.events.is_empty() {
            let has_state = self
                .history
                .pools
                .iter()
                .any(|pool| pool.caching.as_ref().is_some_and(|caching| caching.state.is_some()));
            return (!has_state).then(|| why_empty(history));
        }
        let mut names =
            self.pools.iter().filter_map(|pool| history.pool(pool.id)).map(|pool| pool.name.as_str());
        let only_host = names.all(|name| name.contains("host"));
        (history.recorder.has_gpu && only_host).then(|| silent_allocator(history))
    }

    /// Why little is known about a pool, if that is the case. `unnamed`: whether much of its peak has no name.
    #[must_use]
    pub(crate) fn why_little(&self, pool: &PoolTrace, unnamed: bool) -> Option<Warning> {
        let name = &self.history.pool(pool.id)?.name;
        if PLAIN_CPU.contains(&name.as_str()) {
            return Some(Warning {
                code: "plain-cpu-allocator",
                text: format!(
                    "'{name}' is TensorFlow's plain CPU allocator, which records few allocations and names even fewer"
                ),
                hint: CPU_POOL.to_owned(),
            });
        }
        if unnamed && self.history.framework == Some(Framework::Jax) {
            return Some(Warning {
                code: "jax-no-op-names",
                text: format!(
                    "JAX does not report op names: blocks of '{name}' are known only by size, time and call"
                ),
                hint: String::new(),
            });
        }
        None
    }

    /// A warning that the trace ends in the middle of a step.
    #[must_use]
    pub(crate) fn why_cut(&self) -> Option<Warning> {
        self.steps.last().filter(|step| step.is_cut).map(|step| Warning {
            code: "cut-step",
            text: format!(
                "the trace ends in the middle of step {}: its real peak may be higher, and its activations are still allocated",
                step.number
            ),
            hint: "run the profiler until at least a few steps have ended".to_owned(),
        })
    }

    /// A warning that a snapshot shows what a pool held when it was taken, but not its peak.
    #[must_use]
    pub(crate) fn why_state(pool: &str, state: &DumpState) -> Warning {
        let what = match state.entries {
            0 => "no history".to_owned(),
            1 => "1 history entry, too few to know the peak".to_owned(),
            entries => {
                format!("{} history entries, too few to know the peak", thousands(entries))
            }
        };
        Warning {
            code: "no-history",
            text: format!(
                "the snapshot has {what} for {pool}: the report shows what was allocated when it was taken"
            ),
            hint: TORCH_START.to_owned(),
        }
    }

    /// A warning that the recording began late.
    #[must_use]
    pub(crate) fn why_before(&self, pool: &PoolTrace) -> Option<Warning> {
        (pool.count.from_start == Some(false)).then(|| Warning {
            code: "began-late",
            text: "the recording began after the pool's first allocation: earlier blocks are counted but have no names"
                .to_owned(),
            hint: if self.history.framework == Some(Framework::PyTorch) { TORCH_START } else { FROM_START }.to_owned(),
        })
    }
}

fn why_empty(history: &History) -> Warning {
    let recorder = &history.recorder;
    let level_switch = if history.framework == Some(Framework::Jax) { JAX_LEVEL } else { TF_LEVEL };
    let because = |code, text: String, hint: &str| Warning { code, text, hint: hint.to_owned() };
    if history.framework == Some(Framework::PyTorch) {
        let text = "the snapshot is empty: PyTorch held no GPU memory when it was taken, and no history was recorded";
        return because("empty-snapshot", text.to_owned(), TORCH_DUMP);
    }
    if !recorder.has_host_threads {
        let what = if recorder.has_gpu { "only the device" } else { "no thread" };
        return because(
            "no-host-threads",
            format!("no memory events: the trace shows {what}, but allocators record on host threads"),
            level_switch,
        );
    }
    if let Some(level) = recorder.host_tracer_level.filter(|&level| level < 2) {
        return because(
            "host-tracer-level",
            format!(
                "no memory events: the host tracer level was {level}, but allocators record only at level 2"
            ),
            level_switch,
        );
    }
    if recorder.has_gpu {
        return silent_allocator(history);
    }
    match history.framework {
        Some(Framework::Jax) => because(
            "jax-cpu",
            "no memory events: JAX has no pool allocator on the CPU".to_owned(),
            "run on a GPU",
        ),
        _ if recorder.shows_tf_ops => because(
            "plain-cpu-allocator",
            "no memory events: TensorFlow's plain CPU allocator records none".to_owned(),
            CPU_POOL,
        ),
        _ => because(
            "nothing-allocated",
            "no memory events: nothing was allocated during the trace".to_owned(),
            "record at least one whole step",
        ),
    }
}

/// A GPU was used and host threads were recorded, but no GPU allocator recorded an event.
fn silent_allocator(history: &History) -> Warning {
    let jax = history.framework == Some(Framework::Jax);
    let (setting, silent) = if jax {
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async or platform")
    } else {
        ("TF_GPU_ALLOCATOR", "TF_GPU_ALLOCATOR=cuda_malloc_async")
    };
    // Not every driver reports these calls to the profiler.
    if history.recorder.calls_malloc_async {
        return Warning {
            code: "cuda-malloc-async",
            text: "no events of a GPU pool: the program allocates with cudaMallocAsync, which records none"
                .to_owned(),
            hint: format!(
                "unset {setting} to use the pool allocator, or record with `vramline run --driver-trace on` to see the size of the pool"
            ),
        };
    }
    Warning {
        code: "silent-allocator",
        text: format!(
            "no events of a GPU pool although the GPU was used: its allocator records none ({silent}), or nothing was allocated \
             during the trace"
        ),
        hint: format!("unset {setting} to use the pool allocator, and record at least one whole step"),
    }
}
