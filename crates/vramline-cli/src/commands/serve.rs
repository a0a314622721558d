//! `vramline serve`: serves the report as a page on this machine, until Ctrl-C.

use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;
use vramline::analysis::ranks::RankChoice;

use crate::answer::REDACT;
use crate::exit::{self, Exit, Failure};
use crate::input::Input;
use crate::launch::kernel::Held;
use crate::serve::{NoServer, Server};

const HELP: &str = "\
The page is the same as with `report --html`. In addition, it loads every event and allocation of
the part that you zoom into, for traces of any length, and follows a run while it is recorded.

By default only this machine can open the page (see --host), and only with the printed address,
which contains a random token.

Examples:
    vramline serve train.vram               # prints an address; Ctrl-C ends the server
    vramline serve train.vram --open        # also opens a browser
    vramline run -o train.vram -- python train.py & vramline serve train.vram
    # from another machine
    ssh -L 8080:127.0.0.1:8080 gpu-machine vramline serve train.vram --port 8080";

/// Show the report in a browser, live while the job runs.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ServeArgs {
    /// Recording (*.vram), also of a running job, or any other file or folder that `report` reads.
    #[arg(value_hint = clap::ValueHint::AnyPath)]
    pub(crate) path: PathBuf,
    /// Port to listen on [default: any free port].
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,
    /// Address to listen on. With any other address than 127.0.0.1 and ::1, other machines can open the page [default: 127.0.0.1].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) host: Option<IpAddr>,
    /// Also open the page in a browser.
    #[arg(long)]
    pub(crate) open: bool,
    #[arg(long, help = REDACT)]
    pub(crate) redact: bool,
}

pub(crate) fn run(args: &ServeArgs) -> Result<Exit, Failure> {
    let host = args.host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    // Before threads are started, because they inherit it: Ctrl-C is waited for and interrupts nothing.
    let held = Held::hold(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    let server =
        Server::open(&args.path, host, args.port, Input::new(args.redact).with_ranks(RankChoice::default()))
            .map_err(|error| refused(error, host, args.port))?;
    let mut out = io::stdout().lock();
    if !host.is_loopback() {
        let text = format!(
            "{host} can be reached from other machines, without encryption: everybody who knows the address can read the report"
        );
        exit::warn(
            &text,
            "leave out --host, and on the other machine run: ssh -L 8080:127.0.0.1:PORT THIS_MACHINE",
        );
    }
    let url = server.url();
    let is_going = server.is_going();
    server.start();
    let live = if is_going { " The job is running; the page follows it." } else { "" };
    writeln!(out, "{url}\nServing {} on this address.{live} Press Ctrl-C to stop.", args.path.display())
        .and_then(|()| out.flush())?;
    if args.open {
        open(&url, &held);
    }
    loop {
        // The end of the browser does not end the server.
        if held.wait().is_ok_and(|arrived| arrived.signal != libc::SIGCHLD) {
            break;
        }
    }
    // The terminal shows "^C" on the current line.
    writeln!(out, "\nStopped serving {url}")?;
    Ok(Exit::Done)
}

fn open(url: &str, held: &Held) {
    let mut browser = Command::new("xdg-open");
    browser.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    held.release_in(&mut browser);
    if let Err(error) = browser.spawn() {
        let text = format!("cannot open a browser (xdg-open: {error})");
        exit::warn(&text, "open the address in a browser yourself");
    }
}

fn refused(error: NoServer, host: IpAddr, port: u16) -> Failure {
    match error {
        NoServer::Source(failure) => failure,
        NoServer::Token(error) => Failure::error(
            format!("cannot make a random token: {error}"),
            "check that /dev/urandom exists and can be read",
        ),
        NoServer::Address(error) => {
            let hint = match error.kind() {
                ErrorKind::AddrInUse => "leave out --port to use a free port, or give another port",
                ErrorKind::PermissionDenied => "give a port of 1024 or higher: lower ports need root",
                ErrorKind::AddrNotAvailable => "give an address of this machine, or leave out --host",
                _ => "leave out --host and --port",
            };
            let what = match error.kind() {
                ErrorKind::AddrInUse => format!("another program uses port {port} of {host}"),
                _ => format!("cannot listen on {host}, port {port}: {error}"),
            };
            Failure::error(what, hint)
        }
    }
}
