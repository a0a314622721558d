//! Assembly: the symbols that the job finds, and the wrappers.
//!
//! A wrapper must not disturb a call with any number of arguments, so it is no function of Rust. It keeps the six registers that have
//! arguments, asks [`call::enter`], and either jumps to the real function, as if it had never been there, or calls it with a copy of the
//! arguments on the stack and then tells [`call::leave`] the result. Wrapped functions take integers and pointers only, so no vector
//! register has an argument. One of them takes a struct of 64 bytes on the stack; 128 bytes are copied.

use core::arch::{global_asm, naked_asm};
use core::ffi::{CStr, c_char};

use crate::call::{self, SLOTS};
use crate::lookup;

// The wrappers, 16 bytes each. A wrapper's number is its distance from the first. `lea` has 7 bytes.
global_asm!(
    ".text",
    ".balign 16",
    "vramline_wrappers:",
    ".cfi_startproc",
    ".rept {slots}",
    ".balign 16",
    "lea r11, [rip - 7]",
    "jmp vramline_wrapper",
    ".endr",
    ".balign 16",
    "vramline_wrappers_end:",
    ".cfi_endproc",
    // r11: the address of the wrapper.
    "vramline_wrapper:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "sub rsp, 160",
    "mov [rsp], rdi",
    "mov [rsp + 8], rsi",
    "mov [rsp + 16], rdx",
    "mov [rsp + 24], rcx",
    "mov [rsp + 32], r8",
    "mov [rsp + 40], r9",
    "lea rax, [rip + vramline_wrappers]",
    "sub r11, rax",
    "shr r11, 4",
    "mov [rsp + 48], r11",
    "mov rax, [rbp + 8]",
    "mov [rsp + 56], rax",
    "lea rax, [rbp + 16]",
    "mov [rsp + 64], rax",
    "mov qword ptr [rsp + 72], 0",
    "2:",
    "mov rdi, rsp",
    "call {enter}",
    "test rax, rax",
    "jz 4f",
    "3:",
    "mov rdi, [rsp]",
    "mov rsi, [rsp + 8]",
    "mov r8, [rsp + 32]",
    "mov r9, [rsp + 40]",
    "mov rcx, [rsp + 24]",
    "mov r10, rdx",
    "mov rdx, [rsp + 16]",
    "test r10, r10",
    "jnz 5f",
    // Not measured: the job's call, as it was.
    ".cfi_remember_state",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "jmp rax",
    ".cfi_restore_state",
    // A symbol that was linked directly and is called for the first time.
    "4:",
    "mov rdi, rsp",
    "call {resolve}",
    "mov rdi, rsp",
    "call {enter}",
    "test rax, rax",
    "jnz 3b",
    // There is no driver: CUDA_ERROR_NOT_INITIALIZED. For NCCL: ncclInternalError.
    "mov eax, 3",
    ".cfi_remember_state",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_restore_state",
    "5:",
    "sub rsp, 128",
    "mov r11d, 16",
    "6:",
    "mov r10, [rbp + 8 + 8 * r11]",
    "mov [rsp - 8 + 8 * r11], r10",
    "dec r11d",
    "jnz 6b",
    "call rax",
    "add rsp, 128",
    "mov [rsp + 72], rax",
    "mov rdi, rsp",
    "call {leave}",
    "mov rax, [rsp + 72]",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    "vramline_nothing:",
    "xor eax, eax",
    "ret",
    slots = const SLOTS,
    enter = sym call::enter,
    leave = sym call::leave,
    resolve = sym lookup::resolve,
);

unsafe extern "C" {
    safe static vramline_wrappers: u8;
    safe static vramline_wrappers_end: u8;
    safe static vramline_nothing: u8;
}

/// The address of a wrapper.
pub(crate) fn address(place: usize) -> usize {
    (&raw const vramline_wrappers as usize).wrapping_add(place.wrapping_mul(16))
}

/// Whether an address is a wrapper, or one of the symbols below.
pub(crate) fn is_ours(address: usize) -> bool {
    let wrappers = &raw const vramline_wrappers as usize..&raw const vramline_wrappers_end as usize;
    wrappers.contains(&address) || SYMBOLS.iter().any(|symbol| *symbol as usize == address)
}

/// A function that returns null.
pub(crate) fn nothing() -> usize {
    &raw const vramline_nothing as usize
}

