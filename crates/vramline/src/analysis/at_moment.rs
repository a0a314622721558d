//! Snapshots of single moments in the report on a recording: shown if more was in use than in the traces.

use super::caching::CachingAnalysis;
use super::held::{HeldMoment, HeldRows, NameTables};
use super::process::ProcessStory;
use super::reading::Reading;
use super::report::{PoolAnalysis, ReportAnalysis, ReportOptions};
use crate::event;
use crate::recording::rows::WindowReason;
use crate::recording::windows::RecordedWindow;

impl ReportAnalysis {
    /// Shows a snapshot of one moment instead of the peak of a pool's trace, if more was in use then.
    pub(super) fn add_moments(&mut self, reading: &Reading, options: &ReportOptions) {
        let Some(recorded) = &reading.recorded else { return };
        let story_of = |at: Option<usize>| {
            let number = at?;
            let process = recorded.processes.get(number)?;
            Some(ProcessStory::with_windows(process, reading.windows_of(number)))
        };
        for host in &reading.moments {
            let (Some(story), Some(window)) = (story_of(host.process), &host.window) else { continue };
            let history = &host.trace.history;
            let states = history.pools.iter().filter_map(|pool| Some((pool, pool.caching.as_ref()?)));
            for (facts, caching) in states {
                let Some(snapshot) = caching.state.as_ref().map(|state| host.trace.dumped(state)) else {
                    continue;
                };
                let rows = NameTables::of_history(history).rows(&snapshot, options.by, options.top);
                let device = event::device_of(&facts.name);
                if let Some(pool) = self.set_moment(&story, window, (&facts.name, &device), rows, options) {
                    pool.caching = Some(CachingAnalysis::of(caching, history));
                }
            }
        }
        for moment in &reading.still_moments {
            let Some(story) = story_of(Some(moment.process)) else { continue };
            for pool in &moment.still.pools {
                let rows = NameTables::of_still(&moment.still).rows(&pool.snapshot, options.by, options.top);
                self.set_moment(&story, &moment.window, (&pool.name, &pool.device), rows, options);
            }
        }
        self.pools.sort_by_key(PoolAnalysis::order);
    }

    /// Shows what a pool held at a moment, if that is more than what its trace shows, or if there is no trace.
    fn set_moment(
        &mut self,
        story: &ProcessStory<'_>,
        window: &RecordedWindow,
        (name, device): (&str, &str),
        rows: HeldRows,
        options: &ReportOptions,
    ) -> Option<&mut PoolAnalysis> {
        let pid = story.pid();
        let is_it = |pool: &PoolAnalysis| {
            let is_device = pool.name == device || (pool.device == device && !device.is_empty());
            pool.pid == Some(pid) && (pool.name == name || is_device)
        };
        if !options.is_asked(name) {
            return None;
        }
        if !self.pools.iter().any(is_it) {
            let (host, rank) = (story.host(), story.process.facts.rank);
            let mut bare = PoolAnalysis::bare(name, device);
            (bare.host, bare.pid, bare.rank) = (host, Some(pid), rank);
            self.pools.push(bare);
        }
        let pool = self.pools.iter_mut().find(|pool| is_it(pool))?;
        if pool.at_peak.is_some() && pool.peak >= Some(rows.in_use) {
            return None;
        }
        let at = window.begun.map(|begun| story.clock(begun));
        pool.name = name.to_owned();
        pool.peak = Some(rows.in_use);
        pool.moment = match window.reason {
            Some(WindowReason::Oom) => HeldMoment::Failure,
            _ => HeldMoment::Dump,
        };
        pool.at_peak = Some(rows);
        pool.fragmentation_at_peak = None;
        pool.peak_at = at;
        pool.peak_in = at.map(|at| story.place_at(at, device, &story.recorded_steps()));
        pool.window = Some(window.number);
        Some(pool)
    }
}
