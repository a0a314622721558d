//! What a report is about, in a few words: file, command, how it ended, framework and device.

use super::report::{PoolAnalysis, ReportAnalysis};
use crate::recording::manifest::Exit;
use crate::units::{Nanos, counted, duration_text};

/// The parts of the line above a headline, those that are known.
pub(super) fn of(report: &ReportAnalysis, main: Option<&PoolAnalysis>) -> Vec<String> {
    let mut parts: Vec<String> = report.source.files.first().cloned().into_iter().collect();
    if let Some(job) = &report.job {
        if !job.command.is_empty() {
            parts.push(job.command.join(" "));
            parts.push(ending(job.exit, job.lasted));
        }
        if let Some(ranks) = &report.ranks {
            let hosts = counted(ranks.hosts.len(), "host");
            parts.push(format!("{} on {hosts}", counted(ranks.ranks.len(), "rank")));
        } else if job.processes.len() > 1 {
            parts.push(format!("{} processes", job.processes.len()));
        }
    }
    let program = report.source.framework.map(|framework| {
        let processes = report.job.iter().flat_map(|job| &job.processes);
        let mut versions = processes.flat_map(|process| &process.frameworks);
        let version = versions.find(|(name, _)| framework.is_called(name));
        version
            .map_or(framework.title().to_owned(), |(_, version)| format!("{} {version}", framework.title()))
    });
    let device = main.filter(|pool| !pool.device.is_empty()).map(|pool| hardware(report, pool));
    match (program, device) {
        (Some(program), Some(device)) => parts.push(format!("{program} on {device}")),
        (Some(one), None) | (None, Some(one)) => parts.push(one),
        (None, None) => {}
    }
    parts
}

fn ending(exit: Option<Exit>, lasted: Option<Nanos>) -> String {
    let lasted = lasted.map(duration_text);
    let after = |word: &str| lasted.as_ref().map_or(String::new(), |lasted| format!(" {word} {lasted}"));
    match exit {
        None => "still running, or the launcher was killed".to_owned(),
        Some(Exit::Code(0)) => format!("done{}", after("in")),
        Some(Exit::Code(code)) => format!("failed with exit code {code}{}", after("after")),
        Some(Exit::Signal(signal)) => format!("killed by signal {signal}{}", after("after")),
    }
}

/// A device with its name and memory, where these are known.
fn hardware(report: &ReportAnalysis, pool: &PoolAnalysis) -> String {
    let recorded = report.job.iter().flat_map(|job| &job.devices).find(|device| device.device == pool.device);
    let known = recorded.map(|device| (device.name.clone(), device.total)).or_else(|| {
        let hardware = pool.hardware.as_ref()?;
        Some((hardware.vendor.map(|vendor| vendor.word().to_owned()), hardware.memory))
    });
    let (name, total) = known.unwrap_or_default();
    let words: Vec<String> = name.into_iter().chain(total.map(|total| total.to_string())).collect();
    if words.is_empty() { pool.device.clone() } else { format!("{} ({})", pool.device, words.join(", ")) }
}
