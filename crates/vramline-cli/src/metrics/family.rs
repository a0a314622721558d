//! Every metric that the exporter writes: its name, type, unit, labels and meaning, declared once.
//!
//! Names of devices follow OpenTelemetry's conventions for hardware (`hw.gpu.memory.usage`) in Prometheus' spelling. The others begin with
//! `vramline_`. No label holds a process ID or a step: each would begin a new series.

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A figure that rises and falls.
    Gauge,
    /// A count that only rises.
    Counter,
    /// Always 1; the labels are the content.
    Info,
}

/// The declaration of a metric.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The unit in the name, where there is one.
    pub(crate) unit: Option<&'static str>,
    pub(crate) labels: &'static [&'static str],
    /// One sentence without backslashes, quotes and line breaks, so that no format needs to escape it.
    pub(crate) help: &'static str,
}

macro_rules! families {
    ($($metric:ident: $kind:ident $name:literal $(in $unit:literal)? [$($label:literal),*] $help:literal,)*) => {
        /// A metric; the index of its declaration in [`FAMILIES`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Metric {
            $($metric,)*
        }

        /// All metrics, in the order in which they are written.
        pub(crate) const FAMILIES: &[Family] = &[
            $(Family {
                name: $name,
                kind: Kind::$kind,
                unit: families!(@unit $($unit)?),
                labels: &[$($label),*],
                help: $help,
            },)*
        ];
    };
    (@unit $unit:literal) => { Some($unit) };
    (@unit) => { None };
}

families! {
    GpuUsage: Gauge "hw_gpu_memory_usage_bytes" in "bytes" ["host", "device"]
        "GPU memory in use, by the driver: all that is not free.",
    GpuLimit: Gauge "hw_gpu_memory_limit_bytes" in "bytes" ["host", "device"]
        "Size of the GPU memory.",
    DeviceInfo: Info "vramline_device_info" ["host", "device", "uuid", "model", "part_of"]
        "The driver's ID and the model of a device, and of a MIG part the ID of the whole device.",
    DevicePart: Gauge "vramline_device_memory_bytes" in "bytes" ["host", "device", "part"]
        "What holds the memory of a device. The parts add up to its size.",
    DeviceProcesses: Gauge "vramline_device_processes" ["host", "device"]
        "Number of processes in the driver's list; of host memory, number of recorded processes.",
    DriverUp: Gauge "vramline_driver_up" ["host"]
        "1 if the driver answers, 0 if not.",
    DriverAge: Gauge "vramline_driver_answer_age_seconds" in "seconds" ["host"]
        "Age of the driver's answer that these figures come from.",
    DriverInfo: Info "vramline_driver_info" ["host", "version"]
        "The version of the driver.",
    PoolUsage: Gauge "vramline_pool_usage_bytes" in "bytes" ["host", "device", "job", "rank", "pool"]
        "Bytes of a framework's pool that are in use.",
    PoolReserved: Gauge "vramline_pool_reserved_bytes" in "bytes" ["host", "device", "job", "rank", "pool"]
        "Bytes that a framework's pool has reserved from the driver.",
    PoolPeak: Gauge "vramline_pool_peak_bytes" in "bytes" ["host", "device", "job", "rank", "pool"]
        "Peak bytes in use of a framework's pool since the process began.",
    PoolLimit: Gauge "vramline_pool_limit_bytes" in "bytes" ["host", "device", "job", "rank", "pool"]
        "The limit of a framework's pool.",
    PoolHeadroom: Gauge "vramline_pool_headroom_bytes" in "bytes" ["host", "device", "job", "rank", "pool"]
        "How much higher the peak can rise before memory runs out.",
    ProcessUsage: Gauge "vramline_process_memory_bytes" in "bytes" ["host", "device", "job", "rank", "pool"]
        "Memory of the device that the process of a pool holds, by the driver; of host memory, its resident set.",
    Step: Gauge "vramline_step_number" ["host", "job", "rank"]
        "The last completed step, as the program counts steps.",
    StepDuration: Gauge "vramline_step_duration_seconds" in "seconds" ["host", "job", "rank"]
        "Duration of the last completed step.",
    Steps: Counter "vramline_steps_total" ["host", "job", "rank"]
        "Steps that the process has completed, in all phases.",
    JobRunning: Gauge "vramline_job_running" ["host", "job"]
        "1 if the job is running, 0 if it has ended.",
    JobStart: Gauge "vramline_job_start_timestamp_seconds" in "seconds" ["host", "job"]
        "Unix time at which the job began.",
    JobEnd: Gauge "vramline_job_end_timestamp_seconds" in "seconds" ["host", "job"]
        "Unix time at which the job ended.",
    JobFailure: Gauge "vramline_job_last_failure_timestamp_seconds" in "seconds" ["host", "job", "rank", "reason"]
        "Unix time of the error that ended a job or one of its processes; reason is out_of_memory, exception, exit_code or signal.",
    JobInfo: Info "vramline_job_info" ["host", "job", "recording", "user_labels"]
        "A recording of a job, with the labels that the user gave it, as name=value, name=value.",
    RankInfo: Info "vramline_rank_info" ["host", "job", "rank", "local_rank", "node_rank", "world_size", "attempt", "role", "launcher", "framework"]
        "The place of a running process in its job, who told its rank, and its framework.",
    Recordings: Gauge "vramline_exporter_recordings" ["host"]
        "Number of recordings that the exporter follows.",
    Unreadable: Gauge "vramline_exporter_unreadable_recordings" ["host"]
        "Number of recordings that the exporter cannot read completely.",
    LeftOut: Gauge "vramline_exporter_series_left_out" ["host"]
        "Number of series that the exporter left out because there are too many.",
    Build: Info "vramline_exporter_build_info" ["version"]
        "The version of Vramline.",
}

