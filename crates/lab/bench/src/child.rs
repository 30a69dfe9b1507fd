//! Programs whose output is read.

use std::io;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// Runs a program while `read` reads its output on a thread of its own. Past the limit it returns `None`: the program is killed, and
/// nobody waits for it, since a drive that hangs may keep it from dying.
pub(crate) fn read_within<T: Send + 'static>(
    command: &mut Command,
    limit: Duration,
    read: impl FnOnce(ChildStdout) -> T + Send + 'static,
) -> io::Result<Option<T>> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let out = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let (send, receive) = channel();
    // Nobody waits for the answer past the limit.
    std::thread::spawn(move || send.send(read(out)));
    let told = receive.recv_timeout(limit).ok();
    let _ = child.kill();
    if told.is_some() {
        let _ = child.wait();
    }
    Ok(told)
}
