//! Where the monitor listens: as the monitor, and as the manager. There is no manager's process: what Ceph's manager answers,
//! the monitor does, also for a tool that looks for the manager by itself (`ceph tell mgr …`, `rados list-inconsistent-pg`) and
//! would wait for one for ever.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use carmine_messenger::{Gate, Limits, ServerConfig, serve};
use carmine_reactor::{Listener, Shard};
use carmine_wire::{EntityAddr, EntityAddrVec, EntityType};
use tracing::{error, warn};

use crate::MonError;
use crate::auth::DoorGuard;
use crate::command::COMMAND_BYTES_MAX;
use crate::mon::Mon;
use crate::push::PUSH_BYTES;
use crate::session::{ANSWER_BYTES_MAX, Sessions};

/// Most connections at once, on both doors.
pub(crate) const SESSIONS_MAX: usize = 10_000;
/// All peers (stock clients, too) ask for a sign of life every 10 s: one that was silent for so long hangs. For an
/// OSD that means that it is marked down, and may boot again when it wakes up.
const SILENCE: Duration = Duration::from_secs(60);
/// Pause before a connection's banner. librados' ping_monitor starts a connection before it has made its own side ready for what
/// comes: it crashes where a monitor is quick (of Ceph 16.2.15's own one in some 50 pings, of this one in 15 without the pause).
const BANNER_PAUSE: Duration = Duration::from_millis(5);
/// Pause after a failed accept (out of file descriptors, …).
const RETRY: Duration = Duration::from_millis(100);
/// Bytes and number of the messages of a connection that wait for their turn to change the map.
const HELD_BYTES: usize = 1 << 20;
pub(crate) const HELD_MESSAGES: usize = 64;
/// A peer that leaves so much unread is given up.
const QUEUE_HARD_BYTES: usize = 64 << 20;
/// Memory for the requests and answers of all connections together that are not those of OSDs.
pub(crate) const BUDGET_BYTES: usize = 64 << 20;
/// Time between two looks at peers that do not read while others wait for the memory of their answers.
const LOOK_FOR_STALLED: Duration = Duration::from_secs(5);

/// A peer that leaves as much unread as it may can still get the longest answer, which repeats its command.
const _: () = assert!(PUSH_BYTES + ANSWER_BYTES_MAX + 2 * COMMAND_BYTES_MAX < QUEUE_HARD_BYTES);
const _: () = assert!(HELD_BYTES <= BUDGET_BYTES);

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
            .assigning(move |claim| if claim.gid == 0 { gids.assign_gid() } else { Some(claim.gid) });
        if let Some(modes) = &self.modes {
            config.guard = Some(Rc::new(DoorGuard { mon: Rc::downgrade(&self), door: door.entity }));
            config.modes.clone_from(modes);
        }
        if door.entity == EntityType::MON {
            config.limits.idle = Some(SILENCE);
        }
        let (held_bytes, held_messages) = (HELD_BYTES, HELD_MESSAGES);
        let (queue_soft_bytes, queue_hard_bytes) = (PUSH_BYTES, QUEUE_HARD_BYTES);
        config.limits =
            Limits { held_bytes, held_messages, queue_soft_bytes, queue_hard_bytes, ..config.limits };
        config.budget = Some((Rc::clone(&self.budget), |peer| peer.entity != EntityType::OSD));
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
    /// Closes connections that hold memory for which others wait, and whose peers have neither read nor sent anything for a while.
    pub(crate) async fn close_stalled(self: Rc<Self>) {
        let mut carried = BTreeMap::new();
        loop {
            self.shard.sleep(LOOK_FOR_STALLED).await;
            let conns: Vec<_> =
                self.sessions.borrow().values().map(|session| Rc::clone(&session.conn)).collect();
            let now: BTreeMap<u64, u64> =
                conns.iter().filter_map(|conn| Some((conn.id(), conn.waits_for_peer()?))).collect();
            for conn in conns.iter().filter(|conn| conn.others_wait()) {
                if now.get(&conn.id()).is_some_and(|bytes| carried.get(&conn.id()) == Some(bytes)) {
                    warn!(
                        "{conn:?}: closed: others wait for the memory of its answers, and its peer does not read"
                    );
                    conn.close("it does not read, and others wait for its memory");
                }
            }
            carried = now;
        }
    }
}
