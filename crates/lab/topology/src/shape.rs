//! A machine as a short text, for `--topology`:
//!
//! ```text
//! MACHINE[:PART]…
//! MACHINE  SOCKETSxCORESxTHREADS, or SOCKETSxGROUPSxCORESxTHREADS with the cores of each L3 group
//! PART     l3=N              cores in each L3 group [default: all of a socket]
//!          drives=N          drives nvme0n1, nvme1n1, …, spread evenly over the NUMA nodes
//!          nics=N            interfaces eth0, eth1, …, likewise
//!          NAME@nodeN        one drive (nvme…, sd…, vd…) or interface (eth…, en…, ib…)
//!          NAME@nodeN/LIST   the same, with interrupts on these CPUs only
//! ```
//!
//! Each socket is a NUMA node. Without a list a drive has a queue for each CPU, and an interface has interrupts on all CPUs of its
//! node.

use std::fmt;
use std::str::FromStr;

use crate::cpulist::{CPU_NUMBER_MAX, refuse, wrong};
use crate::{Cpu, CpuList, Device, DeviceKind, Topology, TopologyError};

/// More devices of a kind than any machine has.
const DEVICES_MAX: usize = 128;
const DRIVES: [&str; 4] = ["nvme", "sd", "vd", "xvd"];
const NICS: [&str; 3] = ["eth", "en", "ib"];

/// A regular machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) sockets: usize,
    /// L3 groups of each socket.
    pub(crate) groups: usize,
    /// Cores of each L3 group.
    pub(crate) cores: usize,
    /// Threads of each core.
    pub(crate) threads: usize,
    pub(crate) attached: Attached,
}

/// Devices that are described.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attached {
    /// Drives that are spread over the nodes.
    pub(crate) drives: usize,
    /// Interfaces that are spread over the nodes.
    pub(crate) nics: usize,
    pub(crate) named: Vec<NamedDevice>,
}

/// A device with its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NamedDevice {
    pub(crate) name: String,
    pub(crate) node: usize,
    /// CPUs of its interrupts, if they are described.
    pub(crate) interrupts: Option<CpuList>,
}

impl FromStr for Shape {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Shape, TopologyError> {
        let bad = |why: String| {
            wrong!(
                "topology shape `{text}`: {why}; write sockets x cores x threads as in 2x28x2, or sockets x L3 groups x cores \
                 x threads as in 1x8x8x2"
            )
        };
        let (machine, parts) = text.split_once(':').unwrap_or((text, ""));
        let factors = machine.split('x').map(|part| part.trim().parse::<usize>().ok().filter(|n| *n > 0));
        let factors: Vec<usize> = factors
            .collect::<Option<_>>()
            .ok_or_else(|| bad("every part must be a number above 0".to_owned()))?;
        let total = factors.iter().try_fold(1usize, |product, n| product.checked_mul(*n));
        if total.is_none_or(|n| n > CPU_NUMBER_MAX) {
            return Err(bad(format!("more than {CPU_NUMBER_MAX} CPUs")));
        }
        let (l3, parts): (Vec<&str>, Vec<&str>) =
            parts.split(':').filter(|part| !part.is_empty()).partition(|part| part.starts_with("l3="));
        let attached = Attached::parse(parts).map_err(|e| wrong!("topology shape `{text}`: {e}"))?;
        let (sockets, groups, cores, threads) = match (&factors[..], &l3[..]) {
            ([sockets, cores, threads], []) => (*sockets, 1, *cores, *threads),
            ([sockets, cores, threads], [one]) => {
                let group = group(one, *cores).map_err(|e| wrong!("topology shape `{text}`: {e}"))?;
                (*sockets, cores / group, group, *threads)
            }
            ([sockets, groups, cores, threads], []) => (*sockets, *groups, *cores, *threads),
            ([_, _, _] | [_, _, _, _], [one, ..]) => {
                return Err(wrong!(
                    "topology shape `{text}`: {one}: L3 groups are given twice; leave one out"
                ));
            }
            _ => return Err(bad("3 or 4 parts are needed".to_owned())),
        };
        Ok(Shape { sockets, groups, cores, threads, attached })
    }
}

/// The cores of an L3 group in `l3=N`, of which a socket with `cores` has a whole number.
fn group(part: &str, cores: usize) -> Result<usize, TopologyError> {
    let group = part.strip_prefix("l3=").and_then(|n| n.parse::<usize>().ok()).filter(|n| *n > 0);
    group.filter(|n| cores.is_multiple_of(*n)).ok_or_else(|| {
        wrong!("{part}: take a number of cores that divides the {cores} of a socket, as in 2x64x2:l3=8")
    })
}

impl Shape {
    /// The CPUs, numbered as Linux does: first threads of all cores socket by socket, then second threads.
    pub(crate) fn cpus(&self) -> Vec<Cpu> {
        let cores_all = self.sockets * self.groups * self.cores;
        let cpu = |cpu: usize| {
            let core = cpu % cores_all;
            let socket = core / (self.groups * self.cores);
            Cpu { cpu, socket, node: socket, l3: core / self.cores, core, thread: 0 }
        };
        (0..self.threads * cores_all).map(cpu).collect()
    }
}

