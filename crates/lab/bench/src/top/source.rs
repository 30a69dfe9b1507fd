//! Where the figures come from: the metrics that each OSD serves, and the kernel's account of each CPU.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use carmine_testbed::{Layout, Plan, ProcessId, http_addr};
use carmine_types::OsdId;
use serde_json::Value;

use crate::sample::proc::{Ticks, ticks};
use crate::sample::{difference, percentile};

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
        self.plan
            .daemons()
            .into_iter()
            .any(|daemon| matches!(ProcessId::running(&self.layout, daemon), Ok(Some(_))))
    }

    /// Asks all OSDs. One that does not answer is an error in its own row only.
    pub(super) fn sample(&self) -> Sample {
        let ids: Vec<OsdId> = self.plan.osd_ids().collect();
        // All are asked at once: an OSD that hangs delays nobody else.
        let osds = std::thread::scope(|scope| {
            let asked: Vec<_> = ids.iter().map(|id| (id.0 as usize, scope.spawn(|| self.ask(*id)))).collect();
            asked
                .into_iter()
                .map(|(id, thread)| (id, thread.join().unwrap_or_else(|_| Err("the question failed".into()))))
                .collect()
        });
        Sample { osds, cpus: ticks(&std::fs::read_to_string("/proc/stat").unwrap_or_default()) }
    }

    fn ask(&self, id: OsdId) -> Result<OsdSample, String> {
        let addr = http_addr(&self.layout, id).ok_or("it is not running")?;
        let body = get(addr, "/metrics.json").map_err(|e| carmine_testbed::output::chain(&*e))?;
        OsdSample::parse(&body).ok_or_else(|| "its answer cannot be read".into())
    }
}

/// The JSON behind `http://ADDR/TARGET`.
fn get(addr: SocketAddr, target: &str) -> Result<Value> {
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

/// All OSDs, and all CPUs of the machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Sample {
    /// The answer of each by its number, or why it gave none.
    pub(super) osds: BTreeMap<usize, Result<OsdSample, String>>,
    pub(super) cpus: BTreeMap<u32, Ticks>,
}

/// The metrics of one OSD at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OsdSample {
    /// The OSD's clock.
    pub(super) taken_at_ns: u64,
    /// By name: the value of each shard, in their order; a number, or a distribution of times: `buckets` of the upper bound `le`
    /// in ns with the `count` of values up to it, and `sum` and `count` of all values.
    metrics: BTreeMap<String, Vec<Value>>,
}

impl OsdSample {
    /// Reads an answer of `/metrics.json`; metrics of an unknown form are left out.
    pub(super) fn parse(answer: &Value) -> Option<OsdSample> {
        let of_metric = |metric: &Value| {
            let values = metric["values"].as_array()?.iter().map(|series| series["value"].clone());
            Some((metric["name"].as_str()?.to_owned(), values.collect()))
        };
        let metrics = answer["metrics"].as_array()?.iter().filter_map(of_metric).collect();
        Some(OsdSample { taken_at_ns: answer["taken_at_ns"].as_u64()?, metrics })
    }

    fn values(&self, name: &str) -> &[Value] {
        self.metrics.get(name).map_or(&[], Vec::as_slice)
    }

    /// The value of one shard; 0 if there is none.
    pub(super) fn of_shard(&self, name: &str, shard: usize) -> f64 {
        self.values(name).get(shard).and_then(Value::as_f64).unwrap_or(0.0)
    }

    /// The sum over all shards.
    pub(super) fn sum(&self, name: &str) -> f64 {
        self.sum_at(name, "")
    }

    /// The sum over all shards of a number within their values.
    fn sum_at(&self, name: &str, place: &str) -> f64 {
        self.values(name).iter().filter_map(|value| value.pointer(place)?.as_f64()).sum()
    }

    fn growth(&self, before: &OsdSample, name: &str, place: &str) -> f64 {
        (self.sum_at(name, place) - before.sum_at(name, place)).max(0.0)
    }

    /// The mean of the values of a distribution that came since `before`; `None` if none did.
    pub(super) fn mean_since(&self, before: &OsdSample, name: &str) -> Option<f64> {
        let count = self.growth(before, name, "/count");
        (count > 0.0).then(|| self.growth(before, name, "/sum") / count)
    }

    /// The value that `percent` % of those since `before` do not exceed, interpolated within its bucket.
    pub(super) fn percentile_since(&self, before: &OsdSample, name: &str, percent: f64) -> Option<f64> {
        let both = before.values(name).iter().zip(self.values(name));
        percentile(&both.map(|(old, now)| difference(old, now)).collect::<Vec<_>>(), percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample(count: u64) -> OsdSample {
        let latency = json!({ "sum": count * 40_000, "count": count, "buckets": [
            { "le": 30_000, "count": 0 }, { "le": 50_000, "count": count }, { "le": 70_000, "count": count } ]});
        let answer = json!({ "taken_at_ns": 5, "metrics": [
            { "name": "ops", "values": [{ "shard": "0", "value": count }, { "shard": "1", "value": 1 }] },
            { "name": "latency", "values": [{ "shard": "0", "value": latency }] },
            { "name": "odd", "values": [{ "value": "x" }, 3] },
        ]});
        OsdSample::parse(&answer).unwrap()
    }

    #[test]
    fn numbers_by_shard() {
        let s = sample(7);
        assert_eq!(
            (s.of_shard("ops", 0), s.of_shard("ops", 1), s.sum("ops"), s.sum("none")),
            (7.0, 1.0, 8.0, 0.0)
        );
        assert_eq!(OsdSample::parse(&json!({ "error": 1 })), None);
    }

    #[test]
    fn latency_is_that_of_the_time_between() {
        let (before, now) = (sample(100), sample(300));
        assert_eq!(now.mean_since(&before, "latency"), Some(40_000.0));
        assert_eq!(now.percentile_since(&before, "latency", 50.0), Some(40_000.0));
        assert_eq!(now.percentile_since(&before, "latency", 100.0), Some(50_000.0));
        assert_eq!(
            (now.mean_since(&now, "latency"), now.percentile_since(&now, "latency", 99.0)),
            (None, None)
        );
    }

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
