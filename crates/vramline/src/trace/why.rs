//! Why a trace tells little: which of the known reasons applies, by the evidence in the trace, and what to switch.

use super::{PoolTrace, Trace};
use crate::event::{DumpState, Framework, History};
use crate::units::thousands;
use crate::warning::Warning;

const TF_LEVEL: &str = "tf.profiler.experimental.start(logdir) records at level 2 by default; where something else \
                        records (a capture from outside, a callback), give it host_tracer_level=2";
const JAX_LEVEL: &str = "options = jax.profiler.ProfileOptions(); options.host_tracer_level = 2; \
                         jax.profiler.start_trace(logdir, profiler_options=options)";
const CPU_POOL: &str = "TF_CPU_ALLOCATOR_USE_BFC=1 in the environment, before TensorFlow is imported";
const FROM_START: &str =
    "start the profiler before the program's first tensor, and train a few steps inside it";

const TORCH_START: &str = "call torch.cuda.memory._record_memory_history() before the program's first tensor, and let \
                           max_entries be large enough for all of it";

const TORCH_DUMP: &str = "in the process that uses the GPU, call torch.cuda.memory._record_memory_history() before the program's \
                          first tensor, and torch.cuda.memory._dump_snapshot(file) while its tensors are alive";

/// Pools of TensorFlow's CPU allocators that are not the pool allocator.
const PLAIN_CPU: [&str; 4] = ["cpu", "mklcpu", "cpu_pool", "cpu_rdma_bfc"];

impl Trace {
    /// Why there are no memory events or, with a GPU at work, none of a GPU's pool; nothing where there are.
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

    /// Why little is known of a pool, where that is so: `unnamed` tells whether much of its peak has no name.
    #[must_use]
    pub(crate) fn why_little(&self, pool: &PoolTrace, unnamed: bool) -> Option<Warning> {
        let name = &self.history.pool(pool.id)?.name;
        if PLAIN_CPU.contains(&name.as_str()) {
            return Some(Warning {
                code: "plain-cpu-allocator",
                text: format!(
                    "'{name}' is TensorFlow's plain CPU allocator, not the pool allocator: it records few of its \
                     allocations and names few of those"
                ),
                hint: CPU_POOL.to_owned(),
            });
        }
        if unnamed && self.history.framework == Some(Framework::Jax) {
            return Some(Warning {
                code: "jax-no-op-names",
                text: format!(
                    "JAX's pools carry no op names: blocks of '{name}' are known by size, time and call only"
                ),
                hint: String::new(),
            });
        }
        None
    }

    /// That the trace ends in the middle of a step.
    #[must_use]
    pub(crate) fn why_cut(&self) -> Option<Warning> {
        self.steps.last().filter(|step| step.is_cut).map(|step| Warning {
            code: "cut-step",
            text: format!(
                "the trace ends in the middle of step {}: its peak may be higher than what is shown, and what its forward pass \
                 made is still held",
                step.number
            ),
            hint: "let the profiler run until a few steps have ended".to_owned(),
        })
    }

    /// That a snapshot knows of a pool what it held when it was taken, and not its peak.
    #[must_use]
    pub(crate) fn why_state(pool: &str, state: &DumpState) -> Warning {
        let what = match state.entries {
            0 => "no history".to_owned(),
            1 => "one entry of history, too little to know the peak".to_owned(),
            entries => {
                format!("{} entries of history, too few to know the peak", thousands(entries))
            }
        };
        Warning {
            code: "no-history",
            text: format!(
                "the snapshot holds {what} of {pool}: this is what was allocated when it was taken"
            ),
            hint: TORCH_START.to_owned(),
        }
    }

    /// What a window that began late does not show.
    #[must_use]
    pub(crate) fn why_before(&self, pool: &PoolTrace) -> Option<Warning> {
        (pool.count.from_start == Some(false)).then(|| Warning {
            code: "began-late",
            text: "the recording began after the pool's first allocation: what was there before is counted, not named"
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
        let text = "the snapshot is empty: PyTorch had no memory of a GPU when it was taken, and no history was recorded";
        return because("empty-snapshot", text.to_owned(), TORCH_DUMP);
    }
    if !recorder.has_host_threads {
        let what = if recorder.has_gpu { "it shows the device only" } else { "it shows no thread at all" };
        return because(
            "no-host-threads",
            format!("no memory events: {what}, and allocators record on host threads"),
            level_switch,
        );
    }
    if let Some(level) = recorder.host_tracer_level.filter(|&level| level < 2) {
        return because(
            "host-tracer-level",
            format!("no memory events: the host tracer level was {level}, and allocators record at level 2"),
            level_switch,
        );
    }
    if recorder.has_gpu {
        return silent_allocator(history);
    }
    match history.framework {
        Some(Framework::Jax) => because(
            "jax-cpu",
            "no memory events: JAX on the CPU has no pool allocator, so there is nothing to record"
                .to_owned(),
            "run on a GPU",
        ),
        _ if recorder.shows_tf_ops => because(
            "plain-cpu-allocator",
            "no memory events: TensorFlow's plain CPU allocator records none".to_owned(),
            CPU_POOL,
        ),
        _ => because(
            "nothing-allocated",
            "no memory events: nothing was allocated in the window".to_owned(),
            "record a window that holds whole steps",
        ),
    }
}

/// A GPU was at work, host threads were recorded, and yet no allocator of the GPU's told anything.
fn silent_allocator(history: &History) -> Warning {
    let jax = history.framework == Some(Framework::Jax);
    let (setting, silent) = if jax {
        ("XLA_PYTHON_CLIENT_ALLOCATOR", "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async or platform")
    } else {
        ("TF_GPU_ALLOCATOR", "TF_GPU_ALLOCATOR=cuda_malloc_async")
    };
    // Not every driver shows these calls to the profiler.
    if history.recorder.calls_malloc_async {
        return Warning {
            code: "cuda-malloc-async",
            text: "no events of a GPU's pool: the program allocates with cudaMallocAsync, which records none"
                .to_owned(),
            hint: format!("unset {setting} to use the pool allocator"),
        };
    }
    Warning {
        code: "silent-allocator",
        text: format!(
            "no events of a GPU's pool though the GPU was at work: the allocator is one that records none ({silent}), or \
             nothing was allocated in the window"
        ),
        hint: format!(
            "unset {setting} to use the pool allocator, and record a window that holds whole steps"
        ),
    }
}
