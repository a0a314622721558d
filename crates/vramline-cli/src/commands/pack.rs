//! `vramline pack`: checks whether jobs fit on one device together, and with which limits.

use std::path::{Path, PathBuf};

use clap::Args;
use vramline::analysis::pack::{KnownNeed, PackJob, PackOptions, pack};
use vramline::units::Bytes;
use vramline::view::pack::PackView;

use crate::answer::{Form, Length, Sink};
use crate::exit::{Exit, Failure};
use crate::input::{self, Input};
use crate::launch::driver;
use crate::printer;

const HELP: &str = "\
A job is a recording (*.vram), a trace, or a plan from `vramline plan --json`. NAME=PATH gives it
a name; PATH@BATCH chooses a batch size of a plan.

Each job gets a limit: the smallest limit that its pool needs, plus headroom. The memory of the
process outside the pool (CUDA context, libraries) comes on top. Recordings made on a GPU contain
it; for others give --context. Recordings made without a GPU share host memory; for these, the
other memory of the program takes the place of the context.

The smallest limit is known from an exact replay or from a plan. For other runs Vramline knows the
peak only, and says so.

Examples:
    vramline pack a.vram b.vram --device-memory 80GiB
    vramline pack big=plan.json@256 small=plan.json@32 --device-memory 24GiB --context 700MiB
    vramline pack a.vram b.vram         # on GPU 0 of this machine, with what is in use now

Exit codes: 0 the jobs fit; 3 they do not fit; 4 not certain; 1 error; 2 usage.";

/// Check whether several jobs fit on one GPU together.
///
/// Prints the limit of each job and the commands to start them.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct PackArgs {
    /// Recordings, traces or plans, one per job.
    #[arg(required = true, value_name = "[NAME=]PATH[@BATCH]", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) jobs: Vec<String>,
    /// Memory of the device, such as 80GiB [default: this machine's GPU, or the device of a recording].
    #[arg(long, value_name = "SIZE")]
    pub(crate) device_memory: Option<Bytes>,
    /// GPU of this machine to use, by its number in nvidia-smi.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "device_memory")]
    pub(crate) gpu: usize,
    /// Device memory that the driver keeps for itself [default: from the driver or a recording].
    #[arg(long, value_name = "SIZE")]
    pub(crate) reserved: Option<Bytes>,
    /// Memory of each process outside its pool, such as the CUDA context, if its recording does not contain it.
    #[arg(long, value_name = "SIZE")]
    pub(crate) context: Option<Bytes>,
    /// Headroom of each pool, in percent of the smallest limit that it needs.
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub(crate) headroom: u64,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) length: Length,
}

pub(crate) fn run(args: &PackArgs) -> Result<Exit, Failure> {
    let mut input = Input::new(args.form.redact);
    let jobs =
        args.jobs.iter().map(|text| job(&mut input, text)).collect::<Result<Vec<PackJob>, Failure>>()?;
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
    let line = input.progress("computing limits");
    let packed = pack(&jobs, &options)?;
    drop(line);
    std::mem::forget(jobs);
    let document = PackView::from(packed);
    Sink::stdout()
        .answer(&document, args.form.json, |style| printer::pack::pack(&document, args.length.full, style))?;
    Ok(match document.fits {
        Some(true) => Exit::Done,
        Some(false) => Exit::No,
        None => Exit::NotCertain,
    })
}

/// Takes the device and its memory in use from the driver. Without a driver, a recording may contain them.
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

/// Reads a job from `NAME=PATH@BATCH`; name and batch size are optional.
fn job(input: &mut Input, text: &str) -> Result<PackJob, Failure> {
    let (name, path, batch) = parts(text, &|path| path.exists());
    let file = path.display().to_string();
    let known = if input::is_document(&path)? {
        KnownNeed::Plan(Box::new(input::plan(&path)?), batch)
    } else if batch.is_some() {
        let hint = "leave out '@' and the batch size, or give a plan: vramline plan --json ... > plan.json";
        return Err(Failure::usage(
            format!("'{file}' is not a plan, and '@' chooses the batch size of a plan"),
            hint,
        ));
    } else {
        KnownNeed::Run(Box::new(input.read_as_it_is(&path)?))
    };
    let name = name
        .unwrap_or_else(|| path.file_stem().map_or(file.clone(), |stem| stem.to_string_lossy().into_owned()));
    let mut job = PackJob { name, file, known };
    if let Some(redaction) = input.redaction() {
        redaction.job(&mut job);
    }
    Ok(job)
}

/// Splits a job into name, path and batch size. If the whole text is an existing path, it is the path.
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
