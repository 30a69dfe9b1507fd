//! What the expansion has to know of the machine.

use carmine_topology::Grid;

/// The machine that a plan is to run on, or another one that is only looked at.
pub trait Machine {
    /// CPUs that OSDs and clients may use together.
    fn cpus(&self) -> usize;
    /// Sockets.
    fn sockets(&self) -> usize;
    /// Devices that were named for the OSDs; none: files in each layout's folder. Named devices are made anew for each
    /// layout, so that layouts can't lie beside each other.
    fn devices(&self) -> &[String];
    /// CPUs for this many reactors: on whole cores only, or on both threads of half as many. `None` if there are too few.
    fn cpu_list(&self, smt: bool, reactors: usize) -> Option<String>;
    /// The grid that `carmine up` would make of these options; an error says why it would not.
    fn place(&self, up: &[String]) -> Result<Grid, String>;
}

/// CPUs that reactors can have: one of three is left for clients, who need one for every two reactors.
pub(super) fn room(machine: &dyn Machine) -> usize {
    (machine.cpus() * 2 / 3).max(1)
}

/// Drives that OSDs get: the named devices, or as many files as a pool of size 3 needs.
pub(super) fn drives(machine: &dyn Machine) -> usize {
    match machine.devices().len() {
        0 => 3,
        named => named,
    }
}
