//! The networks that an OSD is on: the public one, on which clients, monitors and managers come, and the cluster network, on which OSDs
//! replicate to each other and recover (Ceph's public_network and cluster_network). They are one unless the configuration names two
//! addresses.

use std::net::SocketAddr;

use carmine_reactor::Listener;
use carmine_wire::EntityAddr;

use crate::shard::OsdShard;
use crate::start::{OsdError, listen};

/// A network of an OSD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Network {
    /// For everybody; if there is no other, for OSDs, too.
    Public,
    /// For OSDs only.
    Cluster,
}

/// A value for each network. Where the two are one network, both values are the same.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Both<T> {
    pub(crate) public: T,
    pub(crate) cluster: T,
}

impl<T> Both<T> {
    pub(crate) fn get(&self, network: Network) -> &T {
        match network {
            Network::Public => &self.public,
            Network::Cluster => &self.cluster,
        }
    }

    pub(crate) fn map<R>(self, of: impl Fn(T) -> R) -> Both<R> {
        Both { public: of(self.public), cluster: of(self.cluster) }
    }
}

/// Where an OSD is, by the addresses of this start.
pub(crate) type Addrs = Both<EntityAddr>;

/// A listener on each network that there is.
pub(crate) struct Listeners {
    public: Listener,
    /// `None`: OSDs come to the public one.
    cluster: Option<Listener>,
}

impl Listeners {
    /// Listens on free ports.
    pub(crate) async fn open(osd: &OsdShard) -> Result<Listeners, OsdError> {
        let public = listen(osd, osd.config.listen).await?;
        let cluster = match osd.config.cluster_ip() {
            Some(ip) => Some(listen(osd, ip).await?),
            None => None,
        };
        Ok(Listeners { public, cluster })
    }

    /// Where they listen.
    pub(crate) fn local(&self) -> Both<SocketAddr> {
        let public = self.public.local_addr();
        Both { public, cluster: self.cluster.as_ref().map_or(public, Listener::local_addr) }
    }
}

impl IntoIterator for Listeners {
    type Item = (Network, Listener);
    type IntoIter = std::iter::Flatten<std::array::IntoIter<Option<(Network, Listener)>, 2>>;

    fn into_iter(self) -> Self::IntoIter {
        let cluster = self.cluster.map(|listener| (Network::Cluster, listener));
        [Some((Network::Public, self.public)), cluster].into_iter().flatten()
    }
}
