//! Reads a trace and prints the peak of each pool: how high, when, and what it consisted of.
//!
//! ```text
//! cargo run --example peak -- TRACE
//! ```

use std::error::Error;
use std::path::PathBuf;

use vramline::{ReportOptions, Role, read, report};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args_os().nth(1).map(PathBuf::from).ok_or("usage: peak TRACE")?;
    let reading = match read(&path) {
        Ok(reading) => reading,
        Err(error) => {
            eprintln!("error: {error}\nhint: {}", error.hint());
            std::process::exit(1);
        }
    };
    let report = report(&reading, &ReportOptions { top: Some(3), ..ReportOptions::default() });
    println!("{}", report.headline);
    for pool in &report.pools {
        // A recording without a trace has counters only.
        let Some(held) = &pool.at_peak else { continue };
        println!("{}: {} bytes in use at its peak", pool.name, held.in_use_bytes.0);
        for role in Role::ALL {
            let bytes = held.by_role.get(role);
            println!("  {bytes:>10}  {:>6}  {}", bytes.percent_of(held.in_use_bytes), role.word());
        }
        println!("  {:>10}  {:>6}  slack", held.slack_bytes, held.slack_bytes.percent_of(held.in_use_bytes));
        for row in &held.rows {
            println!("  largest: {} by {} {}", row.bytes, row.op, row.shape);
        }
    }
    for warning in &report.warnings {
        println!("warning: {}", warning.text);
    }
    Ok(())
}
