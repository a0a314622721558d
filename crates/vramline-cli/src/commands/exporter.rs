//! `vramline exporter`: live figures of this machine for Prometheus, until Ctrl-C.

use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::Args;
use vramline::analysis::redaction::Redaction;

use crate::answer::REDACT;
use crate::bug;
use crate::exit::{self, Exit, Failure};
use crate::launch::kernel::Held;
use crate::lookout::Lookout;
use crate::metrics::{Format, Metrics, Series};
use crate::output::OutputFile;
use crate::serve::metrics::MetricsServer;

/// The default port: above 9100 to 9999, which other exporters use. It is not registered in Prometheus' list of exporters.
const PORT: u16 = 10_190;
/// A shorter token could be guessed.
const SHORTEST_TOKEN: usize = 16;
const LONGEST_TOKEN: usize = 4096;

const HELP: &str = "\
The figures are those of `vramline top`: memory of each device and what holds it, and for recorded
jobs the pools, their headroom, the steps and the last failure. They are collected when Prometheus
asks. An unknown figure has no series. Pools and steps of a process disappear when it ends; its job
stays with its end and its failure for the time of --keep.

By default only this machine can read the figures. To let others read them, give an address and a
file with a token, which Prometheus then sends (credentials_file). There is no encryption.

--textfile writes a file for node_exporter's textfile collector instead. A reader never sees half a
file. The exporter removes the file when it ends.

Examples:
    vramline exporter                                   # http://127.0.0.1:10190/metrics
    vramline exporter --listen 0.0.0.0 --token-file /etc/vramline/token
    vramline exporter --textfile /var/lib/node_exporter/vramline.prom --interval 30
    vramline exporter --once                            # print the figures of now, and exit
    curl -s 127.0.0.1:10190/metrics | grep headroom

Exit codes: 0 done, also by Ctrl-C; 1 error; 2 usage.";

/// Serve live figures for Prometheus: devices, pools, headroom and steps.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ExporterArgs {
    /// Recordings (*.vram), or folders with recordings of jobs that run or have just ended. Running jobs of this machine are always found
    /// [default: the current folder].
    #[arg(value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    /// Address to listen on: IP, IP:PORT or a port [default: 127.0.0.1:10190]. An address that other machines can reach needs
    /// --token-file or --no-token.
    #[arg(long, value_name = "ADDRESS", value_parser = address, conflicts_with = "once")]
    pub(crate) listen: Option<SocketAddr>,
    /// File with the token that readers must send: Authorization: Bearer TOKEN. At least 16 characters.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["no_token", "once"])]
    pub(crate) token_file: Option<PathBuf>,
    /// Let everybody who reaches the address read the figures.
    #[arg(long, requires = "listen")]
    pub(crate) no_token: bool,
    /// Write the figures to this file (*.prom) for node_exporter's textfile collector. No server is started.
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath, conflicts_with_all = ["listen", "token_file"])]
    pub(crate) textfile: Option<PathBuf>,
    /// Seconds between two versions of the text file [default: 15].
    #[arg(long, value_name = "SECONDS", requires = "textfile", conflicts_with = "once", value_parser = seconds(1))]
    pub(crate) interval: Option<u64>,
    /// Print the figures once, or write the text file once, and exit.
    #[arg(long)]
    pub(crate) once: bool,
    /// Seconds for which a job that has ended keeps the series of its end and its failure [default: 900].
    #[arg(long, value_name = "SECONDS", default_value_t = 900, hide_default_value = true, value_parser = seconds(0))]
    pub(crate) keep: u64,
    #[arg(long, help = REDACT)]
    pub(crate) redact: bool,
}

/// Parses a number of seconds, at most a day.
fn seconds(least: u64) -> impl Fn(&str) -> Result<u64, String> + Clone {
    move |text| {
        let seconds = text.parse().ok().filter(|seconds| (least..=86_400).contains(seconds));
        seconds.ok_or_else(|| format!("expected a number of seconds, from {least} to 86400"))
    }
}

fn address(text: &str) -> Result<SocketAddr, String> {
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let ip = |text: &str| text.trim_matches(['[', ']']).parse::<IpAddr>();
    if let Ok(port) = text.parse() {
        Ok(SocketAddr::new(loopback, port))
    } else if let Ok(ip) = ip(text) {
        Ok(SocketAddr::new(ip, PORT))
    } else {
        text.parse().map_err(|_| "expected IP, IP:PORT or a port, such as 0.0.0.0:10190".to_owned())
    }
}

/// Collects the figures of now.
struct Collector {
    lookout: Lookout,
    metrics: Metrics,
}

impl Collector {
    fn new(args: &ExporterArgs) -> Collector {
        let redaction = args.redact.then(Redaction::default);
        let keep = Duration::from_secs(args.keep);
        Collector { lookout: Lookout::on_demand(&args.paths, keep, redaction), metrics: Metrics::new() }
    }

    /// With `is_all`, reads the recordings to their end, however long that takes.
    fn series(&mut self, is_all: bool) -> Series {
        self.metrics.series(&self.lookout.analysis(is_all))
    }
}

