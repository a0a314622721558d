//! Predicts the memory of a batch size from traces of smaller ones.
//!
//! ```text
//! cargo run --example plan -- BATCH LIMIT 2=TRACE 4=TRACE 8=TRACE
//! ```

use std::error::Error;

use vramline::{Bytes, PlanOptions, ProbeRead, plan, read};

const USAGE: &str = "usage: plan BATCH LIMIT BATCH=TRACE BATCH=TRACE BATCH=TRACE";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let batch: u64 = arguments.next().ok_or(USAGE)?.parse()?;
    let limit: Bytes = arguments.next().ok_or(USAGE)?.parse()?;
    let mut probes = Vec::new();
    for argument in arguments {
        let (batch, file) = argument.split_once('=').ok_or(USAGE)?;
        let reading = read(file.as_ref())?;
        probes.push(ProbeRead { batch: batch.parse()?, file: file.to_owned(), reading });
    }
    let options =
        PlanOptions { batches: vec![batch], limit: Some(limit), fixes: true, ..PlanOptions::default() };
    let plan = plan(&probes, &options)?;
    println!("{}", plan.headline);
    for prediction in &plan.predictions {
        println!("batch {}: {} bytes in use at the peak", prediction.batch, prediction.peak_bytes.0);
        println!("  between {} and {}", prediction.low_bytes, prediction.high_bytes);
        println!("  {} taken from the driver", prediction.pool_bytes);
    }
    match plan.largest_batch.sure {
        Some(sure) => println!("largest batch within {limit}: {sure}"),
        None => println!("no batch is sure to fit {limit}"),
    }
    for fix in plan.fixes.iter().filter(|fix| fix.saves_bytes.is_some()).take(3) {
        println!("{} would save {}", fix.name, fix.saving_in_words());
    }
    for warning in &plan.warnings {
        println!("warning: {}", warning.text);
    }
    Ok(())
}