impl Attached {
    /// Reads the parts that describe devices.
    ///
    /// # Errors
    /// The part that is wrong, and how to write it.
    pub(crate) fn parse<'a>(parts: impl IntoIterator<Item = &'a str>) -> Result<Attached, TopologyError> {
        let mut attached = Attached::default();
        for part in parts {
            if let Some((name, place)) = part.split_once('@') {
                attached.named.push(NamedDevice::parse(part, name, place)?);
                continue;
            }
            let (what, count) = part.split_once('=').unwrap_or((part, ""));
            let place = match what {
                "drives" => &mut attached.drives,
                "nics" => &mut attached.nics,
                _ => return Err(wrong!("`{part}`: take l3=N (of a shape), drives=N, nics=N or NAME@nodeN")),
            };
            let number = count.parse::<usize>().ok().filter(|n| (1..=DEVICES_MAX).contains(n));
            let number = number.ok_or_else(|| wrong!("`{part}`: take 1 to {DEVICES_MAX}, as in drives=8"))?;
            refuse!(*place > 0, "`{part}`: {what} are given twice; leave one out");
            *place = number;
        }
        Ok(attached)
    }

    /// The devices of `machine`.
    ///
    /// # Errors
    /// A device on a node or with interrupts on a CPU that is not there.
    pub(crate) fn devices(&self, machine: &Topology) -> Result<Vec<Device>, TopologyError> {
        let (nodes, all) = (machine.nodes(), machine.all());
        let drive = |n| described(machine, &format!("nvme{n}n1"), Some(n * nodes / self.drives), None);
        let nic = |n| described(machine, &format!("eth{n}"), Some(n * nodes / self.nics), None);
        let mut devices: Vec<Device> = (0..self.drives).map(drive).chain((0..self.nics).map(nic)).collect();
        for named in &self.named {
            let NamedDevice { name, node, interrupts } = named;
            refuse!(*node >= nodes, "`{named}`: the nodes are 0 to {}", nodes - 1);
            let gone = interrupts.iter().map(|cpus| cpus.difference(&all)).find(|gone| !gone.is_empty());
            refuse!(
                gone.is_some(),
                "`{named}`: CPUs {} are not there; choose from {all}",
                gone.unwrap_or_default()
            );
            devices.push(described(machine, name, Some(*node), interrupts.as_ref()));
        }
        Ok(devices)
    }
}

/// A device that a description names, on this node, with interrupts on these CPUs. Without them a drive has a queue for each CPU,
/// and an interface has interrupts on all CPUs of its node.
pub(crate) fn described(
    machine: &Topology,
    name: &str,
    node: Option<usize>,
    interrupts: Option<&CpuList>,
) -> Device {
    let kind = kind(name).unwrap_or(DeviceKind::Drive);
    let queue_per_cpu = kind == DeviceKind::Drive && interrupts.is_none();
    let usual = || {
        let near = machine.cpus().iter().filter(|cpu| !queue_per_cpu && Some(cpu.node) == node);
        near.map(|cpu| cpu.cpu).collect()
    };
    let interrupts = interrupts.cloned().unwrap_or_else(usual);
    Device { name: name.to_owned(), kind, node, interrupts, queue_per_cpu }
}

/// What a device does, by its name.
pub(crate) fn kind(name: &str) -> Option<DeviceKind> {
    let begins = |all: &[&str]| all.iter().any(|prefix| name.starts_with(prefix));
    let nic = begins(&NICS).then_some(DeviceKind::Nic);
    if begins(&DRIVES) { Some(DeviceKind::Drive) } else { nic }
}

impl NamedDevice {
    /// Reads `NAME@nodeN` or `NAME@nodeN/LIST`, which `part` is as a whole.
    fn parse(part: &str, name: &str, place: &str) -> Result<NamedDevice, TopologyError> {
        let is_word = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        refuse!(
            !is_word || kind(name).is_none(),
            "`{part}`: names of drives begin with {}, those of interfaces with {}, as in nvme0n1@node1",
            DRIVES.join(", "),
            NICS.join(", ")
        );
        let (node, list) = place.split_once('/').map_or((place, None), |(node, list)| (node, Some(list)));
        let node = node.strip_prefix("node").and_then(|n| n.parse().ok());
        let node = node.ok_or_else(|| wrong!("`{part}`: write its node as in {name}@node1"))?;
        let interrupts = list.map(CpuList::from_str).transpose().map_err(|e| wrong!("`{part}`: {e}"))?;
        refuse!(
            interrupts.as_ref().is_some_and(CpuList::is_empty),
            "`{part}`: name the CPUs of its interrupts as in {name}@node1/0-7, or leave the / out"
        );
        Ok(NamedDevice { name: name.to_owned(), node, interrupts })
    }
}

