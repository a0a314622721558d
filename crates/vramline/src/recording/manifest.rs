//! `run.json`: what the parent of a run knew when it began, and how the run ended.
//!
//! Written whole at the start and again at the end, each time to a temporary file that is then renamed: a reader, or a
//! parent that is killed, meets a whole file or none. Without `exit` the run is still going, or its parent was killed.
//!
//! The environment holds what explains memory (see [`environment`]), never everything: recordings are sent to colleagues
//! and attached to bug reports.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::recording::folder::{self, RUN, RunPlace, open_plain, parts};
use crate::recording::identity::{RankIdentity, VARIABLES};
use crate::source::driver::probe::{Cost, Costs};
use crate::source::driver::visible::visible;
use crate::source::driver::{DeviceFacts, DriverError, Identity, Library, Part};
use crate::source::procfs::{Namespace, Standing};
use crate::units::{Bytes, Nanos};

/// The `kind` of every manifest.
pub const KIND: &str = "vramline-recording";

/// The version of recordings that is written here. Additions keep it; what old readers would misread raises it.
pub const SCHEMA: u32 = crate::recording::schema::VERSION;

/// A manifest has a few kilobytes. What is larger is not one.
const LARGEST: u64 = 16 << 20;

/// What the launcher of a run reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunManifest {
    /// Always [`KIND`].
    pub kind: String,
    /// The version of the whole recording.
    pub schema: u32,
    /// The version of Vramline that wrote it.
    pub vramline: String,
    /// The command with its arguments. What is not UTF-8 is replaced.
    pub command: Vec<String>,
    /// Where it was started.
    pub cwd: String,
    /// The machine.
    pub host: String,
    /// The parent's own process number.
    pub parent_pid: u32,
    /// Which part of which job the parent is, as far as it sees that. [`RankIdentity::run`] is its own name.
    #[serde(default)]
    pub identity: RankIdentity,
    /// What the clocks showed.
    pub clocks: Clocks,
    /// The requested bytes.
    pub settings: Settings,
    /// The variables that the job got, as far as [`environment`] lets them through.
    pub environment: BTreeMap<String, String>,
    /// The GPUs of the machine, whether the job may use them or not.
    pub devices: Vec<Device>,
    /// The source of the device figures, and the cost of reading them; `None` before the first reading.
    #[serde(default)]
    pub driver: Option<DriverRun>,
    /// Where the other files of this run are until the job has ended, if they are written to a local folder first.
    #[serde(default)]
    pub local: Option<String>,
    /// How the job ended; nothing while it runs.
    pub exit: Option<Exit>,
}

/// The clocks at both ends of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// Before the job started.
    pub begin: ClockPair,
    /// After it ended.
    pub end: Option<ClockPair>,
}

impl Clocks {
    /// How long the run lasted; `None` where its end is unknown.
    #[must_use]
    pub fn lasted(&self) -> Option<Nanos> {
        let end = self.end.as_ref()?.monotonic_ns;
        Some(Nanos(end.0.saturating_sub(self.begin.monotonic_ns.0)))
    }
}

/// One moment on two clocks: people and other hosts go by the first, events within a host by the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPair {
    /// Since 1970, UTC; may jump.
    pub realtime_ns: Nanos,
    /// `CLOCK_MONOTONIC`, Python's `time.monotonic_ns()`.
    pub monotonic_ns: Nanos,
}

/// What a user asked `vramline run` for. `None` is "not asked".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// `auto`, `off`, `steps=N` or `all`.
    pub trace: String,
    /// The longest duration of a trace in seconds.
    pub trace_seconds: u32,
    /// The number of training steps after which a run without a trace ends; earlier versions made none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_after_steps: Option<u32>,
    /// Samples a second; 0 is none.
    pub rate: f64,
    /// Whether the peak is reset at each step.
    pub step_peaks: bool,
    /// The devices that the job may use: a list, or `none`.
    pub gpus: Option<String>,
    /// Whether pools grow instead of taking all memory at first use. PyTorch's always grows.
    pub growth: Option<bool>,
    /// The most that a pool may hold.
    pub limit_bytes: Option<Bytes>,
    /// `default`, `async`, `platform` or `expandable`.
    pub allocator: Option<String>,
    /// Whether TensorFlow's pool on the CPU stands in for a GPU.
    pub stand_in: StandIn,
    /// Whether calls of NVIDIA's driver are recorded; earlier versions could not.
    #[serde(default)]
    pub driver_trace: DriverTrace,
}

