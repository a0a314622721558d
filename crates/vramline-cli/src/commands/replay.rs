//! `vramline replay`: the trace through its allocator.

use std::process::ExitCode;

use anyhow::{Context, anyhow};
use vramline::analysis::replay::{ExtraRequest, ReplayAnalysis, ReplayGate, ReplayOptions, replay};
use vramline::replay::Setting;
use vramline::view::replay::Replay;

use crate::cli::{Find, Gate, ReplayArgs};
use crate::commands::answer;
use crate::exit::{Hinted, NO, NOT_CERTAIN, refusal};
use crate::{printer, watched};

pub(crate) fn run(args: &ReplayArgs) -> Result<ExitCode, Hinted> {
    let mut what_if = args.what_if.clone();
    what_if.extend(settings_of(args)?);
    let ask = args.ask.map(|bytes| ExtraRequest { bytes, at: args.at, op: args.op.clone() });
    let find_limit = args.find == Some(Find::Limit);
    let options = ReplayOptions { ask, pool: args.pool.clone(), what_if, find_limit };
    if args.gate.contains(&Gate::Fits) && options.what_if.is_empty() && !options.find_limit {
        let hint = "give at least one, such as --what-if limit=8GiB";
        return Err(refusal("--gate fits needs a --what-if, --settings or --find", hint));
    }
    let reading = watched::read(&args.path)
        .map_err(|error| Hinted { hint: error.hint().to_owned(), error: error.into() })?;
    let analysis = replay(&reading, &options).map_err(|error| refusal(error.to_string(), error.hint()))?;
    let document = Replay::from(&analysis);
    let code = gates(&analysis, &args.gate);
    std::mem::forget(analysis);
    std::mem::forget(reading);
    if document.pools.is_empty() {
        let hint = document.warnings.first().map_or("", |warning| warning.hint.as_str());
        let why = document.warnings.first().map_or("there is none in it", |warning| warning.text.as_str());
        let error = anyhow!("no pool of '{}' can be replayed: {why}", args.path.display());
        return Err(Hinted { error, hint: hint.to_owned() });
    }
    answer(&document, args.json, |style| printer::replay::replay(&document, style))?;
    Ok(code)
}

/// The settings of a file, one a line.
fn settings_of(args: &ReplayArgs) -> Result<Vec<Setting>, Hinted> {
    let Some(path) = &args.settings else { return Ok(Vec::new()) };
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read '{}'", path.display()))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.parse::<Setting>().map_err(|error| refusal(error.to_string(), error.hint())))
        .collect()
}

/// The worst of what the gates say.
fn gates(analysis: &ReplayAnalysis<'_>, gates: &[Gate]) -> ExitCode {
    let says = |gate: &Gate| match gate {
        Gate::Exact => analysis.is_exact(),
        Gate::Fits => analysis.fits(),
    };
    match gates.iter().map(says).max() {
        None | Some(ReplayGate::Pass) => ExitCode::SUCCESS,
        Some(ReplayGate::NotCertain) => ExitCode::from(NOT_CERTAIN),
        Some(ReplayGate::Fail) => ExitCode::from(NO),
    }
}
