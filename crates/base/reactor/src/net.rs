//! Sockets: TCP, and unix sockets for tools on the same machine.

use std::cell::Cell;
use std::fmt::Display;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::buf::{Buf, Chunk};
use crate::driver::sim::SimHandle;
use crate::driver::{self, Driver};
use crate::op::{Handle, Op, OpFuture};
use crate::shard::Shard;
use crate::sys::{self, SockAddr};

fn named(e: &io::Error, what: &str, addr: impl Display) -> io::Error {
    io::Error::new(e.kind(), format!("cannot {what} {addr}: {e}"))
}

pub(crate) fn listen(shard: &Shard, addr: SocketAddr) -> io::Result<Listener> {
    let driver = &mut *shard.inner().driver.borrow_mut();
    let (handle, local) = match driver {
        Driver::Uring(_) => {
            // std sets SO_REUSEADDR and leaves the socket blocking, as the ring wants it.
            let l = TcpListener::bind(addr).map_err(|e| named(&e, "listen on", addr))?;
            let local = l.local_addr()?;
            (OwnedFd::from(l).into(), local)
        }
        Driver::Sim(s) => {
            let (h, local) = s.listen(addr).map_err(|e| named(&e, "listen on", addr))?;
            (Handle::Sim(h), local)
        }
        Driver::Closed => return Err(crate::driver::closed()),
    };
    Ok(Listener { shard: shard.clone(), handle: Rc::new(handle), local })
}

pub(crate) async fn connect(shard: &Shard, addr: SocketAddr) -> io::Result<TcpStream> {
    let handle = {
        let driver = &mut *shard.inner().driver.borrow_mut();
        match driver {
            Driver::Uring(_) => sys::tcp_socket(&addr)?.into(),
            Driver::Sim(s) => Handle::Sim(s.socket(addr)),
            Driver::Closed => return Err(crate::driver::closed()),
        }
    };
    let handle = Rc::new(handle);
    let op = Op::Connect { handle: Rc::clone(&handle), addr: Box::new(SockAddr::from(addr)) };
    OpFuture::new(shard, op).await.io().map_err(|e| named(&e, "connect to", addr))?;
    let local = match &*handle {
        Handle::Os(fd, _) => local_addr(fd)?,
        Handle::Sim(h) => sim_addr(shard, h),
    };
    Ok(TcpStream::new(shard.clone(), handle, local, addr))
}

/// The addresses of a descriptor, through a duplicate that `std` understands.
fn std_stream(fd: &OwnedFd) -> io::Result<std::net::TcpStream> {
    Ok(std::net::TcpStream::from(fd.as_fd().try_clone_to_owned()?))
}

fn local_addr(fd: &OwnedFd) -> io::Result<SocketAddr> {
    std_stream(fd)?.local_addr()
}

fn sim_addr(shard: &Shard, h: &SimHandle) -> SocketAddr {
    match &mut *shard.inner().driver.borrow_mut() {
        Driver::Sim(s) => s.local_addr(h),
        Driver::Uring(_) | Driver::Closed => SocketAddr::from(([0, 0, 0, 0], 0)),
    }
}

/// A listening socket, tied to the shard that made it.
pub struct Listener {
    shard: Shard,
    handle: Rc<Handle>,
    local: SocketAddr,
}

impl Listener {
    /// Waits for a connection. Dropping the future may drop a connection that was just accepted.
    ///
    /// # Errors
    /// Those of `accept`; EMFILE and ENFILE pass when descriptors become free.
    pub async fn accept(&self) -> io::Result<(Socket, SocketAddr)> {
        loop {
            let out = OpFuture::new(&self.shard, Op::Accept { handle: Rc::clone(&self.handle) }).await;
            let n = match out.io() {
                Ok(n) => n,
                // The peer went away before it was accepted.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(e) => return Err(e),
            };
            match &*self.handle {
                Handle::Os(..) => {
                    let fd = sys::own_fd(n as i32);
                    let std = std_stream(&fd)?;
                    // A peer that has disconnected already has no address: no error.
                    let (Ok(peer), Ok(local)) = (std.peer_addr(), std.local_addr()) else { continue };
                    drop(std);
                    sys::tune(&fd, &peer);
                    return Ok((Socket { handle: fd.into(), local, peer }, peer));
                }
                Handle::Sim(h) => {
                    let accepted = match &mut *self.shard.inner().driver.borrow_mut() {
                        Driver::Sim(s) => s.accepted(h, n as u64),
                        Driver::Uring(_) | Driver::Closed => None,
                    };
                    let Some((handle, peer)) = accepted else { continue };
                    return Ok((Socket { handle: Handle::Sim(handle), local: self.local, peer }, peer));
                }
            }
        }
    }

    /// The address it listens on, with the real port.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

/// An accepted connection that is not tied to a shard yet: may move to the shard that will serve it.
pub struct Socket {
    handle: Handle,
    local: SocketAddr,
    peer: SocketAddr,
}

impl Socket {
    /// Ties it to `shard`.
    #[must_use]
    pub fn into_stream(self, shard: &Shard) -> TcpStream {
        TcpStream::new(shard.clone(), Rc::new(self.handle), self.local, self.peer)
    }

    /// The other end's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.peer
    }
}

struct Stream {
    shard: Shard,
    handle: Rc<Handle>,
    local: SocketAddr,
    peer: SocketAddr,
    /// The last receive emptied the socket: the next one should wait first instead of trying.
    drained: Cell<bool>,
    sending: Cell<bool>,
    broken: Cell<bool>,
}

