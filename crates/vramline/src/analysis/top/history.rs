//! What devices held over the last minutes.

use std::collections::{BTreeMap, VecDeque};

use super::TopAnalysis;
use super::job::LiveJob;
use crate::recording::rows::Moment;
use crate::timeline::{Column, Series};
use crate::units::{Bytes, Nanos};

/// Points of a device's history that are remembered.
const MAX_POINTS_PER_DEVICE: usize = 1200;

/// What one device held at moments of the monotonic clock, the newest of them.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldPoints(VecDeque<(i64, u64)>);

impl HeldPoints {
    /// Adds a moment, and forgets the oldest where there are too many.
    pub(super) fn push(&mut self, time: i64, held: Bytes) {
        self.0.push_back((time, held.0));
        while self.0.len() > MAX_POINTS_PER_DEVICE {
            self.0.pop_front();
        }
    }

    /// Those before a moment.
    fn before(&self, time: i64) -> HeldPoints {
        HeldPoints(self.0.iter().copied().filter(|(of, _)| *of < time).collect())
    }
}

/// What devices held over the last minutes.
#[derive(Clone, Debug, Default)]
pub struct DeviceHistory(BTreeMap<String, HeldPoints>);

impl DeviceHistory {
    /// Goes on by one look. What recordings know of the time before is taken in.
    pub fn take(&mut self, now: Moment, analysis: &TopAnalysis, jobs: &[LiveJob]) {
        for device in &analysis.devices {
            let (Some(total), Some(free)) = (device.total, device.free) else { continue };
            let points = self.0.entry(device.uuid.clone()).or_insert_with(|| {
                let known = jobs.iter().filter_map(|job| job.history.get(&device.uuid));
                let longest = known.max_by_key(|points| points.0.len());
                // Of another machine, or from before a restart, times may lie ahead.
                longest.map(|points| points.before(now.monotonic)).unwrap_or_default()
            });
            points.push(now.monotonic, total.saturating_sub(free));
        }
    }

    /// The same under other names of the devices.
    #[must_use]
    pub(in crate::analysis) fn renamed(&self, mut rename: impl FnMut(&str) -> String) -> DeviceHistory {
        DeviceHistory(self.0.iter().map(|(uuid, points)| (rename(uuid), points.clone())).collect())
    }

    /// The most that a device held in each of `width` stretches of the time before `now`.
    #[must_use]
    pub fn columns(&self, uuid: &str, now: Moment, length: Nanos, width: usize) -> Vec<Column> {
        let points = self.0.get(uuid).into_iter().flat_map(|points| points.0.iter().copied());
        Series::new(points)
            .window(now.monotonic.saturating_sub(length.0)..now.monotonic.saturating_add(1), width)
    }
}
