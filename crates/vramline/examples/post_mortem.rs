//! Finds the out-of-memory errors in a job's log and prints why each allocation failed and what would have helped.
//!
//! ```text
//! cargo run --example post_mortem -- LOG [DUMP...]
//! ```

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use vramline::{Progress, oom, read_failures};

fn main() -> Result<(), Box<dyn Error>> {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        return Err("usage: post_mortem LOG [DUMP...]".into());
    }
    // Another thread could ask how far the reading of a large log has come.
    let progress = Arc::<Progress>::default();
    let found = read_failures(&paths, None, &progress)?;
    let report = oom(&found);
    println!("{}", report.headline);
    for (number, failure) in (1..).zip(&report.failures) {
        println!("failure {number}, in {}", failure.allocator.as_deref().unwrap_or("an unnamed pool"));
        if let Some(short_by) = failure.short_by_bytes {
            println!("  short by {} bytes", short_by.0);
        }
        for holder in failure.holders.iter().take(3) {
            println!(
                "  {} held in {} chunks of {} {}",
                holder.bytes, holder.count, holder.chunk_bytes, holder.op
            );
        }
        for advice in &failure.advice {
            println!("  {}", advice.text);
        }
    }
    Ok(())
}
