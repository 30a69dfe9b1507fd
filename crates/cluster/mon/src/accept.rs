//! Where the monitor listens: as the monitor, and as the manager. There is no manager's process: what Ceph's manager answers,
//! the monitor does, also for a tool that looks for the manager by itself (`ceph tell mgr …`, `rados list-inconsistent-pg`) and
//! would wait for one for ever.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use carmine_messenger::{Gate, ServerConfig, serve};
use carmine_reactor::{Listener, Shard};
use carmine_wire::{EntityAddr, EntityAddrVec, EntityType};
use tracing::{error, warn};

use crate::MonError;
use crate::mon::Mon;
use crate::session::Sessions;

/// Most connections at once, on both doors.
const SESSIONS_MAX: usize = 10_000;
/// All peers (stock clients, too) ask for a sign of life every 10 s: one that was silent for so long hangs. For an
/// OSD that means that it is marked down, and may boot again when it wakes up.
const SILENCE: Duration = Duration::from_secs(60);
/// Pause before a connection's banner. librados' ping_monitor starts a connection before it has made its own side ready for what
/// comes: it crashes where a monitor is quick (of Ceph 16.2.15's own one in some 50 pings, of this one in 15 without the pause).
const BANNER_PAUSE: Duration = Duration::from_millis(5);
/// Pause after a failed accept (out of file descriptors, …).
const RETRY: Duration = Duration::from_millis(100);
/// Failed accepts in a row after which the monitor gives up: half a minute.
const FAILURES_MAX: u32 = 300;

/// One address, and what is there.
pub(crate) struct Door {
    pub(crate) listener: Listener,
    pub(crate) addrs: EntityAddrVec,
    entity: EntityType,
}

impl Door {
    /// Listens.
    ///
    /// # Errors
    /// The port is in use.
    pub(crate) async fn open(
        shard: &Shard,
        entity: EntityType,
        addr: SocketAddr,
        nonce: u32,
    ) -> Result<Door, MonError> {
        let listener = shard.listen(addr).await.map_err(|source| MonError::Listen { addr, source })?;
        let addrs = EntityAddr::msgr2(listener.local_addr(), nonce).into();
        Ok(Door { listener, addrs, entity })
    }
}

/// For both doors of a process that may have so many files open.
pub(crate) fn gate(open_files: usize) -> Gate {
    Gate::new((open_files / 2).clamp(1, SESSIONS_MAX))
}

impl Mon {
    /// Serves all who come to the door with this index.
    pub(crate) async fn accept(self: Rc<Self>, door: usize) {
        let Some(door) = self.doors.get(door) else { return };
        let gids = Rc::clone(&self);
        let mut config = ServerConfig::new(door.entity, 0, door.addrs.clone())
            .assigning(move |claim| if claim.gid == 0 { gids.assign_gid() } else { claim.gid });
        if door.entity == EntityType::MON {
            config.limits.idle = Some(SILENCE);
        }
        config.gate = self.gate.clone();
        config.banner_pause = BANNER_PAUSE;
        let config = Rc::new(config);
        let mut failures = 0;
        while failures < FAILURES_MAX {
            match door.listener.accept().await {
                Ok((socket, _)) => {
                    failures = 0;
                    let sessions = Rc::new(Sessions(Rc::clone(&self)));
                    serve(&self.shard, socket, Rc::clone(&config), sessions).await;
                }
                Err(e) => {
                    failures += 1;
                    warn!("cannot accept a connection: {e}");
                    self.shard.sleep(RETRY).await;
                }
            }
        }
        error!("{FAILURES_MAX} accepts failed in a row: the monitor stops");
        self.shard.stop();
    }
}
