//! The connections of a shard that have a place at a gate, and the choice of those to close for a new one when all are taken.
//!
//! Idle ones go first: stalled handshakes, then connections that never carried a request, then silent ones. Among these the
//! address with the most places loses some. If none is idle, the new connection gets a place of an address that has more of them
//! than its own: in the end each address has its share.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::{Rc, Weak};
use std::time::Duration;

use carmine_reactor::{Shard, ShardId, TcpStream};

use crate::connection::Connection;
use crate::gate::{Gate, GateSlot};
use crate::limits::{GIVE_WAY_PART, PATIENCE_WHILE_BUSY};

/// Bits of an IPv6 address that one peer cannot choose.
const IPV6_NETWORK: u128 = !(u64::MAX as u128);
/// A search that found none is not repeated for this part of the patience.
const SEARCH_PAUSE_PART: u64 = 20;

/// A connection's place; it is free again when this is dropped.
pub(crate) struct Place {
    hall: Rc<Hall>,
    id: u64,
}

impl Place {
    /// The handshake is done.
    pub(crate) fn opened(&self, conn: &Rc<Connection>) {
        if let Some(held) = self.hall.held.borrow_mut().get_mut(&self.id) {
            held.holder = Holder::Open(Rc::downgrade(conn));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(self.hall.leave(self.id));
    }
}

/// A place for a new connection; `None` if all are taken and no reactor can free one.
pub(crate) async fn enter(
    shard: &Shard,
    gate: &Gate,
    stream: &TcpStream,
    patience: Duration,
) -> Option<Place> {
    let from = network(stream.peer_addr().ip());
    let slot = match gate.enter() {
        Some(slot) => slot,
        None => make_way(shard, gate, from, patience).await?,
    };
    let held = Held { from, since_ns: shard.now_ns(), slot, holder: Holder::Handshake(stream.clone()) };
    Some(hall(shard, gate).admit(held))
}

async fn make_way(shard: &Shard, gate: &Gate, from: IpAddr, patience: Duration) -> Option<GateSlot> {
    if let Some(slot) = give_way(shard, gate, from, patience) {
        return Some(slot);
    }
    for other in (0..shard.shards()).map(ShardId).filter(|other| *other != shard.id()) {
        let gate = gate.clone();
        let slot = shard.call(other, move |shard| async move { give_way(&shard, &gate, from, patience) });
        if let Some(slot) = slot.await {
            return Some(slot);
        }
    }
    None
}

/// Frees the place of a connection of this shard.
fn give_way(shard: &Shard, gate: &Gate, newcomer: IpAddr, patience: Duration) -> Option<GateSlot> {
    let now_ns = shard.now_ns();
    let gone = hall(shard, gate).vacate(newcomer, patience.as_nanos() as u64, now_ns);
    if let Some(count) = gate.gave_way().count_all(gone.len() as u64, now_ns) {
        let open = gate.connections_max();
        tracing::warn!("{open} connections are open, the most there may be: {count} gave way to new ones");
    }
    gone.into_iter().map(Held::close).next()
}

/// The part of an address that tells peers apart.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & IPV6_NETWORK).into(),
        address => address,
    }
}

/// The halls of a shard, one for each gate.
#[derive(Default)]
struct Halls(RefCell<Vec<Rc<Hall>>>);

fn hall(shard: &Shard, gate: &Gate) -> Rc<Hall> {
    let halls = shard.local::<Halls>().unwrap_or_else(|| {
        let halls = Rc::new(Halls::default());
        shard.set_local(Rc::clone(&halls));
        halls
    });
    let mut halls = halls.0.borrow_mut();
    if let Some(hall) = halls.iter().find(|hall| hall.gate.is_same(gate)) {
        return Rc::clone(hall);
    }
    halls.push(Rc::new(Hall::new(gate.clone())));
    Rc::clone(&halls[halls.len() - 1])
}

/// The connections of a shard that came through one gate.
struct Hall {
    gate: Gate,
    ids: Cell<u64>,
    held: RefCell<BTreeMap<u64, Held>>,
    /// Places of each address.
    counts: RefCell<BTreeMap<IpAddr, usize>>,
    /// No connection becomes idle before this time.
    search_again_ns: Cell<u64>,
}

/// An occupied place.
struct Held {
    from: IpAddr,
    since_ns: u64,
    slot: GateSlot,
    holder: Holder,
}

enum Holder {
    Handshake(TcpStream),
    Open(Weak<Connection>),
}

/// The order in which connections are closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Idleness {
    StuckHandshake,
    NeverAsked,
    Silent,
    /// It waits for an answer, or does not read any.
    SilentForLong,
}

impl Held {
    /// Since when its peer has been silent.
    fn silent_since_ns(&self) -> u64 {
        match &self.holder {
            Holder::Handshake(_) => self.since_ns,
            Holder::Open(conn) => conn.upgrade().map_or(self.since_ns, |conn| conn.last_received_ns.get()),
        }
    }

