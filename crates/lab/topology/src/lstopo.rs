//! A machine as `lstopo --of xml` writes it down: hwloc's XML of the versions 1.11 and 2 (hwloc's manual, "Importing and exporting
//! topologies from/to XML files"). Of its objects those with CPUs count, and the block devices and network interfaces.

use std::collections::BTreeMap;

use quick_xml::events::{BytesStart, Event};

use crate::cpulist::{CPU_NUMBER_MAX, refuse, wrong};
use crate::shape::{described, kind};
use crate::{Cpu, CpuList, Device, Topology, TopologyError};

/// Groups of CPUs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Socket,
    Node,
    L3,
    Core,
}

#[derive(Default)]
struct Found {
    /// Numbers of the CPUs.
    cpus: CpuList,
    /// The CPUs of each group.
    groups: BTreeMap<Group, Vec<CpuList>>,
    /// Drives and interfaces, each with the CPUs of the object around it.
    devices: Vec<(String, CpuList)>,
}

/// A text that begins like XML.
pub(crate) fn is_xml(text: &str) -> bool {
    text.trim_start().starts_with('<')
}

/// Reads the machine.
///
/// # Errors
/// What is wrong with the text.
pub(crate) fn parse(text: &str, name: &str) -> Result<Topology, TopologyError> {
    let found = Found::read(text)?;
    let cpus = found.cpus.iter().map(|cpu| found.cpu(cpu)).collect();
    let machine = Topology::build(name.to_owned(), false, cpus, None)?;
    let devices = found.devices.iter().map(|(name, near)| device(&machine, name, near)).collect();
    machine.with_devices(devices)
}

/// The device's node is known if all CPUs around it are of one.
fn device(machine: &Topology, name: &str, near: &CpuList) -> Device {
    let mut nodes = near.iter().filter_map(|cpu| Some(machine.cpu(cpu)?.node));
    let first = nodes.next().filter(|first| nodes.all(|node| node == *first));
    described(machine, name, first, None)
}

impl Found {
    fn read(text: &str) -> Result<Found, TopologyError> {
        let mut found = Found::default();
        // The CPUs of each element that is open: those of the nearest object with CPUs.
        let mut open: Vec<CpuList> = Vec::new();
        let mut reader = quick_xml::Reader::from_str(text);
        loop {
            let event = reader.read_event();
            match event.map_err(|e| wrong!("byte {} of the XML: {e}", reader.error_position()))? {
                Event::Start(element) => {
                    let cpus = found.note(&element, open.last())?;
                    open.push(cpus);
                }
                Event::Empty(element) => drop(found.note(&element, open.last())?),
                Event::End(_) => drop(open.pop()),
                Event::Eof => break,
                _ => {}
            }
        }
        refuse!(!open.is_empty(), "the XML ends too early; write it with `lstopo --of xml FILE`");
        refuse!(
            found.cpus.is_empty(),
            "the XML has no object of the type PU; write it with `lstopo --of xml FILE`"
        );
        Ok(found)
    }

    /// Notes an element that is an object; its CPUs, or those around it.
    fn note(&mut self, element: &BytesStart<'_>, around: Option<&CpuList>) -> Result<CpuList, TopologyError> {
        let attribute = |name: &str| {
            let found = element.try_get_attribute(name).map_err(|e| wrong!("the XML: {e}"))?;
            Ok(found.map(|attribute| String::from_utf8_lossy(&attribute.value).into_owned()))
        };
        let around = around.cloned().unwrap_or_default();
        let Some(object) = attribute("type")?.filter(|_| element.name().as_ref() == b"object") else {
            return Ok(around);
        };
        let cpus = match attribute("cpuset")? {
            Some(set) => cpu_set(&set)?,
            None => around,
        };
        let group = match (object.as_str(), attribute("depth")?.as_deref()) {
            ("Package" | "Socket", _) => Group::Socket,
            ("NUMANode", _) => Group::Node,
            ("L3Cache", _) | ("Cache", Some("3")) => Group::L3,
            ("Core", _) => Group::Core,
            ("PU", _) => {
                self.cpus = self.cpus.union(&cpus);
                return Ok(cpus);
            }
            ("OSDev", _) => {
                let name = attribute("name")?.filter(|name| kind(name).is_some());
                self.devices.extend(name.map(|name| (name, cpus.clone())));
                return Ok(cpus);
            }
            _ => return Ok(cpus),
        };
        self.groups.entry(group).or_default().push(cpus.clone());
        Ok(cpus)
    }

    /// A CPU with its groups. What the machine does not report falls back as with one that is read from Linux.
    fn cpu(&self, cpu: usize) -> Cpu {
        let place = |group| self.groups.get(&group)?.iter().position(|cpus| cpus.contains(cpu));
        let socket = place(Group::Socket).unwrap_or(0);
        let node = place(Group::Node).unwrap_or(socket);
        let l3 = place(Group::L3).unwrap_or(CPU_NUMBER_MAX + 1 + socket);
        // Numbers of cores must not meet those of CPUs.
        let core = place(Group::Core).unwrap_or(CPU_NUMBER_MAX + 1 + cpu);
        Cpu { cpu, socket, node, l3, core, thread: 0 }
    }
}

