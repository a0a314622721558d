//! Live figures as series for Prometheus: the state of a machine becomes labelled numbers.
//!
//! `family` declares the metrics, `text` writes their format, `distinct` keeps labels apart. Nothing is read here, and nothing is decided:
//! a figure that the analysis does not know has no series.

mod distinct;
mod family;
mod text;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vramline::analysis::top::{JobSummary, ProcessUse, TopAnalysis};
use vramline::recording::folder::SUFFIX;
use vramline::recording::identity::{Launcher, TaskRole};
use vramline::recording::manifest::Exit;
use vramline::recording::running::State;
use vramline::units::{Bytes, Nanos};

use distinct::Distinct;
pub(crate) use family::Metric;
pub(crate) use text::{Format, Series};

/// Makes series of what is seen, again and again.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// The labels of jobs that nobody named, by their recordings.
    jobs: Distinct<PathBuf>,
    /// The labels of pools, by recording, process, device and the framework's name.
    pools: Distinct<(PathBuf, u32, String, String)>,
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        Metrics { jobs: Distinct::new(), pools: Distinct::new() }
    }

    /// The series of one moment.
    pub(crate) fn series(&mut self, seen: &TopAnalysis) -> Series {
        let mut series = Series::new();
        let host = seen.host.as_str();
        machine(&mut series, seen);
        let labels: Vec<String> = seen.jobs.iter().map(|job| self.label(job)).collect();
        // Several recordings may be parts of one job: one for each rank, or for each attempt.
        let mut jobs: BTreeMap<&str, JobParts<'_>> = BTreeMap::new();
        for (job, label) in seen.jobs.iter().zip(&labels) {
            jobs.entry(label).or_default().recordings.push(job);
        }
        for process in &seen.processes {
            let Some(number) = process.job else { continue };
            let (Some(job), Some(label)) = (seen.jobs.get(number), labels.get(number)) else { continue };
            if process.is_running_here && !process.pool.is_empty() {
                let rank = text_of(process.rank);
                let key = (job.path.clone(), process.pid, process.device.clone(), process.pool.clone());
                let scope = format!("{label}\n{rank}\n{}", process.device);
                let pool = self.pools.label(&key, &scope, &process.pool);
                pool_series(&mut series, [host, &process.device, label, &rank, &pool], process);
            }
            if let Some(parts) = jobs.get_mut(label.as_str()) {
                parts.ranks.entry(process.rank).or_default().push(process);
            }
        }
        for (label, parts) in &jobs {
            job_series(&mut series, [host, label], parts);
            for (rank, processes) in &parts.ranks {
                rank_series(&mut series, [host, label, &text_of(*rank)], processes);
            }
        }
        self.jobs.forget_unused();
        self.pools.forget_unused();
        series.add(Metric::LeftOut, &[host], series.left_out);
        series
    }

    /// The label of a recording's job: the name that the user or the launcher gave it, else the name of the recording.
    fn label(&mut self, job: &JobSummary) -> String {
        let named = job.identity.job.clone();
        named.unwrap_or_else(|| self.jobs.label(&job.path, "", &name_of(&job.path)))
    }
}

/// A job of this machine.
#[derive(Debug, Default)]
struct JobParts<'a> {
    recordings: Vec<&'a JobSummary>,
    ranks: BTreeMap<Option<u64>, Vec<&'a ProcessUse>>,
}

/// The series of devices, of the driver and of the exporter itself.
fn machine(series: &mut Series, seen: &TopAnalysis) {
    let host = seen.host.as_str();
    series.add(Metric::Build, &[env!("CARGO_PKG_VERSION")], 1);
    series.add(Metric::Recordings, &[host], seen.jobs.len());
    let unreadable = seen.jobs.iter().filter(|job| !job.is_complete).count();
    series.add(Metric::Unreadable, &[host], unreadable);
    series.add(Metric::DriverUp, &[host], u8::from(seen.driver.is_ok()));
    if let Ok(driver) = &seen.driver {
        series.add(Metric::DriverAge, &[host], seconds(driver.age));
        series.add_known(
            Metric::DriverInfo,
            &[host, driver.version.as_deref().unwrap_or_default()],
            driver.version.is_some().then_some(1),
        );
    }
    for device in &seen.devices {
        let labels = [host, device.name.as_str()];
        if !device.is_stand_in {
            let used = device.total.zip(device.free).map(|(total, free)| total.saturating_sub(free));
            series.add_known(Metric::GpuUsage, &labels, used.map(count));
            series.add_known(Metric::GpuLimit, &labels, device.total.map(count));
            let model = device.model.as_deref().unwrap_or_default();
            let part_of = device.part_of.as_deref().unwrap_or_default();
            series.add(Metric::DeviceInfo, &[host, &device.name, &device.uuid, model, part_of], 1);
        }
        for stretch in &device.bar {
            series.add(Metric::DevicePart, &[host, &device.name, stretch.part.word()], stretch.bytes);
        }
        series.add_known(Metric::DeviceProcesses, &labels, device.processes);
    }
}