/// Whether calls of NVIDIA's driver are recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum DriverTrace {
    /// They are.
    On,
    /// They are not: nobody asked for it.
    #[default]
    Off,
    /// They are not, although it was asked for: it cannot work here.
    Impossible,
    /// A word of a newer version.
    #[serde(other)]
    Other,
}

/// How it came about that TensorFlow's pool allocator on the CPU stands in for a GPU, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum StandIn {
    /// On: no GPU is visible, and the option is not disabled.
    SwitchedOn,
    /// On: the user had set `TF_CPU_ALLOCATOR_USE_BFC` himself.
    OnByUser,
    /// Off: the user had set `TF_CPU_ALLOCATOR_USE_BFC` himself.
    OffByUser,
    /// Off: `--no-stand-in`.
    Prevented,
    /// Off: there is a GPU.
    NotNeeded,
    /// A word of a newer version.
    #[serde(other)]
    Other,
}

impl StandIn {
    /// Whether the pool on the CPU is used.
    #[must_use]
    pub fn is_on(self) -> bool {
        matches!(self, StandIn::SwitchedOn | StandIn::OnByUser)
    }
}

/// A GPU. Without the driver's library only device files are to be seen, and all but the name is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Device {
    /// The model; nothing where only the device file is to be seen.
    pub name: Option<String>,
    /// Its name for ever, by which `driver.arrows` knows it.
    pub uuid: Option<String>,
    /// The driver's number for it, which need not be CUDA's.
    pub index: Option<u32>,
    /// CUDA's capability, such as `[9, 0]`.
    pub capability: Option<(i32, i32)>,
    /// Where it sits.
    pub pci_bus_id: Option<String>,
    /// Whether it is divided into parts (MIG).
    pub is_divided: Option<bool>,
    /// Which part of a divided device it is.
    pub part: Option<Part>,
    /// Whether the driver keeps the peaks of processes.
    pub is_accounting: Option<bool>,
    /// All of its memory.
    pub total_bytes: Option<Bytes>,
    /// What the driver keeps of it.
    pub reserved_bytes: Option<Bytes>,
    /// Which sum of the driver's figures was its total when the run began.
    pub identity: Option<Identity>,
    /// Why its memory is unknown.
    pub error: Option<DriverError>,
}

/// The driver, as the parent of a run found it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriverRun {
    /// Which driver answered.
    pub library: Library,
    /// Why there was none.
    pub error: Option<DriverError>,
    /// How this process counts processes.
    pub namespace: Namespace,
    /// How the driver's lists of processes stood to the job's own, as far as the job was on a device.
    pub standing: Option<Standing>,
    /// For how long it was watched.
    pub watched_ns: u64,
    /// What asking the driver cost.
    pub costs: Costs,
    /// What asking the kernel cost.
    pub host: Cost,
    /// Rows that could not be written.
    pub lost_rows: u64,
}

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

impl Exit {
    /// The code, where the job ended by itself.
    #[must_use]
    pub fn code(self) -> Option<i32> {
        match self {
            Exit::Code(code) => Some(code),
            Exit::Signal(_) => None,
        }
    }

    /// The signal, where one ended the job.
    #[must_use]
    pub fn signal(self) -> Option<i32> {
        match self {
            Exit::Code(_) => None,
            Exit::Signal(signal) => Some(signal),
        }
    }
}

