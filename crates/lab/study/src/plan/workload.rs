//! Workloads by the names that the studies use.

use carmine_load::Rw;

/// A mix of operations with a block size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workload {
    pub name: &'static str,
    pub rw: Rw,
    pub bs_bytes: u64,
    /// Percentage of reads where both are mixed.
    pub rwmixread: u8,
}

const fn row(name: &'static str, rw: Rw, bs_bytes: u64) -> Workload {
    Workload { name, rw, bs_bytes, rwmixread: 50 }
}

/// All of them.
pub const WORKLOADS: [Workload; 7] = [
    row("randread4k", Rw::RandRead, 4 << 10),
    row("randwrite4k", Rw::RandWrite, 4 << 10),
    row("randrw4k", Rw::RandRw, 4 << 10),
    row("seqread64k", Rw::Read, 64 << 10),
    row("seqwrite64k", Rw::Write, 64 << 10),
    row("seqread4m", Rw::Read, 4 << 20),
    row("seqwrite4m", Rw::Write, 4 << 20),
];

pub(super) const NAMES: &[&str] =
    &["randread4k", "randwrite4k", "randrw4k", "seqread64k", "seqwrite64k", "seqread4m", "seqwrite4m"];

/// The workload of this name.
pub fn workload(name: &str) -> Option<Workload> {
    WORKLOADS.iter().find(|workload| workload.name == name).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_workload() {
        assert_eq!(WORKLOADS.map(|w| w.name), NAMES);
    }
}