/// `dlsym`. Only names of the driver's functions are handled here: the C library looks at who calls it, so everything else has to reach it
/// by a jump, with the caller's return address.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dlsym(handle: usize, name: *const c_char) -> usize {
    naked_asm!(
        ".cfi_startproc",
        "test rsi, rsi",
        "jz 2f",
        // "cu" or "nc".
        "cmp byte ptr [rsi], 99",
        "je 4f",
        "cmp byte ptr [rsi], 110",
        "jne 2f",
        "cmp byte ptr [rsi + 1], 99",
        "jne 2f",
        "jmp 5f",
        "4:",
        "cmp byte ptr [rsi + 1], 117",
        "jne 2f",
        "5:",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {wanted}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "test rax, rax",
        "jz 2f",
        "jmp {found}",
        "2:",
        "mov rax, [rip + {next}]",
        "test rax, rax",
        "jz 3f",
        "jmp rax",
        "3:",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "push rsi",
        ".cfi_adjust_cfa_offset 8",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 8",
        "call {look}",
        "add rsp, 8",
        ".cfi_adjust_cfa_offset -8",
        "pop rsi",
        ".cfi_adjust_cfa_offset -8",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "jmp rax",
        ".cfi_endproc",
        wanted = sym lookup::is_wanted,
        found = sym lookup::found,
        next = sym lookup::NEXT,
        look = sym lookup::next,
    )
}

/// Declares symbols of the driver and of NCCL. The first has the first wrapper, and so on.
macro_rules! symbols {
    ($($name:ident)*) => {
        /// The symbols of the driver that a program may be linked with.
        pub(crate) static NAMES: [&CStr; const { TEXTS.len() }] =
            [$(
                // SAFETY: the text ends with its only zero byte.
                unsafe { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) }
            ),*];

        const TEXTS: &[&str] = &[$(stringify!($name)),*];

        static SYMBOLS: [unsafe extern "C" fn(); const { TEXTS.len() }] = [$($name),*];

        $(
            /// A function of the driver.
            #[allow(non_snake_case)]
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name() {
                naked_asm!("jmp vramline_wrappers + 16 * {place}", place = const place_of(stringify!($name)))
            }
        )*
    };
}

/// The place of a symbol among all, found when this is compiled.
#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a wrong place would not compile"
)]
const fn place_of(name: &str) -> usize {
    let mut place = 0;
    while place < TEXTS.len() {
        let (one, other) = (TEXTS[place].as_bytes(), name.as_bytes());
        let mut same = 0;
        while same < one.len() && same < other.len() && one[same] == other[same] {
            same += 1;
        }
        if same == one.len() && same == other.len() {
            return place;
        }
        place += 1;
    }
    TEXTS.len()
}

