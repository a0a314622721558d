//! Accepts connections, a limited number at a time, each on a thread of its own. What a request gets is decided elsewhere.

use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use vramline::recording::folder::host_name;

use super::http::{self, Answer, NOTHING, Refused, Request};
use crate::bug;

/// Number of connections at a time; others wait.
const CONNECTIONS: usize = 256;
/// Stack size of a connection. Large data is on the heap.
const STACK: usize = 512 << 10;

/// Limits how many threads do the same work at a time.
pub(super) struct Gate {
    free: Mutex<usize>,
    freed: Condvar,
}

pub(super) struct Pass<'a>(&'a Gate);

impl Gate {
    pub(super) fn new(count: usize) -> Gate {
        Gate { free: Mutex::new(count), freed: Condvar::new() }
    }

    pub(super) fn enter(&self) -> Pass<'_> {
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

/// A bound address.
pub(super) struct Listener {
    listener: TcpListener,
    pub(super) address: SocketAddr,
    connections: Arc<Gate>,
}

impl Listener {
    /// Binds an address. Port 0 means any free port.
    pub(super) fn bind(address: SocketAddr) -> io::Result<Listener> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        Ok(Listener { listener, address, connections: Arc::new(Gate::new(CONNECTIONS)) })
    }

    /// The address as the beginning of a URL, without a slash at its end.
    pub(super) fn url(&self) -> String {
        let host = match self.address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => host_name(),
            IpAddr::V6(ip) if ip.is_unspecified() => host_name(),
            IpAddr::V6(ip) => format!("[{ip}]"),
            IpAddr::V4(ip) => ip.to_string(),
        };
        format!("http://{host}:{}", self.address.port())
    }

    /// Accepts connections until the process ends.
    pub(super) fn accept<S: Send + Sync + 'static>(&self, server: &Arc<S>, serve: fn(&S, &TcpStream)) {
        loop {
            let pass = self.connections.enter();
            let Ok((stream, _)) = self.listener.accept() else {
                // Too many open files: try again later.
                std::thread::sleep(Duration::from_millis(50));
                continue;
            };
            // Released by the thread, or below if no thread can be started.
            std::mem::forget(pass);
            let (server, connections) = (Arc::clone(server), Arc::clone(&self.connections));
            let work = move || {
                let _pass = Pass(&connections);
                let _ = stream.set_nodelay(true);
                bug::or_exit(|| serve(&server, &stream));
            };
            if std::thread::Builder::new().stack_size(STACK).spawn(work).is_err() {
                drop(Pass(&self.connections));
            }
        }
    }
}

/// Reads a request. One that is refused is answered here.
pub(super) fn request(stream: &TcpStream) -> Option<Request> {
    match http::read(stream) {
        Ok(request) => Some(request),
        Err(Refused::Closed) => None,
        Err(Refused::With(status)) => {
            let answer = Answer::text(status, "This request is not supported.");
            http::answer(stream, &answer, NOTHING, false);
            None
        }
    }
}

/// Compares a secret in a time that depends on its length only.
pub(super) fn is_same_secret(given: &str, secret: &str) -> bool {
    let differs = given.bytes().zip(secret.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == secret.len() && differs == 0
}