/// A set as hwloc writes it: `0xf0000000,0x00000003`, 32 CPUs a word, the highest first. A word may be left empty.
fn cpu_set(text: &str) -> Result<CpuList, TopologyError> {
    let bad = || wrong!("`{text}` is not a set of CPUs up to {CPU_NUMBER_MAX} such as 0x000000ff");
    let words = text.split(',').rev().map(|word| match word.trim_start_matches("0x") {
        "" => Some(0),
        digits => u32::from_str_radix(digits, 16).ok(),
    });
    let words: Vec<u32> = words.collect::<Option<_>>().ok_or_else(bad)?;
    refuse!(words.len() > (CPU_NUMBER_MAX + 1) / 32, "{}", bad());
    let cpus = words.iter().enumerate().flat_map(|(at, word)| {
        (0..32).filter(move |bit| word & (1 << bit) != 0).map(move |bit| at * 32 + bit)
    });
    Ok(cpus.collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two sockets of two cores with two threads, an L3 for each core of the second, a drive beside each socket and one beside both.
    const SERVER: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x000000ff">
  <info name="HostName" value="a &lt;b&gt;"/>
  <object type="Package" os_index="0" cpuset="0x00000033">
   <object type="NUMANode" os_index="0" cpuset="0x00000033"><page_type size="4096" count="1"/></object>
   <object type="L3Cache" cpuset="0x00000033" depth="3">
    <object type="Core" os_index="0" cpuset="0x00000011">
     <object type="PU" os_index="0" cpuset="0x00000001"/><object type="PU" os_index="4" cpuset="0x00000010"/>
    </object>
    <object type="Core" os_index="1" cpuset="0x00000022">
     <object type="PU" os_index="1" cpuset="0x00000002"/><object type="PU" os_index="5" cpuset="0x00000020"/>
    </object>
   </object>
   <object type="Bridge" gp_index="9"><object type="PCIDev" gp_index="10">
    <object type="OSDev" name="nvme0n1" osdev_type="0"/>
   </object></object>
  </object>
  <object type="Package" os_index="1" cpuset="0x000000cc">
   <object type="NUMANode" os_index="1" cpuset="0x000000cc"/>
   <object type="L3Cache" cpuset="0x00000044" depth="3"><object type="Core" os_index="0" cpuset="0x00000044">
     <object type="PU" os_index="2" cpuset="0x00000004"/><object type="PU" os_index="6" cpuset="0x00000040"/>
   </object></object>
   <object type="L3Cache" cpuset="0x00000088" depth="3"><object type="Core" os_index="1" cpuset="0x00000088">
     <object type="PU" os_index="3" cpuset="0x00000008"/><object type="PU" os_index="7" cpuset="0x00000080"/>
   </object></object>
   <object type="PCIDev"><object type="OSDev" name="eth0" osdev_type="2"/></object>
   <object type="PCIDev"><object type="OSDev" name="card0" osdev_type="1"/></object>
  </object>
  <object type="PCIDev"><object type="OSDev" name="sda" osdev_type="0"/></object>
  <object type="NUMANode" os_index="2" cpuset="0x0"/>
 </object>
</topology>"#;

    #[test]
    fn what_lstopo_writes_is_a_machine_with_devices() {
        let machine = parse(SERVER, "f.xml").unwrap();
        assert_eq!(machine.summary(), "f.xml: 2 sockets, 2 NUMA nodes, 3 L3 groups, 4 cores, 8 CPUs");
        let row = |cpu: usize| machine.cpu(cpu).map(|c| (c.socket, c.node, c.l3, c.core, c.thread));
        assert_eq!((row(5), row(7)), (Some((0, 0, 0, 1, 1)), Some((1, 1, 2, 3, 1))));
        let rows: Vec<String> =
            machine.devices().iter().map(|d| format!("{} {:?} {}", d.name, d.node, d.interrupts)).collect();
        assert_eq!(rows, ["nvme0n1 Some(0) ", "sda None ", "eth0 Some(1) 2-3,6-7"]);
    }

    /// In version 1 nodes and caches are around their CPUs, and caches are told apart by their depth.
    #[test]
    fn version_1_is_read() {
        let text = r#"<topology><object type="Machine" cpuset="0x3">
            <object type="NUMANode" cpuset="0x1"><object type="Socket" cpuset="0x1"><object type="Cache" cpuset="0x1" depth="3">
              <object type="Core" cpuset="0x1"><object type="PU" cpuset="0x1"/></object></object></object></object>
            <object type="NUMANode" cpuset="0x2"><object type="Socket" cpuset="0x2"><object type="Cache" cpuset="0x2" depth="2">
              <object type="PU" cpuset="0x2"/></object></object></object></object></topology>"#;
        let machine = parse(text, "f").unwrap();
        assert_eq!(machine.summary(), "f: 2 sockets, 2 NUMA nodes, 2 L3 groups, 2 cores, 2 CPUs");
    }

    #[test]
    fn sets_are_read_from_the_end() {
        let list = |text| cpu_set(text).unwrap().to_string();
        assert_eq!(
            (list("0x1,0x80000001"), list("0x3,,0x0"), list("0x0")),
            ("0,31-32".into(), "64-65".into(), String::new())
        );
        for text in ["0xf...f", "x", &"0x1,".repeat(3000)] {
            assert!(cpu_set(text).is_err(), "{text}");
        }
    }

    #[test]
    fn wrong_files_are_named_with_a_remedy() {
        for (text, part) in [
            ("<topology>", "ends too early"),
            ("<topology></topology>", "no object of the type PU"),
            ("<topology></object>", "byte"),
            (r#"<topology><object type="PU" cpuset="1g"/></topology>"#, "`1g`"),
            (r#"<topology><object type=PU cpuset="0x1"/></topology>"#, "the XML"),
        ] {
            let error = parse(text, "f").unwrap_err().to_string();
            assert!(error.contains(part), "`{part}` is not in: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(cut in 0..SERVER.len(), with in "[<>/\"=0-9a-fx,]{0,3}") {
            if SERVER.is_char_boundary(cut) {
                let (head, tail) = SERVER.split_at(cut);
                let _ = parse(&format!("{head}{with}{tail}"), "f");
                let _ = parse(&format!("{head}{with}"), "f");
            }
        }
    }
}
