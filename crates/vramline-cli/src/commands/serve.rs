//! `vramline serve`: the report as a page from this machine, until Ctrl-C.

use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

use anyhow::anyhow;

use crate::cli::ServeArgs;
use crate::exit::Hinted;
use crate::launch::kernel::Held;
use crate::serve::{NoServer, Server};

pub(crate) fn run(args: &ServeArgs) -> Result<(), Hinted> {
    let host = args.host.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    // Before there are threads, which inherit it: Ctrl-C is waited for, and ends nothing halfway.
    let held = Held::hold(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    let server =
        Server::open(&args.path, host, args.port).map_err(|error| refused(error, host, args.port))?;
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
        .and_then(|()| out.flush())
        .map_err(anyhow::Error::from)?;
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
    writeln!(out, "\nEnded: {url} is not served any more.").map_err(anyhow::Error::from)?;
    Ok(())
}

fn open(url: &str, held: &Held) {
    let mut browser = Command::new("xdg-open");
    browser.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    held.release_in(&mut browser);
    if let Err(error) = browser.spawn() {
        eprintln!("note: no browser could be opened (xdg-open: {error}); open the address by hand");
    }
}

fn refused(error: NoServer, host: IpAddr, port: u16) -> Hinted {
    match error {
        NoServer::Source(error) => Hinted { hint: error.hint().to_owned(), error: error.into() },
        NoServer::Token(error) => {
            Hinted { error: anyhow!("no random name can be made: {error}"), hint: String::new() }
        }
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
            Hinted { error: anyhow!(what), hint: hint.to_owned() }
        }
    }
}