// Every function of the table by the names under which the headers of CUDA 11 to 13 link it, except copies and fills.
// Those of NCCL as well.
symbols! {
    cuGetProcAddress cuGetProcAddress_v2 cuInit cuDevicePrimaryCtxRetain cuDevicePrimaryCtxRelease_v2
    cuDevicePrimaryCtxReset_v2 cuCtxCreate_v2 cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy_v2 cuCtxDetach cuCtxSetLimit
    cuCtxSetCurrent cuCtxPushCurrent_v2 cuCtxSetFlags cuCtxSetCacheConfig cuCtxSetSharedMemConfig
    cuCtxResetPersistingL2Cache cuCtxEnablePeerAccess cuCtxDisablePeerAccess cuGreenCtxCreate cuGreenCtxDestroy
    cuGreenCtxStreamCreate cuCtxFromGreenCtx cuCheckpointProcessLock cuCheckpointProcessCheckpoint
    cuCheckpointProcessRestore cuCheckpointProcessUnlock cuProfilerStart cuProfilerStop cuModuleLoad cuModuleLoadData
    cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload cuModuleGetFunction cuModuleGetGlobal_v2 cuModuleGetTexRef
    cuModuleGetSurfRef cuModuleEnumerateFunctions cuLibraryLoadData cuLibraryLoadFromFile cuLibraryUnload
    cuLibraryGetKernel cuLibraryGetModule cuLibraryGetGlobal cuLibraryGetManaged cuLibraryGetUnifiedFunction
    cuLibraryEnumerateKernels cuKernelGetFunction cuKernelSetAttribute cuKernelGetAttribute cuKernelSetCacheConfig
    cuKernelGetName cuKernelGetParamInfo cuFuncLoad cuFuncGetAttribute cuFuncSetAttribute cuFuncSetCacheConfig
    cuFuncSetSharedMemConfig cuFuncGetModule cuFuncGetName cuFuncGetParamInfo
    cuOccupancyMaxActiveBlocksPerMultiprocessor cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags
    cuOccupancyMaxPotentialBlockSize cuOccupancyMaxPotentialBlockSizeWithFlags cuOccupancyAvailableDynamicSMemPerBlock
    cuOccupancyMaxPotentialClusterSize cuOccupancyMaxActiveClusters cuLaunchKernel cuLaunchKernel_ptsz
    cuLaunchKernelEx cuLaunchKernelEx_ptsz cuLaunchCooperativeKernel cuLaunchCooperativeKernel_ptsz
    cuLaunchCooperativeKernelMultiDevice cuLaunch cuLaunchGrid cuLaunchGridAsync cuLaunchHostFunc
    cuLaunchHostFunc_ptsz cuStreamAddCallback cuStreamAddCallback_ptsz cuGraphLaunch cuGraphLaunch_ptsz cuMemAlloc_v2
    cuMemAllocPitch_v2 cuMemAllocManaged cuMemFree_v2 cuMemCreate cuMemRelease cuMemRetainAllocationHandle
    cuMemAddressReserve cuMemAddressFree cuMemMap cuMemMapArrayAsync cuMemMapArrayAsync_ptsz cuMemUnmap cuMemSetAccess
    cuMemImportFromShareableHandle cuMemExportToShareableHandle cuMemGetHandleForAddressRange cuMemAdvise_v2
    cuMemAdvise cuMemPrefetchAsync_v2 cuMemPrefetchAsync cuMemPrefetchAsync_v2_ptsz cuMemPrefetchBatchAsync
    cuMemPrefetchBatchAsync_ptsz cuMemDiscardBatchAsync cuMemDiscardBatchAsync_ptsz cuMemDiscardAndPrefetchBatchAsync
    cuMemDiscardAndPrefetchBatchAsync_ptsz cuStreamAttachMemAsync cuStreamAttachMemAsync_ptsz cuMulticastCreate
    cuMulticastAddDevice cuMulticastBindMem_v2 cuMulticastBindMem cuMulticastBindAddr_v2 cuMulticastBindAddr
    cuMulticastUnbind cuIpcOpenMemHandle_v2 cuIpcCloseMemHandle cuIpcGetMemHandle cuIpcOpenEventHandle
    cuIpcGetEventHandle cuImportExternalMemory cuDestroyExternalMemory cuExternalMemoryGetMappedBuffer
    cuExternalMemoryGetMappedMipmappedArray cuImportExternalSemaphore cuDestroyExternalSemaphore
    cuGraphicsUnregisterResource cuGraphicsMapResources cuGraphicsMapResources_ptsz cuGraphicsUnmapResources
    cuGraphicsUnmapResources_ptsz cuMemAllocAsync cuMemAllocAsync_ptsz cuMemAllocFromPoolAsync
    cuMemAllocFromPoolAsync_ptsz cuMemFreeAsync cuMemFreeAsync_ptsz cuMemPoolCreate cuMemPoolDestroy cuMemPoolTrimTo
    cuMemPoolSetAttribute cuMemPoolSetAccess cuMemPoolExportToShareableHandle cuMemPoolImportFromShareableHandle
    cuMemPoolExportPointer cuMemPoolImportPointer cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuMemGetDefaultMemPool
    cuMemGetMemPool cuDeviceSetMemPool cuMemSetMemPool cuMemHostAlloc cuMemAllocHost_v2 cuMemFreeHost
    cuMemHostRegister_v2 cuMemHostUnregister cuArrayCreate_v2 cuArray3DCreate_v2 cuArrayDestroy cuMipmappedArrayCreate
    cuMipmappedArrayDestroy cuTexObjectCreate cuTexObjectDestroy cuSurfObjectCreate cuSurfObjectDestroy cuTexRefCreate
    cuTexRefDestroy cuStreamCreate cuStreamCreateWithPriority cuStreamDestroy_v2 cuEventCreate cuEventDestroy_v2
    cuStreamBeginCapture_v2 cuStreamBeginCapture cuStreamBeginCapture_v2_ptsz cuStreamBeginCaptureToGraph
    cuStreamBeginCaptureToGraph_ptsz cuStreamEndCapture cuStreamEndCapture_ptsz cuGraphInstantiate_v2
    cuGraphInstantiateWithFlags cuGraphInstantiateWithParams cuGraphInstantiateWithParams_ptsz cuGraphUpload
    cuGraphUpload_ptsz cuGraphExecDestroy cuGraphClone cuGraphDestroy cuGraphAddKernelNode_v2 cuGraphAddKernelNode
    cuGraphAddNode_v2 cuGraphAddNode cuGraphAddMemAllocNode cuGraphAddMemFreeNode cuGraphConditionalHandleCreate
    cuGraphExecUpdate_v2 cuGraphExecUpdate cuGraphExecKernelNodeSetParams_v2 cuGraphExecKernelNodeSetParams
    cuGraphExecNodeSetParams cuDeviceGraphMemTrim cuDeviceSetGraphMemAttribute cuCtxSynchronize_v2 cuCtxSynchronize
    cuStreamSynchronize cuStreamSynchronize_ptsz cuStreamQuery cuStreamQuery_ptsz cuStreamWaitEvent
    cuStreamWaitEvent_ptsz cuEventRecord cuEventRecord_ptsz cuEventRecordWithFlags cuEventRecordWithFlags_ptsz
    cuEventSynchronize cuEventQuery
    ncclAllReduce ncclBroadcast ncclReduce ncclAllGather ncclReduceScatter ncclSend ncclRecv ncclCommFinalize ncclCommDestroy
}
