//! Faults of a simulated world: of its network, of its nodes' power and clocks, and nodes that stand still.

use std::time::Duration;

use super::{NodeId, Sim};

impl Sim {
    /// Nothing that one node sends to the other arrives from now on, until [`Sim::mend_network`]; neither is told. Nodes are
    /// named, so that it also holds for one that is started again.
    pub fn cut(&self, from: &str, to: &str) {
        self.world.borrow_mut().cut(from, to);
    }

    /// Segments from one node to the other take up to so much longer, each by chance, until [`Sim::mend_network`].
    /// Connections overtake each other then; within one the order stays.
    pub fn delay(&self, from: &str, to: &str, up_to: Duration) {
        let ns = u64::try_from(up_to.as_nanos()).unwrap_or(u64::MAX);
        self.world.borrow_mut().delay(from, to, ns);
    }

    /// Two nodes are far from each other: each segment between them takes so much longer, also when the network is mended.
    pub fn set_distance(&self, a: &str, b: &str, by: Duration) {
        let ns = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        let mut world = self.world.borrow_mut();
        world.set_distance(a, b, ns);
        world.set_distance(b, a, ns);
    }

    /// The network carries everything again. Data sent in the meantime arrives, because TCP sends it again.
    pub fn mend_network(&self) {
        self.world.borrow_mut().mend();
    }

    /// Ends the connections between two nodes, and what is on the way in them. With `half` the second node is not told: it
    /// finds out when it sends.
    pub fn reset_connections(&self, a: &str, b: &str, half: bool) {
        self.world.borrow_mut().reset(a, b, half);
    }

    /// From now on drives have caches: without a flush a write is not safe from [`Sim::power_off`]. All that is there is.
    pub fn give_drives_caches(&self) {
        self.world.borrow_mut().give_caches();
    }

    /// Ends a node as a power cut does: its peers are not told, and of what its drives had not made durable each write is
    /// there, is not, or is torn, as `seed` has it. It has power again when a node of its name is started.
    pub fn power_off(&self, node: NodeId, seed: u64) {
        let Some(name) = self.nodes.borrow().get(&node.0).map(|node| node.name.to_string()) else { return };
        self.world.borrow_mut().power_off(&name);
        self.kill(node);
        let mut world = self.world.borrow_mut();
        // Closes what was dropped, so that nothing of the old node is open.
        world.settle();
        world.lose_caches(&name, seed);
    }

    /// A node stands still, as a process that was sent SIGSTOP.
    pub fn stop(&self, node: NodeId) {
        self.stopped.borrow_mut().insert(node.0);
    }

    /// It goes on.
    pub fn go_on(&self, node: NodeId) {
        self.stopped.borrow_mut().remove(&node.0);
    }

    /// The wall clock of a node jumps by so many seconds. Its monotonic clock does not.
    pub fn jump_clock(&self, node: NodeId, by_s: i64) {
        if let Some(node) = self.nodes.borrow().get(&node.0) {
            node.ahead_ns.set(node.ahead_ns.get().saturating_add(by_s.saturating_mul(1_000_000_000)));
        }
    }
}
