//! Which of the driver's devices CUDA's numbers mean.
//!
//! The driver counts devices by where they sit; CUDA counts those of `CUDA_VISIBLE_DEVICES`, and without
//! `CUDA_DEVICE_ORDER=PCI_BUS_ID` puts the fastest first. A program that has used CUDA can ask it for a device's
//! name for ever; this is for everybody else, and says where it had to assume.

use super::DeviceFacts;

/// The devices that a job sees, in CUDA's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visible {
    /// Numbers in the driver's list.
    pub devices: Vec<usize>,
    /// Entries of the list that no device answers to; CUDA stops at the first.
    pub unknown: Vec<String>,
    /// Whether the order is sure: devices of different kinds are sorted by CUDA's own idea of speed.
    pub is_sure: bool,
}

/// Reads `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER` as CUDA does.
#[must_use]
pub fn visible(devices: &[DeviceFacts], list: Option<&str>, order: Option<&str>) -> Visible {
    // A divided device is not used as a whole: of its parts CUDA shows one, the first.
    let is_usable = |facts: &DeviceFacts| facts.part.is_none() && facts.is_divided != Some(true);
    let wholes: Vec<usize> =
        (0..).zip(devices).filter(|(_, facts)| facts.part.is_none()).map(|(at, _)| at).collect();
    let first_part = |whole: usize| {
        let uuid = devices.get(whole).map(|facts| &facts.uuid);
        devices
            .iter()
            .position(|facts| facts.part.as_ref().map(|part| &part.of) == uuid && facts.part.is_some())
    };
    let used_for = |whole: usize| {
        if devices.get(whole).is_some_and(is_usable) { Some(whole) } else { first_part(whole) }
    };
    let first = wholes.first().and_then(|&at| devices.get(at));
    let are_alike = wholes.iter().filter_map(|&at| devices.get(at)).all(|facts| {
        first.is_some_and(|first| first.name == facts.name && first.capability == facts.capability)
    });
    let is_by_place = order == Some("PCI_BUS_ID");
    let mut seen = Visible { is_sure: true, ..Visible::default() };
    let Some(list) = list else {
        seen.devices = wholes.into_iter().filter_map(used_for).collect();
        seen.is_sure = is_by_place || are_alike;
        return seen;
    };
    for entry in list.split(',').map(str::trim) {
        let found = if let Ok(number) = entry.parse::<usize>() {
            seen.is_sure &= is_by_place || are_alike;
            wholes.get(number).copied().and_then(used_for)
        } else if entry.starts_with("GPU-") || entry.starts_with("MIG-") {
            // As many signs as make it unique will do.
            let mut fitting = (0..).zip(devices).filter(|(_, facts)| facts.uuid.starts_with(entry));
            match (fitting.next(), fitting.next()) {
                (Some((at, _)), None) => used_for(at).or(Some(at)),
                _ => None,
            }
        } else {
            None
        };
        match found {
            // A repeated device ends the list too.
            Some(at) if !seen.devices.contains(&at) => seen.devices.push(at),
            _ => {
                if !entry.is_empty() && entry != "-1" {
                    seen.unknown.push(entry.to_owned());
                }
                break;
            }
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::super::Part;
    use super::*;

    fn device(index: u32, name: &str) -> DeviceFacts {
        DeviceFacts {
            index,
            uuid: format!("GPU-{index}a{index}"),
            name: Some(name.to_owned()),
            ..DeviceFacts::default()
        }
    }

    #[test]
    fn cuda_counts_what_it_is_shown() {
        let alike = [device(0, "H200"), device(1, "H200"), device(2, "H200")];
        let none: [usize; 0] = [];
        let seen = |list| visible(&alike, list, None);
        assert_eq!(seen(None).devices, [0, 1, 2]);
        assert!(seen(None).is_sure);
        assert_eq!(seen(Some("2, 0")).devices, [2, 0]);
        assert_eq!(seen(Some("GPU-1")).devices, [1]);
        assert_eq!(seen(Some("")).devices, none);
        assert_eq!(seen(Some("-1,0")).devices, none);
        assert!(seen(Some("-1,0")).unknown.is_empty());
        let cut = seen(Some("1,7,0"));
        assert_eq!((cut.devices, cut.unknown), (vec![1], vec!["7".to_owned()]));
        assert_eq!(seen(Some("1,1,0")).devices, [1]);
        assert_eq!(seen(Some("GPU-")).devices, none, "more than one device begins like that");
    }

    #[test]
    fn the_fastest_comes_first_and_nobody_knows_which_that_is() {
        let mixed = [device(0, "T4"), device(1, "H200")];
        assert!(!visible(&mixed, None, None).is_sure);
        assert!(!visible(&mixed, Some("0"), Some("FASTEST_FIRST")).is_sure);
        assert!(visible(&mixed, Some("0"), Some("PCI_BUS_ID")).is_sure);
        assert!(visible(&mixed, Some("GPU-1a1"), None).is_sure);
    }

    #[test]
    fn parts_stand_for_what_is_divided() {
        let mut whole = device(0, "H200");
        whole.is_divided = Some(true);
        let part = |index: u32| DeviceFacts {
            uuid: format!("MIG-{index}"),
            part: Some(Part { index, of: whole.uuid.clone() }),
            ..device(0, "H200 MIG 1g.18gb")
        };
        let devices = [whole.clone(), part(0), part(1), device(1, "H200")];
        assert_eq!(visible(&devices, None, None).devices, [1, 3]);
        assert_eq!(visible(&devices, Some("MIG-1"), None).devices, [2]);
        assert_eq!(visible(&devices, Some("1"), None).devices, [3]);
        assert_eq!(visible(&devices, Some("GPU-0a0"), None).devices, [1]);
    }
}