/// A manifest that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The file system said no.
    #[error("cannot read '{}': {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What it said.
        #[source]
        error: io::Error,
    },
    /// More bytes than any manifest has.
    #[error("'{}' is larger than {}, so it is not the manifest of a recording", path.display(), Bytes(LARGEST))]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Not JSON, or not this JSON.
    #[error("'{}' is not the manifest of a recording: {error}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where and why.
        #[source]
        error: serde_json::Error,
    },
    /// JSON of something else.
    #[error("'{}' has kind '{kind}', expected '{KIND}'", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its kind, cut where it is long.
        kind: String,
    },
    /// Written by a newer Vramline.
    #[error("'{}' has schema {found}, but this version of Vramline reads schemas up to {SCHEMA}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u64,
    },
}

impl ManifestError {
    /// What to do now; empty where the error says it all.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            ManifestError::Io { error, .. } if error.kind() == io::ErrorKind::NotFound => {
                "give a folder NAME.vram that `vramline run` made"
            }
            ManifestError::Newer { .. } => "update vramline",
            ManifestError::Malformed { .. } | ManifestError::TooLarge { .. } => {
                "restore the run.json that `vramline run` wrote"
            }
            ManifestError::Io { .. } | ManifestError::Foreign { .. } => "",
        }
    }
}

impl RunManifest {
    /// Writes `run.json` into `folder`, in one piece or not at all.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        self.write_at(&RunPlace::first(folder))
    }

    /// Writes the manifest of a parent, in one piece or not at all.
    pub fn write_at(&self, place: &RunPlace) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        let path = place.manifest();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        // Parents on other hosts may have the same number, but then they have joined, and the name tells them apart.
        let temporary = place.folder.join(format!(".{name}.{}", self.parent_pid));
        // Not synced: this survives every death of the process, and waiting for a disk is not worth the job's time.
        let written = File::create(&temporary)
            .and_then(|mut file| file.write_all(&text))
            .and_then(|()| std::fs::rename(&temporary, &path));
        if written.is_err() {
            // On a full disk the empty file goes too; if not even that works, the first error says why.
            let _ = std::fs::remove_file(&temporary);
        }
        written
    }

    /// Reads the `run.json` of `folder`.
    pub fn read(folder: &Path) -> Result<RunManifest, ManifestError> {
        RunManifest::read_file(folder.join(RUN))
    }

    /// Reads the manifest of a parent.
    pub fn read_file(path: PathBuf) -> Result<RunManifest, ManifestError> {
        let mut text = Vec::new();
        let read = open_plain(&path).and_then(|file| file.take(LARGEST + 1).read_to_end(&mut text));
        match read {
            Err(error) => Err(ManifestError::Io { path, error }),
            Ok(length) if length as u64 > LARGEST => Err(ManifestError::TooLarge { path }),
            Ok(_) => RunManifest::parse(&text, path),
        }
    }

    /// Reads the manifests of all parents that wrote into a folder, the first one first. What cannot be read is left out.
    #[must_use]
    pub fn read_all(folder: &Path) -> Vec<RunManifest> {
        let found = parts(folder).unwrap_or_default().into_iter();
        let joined = found
            .filter(|(part, _)| *part == folder::Part::Run)
            .map(|(part, id)| folder.join(part.name(&id)));
        std::iter::once(folder.join(RUN))
            .chain(joined)
            .filter_map(|path| RunManifest::read_file(path).ok())
            .collect()
    }

    /// The driver's name for the device that has this number in the job.
    #[must_use]
    pub(crate) fn uuid_of_device(&self, number: usize) -> Option<String> {
        let facts = |device: &Device| DeviceFacts {
            index: device.index.unwrap_or_default(),
            uuid: device.uuid.clone().unwrap_or_default(),
            name: device.name.clone(),
            capability: device.capability,
            pci_bus_id: device.pci_bus_id.clone(),
            is_divided: device.is_divided,
            part: device.part.clone(),
            is_accounting: device.is_accounting,
        };
        let devices: Vec<DeviceFacts> = self.devices.iter().map(facts).collect();
        let variable = |name: &str| self.environment.get(name).map(String::as_str);
        let list = self.settings.gpus.as_deref().or_else(|| variable("CUDA_VISIBLE_DEVICES"));
        let seen = visible(&devices, list, variable("CUDA_DEVICE_ORDER"));
        let place = *seen.devices.get(number)?;
        devices.get(place).map(|facts| facts.uuid.clone()).filter(|uuid| !uuid.is_empty())
    }

    fn parse(text: &[u8], path: PathBuf) -> Result<RunManifest, ManifestError> {
        /// What every version has. The rest is looked at only when the version is known.
        #[derive(Deserialize)]
        struct Head {
            kind: String,
            schema: u64,
        }
        let head: Head = match serde_json::from_slice(text) {
            Ok(head) => head,
            Err(error) => return Err(ManifestError::Malformed { path, error }),
        };
        if head.kind != KIND {
            return Err(ManifestError::Foreign { path, kind: head.kind.chars().take(40).collect() });
        }
        if head.schema > u64::from(SCHEMA) {
            return Err(ManifestError::Newer { path, found: head.schema });
        }
        serde_json::from_slice(text).map_err(|error| ManifestError::Malformed { path, error })
    }
}

