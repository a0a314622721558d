//! `vramline report`: what held the memory at the peak.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use anyhow::anyhow;
use vramline::Reading;
use vramline::analysis::held::GroupBy;
use vramline::analysis::picture::bounds::PAGE_PEAK_ROWS;
use vramline::analysis::report::{ReportOptions, report};
use vramline::view::page::payload;
use vramline::view::report::Report;

use crate::cli::{By, ReportArgs};
use crate::exit::Hinted;
use crate::page;
use crate::printer::{self, Style};
use crate::watched;

/// Rows that fit one screen beside the rest.
const SCREEN_ROWS: usize = 12;

pub(crate) fn run(args: &ReportArgs) -> Result<(), Hinted> {
    write(args, io::stdout().lock(), io::stdout().is_terminal())
}

/// The same to anywhere: `vramline run` ends with it on standard error.
pub(crate) fn write(args: &ReportArgs, out: impl Write, is_terminal: bool) -> Result<(), Hinted> {
    let reading = watched::read(&args.path)
        .map_err(|error| Hinted { hint: error.hint().to_owned(), error: error.into() })?;
    if let Some(file) = &args.html {
        return write_page(args, reading, file, out);
    }
    let options = ReportOptions {
        by: match args.by {
            By::Op => GroupBy::Op,
            By::Layer => GroupBy::Layer,
            By::Role => GroupBy::Role,
            By::Stack => GroupBy::Stack,
        },
        top: args.top.or((!args.json).then_some(SCREEN_ROWS)),
        at: args.at,
        pool: args.pool.clone(),
    };
    let report = Report::from(report(&reading, &options));
    // The process is about to end; giving back a large trace piece by piece would only delay that.
    std::mem::forget(reading);
    check_pool(args, &report)?;
    let mut out = io::BufWriter::new(out);
    if args.json {
        write_json(&mut out, &report)?;
    } else {
        let style = Style::of_terminal(is_terminal);
        let text = printer::report::report(&report, args.by, style);
        out.write_all(text.as_bytes()).map_err(anyhow::Error::from)?;
    }
    out.flush().map_err(anyhow::Error::from)?;
    Ok(())
}

fn check_pool(args: &ReportArgs, report: &Report) -> Result<(), Hinted> {
    if let (Some(pool), []) = (&args.pool, report.pools.as_slice()) {
        let error = anyhow!("no pool whose name contains '{pool}' in '{}'", args.path.display());
        return Err(Hinted { error, hint: "leave --pool out to see every pool".to_owned() });
    }
    Ok(())
}

fn write_page(
    args: &ReportArgs,
    mut reading: Reading,
    file: &Path,
    mut out: impl Write,
) -> Result<(), Hinted> {
    let options =
        ReportOptions { top: Some(PAGE_PEAK_ROWS), pool: args.pool.clone(), ..ReportOptions::default() };
    let mut report = report(&reading, &options);
    let document = Report::from(report.clone());
    check_pool(args, &document)?;
    let verdict = printer::report::verdict_lines(&document);
    page::add_failures(&mut reading, &args.path);
    let page = page::page(&args.path, &verdict, &payload(&reading, &mut report), None);
    std::mem::forget(reading);
    page::write(file, &page, &mut out)
}

fn write_json(out: &mut impl Write, report: &Report) -> Result<(), anyhow::Error> {
    serde_json::to_writer_pretty(&mut *out, report)
        .map_err(|error| anyhow::Error::from(io::Error::from(error)))?;
    writeln!(out)?;
    Ok(())
}
