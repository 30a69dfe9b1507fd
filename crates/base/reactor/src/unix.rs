//! Listening on a path: for tools on the same machine. Only the kernel has it: nothing in the simulator dials a path.

use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::buf::{Buf, Chunk};
use crate::driver::{self, Driver};
use crate::handle::Handle;
use crate::net::TcpStream;
use crate::op::{Op, OpFuture};
use crate::shard::Shard;
use crate::sys;

fn named(e: &io::Error, path: &Path) -> io::Error {
    io::Error::new(e.kind(), format!("cannot listen on {}: {e}", path.display()))
}

/// Binds `path`. A socket that is there already is taken to be left over and is replaced; any other file is not.
pub(crate) fn listen(shard: &Shard, path: &Path) -> io::Result<UnixListener> {
    match &*shard.inner().driver.borrow() {
        Driver::Uring(_) => {}
        Driver::Sim(_) => return Err(named(&io::ErrorKind::Unsupported.into(), path)),
        Driver::Closed => return Err(driver::closed()),
    }
    if std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        std::fs::remove_file(path).map_err(|e| named(&e, path))?;
    }
    // std leaves the socket blocking, as the ring wants it.
    let listener = StdListener::bind(path).map_err(|e| named(&e, path))?;
    Ok(UnixListener {
        shard: shard.clone(),
        handle: Rc::new(Handle::Os(listener.into())),
        path: path.to_path_buf(),
    })
}

/// A listening unix socket, tied to the shard that made it. Dropping it removes its path.
pub struct UnixListener {
    shard: Shard,
    handle: Rc<Handle>,
    path: PathBuf,
}

impl UnixListener {
    /// Waits for a connection. Dropping the future may drop a connection that was just accepted.
    ///
    /// # Errors
    /// Those of `accept`; EMFILE and ENFILE pass when descriptors become free.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let out = OpFuture::new(&self.shard, Op::Accept { handle: Rc::clone(&self.handle) }).await;
            match out.io() {
                Ok(n) => {
                    let handle = Rc::new(Handle::Os(sys::own_fd(n as i32)));
                    return Ok(UnixStream(TcpStream::nameless(self.shard.clone(), handle)));
                }
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl Drop for UnixListener {
    fn drop(&mut self) {
        // Somebody else may have removed it: then there is nothing left to do.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A connected unix socket on a shard: a stream like TCP's, without addresses.
#[derive(Clone)]
pub struct UnixStream(TcpStream);

impl UnixStream {
    /// As [`TcpStream::recv`].
    ///
    /// # Errors
    /// Those of `recv`; the buffer comes back in every case.
    pub async fn recv(&self, buf: Buf, at: usize) -> (io::Result<usize>, Buf) {
        self.0.recv(buf, at).await
    }

    /// As [`TcpStream::send`].
    ///
    /// # Errors
    /// Those of `send`.
    pub async fn send(&self, chunks: Vec<Chunk>) -> io::Result<()> {
        self.0.send(chunks).await
    }

    /// Ends both directions: pending receives return.
    pub fn shutdown(&self) {
        self.0.shutdown();
    }
}
