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
    /// The first few calls of the function are measured; they are recorded if memory changed. For copies and synchronisations.
    FirstFew,
    /// The first [`MANY`] calls are measured and recorded.
    Many,
    /// Allocations from a pool: the pool's own figures are read; recorded if the pool grew or shrank, or if much was requested. The
    /// argument is that of the stream; the pool's is the second, or the device's own pool where that is the stream.
    Pool(usize),
    /// `cuGetProcAddress`: not measured; what it hands out is wrapped.
    Lookup,
}

/// Number of measured calls with [`Pace::FirstFew`].
pub(crate) const FEW: u32 = 8;
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
    /// The call ends the life of handles of functions, whose values may return.
    pub(crate) forgets: bool,
}

const fn function(name: &'static str, pace: Pace, bytes: Value, handle: Value) -> Function {
    Function { name, pace, bytes, handle, other: Value::No, place: Place::Current, forgets: false }
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

    const fn forgets(mut self) -> Function {
        self.forgets = true;
        self
    }
}

use Pace::{Always, FirstFew, FirstUse, IfChanged, Many, Pool};
use Place::{AfterCall, Argument};
use Value::{At, Is, No, Rows};

/// Number of functions.
pub(crate) const COUNT: usize = FUNCTIONS.len();

/// Place of `cuInit`, before which nothing may be asked of the driver.
pub(crate) const INIT: usize = 2;