impl Metric {
    pub(crate) fn family(self) -> &'static Family {
        &FAMILIES[self as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    use super::*;

    fn docs() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
    }

    /// `docs/reference/metrics.md` holds the table of all metrics. With `VRAMLINE_WRITE_DOCS=1` it is written into it.
    #[test]
    fn the_docs_hold_the_table() {
        let path = docs().join("reference/metrics.md");
        let mut table = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
        for family in FAMILIES {
            let kind = format!("{:?}", family.kind).to_lowercase();
            let labels: Vec<String> = family.labels.iter().map(|label| format!("`{label}`")).collect();
            table += &format!("| `{}` | {kind} | {} | {} |\n", family.name, labels.join(", "), family.help);
        }
        let text = fs::read_to_string(&path).unwrap();
        let begin = text.find("| metric |").unwrap();
        let end = text[begin..].find("\n\n").map_or(text.len(), |end| begin + end + 1);
        if std::env::var_os("VRAMLINE_WRITE_DOCS").is_some() {
            fs::write(&path, format!("{}{table}{}", &text[..begin], &text[end..])).unwrap();
            return;
        }
        assert_eq!(&text[begin..end], table, "run this test with VRAMLINE_WRITE_DOCS=1");
    }

    /// Names of metrics in a text, each with the names of the labels that select or describe it.
    fn used(text: &str) -> BTreeSet<(String, Vec<String>)> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let mut found = BTreeSet::new();
        for (at, _) in text.match_indices("vramline_").chain(text.match_indices("hw_gpu_")) {
            if at > 0 && is_part(text.as_bytes()[at - 1]) {
                continue;
            }
            let rest = &text[at..];
            let (name, after) =
                rest.split_at(rest.bytes().position(|byte| !is_part(byte)).unwrap_or(rest.len()));
            let selector = after.strip_prefix('{').and_then(|after| after.split_once('}'));
            let labels = selector.map_or("", |(selector, _)| selector).split(',');
            let label = |part: &str| part.split(['=', '!']).next().unwrap().trim().to_owned();
            found.insert((name.to_owned(), labels.map(label).filter(|label| !label.is_empty()).collect()));
        }
        found
    }

    /// No dashboard, rule or example asks for what the exporter never writes.
    #[test]
    fn what_is_shipped_uses_metrics_that_exist() {
        let pages =
            ["how-to/monitoring.md", "reference/metrics.md"].map(|page| docs().join(page)).into_iter();
        let shipped = fs::read_dir(docs().join("monitoring")).unwrap().map(|entry| entry.unwrap().path());
        for path in pages.chain(shipped) {
            // In JSON, quotes within an expression are escaped.
            let text = fs::read_to_string(&path).unwrap().replace("\\\"", "\"");
            let used = used(&text);
            assert!(!used.is_empty() || path.ends_with("prometheus.yml"), "{}", path.display());
            for (name, labels) in used {
                let family = FAMILIES.iter().find(|family| family.name == name);
                let family = family.unwrap_or_else(|| panic!("{} names {name}", path.display()));
                for label in labels {
                    let is_known = family.labels.contains(&label.as_str());
                    assert!(is_known, "{}: {name} has no label {label}", path.display());
                }
            }
        }
        assert_eq!(used("x_vramline_a vramline_b{c=\"1\", d!~\"2\"}[5m]").len(), 1);
    }
}
