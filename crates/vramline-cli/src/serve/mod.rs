//! The report as a page from a server on this machine: exact where one zooms in, and live while a run goes on.
//!
//! It answers to one address and to those who know its token, which is in the path, under the names of this machine only: a page of
//! somebody else's that lets its name point here is refused. There are four things to ask for, compared by name; no path of a request
//! ever reaches the file system. Everything has a bound: connections, lengths, times, pages that are told of changes.

mod http;
mod patch;
mod subject;

use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use vramline::recording::folder::host_name;
use vramline::units::{Bytes, Nanos};
use vramline::view::tile::{moment_json, window_json};

use crate::exit::Failure;
use crate::input::Input;
use crate::{bug, page};
use http::{Answer, NOTHING, Refused, Request};
use subject::{Standing, Subject};

/// Connections at once; others wait until one ends.
const CONNECTIONS: usize = 256;
/// Pages at once that are told of changes.
const WATCHERS: usize = 32;
/// Tiles that are made at once.
const WORKERS: usize = 2;
/// A connection needs little: what is large is on the heap.
const STACK: usize = 512 << 10;
/// A page that hears nothing for so long may think that the server has gone.
const HEARTBEAT: u32 = 10;

/// So many at once.
struct Gate {
    free: Mutex<usize>,
    freed: Condvar,
}

struct Pass<'a>(&'a Gate);

impl Gate {
    fn new(count: usize) -> Gate {
        Gate { free: Mutex::new(count), freed: Condvar::new() }
    }

    fn enter(&self) -> Pass<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let free = self.freed.wait_while(free, |free| *free == 0);
        *free.unwrap_or_else(PoisonError::into_inner) -= 1;
        Pass(self)
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

/// A server that has its address, and what it serves.
pub(crate) struct Server {
    listener: TcpListener,
    address: SocketAddr,
    token: String,
    subject: Subject,
    connections: Gate,
    workers: Gate,
}

/// Why there is no server.
pub(crate) enum NoServer {
    Source(Failure),
    Address(io::Error),
    Token(io::Error),
}

impl Server {
    /// Reads `path` and takes an address; port 0 is any that is free.
    pub(crate) fn open(path: &Path, host: IpAddr, port: u16, input: Input) -> Result<Server, NoServer> {
        // First: whoever is refused the address need not wait for a long reading.
        let listener = TcpListener::bind((host, port)).map_err(NoServer::Address)?;
        let address = listener.local_addr().map_err(NoServer::Address)?;
        let token = token().map_err(NoServer::Token)?;
        let subject = Subject::open(path, input).map_err(NoServer::Source)?;
        let (connections, workers) = (Gate::new(CONNECTIONS), Gate::new(WORKERS));
        Ok(Server { listener, address, token, subject, connections, workers })
    }

    /// Where a browser finds it.
    pub(crate) fn url(&self) -> String {
        let host = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => host_name(),
            IpAddr::V6(ip) if ip.is_unspecified() => host_name(),
            IpAddr::V6(ip) => format!("[{ip}]"),
            IpAddr::V4(ip) => ip.to_string(),
        };
        format!("http://{host}:{}/{}/", self.address.port(), self.token)
    }

    pub(crate) fn is_going(&self) -> bool {
        self.subject.now().standing == Standing::Going
    }

    /// Answers until the process ends.
    pub(crate) fn start(self) {
        let server = Arc::new(self);
        let watched = Arc::clone(&server);
        bug::detach(move || watched.subject.watch());
        bug::detach(move || server.accept());
    }

    fn accept(self: Arc<Server>) {
        loop {
            let pass = self.connections.enter();
            let Ok((stream, _)) = self.listener.accept() else {
                // Too many open files: it passes.
                std::thread::sleep(Duration::from_millis(50));
                continue;
            };
            // Given back by the thread, or here where there is none.
            std::mem::forget(pass);
            let server = Arc::clone(&self);
            let work = move || {
                let _pass = Pass(&server.connections);
                bug::or_exit(|| server.serve(&stream));
            };
            if std::thread::Builder::new().stack_size(STACK).spawn(work).is_err() {
                drop(Pass(&self.connections));
            }
        }
    }

    fn serve(&self, stream: &TcpStream) {
        bug::stumble("serve");
        let _ = stream.set_nodelay(true);
        let request = match http::read(stream) {
            Ok(request) => request,
            Err(Refused::Closed) => return,
            Err(Refused::With(status)) => {
                let answer = Answer::text(status, "this is no request that is answered here");
                return http::answer(stream, &answer, NOTHING, false);
            }
        };
        let text = |status, text| http::answer(stream, &Answer::text(status, text), NOTHING, request.is_head);
        if !self.is_our_name(request.host.as_deref()) {
            return text(421, "this server does not answer under this name");
        }
        let Some(name) = self.asked_for(&request) else {
            return text(404, "there is nothing here: use the address that vramline serve printed");
        };
        self.subject.freshen();
        if self.subject.now().standing == Standing::Gone {
            return text(
                410,
                "what was served has been deleted or moved; vramline serve shows it while it is there",
            );
        }
        match name {
            "" => self.page(stream, &request),
            "data" => http::answer(stream, &Answer::json(self.data()), NOTHING, request.is_head),
            "tile" | "held" => match self.closer(name, &request) {
                Ok(json) => http::answer(stream, &Answer::json(json), NOTHING, request.is_head),
                Err(status) => text(status, "there is no such part of the picture"),
            },
            "events" if !request.is_head => self.events(stream),
            _ => text(404, "there is nothing here"),
        }
    }

    /// Names that lead here and nowhere else. Any other is a name that somebody let point here.
    fn is_our_name(&self, host: Option<&str>) -> bool {
        let Some(host) = host else { return false };
        let port = self.address.port();
        let name = match host.strip_suffix(&format!(":{port}")) {
            Some(name) => name,
            None if port == 80 => host,
            None => return false,
        };
        if name.eq_ignore_ascii_case("localhost") || name == "127.0.0.1" || name == "[::1]" {
            return true;
        }
        if self.address.ip().is_loopback() {
            return name.trim_matches(['[', ']']).parse() == Ok(self.address.ip());
        }
        // Told to answer to others: an address cannot be pointed elsewhere, and our own name is ours.
        name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case(&host_name())
    }

    /// What stands behind the token.
    fn asked_for<'a>(&self, request: &'a Request) -> Option<&'a str> {
        let (token, name) = request.path.strip_prefix('/')?.split_once('/')?;
        let is_same = token.len() == self.token.len();
        // In the same time wherever it differs.
        let differs = token.bytes().zip(self.token.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        (is_same && differs == 0).then_some(name)
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

    /// A window, or a moment.
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

    /// Tells a page what changes, until it goes.
    fn events(&self, stream: &TcpStream) {
        let has_room = {
            let mut now = self.subject.now();
            let has_room = now.watchers < WATCHERS;
            now.watchers += usize::from(has_room);
            has_room
        };
        if !has_room {
            let answer = Answer::text(503, "too many pages are open: close some and load this one again");
            return http::answer(stream, &answer, NOTHING, false);
        }
        // It ends when the page does not take it any more.
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

/// A name for what is served that nobody guesses.
fn token() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
