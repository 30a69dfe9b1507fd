//! The admin socket: Ceph's protocol for tools on the same machine, so that `ceph daemon` understands this OSD.
//!
//! A connection carries one command, ended by a zero byte or a newline: JSON with a `prefix`, or the bare word. The answer
//! is its length (32 bits, big endian) and the text; then the connection ends.

use std::io;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use carmine_messenger::with_timeout;
use carmine_reactor::{Chunk, Group, TcpStream};
use serde_json::{Value, json};

use super::guests::{Guest, Guests};
use crate::admin;
use crate::shard::OsdShard;
use crate::start::refused_accept;

/// Longest command, bytes.
const COMMAND_BYTES_MAX: usize = 16 << 10;
/// Time for the whole command to arrive.
const COMMAND_LIMIT: Duration = Duration::from_secs(10);
/// Time for the answer, which may read a whole store, and again to send it.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Serves admin commands on a unix socket at `path` from this shard. Connections are limited; one that does not ask, or does not
/// read, gives way to a new one.
///
/// # Errors
/// If the path cannot be bound: it is too long (over 107 bytes), or its folder is not writable.
pub fn serve_admin_socket(osd: &Rc<OsdShard>, path: &Path) -> io::Result<()> {
    let listener = osd.shard.listen_unix(path)?;
    let osd = Rc::clone(osd);
    let shard = osd.shard.clone();
    shard.spawn(Group::Admin, "admin-socket", async move {
        let guests = Rc::new(Guests::default());
        loop {
            match listener.accept().await {
                Ok(stream) => match guests.admit(&stream) {
                    Some(guest) => start_serving(&osd, stream, guest),
                    None => stream.shutdown(),
                },
                Err(error) => refused_accept(&osd, "admin socket", &error).await,
            }
        }
    });
    Ok(())
}

fn start_serving(osd: &Rc<OsdShard>, stream: TcpStream, guest: Guest) {
    let osd = Rc::clone(osd);
    let shard = osd.shard.clone();
    shard.spawn(Group::Admin, "admin-command", async move { serve(&osd, &stream, &guest).await });
}

async fn serve(osd: &Rc<OsdShard>, stream: &TcpStream, guest: &Guest) {
    let command = with_timeout(&osd.shard, COMMAND_LIMIT, read_command(osd, stream)).await;
    if let Some(Some(command)) = command {
        let text = guest.while_answering(with_timeout(&osd.shard, ANSWER_LIMIT, answer(osd, &command))).await;
        let text = text.unwrap_or_else(|| "the OSD did not answer in time\n".to_owned());
        let sent = with_timeout(&osd.shard, ANSWER_LIMIT, stream.send(frame(text))).await;
        if let Some(Err(error)) = sent {
            tracing::debug!("admin socket: {error}");
        }
    }
    stream.shutdown();
}

/// The command without its terminator; `None` if the peer disconnected first, or it is too long.
async fn read_command(osd: &OsdShard, stream: &TcpStream) -> Option<Vec<u8>> {
    let mut buf = osd.shard.buf(COMMAND_BYTES_MAX);
    let mut len = 0;
    loop {
        let (received, back) = stream.recv(buf, len).await;
        buf = back;
        let from = len;
        len += received.ok().filter(|n| *n > 0)?;
        let bytes = buf.as_slice().get(..len)?;
        if let Some(end) = bytes[from..].iter().position(|byte| matches!(byte, 0 | b'\n')) {
            return Some(bytes[..from + end].to_vec());
        }
        if len >= COMMAND_BYTES_MAX {
            return None;
        }
    }
}

/// A command as a question: JSON, or a bare word.
fn question(command: &[u8]) -> Result<Value, String> {
    let text = String::from_utf8_lossy(command);
    let text = text.trim();
    if text.starts_with('{') {
        serde_json::from_str(text).map_err(|e| format!("bad JSON: {e}"))
    } else {
        Ok(json!({ "prefix": text }))
    }
}

async fn answer(osd: &Rc<OsdShard>, command: &[u8]) -> String {
    let result = async { admin::answer(osd, &question(command)?).await };
    match result.await {
        // Some tools want plain text.
        Ok(Value::String(text)) => text,
        Ok(value) => format!("{value:#}\n"),
        Err(error) => format!("{:#}\n", json!({ "error": error })),
    }
}

fn frame(text: String) -> Vec<Chunk> {
    let len = u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes();
    vec![Chunk::from([len.as_slice(), text.as_bytes()].concat())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_json_or_words() {
        assert_eq!(question(b"{\"prefix\": \"status\"}").unwrap()["prefix"], "status");
        assert_eq!(question(b"config show").unwrap()["prefix"], "config show");
        assert_eq!(question(b"0").unwrap()["prefix"], "0");
        assert!(question(b"{\"prefix\"").unwrap_err().contains("bad JSON"));
    }

    #[test]
    fn answers_carry_their_length() {
        let chunks = frame("abc".into());
        assert_eq!(chunks[0].as_slice(), b"\0\0\0\x03abc");
    }
}
