//! Serves the report as a page on this machine: exact when zoomed in, and live while a run is recorded. `metrics` serves live figures.
//!
//! The server answers requests whose path contains its token and whose host is a name of this machine. So a foreign page whose host name
//! points to this address is refused. There are a few fixed resources; no path of a request reaches the file system. Connections,
//! lengths, times and open pages are limited.

mod http;
mod listen;
pub(crate) mod metrics;
mod patch;
mod subject;

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use vramline::recording::folder::host_name;
use vramline::units::{Bytes, Nanos};
use vramline::view::tile::{moment_json, window_json};

use crate::exit::Failure;
use crate::input::Input;
use crate::{bug, page};
use http::{Answer, NOTHING, Request};
use listen::{Gate, Listener};
use subject::{Standing, Subject};

/// Number of open pages that receive updates.
const WATCHERS: usize = 32;
/// Number of tiles computed at a time.
const WORKERS: usize = 2;
/// Seconds without a change after which a page gets a sign of life.
const HEARTBEAT: u32 = 10;

/// A server with its address and its subject.
pub(crate) struct Server {
    listener: Listener,
    token: String,
    subject: Subject,
    workers: Gate,
}

/// Why the server cannot start.
pub(crate) enum NoServer {
    Source(Failure),
    Address(io::Error),
    Token(io::Error),
}

impl Server {
    /// Binds the address and reads `path`. Port 0 means any free port.
    pub(crate) fn open(path: &Path, host: IpAddr, port: u16, input: Input) -> Result<Server, NoServer> {
        // First, so that an error in the address does not have to wait for a long read.
        let listener = Listener::bind(SocketAddr::new(host, port)).map_err(NoServer::Address)?;
        let token = token().map_err(NoServer::Token)?;
        let subject = Subject::open(path, input).map_err(NoServer::Source)?;
        Ok(Server { listener, token, subject, workers: Gate::new(WORKERS) })
    }

    /// The address for the browser.
    pub(crate) fn url(&self) -> String {
        format!("{}/{}/", self.listener.url(), self.token)
    }

    pub(crate) fn is_going(&self) -> bool {
        self.subject.now().standing == Standing::Going
    }

    /// Answers until the process ends.
    pub(crate) fn start(self) {
        let server = Arc::new(self);
        let watched = Arc::clone(&server);
        bug::detach(move || watched.subject.watch());
        bug::detach(move || server.listener.accept(&server, Server::serve));
    }

    fn serve(&self, stream: &TcpStream) {
        bug::stumble("serve");
        let Some(request) = listen::request(stream) else { return };
        let text = |status, text| http::answer(stream, &Answer::text(status, text), NOTHING, request.is_head);
        if !self.is_our_name(request.host.as_deref()) {
            return text(
                421,
                "This host name is not a name of this machine. Use the address that vramline serve printed.",
            );
        }
        let Some(name) = self.asked_for(&request) else {
            return text(404, "Not found. Use the address that vramline serve printed.");
        };
        self.subject.freshen();
        if self.subject.now().standing == Standing::Gone {
            return text(
                410,
                "The recording was deleted or moved. Put it back, or run vramline serve with its new path.",
            );
        }
        match name {
            "" => self.page(stream, &request),
            "data" => http::answer(stream, &Answer::json(self.data()), NOTHING, request.is_head),
            "tile" | "held" => match self.closer(name, &request) {
                Ok(json) => http::answer(stream, &Answer::json(json), NOTHING, request.is_head),
                Err(status) => text(status, "This part of the timeline does not exist."),
            },
            "events" if !request.is_head => self.events(stream),
            _ => text(404, "Not found."),
        }
    }

    /// Whether the host of a request is a name of this machine. Another site's name may point here, and must be refused.
    fn is_our_name(&self, host: Option<&str>) -> bool {
        let Some(host) = host else { return false };
        let address = self.listener.address;
        let port = address.port();
        let name = match host.strip_suffix(&format!(":{port}")) {
            Some(name) => name,
            None if port == 80 => host,
            None => return false,
        };
        if name.eq_ignore_ascii_case("localhost") || name == "127.0.0.1" || name == "[::1]" {
            return true;
        }
        if address.ip().is_loopback() {
            return name.trim_matches(['[', ']']).parse() == Ok(address.ip());
        }
        // With --host: a numeric address and our own host name cannot belong to another site.
        name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case(&host_name())
    }

