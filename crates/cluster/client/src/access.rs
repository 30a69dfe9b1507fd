//! How a cluster is reached: where its monitors are, and as whom.

use std::net::SocketAddr;

/// What a process needs to get into a cluster.
#[derive(Clone, Debug)]
pub struct Access {
    /// Addresses of monitors; where the others are, these say.
    pub mons: Vec<SocketAddr>,
}

impl From<Vec<SocketAddr>> for Access {
    /// A cluster that asks nobody for a key.
    fn from(mons: Vec<SocketAddr>) -> Access {
        Access { mons }
    }
}
