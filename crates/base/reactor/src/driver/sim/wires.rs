//! Faults of the network: directions between nodes that carry nothing, or late; ends that are reset; nodes without power.

use std::collections::{BTreeMap, BTreeSet};

use super::net::{HELD, Net};
use super::world::{Key, Kind, World};

/// Bytes that wait for a direction to be mended arrive after this at most: TCP sends again, and waits longer each time.
const RESEND_NS: u64 = 400_000_000;
/// Time until an attempt to connect is made again that nobody answers.
const SYN_NS: u64 = 1_000_000_000;

/// Node names: from whom, and to whom.
type Way = (String, String);

/// The state of the network; everything works in the default.
#[derive(Default)]
pub(super) struct Wires {
    cut: BTreeSet<Way>,
    /// Greatest additional delay of each segment.
    late_ns: BTreeMap<Way, u64>,
    /// Additional delay of each segment, for good.
    far_ns: BTreeMap<Way, u64>,
    /// Nodes without power.
    off: BTreeSet<String>,
}

impl Wires {
    fn is_cut(&self, from: &str, to: &str) -> bool {
        !self.cut.is_empty() && self.cut.contains(&(from.to_owned(), to.to_owned()))
    }

    fn late_ns(&self, from: &str, to: &str) -> u64 {
        delay_ns(&self.late_ns, from, to)
    }

    fn far_ns(&self, from: &str, to: &str) -> u64 {
        delay_ns(&self.far_ns, from, to)
    }
}

fn delay_ns(delays: &BTreeMap<Way, u64>, from: &str, to: &str) -> u64 {
    if delays.is_empty() {
        return 0;
    }
    delays.get(&(from.to_owned(), to.to_owned())).copied().unwrap_or(0)
}

impl World {
    /// When a segment that is sent now from this end arrives: by the seeded generator, or not before its way is mended.
    pub(super) fn arrival(&mut self, end: u64) -> u64 {
        let latency = self.net_latency();
        let Some((from, to)) = self.net.way(end) else { return self.now_ns() + latency };
        if self.wires.is_cut(&from, &to) {
            return HELD;
        }
        let late_ns = self.wires.late_ns(&from, &to);
        let late = if late_ns > 0 { self.random() % late_ns } else { 0 };
        self.now_ns() + latency + late + self.wires.far_ns(&from, &to)
    }

    /// Nobody answers an attempt of this node to connect: it is made again later.
    pub(super) fn connect_waits(&mut self, key: Key, op: u32, id: u64) -> bool {
        let (Some(from), Some(to)) = (self.net.node_of(id), self.net.target_of(id)) else {
            // A node without power has no listener, and does not refuse either.
            let waits = self.net.target_was(id).is_some_and(|node| self.wires.off.contains(&*node));
            if waits {
                self.schedule(SYN_NS, Kind::Due(key, op));
            }
            return waits;
        };
        let waits = self.wires.is_cut(&from, &to) || self.wires.is_cut(&to, &from);
        if waits {
            self.schedule(SYN_NS, Kind::Due(key, op));
        }
        waits
    }

    /// Nothing sent from one node to the other arrives from now on; it waits.
    pub(crate) fn cut(&mut self, from: &str, to: &str) {
        self.wires.cut.insert((from.to_owned(), to.to_owned()));
    }

    /// All directions carry again, without delay: what waited arrives.
    pub(crate) fn mend(&mut self) {
        self.wires.cut.clear();
        self.wires.late_ns.clear();
        for end in self.net.held() {
            let at = self.now_ns() + self.random_in(1_000_000, RESEND_NS);
            for at in self.net.release(end, at) {
                self.schedule_at(at, Kind::Arrived(end));
            }
        }
    }

    /// Segments from one node to the other take up to so much longer, each by chance: connections overtake each other.
    pub(crate) fn delay(&mut self, from: &str, to: &str, up_to_ns: u64) {
        self.wires.late_ns.insert((from.to_owned(), to.to_owned()), up_to_ns);
    }

    /// Segments from one node to the other take so much longer, also when the network is mended.
    pub(crate) fn set_distance(&mut self, from: &str, to: &str, ns: u64) {
        self.wires.far_ns.insert((from.to_owned(), to.to_owned()), ns);
    }

    /// Connections between two nodes end at once, without what is on the way. With `half` only the first node's ends do:
    /// the other node finds out when it sends.
    pub(crate) fn reset(&mut self, a: &str, b: &str, half: bool) {
        let mut ends = self.net.ends_between(a, b);
        if !half {
            ends.extend(self.net.ends_between(b, a));
        }
        for end in ends {
            for (key, op) in self.net.reset(end) {
                self.due(key, op);
            }
        }
    }

    /// A node loses its power: its peers hear nothing any more, not even that it is gone.
    pub(crate) fn power_off(&mut self, node: &str) {
        self.wires.off.insert(node.to_owned());
        self.net.silence(node);
    }

    /// A node has power: it refuses what it knows nothing of.
    pub(crate) fn power_on(&mut self, node: &str) {
        if !self.wires.off.remove(node) {
            return;
        }
        for end in self.net.forget_silent(node) {
            for (key, op) in self.net.reset(end) {
                self.due(key, op);
            }
        }
    }
}

impl Net {
    /// Names of the nodes that a connection leads from and to.
    fn way(&self, end: u64) -> Option<Way> {
        let from = self.node_of(end)?;
        let to = self.node_of(self.peer_of(end)?)?;
        Some((from.to_string(), to.to_string()))
    }
}
