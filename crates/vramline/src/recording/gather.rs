//! Several recordings of one job, from hosts without a shared folder, joined into one.
//!
//! The files of each recording keep their names, which say whose they are; only the files of the parents that made the folders get the
//! names of parents that have joined. Nothing is decoded or changed, so clocks and figures of each host stay what they were. The inputs
//! are opened for reading only, and the result appears whole or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::folder::{DRIVER, Part, ProcessId, RUN, RunPlace, moment_of_name, parts};
use super::load::facts;
use super::manifest::{ManifestError, RunManifest};
use super::schema::VERSION;

/// More folders inside each other than this are none of ours.
const DEEPEST: usize = 8;

/// What was joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gathered {
    /// The name of the job, if it has one.
    pub job: Option<String>,
    /// How many launchers wrote the recordings.
    pub launchers: usize,
    /// How many processes did.
    pub processes: usize,
    /// The hosts, in the order of their names.
    pub hosts: Vec<String>,
    /// Bytes of all files.
    pub bytes: u64,
    /// Names of files that are not Vramline's and stayed where they are.
    pub left_out: Vec<PathBuf>,
}

/// Why recordings cannot be joined.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatherError {
    /// A file cannot be read or written.
    #[error("cannot {what} '{}': {error}", path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        #[source]
        error: io::Error,
    },
    /// There is nothing to join.
    #[error("'{}' is not a recording", _0.display())]
    NotARecording(PathBuf),
    /// One recording is given twice.
    #[error("'{}' and '{}' are the same recording", _0.display(), _1.display())]
    Twice(PathBuf, PathBuf),
    /// Its manifest cannot be read.
    #[error("{0}")]
    Manifest(#[from] ManifestError),
    /// A newer version wrote it.
    #[error("'{}' was written by a newer version of Vramline", _0.display())]
    Newer(PathBuf),
    /// They name different jobs.
    #[error("'{}' belongs to job '{first_job}', and '{}' to job '{other_job}'", first.display(), other.display())]
    OtherJob {
        /// A recording.
        first: PathBuf,
        /// Its job.
        first_job: String,
        /// Another one.
        other: PathBuf,
        /// Its job.
        other_job: String,
    },
    /// Nothing names a job.
    #[error("nothing in '{}' says which job it belongs to", _0.display())]
    Unnamed(PathBuf),
    /// Both have a file of one name, with different content.
    #[error("'{}' and '{}' both contain '{name}', with different content", first.display(), other.display())]
    Collision {
        /// The file.
        name: String,
        /// A recording.
        first: PathBuf,
        /// Another one.
        other: PathBuf,
    },
    /// The target exists.
    #[error("'{}' already exists", _0.display())]
    Exists(PathBuf),
}

impl GatherError {
    /// What to do next; empty if the error says it all.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            GatherError::NotARecording(_) => "give folders NAME.vram that `vramline run` made",
            GatherError::Twice(..) => "give each recording once",
            GatherError::OtherJob { .. } => "gather recordings of one job; `vramline diff` compares jobs",
            GatherError::Unnamed(_) => {
                "if they are of one job, give it a name: `vramline gather --job NAME ...`; runs get one with `vramline run --job NAME`"
            }
            GatherError::Collision { .. } => {
                "two hosts have the same name, or one recording is a changed copy of the other"
            }
            GatherError::Exists(_) => "choose another name with -o, or remove it",
            GatherError::Newer(_) => "update vramline",
            GatherError::Manifest(error) => error.hint(),
            GatherError::Io { .. } => "",
        }
    }
}

/// A file of a recording, and its name in the joined one.
struct Source {
    path: PathBuf,
    recording: usize,
}

