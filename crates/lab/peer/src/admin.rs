//! Admin sockets of Ceph's daemons: a question as JSON ended by a zero byte, an answer after its length (4 bytes, big
//! endian).

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use carmine_testbed::{Daemon, Layout, Result, TestbedError};
use serde_json::Value;

/// A daemon that has not answered by then is stuck.
const LIMIT: Duration = Duration::from_secs(10);
/// Longest answer that is believed.
const ANSWER_MAX: usize = 64 << 20;
/// Name of a daemon's admin socket in the folder of the processes, in which daemons are started: the path of a socket may
/// have 107 bytes only, so neither side names the folder.
pub(crate) fn socket_name(daemon: Daemon) -> String {
    format!("{daemon}.asok")
}

/// Asks a daemon; the answer as JSON.
///
/// # Errors
/// It does not listen (yet), does not answer in time, or answers something else than JSON: an error of its own, mostly.
pub(crate) fn ask(layout: &Layout, daemon: Daemon, question: &Value) -> Result<Value> {
    let path = layout.run_dir().join(socket_name(daemon));
    let bytes = exchange(&layout.run_dir(), &socket_name(daemon), question)
        .map_err(TestbedError::io("ask", &path))?;
    serde_json::from_slice(&bytes).map_err(|_| {
        let said = String::from_utf8_lossy(bytes.get(..200).unwrap_or(&bytes)).trim().to_owned();
        TestbedError::Failed(format!("{daemon} answered {question} with `{said}`"))
    })
}

fn exchange(folder: &Path, name: &str, question: &Value) -> std::io::Result<Vec<u8>> {
    let folder = File::open(folder)?;
    let mut stream = UnixStream::connect(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()))?;
    stream.set_read_timeout(Some(LIMIT))?;
    stream.set_write_timeout(Some(LIMIT))?;
    let mut text = question.to_string().into_bytes();
    text.push(0);
    stream.write_all(&text)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length) as usize;
    if length > ANSWER_MAX {
        return Err(std::io::Error::other(format!("an answer of {length} bytes")));
    }
    let mut answer = Vec::new();
    stream.take(length as u64).read_to_end(&mut answer)?;
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    /// A daemon that answers one question with `answer`; the question that it got.
    fn daemon(layout: &Layout, answer: Vec<u8>) -> std::thread::JoinHandle<Vec<u8>> {
        std::fs::create_dir_all(layout.run_dir()).unwrap();
        let folder = File::open(layout.run_dir()).unwrap();
        let name = socket_name(Daemon::Mon);
        let listener = UnixListener::bind(format!("/proc/self/fd/{}/{name}", folder.as_raw_fd())).unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = Vec::new();
            let mut byte = [1];
            while stream.read_exact(&mut byte).is_ok() && byte != [0] {
                question.push(byte[0]);
            }
            stream.write_all(&answer).unwrap();
            question
        })
    }

    fn answered(answer: &[u8], length: u32) -> (Result<Value>, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        // Longer than the path of a socket may be.
        let layout = Layout::new(&dir.path().join("deep/".repeat(40))).unwrap();
        let asked = daemon(&layout, [&length.to_be_bytes()[..], answer].concat());
        let result = ask(&layout, Daemon::Mon, &serde_json::json!({"prefix": "status"}));
        (result, asked.join().unwrap())
    }

    #[test]
    fn question_and_answer() {
        let (answer, question) = answered(b"{\"state\":\"active\"}", 18);
        assert_eq!(answer.unwrap()["state"], "active");
        assert_eq!(question, b"{\"prefix\":\"status\"}");
    }

    #[test]
    fn nonsense_is_an_error() {
        let (answer, _) = answered(b"ERROR: no such pg", 17);
        assert!(answer.unwrap_err().to_string().contains("no such pg"));
        assert!(answered(b"{", u32::MAX).0.unwrap_err().to_string().contains("4294967295"));
    }
}
