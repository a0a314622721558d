//! Rule `cublas-memory`: cuBLAS keeps memory of its own outside the framework's pool.

use super::{Device, Finding, held_share};
use crate::ledger::{HeldLine, LineKind};
use crate::units::{Bytes, counted};

/// The minimum memory; small tables of a handle take less.
const LEAST: Bytes = Bytes(32 << 20);
/// The minimum share of what the process holds, in percent.
const SHARE: u64 = 5;

pub(super) fn check(device: &Device) -> Option<Finding> {
    let is_it = |line: &HeldLine| line.kind == LineKind::LibraryMemory && line.library.name == "cuBLAS";
    let (line, bytes, percent) = held_share(device, is_it, LEAST, SHARE)?;
    // Measured on an H200 with PyTorch 2.11 by tests/gpu/beside.py --remedies: 94 MiB less with the variable, of which 64 MiB were outside the
    // pool, and 198 MiB less with one thread instead of four. CUBLASLT_WORKSPACE_SIZE changed nothing.
    let fix = "CUBLAS_WORKSPACE_CONFIG=:16:8 avoids most of it, and matrix products may become slower. Each thread that calls cuBLAS \
               takes such memory, so fewer threads need less. Otherwise leave room for it when you set a limit, which covers only the pool";
    Some(Finding {
        rule: "cublas-memory",
        bytes,
        text: format!(
            "cuBLAS keeps {bytes} ({percent} % of the process) in {} outside {}.",
            counted(line.count, "allocation"),
            device.name
        ),
        fix: fix.to_owned(),
        verify: "see the line \"memory of libraries\" of the ledger, recorded with --driver-trace on"
            .to_owned(),
    })
}