/// Beginnings of the names that say how a framework, its libraries or CUDA use memory.
const PREFIXES: [&str; 9] =
    ["TF_", "KERAS_", "XLA_", "JAX_", "CUDA_", "NVIDIA_", "PYTORCH_", "TORCH_", "NCCL_"];

/// Names that say where the other parts of a job are, and how many threads this one has. Those of launchers are in `identity`.
const NAMES: [&str; 3] = ["OMP_NUM_THREADS", "MASTER_ADDR", "MASTER_PORT"];

/// A name with one of these may hold a secret, whatever it begins with.
const SECRETS: [&str; 7] = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "AUTH"];

/// Terraform shares the prefix of TensorFlow, and is handed passwords in its variables.
const TERRAFORM: [&str; 15] = [
    "TF_VAR_",
    "TF_CLI_",
    "TF_LOG",
    "TF_DATA_DIR",
    "TF_INPUT",
    "TF_WORKSPACE",
    "TF_IN_AUTOMATION",
    "TF_PLUGIN_",
    "TF_REGISTRY_",
    "TF_REATTACH_",
    "TF_CLOUD_",
    "TF_STATE_",
    "TF_HTTP_",
    "TF_ENCRYPTION",
    "TF_APPEND_",
];

/// Of all variables those that belong into a recording. The list is of what is let through: what nobody thought of stays out.
pub fn environment(all: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, String> {
    all.into_iter().filter(|(name, _)| is_recorded(name)).collect()
}

fn is_recorded(name: &str) -> bool {
    let upper = name.to_uppercase();
    (NAMES.contains(&name)
        || VARIABLES.contains(&name)
        || PREFIXES.iter().any(|prefix| name.starts_with(prefix)))
        && !TERRAFORM.iter().any(|prefix| upper.starts_with(prefix))
        && !SECRETS.iter().any(|secret| upper.contains(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> RunManifest {
        let now = ClockPair { realtime_ns: Nanos(1_794_726_610_000_000_000), monotonic_ns: Nanos(5) };
        RunManifest {
            kind: KIND.to_owned(),
            schema: SCHEMA,
            vramline: "0.1.0".to_owned(),
            command: vec!["python".to_owned(), "träin.py".to_owned(), "\u{1b}[2J\0".to_owned()],
            cwd: "/home/someone".to_owned(),
            host: "node-1".to_owned(),
            parent_pid: 42,
            identity: RankIdentity { rank: Some(3), ..RankIdentity::default() },
            clocks: Clocks { begin: now, end: None },
            settings: Settings {
                trace: "auto".to_owned(),
                trace_seconds: 60,
                stop_after_steps: None,
                rate: 10.0,
                step_peaks: false,
                gpus: Some("0,1".to_owned()),
                growth: Some(false),
                limit_bytes: Some(Bytes(8 << 30)),
                allocator: None,
                stand_in: StandIn::NotNeeded,
                driver_trace: DriverTrace::On,
            },
            environment: BTreeMap::from([("TF_CONFIG".to_owned(), "{}".to_owned())]),
            devices: vec![
                Device {
                    name: Some("NVIDIA H200".to_owned()),
                    uuid: Some("GPU-1".to_owned()),
                    capability: Some((9, 0)),
                    identity: Some(Identity::UsedExcludesReserved),
                    ..Device::default()
                },
                Device { error: Some(DriverError::NotSupported), ..Device::default() },
            ],
            driver: Some(DriverRun {
                error: Some(DriverError::LibraryTooOld { function: "nvmlX".to_owned() }),
                standing: Some(Standing::ByOwnNumber),
                ..DriverRun::default()
            }),
            local: None,
            exit: None,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let scratch = tempfile::tempdir().unwrap();
        let mut written = manifest();
        written.write(scratch.path()).unwrap();
        assert_eq!(RunManifest::read(scratch.path()).unwrap(), written);
        for exit in [Exit::Code(3), Exit::Signal(9)] {
            written.clocks.end = Some(ClockPair { realtime_ns: Nanos(-1), monotonic_ns: Nanos(i64::MAX) });
            written.exit = Some(exit);
            written.write(scratch.path()).unwrap();
            assert_eq!(RunManifest::read(scratch.path()).unwrap(), written);
        }
        let names: Vec<_> =
            std::fs::read_dir(scratch.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["run.json"]);
    }

    /// The form that other tools may rely on.
    #[test]
    fn the_form_is_this() {
        let mut written = manifest();
        written.exit = Some(Exit::Signal(15));
        let json = serde_json::to_value(&written).unwrap();
        assert_eq!(json["kind"], "vramline-recording");
        assert_eq!(json["schema"], 1);
        assert_eq!(json["clocks"]["begin"]["monotonic_ns"], 5);
        assert!(json["clocks"]["end"].is_null());
        assert_eq!(json["settings"]["limit_bytes"], 8_589_934_592_u64);
        assert_eq!(json["settings"]["stand_in"], "not-needed");
        assert_eq!(json["settings"]["driver_trace"], "on");
        assert_eq!(json["exit"]["signal"], 15);
        assert_eq!(json["devices"][0]["name"], "NVIDIA H200");
        assert_eq!(json["devices"][0]["identity"], "used-excludes-reserved");
        assert_eq!(json["devices"][1]["error"]["code"], "not-supported");
        assert_eq!(json["driver"]["error"]["code"], "library-too-old");
    }

    fn parsed(text: &[u8]) -> Result<RunManifest, ManifestError> {
        RunManifest::parse(text, PathBuf::from("run.json"))
    }

    #[test]
    fn a_newer_schema_is_refused_with_a_hint() {
        let error = parsed(br#"{"kind":"vramline-recording","schema":2,"what":"ever"}"#).unwrap_err();
        assert!(matches!(error, ManifestError::Newer { found: 2, .. }));
        assert!(error.hint().contains("update"));
        // Additions are no reason to refuse, nor is a word that is not known yet.
        let mut json = serde_json::to_value(manifest()).unwrap();
        json["added"] = serde_json::json!({"later": [1, 2]});
        json["settings"]["stand_in"] = "with-a-hat".into();
        json["settings"].as_object_mut().unwrap().remove("driver_trace");
        // Recordings from before the driver was asked have a name only.
        json["devices"] = serde_json::json!([{"name": "NVIDIA T4"}]);
        json.as_object_mut().unwrap().remove("driver");
        json.as_object_mut().unwrap().remove("identity");
        let read = parsed(json.to_string().as_bytes()).unwrap();
        assert_eq!(read.settings.stand_in, StandIn::Other);
        assert!(!read.settings.stand_in.is_on());
        assert_eq!(read.settings.driver_trace, DriverTrace::Off);
    }

    #[test]
    fn hostile_text_is_an_error() {
        let deep = [b"{\"kind\":".as_slice(), &b"[".repeat(1_000_000)].concat();
        let deep_inside =
            [br#"{"kind":"vramline-recording","schema":1,"x":"#.as_slice(), &b"[".repeat(1_000_000)].concat();
        let cases: [&[u8]; 14] = [
            b"",
            b"null",
            b"[]",
            b"{}",
            b"\xff\xfe",
            b"{\"kind\":1,\"schema\":1}",
            b"{\"kind\":\"vramline-recording\"}",
            b"{\"kind\":\"vramline-recording\",\"schema\":-1}",
            b"{\"kind\":\"vramline-recording\",\"schema\":1e99}",
            b"{\"kind\":\"vramline-recording\",\"schema\":1}",
            b"{\"kind\":\"report\",\"schema\":1}",
            b"{\"kind\":\"vramline-recording\",\"schema\":99999999999999999999}",
            &deep,
            &deep_inside,
        ];
        for case in cases {
            let shown = String::from_utf8_lossy(&case[..case.len().min(80)]);
            assert!(parsed(case).is_err(), "{shown}");
        }
        // Every cut and every wrong type.
        let whole = serde_json::to_vec(&manifest()).unwrap();
        for end in 0..whole.len() {
            assert!(parsed(&whole[..end]).is_err(), "cut at {end}");
        }
        let json = serde_json::to_value(manifest()).unwrap();
        for name in json.as_object().unwrap().keys().filter(|name| *name != "exit") {
            let mut wrong = json.clone();
            wrong[name] = serde_json::json!([[0.5]]);
            assert!(parsed(wrong.to_string().as_bytes()).is_err(), "{name}");
        }
    }

    #[test]
    fn files_that_are_none() {
        let scratch = tempfile::tempdir().unwrap();
        let missing = RunManifest::read(scratch.path()).unwrap_err();
        assert!(missing.to_string().contains("run.json") && missing.hint().contains("NAME.vram"));
        // A file of this length takes no room on the disk.
        File::create(scratch.path().join(RUN)).unwrap().set_len(1 << 40).unwrap();
        assert!(matches!(RunManifest::read(scratch.path()), Err(ManifestError::TooLarge { .. })));
        std::fs::remove_file(scratch.path().join(RUN)).unwrap();
        std::fs::create_dir(scratch.path().join(RUN)).unwrap();
        assert!(matches!(RunManifest::read(scratch.path()), Err(ManifestError::Io { .. })));
        // What cannot be put in place leaves nothing behind.
        assert!(manifest().write(scratch.path()).is_err());
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_what_explains_memory_is_recorded() {
        let kept = [
            "TF_CONFIG",
            "TF_GPU_ALLOCATOR",
            "KERAS_BACKEND",
            "XLA_FLAGS",
            "JAX_PLATFORMS",
            "CUDA_VISIBLE_DEVICES",
            "PYTORCH_CUDA_ALLOC_CONF",
            "NCCL_DEBUG",
            "OMP_NUM_THREADS",
            "SLURM_PROCID",
            "SLURM_JOB_ID",
            "SLURM_STEP_ID",
            "SLURM_ARRAY_TASK_ID",
            "TORCHELASTIC_RUN_ID",
            "OMPI_COMM_WORLD_RANK",
            "PMIX_RANK",
            "JOB_COMPLETION_INDEX",
            "RANK",
            "LOCAL_RANK",
            "WORLD_SIZE",
            "MASTER_ADDR",
            "MASTER_PORT",
        ];
        let dropped = [
            "AWS_SECRET_ACCESS_KEY",
            "WANDB_API_KEY",
            "HF_TOKEN",
            "TF_MY_TOKEN",
            "TF_TOKEN_app_terraform_io",
            "TF_VAR_db",
            "TF_CLI_ARGS_plan",
            "TF_LOG",
            "TF_LOG_PATH",
            "TF_DATA_DIR",
            "TF_HTTP_ADDRESS",
            "NVIDIA_api_key",
            "JAX_AUTHORITY",
            "TORCH_Passwd",
            "CUDA_CREDENTIALS",
            "SLURM_JOB_USER",
            "OMPI_MCA_orte_hnp_uri",
            "PMIX_SERVER_URI41",
            "OMP_PLACES",
            "RANKS",
            "HOME",
            "PATH",
            "",
            "tf_config",
        ];
        let all = kept.iter().chain(&dropped).map(|name| ((*name).to_owned(), "value".to_owned()));
        let mut expected = kept.map(str::to_owned);
        expected.sort();
        assert_eq!(environment(all).into_keys().collect::<Vec<_>>(), expected);
    }
}
