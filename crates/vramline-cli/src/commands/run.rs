//! `vramline run`: a job under a recording.
//!
//! `launch/job` records it; here the folder is completed and reported on. Nothing here decides the exit code.

use std::io::{self, IsTerminal};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;

use vramline::recording::folder::{self, Part};
use vramline::recording::manifest::RunManifest;

use crate::cli::{ReportArgs, RunArgs};
use crate::commands::{oom, report};
use crate::exit::Hinted;
use crate::launch::environment::Variables;
use crate::launch::job::{self, Recorded};
use crate::launch::say;
use crate::output::OutputFile;

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Hinted> {
    let Recorded { path, manifest, is_booted, code, .. } = job::record(args, None, &Variables::new(), None)?;
    if let Some(path) = path {
        finish(args, &manifest, path, is_booted);
    }
    Ok(ExitCode::from(code))
}

/// Completes the recording and reports on it. Whatever fails is a line.
fn finish(args: &RunArgs, manifest: &RunManifest, path: PathBuf, is_booted: bool) {
    let shown = path.display().to_string();
    if let Err(error) = manifest.write(&path) {
        say(format_args!("cannot complete '{shown}': {error}"));
        if !path.is_dir() {
            // Somebody deleted it while the job ran: there is nothing to say of what it holds.
            return;
        }
    }
    let is_attached =
        folder::parts(&path).is_ok_and(|parts| parts.iter().any(|(part, _)| *part == Part::Process));
    if is_attached {
        let report = ReportArgs::of(path);
        if !args.no_report {
            // Not locked: the line of progress is written there too, by a thread that would wait for ever.
            told(|| report::write(&report, io::stderr(), io::stderr().is_terminal()));
            told(|| oom::write(&report.path, io::stderr(), io::stderr().is_terminal()));
        }
        if let Some(file) = &args.json {
            told(|| {
                let mut out = OutputFile::create(file).map_err(anyhow::Error::from)?;
                report::write(&ReportArgs { json: true, ..report }, &mut out, false)?;
                out.finish().map_err(anyhow::Error::from)?;
                Ok(())
            });
        }
    } else if is_booted {
        say(
            "no Python process attached: it is not Python, is older than 3.10, runs with -I, -E or -S, or uses neither \
             TensorFlow, JAX nor PyTorch",
        );
    }
    say(format_args!("recording: {shown}"));
}

fn told(report: impl FnOnce() -> Result<(), Hinted>) {
    // The job's exit code stands: a panic here, which has been announced, costs the report only.
    if let Ok(Err(Hinted { error, .. })) = catch_unwind(AssertUnwindSafe(report)) {
        say(format_args!("no report: {error:#}"));
    }
}
