//! Rule `imbalance`: devices of one kind that did similar work need different amounts of memory. The fullest one decides what fits.

use std::collections::BTreeSet;

use super::{Device, Finding, percent};
use crate::units::Bytes;

/// The name of the rule.
pub(super) const RULE: &str = "imbalance";

/// The minimum difference between the fullest and the emptiest, in percent of the fullest.
const SHARE: u64 = 20;
/// The minimum difference in bytes.
const LEAST: Bytes = Bytes(256 << 20);

/// Two devices did similar work if neither made more than this many times the allocations of the other. Otherwise one was idle, or the
/// trace shows only part of its step.
const ALIKE: u64 = 4;

pub(super) fn check(devices: &[Device]) -> Option<Finding> {
    let known: Vec<(&Device, Bytes)> = devices
        .iter()
        .filter(|device| !device.is_stand_in && !device.kind.is_empty())
        .filter_map(|device| Some((device, device.peak?)))
        .collect();
    let kinds: BTreeSet<&str> = known.iter().map(|(device, _)| device.kind.as_str()).collect();
    let of_kind = |kind: &str| {
        let alike = || known.iter().filter(|(device, _)| device.kind == kind);
        let (fullest, most) = alike().max_by_key(|(_, peak)| *peak)?;
        let comparable = alike().filter(|(device, _)| did_the_same(device, fullest));
        let (emptiest, least) = comparable.min_by_key(|(_, peak)| *peak)?;
        let more = Bytes(most.0.checked_sub(least.0)?);
        let is_much = more >= LEAST && percent(more, *most) >= SHARE;
        is_much.then_some((more, *fullest, *most, *emptiest, *least))
    };
    let (more, fullest, most, emptiest, least) =
        kinds.into_iter().filter_map(of_kind).max_by_key(|found| found.0)?;
    Some(Finding {
        rule: RULE,
        bytes: more,
        text: format!(
            "{} needs {most}, but {} needs only {least} for similar work: {more} less.",
            fullest.name, emptiest.name
        ),
        fix: "move layers, optimizer state or the loss to the emptier device: the fullest device decides which batch size fits".to_owned(),
        verify: "compare the peaks of the devices in the next report".to_owned(),
    })
}

fn did_the_same(one: &Device, other: &Device) -> bool {
    match (one.allocs, other.allocs) {
        (Some(one), Some(other)) => one.min(other).saturating_mul(ALIKE) >= one.max(other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(name: &str, kind: &str, mebibytes: u64, allocs: Option<u64>) -> Device {
        Device {
            name: name.to_owned(),
            kind: kind.to_owned(),
            peak: Some(Bytes(mebibytes << 20)),
            allocs,
            ..Device::default()
        }
    }

    #[test]
    fn devices_of_one_kind_that_did_the_same_are_compared() {
        let full = device("GPU_6_bfc", "GPU", 6000, Some(761));
        let same = device("GPU_4_bfc", "GPU", 5990, Some(761));
        let idle = device("GPU_1_bfc", "GPU", 3800, Some(19));
        let code = device("executables", "", 100, None);
        assert_eq!(check(&[full.clone(), same.clone(), idle, code]), None);
        let emptier = device("GPU_2_bfc", "GPU", 3000, Some(400));
        let found = check(&[full.clone(), same, emptier]).unwrap();
        assert_eq!(found.bytes, Bytes(3000 << 20));
        assert!(found.text.starts_with("GPU_6_bfc needs") && found.text.contains("GPU_2_bfc needs only"));
        // One kind only, and each kind by itself.
        assert_eq!(check(&[full.clone(), device("cpu", "CPU", 100, Some(700))]), None);
        // Without counts of allocations peaks are compared as they are.
        let one = device("TPU:0", "TPU", 15_000, None);
        assert!(check(&[one.clone(), device("TPU:1", "TPU", 10_000, None), full]).is_some());
        assert_eq!(check(&[one, device("TPU:1", "TPU", 10_000, Some(5))]), None);
    }
}
