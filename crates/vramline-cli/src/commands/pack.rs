//! `vramline pack`: do these jobs fit one device together, and with which limits.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use vramline::analysis::pack::{KnownNeed, PackJob, PackOptions, PlanRead, pack, plan_of};
use vramline::view::pack::PackView;

use crate::cli::PackArgs;
use crate::commands::answer;
use crate::exit::{Hinted, NO, NOT_CERTAIN, refusal};
use crate::launch::driver;
use crate::{printer, watched};

/// More than a plan ever has to say.
const LONGEST_PLAN: u64 = 64 << 20;

pub(crate) fn run(args: &PackArgs) -> Result<ExitCode, Hinted> {
    let jobs = args.jobs.iter().map(|text| job(text)).collect::<Result<Vec<PackJob>, Hinted>>()?;
    let mut options = PackOptions {
        memory: args.device_memory,
        reserved: args.reserved,
        taken: None,
        context: args.context,
        headroom: args.headroom,
        device: String::new(),
    };
    if options.memory.is_none() {
        of_machine(args, &mut options);
    }
    let packed = pack(&jobs, &options).map_err(|error| refusal(error.to_string(), error.hint()))?;
    std::mem::forget(jobs);
    let document = PackView::from(packed);
    answer(&document, args.json, |style| printer::pack::pack(&document, style))?;
    Ok(ExitCode::from(match document.fits {
        Some(true) => 0,
        Some(false) => NO,
        None => NOT_CERTAIN,
    }))
}

/// This machine's device, with what is taken on it now. Without a driver a recording may tell.
fn of_machine(args: &PackArgs, options: &mut PackOptions) {
    let Ok(mut driver) = driver::open() else { return };
    let Ok(devices) = driver.devices() else { return };
    let Some(facts) = devices.get(args.gpu) else { return };
    let Ok(memory) = driver.memory(args.gpu) else { return };
    options.device = format!(
        "GPU {}{}",
        args.gpu,
        facts.name.as_ref().map(|name| format!(", {name}")).unwrap_or_default()
    );
    options.memory = Some(memory.total);
    options.reserved = options.reserved.or(Some(memory.reserved));
    let kept = options.reserved.unwrap_or_default();
    options.taken = Some(memory.total.saturating_sub(memory.free).saturating_sub(kept));
}

/// `NAME=PATH@BATCH`, of which the path alone is needed.
fn job(text: &str) -> Result<PackJob, Hinted> {
    let (name, path, batch) = parts(text, &|path| path.exists());
    let file = path.display().to_string();
    let known = match plan(&path)? {
        Some(plan) => KnownNeed::Plan(plan, batch),
        None if batch.is_some() => {
            let hint = "a batch belongs to a plan: make one with `vramline plan --json ... > plan.json`";
            return Err(refusal(format!("'{file}' is no plan, and '@' chooses a batch of one"), hint));
        }
        None => KnownNeed::Run(Box::new(
            watched::read(&path)
                .map_err(|error| Hinted { hint: error.hint().to_owned(), error: error.into() })?,
        )),
    };
    let name = name
        .unwrap_or_else(|| path.file_stem().map_or(file.clone(), |stem| stem.to_string_lossy().into_owned()));
    Ok(PackJob { name, file, known })
}

/// A name, a path and a batch. What exists as it stands is a path.
fn parts(text: &str, exists: &dyn Fn(&Path) -> bool) -> (Option<String>, PathBuf, Option<u64>) {
    let (name, rest) = match text.split_once('=') {
        Some((name, rest)) if !name.is_empty() && !exists(Path::new(text)) => (Some(name.to_owned()), rest),
        _ => (None, text),
    };
    let batch = rest.rsplit_once('@').filter(|_| !exists(Path::new(rest)));
    let batch = batch.and_then(|(path, batch)| Some((path, batch.parse::<u64>().ok()?)));
    match batch {
        Some((path, batch)) => (name, path.into(), Some(batch)),
        None => (name, rest.into(), None),
    }
}

/// The plan in a file; nothing where it is something else.
fn plan(path: &Path) -> Result<Option<PlanRead>, Hinted> {
    if !path.is_file() {
        return Ok(None);
    }
    let wrong = || format!("cannot read '{}'", path.display());
    let mut file = File::open(path).with_context(wrong)?;
    let mut first = [0_u8; 1];
    if file.read(&mut first).with_context(wrong)? == 0 || first != *b"{" {
        return Ok(None);
    }
    let mut text = "{".to_owned();
    file.take(LONGEST_PLAN).read_to_string(&mut text).with_context(wrong)?;
    let plan = plan_of(&text).map_err(|error| Hinted {
        error: anyhow::anyhow!("'{}' is no plan: {error}", path.display()),
        hint: "make one with `vramline plan --json ... > plan.json`".to_owned(),
    })?;
    Ok(Some(plan))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_a_path_with_a_name_and_a_batch_if_need_be() {
        let none = |_: &Path| false;
        let parts_of = |text: &str| parts(text, &none);
        assert_eq!(parts_of("a.vram"), (None, "a.vram".into(), None));
        assert_eq!(parts_of("big=a.vram"), (Some("big".to_owned()), "a.vram".into(), None));
        assert_eq!(parts_of("big=p.json@64"), (Some("big".to_owned()), "p.json".into(), Some(64)));
        assert_eq!(parts_of("p.json@64"), (None, "p.json".into(), Some(64)));
        assert_eq!(parts_of("p@home.json"), (None, "p@home.json".into(), None));
        let there = |path: &Path| path == Path::new("lr=3@7.vram");
        assert_eq!(parts("lr=3@7.vram", &there), (None, "lr=3@7.vram".into(), None));
    }
}
