//! What a socket or file is to the driver.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::driver::sim::SimHandle;

/// A descriptor of the driver in use; closing happens on drop, after the last operation that holds it.
pub(crate) enum Handle {
    Os(OwnedFd),
    Sim(SimHandle),
}

impl Handle {
    /// The kernel's number, or -1 under `sim`.
    pub(crate) fn raw(&self) -> RawFd {
        match self {
            Handle::Os(fd) => fd.as_raw_fd(),
            Handle::Sim(_) => -1,
        }
    }
}
