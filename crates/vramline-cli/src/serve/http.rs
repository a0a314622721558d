//! The part of HTTP/1.1 that the servers need: one request per connection, GET and HEAD, no body.
//!
//! A client may send anything at any speed. The length and the duration of a request are limited, and malformed requests are refused.
//! Paths are compared without decoding, so nothing can hide in them.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Longest request line, and longest head of a request.
const LONGEST_LINE: usize = 2 << 10;
const LONGEST_HEAD: usize = 16 << 10;
/// Time limits for the head of a request, and for the whole answer.
const TIME_TO_ASK: Duration = Duration::from_secs(5);
const TIME_TO_TAKE: Duration = Duration::from_secs(60);
/// A client that reads nothing for this long is gone.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) is_head: bool,
    pub(super) path: String,
    pub(super) query: String,
    pub(super) host: Option<String>,
    pub(super) accept: Option<String>,
    pub(super) authorization: Option<String>,
}

/// Why there is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The client is gone.
    Closed,
    /// Answer with this status.
    With(u16),
}

/// Reads the head of a request.
pub(super) fn read(mut stream: &TcpStream) -> Result<Request, Refused> {
    let until = Instant::now() + TIME_TO_ASK;
    let mut head = Vec::new();
    let mut piece = [0_u8; 2048];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_read_timeout(Some(left)).is_err() {
            return Err(if head.is_empty() { Refused::Closed } else { Refused::With(408) });
        }
        match stream.read(&mut piece) {
            Ok(0) => return Err(if head.is_empty() { Refused::Closed } else { Refused::With(400) }),
            Ok(count) => head.extend(piece.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => return Err(Refused::Closed),
        }
        // Malformed requests are refused at once.
        let line = head.split(|&byte| byte == b'\n').next().unwrap_or_default();
        if line.len() > LONGEST_LINE {
            return Err(Refused::With(414));
        }
        if line.len() < head.len() {
            request_line(line)?;
        }
        if let Some(end) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            // With the end of its last line.
            return request(head.get(..=end).unwrap_or_default());
        }
        if head.len() > LONGEST_HEAD {
            return Err(Refused::With(431));
        }
    }
}

/// A whole head, without the empty line at its end.
fn request(head: &[u8]) -> Result<Request, Refused> {
    let mut lines = head.split(|&byte| byte == b'\n');
    let (is_head, target) = request_line(lines.next().unwrap_or_default())?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut request = Request {
        is_head,
        path: path.to_owned(),
        query: query.to_owned(),
        host: None,
        accept: None,
        authorization: None,
    };
    for line in lines {
        let line = std::str::from_utf8(line).map_err(|_| Refused::With(400))?;
        let (name, value) = line.split_once(':').ok_or(Refused::With(400))?;
        let value = value.trim();
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        if is("host") {
            once(&mut request.host, value)?;
        } else if is("authorization") {
            once(&mut request.authorization, value)?;
        } else if is("accept") {
            // Several are one list.
            match &mut request.accept {
                Some(list) => *list = format!("{list},{value}"),
                none => *none = Some(value.to_owned()),
            }
        } else if is("transfer-encoding") || (is("content-length") && value != "0") {
            return Err(Refused::With(413));
        }
    }
    Ok(request)
}

/// Takes a header that must not be there twice: a proxy and this server could use different ones.
fn once(field: &mut Option<String>, value: &str) -> Result<(), Refused> {
    match field.replace(value.to_owned()) {
        Some(_) => Err(Refused::With(400)),
        None => Ok(()),
    }
}

/// Whether only the head of the answer is wanted, and the requested path.
fn request_line(line: &[u8]) -> Result<(bool, &str), Refused> {
    let line = line.strip_suffix(b"\r").ok_or(Refused::With(400))?;
    let line = std::str::from_utf8(line).map_err(|_| Refused::With(400))?;
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(Refused::With(400));
    };
    let is_plain = target.starts_with('/') && target.bytes().all(|byte| byte.is_ascii_graphic());
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") || !is_plain {
        return Err(Refused::With(400));
    }
    match method {
        "GET" => Ok((false, target)),
        "HEAD" => Ok((true, target)),
        _ if method.bytes().all(|byte| byte.is_ascii_uppercase()) => Err(Refused::With(405)),
        _ => Err(Refused::With(400)),
    }
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn text(status: u16, text: &str) -> Answer {
        Answer { status, kind: "text/plain; charset=utf-8", body: format!("{text}\n").into_bytes() }
    }

    pub(super) fn json(body: String) -> Answer {
        Answer { status: 200, kind: "application/json", body: body.into_bytes() }
    }
}

