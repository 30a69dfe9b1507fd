//! What a controller and a load host say to each other: JSON behind its length (u32, little-endian). The controller asks, the host
//! answers each request once.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;

use carmine_load::window::MachineWindow;
use carmine_load::{JobResult, LoadSpec, Phase, Progress};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A request at most: a load with the lengths and popularity of its blocks.
pub(super) const REQUEST_MAX: u32 = 1 << 20;
/// An answer at most: histograms of every second of two hours.
pub(super) const ANSWER_MAX: u32 = 256 << 20;

/// Asked by the controller.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
pub(super) enum Request {
    /// The first: which program the controller is.
    Hello {
        build: String,
    },
    /// Asks for the time of the host's clock.
    Clock,
    /// Starts these jobs of a load.
    Start {
        spec: Box<LoadSpec>,
        jobs: Range<u32>,
        mons: Vec<SocketAddr>,
        pool: String,
    },
    Phase {
        phase: Phase,
    },
    /// The window begins at this time of the host's own clock, and ends after so many ms, if it has a length.
    Measure {
        at_ns: u64,
        runtime_ms: Option<u64>,
    },
    Status,
}

/// Told by the host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "tell", rename_all = "lowercase")]
pub(super) enum Answer {
    Hello {
        cpus: u32,
    },
    /// It cannot do that; in words.
    Refused {
        why: String,
    },
    /// When it received the question, and when it answered: nanoseconds since 1970.
    Clock {
        received_ns: u64,
        answered_ns: u64,
    },
    Status(Box<HostStatus>),
}

/// How a host's jobs stand.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct HostStatus {
    pub(super) progress: Progress,
    /// Their counts, once all of them have ended.
    pub(super) result: Option<HostResult>,
}

/// What a host's jobs did in the window.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct HostResult {
    pub(super) result: JobResult,
    /// Of the whole host; `generator` is the load's process.
    pub(super) machine: MachineWindow,
    pub(super) window_ns: u64,
    /// The window began this long after its time.
    pub(super) late_ns: u64,
}

/// Sends a message.
///
/// # Errors
/// The connection's.
pub(super) fn send(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    let json = serde_json::to_vec(message).map_err(io::Error::other)?;
    let length = u32::try_from(json.len()).map_err(io::Error::other)?;
    to.write_all(&[&length.to_le_bytes()[..], &json].concat())
}

/// Receives a message of at most `max` bytes. Memory grows with what has arrived, not with what is announced.
///
/// # Errors
/// The connection's, or these bytes are not a message.
pub(super) fn receive<T: DeserializeOwned>(from: &mut impl Read, max: u32) -> io::Result<T> {
    let wrong = |why: String| io::Error::new(ErrorKind::InvalidData, why);
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    if length > max {
        return Err(wrong(format!("a message of {length} bytes: this is not `carmine load`")));
    }
    let mut json = Vec::new();
    from.take(length.into()).read_to_end(&mut json)?;
    if json.len() < length as usize {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    serde_json::from_slice(&json).map_err(|e| wrong(format!("a message that is not understood: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let mut bytes = Vec::new();
        let spec = Box::new(LoadSpec { generation: 7, ..LoadSpec::default() });
        let mons = vec!["[::1]:3300".parse().unwrap()];
        send(&mut bytes, &Request::Start { spec, jobs: 3..5, mons, pool: "p".into() }).unwrap();
        send(&mut bytes, &Answer::Status(Box::default())).unwrap();
        let mut from = bytes.as_slice();
        let Ok(Request::Start { spec, jobs, .. }) = receive(&mut from, REQUEST_MAX) else { panic!("start") };
        assert_eq!((spec.generation, jobs), (7, 3..5));
        assert!(matches!(receive(&mut from, ANSWER_MAX), Ok(Answer::Status(_))) && from.is_empty());
    }

    #[test]
    fn other_bytes_are_errors() {
        let kind = |bytes: &[u8]| receive::<Request>(&mut &bytes[..], REQUEST_MAX).unwrap_err().kind();
        assert_eq!(kind(b"GET / HTTP/1.1\r\n\r\n"), ErrorKind::InvalidData);
        assert_eq!(kind(b"\x02\0\0\0[]"), ErrorKind::InvalidData);
        assert_eq!(kind(&[1, 0]), ErrorKind::UnexpectedEof);
        assert_eq!(kind(&[9, 0, 0, 0, b'{']), ErrorKind::UnexpectedEof);
        let deep = [&(60_000u32).to_le_bytes()[..], &[b'['; 60_000]].concat();
        assert_eq!(kind(&deep), ErrorKind::InvalidData);
    }
}