    /// The name of the requested resource, if the token is right.
    fn asked_for<'a>(&self, request: &'a Request) -> Option<&'a str> {
        let (token, name) = request.path.strip_prefix('/')?.split_once('/')?;
        listen::is_same_secret(token, &self.token).then_some(name)
    }

    fn page(&self, stream: &TcpStream, request: &Request) {
        let (shown, standing) = {
            let now = self.subject.now();
            (Arc::clone(&now.shown), now.standing)
        };
        let served = page::Served { version: shown.version, standing: standing.word() };
        let page = page::page(&self.subject.shown_path, &shown.verdict, &shown.data, Some(&served));
        let answer = Answer { status: 200, kind: "text/html; charset=utf-8", body: page.into_bytes() };
        let policy = format!("{}; frame-ancestors 'none'", page::policy(true));
        http::answer(stream, &answer, &policy, request.is_head);
    }

    fn data(&self) -> String {
        let (shown, standing) = {
            let now = self.subject.now();
            (Arc::clone(&now.shown), now.standing)
        };
        let verdict = json!(shown.verdict);
        format!(
            "{{\"version\":{},\"standing\":\"{}\",\"verdict\":{verdict},\"data\":{}}}",
            shown.version,
            standing.word(),
            shown.data
        )
    }

    /// A tile of the timeline, or the memory in use at one time.
    fn closer(&self, name: &str, request: &Request) -> Result<String, u16> {
        let number = |wanted: &str| {
            let mut pairs = request.query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == wanted).and_then(|(_, value)| value.parse::<i64>().ok())
        };
        let natural =
            |wanted: &str| number(wanted).and_then(|number| u64::try_from(number).ok()).ok_or(400_u16);
        let pool = usize::try_from(natural("pool")?).map_err(|_| 400_u16)?;
        let shown = Arc::clone(&self.subject.now().shown);
        let _turn = self.workers.enter();
        let made = if name == "tile" {
            let (from, to) = (number("from").ok_or(400_u16)?, number("to").ok_or(400_u16)?);
            let width = usize::try_from(natural("width")?).unwrap_or(usize::MAX);
            window_json(&shown.tiles, pool, Nanos(from)..Nanos(to), width)
        } else {
            let at = number("at").ok_or(400_u16)?;
            moment_json(&shown.tiles, pool, Nanos(at), Bytes(natural("bytes")?))
        };
        made.ok_or(404)
    }

    /// Sends changes to a page until it is closed.
    fn events(&self, stream: &TcpStream) {
        let has_room = {
            let mut now = self.subject.now();
            let has_room = now.watchers < WATCHERS;
            now.watchers += usize::from(has_room);
            has_room
        };
        if !has_room {
            let answer = Answer::text(503, "Too many pages are open. Close some and reload this page.");
            return http::answer(stream, &answer, NOTHING, false);
        }
        // An error means that the page was closed.
        let _ = self.tell(stream);
        self.subject.now().watchers -= 1;
    }

    fn tell(&self, stream: &TcpStream) -> io::Result<()> {
        http::begin_events(stream)?;
        let (mut version, mut standing) = {
            let now = self.subject.now();
            (now.shown.version, now.standing)
        };
        let state = |version, standing: Standing| {
            format!("event: state\ndata: {{\"version\":{version},\"standing\":\"{}\"}}\n\n", standing.word())
        };
        http::send(stream, state(version, standing).as_bytes())?;
        let mut quiet = 0;
        loop {
            let (latest, now_standing, patch) = {
                let now = self.subject.wait(version, standing, Duration::from_secs(1));
                (now.shown.version, now.standing, now.patch.clone())
            };
            if http::is_closed(stream) {
                return Ok(());
            }
            if latest == version && now_standing == standing {
                quiet += 1;
                if quiet % HEARTBEAT == 0 {
                    http::send(stream, b": still here\n\n")?;
                }
                continue;
            }
            let grown = patch.filter(|_| latest == version + 1);
            let told = match grown {
                Some(patch) => format!(
                    "event: grown\ndata: {{\"from\":{version},\"version\":{latest},\"standing\":\"{}\",\"patch\":{patch}}}\n\n",
                    now_standing.word()
                ),
                None => state(latest, now_standing),
            };
            http::send(stream, told.as_bytes())?;
            (version, standing, quiet) = (latest, now_standing, 0);
        }
    }
}

/// A random token that cannot be guessed.
fn token() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