pub(crate) fn run(args: &ExporterArgs) -> Result<Exit, Failure> {
    if let Some(missing) = args.paths.iter().find(|path| !path.is_dir()) {
        return Err(Failure::error(
            format!("'{}' is neither a recording nor a folder", missing.display()),
            "give recordings (NAME.vram) or folders that contain recordings; running jobs of this machine are found without a path",
        ));
    }
    if let Some(file) = args.textfile.as_ref().filter(|file| file.extension().is_none_or(|end| end != "prom"))
    {
        return Err(Failure::usage(
            format!("node_exporter does not read '{}'", file.display()),
            "give a file whose name ends with .prom",
        ));
    }
    if args.once {
        let series = Collector::new(args).series(true);
        match &args.textfile {
            Some(file) => write_file(file, &series)?,
            None => io::stdout().lock().write_all(series.text(Format::Text).as_bytes())?,
        }
        return Ok(Exit::Done);
    }
    let address = args.listen.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)));
    let token = token(args, address)?;
    // Before threads are started, because they inherit it: Ctrl-C is waited for and interrupts nothing.
    let held = Held::hold(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    let mut collector = Collector::new(args);
    let mut out = io::stdout().lock();
    if let Some(file) = &args.textfile {
        let interval = Duration::from_secs(args.interval.unwrap_or(15));
        // The first version is written here, so that an error in the path is one of the command.
        write_file(file, &collector.series(false))?;
        writeln!(out, "Writing '{}' every {} s. Press Ctrl-C to stop.", file.display(), interval.as_secs())?;
        out.flush()?;
        keep_writing(file, interval, &mut collector, held);
        // Figures of a program that has ended would look like those of now.
        if let Err(error) = std::fs::remove_file(file)
            && error.kind() != ErrorKind::NotFound
        {
            let text = format!("cannot remove '{}': {error}", file.display());
            exit::warn(&text, "remove it: its figures are old");
        }
    } else {
        let collect = Box::new(move || collector.series(false));
        let server =
            MetricsServer::open(address, token, collect).map_err(|error| refused(&error, address))?;
        let url = server.url();
        server.start();
        writeln!(out, "{url}\nServing live figures for Prometheus on this address. Press Ctrl-C to stop.")?;
        out.flush()?;
        wait_for_end(&held);
    }
    // The terminal shows "^C" on the current line.
    writeln!(out, "\nStopped.")?;
    Ok(Exit::Done)
}

/// Waits for a signal that ends the command.
fn wait_for_end(held: &Held) {
    while !held.wait().is_ok_and(|arrived| arrived.signal != libc::SIGCHLD) {}
}

/// Writes the file again and again until the command is to end. A full disk may have room later.
fn keep_writing(file: &Path, interval: Duration, collector: &mut Collector, held: Held) {
    let (tell, ended) = channel();
    bug::detach(move || {
        wait_for_end(&held);
        // Nobody listens if the command has ended.
        let _ = tell.send(());
    });
    let mut was_written = true;
    let mut next = Instant::now() + interval;
    while ended.recv_timeout(next.saturating_duration_since(Instant::now())) == Err(RecvTimeoutError::Timeout)
    {
        next = Instant::now() + interval;
        let written = write_file(file, &collector.series(false));
        if let (Err(failure), true) = (&written, was_written) {
            exit::warn(&failure.text(), &format!("it is tried again every {} s", interval.as_secs()));
        }
        was_written = written.is_ok();
    }
}

fn write_file(file: &Path, series: &Series) -> Result<(), Failure> {
    let written = || -> io::Result<()> {
        let mut part = OutputFile::create(file)?;
        part.write_all(series.text(Format::Text).as_bytes())?;
        part.finish()
    };
    written().map_err(|error| {
        Failure::error(
            format!("cannot write '{}': {error}", file.display()),
            "give a file in a folder that you can write to",
        )
    })
}

/// The token that readers must send.
fn token(args: &ExporterArgs, address: SocketAddr) -> Result<Option<String>, Failure> {
    let Some(file) = &args.token_file else {
        if !address.ip().is_loopback() && !args.no_token {
            return Err(Failure::usage(
                format!("other machines can reach {address}, and no token protects the figures"),
                "add --token-file FILE with a token of at least 16 characters, or --no-token",
            ));
        }
        return Ok(None);
    };
    let hint =
        "put a token of 16 to 4096 letters, digits and signs into the file: head -c 24 /dev/urandom | base64";
    let text = std::fs::read_to_string(file)
        .map_err(|error| Failure::error(format!("cannot read '{}': {error}", file.display()), hint))?;
    let token = text.trim();
    let is_token = (SHORTEST_TOKEN..=LONGEST_TOKEN).contains(&token.len())
        && token.bytes().all(|byte| byte.is_ascii_graphic());
    if is_token {
        Ok(Some(token.to_owned()))
    } else {
        Err(Failure::error(format!("'{}' does not hold a token", file.display()), hint))
    }
}

fn refused(error: &io::Error, address: SocketAddr) -> Failure {
    let hint = match error.kind() {
        ErrorKind::AddrInUse => "give another port with --listen",
        ErrorKind::PermissionDenied => "give a port of 1024 or higher: lower ports need root",
        ErrorKind::AddrNotAvailable => "give an address of this machine",
        _ => "leave out --listen",
    };
    let what = match error.kind() {
        ErrorKind::AddrInUse => format!("another program uses {address}"),
        _ => format!("cannot listen on {address}: {error}"),
    };
    Failure::error(what, hint)
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn addresses_have_several_forms() {
        for (text, meant) in [
            ("9999", "127.0.0.1:9999"),
            ("0.0.0.0", "0.0.0.0:10190"),
            ("10.0.0.7:80", "10.0.0.7:80"),
            ("::1", "[::1]:10190"),
            ("[::]:7", "[::]:7"),
        ] {
            assert_eq!(address(text).unwrap().to_string(), meant);
        }
        for text in ["", "localhost", "host:80", "1.2.3", "99999", ":80", "-1"] {
            assert!(address(text).is_err(), "{text}");
        }
    }
}
