//! [`Shard`]: the handle through which a task reaches its reactor.
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::buf::Buf;
use crate::file::{File, FileOptions};
use crate::group::Group;
use crate::net::{Listener, TcpStream};
use crate::stats::ReactorStats;

/// Index of a shard within its process (or, under `sim`, within its node).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u16);

impl std::fmt::Display for ShardId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Handle of the shard that the current task runs on.
#[derive(Clone)]
pub struct Shard {
    inner: Rc<()>,
}

#[allow(unused_variables, missing_docs, clippy::unimplemented, clippy::unused_async)]
impl Shard {
    pub fn id(&self) -> ShardId { unimplemented!() }
    pub fn shards(&self) -> u16 { unimplemented!() }
    pub fn now_ns(&self) -> u64 { unimplemented!() }
    pub fn unix_now(&self) -> Duration { unimplemented!() }
    pub fn random_u64(&self) -> u64 { unimplemented!() }
    pub fn spawn(&self, group: Group, name: &'static str, fut: impl Future<Output = ()> + 'static) { unimplemented!() }
    pub fn sleep(&self, d: Duration) -> impl Future<Output = ()> + use<> { async { unimplemented!() } }
    pub async fn yield_now(&self) { unimplemented!() }
    pub fn buf(&self, len: usize) -> Buf { unimplemented!() }
    pub fn buf_from(&self, data: &[u8]) -> Buf { unimplemented!() }
    pub fn set_local<T: 'static>(&self, v: Rc<T>) { unimplemented!() }
    pub fn local<T: 'static>(&self) -> Option<Rc<T>> { unimplemented!() }
    pub fn submit_to(&self, to: ShardId, f: impl FnOnce(&Shard) + Send + 'static) { unimplemented!() }
    pub async fn call<R, F, Fut>(&self, to: ShardId, f: F) -> R
    where R: Send + 'static, F: FnOnce(Shard) -> Fut + Send + 'static, Fut: Future<Output = R> + 'static { unimplemented!() }
    pub async fn alien<R: Send + 'static>(&self, cost_ns: u64, f: impl FnOnce() -> R + Send + 'static) -> R { unimplemented!() }
    pub async fn listen(&self, addr: SocketAddr) -> io::Result<Listener> { unimplemented!() }
    pub async fn connect(&self, addr: SocketAddr) -> io::Result<TcpStream> { unimplemented!() }
    pub async fn open(&self, path: &Path, opts: FileOptions) -> io::Result<File> { unimplemented!() }
    pub fn stats(&self) -> ReactorStats { unimplemented!() }
    pub fn stop(&self) { unimplemented!() }
    pub fn tid(&self) -> u32 { unimplemented!() }
}
