//! The clients connected to this OSD, on any shard: their addresses, and which of them are on the map's blocklist. Requests of
//! listed clients are refused and their watches end. A client that breaks another's lock first has that one listed, so that none
//! of its requests can arrive late.

use std::collections::{HashMap, HashSet};

use carmine_wire::EntityAddr;
use carmine_wire::osdmap::OsdMap;
use foldhash::fast::FixedState;

use crate::caps::{Limited, Limits};
use crate::op::{ClientOp, Origin};
use crate::shard::OsdShard;

/// A client, as one shard knows it.
struct Client {
    addr: EntityAddr,
    /// `None`: it may do everything.
    limited: Option<Box<Limited>>,
}

/// The clients of all shards, as one shard knows them.
#[derive(Default)]
pub(crate) struct Clients {
    known: HashMap<Origin, Client, FixedState>,
    /// How many clients have limits. Without authentication no client has any, and plain operations skip the check.
    limited: usize,
    /// Clients on the newest map's blocklist. Nearly always empty, so plain operations look no further.
    barred: HashSet<Origin, FixedState>,
}

impl Clients {
    /// A client has connected.
    fn insert(&mut self, origin: Origin, addr: EntityAddr, limits: Option<Limits>, map: Option<&OsdMap>) {
        let limited = limits.map(|limits| Box::new(Limited::new(limits)));
        self.limited += usize::from(limited.is_some());
        let before = self.known.insert(origin, Client { addr, limited });
        assert!(before.is_none(), "a connection begins once");
        if map.is_some_and(|map| map.is_blocklisted(&addr)) {
            self.barred.insert(origin);
        }
    }

    /// A client disconnected; false if it was not known.
    fn remove(&mut self, origin: Origin) -> bool {
        self.barred.remove(&origin);
        let gone = self.known.remove(&origin);
        self.limited -= usize::from(gone.as_ref().is_some_and(|client| client.limited.is_some()));
        gone.is_some()
    }

    /// Whether any client may not do everything.
    #[inline]
    pub(crate) fn has_limits(&self) -> bool {
        self.limited > 0
    }

    /// What limits a client; `Some(None)` is nothing, and `None` that it is not known.
    #[allow(
        clippy::option_option,
        reason = "a client that is not known must not pass for one without limits"
    )]
    pub(crate) fn limits(&self, origin: Origin) -> Option<Option<&Limited>> {
        self.known.get(&origin).map(|client| client.limited.as_deref())
    }

    /// Applies the blocklist of a new map.
    fn follow(&mut self, map: &OsdMap) {
        self.barred.clear();
        if !map.blocklist.is_empty() {
            let barred = self.known.iter().filter(|(_, client)| map.is_blocklisted(&client.addr));
            self.barred.extend(barred.map(|(origin, _)| *origin));
        }
    }
}

impl OsdShard {
    /// Adds a client, or another sender of operations, that connected to a shard.
    pub(crate) fn add_client(&self, origin: Origin, addr: EntityAddr, limits: Option<Limits>) {
        let view = self.view();
        self.clients.borrow_mut().insert(origin, addr, limits, view.as_ref().map(|view| &**view.map()));
    }

    /// A client's connection closed; its watches live on for a while.
    pub(crate) fn forget_client(&self, origin: Origin) {
        if self.clients.borrow_mut().remove(origin) {
            self.pgs.borrow().values().for_each(|pg| pg.disconnect(origin));
        }
    }

    /// The address of an operation's client; empty if it has disconnected or the operation is the OSD's own.
    pub(crate) fn client_addr(&self, op: &ClientOp) -> EntityAddr {
        let from = op.origin(self.shard.id());
        from.and_then(|from| Some(self.clients.borrow().known.get(&from)?.addr)).unwrap_or_default()
    }

    /// Whether the client of an operation is on the map's blocklist.
    pub(crate) fn is_blocklisted(&self, op: &ClientOp) -> bool {
        let clients = self.clients.borrow();
        !clients.barred.is_empty()
            && op.origin(self.shard.id()).is_some_and(|from| clients.barred.contains(&from))
    }

    /// Whether the connection that an operation came through has closed. Its client's address is then unknown, so the blocklist
    /// cannot be applied to it any more.
    pub(crate) fn is_disconnected(&self, op: &ClientOp) -> bool {
        let from = op.origin(self.shard.id());
        from.is_some_and(|from| !self.clients.borrow().known.contains_key(&from))
    }

    /// Applies the blocklist of a new map.
    pub(crate) fn apply_blocklist(&self, map: &OsdMap) {
        self.clients.borrow_mut().follow(map);
        self.pgs.borrow().values().for_each(|pg| pg.end_blocklisted_watches(map));
    }
}

#[cfg(test)]
mod tests {
    use carmine_reactor::ShardId;
    use carmine_types::UTime;

    use super::*;

    #[test]
    fn who_is_kept_out_follows_the_map() {
        let addr = |nonce| EntityAddr { nonce, ..EntityAddr::parse_any("10.0.0.1").unwrap() };
        let origin = |conn| Origin { home: ShardId(0), conn };
        let mut map = OsdMap { blocklist: vec![(addr(1), UTime::ZERO)], ..OsdMap::default() };
        let mut clients = Clients::default();
        clients.insert(origin(1), addr(1), None, None);
        clients.insert(origin(2), addr(2), None, Some(&map));
        assert!(clients.barred.is_empty(), "before the first map nobody is kept out");
        clients.follow(&map);
        clients.insert(origin(3), addr(1), None, Some(&map));
        let barred = |clients: &Clients| [1, 2, 3].map(|conn| clients.barred.contains(&origin(conn)));
        assert_eq!(barred(&clients), [true, false, true]);
        assert!(clients.remove(origin(3)) && !clients.remove(origin(3)));
        map.blocklist = vec![(addr(2), UTime::ZERO)];
        clients.follow(&map);
        assert_eq!(barred(&clients), [false, true, false]);
        map.blocklist.clear();
        clients.follow(&map);
        assert!(clients.barred.is_empty());
    }
}
