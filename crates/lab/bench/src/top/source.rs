//! Where the figures come from: the metrics that each OSD serves, and the kernel's account of each CPU.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, ensure};
use carmine_testbed::process::ProcessId;
use carmine_testbed::{Daemon, Layout, Plan, http_addr};
use carmine_types::OsdId;
use serde_json::Value;

use super::sample::{OsdSample, Sample};
use crate::sample::proc::ticks;

/// Time for an OSD's answer: longer than a busy reactor needs, shorter than a user's patience.
const LIMIT: Duration = Duration::from_millis(900);
/// Longest answer that is read, bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// Reads the figures of one testbed.
pub(super) struct Source {
    pub(super) layout: Layout,
    pub(super) plan: Plan,
}

impl Source {
    /// True as long as any process of the testbed lives.
    pub(super) fn is_alive(&self) -> bool {
        let mut daemons = (0..self.plan.osds()).map(|id| Daemon::Osd(OsdId(id))).chain([Daemon::Mon]);
        daemons.any(|daemon| matches!(ProcessId::running(&self.layout, daemon), Ok(Some(_))))
    }

    /// Asks all OSDs. One that does not answer is an error of its own row only.
    pub(super) fn sample(&self) -> Sample {
        let ids: Vec<OsdId> = (0..self.plan.osds()).map(OsdId).collect();
        // All at once: one that hangs costs its time limit, not everybody's.
        let osds = std::thread::scope(|scope| {
            let asked: Vec<_> = ids.iter().map(|id| scope.spawn(|| self.ask(*id))).collect();
            asked
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|_| Err("the question failed".into())))
                .collect()
        });
        Sample { osds, cpus: ticks(&std::fs::read_to_string("/proc/stat").unwrap_or_default()) }
    }

    fn ask(&self, id: OsdId) -> Result<OsdSample, String> {
        let addr = http_addr(&self.layout, id).ok_or("it does not run")?;
        let body = get(addr, "/metrics.json").map_err(|e| carmine_testbed::output::chain(&*e))?;
        OsdSample::parse(&body).ok_or_else(|| "its answer is not understood".into())
    }
}

/// The JSON behind `http://ADDR/TARGET`.
fn get(addr: SocketAddr, target: &str) -> anyhow::Result<Value> {
    let mut stream =
        TcpStream::connect_timeout(&addr, LIMIT).with_context(|| format!("cannot reach {addr}"))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    stream.write_all(
        format!("GET {target} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n").as_bytes(),
    )?;
    let mut answer = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer).context("no answer in time")?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("not HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.starts_with("HTTP/1.1 200"), "{addr} answers {status}");
    serde_json::from_str(body).context("not JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_none_of_ours() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            for answer in ["HTTP/1.1 404 Not Found\r\n\r\n", "hello", "HTTP/1.1 200 OK\r\n\r\n{\"a\": 1}"] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 512];
                let n = stream.read(&mut request).unwrap();
                assert!(request[..n].starts_with(b"GET /x HTTP/1.1\r\n"));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        assert!(get(addr, "/x").unwrap_err().to_string().contains("404"));
        assert!(get(addr, "/x").is_err());
        assert_eq!(get(addr, "/x").unwrap()["a"], 1);
        server.join().unwrap();
        assert!(get(addr, "/x").unwrap_err().to_string().contains("cannot reach"));
    }
}