/// Joins recordings into the new folder `target`. `job` names the job where nothing else does; a recording that names another one is refused.
/// `copied` is called with the bytes that were copied so far.
pub fn gather(
    recordings: &[PathBuf],
    target: &Path,
    job: Option<&str>,
    mut copied: impl FnMut(u64),
) -> Result<Gathered, GatherError> {
    if target.symlink_metadata().is_ok() {
        return Err(GatherError::Exists(target.to_owned()));
    }
    let inputs = inputs(recordings)?;
    let job = job_of(&inputs, job)?;
    let plan = Plan::of(&inputs)?;
    let above = target.parent().filter(|above| !above.as_os_str().is_empty());
    above.map_or(Ok(()), std::fs::create_dir_all).map_err(failed("create", above.unwrap_or(target)))?;
    let name = target.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let hidden = target.with_file_name(format!(".{name}.{}", std::process::id()));
    let made = plan.copy(&inputs, &hidden, job.as_deref(), &mut copied).and_then(|bytes| {
        // Whoever was faster keeps the name.
        if target.symlink_metadata().is_ok() {
            return Err(GatherError::Exists(target.to_owned()));
        }
        std::fs::rename(&hidden, target).map_err(failed("rename", &hidden))?;
        Ok(bytes)
    });
    let bytes = match made {
        Ok(bytes) => bytes,
        Err(error) => {
            // Made here and known to nobody else.
            let _ = std::fs::remove_dir_all(&hidden);
            return Err(error);
        }
    };
    Ok(Gathered {
        job,
        launchers: plan.launchers,
        processes: plan.processes.len(),
        hosts: plan.hosts.into_iter().collect(),
        bytes,
        left_out: plan.left_out,
    })
}

/// Copies what a launcher and its processes wrote into `local` to the place that the launcher has in a recording, all but its manifest.
/// Each file appears there whole or not at all. Returns the bytes.
pub fn hand_over(local: &Path, place: &RunPlace) -> Result<u64, GatherError> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(local).map_err(failed("read", local))? {
        let entry = entry.map_err(failed("read", local))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let target = match name.as_str() {
            RUN => continue,
            DRIVER => place.driver(),
            _ => place.folder.join(&name),
        };
        let hidden = place.folder.join(format!(".{name}.{}", std::process::id()));
        let made = copy(&entry.path(), &hidden, 0, &mut bytes, &mut |_| ())
            .and_then(|()| std::fs::rename(&hidden, &target).map_err(failed("write", &target)));
        if made.is_err() {
            let is_folder = hidden.is_dir();
            let _ = if is_folder { std::fs::remove_dir_all(&hidden) } else { std::fs::remove_file(&hidden) };
        }
        made?;
    }
    Ok(bytes)
}

/// A recording that is to be joined.
struct Input {
    path: PathBuf,
    /// The manifest of the parent that made it.
    first: Option<RunManifest>,
    /// Every job that a file of it names.
    jobs: BTreeSet<String>,
}

fn inputs(recordings: &[PathBuf]) -> Result<Vec<Input>, GatherError> {
    let mut inputs: Vec<Input> = Vec::new();
    let mut places: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for path in recordings {
        let place = std::fs::canonicalize(path).map_err(failed("read", path))?;
        if let Some(known) = places.insert(place, path.clone()) {
            return Err(GatherError::Twice(known, path.clone()));
        }
        if !super::reader::is_recording(path) {
            return Err(GatherError::NotARecording(path.clone()));
        }
        let first = match RunManifest::read(path) {
            Ok(manifest) => Some(manifest),
            Err(ManifestError::Io { error, .. }) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error.into()),
        };
        let mut jobs: BTreeSet<String> =
            first.iter().filter_map(|first| first.identity.job.clone()).collect();
        for (part, id) in parts(path).map_err(failed("read", path))? {
            let file = path.join(part.name(&id));
            match part {
                Part::Run => jobs.extend(RunManifest::read_file(file)?.identity.job),
                // One that is damaged is joined as it is.
                Part::Process => {
                    if let Ok(facts) = facts(&file) {
                        if facts.schema > VERSION {
                            return Err(GatherError::Newer(file));
                        }
                        jobs.extend(facts.identity.job);
                    }
                }
                _ => {}
            }
        }
        inputs.push(Input { path: path.clone(), first, jobs });
    }
    Ok(inputs)
}

