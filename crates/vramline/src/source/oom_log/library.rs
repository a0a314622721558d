//! Failures that libraries tell: CUDA's own errors, handles of cuBLAS and cuDNN, NCCL, CuPy, ONNX Runtime and others; and of the host.
//!
//! Most have no figures. A failure without figures is still a failure: what it does not say is for others to ask for.

use super::said::{Line, Reading, Said, Sentence};
use super::sizes::{Writer, number, size};
use super::text::{after, cut, find, part_begins};
use super::{engines, prose};
use crate::failure::{Dialect, Platform, SizeRange};
use crate::units::Bytes;

/// Sentences without figures, and whose they are.
const BARE: [(&[u8], &str, Platform); 42] = [
    (b"CUDAerror:outofmemory", "CUDA", Platform::Cuda),
    (b"CUDAdrivererror:outofmemory", "CUDA", Platform::Cuda),
    (b"cudaruntimeerror(2):outofmemory", "CUDA", Platform::Cuda),
    (b"error=2:outofmemory", "CUDA", Platform::Cuda),
    (b"cudafailedwitherror2outofmemory", "CUDA", Platform::Cuda),
    (b"CUDAfailedwitherroroutofmemory", "CUDA", Platform::Cuda),
    (b"CudaErrorinallocate:2(outofmemory)", "TensorRT", Platform::Cuda),
    (b"cudaMallocfailed:outofmemory", "CUDA", Platform::Cuda),
    (b"cudaMallocretryfailed:outofmemory", "CUDA", Platform::Cuda),
    (b"CudaError:outofmemory", "CUDA", Platform::Cuda),
    (b"cuMemAllocfailed:outofmemory", "CUDA", Platform::Cuda),
    (b"cudaSuccess(2vs.0)outofmemory", "CUDA", Platform::Cuda),
    (b"CUresulterrorresult=2file", "CUDA", Platform::Cuda),
    (b"cudaErrorMemoryAllocation:outofmemory", "CUDA", Platform::Cuda),
    (b"cudaErrorMemoryAllocationoutofmemory", "RMM", Platform::Cuda),
    (b"HIPerror:outofmemory", "HIP", Platform::Hip),
    (b"hipErrorOutOfMemory", "HIP", Platform::Hip),
    (b"HIP_ERROR_OutOfMemory", "HIP", Platform::Hip),
    (b"UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY", "Level Zero", Platform::Xpu),
    (b"Memory_Allocation_Failure(EL0004)", "Ascend", Platform::Npu),
    (b"CUBLAS_STATUS_ALLOC_FAILED", "cuBLAS", Platform::Cuda),
    (b"CUDNN_STATUS_ALLOC_FAILED", "cuDNN", Platform::Cuda),
    (b"CUSPARSE_STATUS_ALLOC_FAILED", "cuSPARSE", Platform::Cuda),
    (b"CUSOLVER_STATUS_ALLOC_FAILED", "cuSOLVER", Platform::Cuda),
    (b"CUFFT_ALLOC_FAILED", "cuFFT", Platform::Cuda),
    (b"whencalling`cusolverDnCreate(handle)`", "cuSOLVER", Platform::Cuda),
    (b"Cudafailure'outofmemory'", "NCCL", Platform::Cuda),
    (b"Cudafailure2'outofmemory'", "NCCL", Platform::Cuda),
    (b"Dsttensorisnotinitialized", "TensorFlow", Platform::Cuda),
    (b"Failedtoallocatescratchbufferfordevice", "TensorFlow", Platform::Cuda),
    (b"failedtoallocatethescratchspace", "cuDNN", Platform::Cuda),
    (b"Erroroutofmemoryatline", "bitsandbytes", Platform::Cuda),
    (b"Domain=MTLCommandBufferErrorDomainCode=8", "Metal", Platform::Metal),
    (b"Allocationisoutofdevicememoryoncurrentplatform", "SYCL", Platform::Xpu),
    (b"UR_RESULT_ERROR_OUT_OF_RESOURCES", "Level Zero", Platform::Xpu),
    (b"PI_ERROR_OUT_OF_RESOURCES", "Level Zero", Platform::Xpu),
    (b"MEM_OBJECT_ALLOCATION_FAILURE", "OpenCL", Platform::Other),
    (b"CNMEM_STATUS_OUT_OF_MEMORY", "CNMeM", Platform::Cuda),
    (b"Noexecutablebatchsizefound,reachedzero", "Accelerate", Platform::Cuda),
    (b"Noavailablememoryforthecacheblocks", "vLLM", Platform::Cuda),
    (b"Triedtoallocatemorethan1EBmemory", "PyTorch", Platform::Cuda),
    (b"prefilltokens.Youneedtodecrease", "Text Generation Inference", Platform::Cuda),
];

