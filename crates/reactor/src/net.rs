//! TCP sockets.
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use crate::buf::{Buf, Chunk};
use crate::shard::Shard;

/// A listening socket, tied to the shard that made it.
pub struct Listener { _p: Rc<()> }
#[allow(unused_variables, missing_docs, clippy::unimplemented, clippy::unused_async)]
impl Listener {
    pub async fn accept(&self) -> io::Result<(Socket, SocketAddr)> { unimplemented!() }
    pub fn local_addr(&self) -> SocketAddr { unimplemented!() }
}
/// An accepted connection that is not tied to a shard yet.
pub struct Socket { _p: () }
#[allow(unused_variables, missing_docs, clippy::unimplemented, clippy::unused_async)]
impl Socket {
    pub fn into_stream(self, shard: &Shard) -> TcpStream { unimplemented!() }
}
/// A connected socket on a shard.
#[derive(Clone)]
pub struct TcpStream { _p: Rc<()> }
#[allow(unused_variables, missing_docs, clippy::unimplemented, clippy::unused_async)]
impl TcpStream {
    pub async fn recv(&self, buf: Buf, at: usize) -> (io::Result<usize>, Buf) { unimplemented!() }
    pub async fn send(&self, chunks: Vec<Chunk>) -> io::Result<()> { unimplemented!() }
    pub fn shutdown(&self) { unimplemented!() }
    pub fn peer_addr(&self) -> SocketAddr { unimplemented!() }
    pub fn local_addr(&self) -> SocketAddr { unimplemented!() }
}
