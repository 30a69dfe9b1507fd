//! Metrics over HTTP, for Prometheus and for `carmine top`: one request per connection, on one reactor.
//!
//! Everything is bounded: the request's bytes and its time, the answer's time, the connections. A connection beyond these limits
//! is closed, or a slow one is closed in its place; the rest of the OSD is unaffected.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use carmine_messenger::with_timeout;
use carmine_reactor::{Chunk, Group, TcpStream};
use serde_json::json;

use super::gather;
use super::guests::{Guest, Guests};
use crate::shard::OsdShard;
use crate::start::accept;

/// Time for a whole request.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// Time to gather the numbers of all shards, and to send them.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// Content type of plain text.
const TEXT: &str = "text/plain; charset=utf-8";

/// An answer before it is written down.
struct Answer {
    status: u16,
    reason: &'static str,
    content_type: &'static str,
    body: String,
}

impl Answer {
    fn error(status: u16, reason: &'static str) -> Answer {
        Answer { status, reason, content_type: TEXT, body: format!("{status} {reason}\n") }
    }

    fn ok(content_type: &'static str, body: String) -> Answer {
        Answer { status: 200, reason: "OK", content_type, body }
    }
}

/// Serves the OSD's metrics on `addr` (port 0: any) from this shard; the address with its real port.
///
/// # Errors
/// If the address cannot be listened on.
pub async fn serve_http(osd: &Rc<OsdShard>, addr: SocketAddr) -> io::Result<SocketAddr> {
    let listener = osd.shard.listen(addr).await?;
    let local = listener.local_addr();
    let own = Rc::clone(osd);
    osd.shard.spawn(Group::Admin, "http-accept", async move {
        let guests = Rc::new(Guests::default());
        loop {
            let stream = accept(&own, &listener, "metrics").await.into_stream(&own.shard);
            if let Some(guest) = guests.admit(&stream) {
                start_serving(&own, stream, guest);
            }
        }
    });
    Ok(local)
}

fn start_serving(osd: &Rc<OsdShard>, stream: TcpStream, guest: Guest) {
    let osd = Rc::clone(osd);
    let shard = osd.shard.clone();
    shard.spawn(Group::Admin, "http", async move {
        let request = with_timeout(&osd.shard, REQUEST_LIMIT, read_request(&osd, &stream)).await;
        let (answer, head_only) = match request {
            // The peer disconnected or was too slow: there is nobody to answer.
            None | Some(None) => return stream.shutdown(),
            Some(Some(request)) => guest.while_answering(answer(&osd, request)).await,
        };
        let sent = with_timeout(&osd.shard, ANSWER_LIMIT, stream.send(chunks(answer, head_only))).await;
        if let Some(Err(error)) = sent {
            tracing::debug!("metrics: {error}");
        }
        stream.shutdown();
        drop(guest);
    });
}

/// Receives until the request is complete or invalid; `None` if the peer disconnected first.
async fn read_request(osd: &OsdShard, stream: &TcpStream) -> Option<Request> {
    let mut buf = osd.shard.buf(REQUEST_BYTES_MAX);
    let mut len = 0;
    loop {
        let (received, back) = stream.recv(buf, len).await;
        buf = back;
        len += received.ok().filter(|n| *n > 0)?;
        match parse(buf.as_slice().get(..len.min(REQUEST_BYTES_MAX))?) {
            Request::Partial => {}
            whole => return Some(whole),
        }
    }
}

async fn answer(osd: &Rc<OsdShard>, request: Request) -> (Answer, bool) {
    let (page, head_only) = match request {
        Request::Get { page, head_only } => (page, head_only),
        Request::Refused(status, reason) => return (Answer::error(status, reason), false),
        Request::Partial => return (Answer::error(400, "Bad Request"), false),
    };
    let answer = with_timeout(&osd.shard, ANSWER_LIMIT, render(osd, page)).await;
    (answer.unwrap_or_else(|| Answer::error(503, "Service Unavailable")), head_only)
}