/// The head of an answer. Its headers forbid caching, frames, content sniffing and referrers.
fn head(status: u16, kind: &str, length: Option<usize>, policy: &str) -> String {
    let words = match status {
        200 => "OK",
        400 => "Bad Request",
        401 => "Unauthorized",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        410 => "Gone",
        413 => "Content Too Large",
        414 => "URI Too Long",
        421 => "Misdirected Request",
        431 => "Request Header Fields Too Large",
        503 => "Service Unavailable",
        _ => "Error",
    };
    let length = length.map_or(String::new(), |length| format!("Content-Length: {length}\r\n"));
    let allow = match status {
        401 => "WWW-Authenticate: Bearer\r\n",
        405 => "Allow: GET, HEAD\r\n",
        _ => "",
    };
    format!(
        "HTTP/1.1 {status} {words}\r\nContent-Type: {kind}\r\n{length}{allow}Connection: close\r\nCache-Control: no-store\r\n\
         Content-Security-Policy: {policy}\r\nX-Content-Type-Options: nosniff\r\nX-Frame-Options: DENY\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\nCross-Origin-Opener-Policy: same-origin\r\n\r\n"
    )
}

/// The policy of answers that are not a page.
pub(super) const NOTHING: &str = "default-src 'none'; frame-ancestors 'none'";

/// Sends an answer and ends the connection.
pub(super) fn answer(stream: &TcpStream, answer: &Answer, policy: &str, is_head: bool) {
    let head = head(answer.status, answer.kind, Some(answer.body.len()), policy);
    let body = if is_head { &[] } else { answer.body.as_slice() };
    if send(stream, head.as_bytes()).is_ok() && send(stream, body).is_ok() {
        finish(stream);
    }
}

/// Begins a stream of events.
pub(super) fn begin_events(stream: &TcpStream) -> io::Result<()> {
    send(stream, head(200, "text/event-stream", None, NOTHING).as_bytes())
}

/// Sends all bytes, within the time limits.
pub(super) fn send(mut stream: &TcpStream, bytes: &[u8]) -> io::Result<()> {
    let until = Instant::now() + TIME_TO_TAKE;
    stream.set_write_timeout(Some(PATIENCE))?;
    for piece in bytes.chunks(64 << 10) {
        if Instant::now() > until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.write_all(piece)?;
    }
    Ok(())
}

/// Closes our side first: closing a connection with unread bytes would discard the answer.
fn finish(mut stream: &TcpStream) {
    let _ = stream.shutdown(Shutdown::Write);
    let until = Instant::now() + Duration::from_millis(500);
    let mut left = 256 << 10;
    let mut piece = [0_u8; 4096];
    while left > 0 && Instant::now() < until {
        if stream.set_read_timeout(Some(Duration::from_millis(200))).is_err() {
            return;
        }
        match stream.read(&mut piece) {
            Ok(count) if count > 0 => left = usize::saturating_sub(left, count),
            _ => return,
        }
    }
}

/// Whether the other side has gone.
pub(super) fn is_closed(stream: &TcpStream) -> bool {
    let mut one = [0_u8; 1];
    if stream.set_nonblocking(true).is_err() {
        return true;
    }
    let seen = stream.peek(&mut one);
    let is_closed = match seen {
        Ok(count) => count == 0,
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    };
    stream.set_nonblocking(false).is_err() || is_closed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_plain_requests_only() {
        let good = request(b"GET /a/tile?x=1 HTTP/1.1\r\nHost: localhost:1\r\nAccept: */*").unwrap();
        assert_eq!((good.path.as_str(), good.query.as_str()), ("/a/tile", "x=1"));
        assert_eq!(good.host.as_deref(), Some("localhost:1"));
        assert!(request(b"HEAD / HTTP/1.0\r").is_ok_and(|request| request.is_head));
        let two = request(b"GET / HTTP/1.1\r\nAccept: a\r\naccept: b\r\nAuthorization: Bearer x").unwrap();
        assert_eq!((two.accept.as_deref(), two.authorization.as_deref()), (Some("a,b"), Some("Bearer x")));
        let cases: [(&[u8], u16); 10] = [
            (b"POST / HTTP/1.1\r", 405),
            (b"get / HTTP/1.1\r", 400),
            (b"GET / HTTP/2\r", 400),
            (b"GET http://x/ HTTP/1.1\r", 400),
            (b"GET /\x00 HTTP/1.1\r", 400),
            (b"GET /\xff HTTP/1.1\r", 400),
            (b"GET  / HTTP/1.1\r", 400),
            (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b", 400),
            (b"GET / HTTP/1.1\r\nAuthorization: a\r\nAuthorization: b", 400),
            (b"GET / HTTP/1.1\r\nContent-Length: 3", 413),
        ];
        for (head, status) in cases {
            assert_eq!(request(head), Err(Refused::With(status)), "{}", head.escape_ascii());
        }
    }
}
