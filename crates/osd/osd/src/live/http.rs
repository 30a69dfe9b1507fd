//! Metrics over HTTP, for Prometheus and for `carmine top`: one request per connection, on one reactor.
//!
//! Everything is bounded: the request's bytes and its time, the answer's time, the connections. What is beyond is
//! refused or closed; the OSD does not notice.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use carmine_messenger::with_timeout;
use carmine_reactor::{Chunk, Group, TcpStream};
use serde_json::json;

use super::gather;
use super::request::{Page, REQUEST_BYTES_MAX, Request, parse};
use crate::shard::OsdShard;

/// Connections at a time; those beyond are closed at once.
const CONNECTIONS_MAX: usize = 16;
/// Time for a whole request.
const REQUEST_LIMIT: Duration = Duration::from_secs(5);
/// Time to gather the numbers of all shards, and to send them.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Pause after a failed accept (out of descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// An answer before it is written down.
struct Answer {
    status: u16,
    reason: &'static str,
    content_type: &'static str,
    body: String,
}

impl Answer {
    fn error(status: u16, reason: &'static str) -> Answer {
        Answer {
            status,
            reason,
            content_type: "text/plain; charset=utf-8",
            body: format!("{status} {reason}\n"),
        }
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
        let open = Rc::new(Cell::new(0_usize));
        loop {
            match listener.accept().await {
                Ok((socket, _)) if open.get() < CONNECTIONS_MAX => {
                    attend(&own, socket.into_stream(&own.shard), Open::new(&open));
                }
                Ok((_refused, _)) => {}
                Err(error) => {
                    tracing::warn!("metrics: accept: {error}");
                    own.shard.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    });
    Ok(local)
}

/// Counts a connection as long as it lives.
struct Open(Rc<Cell<usize>>);

impl Open {
    fn new(open: &Rc<Cell<usize>>) -> Open {
        open.set(open.get() + 1);
        Open(Rc::clone(open))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

fn attend(osd: &Rc<OsdShard>, stream: TcpStream, open: Open) {
    let osd = Rc::clone(osd);
    let shard = osd.shard.clone();
    shard.spawn(Group::Admin, "http", async move {
        let request = with_timeout(&osd.shard, REQUEST_LIMIT, read_request(&osd, &stream)).await;
        let (answer, head_only) = match request {
            // The peer has gone, or takes its time: nobody to answer to.
            None | Some(None) => return stream.shutdown(),
            Some(Some(request)) => answer(&osd, request).await,
        };
        let sent = with_timeout(&osd.shard, ANSWER_LIMIT, stream.send(chunks(answer, head_only))).await;
        if let Some(Err(error)) = sent {
            tracing::debug!("metrics: {error}");
        }
        stream.shutdown();
        drop(open);
    });
}

/// Receives until the request is whole or cannot become one; `None` if the peer went before.
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
            Answer::ok("text/plain; charset=utf-8", text)
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