/// The job of all of them. The user's name holds for those that have none.
fn job_of(inputs: &[Input], told: Option<&str>) -> Result<Option<String>, GatherError> {
    let mut named: Option<(&Path, &str)> = None;
    for input in inputs {
        for job in &input.jobs {
            match named {
                Some((first, known)) if known != job => {
                    return Err(GatherError::OtherJob {
                        first: first.to_owned(),
                        first_job: known.to_owned(),
                        other: input.path.clone(),
                        other_job: job.clone(),
                    });
                }
                _ => named = Some((&input.path, job)),
            }
        }
        if input.jobs.is_empty() && told.is_none() {
            return Err(GatherError::Unnamed(input.path.clone()));
        }
    }
    Ok(named.map(|(_, job)| job.to_owned()).or_else(|| told.map(str::to_owned)))
}

/// Which file becomes which.
#[derive(Default)]
struct Plan {
    /// By the name in the joined recording.
    files: BTreeMap<String, Source>,
    launchers: usize,
    processes: BTreeSet<ProcessId>,
    hosts: BTreeSet<String>,
    left_out: Vec<PathBuf>,
}

impl Plan {
    fn of(inputs: &[Input]) -> Result<Plan, GatherError> {
        let mut plan = Plan::default();
        let mut runs: BTreeSet<String> = BTreeSet::new();
        for (recording, input) in inputs.iter().enumerate() {
            let own = input.first.as_ref().map(parent);
            plan.hosts.extend(input.first.iter().map(|first| first.host.clone()));
            runs.extend(own.iter().map(ToString::to_string));
            let found = std::fs::read_dir(&input.path).map_err(failed("read", &input.path))?;
            for entry in found {
                let entry = entry.map_err(failed("read", &input.path))?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let joined = match (name.as_str(), &own) {
                    (RUN | DRIVER, _) if recording == 0 => name.clone(),
                    (RUN, Some(own)) => Part::Run.name(own),
                    (DRIVER, Some(own)) => Part::Driver.name(own),
                    // An answer that nobody waits for.
                    ("request.json", _) => continue,
                    _ if is_ours(&name) => name.clone(),
                    _ => {
                        plan.left_out.push(entry.path());
                        continue;
                    }
                };
                if let Some((part, id)) = Part::of_name(&joined) {
                    plan.hosts.insert(id.host().to_owned());
                    if part.is_of_parent() {
                        runs.insert(id.to_string());
                    } else {
                        plan.processes.insert(id);
                    }
                }
                plan.add(joined, Source { path: entry.path(), recording }, inputs)?;
            }
        }
        plan.launchers = runs.len();
        Ok(plan)
    }

    /// Files that are equal are one: each of two recordings may have been gathered from a third.
    fn add(&mut self, name: String, source: Source, inputs: &[Input]) -> Result<(), GatherError> {
        let Some(known) = self.files.get(&name) else {
            self.files.insert(name, source);
            return Ok(());
        };
        if is_equal(&known.path, &source.path, 0).map_err(failed("read", &source.path))? {
            return Ok(());
        }
        let path =
            |recording: usize| inputs.get(recording).map(|input| input.path.clone()).unwrap_or_default();
        Err(GatherError::Collision { name, first: path(known.recording), other: path(source.recording) })
    }

    fn copy(
        &self,
        inputs: &[Input],
        hidden: &Path,
        job: Option<&str>,
        copied: &mut impl FnMut(u64),
    ) -> Result<u64, GatherError> {
        std::fs::create_dir(hidden).map_err(failed("create", hidden))?;
        let mut bytes = 0;
        for (name, source) in &self.files {
            copy(&source.path, &hidden.join(name), 0, &mut bytes, copied)?;
        }
        // Where nothing named the job, the first manifest does now.
        if let (Some(job), Some(first)) = (job, inputs.first().and_then(|input| input.first.as_ref()))
            && first.identity.job.is_none()
        {
            let mut first = first.clone();
            first.identity.job = Some(job.to_owned());
            first.write_at(&RunPlace::first(hidden)).map_err(failed("write", hidden))?;
        }
        Ok(bytes)
    }
}