/// Every wrapped function. Records name functions by their place here, and a record of its own tells the name.
pub(crate) static FUNCTIONS: [Function; 112] = [
    function("", Always, No, No),
    function("cuGetProcAddress", Pace::Lookup, No, No),
    function("cuInit", Always, No, No).on(AfterCall),
    // Contexts and their limits.
    function("cuDevicePrimaryCtxRetain", IfChanged, No, At(0)).on(Argument(1)),
    function("cuDevicePrimaryCtxRelease", IfChanged, No, No).on(Argument(0)).forgets(),
    function("cuDevicePrimaryCtxReset", Always, No, No).on(Argument(0)).forgets(),
    function("cuCtxCreate", Always, No, At(0)).on(AfterCall),
    function("cuCtxDestroy", Always, No, Is(0)).forgets(),
    function("cuCtxSetLimit", Always, Is(1), Is(0)),
    function("cuCtxEnablePeerAccess", Always, No, Is(0)),
    function("cuCtxDisablePeerAccess", Always, No, Is(0)),
    function("cuGreenCtxCreate", Always, No, At(0)),
    function("cuGreenCtxDestroy", Always, No, Is(0)),
    function("cuGreenCtxStreamCreate", Always, No, At(0)).other(Is(1)),
    // Code.
    function("cuModuleLoad", Always, No, At(0)),
    function("cuModuleLoadData", Always, No, At(0)),
    function("cuModuleLoadDataEx", Always, No, At(0)),
    function("cuModuleLoadFatBinary", Always, No, At(0)),
    function("cuModuleUnload", Always, No, Is(0)).forgets(),
    function("cuModuleGetFunction", IfChanged, No, At(0)).other(Is(1)),
    function("cuModuleGetGlobal", IfChanged, At(1), At(0)).other(Is(2)),
    function("cuLibraryLoadData", IfChanged, No, At(0)),
    function("cuLibraryLoadFromFile", IfChanged, No, At(0)),
    function("cuLibraryUnload", IfChanged, No, Is(0)).forgets(),
    function("cuLibraryGetKernel", IfChanged, No, At(0)).other(Is(1)),
    function("cuLibraryGetModule", IfChanged, No, At(0)).other(Is(1)),
    function("cuLibraryGetGlobal", IfChanged, At(1), At(0)).other(Is(2)),
    function("cuLibraryGetManaged", IfChanged, At(1), At(0)).other(Is(2)),
    function("cuKernelGetFunction", FirstUse(1), No, At(0)).other(Is(1)),
    function("cuKernelSetAttribute", FirstUse(2), No, Is(2)),
    function("cuKernelGetAttribute", FirstUse(2), No, Is(2)),
    function("cuFuncLoad", IfChanged, No, Is(0)),
    function("cuFuncGetAttribute", FirstUse(2), No, Is(2)),
    function("cuFuncSetAttribute", FirstUse(0), No, Is(0)),
    function("cuFuncGetModule", FirstUse(1), No, Is(1)),
    function("cuOccupancyMaxActiveBlocksPerMultiprocessor", FirstUse(1), No, Is(1)),
    function("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", FirstUse(1), No, Is(1)),
    // Launches: the first of each function loads its code and may need more local memory.
    function("cuLaunchKernel", FirstUse(0), No, Is(0)),
    function("cuLaunchKernelEx", FirstUse(1), No, Is(1)),
    function("cuLaunchCooperativeKernel", FirstUse(0), No, Is(0)),
    function("cuGraphLaunch", FirstUse(0), No, Is(0)),
    // Memory.
    function("cuMemAlloc", Always, Is(1), At(0)),
    function("cuMemAllocPitch", Always, Rows(1, 3), At(0)),
    function("cuMemAllocManaged", Always, Is(1), At(0)),
    function("cuMemFree", Always, No, Is(0)),
    function("cuMemCreate", Always, Is(1), At(0)),
    function("cuMemRelease", Always, No, Is(0)),
    function("cuMemAddressReserve", IfChanged, Is(1), At(0)),
    function("cuMemAddressFree", IfChanged, Is(1), Is(0)),
    function("cuMemMap", Always, Is(1), Is(0)).other(Is(3)),
    function("cuMemMapArrayAsync", Always, No, Is(0)),
    function("cuMemUnmap", Always, Is(1), Is(0)),
    function("cuMemSetAccess", IfChanged, Is(1), Is(0)),
    function("cuMemImportFromShareableHandle", Always, No, At(0)),
    function("cuMemExportToShareableHandle", IfChanged, No, Is(1)),
    function("cuMulticastCreate", Always, No, At(0)),
    function("cuMulticastAddDevice", Always, No, Is(0)),
    function("cuMulticastBindMem", Always, Is(4), Is(0)).other(Is(2)),
    function("cuMulticastBindAddr", Always, Is(3), Is(0)).other(Is(2)),
    function("cuMulticastUnbind", Always, Is(3), Is(0)),
    function("cuIpcOpenMemHandle", Always, No, At(0)),
    function("cuIpcCloseMemHandle", Always, No, Is(0)),
    function("cuIpcOpenEventHandle", IfChanged, No, At(0)),
    function("cuIpcGetMemHandle", IfChanged, No, Is(1)),
    function("cuImportExternalMemory", Always, No, At(0)),
    function("cuDestroyExternalMemory", Always, No, Is(0)),
    // Pools.
    function("cuMemAllocAsync", Pool(2), Is(1), At(0)),
    function("cuMemAllocFromPoolAsync", Pool(3), Is(1), At(0)).other(Is(2)),
    function("cuMemFreeAsync", Pool(1), No, Is(0)),
    function("cuMemPoolCreate", Always, No, At(0)),
    function("cuMemPoolDestroy", Always, No, Is(0)),
    function("cuMemPoolTrimTo", Always, No, Is(0)).other(Is(0)),
    function("cuMemPoolSetAttribute", IfChanged, No, Is(0)).other(Is(0)),
    function("cuDeviceSetMemPool", IfChanged, No, Is(1)).on(Argument(0)),
    // Pinned memory of the host: its pages are mapped for the device.
    function("cuMemHostAlloc", Always, Is(1), At(0)),
    function("cuMemAllocHost", Always, Is(1), At(0)),
    function("cuMemFreeHost", Always, No, Is(0)),
    function("cuMemHostRegister", Always, Is(1), Is(0)),
    function("cuMemHostUnregister", Always, No, Is(0)),
    // Arrays.
    function("cuArrayCreate", Always, No, At(0)),
    function("cuArray3DCreate", Always, No, At(0)),
    function("cuArrayDestroy", Always, No, Is(0)),
    function("cuMipmappedArrayCreate", Always, No, At(0)),
    function("cuMipmappedArrayDestroy", Always, No, Is(0)),
    // Streams and events.
    function("cuStreamCreate", Always, No, At(0)),
    function("cuStreamCreateWithPriority", Always, No, At(0)),
    function("cuStreamDestroy", Always, No, Is(0)),
    function("cuEventCreate", Many, No, At(0)),
    function("cuEventDestroy", Many, No, Is(0)),
    // Graphs.
    function("cuGraphInstantiate", Always, No, At(0)).other(Is(1)),
    function("cuGraphInstantiateWithFlags", Always, No, At(0)).other(Is(1)),
    function("cuGraphInstantiateWithParams", Always, No, At(0)).other(Is(1)),
    function("cuGraphUpload", FirstUse(0), No, Is(0)),
    function("cuGraphExecDestroy", Always, No, Is(0)).forgets(),
    function("cuGraphAddMemAllocNode", Always, No, At(0)),
    function("cuGraphExecUpdate", FirstFew, No, Is(0)),
    function("cuDeviceGraphMemTrim", Always, No, No).on(Argument(0)),
    // Copies, fills and synchronisations happen all the time. The first ones load code and make buffers.
    function("cuMemcpy", FirstFew, Is(2), No),
    function("cuMemcpyAsync", FirstFew, Is(2), No),
    function("cuMemcpyHtoD", FirstFew, Is(2), No),
    function("cuMemcpyHtoDAsync", FirstFew, Is(2), No),
    function("cuMemcpyDtoH", FirstFew, Is(2), No),
    function("cuMemcpyDtoHAsync", FirstFew, Is(2), No),
    function("cuMemcpyDtoD", FirstFew, Is(2), No),
    function("cuMemcpyDtoDAsync", FirstFew, Is(2), No),
    function("cuMemsetD8", FirstFew, No, No),
    function("cuMemsetD8Async", FirstFew, No, No),
    function("cuMemsetD32", FirstFew, No, No),
    function("cuMemsetD32Async", FirstFew, No, No),
    function("cuCtxSynchronize", FirstFew, No, No),
    function("cuStreamSynchronize", FirstFew, No, No),
    function("cuEventRecord", FirstFew, No, No),
];

/// The function of this name. A name may have the ending of a version (`_v2`) and of the kind of its default stream (`_ptsz`).
pub(crate) fn find(name: &[u8]) -> Option<usize> {
    let name = name.strip_suffix(b"_ptsz").or(name.strip_suffix(b"_ptds")).unwrap_or(name);
    let name = match name {
        [plain @ .., b'_', b'v', b'2'..=b'9'] => plain,
        _ => name,
    };
    if !name.starts_with(b"cu") {
        return None;
    }
    FUNCTIONS.iter().position(|function| function.name.as_bytes() == name)
}
