//! Wordings of frameworks and libraries that are not in our fixtures: found in public issues and in the sources that print them, written
//! here with figures of our own. Each row says who writes so, since when, and what is true of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{more_wordings, torch_wordings};
use vramline::analysis::oom::oom;
use vramline::view::oom::OomReport;
use vramline::{OutOfMemory, Progress, read_failures};

/// What is right for a text.
pub(crate) struct Row {
    /// Who writes so, and in which versions.
    by: &'static str,
    text: &'static str,
    /// How many failures there are.
    failures: usize,
    /// All verdicts that are right for each of them; `none` where no figure decides.
    verdicts: &'static [&'static str],
    /// The exact request, where the text has it.
    requested: Option<u64>,
    /// What others hold, in MiB, where the text implies it.
    others_mib: Option<u64>,
}

pub(crate) const fn row(
    by: &'static str,
    text: &'static str,
    failures: usize,
    verdicts: &'static [&'static str],
    requested: Option<u64>,
) -> Row {
    Row { by, text, failures, verdicts, requested, others_mib: None }
}

pub(crate) const fn crowded(by: &'static str, text: &'static str, others_mib: u64) -> Row {
    Row { by, text, failures: 1, verdicts: &["device"], requested: None, others_mib: Some(others_mib) }
}

pub(crate) const NONE: &[&str] = &["none"];
pub(crate) const EXHAUSTED: &[&str] = &["exhausted"];
pub(crate) const FRAGMENTED: &[&str] = &["fragmented"];
pub(crate) const DEVICE: &[&str] = &["device"];
pub(crate) const LIMIT: &[&str] = &["limit"];

