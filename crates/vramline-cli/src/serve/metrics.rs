//! Serves live figures to Prometheus.
//!
//! The figures are collected when they are asked for, by one request at a time; others that come within a second get the same answer. So
//! nothing is done while nobody asks, and many readers cost little more than one.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::http::{self, Answer, NOTHING};
use super::listen::{self, Listener};
use crate::bug;
use crate::metrics::{Format, Series};

/// Time for which an answer is given again.
const FRESH: Duration = Duration::from_secs(1);
/// Longest wait for figures. Prometheus gives up after ten seconds.
const PATIENCE: Duration = Duration::from_secs(8);

/// Collects the series of now.
pub(crate) type Collect = Box<dyn FnMut() -> Series + Send>;

/// A server of live figures.
pub(crate) struct MetricsServer {
    listener: Listener,
    /// The secret that a reader must send.
    token: Option<String>,
    newest: Mutex<Newest>,
    changed: Condvar,
    collect: Mutex<Collect>,
}

#[derive(Default)]
struct Newest {
    series: Option<(Instant, Arc<Series>)>,
    is_collecting: bool,
}

impl MetricsServer {
    /// Binds the address. Port 0 means any free port.
    pub(crate) fn open(
        address: SocketAddr,
        token: Option<String>,
        collect: Collect,
    ) -> io::Result<MetricsServer> {
        Ok(MetricsServer {
            listener: Listener::bind(address)?,
            token,
            newest: Mutex::default(),
            changed: Condvar::new(),
            collect: Mutex::new(collect),
        })
    }

    /// The address of the figures.
    pub(crate) fn url(&self) -> String {
        format!("{}/metrics", self.listener.url())
    }

    /// Answers until the process ends.
    pub(crate) fn start(self) {
        let server = Arc::new(self);
        bug::detach(move || server.listener.accept(&server, MetricsServer::serve));
    }

    fn serve(&self, stream: &TcpStream) {
        bug::stumble("serve");
        let Some(request) = listen::request(stream) else { return };
        let answer = |answer: &Answer| http::answer(stream, answer, NOTHING, request.is_head);
        if !self.is_our_name(request.host.as_deref()) {
            return answer(&Answer::text(
                421,
                "This server listens on this machine only. Use the address 127.0.0.1, or see vramline exporter --listen.",
            ));
        }
        match request.path.as_str() {
            "/" => answer(&Answer { status: 200, kind: "text/html; charset=utf-8", body: PAGE.into() }),
            "/metrics" if !self.is_allowed(request.authorization.as_deref()) => answer(&Answer::text(
                401,
                "The token is missing or wrong. Send the header: Authorization: Bearer TOKEN",
            )),
            "/metrics" => {
                let format = Format::accepted(request.accept.as_deref());
                match self.series() {
                    Some(series) => {
                        let body = series.text(format).into_bytes();
                        answer(&Answer { status: 200, kind: format.content_type(), body });
                    }
                    None => {
                        answer(&Answer::text(503, "Collecting the figures takes too long. Try again later."));
                    }
                }
            }
            _ => answer(&Answer::text(404, "Not found. The figures are at /metrics.")),
        }
    }

    /// Whether the host of a request may be meant. On a loopback address, the name of another site that points here is refused. On other
    /// addresses machines have any name.
    fn is_our_name(&self, host: Option<&str>) -> bool {
        let ip = self.listener.address.ip();
        if !ip.is_loopback() {
            return true;
        }
        let Some(host) = host else { return false };
        // A tunnel may have another port.
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        name.eq_ignore_ascii_case("localhost")
            || name == "127.0.0.1"
            || name == "[::1]"
            || name.trim_matches(['[', ']']).parse() == Ok(ip)
    }

    fn is_allowed(&self, authorization: Option<&str>) -> bool {
        let Some(token) = &self.token else { return true };
        let given = authorization.and_then(|header| header.split_once(' '));
        given.is_some_and(|(scheme, given)| {
            scheme.eq_ignore_ascii_case("bearer") && listen::is_same_secret(given.trim_start(), token)
        })
    }

    /// The series of now; `None` if collecting them takes too long.
    fn series(&self) -> Option<Arc<Series>> {
        let begin = Instant::now();
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some((at, series)) = &newest.series
                && at.elapsed() < FRESH
            {
                return Some(Arc::clone(series));
            }
            if !newest.is_collecting {
                newest.is_collecting = true;
                break;
            }
            let left = PATIENCE.checked_sub(begin.elapsed())?;
            let waited = self.changed.wait_timeout(newest, left);
            newest = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(newest);
        let series = Arc::new((self.collect.lock().unwrap_or_else(PoisonError::into_inner))());
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        *newest = Newest { series: Some((Instant::now(), Arc::clone(&series))), is_collecting: false };
        self.changed.notify_all();
        Some(series)
    }
}

const PAGE: &str = "\
<!doctype html>
<html lang=\"en\">
<meta charset=\"utf-8\">
<title>vramline exporter</title>
<h1>vramline exporter</h1>
<p>Live GPU memory of this machine for Prometheus: devices, pools and steps of recorded jobs.</p>
<p><a href=\"/metrics\">/metrics</a></p>
</html>
";