/// A connected socket on a shard, of TCP or of a [`UnixListener`]; clones share it. It is closed when the last clone is gone and no operation is in
/// flight.
#[derive(Clone)]
pub struct TcpStream(Rc<Stream>);

/// Marks the stream broken if a send is dropped half way: the peer may have got a part of it.
struct SendGuard<'a>(&'a Stream);

impl Drop for SendGuard<'_> {
    fn drop(&mut self) {
        if self.0.sending.replace(false) {
            self.0.broken.set(true);
        }
    }
}

impl TcpStream {
    fn new(shard: Shard, handle: Rc<Handle>, local: SocketAddr, peer: SocketAddr) -> TcpStream {
        TcpStream(Rc::new(Stream {
            shard,
            handle,
            local,
            peer,
            drained: Cell::new(true),
            sending: Cell::new(false),
            broken: Cell::new(false),
        }))
    }

    /// A stream of another family than IP: it has no addresses to show.
    fn nameless(shard: Shard, handle: Rc<Handle>) -> TcpStream {
        let none = SocketAddr::from(([0, 0, 0, 0], 0));
        TcpStream::new(shard, handle, none, none)
    }

    /// Receives into `buf[at..capacity]` and sets the buffer's length to `at` plus what came. `Ok(0)`: the peer has
    /// finished sending (or there was no room). Dropping the future may lose bytes.
    ///
    /// # Errors
    /// Those of `recv`; the buffer comes back in every case.
    pub async fn recv(&self, buf: Buf, at: usize) -> (io::Result<usize>, Buf) {
        if at >= buf.capacity() {
            return (Ok(0), buf);
        }
        let mut op =
            Op::Recv { handle: Rc::clone(&self.0.handle), buf, at, poll_first: self.0.drained.get() };
        loop {
            let out = OpFuture::new(&self.0.shard, op).await;
            self.0.drained.set(!crate::driver::more_to_receive(out.flags));
            let result = out.io();
            op = out.op;
            match (result, op) {
                (Err(e), o @ Op::Recv { .. }) if e.kind() == io::ErrorKind::Interrupted => op = o,
                (Ok(n), Op::Recv { mut buf, .. }) => {
                    buf.set_len(at + n);
                    return (Ok(n), buf);
                }
                (Err(e), Op::Recv { buf, .. }) => return (Err(e), buf),
                // An operation comes back as what it was.
                (_, o) => op = o,
            }
        }
    }

    /// Sends all of `chunks`, gathered. One send at a time per stream.
    ///
    /// # Errors
    /// Those of `send`; ResourceBusy if another send is under way; BrokenPipe after a send that was dropped half way.
    pub async fn send(&self, chunks: Vec<Chunk>) -> io::Result<()> {
        let s = &*self.0;
        let mut left: usize = chunks.iter().map(Chunk::len).sum();
        if left == 0 {
            return Ok(());
        }
        if s.broken.get() {
            return Err(io::Error::new(io::ErrorKind::BrokenPipe, "an earlier send was dropped half way"));
        }
        if s.sending.replace(true) {
            return Err(io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("two sends at once to {}: queue them", s.peer),
            ));
        }
        let guard = SendGuard(s);
        let mut op = Op::Send { handle: Rc::clone(&s.handle), chunks, skip: 0 };
        loop {
            let out = OpFuture::new(&s.shard, op).await;
            let n = match out.io() {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => 0,
                Err(e) => return Err(e),
            };
            left = left.saturating_sub(n);
            if left == 0 {
                guard.0.sending.set(false);
                return Ok(());
            }
            op = out.op;
            if let Op::Send { skip, .. } = &mut op {
                *skip += n;
            }
        }
    }

    /// Ends both directions: pending receives return.
    pub fn shutdown(&self) {
        match &*self.0.handle {
            Handle::Os(fd, _) => sys::shutdown(fd),
            Handle::Sim(h) => {
                if let Driver::Sim(s) = &mut *self.0.shard.inner().driver.borrow_mut() {
                    s.shutdown(h);
                }
            }
        }
    }

    /// The other end's address.
    #[must_use]
    pub fn peer_addr(&self) -> SocketAddr {
        self.0.peer
    }

    /// This end's address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local
    }
}

// Listening on a path: for tools on the same machine. Only the kernel has it: nothing in the simulator dials a path.

/// Binds `path`. A socket that is there already is taken to be left over and is replaced; any other file is not.
pub(crate) fn listen_unix(shard: &Shard, path: &Path) -> io::Result<UnixListener> {
    match &*shard.inner().driver.borrow() {
        Driver::Uring(_) => {}
        Driver::Sim(_) => return Err(named(&io::ErrorKind::Unsupported.into(), "listen on", path.display())),
        Driver::Closed => return Err(driver::closed()),
    }
    if std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
        std::fs::remove_file(path).map_err(|e| named(&e, "listen on", path.display()))?;
    }
    // std leaves the socket blocking, as the ring wants it.
    let listener = StdListener::bind(path).map_err(|e| named(&e, "listen on", path.display()))?;
    Ok(UnixListener {
        shard: shard.clone(),
        handle: Rc::new(OwnedFd::from(listener).into()),
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
    pub async fn accept(&self) -> io::Result<TcpStream> {
        loop {
            let out = OpFuture::new(&self.shard, Op::Accept { handle: Rc::clone(&self.handle) }).await;
            match out.io() {
                Ok(n) => {
                    let handle = Rc::new(Handle::from(sys::own_fd(n as i32)));
                    return Ok(TcpStream::nameless(self.shard.clone(), handle));
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