/// The name of the parent that wrote a manifest. Older ones do not have the start of the process; none of their files is named by it.
fn parent(manifest: &RunManifest) -> ProcessId {
    let told = manifest.identity.run.as_deref().and_then(|name| name.parse().ok());
    let begun = u64::try_from(manifest.clocks.begin.monotonic_ns.0).unwrap_or(0);
    told.unwrap_or_else(|| ProcessId::new(&manifest.host, manifest.parent_pid, begun / 10_000_000))
}

/// Whether a file of this name belongs to a recording.
fn is_ours(name: &str) -> bool {
    let of_process =
        ["dump-", "exception-", "raised-", "answer-"].iter().any(|prefix| name.starts_with(prefix));
    // Later traces have a number: trace-ID.2.
    let later = name.strip_prefix("trace-").and_then(|rest| rest.rsplit_once('.'));
    let is_window = later.is_some_and(|(id, number)| {
        id.parse::<ProcessId>().is_ok() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    of_process || is_window || Part::of_name(name).is_some() || moment_of_name(name).is_some()
}

fn copy(
    from: &Path,
    to: &Path,
    depth: usize,
    bytes: &mut u64,
    copied: &mut impl FnMut(u64),
) -> Result<(), GatherError> {
    let found = from.symlink_metadata().map_err(failed("read", from))?;
    if found.is_dir() && depth < DEEPEST {
        std::fs::create_dir(to).map_err(failed("create", to))?;
        for entry in std::fs::read_dir(from).map_err(failed("read", from))? {
            let entry = entry.map_err(failed("read", from))?;
            copy(&entry.path(), &to.join(entry.file_name()), depth + 1, bytes, copied)?;
        }
    } else if found.is_file() {
        *bytes += std::fs::copy(from, to).map_err(failed("copy", from))?;
        copied(*bytes);
    }
    // A link or a device is none of ours.
    Ok(())
}

fn is_equal(one: &Path, other: &Path, depth: usize) -> io::Result<bool> {
    let (a, b) = (one.symlink_metadata()?, other.symlink_metadata()?);
    if a.is_dir() && b.is_dir() && depth < DEEPEST {
        let names = |path: &Path| -> io::Result<BTreeSet<_>> {
            std::fs::read_dir(path)?.map(|entry| Ok(entry?.file_name())).collect()
        };
        let all = names(one)?;
        if all != names(other)? {
            return Ok(false);
        }
        for name in all {
            if !is_equal(&one.join(&name), &other.join(&name), depth + 1)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    if !a.is_file() || !b.is_file() || a.len() != b.len() {
        return Ok(false);
    }
    let (mut one, mut other) = (std::fs::File::open(one)?, std::fs::File::open(other)?);
    let (mut first, mut second) = (Vec::new(), Vec::new());
    loop {
        first.clear();
        second.clear();
        let length = one.by_ref().take(1 << 20).read_to_end(&mut first)?;
        other.by_ref().take(1 << 20).read_to_end(&mut second)?;
        if first != second {
            return Ok(false);
        }
        if length == 0 {
            return Ok(true);
        }
    }
}

fn failed(what: &'static str, path: &Path) -> impl Fn(io::Error) -> GatherError {
    let path = path.to_owned();
    move |error| GatherError::Io { what, path: path.clone(), error }
}

impl fmt::Display for Gathered {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: usize, one: &str, many: &str| match count {
            1 => format!("1 {one}"),
            _ => format!("{count} {many}"),
        };
        write!(
            out,
            "{}, {}, {}",
            plural(self.launchers, "run", "runs"),
            plural(self.processes, "process", "processes"),
            plural(self.hosts.len(), "host", "hosts")
        )
    }
}