/// A failure in a library's own words.
pub(crate) fn sentence(line: &Line<'_>, message: &[u8]) -> Reading {
    const READERS: [fn(&Line<'_>, &[u8]) -> Reading; 11] =
        [nccl, cupy, onnx, engines::sentence, paddle, xgboost, julia, serving, gaudi, metal, host];
    for reader in READERS {
        match reader(line, message) {
            Reading::Foreign => {}
            found => return found,
        }
    }
    without_figures(line, message).map_or(Reading::Foreign, says)
}

/// What a sentence tells that was cut for good.
pub(crate) fn salvage(line: &Line<'_>, message: &[u8]) -> Option<Said> {
    const WHOSE: [(&[u8], &str, Platform); 5] = [
        (b"OutofmemoryerroronGPU", "PaddlePaddle", Platform::Cuda),
        (b"OutofGPUmemorytryingtoallocate", "CUDA.jl", Platform::Cuda),
        (b"Outofmemorywhiletryingtoallocate", "XLA", Platform::Other),
        (b"Failedtoallocaterequestfor", "XLA", Platform::Other),
        (b"outofmemoryinmemoryspacehbm", "TPU", Platform::Tpu),
    ];
    let known = WHOSE.iter().find(|(words, ..)| find(message, words).is_some());
    let cut = known.map(|(_, library, platform)| bare(library, *platform));
    without_figures(line, message).or(cut).map(Sentence::said)
}

fn without_figures(line: &Line<'_>, message: &[u8]) -> Option<Sentence> {
    for (words, library, platform) in BARE {
        if let Some(at) = find(message, words) {
            let is_survived = goes_on(message);
            let is_event = !prose::is_about(line, at, words.len());
            return is_event.then(|| Sentence { is_survived, ..bare(library, platform) });
        }
    }
    // Whoever calls the driver passes its code on; starting the driver needs the host's memory.
    const CODE: &[u8] = b"CUDA_ERROR_OUT_OF_MEMORY";
    let at = find(message, CODE)?;
    if find(message, b"cuInit").is_some() || prose::is_about(line, at, CODE.len()) {
        return None;
    }
    let mut sentence = bare("CUDA", Platform::Cuda);
    // Before anything of the job was there.
    sentence.is_at_start = find(message, b"cuDevicePrimaryCtxRetain").is_some();
    Some(sentence)
}

pub(crate) fn bare(library: &'static str, platform: Platform) -> Sentence {
    Sentence { library: Some(library), platform: Some(platform), ..Sentence::new(Dialect::Library) }
}

pub(crate) fn says(sentence: Sentence) -> Reading {
    Reading::Says(sentence.said())
}

/// A whole number, perhaps with separators of thousands, and what follows it.
pub(crate) fn grouped(text: &[u8]) -> Option<(Bytes, &[u8])> {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b',').count();
    let digits: Vec<u8> = text.get(..length)?.iter().copied().filter(u8::is_ascii_digit).collect();
    let (value, rest) = number(&digits)?;
    rest.is_empty().then_some((Bytes(value), text.get(length..)?))
}

pub(crate) fn exact_after(text: &[u8], word: &[u8]) -> Option<SizeRange> {
    grouped(after(text, word)?).map(|(bytes, _)| SizeRange::exact(bytes))
}

pub(crate) fn size_after(text: &[u8], word: &[u8]) -> Option<SizeRange> {
    size(after(text, word)?, Writer::Torch).map(|(told, _)| told)
}

/// `Failed to CUDA calloc 6291456 bytes`.
fn nccl(_: &Line<'_>, message: &[u8]) -> Reading {
    const WORDS: [&[u8]; 2] = [b"FailedtoCUDAcallocasync", b"FailedtoCUDAcalloc"];
    match WORDS.iter().find_map(|word| exact_after(message, word)) {
        Some(requested) => says(Sentence { requested: Some(requested), ..bare("NCCL", Platform::Cuda) }),
        None => Reading::Foreign,
    }
}

/// `Out of memory allocating 25,600,000 bytes (allocated so far: 3,635,267,072 bytes, limit set to: 4,000,000,000 bytes).`
fn cupy(line: &Line<'_>, message: &[u8]) -> Reading {
    let mut sentence = bare("CuPy", Platform::Cuda);
    if let Some(rest) = after(message, b"outofmemorytoallocate") {
        sentence.requested = grouped(rest).map(|(bytes, _)| SizeRange::exact(bytes));
        // Until 6 the total counts the request too.
        let total = exact_after(rest, b"(total");
        sentence.allocated = total.zip(sentence.requested).map(|(total, requested)| total.minus(requested));
        return if sentence.requested.is_some() { says(sentence) } else { Reading::Foreign };
    }
    let Some(rest) = after(message, b"Outofmemoryallocating") else { return Reading::Foreign };
    let Some((bytes, behind)) = grouped(rest) else { return Reading::Foreign };
    let Some(behind) = behind.strip_prefix(b"bytes") else { return Reading::Foreign };
    if !behind.starts_with(b"(allocatedsofar:") {
        return Reading::Foreign;
    }
    if find(behind, b")").is_none() {
        return cut(line);
    }
    sentence.requested = Some(SizeRange::exact(bytes));
    sentence.allocated = exact_after(behind, b"(allocatedsofar:");
    sentence.limit = exact_after(behind, b"limitsetto:");
    sentence.is_limit_set = sentence.limit.is_some();
    says(sentence)
}

/// ONNX Runtime's arena.
fn onnx(_: &Line<'_>, message: &[u8]) -> Reading {
    let mut sentence = bare("ONNX Runtime", Platform::Other);
    if let Some(bytes) = exact_after(message, b"Failedtoallocatememoryforrequestedbufferofsize") {
        // A shape that is damaged gives any number.
        sentence.requested = Some(bytes).filter(|bytes| bytes.low < Bytes(1 << 50));
        return says(sentence);
    }
    let Some(rest) = after(message, b"Availablememoryof") else { return Reading::Foreign };
    let (Some((left, _)), Some(requested)) = (grouped(rest), exact_after(rest, b"requestedbytesof")) else {
        return Reading::Foreign;
    };
    // It is there only where `gpu_mem_limit` is set.
    sentence.requested = Some(requested);
    sentence.left = Some(SizeRange::exact(left));
    sentence.is_limit_set = true;
    says(sentence)
}

/// `Out of memory error on GPU 0. Cannot allocate 145.468994MB memory on GPU 0, 23.431824GB memory has been allocated and available memory is only 72.312500MB.`
fn paddle(line: &Line<'_>, message: &[u8]) -> Reading {
    let Some(rest) = after(message, b"OutofmemoryerroronGPU") else { return Reading::Foreign };
    let mut sentence = bare("PaddlePaddle", Platform::Cuda);
    sentence.device = number(rest).map(|(n, _)| format!("GPU:{n}"));
    let Some(requested) = size_after(rest, b"Cannotallocate") else {
        return if rest.len() < 40 { cut(line) } else { Reading::Foreign };
    };
    sentence.requested = Some(requested);
    let allocated = find(rest, b"memoryhasbeenallocated").and_then(|at| {
        let until = rest.get(..at)?;
        let from = until.iter().rposition(|byte| *byte == b',')?;
        size(until.get(from + 1..)?, Writer::Torch).map(|(told, _)| told)
    });
    let available =
        size_after(rest, b"availablememoryisonly").or_else(|| size_after(rest, b"availablememoryis"));
    // Figures of a driver that could not be asked.
    let is_sound = |told: &SizeRange| told.high > Bytes::ZERO && told.high < Bytes(1 << 42);
    sentence.allocated = allocated.filter(is_sound);
    sentence.memory.free = available.filter(is_sound);
    sentence.left = sentence.memory.free;
    sentence.cached = sentence.left.map(|_| SizeRange::exact(Bytes::ZERO));
    says(sentence)
}

/// `Memory allocation error on worker 0: ...`, then `- Free memory: 1203830784` and `- Requested memory: 4021616640`.
fn xgboost(line: &Line<'_>, message: &[u8]) -> Reading {
    let Some(rest) = after(message, b"Memoryallocationerroronworker") else { return Reading::Foreign };
    let told = |word: &[u8]| {
        let rest = after(rest, word)?;
        let exact = || grouped(rest).map(|(bytes, _)| SizeRange::exact(bytes));
        size(rest, Writer::Torch).map(|(told, _)| told).or_else(exact)
    };
    let (free, requested) = (told(b"Freememory:"), told(b"Requestedmemory:"));
    if requested.is_none() && rest.len() < 400 {
        return cut(line);
    }
    let mut sentence = bare("XGBoost", Platform::Cuda);
    (sentence.requested, sentence.memory.free, sentence.left) = (requested, free, free);
    (sentence.reserved, sentence.allocated) = (told(b"Reservedbythepool:"), told(b"Usedbythepool:"));
    says(sentence)
}

/// `Out of GPU memory trying to allocate 3.000 GiB`, then the usage of the GPU and of the pool.
fn julia(line: &Line<'_>, message: &[u8]) -> Reading {
    let Some(rest) = after(message, b"OutofGPUmemorytryingtoallocate") else { return Reading::Foreign };
    let Some((requested, _)) = size(rest, Writer::Torch) else { return cut(line) };
    let usage = after(rest, b"EffectiveGPUmemoryusage:").and_then(|rest| {
        let (used, rest) = size(rest.get(find(rest, b"(")? + 1..)?, Writer::Torch)?;
        let (total, _) = size(rest.strip_prefix(b"/")?, Writer::Torch)?;
        Some((used, total))
    });
    let pool = after(rest, b"Memorypoolusage:").and_then(|rest| {
        let (allocated, rest) = size(rest, Writer::Torch)?;
        let (reserved, rest) = size(rest.strip_prefix(b"(")?, Writer::Torch)?;
        rest.starts_with(b"reserved").then_some((allocated, reserved))
    });
    if pool.is_none() && rest.len() < 160 {
        return cut(line);
    }
    let mut sentence = bare("CUDA.jl", Platform::Cuda);
    sentence.requested = Some(requested);
    if let Some((used, total)) = usage {
        sentence.memory.total = Some(total);
        sentence.memory.free = Some(total.minus(used));
        sentence.left = sentence.memory.free;
    }
    if let Some((allocated, reserved)) = pool {
        (sentence.allocated, sentence.reserved) = (Some(allocated), Some(reserved));
    }
    says(sentence)
}

/// What servers of models check before they start.
fn serving(line: &Line<'_>, message: &[u8]) -> Reading {
    if let Some(rest) = after(message, b"Freememoryondevice") {
        let read = || {
            let rest = rest.get(find(rest, b"(")? + 1..)?;
            // "59.32/79.15 GiB": the first has the unit of the second.
            let slash = find(rest, b"/")?;
            let (total, behind) = size(rest.get(slash + 1..)?, Writer::Torch)?;
            let unit = rest.get(slash + 1..rest.len() - behind.len())?;
            let unit = unit.get(unit.iter().position(u8::is_ascii_alphabetic)?..)?;
            let (free, _) =
                size(&[rest.get(..slash)?, unit].concat(), Writer::Torch).map(|(told, _)| (told, ()))?;
            let wanted = after(behind, b"lessthandesiredGPUmemoryutilization(")?;
            let (wanted, _) = size(wanted.get(find(wanted, b",")? + 1..)?, Writer::Torch)?;
            Some((free, total, wanted))
        };
        let Some((free, total, wanted)) = read() else { return cut(line) };
        let mut sentence = bare("vLLM", Platform::Cuda);
        sentence.requested = Some(wanted);
        (sentence.memory.total, sentence.memory.free) = (Some(total), Some(free));
        (sentence.left, sentence.reserved) = (Some(free), Some(SizeRange::exact(Bytes::ZERO)));
        sentence.allocated = sentence.reserved;
        return says(sentence);
    }
    if let Some(at) = find(message, b"KVcacheisneeded,whichislargerthantheavailableKVcachememory(") {
        let head = message.get(..at).unwrap_or_default();
        let from = head.iter().rposition(|byte| matches!(byte, b'(' | b',')).map_or(0, |at| at + 1);
        let mut sentence = bare("vLLM", Platform::Cuda);
        sentence.requested =
            head.get(from..).and_then(|text| size(text, Writer::Torch)).map(|(told, _)| told);
        sentence.left = size_after(message, b"availableKVcachememory(");
        sentence.is_limit_set = true;
        return says(sentence);
    }
    if find(message, b"maximumnumberoftokensthatcanbestoredinKVcache").is_some() {
        return says(Sentence { is_limit_set: true, ..bare("vLLM", Platform::Cuda) });
    }
    if find(message, b"Notenoughmemory.Pleasetrytoincrease--mem-fraction-static").is_some() {
        return says(Sentence { is_limit_set: true, ..bare("SGLang", Platform::Cuda) });
    }
    if find(message, b"Maximumpoolsizeexceeded").is_some() && find(message, b"bad_alloc").is_some() {
        return says(Sentence { is_limit_set: true, ..bare("RMM", Platform::Cuda) });
    }
    Reading::Foreign
}

/// Intel's Gaudi: `MODULE:PT_DEVMEM Allocation failed for size::939524096 (896)MB`.
fn gaudi(_: &Line<'_>, message: &[u8]) -> Reading {
    match exact_after(message, b"PT_DEVMEMAllocationfailedforsize::") {
        Some(requested) => says(Sentence { requested: Some(requested), ..bare("Gaudi", Platform::Other) }),
        None => Reading::Foreign,
    }
}

/// MLX on Apple's devices.
fn metal(_: &Line<'_>, message: &[u8]) -> Reading {
    let mut sentence = bare("MLX", Platform::Metal);
    if let Some(requested) = exact_after(message, b"[malloc_or_wait]Unabletoallocate") {
        sentence.requested = Some(requested);
        return says(sentence);
    }
    let Some(requested) = exact_after(message, b"[metal::malloc]Attemptingtoallocate") else {
        return Reading::Foreign;
    };
    sentence.requested = Some(requested);
    sentence.limit = exact_after(message, b"maximumallowedbuffersizeof");
    sentence.left = sentence.limit;
    says(sentence)
}

/// The host's memory: a request that failed, or a process that the system killed.
fn host(_: &Line<'_>, message: &[u8]) -> Reading {
    const REFUSED: [&[u8]; 3] = [
        b"DefaultCPUAllocator:can'tallocatememory:youtriedtoallocate",
        b"DefaultCPUAllocator:notenoughmemory:youtriedtoallocate",
        b"Torch:notenoughmemory:youtriedtoallocate",
    ];
    if let Some(rest) = REFUSED.iter().find_map(|word| after(message, word)) {
        let mut sentence = bare("PyTorch", Platform::Host);
        let exact = grouped(rest).filter(|(_, rest)| rest.starts_with(b"bytes"));
        sentence.requested = exact.map(|(bytes, _)| SizeRange::exact(bytes));
        return says(sentence);
    }
    if find(message, b"posix_memalign(&data,gAlignment,nbytes)==0.12vs0").is_some() {
        return says(bare("PyTorch", Platform::Host));
    }
    // Pinned memory, which makes copies faster: programs go on without.
    if find(message, b"Failedtoallocatepinnedmemory").is_some() {
        return Reading::Says(Said::HostRefused);
    }
    if find(message, b"[Errno12]Cannotallocatememory").is_some() {
        return says(bare("the system", Platform::Host));
    }
    const KILLED: [&[u8]; 8] = [
        b"iskilledbysignal:Killed",
        b"oom-killevent",
        b"oom_killevent",
        b"Outofmemory:Killedprocess",
        b"Outofmemory:Killprocess",
        b"cgroupoutofmemory:Kill",
        b"Taskwaskilledduetothenoderunninglowonmemory",
        b"killedduetomemorypressure(OOM)",
    ];
    let is_killed = KILLED.iter().any(|words| find(message, words).is_some());
    if is_killed { Reading::Says(Said::HostKilled) } else { Reading::Foreign }
}

/// Memory on the chip itself, of one kernel: not the device's memory.
pub(crate) fn on_chip(_: &Line<'_>, message: &[u8]) -> Reading {
    const WORDS: [&[u8]; 7] = [
        b"outofmemoryinmemoryspacevmem",
        b"outofmemoryinmemoryspacesmem",
        b"outofmemoryinmemoryspacesflag",
        b"Insufficientscopedvmem",
        b"outofresource:sharedmemory",
        b"outofresource:registers",
        b"Sharedmemorysizelimitexceeded",
    ];
    let is_on_chip =
        |rest| [&b"space=vmem"[..], b"space=smem"].iter().any(|space| find(rest, space).is_some());
    let is_it = WORDS.iter().any(|words| find(message, words).is_some())
        || after(message, b"wouldexceedmemory(size=").is_some_and(is_on_chip);
    if is_it { Reading::Says(Said::OnChip) } else { Reading::Foreign }
}

/// A library could not start, which it does not blame on memory.
pub(crate) fn no_handle(_: &Line<'_>, message: &[u8]) -> Reading {
    const WORDS: [(&[u8], &str); 5] = [
        (b"failedtocreatecublashandle", "cuBLAS"),
        (b"Couldnotcreatecudnnhandle", "cuDNN"),
        (b"couldnotcreatecudnnhandle", "cuDNN"),
        (b"gpusolverDnCreate(&handle)failed", "cuSOLVER"),
        (b"FailedtocreatecuSolverDNinstance", "cuSOLVER"),
    ];
    let found = WORDS.iter().find(|(words, _)| find(message, words).is_some());
    found.map_or(Reading::Foreign, |(_, library)| Reading::Says(Said::NoHandle(library)))
}

/// The program says that it goes on after the failure before.
pub(crate) fn retried(_: &Line<'_>, message: &[u8]) -> Reading {
    if goes_on(message) { Reading::Says(Said::Retried) } else { Reading::Foreign }
}

/// Whether a program says that it goes on without what failed: it leaves a batch out, or tries a smaller one.
pub(crate) fn goes_on(message: &[u8]) -> bool {
    const WORDS: [&[u8]; 13] = [
        b"retryingwithoutpipelineparallelism",
        b"Skippingbatch",
        b"skippingbatch",
        b"Skippingthisbatch",
        b"skippingthisbatch",
        b"Skippingtactic",
        b"Ranoutofmemorywithexception",
        b"recoverfromOOM",
        b"Decreasingbatchsizeto",
        b"Reducingbatchsizeto",
        b"retryingwithasmaller",
        b"retryingwithtiled",
        b"fallingbackto",
    ];
    let has = |words: &[&[u8]]| words.iter().any(|words| find(message, words).is_some());
    has(&WORDS) || has(&[b"OOM"]) && has(&[b"skipping", b"Skipping", b"retrying", b"Retrying"])
}

/// The program died.
pub(crate) fn died(_: &Line<'_>, message: &[u8]) -> Reading {
    const WORDS: [&[u8]; 6] = [
        b"Traceback(mostrecentcalllast)",
        b"(coredumped)",
        b"terminatecalledafterthrowing",
        b"Checkfailed:",
        b"Segmentationfault",
        b"FatalPythonerror",
    ];
    let is_it = WORDS.iter().any(|words| find(message, words).is_some())
        || message == b"Aborted"
        || part_begins(b"***Checkfailurestacktrace", message) && message.len() > 20;
    if is_it { Reading::Says(Said::Died) } else { Reading::Foreign }
}
