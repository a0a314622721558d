//! `vramline top`: what holds the memory of this machine's devices right now.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use anyhow::anyhow;

use crate::cli::TopArgs;
use crate::commands::answer;
use crate::exit::Hinted;
use crate::lookout::Lookout;
use crate::printer;
use crate::tui;
use crate::variables::TERM;

pub(crate) fn run(args: &TopArgs) -> Result<ExitCode, Hinted> {
    if let Some(missing) = args.paths.iter().find(|path| !path.is_dir()) {
        return Err(Hinted {
            error: anyhow!("'{}' is neither a recording nor a folder", missing.display()),
            hint: "name recordings (NAME.vram) or folders that hold some; running jobs of this machine are found without"
                .to_owned(),
        });
    }
    let is_terminal = io::stdout().is_terminal();
    let is_dumb = std::env::var_os(TERM).is_some_and(|term| term == "dumb");
    if is_terminal && !is_dumb && !args.once && !args.json {
        return tui::run(&args.paths, args.rate);
    }
    let look = Lookout::new(&args.paths, args.rate).look(true);
    answer(&look.document, args.json, |style| printer::top::top(&look.document, style))?;
    Ok(ExitCode::SUCCESS)
}
