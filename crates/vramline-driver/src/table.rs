//! Which functions of the driver are wrapped, how often a call of each is measured, and where its arguments have sizes and handles.

/// How often calls of a function are measured and recorded.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// Every call is measured and recorded.
    Always,
    /// Every call is measured; it is recorded if memory changed or the call failed.
    IfChanged,
    /// The first call for each value of this argument is measured; it is recorded if memory changed. For calls that happen all the time,
    /// such as launches.
    FirstUse(usize),
    /// This many calls of the function are measured; they are recorded if memory changed. For copies and synchronisations.
    First(u32),
    /// The first [`MANY`] calls are measured and recorded.
    Many,
    /// Allocations from a pool, which happen all the time: only what the pool reserves is read, after the call; recorded if that
    /// changed, or if much was requested. The pool is the second handle, or the device's own pool where there is none.
    Pool,
    /// Memory that returns to a pool: as [`Pace::Pool`], but now and then only, as the pool gives nothing back at that moment.
    PoolFree,
    /// `cuGetProcAddress`: not measured; what it hands out is wrapped.
    Lookup,
    /// A call of NCCL with the communicator in this argument: not measured; the communicator may be asked about its memory before.
    Communicator(usize),
}

/// Number of measured calls of functions that are called all the time: the first ones load code and make buffers.
const FEW: u32 = 8;
/// Number of measured calls of functions that a program may call thousands of times, each of which may take memory.
const SOME: u32 = 256;
/// Number of measured calls with [`Pace::Many`].
pub(crate) const MANY: u32 = 512;

/// What an argument holds.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Value {
    /// Nothing.
    No,
    /// The argument itself.
    Is(usize),
    /// The argument points to it, once the call has succeeded.
    At(usize),
    /// Row length (which the argument points to) times this other argument.
    Rows(usize, usize),
    /// A field of the struct that the argument points to, at this offset.
    Field(usize, usize),
    /// The elements of an array with this many dimensions (2 or 3) times their size, from the description that is the second argument.
    Array(usize),
}

/// Handles of functions and graphs whose values may return for another one after the call.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Forgets {
    /// None.
    Nothing,
    /// The one in this argument.
    One(usize),
    /// All of a module, a library or a context, which are not known one by one.
    All,
}

/// The device of a call.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Place {
    /// That of the current context.
    Current,
    /// The argument.
    Argument(usize),
    /// The current context does not exist before the call.
    AfterCall,
}

/// A function of the driver, without the ending of its version.
pub(crate) struct Function {
    pub(crate) name: &'static str,
    pub(crate) pace: Pace,
    /// The bytes that were requested.
    pub(crate) bytes: Value,
    /// The address or handle that the call made or was given.
    pub(crate) handle: Value,
    /// A second handle: of memory that is mapped, of the pool, the module.
    pub(crate) other: Value,
    pub(crate) place: Place,
    pub(crate) forgets: Forgets,
    /// The call gives a device another pool of its own.
    pub(crate) sets_pool: bool,
    /// Number of captures of streams into graphs that the call begins (1) or ends (-1).
    pub(crate) captures: i32,
}

const fn function(name: &'static str, pace: Pace, bytes: Value, handle: Value) -> Function {
    Function {
        name,
        pace,
        bytes,
        handle,
        other: Value::No,
        place: Place::Current,
        forgets: Forgets::Nothing,
        sets_pool: false,
        captures: 0,
    }
}

impl Function {
    const fn other(mut self, value: Value) -> Function {
        self.other = value;
        self
    }

    const fn on(mut self, place: Place) -> Function {
        self.place = place;
        self
    }

    const fn forgets(mut self, handles: Forgets) -> Function {
        self.forgets = handles;
        self
    }

    const fn sets_pool(mut self) -> Function {
        self.sets_pool = true;
        self
    }

    const fn captures(mut self, count: i32) -> Function {
        self.captures = count;
        self
    }
}

use Forgets::{All, One};
use Pace::{Always, Communicator, First, FirstUse, IfChanged, Many, Pool, PoolFree};
use Place::{AfterCall, Argument};
use Value::{Array, At, Field, Is, No, Rows};

