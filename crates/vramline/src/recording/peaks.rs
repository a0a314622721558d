//! The peaks that a process counts, watched while it trains: whether one has risen since somebody looked.
//!
//! The framework's own counters are compared, which every step reads anyway; nothing is reset.

use super::rows::Counters;

/// The smallest rise that counts, as one part of the peak in this many.
const RISE_SHARE: i64 = 20;

/// The highest peak of each device.
#[derive(Debug, Default)]
pub(super) struct PeakWatch {
    devices: Vec<DevicePeak>,
    is_armed: bool,
}

#[derive(Debug)]
struct DevicePeak {
    device: String,
    highest: i64,
    /// A peak above this has risen.
    bar: i64,
}

impl PeakWatch {
    /// Takes what was just read. True where a peak has risen since [`PeakWatch::arm`], once.
    pub(super) fn take(&mut self, counters: &[Counters]) -> bool {
        let mut has_risen = false;
        for read in counters {
            let Some(peak) = read.peak else { continue };
            match self.devices.iter_mut().find(|known| known.device == read.device) {
                Some(known) => {
                    known.highest = known.highest.max(peak);
                    has_risen |= known.highest > known.bar;
                }
                // A new device has no earlier peak to compare with.
                None => self.devices.push(DevicePeak {
                    device: read.device.clone(),
                    highest: peak,
                    bar: if self.is_armed { above(peak) } else { i64::MAX },
                }),
            }
        }
        let is_told = has_risen && self.is_armed;
        if is_told {
            self.disarm();
        }
        is_told
    }

    /// From now on a rise of more than a twentieth over the highest peak so far is told.
    pub(super) fn arm(&mut self) {
        self.is_armed = true;
        self.devices.iter_mut().for_each(|known| known.bar = above(known.highest));
    }

    fn disarm(&mut self) {
        self.is_armed = false;
        self.devices.iter_mut().for_each(|known| known.bar = i64::MAX);
    }
}

fn above(peak: i64) -> i64 {
    peak.saturating_add(peak / RISE_SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(device: &str, peak: Option<i64>) -> Counters {
        Counters { device: device.to_owned(), peak, ..Counters::default() }
    }

    #[test]
    fn a_rise_of_more_than_a_twentieth_is_told_once() {
        let mut watch = PeakWatch::default();
        assert!(!watch.take(&[read("GPU:0", Some(1000)), read("GPU:1", None)]));
        assert!(!watch.take(&[read("GPU:0", Some(5000))]));
        watch.arm();
        assert!(!watch.take(&[read("GPU:0", Some(5250)), read("GPU:1", Some(10))]));
        // A peak that was reset falls, and is no rise when it comes back.
        assert!(!watch.take(&[read("GPU:0", Some(3))]));
        assert!(!watch.take(&[read("GPU:0", Some(5250))]));
        assert!(watch.take(&[read("GPU:0", Some(5251))]));
        assert!(!watch.take(&[read("GPU:0", Some(9000))]));
        watch.arm();
        assert!(!watch.take(&[read("GPU:0", Some(9450))]));
        assert!(watch.take(&[read("GPU:0", None), read("GPU:1", Some(11))]));
        assert_eq!(above(i64::MAX), i64::MAX);
    }
}
