//! `vramline unpickle`: what is read of a PyTorch snapshot, as JSON.

use std::io::{self, Write};

use crate::cli::UnpickleArgs;
use crate::exit::Hinted;

pub(crate) fn run(args: &UnpickleArgs) -> Result<(), Hinted> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    vramline::source::write_snapshot_json(&args.path, &mut out)
        .map_err(|error| Hinted { hint: error.hint().to_owned(), error: error.into() })?;
    out.flush().map_err(anyhow::Error::from)?;
    Ok(())
}