    /// `None`: it is not idle.
    fn idleness(&self, silent_ns: u64, patience_ns: u64) -> Option<Idleness> {
        if silent_ns < patience_ns {
            return None;
        }
        let Holder::Open(conn) = &self.holder else { return Some(Idleness::StuckHandshake) };
        // A connection that has ended frees its place by itself.
        let conn = conn.upgrade().filter(|conn| !conn.is_closed() && !conn.keeps_place.get())?;
        if conn.is_quiet() {
            let has_asked = conn.seq_received.get() > 0;
            return Some(if has_asked { Idleness::Silent } else { Idleness::NeverAsked });
        }
        let is_long = silent_ns >= patience_ns.saturating_mul(PATIENCE_WHILE_BUSY.into());
        is_long.then_some(Idleness::SilentForLong)
    }

    fn keeps_place(&self) -> bool {
        match &self.holder {
            Holder::Handshake(_) => false,
            Holder::Open(conn) => conn.upgrade().is_some_and(|conn| conn.keeps_place.get()),
        }
    }

    /// Closes the connection; returns its place.
    fn close(self) -> GateSlot {
        match self.holder {
            Holder::Handshake(stream) => stream.shutdown(),
            Holder::Open(conn) => {
                if let Some(conn) = conn.upgrade() {
                    conn.close("it gave way to a new connection: all places were taken");
                }
            }
        }
        self.slot
    }
}

impl Hall {
    fn new(gate: Gate) -> Hall {
        Hall {
            gate,
            ids: Cell::new(0),
            held: RefCell::default(),
            counts: RefCell::default(),
            search_again_ns: Cell::new(0),
        }
    }

    fn admit(self: Rc<Self>, held: Held) -> Place {
        let id = self.ids.get();
        self.ids.set(id + 1);
        *self.counts.borrow_mut().entry(held.from).or_default() += 1;
        self.held.borrow_mut().insert(id, held);
        Place { hall: self, id }
    }

    fn leave(&self, id: u64) -> Option<Held> {
        let held = self.held.borrow_mut().remove(&id)?;
        let mut counts = self.counts.borrow_mut();
        if let Some(count) = counts.get_mut(&held.from) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&held.from);
            }
        }
        Some(held)
    }

    /// Frees places for a new connection, and some more for later ones.
    fn vacate(&self, newcomer: IpAddr, patience_ns: u64, now_ns: u64) -> Vec<Held> {
        let mut ids = self.idle(patience_ns, now_ns);
        if ids.is_empty() {
            let crowd = crowd(&self.counts.borrow(), newcomer);
            ids.extend(crowd.and_then(|address| self.most_silent(address)));
        }
        ids.into_iter().filter_map(|id| self.leave(id)).collect()
    }

    /// The idle connections to close first.
    fn idle(&self, patience_ns: u64, now_ns: u64) -> Vec<u64> {
        if now_ns < self.search_again_ns.get() {
            return Vec::new();
        }
        let (held, counts) = (self.held.borrow(), self.counts.borrow());
        let idle = held.iter().filter_map(|(id, held)| {
            let since_ns = held.silent_since_ns();
            let idleness = held.idleness(now_ns.saturating_sub(since_ns), patience_ns)?;
            Some((idleness, Reverse(counts.get(&held.from)), since_ns, *id))
        });
        let mut idle: Vec<_> = idle.collect();
        idle.sort_unstable();
        let Some(first) = idle.first().map(|(idleness, ..)| *idleness) else {
            self.search_again_ns.set(now_ns + patience_ns / SEARCH_PAUSE_PART);
            return Vec::new();
        };
        let most = (self.gate.connections_max() / GIVE_WAY_PART).max(1);
        let same = idle.into_iter().take_while(|(idleness, ..)| *idleness == first);
        same.take(most).map(|(.., id)| id).collect()
    }

    /// The connection of an address that has been silent for longest.
    fn most_silent(&self, address: IpAddr) -> Option<u64> {
        let held = self.held.borrow();
        let own = held.iter().filter(|(_, held)| held.from == address && !held.keeps_place());
        own.min_by_key(|(_, held)| held.silent_since_ns()).map(|(id, _)| *id)
    }
}

/// The address with the most places, if it has enough more than the new connection's address to lose one.
fn crowd(counts: &BTreeMap<IpAddr, usize>, newcomer: IpAddr) -> Option<IpAddr> {
    let own = counts.get(&newcomer).copied().unwrap_or_default();
    let (address, most) = counts.iter().max_by_key(|(_, count)| **count)?;
    (*most > own + 1).then_some(*address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_loses_places_until_others_have_as_many() {
        let [a, b]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let mut counts = BTreeMap::from([(a, 8)]);
        while let Some(loser) = crowd(&counts, b) {
            assert_eq!(loser, a);
            *counts.get_mut(&a).unwrap() -= 1;
            *counts.entry(b).or_default() += 1;
        }
        assert_eq!(counts, BTreeMap::from([(a, 4), (b, 4)]));
        assert_eq!(crowd(&counts, a), None, "and it does not get them back");
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }
}
