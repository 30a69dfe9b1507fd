//! The simulated driver (stub).
use crate::file::FileOptions;
use crate::op::Ops;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

pub(crate) struct SimHandle {
    pub(crate) id: u64,
}
pub(crate) struct SimDriver {}

fn stub<T>() -> io::Result<T> {
    Err(io::ErrorKind::Unsupported.into())
}

impl SimDriver {
    pub(crate) fn turn(&mut self, _ops: &mut Ops) {}
    pub(crate) fn has_events(&mut self) -> bool {
        false
    }
    pub(crate) fn listen(&mut self, _a: SocketAddr) -> io::Result<(SimHandle, SocketAddr)> {
        stub()
    }
    pub(crate) fn socket(&mut self, _a: SocketAddr) -> SimHandle {
        SimHandle { id: 0 }
    }
    pub(crate) fn local_addr(&mut self, _h: &SimHandle) -> SocketAddr {
        SocketAddr::from(([0, 0, 0, 0], 0))
    }
    pub(crate) fn accepted(&mut self, _h: &SimHandle, _n: u64) -> Option<(SimHandle, SocketAddr)> {
        None
    }
    pub(crate) fn shutdown(&mut self, _h: &SimHandle) {}
    pub(crate) fn open(&mut self, _p: &Path, _o: FileOptions) -> io::Result<SimHandle> {
        stub()
    }
    pub(crate) fn file_len(&mut self, _h: &SimHandle) -> io::Result<u64> {
        stub()
    }
}