const ROWS: &[Row] = &[
    // --- TensorFlow ---
    row(
        "TensorFlow 1.12 on, the driver refuses and an op dies",
        "2019-07-21 23:23:06.228049: E tensorflow/stream_executor/cuda/cuda_driver.cc:828] failed to allocate 32.00M (33554432 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n2019-07-21 23:23:06.328049: F tensorflow/core/kernels/conv_ops.cc:100] Check failed: stream->parent()->GetBlasGemmAlgorithms\nAborted (core dumped)\n",
        1,
        DEVICE,
        Some(33_554_432),
    ),
    row(
        "TensorFlow 1.x, no context",
        "E tensorflow/core/common_runtime/direct_session.cc:135] Internal: failed initializing StreamExecutor for CUDA device ordinal 0: Internal: failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY; total memory reported: 18446744073648275456\ntensorflow.python.framework.errors_impl.InternalError: Failed to create session.\n",
        1,
        DEVICE,
        None,
    ),
    row(
        "TensorFlow 1.x to 2.x, a copy without a buffer",
        "tensorflow.python.framework.errors_impl.InternalError: Dst tensor is not initialized.\n\t [[{{node _arg_input/x-input_0_1}}]]\n",
        1,
        NONE,
        None,
    ),
    row(
        "TensorFlow 2.1, a scratch buffer",
        "tensorflow.python.framework.errors_impl.FailedPreconditionError: Failed to allocate scratch buffer for device 0\n",
        1,
        NONE,
        None,
    ),
    row(
        "TensorFlow, cuBLAS three times",
        "E tensorflow/stream_executor/cuda/cuda_blas.cc:226] failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED\nE tensorflow/stream_executor/cuda/cuda_blas.cc:226] failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED\nE tensorflow/stream_executor/cuda/cuda_blas.cc:226] failed to create cublas handle: CUBLAS_STATUS_ALLOC_FAILED\n",
        1,
        NONE,
        None,
    ),
    row(
        "TensorFlow 2.12, code without room",
        "Node: 'StatefulPartitionedCall'\nFailed to load in-memory CUBIN: CUDA_ERROR_OUT_OF_MEMORY: out of memory\n",
        1,
        NONE,
        None,
    ),
    row(
        "TensorFlow 2.5 on with CUDA's asynchronous pool",
        "2023-01-01 00:00:00.000001: E tensorflow/core/common_runtime/gpu/gpu_cudamallocasync_allocator.cc:288] gpu_async_0 cuMemAllocAsync failed to allocate 1225195446464 bytes: CUDA error: out of memory (CUDA_ERROR_OUT_OF_MEMORY)\n Reported by CUDA: Free memory/Total memory: 22635544576/85095874560\n2023-01-01 00:00:00.000002: E tensorflow/core/common_runtime/gpu/gpu_cudamallocasync_allocator.cc:291] Stats: \nLimit:                               0\nInUse:                     61982909300\n",
        1,
        EXHAUSTED,
        Some(1_225_195_446_464),
    ),
    row(
        "TensorFlow up to 1.4: no type",
        "W tensorflow/core/framework/op_kernel.cc:973] Resource exhausted: OOM when allocating tensor with shape[4096,4096]\n",
        1,
        NONE,
        None,
    ),
    row(
        "TensorFlow 1.4 to 1.14: no rounded size",
        "2018-06-09 22:01:01.762829: W tensorflow/core/common_runtime/bfc_allocator.cc:279] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.30GiB.  Current allocation summary follows.\n2018-06-09 22:01:01.862829: I tensorflow/core/common_runtime/bfc_allocator.cc:700] Sum Total of in-use chunks: 9.62GiB\n2018-06-09 22:01:01.862830: I tensorflow/core/common_runtime/bfc_allocator.cc:702] Stats: \nLimit:                 10968950375\nInUse:                 10329396224\nMaxInUse:              10614000000\nNumAllocs:                    5000\nMaxAllocSize:           3221225472\n",
        1,
        EXHAUSTED,
        None,
    ),
    // --- JAX, XLA, TPU ---
    row(
        "JAX 0.1, broken by a terminal",
        "E external/org_tensorflow/tensorflow/compiler/xla/python/local_client.cc:672] Execution of replica 0 failed: Resource exhausted: Out\nof memory while trying to allocate 5520758552 bytes.\n",
        1,
        NONE,
        Some(5_520_758_552),
    ),
    row(
        "JAX 0.1",
        "RuntimeError: Resource exhausted: Failed to allocate request for 87.48GiB (93935126000B) on device ordinal 0\n",
        1,
        NONE,
        Some(93_935_126_000),
    ),
    row(
        "JAX 0.7 on, with what XLA could not reduce",
        "W0000 00:00:1794708904.662684    4411 hlo_rematerialization.cc:3282] Can't reduce memory use below 193.77GiB (208059000000 bytes) by\nrematerialization; only reduced to 350.36GiB (376196186112 bytes), down from 350.36GiB (376196190000 bytes) originally\njax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 262.56GiB.\n  [executable_name='jit_train_step']\n",
        1,
        EXHAUSTED,
        None,
    ),
    row(
        "JAX 0.11: arguments alone are too large",
        "E1116 23:20:38.194766    1267 gpu_hlo_schedule.cc:1068] The byte size of input/output arguments (150022979588) exceeds the base limit (112583507968). This indicates an error in the calculation!\nW1116 23:20:48.234491    1267 bfc_allocator.cc:598] Allocator (GPU_0_bfc) ran out of memory trying to allocate 139.72GiB (rounded to 150022979584) from the lower end requested by op \nIf this is caused by memory fragmentation, the environment variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' may improve the situation.\nCurrent allocation summary follows.\njax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 139.72GiB with allocator GPU_0_bfc on device 0.\n",
        1,
        EXHAUSTED,
        None,
    ),
    row(
        "JAX 0.11: the driver refuses what the pool wants to grow by",
        "E1116 23:21:17.145156    1744 cuda_executor.cc:1365] [0] Failed to allocate device memory of 32.00GiB (34359738368 bytes): RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory\n=== Source Location Trace: ===\nexternal/xla+/xla/stream_executor/cuda/cuda_status.cc:45\n\nW1116 23:21:18.234491    1744 bfc_allocator.cc:598] Allocator (GPU_0_bfc) ran out of memory trying to allocate 18.60GiB (rounded to 19971597824) from the lower end requested by op \njax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 18.60GiB with allocator GPU_0_bfc on device 0.\n",
        1,
        DEVICE,
        None,
    ),
    row(
        "JAX 0.11: said to do no harm, then the program dies of it",
        "E1116 23:21:17.145156    1744 cuda_executor.cc:1365] [0] Failed to allocate device memory of 32.00GiB (34359738368 bytes): RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY: out of memory\nW1116 23:21:18.234491    1744 bfc_allocator.cc:371] Allocator (GPU_0_bfc) ran out of memory trying to allocate 13.96GiB from the lower end with freed_by_count=0. The caller indicates that this is not a failure, but this may mean that there could be performance gains if more memory were available.\njax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 13.96GiB with allocator GPU_0_bfc on device 0.\n",
        1,
        DEVICE,
        None,
    ),
    row(
        "TPU with two kinds of cores",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: TPU TensorCore Hbm usage: 34.82G, SparseCore Hbm usage 174.10G, exceeding available bytes: 95.74G\n",
        1,
        EXHAUSTED,
        None,
    ),
    row(
        "TPU, a program that is loaded",
        "XlaRuntimeError: RESOURCE_EXHAUSTED: Error loading program 'jit_step': Attempting to reserve 29.49G at the bottom of memory. That was not possible. There are 147.64M free, 0B reserved, and 147.64M reservable. Scope: unknown..: while running replica 0 and partition 34 of a replicated computation (other replicas may have failed as well).\n",
        1,
        EXHAUSTED,
        None,
    ),
    row(
        "TPU, in pieces by its own word",
        "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 3.98G. That was not possible. There are 5.20G free. The largest contiguous region of free memory is 2.10G due to fragmentation.; (0x0x0_HBM0)\n",
        1,
        FRAGMENTED,
        None,
    ),
    row(
        "TPU, broken after the size",
        "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 5.94M.\nThat was not possible. There are 4.20M free.; (0x0x0_HBM0)\n",
        1,
        EXHAUSTED,
        None,
    ),
    row(
        "TPU at compiling, a table below",
        "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 21.95G of 15.48G hbm.\n Exceeded hbm capacity by 6.47G.\n\nTotal hbm usage >= 22.47G:\n    reserved        530.00M\n    program          21.95G\n",
        1,
        EXHAUSTED,
        None,
    ),
    row(
        "IREE on AMD",
        "RESOURCE_EXHAUSTED; HIP driver error 'hipErrorOutOfMemory' (2): out of memory; while invoking native function hal.device.queue.alloca;\n",
        1,
        NONE,
        None,
    ),
    // --- Libraries ---
    row(
        "NCCL up to 2.18, two lines",
        "host1:3063028:3066152 [3] include/alloc.h:178 NCCL WARN Cuda failure 'out of memory'\nhost1:3063028:3066152 [3] include/alloc.h:185 NCCL WARN Failed to CUDA calloc 6291456 bytes\n",
        1,
        NONE,
        Some(6_291_456),
    ),
    row(
        "NCCL 2.19 on",
        "include/alloc.h:320 (ncclCuMemAlloc) NCCL WARN Cuda failure 2 'out of memory'\n",
        1,
        NONE,
        None,
    ),
    row(
        "ONNX Runtime's arena",
        "2024-09-05 15:15:49.9522079 [E:onnxruntime:, sequential_executor.cc:514 onnxruntime::ExecuteKernel] Non-zero status code returned while running FusedConv node. Name:'Conv_3' Status Message: bfc_arena.cc:376 onnxruntime::BFCArena::AllocateRawInternal Failed to allocate memory for requested buffer of size 643840\n",
        1,
        NONE,
        Some(643_840),
    ),
    row(
        "ONNX Runtime with gpu_mem_limit",
        "onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*, bool, onnxruntime::WaitNotificationFn) Available memory of 5513472 is smaller than requested bytes of 20751872\n",
        1,
        LIMIT,
        Some(20_751_872),
    ),
    row(
        "llama.cpp, three lines",
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9866.00 MiB on device 1: cudaMalloc failed: out of memory\nggml_gallocr_reserve_n: failed to allocate CUDA1 buffer of size 10345253120\nllama_model_load: error loading model: unable to allocate CUDA0 buffer\n",
        1,
        NONE,
        Some(10_345_253_120),
    ),
    row(
        "CuPy up to 6",
        "cupy.cuda.memory.OutOfMemoryError: out of memory to allocate 1073741824 bytes (total 12373894656 bytes)\n",
        1,
        NONE,
        Some(1_073_741_824),
    ),
    row(
        "CuPy 7 on",
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 25,600,000 bytes (allocated so far: 3,635,267,072 bytes).\n",
        1,
        NONE,
        Some(25_600_000),
    ),
    row(
        "CuPy 7 on with a limit",
        "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 200,000,000 bytes (allocated so far: 1,000,000,512 bytes, limit set to: 1,073,741,824 bytes).\n",
        1,
        LIMIT,
        Some(200_000_000),
    ),
    row(
        "RMM",
        "MemoryError: std::bad_alloc: CUDA error at: ../include/rmm/mr/device/cuda_memory_resource.hpp68: cudaErrorMemoryAllocation out of memory\n",
        1,
        NONE,
        None,
    ),
    row(
        "RMM, a pool that is full",
        "MemoryError: std::bad_alloc: out_of_memory: RMM failure at:/env/include/rmm/mr/device/pool_memory_resource.hpp:196: Maximum pool size exceeded\n",
        1,
        LIMIT,
        None,
    ),
    row(
        "Numba",
        "numba.cuda.cudadrv.driver.CudaAPIError: [2] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY\n",
        1,
        NONE,
        None,
    ),
    row(
        "PaddlePaddle 1.x",
        "Out of memory error on GPU 0. Cannot allocate 145.468994MB GPU memory, available memory is 72.312500MB.\n",
        1,
        EXHAUSTED,
        None,
    ),
    row(
        "PaddlePaddle 2.2 on",
        "Out of memory error on GPU 0. Cannot allocate 128.000000MB memory on GPU 0, 23.431824GB memory has been allocated and available memory is only 97.625000MB.\n",
        1,
        EXHAUSTED,
        None,
    ),
    row(
        "MXNet, broken by a terminal",
        "terminate called after throwing an instance of 'dmlc::Error'\n  what():  [10:44:35] src/engine/./threaded_engine.h:359: [10:44:35] src/storage/./pooled_storage_manager.h:107: cudaMalloc fail\ned: out of memory\n",
        1,
        NONE,
        None,
    ),
    row(
        "Caffe",
        "F0304 14:26:21.611594  4889 syncedmem.cpp:71] Check failed: error == cudaSuccess (2 vs. 0)  out of memory\n*** Check failure stack trace: ***\n",
        1,
        NONE,
        None,
    ),
    row(
        "XGBoost up to 2.0",
        "xgboost.core.XGBoostError: [10:01:02] /workspace/src/common/device_helpers.cuh:428: Memory allocation error on worker 0: std::bad_alloc: cudaErrorMemoryAllocation: out of memory\n- Free memory: 1203830784\n- Requested memory: 4021616640\n",
        1,
        EXHAUSTED,
        Some(4_021_616_640),
    ),
    row(
        "CUDA.jl",
        "ERROR: Out of GPU memory trying to allocate 3.000 GiB\nEffective GPU memory usage: 99.50% (7.544 GiB/7.582 GiB)\nMemory pool usage: 5.375 GiB (7.000 GiB reserved)\n",
        1,
        EXHAUSTED,
        None,
    ),
    row("PyCUDA", "MemoryError: cuMemAlloc failed: out of memory\n", 1, NONE, None),
    row(
        "torch_memory_saver",
        "[torch_memory_saver.cpp] CUresult error  result=2 file=csrc/torch_memory_saver.cpp func=cu_mem_create line=103\n",
        1,
        NONE,
        None,
    ),
    crowded(
        "vLLM at its start",
        "ValueError: Free memory on device (59.32/79.15 GiB) on startup is less than desired GPU memory utilization (0.9, 71.24 GiB). Decrease GPU memory utilization or reduce GPU memory used by other processes.\n",
        20_306,
    ),
    row(
        "vLLM, no cache",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n",
        1,
        NONE,
        None,
    ),
    row(
        "vLLM, a cache that is too small",
        "ValueError: To serve at least one request with the models's max seq len (32768), (8.00 GiB KV cache is needed, which is larger than the available KV cache memory (4.52 GiB). Try increasing `gpu_memory_utilization`\n",
        1,
        LIMIT,
        None,
    ),
    row(
        "SGLang",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: self.server_args.mem_fraction_static=0.84\n",
        1,
        LIMIT,
        None,
    ),
    row("Accelerate", "RuntimeError: No executable batch size found, reached zero.\n", 1, NONE, None),
    // --- Prefixes ---
    row(
        "torchrun, each line of a sentence marked",
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.62 GiB.\n[rank0]: GPU 0 has a total capacity of 31.35 GiB of which 1.42 GiB is free.\n[rank0]: Including non-PyTorch memory, this process has 29.92 GiB memory in use.\n[rank0]: Of the allocated memory 28.90 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.\n",
        1,
        EXHAUSTED,
        None,
    ),
    row(
        "two ranks, their lines mixed",
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.62 GiB.\n[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.62 GiB.\n[rank0]: GPU 0 has a total capacity of 31.35 GiB of which 1.42 GiB is free. Including non-PyTorch memory, this process has 29.92 GiB memory in use. Of the allocated memory 28.90 GiB is allocated by PyTorch,\n[rank1]: GPU 1 has a total capacity of 31.35 GiB of which 1.42 GiB is free. Including non-PyTorch memory, this process has 29.92 GiB memory in use. Of the allocated memory 28.90 GiB is allocated by PyTorch,\n[rank0]: and 20.00 MiB is reserved by PyTorch but unallocated.\n[rank1]: and 20.00 MiB is reserved by PyTorch but unallocated.\n",
        2,
        EXHAUSTED,
        None,
    ),
    row(
        "a logger with the time before each line",
        "2026-02-24 20:21:58 ERROR [core.py:160] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.62 GiB.\n2026-02-24 20:21:59 ERROR [core.py:160] GPU 0 has a total capacity of 31.35 GiB of which 1.42 GiB is free. Including non-PyTorch memory, this process has 29.92 GiB memory in use.\n2026-02-24 20:21:59 ERROR [core.py:160] Of the allocated memory 28.90 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.\n",
        1,
        EXHAUSTED,
        None,
    ),
    row(
        "Ray, and the same error once more without its mark",
        "(RayTrainWorker pid=3959, ip=10.0.0.7) torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB. GPU 0 has a total capacity of 12.20 GiB of which 10.00 MiB is free. Including non-PyTorch memory, this process has 12.18 GiB memory in use. Of the allocated memory 11.90 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 86.00 MiB. GPU 0 has a total capacity of 12.20 GiB of which 10.00 MiB is free. Including non-PyTorch memory, this process has 12.18 GiB memory in use. Of the allocated memory 11.90 GiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but unallocated.\n",
        1,
        EXHAUSTED,
        None,
    ),
    row(
        "docker compose",
        "deep-seek-1  | ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9866.00 MiB on device 1: cudaMalloc failed: out of memory\n",
        1,
        NONE,
        None,
    ),
];

/// Lines that look alike: no memory of a device failed, or the program went on.
const HARMLESS: &[&str] = &[
    "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 101376. Reducing block sizes or `num_stages` may help.\n",
    "XlaRuntimeError: RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 4194304, available: 101376\n",
    "RESOURCE_EXHAUSTED: Ran out of memory in memory space vmem while allocating on stack for %kernel.18\n",
    "Mosaic failed to compile TPU kernel: Insufficient scoped vmem: 44.05M > 32M\n",
    "2019-09-18 15:37:02.323090: W tensorflow/core/common_runtime/bfc_allocator.cc:237] Allocator (GPU_0_bfc) ran out of memory trying to allocate 2.25GiB with freed_by_count=0. The caller indicates that this is not a failure, but may mean that there could be performance gains if more memory were available.\n",
    "2017-09-18 15:37:02.323090: W tensorflow/core/common_runtime/bfc_allocator.cc:217] Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.15GiB. The caller indicates that this is not a failure, but may mean that there could be performance gains if more memory is available.\n",
    "[WARNING] [stage3.py:2391:step] 2 pytorch allocator cache flushes since last step. this happens when there is high memory pressure\n",
    "If you encounter CUDA out of memory, try to set --tile with a smaller number.\n",
    "Hint: If you want to see a list of allocated tensors when OOM happens, add report_tensor_allocations_upon_oom to RunOptions for current allocation info.\n",
    "Try using TF_GPU_ALLOCATOR=cuda_malloc_async. export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n",
    "| epoch 001: loss=6.2, oom=5.000, wps=1200; CUDA OOMs: 1  |  cudaMalloc retries: 1\n",
    "Creating BFCArena for Cuda with following configs: initial_chunk_size_bytes: 1048576 memory limit: 18446744073709551615\n",
    "numba.cuda.cudadrv.driver.CudaAPIError: [719] Call to cuMemAlloc results in CUDA_ERROR_LAUNCH_FAILED\n",
    "RuntimeError: CUDA error: an illegal memory access was encountered\n",
    "[12/09/2022-20:25:25] [TRT] [W] Skipping tactic 8 due to insufficient memory on requested size of 17179869184 detected for tactic 0x3c.\n",
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9866.00 MiB on device 1: cudaMalloc failed: out of memory\nW sched_reserve: compute buffer allocation failed, retrying without pipeline parallelism\n",
    "| WARNING: ran out of memory with exception: CUDA out of memory. Tried to allocate 1.50 GiB (GPU 0; 15.75 GiB total capacity; 11.71 GiB already allocated; 584.94 MiB free; 2.38 GiB cached);\n Skipping batch\n",
    "    raise torch.OutOfMemoryError(\"CUDA error: out of memory\")\n    except torch.cuda.OutOfMemoryError:\n",
    "    raise ValueError(\"No available memory for the cache blocks. \"\n",
    "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=191.batch cgroup. Some of your processes may have been killed by the cgroup out-of-memory handler.\n",
    "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n",
    "[  142.890123] Memory cgroup out of memory: Killed process 28914 (llama-server) total-vm:2418296kB, anon-rss:2048512kB\n",
    "E tensorflow/stream_executor/cuda/cuda_driver.cc:893] failed to alloc 966367744 bytes on host: CUDA_ERROR_OUT_OF_MEMORY: out of memory\nW ./tensorflow/core/common_runtime/gpu/gpu_host_allocator.h:44] could not allocate pinned host memory of size: 966367744\n",
    "2020-01-01 00:00:00.000001: I tensorflow/stream_executor/cuda/cuda_driver.cc:775] failed to allocate 1.00G (1073741824 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY: out of memory\nEpoch 1\nEpoch 2\nEpoch 3\nEpoch 4\nEpoch 5\nEpoch 6\n",
    "RuntimeError: THCudaCheck FAIL file=/pytorch/aten/src/THC/THCGeneral.cpp line=405 error=11 : invalid argument\n",
];

fn report(text: &str) -> OomReport {
    of_bytes(text.as_bytes())
}

fn of_bytes(bytes: &[u8]) -> OomReport {
    let failures = vramline::source::read_failures_in(bytes, Path::new("a.log")).unwrap();
    OomReport::from(&oom(&OutOfMemory { failures, ..OutOfMemory::default() }))
}

#[test]
fn every_wording_is_recognised() {
    let rows = || ROWS.iter().chain(torch_wordings::ROWS).chain(more_wordings::ROWS);
    assert!(rows().count() >= 150);
    let mut wrong = Vec::new();
    for row in rows() {
        // Alone, and in the middle of a log of something else.
        let noise = "step 17, loss 0.25\n".repeat(200);
        for text in [row.text.to_owned(), format!("{noise}{}", row.text)] {
            let report = report(&text);
            let told: Vec<&str> = report
                .failures
                .iter()
                .map(|failure| failure.verdict.map_or("none", |verdict| verdict.word()))
                .collect();
            let mib = |bytes: vramline::units::Bytes| bytes.0 >> 20;
            let first = report.failures.first();
            let is_right = told.len() == row.failures
                && told.iter().all(|verdict| row.verdicts.contains(verdict))
                && row.requested.is_none_or(|bytes| {
                    first.and_then(|first| first.requested_bytes).map(|told| told.0) == Some(bytes)
                })
                && row.others_mib.is_none_or(|others| {
                    first
                        .and_then(|first| first.other_processes_bytes)
                        .is_some_and(|told| mib(told).abs_diff(others) <= 12)
                });
            if !is_right {
                wrong.push(format!(
                    "{}: {told:?}, wanted {} of {:?}, requested {:?}, others {:?}: {}",
                    row.by,
                    row.failures,
                    row.verdicts,
                    first.and_then(|first| first.requested_bytes),
                    first.and_then(|first| first.other_processes_bytes).map(mib),
                    report.headline
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_looks_alike_is_no_failure() {
    let mut wrong = Vec::new();
    for text in HARMLESS.iter().chain(more_wordings::HARMLESS) {
        let report = report(text);
        if !report.failures.is_empty() {
            wrong.push(format!("{text}: {}", report.headline));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn advice_names_the_variables_of_its_platform() {
    for (word, own) in [("XPU", ""), ("HIP", "PYTORCH_HIP_ALLOC_CONF"), ("CUDA", "PYTORCH_CUDA_ALLOC_CONF")] {
        let text = format!(
            "torch.OutOfMemoryError: {word} out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which 1.00 GiB is free. Of the allocated memory 9.00 GiB is allocated by PyTorch, and 5.50 GiB is reserved by PyTorch but unallocated.\n"
        );
        let report = report(&text);
        let advice: String = report.failures[0].advice.iter().map(|advice| advice.text.as_str()).collect();
        assert_eq!(report.failures[0].verdict.map(|verdict| verdict.word()), Some("fragmented"));
        assert!(advice.contains(own), "{advice}");
        assert!(word == "CUDA" || !advice.contains("CUDA"), "{advice}");
    }
}

#[test]
fn a_process_that_holds_nothing_is_not_told_to_hold_less() {
    for free in ["630.00 MiB", "15.00 GiB"] {
        let text = format!(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 15.50 GiB. GPU 0 has a total capacity of 15.98 GiB of which {free} is free. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated.\n"
        );
        let report = report(&text);
        for advice in &report.failures[0].advice {
            assert!(!advice.text.contains("less at this moment"), "{}", advice.text);
        }
    }
}

#[test]
fn a_word_that_follows_by_chance_is_no_part_of_a_name() {
    let line = |shape: &str| {
        format!(
            "OOM when allocating tensor with shape[{shape}] and type float on /job:localhost/replica:0/task:0/device:CPU:0 by allocator bfc_cpu_allocator_for_gpu\n"
        )
    };
    let text = format!("{}SECOND\n{}", line("100,100"), line("200,100"));
    let report = report(&text);
    assert_eq!(report.failures.len(), 2, "{}", report.headline);
    for failure in &report.failures {
        assert_eq!(failure.allocator.as_deref(), Some("bfc_cpu_allocator_for_gpu"));
    }
}

/// Jobs that died on an H200, made by `tests/gpu/failures.py`: in each the true cause is known, because it was made on purpose.
#[test]
fn deaths_on_a_gpu_have_their_true_cause() {
    for (name, verdict, others_gib) in [
        ("torch2110_h200_oom_far.log", "exhausted", None),
        ("torch2110_h200_oom_pieces.log", "fragmented", None),
        ("torch2110_h200_oom_limit.log", "limit", None),
        ("torch2110_h200_oom_neighbour.log", "device", Some(105)),
        ("torch2110_h200_oom_leak.log", "exhausted", None),
        ("jax0112_h200_oom_far.log", "exhausted", None),
        ("jax0112_h200_oom_neighbour.log", "device", None),
    ] {
        let report = of_bytes(&std::fs::read(crate::fixture(name)).unwrap());
        let first = &report.failures[0];
        assert_eq!(first.verdict.map(|verdict| verdict.word()), Some(verdict), "{name}: {}", report.headline);
        if others_gib.is_some() {
            assert_eq!(first.other_processes_bytes.map(|bytes| bytes.0 >> 30), others_gib, "{name}");
        }
        let cause = match name {
            "torch2110_h200_oom_neighbour.log" => "other processes",
            "jax0112_h200_oom_neighbour.log" => "driver refused",
            _ => verdict,
        };
        assert!(report.headline.contains(cause) && !first.advice.is_empty(), "{name}: {}", report.headline);
    }
}

// --- Files of strangers, where they are ---

fn wild() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/wild");
    folder.join("expected.json").exists().then_some(folder)
}

#[test]
fn logs_of_strangers_are_understood() {
    let Some(folder) = wild() else { return };
    let expected: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("expected.json")).unwrap()).unwrap();
    let expected = expected.as_object().unwrap();
    assert!(expected.len() >= 36);
    let mut wrong = Vec::new();
    for (name, truth) in expected {
        let path = folder.join("log").join(name);
        let read = read_failures(std::slice::from_ref(&path), None, &Arc::new(Progress::default())).unwrap();
        let report = OomReport::from(&oom(&read));
        let told: Vec<serde_json::Value> =
            report.failures.iter().map(|failure| serde_json::to_value(failure.verdict).unwrap()).collect();
        let least = truth.get("failures_at_least").and_then(serde_json::Value::as_u64);
        let is_count = match least {
            Some(least) => told.len() as u64 >= least,
            None => Some(told.len() as u64) == truth["failures"].as_u64(),
        };
        let verdicts = truth.get("verdicts").and_then(serde_json::Value::as_array);
        let is_verdict = verdicts.is_none_or(|right| told.iter().all(|verdict| right.contains(verdict)));
        let first = report.failures.first();
        let requested = truth.get("requested_bytes").and_then(serde_json::Value::as_u64);
        let is_request = requested.is_none_or(|bytes| {
            first.and_then(|first| first.requested_bytes).map(|told| told.0) == Some(bytes)
        });
        let others = truth.get("others_gib").and_then(serde_json::Value::as_f64);
        #[expect(clippy::cast_precision_loss, reason = "compared to a tenth of a GiB")]
        let is_others = others.is_none_or(|gib| {
            let told = first.and_then(|first| first.other_processes_bytes).map_or(0.0, |told| told.0 as f64);
            (told / f64::from(1 << 30) - gib).abs() < 0.06
        });
        let soft = truth.get("soft").and_then(serde_json::Value::as_u64);
        let is_soft = soft.is_none_or(|count| report.soft.count == count);
        if !(is_count && is_verdict && is_request && is_others && is_soft) {
            wrong.push(format!("{name}: {told:?}, wanted {truth}: {}", report.headline));
        }
        // The same bytes through a pipe.
        assert_eq!(of_bytes(&std::fs::read(&path).unwrap()).headline, report.headline, "{name}");
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
