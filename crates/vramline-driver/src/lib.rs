//! A library for `LD_PRELOAD` that records the calls with which a process changes GPU memory.
//!
//! `vramline run --driver-trace on` loads it into a job. It hands out wrappers for functions of NVIDIA's driver wherever the job
//! asks for them: by `dlsym`, by `cuGetProcAddress` in both forms, and as symbols of the program. A wrapper passes its arguments and
//! its result on unchanged, and writes a record: the call, the bytes, the memory of the device before and after, and who asked.
//!
//! The job comes first:
//!
//! - There is no standard library, no allocation and no panic. The library needs the C library only: not even `libgcc_s`, whose
//!   version may matter to the job. `tests/python/test_driver_trace.py` checks both on the compiled file.
//! - Nothing here waits for another thread for long. Whatever cannot be had at once (a lock, a free place, the interpreter lock of
//!   Python) costs a record or a part of it.
//! - The loader's lock is taken only where the job takes it itself: when it asks for a function by name. During a call, libraries
//!   are found by `dl_iterate_phdr`, which does not take it.
//! - `errno` and every register that a caller relies on are kept.
//!
//! All unsafe code of the interposer is in this crate. Modules, in the order of their imports: `sys` (the kernel and the C library),
//! `table` (which functions), `file` (the format and the writer), `asker` (libraries, stacks, Python), `device` (NVML and pools),
//! `nccl` (communicators), `call` (before and after a call), `lookup` (who gets a wrapper), `entry` (assembly).
//!
//! Only x86-64 Linux with glibc is supported. Elsewhere the library is empty.

#![cfg_attr(panic = "abort", no_std)]
#![cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]

mod asker;
mod call;
mod device;
mod entry;
mod file;
mod lookup;
mod nccl;
mod sys;
mod table;

/// Never called: the library has no code that panics. If it had, this name would be missing when it is loaded, and a test
/// looks for it.
#[cfg(panic = "abort")]
#[panic_handler]
fn panicked(_: &core::panic::PanicInfo<'_>) -> ! {
    unsafe extern "C" {
        fn vramline_driver_must_not_panic() -> !;
    }
    // SAFETY: the function does not exist, so a library that could get here is refused by its test.
    unsafe { vramline_driver_must_not_panic() }
}
