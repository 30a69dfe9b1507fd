//! Who measured what the findings quote.

/// 68 nodes with 10 NVMe drives each, Quincy.
pub(crate) const TEBIBYTE: &str =
    "ceph.io 2024, a Ceph cluster at 1 TiB/s (Quincy 17.2.7, 68 nodes, 10 NVMe each)";
/// One and sixty OSDs with 2 to 16 cores each, Pacific.
pub(crate) const CPU_SCALING: &str = "ceph.io 2022, Ceph OSD CPU scaling (Pacific 16.2.9, EPYC 7742)";
/// Placement of Crimson's reactors.
pub(crate) const CRIMSON_CORES: &str = "ceph.io 2025, Crimson CPU core allocation, part one (2 x Xeon 8276M)";
/// Three nodes that share OSDs and virtual machines.
pub(crate) const HYPERCONVERGED: &str = "a hyperconverged builder's CPU-set study (3 x EPYC 7543P)";
/// Settings of a small cluster, one by one.
pub(crate) const TUNING_GUIDE: &str = "a tuning guide of a small cluster, measured with rados bench";
/// Linux's own documentation.
pub(crate) const KERNEL: &str = "Linux kernel documentation";
/// What drives promise.
pub(crate) const NVME: &str = "NVM Express base specification";
/// What links carry: transfers per second, lanes and encoding.
pub(crate) const PCIE: &str = "PCI Express base specification";
/// Measured with this program.
pub(crate) const OWN: &str = "Carmine's own measurements (ARCHITECTURE.md)";