fn job_series(series: &mut Series, labels: [&str; 2], parts: &JobParts<'_>) {
    let [host, label] = labels;
    let states = || parts.recordings.iter().map(|job| job.state);
    // Whether a job of another machine runs is not known here.
    let is_known = states().any(|state| state != State::Elsewhere);
    let is_running = states().any(|state| state == State::Running);
    series.add_known(Metric::JobRunning, &labels, is_known.then_some(u8::from(is_running)));
    let begin = parts.recordings.iter().filter_map(|job| job.began).min();
    series.add_known(Metric::JobStart, &labels, begin.map(seconds));
    let end = parts.recordings.iter().filter_map(|job| job.ended).max();
    series.add_known(Metric::JobEnd, &labels, end.filter(|_| !is_running).map(seconds));
    for job in &parts.recordings {
        let named = job.identity.labels.iter().map(|(name, value)| format!("{name}={value}"));
        let named: Vec<String> = named.collect();
        let info = [host, label, &job.path.to_string_lossy(), &named.join(", ")];
        series.add(Metric::JobInfo, &info, 1);
    }
    // The error of a process says more than the exit code that follows from it.
    if parts.ranks.values().flatten().any(|process| process.failure.is_some()) {
        return;
    }
    for reason in ["exit_code", "signal"] {
        let failed = parts.recordings.iter().filter(|job| exit_reason(job.state) == Some(reason));
        let last = failed.filter_map(|job| job.ended).max();
        series.add_known(Metric::JobFailure, &[host, label, "", reason], last.map(seconds));
    }
}

/// How a job failed, as far as its exit shows.
fn exit_reason(state: State) -> Option<&'static str> {
    match state.exit()? {
        Exit::Code(0) => None,
        Exit::Code(_) => Some("exit_code"),
        Exit::Signal(_) => Some("signal"),
    }
}

fn pool_series(series: &mut Series, labels: [&str; 5], process: &ProcessUse) {
    for (metric, figure) in [
        (Metric::PoolUsage, process.in_use),
        (Metric::PoolReserved, process.taken),
        (Metric::PoolPeak, process.peak),
        (Metric::PoolLimit, process.limit),
        (Metric::PoolHeadroom, process.headroom),
        (Metric::ProcessUsage, process.held),
    ] {
        series.add_known(metric, &labels, figure.map(count));
    }
}

/// The series of a rank. If several processes have the same rank, it is the one with the most steps.
fn rank_series(series: &mut Series, labels: [&str; 3], processes: &[&ProcessUse]) {
    let running = processes.iter().filter(|process| process.is_running_here);
    if let Some(furthest) = running.max_by_key(|process| process.steps_seen) {
        let newest = furthest.newest_step();
        series.add_known(Metric::Step, &labels, newest.map(|step| step.number));
        series.add_known(Metric::StepDuration, &labels, newest.map(|step| seconds(step.duration)));
        series.add_known(Metric::Steps, &labels, furthest.steps_seen);
        rank_info(series, labels, furthest);
    }
    for (is_out_of_memory, reason) in [(true, "out_of_memory"), (false, "exception")] {
        let failures = processes.iter().filter_map(|process| process.failure);
        let last =
            failures.filter(|failure| failure.is_out_of_memory == is_out_of_memory).map(|failure| failure.at);
        let [host, job, rank] = labels;
        series.add_known(Metric::JobFailure, &[host, job, rank, reason], last.max().map(seconds));
    }
}

fn rank_info(series: &mut Series, [host, job, rank]: [&str; 3], process: &ProcessUse) {
    let identity = &process.identity;
    let framework = process.framework.as_ref().map(|of| format!("{} {}", of.name, of.version));
    let info = [
        host,
        job,
        rank,
        &text_of(identity.local_rank),
        &text_of(identity.node_rank),
        &text_of(identity.world_size),
        &text_of(identity.attempt),
        identity.role.map_or("", TaskRole::word),
        identity.launcher.map_or("", Launcher::word),
        framework.as_deref().unwrap_or_default().trim_end(),
    ];
    series.add(Metric::RankInfo, &info, 1);
}

/// The name of a recording: that of its folder, without the ending.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    name.strip_suffix(SUFFIX).unwrap_or(&name).to_owned()
}

/// A number as the value of a label; empty if it is unknown, which leaves the label out.
fn text_of(number: Option<u64>) -> String {
    number.map_or(String::new(), |number| number.to_string())
}

fn count(bytes: Bytes) -> u64 {
    bytes.0
}

/// Nanoseconds as seconds, without the rounding of a float.
fn seconds(nanos: Nanos) -> String {
    let (sign, nanos) = (if nanos.0 < 0 { "-" } else { "" }, nanos.0.unsigned_abs());
    format!("{sign}{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}