/// Number of functions.
pub(crate) const COUNT: usize = FUNCTIONS.len();

/// Place of `cuInit`, before which nothing may be asked of the driver.
pub(crate) const INIT: usize = 2;

/// Every wrapped function. Records name functions by their place here, and a record of its own tells the name.
///
/// Functions of `cuda.h` that are not here cannot take memory of a device (they query, or build descriptions on the host), or take
/// arguments that are not integers or pointers (`cuParamSetf`).
pub(crate) static FUNCTIONS: [Function; 231] = [
    function("", Always, No, No),
    function("cuGetProcAddress", Pace::Lookup, No, No),
    function("cuInit", Always, No, No).on(AfterCall),
    // Contexts and their limits.
    function("cuDevicePrimaryCtxRetain", IfChanged, No, At(0)).on(Argument(1)),
    function("cuDevicePrimaryCtxRelease", IfChanged, No, No).on(Argument(0)).forgets(All),
    function("cuDevicePrimaryCtxReset", Always, No, No).on(Argument(0)).forgets(All),
    function("cuCtxCreate", Always, No, At(0)).on(AfterCall),
    function("cuCtxDestroy", Always, No, Is(0)).forgets(All),
    function("cuCtxDetach", Always, No, Is(0)).forgets(All),
    function("cuCtxSetLimit", Always, Is(1), Is(0)),
    function("cuCtxSetCurrent", First(FEW), No, Is(0)).on(AfterCall),
    function("cuCtxPushCurrent", First(FEW), No, Is(0)).on(AfterCall),
    function("cuCtxSetFlags", IfChanged, No, No),
    function("cuCtxSetCacheConfig", IfChanged, No, No),
    function("cuCtxSetSharedMemConfig", IfChanged, No, No),
    function("cuCtxResetPersistingL2Cache", IfChanged, No, No),
    function("cuCtxEnablePeerAccess", Always, No, Is(0)),
    function("cuCtxDisablePeerAccess", Always, No, Is(0)),
    function("cuGreenCtxCreate", Always, No, At(0)).on(Argument(2)),
    function("cuGreenCtxDestroy", Always, No, Is(0)),
    function("cuGreenCtxStreamCreate", Always, No, At(0)).other(Is(1)),
    function("cuCtxFromGreenCtx", IfChanged, No, At(0)).other(Is(1)),
    // A checkpoint moves the memory of a process to the host, and back.
    function("cuCheckpointProcessLock", IfChanged, No, No),
    function("cuCheckpointProcessCheckpoint", Always, No, No),
    function("cuCheckpointProcessRestore", Always, No, No),
    function("cuCheckpointProcessUnlock", IfChanged, No, No),
    function("cuProfilerStart", IfChanged, No, No),
    function("cuProfilerStop", IfChanged, No, No),
    // Code.
    function("cuModuleLoad", Always, No, At(0)),
    function("cuModuleLoadData", Always, No, At(0)),
    function("cuModuleLoadDataEx", Always, No, At(0)),
    function("cuModuleLoadFatBinary", Always, No, At(0)),
    function("cuModuleUnload", Always, No, Is(0)).forgets(All),
    function("cuModuleGetFunction", IfChanged, No, At(0)).other(Is(1)),
    function("cuModuleGetGlobal", IfChanged, At(1), At(0)).other(Is(2)),
    function("cuModuleGetTexRef", IfChanged, No, At(0)).other(Is(1)),
    function("cuModuleGetSurfRef", IfChanged, No, At(0)).other(Is(1)),
    function("cuModuleEnumerateFunctions", IfChanged, No, Is(2)),
    function("cuLibraryLoadData", IfChanged, No, At(0)),
    function("cuLibraryLoadFromFile", IfChanged, No, At(0)),
    function("cuLibraryUnload", IfChanged, No, Is(0)).forgets(All),
    function("cuLibraryGetKernel", IfChanged, No, At(0)).other(Is(1)),
    function("cuLibraryGetModule", IfChanged, No, At(0)).other(Is(1)),
    function("cuLibraryGetGlobal", IfChanged, At(1), At(0)).other(Is(2)),
    function("cuLibraryGetManaged", IfChanged, At(1), At(0)).other(Is(2)),
    function("cuLibraryGetUnifiedFunction", IfChanged, No, At(0)).other(Is(1)),
    function("cuLibraryEnumerateKernels", IfChanged, No, Is(2)),
    function("cuKernelGetFunction", FirstUse(1), No, At(0)).other(Is(1)),
    function("cuKernelSetAttribute", FirstUse(2), No, Is(2)),
    function("cuKernelGetAttribute", FirstUse(2), No, Is(2)),
    function("cuKernelSetCacheConfig", FirstUse(0), No, Is(0)),
    function("cuKernelGetName", FirstUse(1), No, Is(1)),
    function("cuKernelGetParamInfo", FirstUse(0), No, Is(0)),
    function("cuFuncLoad", IfChanged, No, Is(0)),
    function("cuFuncGetAttribute", FirstUse(2), No, Is(2)),
    function("cuFuncSetAttribute", FirstUse(0), No, Is(0)),
    function("cuFuncSetCacheConfig", FirstUse(0), No, Is(0)),
    function("cuFuncSetSharedMemConfig", FirstUse(0), No, Is(0)),
    function("cuFuncGetModule", FirstUse(1), No, Is(1)),
    function("cuFuncGetName", FirstUse(1), No, Is(1)),
    function("cuFuncGetParamInfo", FirstUse(0), No, Is(0)),
    function("cuOccupancyMaxActiveBlocksPerMultiprocessor", FirstUse(1), No, Is(1)),
    function("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", FirstUse(1), No, Is(1)),
    function("cuOccupancyMaxPotentialBlockSize", FirstUse(2), No, Is(2)),
    function("cuOccupancyMaxPotentialBlockSizeWithFlags", FirstUse(2), No, Is(2)),
    function("cuOccupancyAvailableDynamicSMemPerBlock", FirstUse(1), No, Is(1)),
    function("cuOccupancyMaxPotentialClusterSize", FirstUse(1), No, Is(1)),
    function("cuOccupancyMaxActiveClusters", FirstUse(1), No, Is(1)),
    // Launches: the first of each function loads its code and may need more local memory.
    function("cuLaunchKernel", FirstUse(0), No, Is(0)),
    function("cuLaunchKernelEx", FirstUse(1), No, Is(1)),
    function("cuLaunchCooperativeKernel", FirstUse(0), No, Is(0)),
    function("cuLaunchCooperativeKernelMultiDevice", First(SOME), No, No),
    function("cuLaunch", FirstUse(0), No, Is(0)),
    function("cuLaunchGrid", FirstUse(0), No, Is(0)),
    function("cuLaunchGridAsync", FirstUse(0), No, Is(0)),
    function("cuLaunchHostFunc", First(FEW), No, No),
    function("cuStreamAddCallback", First(FEW), No, No),
    function("cuGraphLaunch", FirstUse(0), No, Is(0)),
    // Memory.
    function("cuMemAlloc", Always, Is(1), At(0)),
    function("cuMemAllocPitch", Always, Rows(1, 3), At(0)),
    function("cuMemAllocManaged", Always, Is(1), At(0)),
    function("cuMemFree", Always, No, Is(0)),
    function("cuMemCreate", Always, Is(1), At(0)),
    function("cuMemRelease", Always, No, Is(0)),
    function("cuMemRetainAllocationHandle", Always, No, At(0)).other(Is(1)),
    function("cuMemAddressReserve", IfChanged, Is(1), At(0)),
    function("cuMemAddressFree", IfChanged, Is(1), Is(0)),
    function("cuMemMap", Always, Is(1), Is(0)).other(Is(3)),
    function("cuMemMapArrayAsync", Always, No, Is(0)),
    function("cuMemUnmap", Always, Is(1), Is(0)),
    function("cuMemSetAccess", IfChanged, Is(1), Is(0)),
    function("cuMemImportFromShareableHandle", Always, No, At(0)),
    function("cuMemExportToShareableHandle", IfChanged, No, Is(1)),
    function("cuMemGetHandleForAddressRange", IfChanged, Is(2), Is(1)),
    // Managed memory moves to the device on request; what a kernel touches moves without a call.
    function("cuMemAdvise", IfChanged, Is(1), Is(0)),
    function("cuMemPrefetchAsync", IfChanged, Is(1), Is(0)),
    function("cuMemPrefetchBatchAsync", IfChanged, No, No),
    function("cuMemDiscardBatchAsync", IfChanged, No, No),
    function("cuMemDiscardAndPrefetchBatchAsync", IfChanged, No, No),
    function("cuStreamAttachMemAsync", IfChanged, Is(2), Is(1)),
    // Memory that several devices or processes share. The arguments of a binding differ between versions.
    function("cuMulticastCreate", Always, Field(1, 8), At(0)),
    function("cuMulticastAddDevice", Always, No, Is(0)),
    function("cuMulticastBindMem", Always, No, Is(0)),
    function("cuMulticastBindAddr", Always, No, Is(0)),
    function("cuMulticastUnbind", Always, Is(3), Is(0)),
    function("cuIpcOpenMemHandle", Always, No, At(0)),
    function("cuIpcCloseMemHandle", Always, No, Is(0)),
    function("cuIpcGetMemHandle", IfChanged, No, Is(1)),
    function("cuIpcOpenEventHandle", IfChanged, No, At(0)),
    function("cuIpcGetEventHandle", IfChanged, No, Is(1)),
    // Memory of other interfaces: Vulkan, OpenGL, EGL.
    function("cuImportExternalMemory", Always, Field(1, 24), At(0)),
    function("cuDestroyExternalMemory", Always, No, Is(0)),
    function("cuExternalMemoryGetMappedBuffer", Always, Field(2, 8), At(0)).other(Is(1)),
    function("cuExternalMemoryGetMappedMipmappedArray", Always, No, At(0)).other(Is(1)),
    function("cuImportExternalSemaphore", IfChanged, No, At(0)),
    function("cuDestroyExternalSemaphore", IfChanged, No, Is(0)),
    function("cuGraphicsGLRegisterBuffer", Always, No, At(0)),
    function("cuGraphicsGLRegisterImage", Always, No, At(0)),
    function("cuGraphicsEGLRegisterImage", Always, No, At(0)),
    function("cuGraphicsUnregisterResource", Always, No, Is(0)),
    function("cuGraphicsMapResources", First(SOME), No, No),
    function("cuGraphicsUnmapResources", First(SOME), No, No),
    function("cuGLCtxCreate", Always, No, At(0)).on(AfterCall),
    // Pools.
    function("cuMemAllocAsync", Pool, Is(1), At(0)),
    function("cuMemAllocFromPoolAsync", Pool, Is(1), At(0)).other(Is(2)),
    function("cuMemFreeAsync", PoolFree, No, Is(0)),
    function("cuMemPoolCreate", Always, No, At(0)),
    function("cuMemPoolDestroy", Always, No, Is(0)),
    function("cuMemPoolTrimTo", Always, No, Is(0)).other(Is(0)),
    function("cuMemPoolSetAttribute", IfChanged, No, Is(0)).other(Is(0)),
    function("cuMemPoolSetAccess", IfChanged, No, Is(0)),
    function("cuMemPoolExportToShareableHandle", IfChanged, No, Is(1)),
    function("cuMemPoolImportFromShareableHandle", Always, No, At(0)),
    function("cuMemPoolExportPointer", IfChanged, No, Is(1)),
    function("cuMemPoolImportPointer", Always, No, At(0)).other(Is(1)),
    function("cuDeviceGetDefaultMemPool", First(FEW), No, At(0)).on(Argument(1)),
    function("cuDeviceGetMemPool", First(FEW), No, At(0)).on(Argument(1)),
    function("cuMemGetDefaultMemPool", First(FEW), No, At(0)),
    function("cuMemGetMemPool", First(FEW), No, At(0)),
    function("cuDeviceSetMemPool", Always, No, Is(1)).on(Argument(0)).sets_pool(),
    function("cuMemSetMemPool", Always, No, Is(2)).sets_pool(),
    // Pinned memory of the host: its pages are mapped for the device.
    function("cuMemHostAlloc", Always, Is(1), At(0)),
    function("cuMemAllocHost", Always, Is(1), At(0)),
    function("cuMemFreeHost", Always, No, Is(0)),
    function("cuMemHostRegister", Always, Is(1), Is(0)),
    function("cuMemHostUnregister", Always, No, Is(0)),
    // Arrays, and textures and surfaces on them.
    function("cuArrayCreate", Always, Array(2), At(0)),
    function("cuArray3DCreate", Always, Array(3), At(0)),
    function("cuArrayDestroy", Always, No, Is(0)),
    function("cuMipmappedArrayCreate", Always, No, At(0)),
    function("cuMipmappedArrayDestroy", Always, No, Is(0)),
    function("cuTexObjectCreate", First(SOME), No, At(0)),
    function("cuTexObjectDestroy", First(SOME), No, Is(0)),
    function("cuSurfObjectCreate", First(SOME), No, At(0)),
    function("cuSurfObjectDestroy", First(SOME), No, Is(0)),
    function("cuTexRefCreate", First(SOME), No, At(0)),
    function("cuTexRefDestroy", First(SOME), No, Is(0)),
    // Streams and events.
    function("cuStreamCreate", Always, No, At(0)),
    function("cuStreamCreateWithPriority", Always, No, At(0)),
    function("cuStreamDestroy", Always, No, Is(0)),
    function("cuEventCreate", Many, No, At(0)),
    function("cuEventDestroy", Many, No, Is(0)),
    // Graphs.
    function("cuStreamBeginCapture", IfChanged, No, Is(0)).captures(1),
    function("cuStreamBeginCaptureToGraph", IfChanged, No, Is(0)).captures(1),
    function("cuStreamEndCapture", IfChanged, No, Is(0)).captures(-1),
    function("cuGraphInstantiate", Always, No, At(0)).other(Is(1)),
    function("cuGraphInstantiateWithFlags", Always, No, At(0)).other(Is(1)),
    function("cuGraphInstantiateWithParams", Always, No, At(0)).other(Is(1)),
    function("cuGraphUpload", FirstUse(0), No, Is(0)),
    function("cuGraphExecDestroy", Always, No, Is(0)).forgets(One(0)),
    function("cuGraphClone", First(SOME), No, At(0)).other(Is(1)),
    function("cuGraphDestroy", First(SOME), No, Is(0)),
    function("cuGraphAddKernelNode", First(SOME), No, At(0)),
    function("cuGraphAddNode", First(SOME), No, At(0)),
    function("cuGraphAddMemAllocNode", Always, Field(4, 104), Field(4, 112)),
    function("cuGraphAddMemFreeNode", First(SOME), No, Is(4)),
    function("cuGraphConditionalHandleCreate", First(SOME), No, At(0)),
    function("cuGraphExecUpdate", First(SOME), No, Is(0)),
    function("cuGraphExecKernelNodeSetParams", First(SOME), No, Is(0)),
    function("cuGraphExecNodeSetParams", First(SOME), No, Is(0)),
    function("cuDeviceGraphMemTrim", Always, No, No).on(Argument(0)),
    function("cuDeviceSetGraphMemAttribute", IfChanged, No, No).on(Argument(0)),
    // Copies, fills and synchronisations happen all the time.
    function("cuMemcpy", First(FEW), Is(2), No),
    function("cuMemcpyAsync", First(FEW), Is(2), No),
    function("cuMemcpyHtoD", First(FEW), Is(2), No),
    function("cuMemcpyHtoDAsync", First(FEW), Is(2), No),
    function("cuMemcpyDtoH", First(FEW), Is(2), No),
    function("cuMemcpyDtoHAsync", First(FEW), Is(2), No),
    function("cuMemcpyDtoD", First(FEW), Is(2), No),
    function("cuMemcpyDtoDAsync", First(FEW), Is(2), No),
    function("cuMemcpyPeer", First(FEW), Is(4), No),
    function("cuMemcpyPeerAsync", First(FEW), Is(4), No),
    function("cuMemcpy2D", First(FEW), No, No),
    function("cuMemcpy2DUnaligned", First(FEW), No, No),
    function("cuMemcpy2DAsync", First(FEW), No, No),
    function("cuMemcpy3D", First(FEW), No, No),
    function("cuMemcpy3DAsync", First(FEW), No, No),
    function("cuMemcpy3DPeer", First(FEW), No, No),
    function("cuMemcpy3DPeerAsync", First(FEW), No, No),
    function("cuMemcpyBatchAsync", First(FEW), No, No),
    function("cuMemcpy3DBatchAsync", First(FEW), No, No),
    function("cuMemBatchDecompressAsync", First(FEW), No, No),
    function("cuMemsetD8", First(FEW), No, No),
    function("cuMemsetD8Async", First(FEW), No, No),
    function("cuMemsetD16", First(FEW), No, No),
    function("cuMemsetD16Async", First(FEW), No, No),
    function("cuMemsetD32", First(FEW), No, No),
    function("cuMemsetD32Async", First(FEW), No, No),
    function("cuMemsetD2D8", First(FEW), No, No),
    function("cuMemsetD2D8Async", First(FEW), No, No),
    function("cuMemsetD2D16", First(FEW), No, No),
    function("cuMemsetD2D16Async", First(FEW), No, No),
    function("cuMemsetD2D32", First(FEW), No, No),
    function("cuMemsetD2D32Async", First(FEW), No, No),
    function("cuCtxSynchronize", First(FEW), No, No),
    function("cuStreamSynchronize", First(FEW), No, No),
    function("cuStreamQuery", First(FEW), No, No),
    function("cuStreamWaitEvent", First(FEW), No, No),
    function("cuEventRecord", First(FEW), No, No),
    function("cuEventRecordWithFlags", First(FEW), No, No),
    function("cuEventSynchronize", First(FEW), No, No),
    function("cuEventQuery", First(FEW), No, No),
    // NCCL. What its calls take shows in the calls that it makes of the driver.
    function("ncclAllReduce", Communicator(5), No, No),
    function("ncclBroadcast", Communicator(5), No, No),
    function("ncclReduce", Communicator(6), No, No),
    function("ncclAllGather", Communicator(4), No, No),
    function("ncclReduceScatter", Communicator(5), No, No),
    function("ncclSend", Communicator(4), No, No),
    function("ncclRecv", Communicator(4), No, No),
    function("ncclCommFinalize", Communicator(0), No, No),
    function("ncclCommDestroy", Communicator(0), No, No).forgets(One(0)),
];

