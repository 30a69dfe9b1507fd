//! Read leases in the model: a promise lasts until its holder cannot serve any more.

use carmine_peering::Lease;

use super::*;

/// The promise to this primary, of this interval.
pub(super) fn of((holder, interval): (u8, u32)) -> Lease {
    Lease { holder: id(holder), interval: Epoch(interval), until_ns: 0 }
}

impl World {
    /// The same cluster with replicas that promise to help no other primary.
    pub(crate) fn with_leases(mut self) -> World {
        self.has_leases = true;
        self
    }

    /// A primary waits until the map says that it is up in its interval.
    pub(crate) fn waits_for_up_thru(&self) -> bool {
        let waits = |osd: &Osd| matches!(osd.peering.phase(), Phase::Peering(Reason::WaitsUpThru(_)));
        self.osds.iter().any(waits)
    }

    /// A replica activates the interval, which is a promise.
    pub(super) fn promise(&mut self, n: u8, to: u8, interval: Epoch) {
        if self.has_leases {
            self.osd(n).peering.promise(of((to, interval.0)));
        }
    }

    /// The promise that is on the disk of an OSD which starts.
    pub(super) fn promised_before(&mut self, n: u8) {
        let osd = self.osd(n);
        osd.memory.promised.into_iter().for_each(|promised| osd.peering.promise(of(promised)));
    }

    /// Time passes: the lease ends first for its holder, then for the one who waits.
    pub(super) fn lease_over(&mut self, n: u8) {
        let Some((attempt, holder, interval)) = self.osd(n).awaits.take() else { return };
        let theirs = self.osd(holder);
        theirs.is_readable &= theirs.peering.attempt_id().interval != Epoch(interval);
        self.on(n, Event::LeaseOver { attempt, holder: id(holder) });
    }
}
