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
    JobInfo: Info "vramline_job_info" ["host", "job", "recording"]
        "The identity of a job.",
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
