//! How a cluster is reached: where its monitors are, as whom, and what protects the connections.

use std::net::SocketAddr;
use std::rc::Rc;

use carmine_auth::client::Client as KeyClient;
use carmine_auth::{Entity, Key};
use carmine_messenger::ClientConfig;
use carmine_messenger::cephx::{KeyHolder, KeyIdentity};
use carmine_reactor::Shard;
use carmine_types::MsMode;
use carmine_wire::{EntityAddr, EntityType};

/// What a process needs to get into a cluster.
#[derive(Clone, Debug)]
pub struct Access {
    /// Addresses of monitors; where the others are, these say.
    pub mons: Vec<SocketAddr>,
    /// As whom it comes; `None`: nobody asks (method none).
    pub credentials: Option<Credentials>,
    /// What protects its connections.
    pub modes: Modes,
}

/// Somebody's name, and the key that proves it.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Who.
    pub entity: Entity,
    /// The key.
    pub key: Key,
}

/// What protects connections, the best first: that to a monitor, and those to all others (Ceph's ms_mon_client_mode and ms_client_mode).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Modes {
    /// To monitors.
    pub mon: Vec<MsMode>,
    /// To all others, and from them.
    pub others: Vec<MsMode>,
}

impl From<MsMode> for Modes {
    /// One mode for everything.
    fn from(mode: MsMode) -> Modes {
        Modes { mon: vec![mode], others: vec![mode] }
    }
}

impl From<Vec<SocketAddr>> for Access {
    /// A cluster that asks nobody for a key.
    fn from(mons: Vec<SocketAddr>) -> Access {
        Access { mons, credentials: None, modes: MsMode::Crc.into() }
    }
}

impl From<SocketAddr> for Access {
    /// The same for a cluster with one monitor.
    fn from(mon: SocketAddr) -> Access {
        vec![mon].into()
    }
}

impl Access {
    /// Where its monitors are.
    #[must_use]
    pub fn mon_addrs(&self) -> Vec<EntityAddr> {
        self.mons.iter().map(|mon| EntityAddr::msgr2(*mon, 0)).collect()
    }

    /// The process's key, with which its session with a monitor gets tickets for OSDs and managers. `is_daemon`: it has a service of its
    /// own, whose keys it needs.
    #[must_use]
    pub fn keys(&self, shard: &Shard, is_daemon: bool) -> Option<Rc<KeyHolder>> {
        let Credentials { entity, key } = self.credentials.clone()?;
        let services = [EntityType::MON, EntityType::OSD, EntityType::MGR];
        Some(KeyHolder::new(shard, KeyClient::new(entity, key, &services), is_daemon))
    }

    /// Connections of `config` prove who they are by these keys, and are protected as asked for.
    pub fn protect(&self, config: &mut ClientConfig, keys: Option<&Rc<KeyHolder>>) {
        config.mon_modes.clone_from(&self.modes.mon);
        config.modes.clone_from(&self.modes.others);
        config.identity = keys.map(|keys| Rc::new(KeyIdentity(Rc::clone(keys))) as _);
    }
}
