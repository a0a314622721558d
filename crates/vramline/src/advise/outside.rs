//! Rule `outside-the-pool`: memory that the process allocated outside its pools after its start: library workspaces, compiled code,
//! other allocators.

use super::{Device, Finding, percent};
use crate::units::Bytes;

/// The minimum growth; loaded code and handles take less.
const LEAST: Bytes = Bytes(128 << 20);
/// The minimum share of what the process holds, in percent.
const SHARE: u64 = 5;

pub(super) fn check(device: &Device) -> Option<Finding> {
    if device.is_stand_in {
        return None;
    }
    let held = device.held?;
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
        fix: "leave room for it when you set a limit, which covers only the pool. CUDA_MODULE_LOADING=LAZY loads kernels on first use, \
              and CUBLAS_WORKSPACE_CONFIG limits the cuBLAS workspaces"
            .to_owned(),
        verify: "see the lines \"outside the pools\" of the ledger, one for each cause".to_owned(),
    })
}
