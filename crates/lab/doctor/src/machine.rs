//! The machine as all topics see it: its kernel files, its drives, its network interfaces, its CPUs, its use, and the testbed on it.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use carmine_topology::{CpuList, Device, DeviceKind, Hardware, Topology};

use crate::CpuTimes;

/// Most bytes of a file that are read.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Everything that topics need. All paths are below the root of [`Options`].
pub(crate) struct Machine<'a> {
    pub(crate) options: &'a Options,
    root: PathBuf,
    pub(crate) hardware: Hardware,
    /// `None` if the CPUs cannot be read.
    pub(crate) topology: Option<Topology>,
    pub(crate) drives: Vec<Device>,
    pub(crate) nics: Vec<Device>,
}

impl<'a> Machine<'a> {
    pub(crate) fn look(options: &'a Options) -> Machine<'a> {
        let root = Path::new("/").join(&options.root);
        let topology = Topology::detect_at(&root).ok();
        let hardware = Hardware::at(&root);
        let cpus = topology.as_ref().map_or(usize::MAX, |topology| topology.cpus().len());
        let is_drive = |device: &Device| device.kind == DeviceKind::Drive;
        let (mut drives, nics): (Vec<_>, Vec<_>) = hardware.devices(cpus).into_iter().partition(is_drive);
        let wanted = &options.drives;
        drives.retain(|drive| wanted.is_empty() || wanted.iter().any(|wanted| is_of(wanted, &drive.name)));
        Machine { options, root, hardware, topology, drives, nics }
    }

    /// A file's text without the white space around it; `None` if it cannot be read.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        let mut bytes = Vec::new();
        std::fs::File::open(self.root.join(path)).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A file that holds one number.
    pub(crate) fn number(&self, path: impl AsRef<Path>) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// The rest of the first line of a file that begins with `prefix`.
    pub(crate) fn field(&self, path: impl AsRef<Path>, prefix: &str) -> Option<String> {
        let text = self.text(path)?;
        text.lines().find_map(|line| line.strip_prefix(prefix)).map(|rest| rest.trim().to_owned())
    }

    /// A setting of a drive's queue.
    pub(crate) fn queue(&self, drive: &Device, name: &str) -> Option<String> {
        self.text(format!("{}/queue/{name}", drive.dir()))
    }

    /// The names in a folder, sorted; none if it cannot be read.
    pub(crate) fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        self.hardware.list(path.as_ref())
    }

    /// True inside a virtual machine.
    pub(crate) fn is_virtual(&self) -> bool {
        let cpuinfo = self.text("proc/cpuinfo").unwrap_or_default();
        cpuinfo.lines().any(|line| line.starts_with("flags") && line.split(' ').any(|f| f == "hypervisor"))
    }
}

/// True if `wanted` is this drive or a partition of it.
fn is_of(wanted: &str, drive: &str) -> bool {
    let Some(rest) = wanted.strip_prefix(drive) else { return false };
    rest.strip_prefix('p').unwrap_or(rest).bytes().all(|b| b.is_ascii_digit())
}

/// Where a measurement would run, and how the program was built.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Where `/sys`, `/proc` and `/etc` are; empty for `/`, another folder for captured trees.
    pub root: PathBuf,
    /// CPUs of reactors; empty if there is no testbed.
    pub reactor_cpus: CpuList,
    /// CPUs of load generators.
    pub client_cpus: CpuList,
    /// Names of the drives that hold data (`nvme0n1`, as in `/sys/block`); empty: all of the machine.
    pub drives: Vec<String>,
    /// Folders that hold stores.
    pub places: Vec<NeededSpace>,
    /// CPU time at two moments, some hundred milliseconds apart; `None` leaves the topic out.
    pub cpu_times: Option<[CpuTimes; 2]>,
    /// Processes whose CPU time does not count as other work: this program's, and the testbed's.
    pub own_pids: Vec<u32>,
    /// How this program was built; `None` leaves the topic out.
    pub build: Option<Build>,
    /// Options of the testbed that are not their defaults: name, value, default.
    pub changed: Vec<(String, String, String)>,
}

/// A folder that must have room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededSpace {
    /// The folder.
    pub folder: PathBuf,
    /// Bytes that are still to be written there; 0 if all is there.
    pub needed_bytes: u64,
}

/// How this program was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// `release` or `debug`.
    pub profile: String,
    /// Debug assertions are compiled in.
    pub assertions: bool,
    /// Version of RocksDB; `None` if it was left out.
    pub rocksdb: Option<String>,
    /// Flags of RocksDB's compiler beyond the profile's.
    pub rocksdb_flags: String,
    /// The memory allocator.
    pub allocator: String,
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
