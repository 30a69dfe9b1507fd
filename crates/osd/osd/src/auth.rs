//! cephx on the reactors of an OSD: the session with the monitor, on shard 0, gets tickets and the keys of the OSDs' service, and gives
//! them to all.

use std::rc::Rc;
use std::sync::Arc;

use carmine_auth::RotatingKeys;
use carmine_auth::client::Tickets;
use carmine_caps::OsdCaps;
use carmine_client::Access;
use carmine_messenger::cephx::{ByTicket, KeyHolder, TicketGuard, TicketHolder};
use carmine_messenger::{ClientConfig, Peer, ServerConfig};
use carmine_reactor::{Shard, ShardId};
use carmine_wire::EntityType;

use crate::shard::OsdShard;

/// What one reactor proves itself with, and by what it lets others in.
#[derive(Debug)]
pub(crate) struct Auth {
    tickets: Rc<TicketHolder>,
    guard: Rc<TicketGuard>,
}

impl Auth {
    /// `None`: nobody asks for proofs.
    pub(crate) fn new(shard: &Shard, access: &Access) -> Option<Auth> {
        access.credentials.as_ref()?;
        Some(Auth { tickets: Rc::default(), guard: TicketGuard::new(shard, EntityType::OSD) })
    }

    fn set(&self, tickets: Tickets, keys: RotatingKeys) {
        self.tickets.set(tickets);
        self.guard.set_keys(keys);
    }

    /// Whether it can let anybody in.
    pub(crate) fn has_keys(&self) -> bool {
        self.guard.has_keys()
    }
}

impl OsdShard {
    /// Connections that are dialled by this configuration prove that they are this OSD's.
    pub(crate) fn identify(auth: Option<&Auth>, access: &Access, config: &mut ClientConfig) {
        config.modes.clone_from(&access.modes.others);
        config.identity = auth.map(|auth| Rc::clone(&auth.tickets) as _);
    }

    /// Connections that are accepted by this configuration are those of who has a ticket.
    pub(crate) fn guard(&self, config: &mut ServerConfig) {
        config.modes.clone_from(&self.config.access.modes.others);
        config.guard = self.auth.as_ref().map(|auth| Rc::new(ByTicket(Rc::clone(&auth.guard))) as _);
    }

    /// Gives new tickets and keys to all reactors.
    pub(crate) fn spread_tickets(&self, holder: &KeyHolder) {
        let (tickets, keys) = (holder.tickets(), holder.rotating().clone());
        for to in (0..self.shard.shards()).map(ShardId) {
            let (tickets, keys) = (tickets.clone(), keys.clone());
            self.shard.submit_to(to, move |shard| {
                if let Some(osd) = OsdShard::on(shard)
                    && let Some(auth) = &osd.auth
                {
                    auth.set(tickets, keys);
                }
            });
        }
    }
}

/// The caps of a peer, by its ticket; `None`: nobody has asked who it is, and it may do everything.
pub fn caps_of(peer: &Peer) -> Option<Arc<OsdCaps>> {
    let guest = peer.guest.as_ref()?;
    let text = guest.caps.as_deref().unwrap_or_default();
    let caps = OsdCaps::parse(text).unwrap_or_else(|error| {
        tracing::warn!(%peer, "caps that cannot be read allow nothing: {error}");
        OsdCaps::default()
    });
    Some(Arc::new(caps))
}
