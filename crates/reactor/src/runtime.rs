//! Starting and stopping reactors.
use std::future::Future;
use std::io;
use crate::config::Config;
use crate::shard::Shard;

/// The running reactors of a process.
pub struct Reactors { _p: () }
#[allow(unused_variables, missing_docs, clippy::unimplemented, clippy::unused_async)]
impl Reactors {
    pub fn start<F, Fut>(config: Config, main: F) -> io::Result<Reactors>
    where F: Fn(Shard) -> Fut + Send + Clone + 'static, Fut: Future<Output = ()> + 'static { unimplemented!() }
    pub fn join(self) -> io::Result<()> { unimplemented!() }
    pub fn stopper(&self) -> Stopper { unimplemented!() }
}
/// Stops reactors from any thread.
#[derive(Clone)]
pub struct Stopper { _p: () }
#[allow(unused_variables, missing_docs, clippy::unimplemented, clippy::unused_async)]
impl Stopper {
    pub fn stop(&self) { unimplemented!() }
}
/// One reactor on the calling thread.
#[allow(unused_variables, clippy::unimplemented)]
pub fn block_on<R>(config: Config, main: impl AsyncFnOnce(Shard) -> R) -> io::Result<R> { unimplemented!() }