impl fmt::Display for NamedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@node{}", self.name, self.node)?;
        self.interrupts.iter().try_for_each(|cpus| write!(f, "/{cpus}"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{Just, any, prop_assert_eq, prop_oneof, proptest};
    use proptest::strategy::Strategy;

    use super::*;

    fn named() -> impl Strategy<Value = NamedDevice> {
        let name = prop_oneof!["nvme[0-9]n1", "sd[a-f]", "eth[0-9]", "enp[0-9]s0"];
        let cpus = prop_oneof![
            Just(None::<CpuList>),
            proptest::collection::btree_set(0usize..300, 1..9)
                .prop_map(|cpus| Some(cpus.into_iter().collect()))
        ];
        (name, 0usize..9, cpus).prop_map(|(name, node, interrupts)| NamedDevice { name, node, interrupts })
    }

    fn text_of(shape: &Shape) -> String {
        let Shape { sockets, groups, cores, threads, attached: Attached { drives, nics, named } } = shape;
        let parts = [("l3", if *groups > 1 { *cores } else { 0 }), ("drives", *drives), ("nics", *nics)];
        let parts = parts.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{what}={n}"));
        let parts: Vec<String> = parts.chain(named.iter().map(ToString::to_string)).collect();
        [vec![format!("{sockets}x{}x{threads}", groups * cores)], parts].concat().join(":")
    }

    proptest! {
        #[test]
        fn the_text_of_a_shape_is_that_shape(
            (sockets, groups, cores, threads) in (1usize..5, 1usize..17, 1usize..17, 1usize..5),
            (drives, nics) in (0usize..40, 0usize..5),
            named in proptest::collection::vec(named(), 0..5),
        ) {
            let shape = Shape { sockets, groups, cores, threads, attached: Attached { drives, nics, named } };
            prop_assert_eq!(text_of(&shape).parse::<Shape>().unwrap(), shape);
        }

        #[test]
        fn no_text_panics(
            strange in any::<String>(),
            like in "[0-9x]{0,8}(:(l3=|drives=|nics=|[a-z0-9]{0,6}@node)[0-9]{0,20}(/[0-9,-]{0,9})?){0,4}",
        ) {
            for text in [strange, like] {
                let read = text.parse::<Shape>();
                let machine = Topology::from_short(&text);
                assert!(read.is_ok() || machine.is_err(), "{text}");
            }
        }
    }

    #[test]
    fn groups_have_two_forms() {
        let parse = |text: &str| text.parse::<Shape>().unwrap();
        assert_eq!(parse("1x8x8x2"), parse("1x64x2:l3=8"));
        assert_eq!(parse("2x64x2:l3=64"), parse("2x64x2"));
    }

    #[test]
    fn devices_are_spread_over_the_nodes() {
        let machine = Topology::from_short("2x4x2:drives=4:nics=1:nvme9n1@node1/3,5:eth7@node1").unwrap();
        let rows: Vec<String> = machine
            .devices()
            .iter()
            .map(|d| format!("{} {} {} {}", d.name, d.node.unwrap(), d.interrupts, d.queue_per_cpu))
            .collect();
        let drives = ["nvme0n1 0  true", "nvme1n1 0  true", "nvme2n1 1  true", "nvme3n1 1  true"];
        let others = ["nvme9n1 1 3,5 false", "eth0 0 0-3,8-11 false", "eth7 1 4-7,12-15 false"];
        assert_eq!(rows, [&drives[..], &others].concat());
    }

    #[test]
    fn wrong_parts_are_named_with_a_remedy() {
        for (text, parts) in [
            ("2x64x2:l3=7", &["l3=7", "divides the 64"][..]),
            ("2x64x2:l3=0", &["l3=0", "l3=8"]),
            ("2x64x2:l3=8:l3=4", &["given twice"]),
            ("1x8x8x2:l3=8", &["l3=8", "given twice"]),
            ("2x4x1:drives=0", &["`drives=0`", "1 to 128"]),
            ("2x4x1:drives=2:drives=3", &["`drives=3`", "twice"]),
            ("2x4x1:disks=2", &["`disks=2`", "drives=N"]),
            ("2x4x1:floppy0@node1", &["`floppy0@node1`", "begin with nvme"]),
            ("2x4x1:nvme0n1@1", &["`nvme0n1@1`", "nvme0n1@node1"]),
            ("2x4x1:nvme0n1@node2", &["`nvme0n1@node2`", "0 to 1"]),
            ("2x4x1:nvme0n1@node1/", &["`nvme0n1@node1/`", "leave the / out"]),
            ("2x4x1:nvme0n1@node1/8-9", &["CPUs 8-9 are not there", "0-7"]),
            ("2x4x1:nvme0n1@node1/x", &["`nvme0n1@node1/x`", "not a number"]),
            ("2x4x1:drives=1:nvme0n1@node1", &["`nvme0n1`", "two devices"]),
        ] {
            let error = Topology::from_short(text).unwrap_err().to_string();
            for part in parts.iter().chain(&[text]) {
                assert!(error.contains(part), "`{part}` is not in: {error}");
            }
        }
    }
}