/// Places of the functions by a hash of their names, made when this is compiled; 0: none. A process asks for thousands of names.
#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a wrong place would not compile"
)]
static BY_NAME: [u16; 1 << 10] = {
    let mut places = [0; 1 << 10];
    let mut function = 1;
    while function < COUNT {
        let mut place = hash(FUNCTIONS[function].name.as_bytes());
        while places[place] != 0 {
            place = (place + 1) % places.len();
        }
        places[place] = function as u16;
        function += 1;
    }
    places
};

/// A place of [`BY_NAME`] for a name: FNV-1a.
const fn hash(name: &[u8]) -> usize {
    let (mut sum, mut rest) = (0x811c_9dc5_u32, name);
    while let Some((&byte, after)) = rest.split_first() {
        sum = (sum ^ byte as u32).wrapping_mul(0x0100_0193);
        rest = after;
    }
    ((sum ^ (sum >> 16)) & 0x3ff) as usize
}

/// The function of this name. A name may have the ending of a version (`_v2`) and of the kind of its default stream (`_ptsz`).
pub(crate) fn find(name: &[u8]) -> Option<usize> {
    let name = name.strip_suffix(b"_ptsz").or(name.strip_suffix(b"_ptds")).unwrap_or(name);
    let name = match name {
        [plain @ .., b'_', b'v', b'2'..=b'9'] => plain,
        _ => name,
    };
    let start = hash(name);
    for step in 0..BY_NAME.len() {
        let place = usize::from(*BY_NAME.get(start.wrapping_add(step) & 0x3ff)?);
        if place == 0 {
            return None;
        }
        if FUNCTIONS.get(place)?.name.as_bytes() == name {
            return Some(place);
        }
    }
    None
}
