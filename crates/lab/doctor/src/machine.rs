//! The machine as all topics see it: its drives, its network interfaces, its CPUs, and what it is used for.

use std::path::PathBuf;

use carmine_topology::Topology;

use crate::host::Host;
use crate::options::Options;

/// Block devices that are no drives.
const NO_DRIVES: [&str; 8] = ["loop", "ram", "zram", "dm-", "md", "sr", "fd", "nbd"];

/// A drive or a network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    /// Its name, such as `nvme0n1` or `eth0`.
    pub(crate) name: String,
    /// Its folder below the root.
    pub(crate) dir: String,
}

/// Everything that topics need.
pub(crate) struct Machine<'a> {
    pub(crate) host: Host,
    pub(crate) options: &'a Options,
    /// `None` if the CPUs cannot be read.
    pub(crate) topology: Option<Topology>,
    pub(crate) drives: Vec<Device>,
    pub(crate) nics: Vec<Device>,
}

impl<'a> Machine<'a> {
    pub(crate) fn look(options: &'a Options) -> Machine<'a> {
        let host = Host::new(&options.root);
        let topology = Topology::detect_at(&options.root).ok();
        Machine { topology, drives: drives(&host, &options.drives), nics: nics(&host), host, options }
    }

    /// True inside a virtual machine.
    pub(crate) fn is_virtual(&self) -> bool {
        let cpuinfo = self.host.text("proc/cpuinfo").unwrap_or_default();
        cpuinfo.lines().any(|line| line.starts_with("flags") && line.split(' ').any(|f| f == "hypervisor"))
    }
}

impl Device {
    /// A file of the hardware behind the device: of itself, or of the nearest bus device around it.
    pub(crate) fn hardware(&self, host: &Host, name: &str) -> Option<PathBuf> {
        let device = format!("{}/device", self.dir);
        let direct = host.find_up(&device, name);
        // The namespace of a drive with several ports belongs to a subsystem, which lists its controllers.
        let controllers = || host.list(&device).into_iter().filter(|entry| is_controller(entry));
        direct.or_else(|| controllers().find_map(|nvme| host.find_up(&format!("{device}/{nvme}"), name)))
    }
}

/// `nvme0`, but not `nvme0n1` or `nvme0c0n1`.
fn is_controller(entry: &str) -> bool {
    entry.strip_prefix("nvme").is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
}

fn drives(host: &Host, wanted: &[String]) -> Vec<Device> {
    let all = host.list("sys/block").into_iter();
    let all = all.filter(|name| NO_DRIVES.iter().all(|no| !name.starts_with(no)));
    let chosen = all.filter(|name| wanted.is_empty() || wanted.iter().any(|w| is_of(w, name)));
    chosen.map(|name| Device { dir: format!("sys/block/{name}"), name }).collect()
}

/// True if `wanted` is this drive or a partition of it.
fn is_of(wanted: &str, drive: &str) -> bool {
    let Some(rest) = wanted.strip_prefix(drive) else { return false };
    let rest = rest.strip_prefix('p').unwrap_or(rest);
    rest.bytes().all(|b| b.is_ascii_digit())
}

/// Interfaces with hardware behind them: loopback and bridges have none.
fn nics(host: &Host) -> Vec<Device> {
    let all = host.list("sys/class/net").into_iter();
    let all = all.map(|name| Device { dir: format!("sys/class/net/{name}"), name });
    all.filter(|nic| host.exists(&format!("{}/device", nic.dir))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;

    #[test]
    fn drives_are_what_can_hold_data() {
        let tree = Tree::new(&[
            ("sys/block/nvme0n1/size", "1"),
            ("sys/block/vda/size", "1"),
            ("sys/block/loop0/size", "1"),
            ("sys/block/dm-0/size", "1"),
            ("sys/class/net/lo/mtu", "65536"),
            ("sys/class/net/eth0/device/vendor", "x"),
        ]);
        let names = |wanted: &[&str]| {
            let options =
                Options { drives: wanted.iter().map(|w| (*w).to_owned()).collect(), ..tree.options() };
            let machine = Machine::look(&options);
            assert_eq!(machine.nics.len(), 1);
            machine.drives.iter().map(|d| d.name.clone()).collect::<Vec<_>>()
        };
        assert_eq!(names(&[]), ["vda", "nvme0n1"]);
        assert_eq!(names(&["nvme0n1p3"]), ["nvme0n1"]);
        assert_eq!(names(&["vda1", "sdb"]), ["vda"]);
    }
}
