//! `vramline diff`: runs against the first of them, and the gate for CI.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use vramline::analysis::diff::{DiffBy, DiffOptions, Gate, PoolCurve, RunSide, diff, names, pool_curves};
use vramline::analysis::report::{ReportAnalysis, ReportOptions, report};
use vramline::view::diff::Diff;
use vramline::view::diff_page;

use crate::cli::{self, DiffArgs};
use crate::exit::{Hinted, NO, NOT_CERTAIN, refusal};
use crate::printer::Style;
use crate::{page, printer, watched};

pub(crate) fn run(args: &DiffArgs) -> Result<ExitCode, Hinted> {
    let alone = args.paths.iter().map(|path| vec![path.clone()]);
    let paths: Vec<Vec<PathBuf>> = args.repeats.0.iter().cloned().chain(alone).collect();
    if paths.len() < 2 {
        let hint = "give two runs or more, such as: vramline diff before.vram after.vram";
        return Err(refusal("there is nothing to compare the run with", hint));
    }
    let (mut sides, mut curves) = (Vec::new(), Vec::new());
    for (name, paths) in names(&paths).into_iter().zip(&paths) {
        let mut reports = Vec::new();
        for (repeat, path) in paths.iter().enumerate() {
            let (report, of_run) = read(path, args.html.is_some() && repeat == 0)?;
            reports.push(report);
            curves.extend(of_run);
        }
        sides.push(RunSide { name, reports });
    }
    let by = args.by.map(|by| match by {
        cli::DiffBy::Device => DiffBy::Device,
        cli::DiffBy::Role => DiffBy::Role,
        cli::DiffBy::Op => DiffBy::Op,
        cli::DiffBy::Layer => DiffBy::Layer,
        cli::DiffBy::Step => DiffBy::Step,
    });
    let analysis = diff(&sides, &DiffOptions { by, fail_over: args.fail_over });
    let document = Diff::from(&analysis);
    let mut out = io::BufWriter::new(io::stdout().lock());
    if let Some(file) = &args.html {
        let verdict = printer::diff::verdict_lines(&document);
        let data = diff_page::payload(&analysis, &curves);
        let page = page::comparison(&document.runs, &verdict, &data);
        page::write(file, &page, &mut out)?;
        // A log of CI shows no page.
        out.write_all(printer::diff::gate_lines(&document).as_bytes()).map_err(anyhow::Error::from)?;
    } else if args.json {
        serde_json::to_writer_pretty(&mut out, &document)
            .map_err(|error| anyhow::Error::from(io::Error::from(error)))?;
        writeln!(out).map_err(anyhow::Error::from)?;
    } else {
        let style = Style::of_terminal(io::stdout().is_terminal());
        let text = printer::diff::diff(&document, by, args.top, style);
        out.write_all(text.as_bytes()).map_err(anyhow::Error::from)?;
    }
    out.flush().map_err(anyhow::Error::from)?;
    Ok(match document.gate {
        Gate::Fail => ExitCode::from(NO),
        Gate::Unknown => ExitCode::from(NOT_CERTAIN),
        Gate::Pass | Gate::None => ExitCode::SUCCESS,
    })
}

/// The report, and for a page the curves: what a large trace takes is given back before the next is read.
fn read(path: &Path, with_curves: bool) -> Result<(ReportAnalysis, Option<Vec<PoolCurve>>), Hinted> {
    let reading = watched::read(path).map_err(|error| Hinted {
        hint: error.hint().to_owned(),
        error: anyhow::Error::from(error).context(format!("'{}' cannot be compared", path.display())),
    })?;
    let curves = with_curves.then(|| pool_curves(&reading));
    Ok((report(&reading, &ReportOptions::default()), curves))
}