async fn render(osd: &Rc<OsdShard>, page: Page) -> Answer {
    let id = osd.config.id.0;
    match page {
        Page::Index => {
            let text = format!("osd.{id} of carmine: /metrics, /metrics.json?prefix=NAME\n");
            Answer::ok(TEXT, text)
        }
        Page::Metrics => {
            let text = gather::all(osd).await.prometheus(&[("osd", id.to_string())]);
            Answer::ok("text/plain; version=0.0.4; charset=utf-8", text)
        }
        Page::MetricsJson(prefix) => {
            let metrics = gather::all(osd).await.describe_json(&prefix);
            let body = json!({ "osd": id, "taken_at_ns": osd.shard.now_ns(), "metrics": metrics });
            Answer::ok("application/json", body.to_string())
        }
    }
}

fn chunks(answer: Answer, head_only: bool) -> Vec<Chunk> {
    let Answer { status, reason, content_type, body } = answer;
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let mut chunks = vec![Chunk::from(head.into_bytes())];
    if !head_only {
        chunks.push(Chunk::from(body.into_bytes()));
    }
    chunks
}

// Requests of scrapers.

/// Longest request, bytes; a scraper's has some hundred.
pub(crate) const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Most headers of a request.
const HEADERS_MAX: usize = 64;

/// A requested page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// `/`: what there is.
    Index,
    /// `/metrics`: Prometheus text.
    Metrics,
    /// `/metrics.json`, only names that begin with this.
    MetricsJson(String),
}

/// A request, as far as the bytes so far show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Not a whole request yet.
    Partial,
    /// An invalid request: status and reason.
    Refused(u16, &'static str),
    /// A page; without its body if only the head is wanted.
    Get { page: Page, head_only: bool },
}

/// Parses a request; anything after its head is ignored.
pub(crate) fn parse(bytes: &[u8]) -> Request {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() >= REQUEST_BYTES_MAX => {
            Request::Refused(431, "Request Header Fields Too Large")
        }
        Ok(httparse::Status::Partial) => Request::Partial,
        Err(httparse::Error::TooManyHeaders) => Request::Refused(431, "Request Header Fields Too Large"),
        Err(_) => Request::Refused(400, "Bad Request"),
        Ok(httparse::Status::Complete(_)) => {
            let head_only = match request.method {
                Some("GET") => false,
                Some("HEAD") => true,
                _ => return Request::Refused(405, "Method Not Allowed"),
            };
            match request.path.and_then(page) {
                Some(page) => Request::Get { page, head_only },
                None => Request::Refused(404, "Not Found"),
            }
        }
    }
}

fn page(target: &str) -> Option<Page> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match path {
        "/" => Some(Page::Index),
        "/metrics" => Some(Page::Metrics),
        "/metrics.json" => {
            let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix="));
            Some(Page::MetricsJson(prefix.unwrap_or_default().to_owned()))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn get(target: &str) -> Request {
        parse(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())
    }

    fn wanted(page: Page) -> Request {
        Request::Get { page, head_only: false }
    }

    #[test]
    fn pages() {
        assert_eq!(get("/"), wanted(Page::Index));
        assert_eq!(get("/metrics"), wanted(Page::Metrics));
        assert_eq!(get("/metrics.json"), wanted(Page::MetricsJson(String::new())));
        assert_eq!(get("/metrics.json?a=b&prefix=reactor_"), wanted(Page::MetricsJson("reactor_".into())));
        assert_eq!(get("/metrics/"), Request::Refused(404, "Not Found"));
        let head = parse(b"HEAD /metrics HTTP/1.0\r\n\r\n");
        assert_eq!(head, Request::Get { page: Page::Metrics, head_only: true });
    }

    #[test]
    fn what_is_no_request() {
        assert_eq!(parse(b"GET /metrics HTTP/1.1\r\nHost"), Request::Partial);
        assert_eq!(parse(b"POST /metrics HTTP/1.1\r\n\r\n"), Request::Refused(405, "Method Not Allowed"));
        assert_eq!(parse(b"\x16\x03\x01\x02\x00\x01\x00"), Request::Refused(400, "Bad Request"));
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        assert!(matches!(parse(many.as_bytes()), Request::Refused(431, _)));
        let long = format!("GET /{}", "a".repeat(REQUEST_BYTES_MAX));
        assert!(matches!(parse(long.as_bytes()), Request::Refused(431, _)));
    }

    proptest! {
        #[test]
        fn any_bytes_are_understood_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
        }
    }
}
