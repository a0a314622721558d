//! Rule `outside-the-pool`: memory that the process allocated outside its pools after its start: library workspaces, compiled code,
//! other allocators.

use super::{Device, Finding, percent};
use crate::ledger::{HeldLine, LineKind};
use crate::units::Bytes;

/// The minimum growth; loaded code and handles take less.
const LEAST: Bytes = Bytes(128 << 20);
/// The minimum share of what the process holds, in percent.
const SHARE: u64 = 5;

/// Number of libraries that are named.
const NAMED: usize = 3;

pub(super) fn check(device: &Device) -> Option<Finding> {
    if device.is_stand_in {
        return None;
    }
    let held = device.held?;
    if !device.beside.is_empty() {
        return by_calls(device, held);
    }
    let grown: i64 = device.grown_outside.iter().map(|(bytes, _)| bytes).sum();
    let grown = Bytes(u64::try_from(grown).ok()?);
    if grown < LEAST || percent(grown, held) < SHARE {
        return None;
    }
    let (most, came_with) = device.grown_outside.iter().max_by_key(|(bytes, _)| *bytes)?;
    let most = Bytes(u64::try_from(*most).ok()?);
    let with = if came_with.is_empty() {
        String::new()
    } else {
        format!(" (the largest part: {most}, {came_with})")
    };
    Some(Finding {
        rule: "outside-the-pool",
        bytes: grown,
        text: format!(
            "The process allocated {grown} ({} % of what it holds) outside {} after its start{with}. No framework counter shows this: it \
             is cuBLAS and cuDNN workspaces, compiled kernels, NCCL, or other libraries.",
            percent(grown, held),
            device.name
        ),
        fix: "leave room for it when you set a limit, which covers only the pool. CUBLAS_WORKSPACE_CONFIG=:16:8 limits the cuBLAS \
              workspaces, and CUDA_MODULE_LOADING=EAGER, where it is set, loads every kernel at the start"
            .to_owned(),
        verify: "see the lines \"outside the pools\" of the ledger, one for each cause".to_owned(),
    })
}

/// Memory that libraries and the program asked the driver for, by name. Other rules speak of cuBLAS, streams and launches.
fn by_calls(device: &Device, held: Bytes) -> Option<Finding> {
    let is_it = |line: &&HeldLine| match line.kind {
        LineKind::LibraryMemory => line.library.name != "cuBLAS",
        LineKind::ProgramMemory | LineKind::DriverPool => true,
        _ => false,
    };
    let lines: Vec<&HeldLine> = device.beside.iter().filter(is_it).collect();
    let bytes = Bytes(u64::try_from(lines.iter().map(|line| line.bytes).sum::<i64>()).ok()?);
    if bytes < LEAST || percent(bytes, held) < SHARE {
        return None;
    }
    let named = lines.iter().take(NAMED).filter_map(|line| {
        let size = Bytes(u64::try_from(line.bytes).ok()?);
        let place = line.place.as_ref().map_or(String::new(), |place| format!(" at {place}"));
        Some(format!("{} {size}{place}", line.library.name))
    });
    Some(Finding {
        rule: "outside-the-pool",
        bytes,
        text: format!(
            "Libraries and the program itself hold {bytes} ({} % of the process) outside {}: {}. No framework counter shows this.",
            percent(bytes, held),
            device.name,
            named.collect::<Vec<_>>().join(", ")
        ),
        fix: "leave room for it when you set a limit, which covers only the pool".to_owned(),
        verify: "see the lines \"memory of libraries\" and \"memory of the program's own CUDA calls\" of the ledger".to_owned(),
    })
}
