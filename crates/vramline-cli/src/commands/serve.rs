//! `vramline serve`: the report as a page from this machine, until Ctrl-C.

use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use clap::Args;

use crate::answer::REDACT;
use crate::exit::{Exit, Failure};
use crate::input::Input;
use crate::launch::kernel::Held;
use crate::serve::{NoServer, Server};

const HELP: &str = "\
The page is the one of `report --html`. From a server it also gets every event and allocation of the
window that you look at, however long the trace is, and follows a run that goes on.

Only this machine can open it, and only with the address that is printed: it holds a random word.

Examples:
    vramline serve train.vram                 prints an address; Ctrl-C ends it
    vramline serve train.vram --open          also opens a browser
    vramline run -o train.vram -- python train.py & vramline serve train.vram
    ssh -L 8080:127.0.0.1:8080 gpu-machine vramline serve train.vram --port 8080";

/// Show the report as a page from this machine: exact where you zoom in, live while the run goes on.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ServeArgs {
    /// A recording (*.vram), also of a run that goes on, or any file or folder that `report` reads.
    #[arg(value_hint = clap::ValueHint::AnyPath)]
    pub(crate) path: PathBuf,
    /// The port [default: one that is free].
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,
    /// The address to listen at; any but this machine's own (127.0.0.1, ::1) lets others in [default: 127.0.0.1].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) host: Option<IpAddr>,
    /// Also open it in a browser.
    #[arg(long)]
    pub(crate) open: bool,
    #[arg(long, help = REDACT)]
    pub(crate) redact: bool,
}

pub(crate) fn run(args: &ServeArgs) -> Result<Exit, Failure> {
    let host = args.host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    // Before there are threads, which inherit it: Ctrl-C is waited for, and ends nothing halfway.
    let held = Held::hold(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    let server = Server::open(&args.path, host, args.port, Input::new(args.redact))
        .map_err(|error| refused(error, host, args.port))?;
    let mut out = io::stdout().lock();
    if !host.is_loopback() {
        eprintln!(
            "warning: {host} can be reached from other machines, without encryption: whoever sees the address sees the report\n\
             hint: leave --host out, and from another machine use: ssh -L 8080:127.0.0.1:PORT THIS_MACHINE"
        );
    }
    let url = server.url();
    let is_going = server.is_going();
    server.start();
    let live = if is_going { "; the run goes on, and the page follows it" } else { "" };
    writeln!(out, "{url}\n{} is served there to this machine{live}. Ctrl-C ends it.", args.path.display())
        .and_then(|()| out.flush())?;
    if args.open {
        open(&url, &held);
    }
    loop {
        // A browser that was opened may end: that is no reason to.
        if held.wait().is_ok_and(|arrived| arrived.signal != libc::SIGCHLD) {
            break;
        }
    }
    // On the terminal stands "^C".
    writeln!(out, "\nEnded: {url} is not served any more.")?;
    Ok(Exit::Done)
}

fn open(url: &str, held: &Held) {
    let mut browser = Command::new("xdg-open");
    browser.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    held.release_in(&mut browser);
    if let Err(error) = browser.spawn() {
        eprintln!("note: no browser could be opened (xdg-open: {error}); open the address by hand");
    }
}

fn refused(error: NoServer, host: IpAddr, port: u16) -> Failure {
    match error {
        NoServer::Source(failure) => failure,
        NoServer::Token(error) => Failure::error(
            format!("no random name can be made: {error}"),
            "see that /dev/urandom is there and can be read",
        ),
        NoServer::Address(error) => {
            let hint = match error.kind() {
                ErrorKind::AddrInUse => "leave --port out to get one that is free, or give another",
                ErrorKind::PermissionDenied => "ports below 1024 are the administrator's: give a higher one",
                ErrorKind::AddrNotAvailable => "give an address that this machine has, or leave --host out",
                _ => "leave --host and --port out",
            };
            let what = match error.kind() {
                ErrorKind::AddrInUse => format!("port {port} of {host} is taken by another program"),
                _ => format!("cannot serve at {host}, port {port}: {error}"),
            };
            Failure::error(what, hint)
        }
    }
}
