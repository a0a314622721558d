//! Memory that the process took beside its pools since it began: libraries' workspaces, compiled code, other allocators.

use super::{Device, Finding, percent};
use crate::units::Bytes;

/// Less than this is loaded code and handles.
const LEAST: Bytes = Bytes(128 << 20);
/// So much of what the process holds, in percent.
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
    let with = if came_with.is_empty() { String::new() } else { format!(", {most} of it with {came_with}") };
    Some(Finding {
        rule: "outside-the-pool",
        bytes: grown,
        text: format!(
            "{}: {grown} came outside the framework's pools{with}. No framework counter shows it: workspaces of cuBLAS and \
             cuDNN, compiled kernels, NCCL, or another library's allocations",
            device.name
        ),
        fix: "leave room for it beside a limit on the pool; CUDA_MODULE_LOADING=LAZY loads kernels when they are first used, \
              CUBLAS_WORKSPACE_CONFIG bounds cuBLAS' workspaces"
            .to_owned(),
        verify: "the ledger's lines \"outside the pools\", one for each cause".to_owned(),
    })
}
