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
use vramline::recording::manifest::Exit;
use vramline::recording::running::State;
use vramline::units::{Bytes, Nanos};

use distinct::Distinct;
pub(crate) use family::Metric;
pub(crate) use text::{Format, Series};

/// Makes series of what is seen, again and again.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// The labels of jobs, by their recordings.
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
        let labels: Vec<String> =
            seen.jobs.iter().map(|job| self.jobs.label(&job.path, "", &name_of(&job.path))).collect();
        for (number, (job, label)) in seen.jobs.iter().zip(&labels).enumerate() {
            job_series(&mut series, host, label, job);
            // The error of a process says more than the exit code that follows from it.
            let mut processes = seen.processes.iter().filter(|process| process.job == Some(number));
            if processes.all(|process| process.failure.is_none()) {
                exit_series(&mut series, host, label, job);
            }
        }
        let mut ranks: BTreeMap<(usize, Option<u64>), Vec<&ProcessUse>> = BTreeMap::new();
        for process in &seen.processes {
            let Some((job, label)) =
                process.job.and_then(|job| Some((seen.jobs.get(job)?, labels.get(job)?)))
            else {
                continue;
            };
            if process.is_running_here && !process.pool.is_empty() {
                let rank = rank_of(process.rank);
                let key = (job.path.clone(), process.pid, process.device.clone(), process.pool.clone());
                let scope = format!("{label}\n{rank}\n{}", process.device);
                let pool = self.pools.label(&key, &scope, &process.pool);
                pool_series(&mut series, [host, &process.device, label, &rank, &pool], process);
            }
            if let Some(job) = process.job {
                ranks.entry((job, process.rank)).or_default().push(process);
            }
        }
        for ((job, rank), processes) in &ranks {
            if let Some(label) = labels.get(*job) {
                rank_series(&mut series, [host, label, &rank_of(*rank)], processes);
            }
        }
        self.jobs.forget_unused();
        self.pools.forget_unused();
        series.add(Metric::LeftOut, &[host], series.left_out);
        series
    }
}

/// The series of devices, of the driver and of the exporter itself.
fn machine(series: &mut Series, seen: &TopAnalysis) {
    let host = seen.host.as_str();
    series.add(Metric::Build, &[env!("CARGO_PKG_VERSION")], 1);
    series.add(Metric::Recordings, &[host], seen.jobs.len());
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

fn job_series(series: &mut Series, host: &str, label: &str, job: &JobSummary) {
    let labels = [host, label];
    // Whether a job of another machine runs is not known here.
    let is_running = match job.state {
        State::Running => Some(1),
        State::Ended(_) | State::Gone => Some(0),
        State::Elsewhere => None,
    };
    series.add_known(Metric::JobRunning, &labels, is_running);
    series.add_known(Metric::JobStart, &labels, job.began.map(seconds));
    series.add_known(Metric::JobEnd, &labels, job.ended.map(seconds));
    series.add(Metric::JobInfo, &[host, label, &job.path.to_string_lossy()], 1);
}

/// The failure of a job of which only the exit is known.
fn exit_series(series: &mut Series, host: &str, label: &str, job: &JobSummary) {
    let reason = match job.state.exit() {
        Some(Exit::Code(0)) | None => None,
        Some(Exit::Code(_)) => Some("exit_code"),
        Some(Exit::Signal(_)) => Some("signal"),
    };
    if let Some((reason, at)) = reason.zip(job.ended) {
        series.add(Metric::JobFailure, &[host, label, "", reason], seconds(at));
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
    }
    for (is_out_of_memory, reason) in [(true, "out_of_memory"), (false, "exception")] {
        let failures = processes.iter().filter_map(|process| process.failure);
        let last = failures.filter(|failure| failure.is_out_of_memory == is_out_of_memory).map(|failure| failure.at);
        let [host, job, rank] = labels;
        series.add_known(Metric::JobFailure, &[host, job, rank, reason], last.max().map(seconds));
    }
}

/// The name of a recording: that of its folder, without the ending.
fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
    name.strip_suffix(SUFFIX).unwrap_or(&name).to_owned()
}

fn rank_of(rank: Option<u64>) -> String {
    rank.map_or(String::new(), |rank| rank.to_string())
}

fn count(bytes: Bytes) -> u64 {
    bytes.0
}

/// Nanoseconds as seconds, without the rounding of a float.
fn seconds(nanos: Nanos) -> String {
    let (sign, nanos) = (if nanos.0 < 0 { "-" } else { "" }, nanos.0.unsigned_abs());
    format!("{sign}{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}
