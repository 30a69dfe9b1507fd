//! What the expansion has to know of the machine.

use carmine_topology::{Grid, Topology};

/// The machine that a plan is to run on, or another one that is only looked at.
#[derive(Clone, Debug)]
pub struct Machine {
    pub topology: Topology,
    /// Devices that were named for the OSDs; none: files in each layout's folder. Named devices are made anew for each
    /// layout, so that layouts can't lie beside each other.
    pub devices: Vec<String>,
    /// The grid that `carmine up` would make of its options; an error says why it would not.
    pub place: fn(&Topology, &[String]) -> Result<Grid, String>,
}

impl Machine {
    /// CPUs that OSDs and clients may use together.
    pub(super) fn cpus(&self) -> usize {
        self.topology.allowed().len()
    }

    /// CPUs that reactors can have: one of three is left for clients, who need one for every two reactors.
    pub(super) fn room(&self) -> usize {
        (self.cpus() * 2 / 3).max(1)
    }

    /// Drives that OSDs get: the named devices, or as many files as a pool of size 3 needs.
    pub(super) fn drives(&self) -> usize {
        match self.devices.len() {
            0 => 3,
            named => named,
        }
    }

    /// Who would sit where with these options of `carmine up`; an error says why nobody would.
    pub(crate) fn grid(&self, up: &[String]) -> Result<Grid, String> {
        (self.place)(&self.topology, up)
    }
}
