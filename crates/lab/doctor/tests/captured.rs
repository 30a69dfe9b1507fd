//! A whole server as its kernel shows it: two sockets with SMT, an NVMe drive behind a PCIe port, one with two ports that
//! belongs to a subsystem, a network card, and a testbed that is badly placed on all of it.
#![allow(clippy::disallowed_methods, reason = "tests write files")]

use std::os::unix::fs::symlink;
use std::path::Path;

use carmine_doctor::{Finding, Options, Severity, examine};

/// CPUs 0-3 are the cores, 4-7 their second threads; 0 1 4 5 are socket 0.
const CPUS: usize = 8;
const SLOT: &str = "sys/devices/pci0000:00/0000:00:1d.0/0000:01:00.0";
const SECOND_SLOT: &str = "sys/devices/pci0000:40/0000:40:01.0/0000:41:00.0";
const NIC: &str = "sys/devices/pci0000:00/0000:00:1c.0/0000:02:00.0";

struct Server(tempfile::TempDir);

impl Server {
    fn new() -> Server {
        let server = Server(tempfile::tempdir().unwrap());
        server.cpus();
        server.slot(SLOT, "16.0 GT/s PCIe", "2", &["50", "51"]);
        server.slot(SECOND_SLOT, "8.0 GT/s PCIe", "4", &["60"]);
        server.slot(NIC, "16.0 GT/s PCIe", "4", &["70"]);
        server.drive();
        server.drive_of_two_ports();
        server.put(&format!("{NIC}/net/eth0/mtu"), "1500");
        server.put(&format!("{NIC}/net/eth0/operstate"), "up");
        server.link(&format!("{NIC}/net/eth0/device"), NIC);
        server.link("sys/class/net/eth0", &format!("{NIC}/net/eth0"));
        server.interrupts();
        server
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn link(&self, path: &str, to: &str) {
        let (path, to) = (self.path().join(path), self.path().join(to));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(to, path).unwrap();
    }

    fn cpus(&self) {
        self.put("sys/devices/system/cpu/online", "0-7");
        self.put("sys/devices/system/cpu/smt/active", "1");
        self.put("proc/cpuinfo", "flags\t\t: fpu sse4_2 pclmulqdq\n");
        for cpu in 0..CPUS {
            let dir = format!("sys/devices/system/cpu/cpu{cpu}");
            let (core, socket) = (cpu % 4, cpu % 4 / 2);
            self.put(&format!("{dir}/topology/core_cpus_list"), &format!("{core},{}", core + 4));
            self.put(&format!("{dir}/topology/physical_package_id"), &socket.to_string());
            self.put(&format!("{dir}/cpufreq/scaling_governor"), "powersave\n");
            for (state, name, latency) in [(0, "POLL", "0"), (1, "C1E", "4"), (2, "C6", "170")] {
                self.put(&format!("{dir}/cpuidle/state{state}/name"), name);
                self.put(&format!("{dir}/cpuidle/state{state}/latency"), latency);
            }
        }
        self.put("sys/devices/system/node/online", "0-1");
        for (node, cpus, row) in [(0, "0-1,4-5", "10 21"), (1, "2-3,6-7", "21 10")] {
            self.put(&format!("sys/devices/system/node/node{node}/cpulist"), cpus);
            self.put(&format!("sys/devices/system/node/node{node}/distance"), row);
        }
    }

    fn slot(&self, dir: &str, speed: &str, width: &str, irqs: &[&str]) {
        for (file, text) in [
            ("current_link_speed", speed),
            ("max_link_speed", "16.0 GT/s PCIe"),
            ("current_link_width", width),
            ("max_link_width", "4"),
            ("numa_node", if dir == SECOND_SLOT { "1" } else { "0" }),
        ] {
            self.put(&format!("{dir}/{file}"), text);
        }
        irqs.iter().for_each(|irq| self.put(&format!("{dir}/msi_irqs/{irq}"), "msix"));
    }

    /// The block device lies in the controller's folder, which lies in the slot's.
    fn drive(&self) {
        let controller = format!("{SLOT}/nvme/nvme0");
        let block = format!("{controller}/nvme0n1");
        self.queue(&block, "none [mq-deadline] kyber");
        self.link(&format!("{controller}/device"), SLOT);
        self.link(&format!("{block}/device"), &controller);
        self.link("sys/block/nvme0n1", &block);
        self.put("sys/class/hwmon/hwmon3/name", "nvme\n");
        self.put("sys/class/hwmon/hwmon3/temp1_input", "79850\n");
        self.put("sys/class/hwmon/hwmon3/temp1_max", "81850\n");
        self.put("sys/module/nvme/parameters/poll_queues", "4\n");
    }

    /// The block device lies in the subsystem's folder, which has links to the controllers.
    fn drive_of_two_ports(&self) {
        let controller = format!("{SECOND_SLOT}/nvme/nvme1");
        let subsystem = "sys/devices/virtual/nvme-subsystem/nvme-subsys1";
        let block = format!("{subsystem}/nvme1n1");
        self.put(&format!("{controller}/state"), "live\n");
        self.queue(&block, "none");
        self.link(&format!("{subsystem}/nvme1"), &controller);
        self.link(&format!("{block}/device"), subsystem);
        self.link("sys/block/nvme1n1", &block);
    }

    fn queue(&self, block: &str, scheduler: &str) {
        for (file, text) in [
            ("scheduler", scheduler),
            ("write_cache", "write back"),
            ("fua", "1"),
            ("logical_block_size", "512"),
            ("physical_block_size", "4096"),
        ] {
            self.put(&format!("{block}/queue/{file}"), text);
        }
    }

    /// The first drive's second queue comes on CPU 1; the second's only one on CPU 6; the card's on CPU 3.
    fn interrupts(&self) {
        let row = |irq: &str, cpu: usize, name: &str| {
            let counts: Vec<&str> = (0..CPUS).map(|n| if n == cpu { "913" } else { "0" }).collect();
            format!(" {irq}: {}  PCI-MSIX-0000 {name}\n", counts.join(" "))
        };
        let none = row("50", 99, "nvme0q0");
        let rows = [none, row("51", 1, "nvme0q1"), row("60", 6, "nvme1q1"), row("70", 3, "eth0-TxRx-0")];
        self.put("proc/interrupts", &format!("  CPU0 CPU1\n{}", rows.concat()));
        for (irq, cpu) in [("50", "0"), ("51", "1"), ("60", "6"), ("70", "3")] {
            self.put(&format!("proc/irq/{irq}/effective_affinity_list"), cpu);
        }
    }

    fn examine(&self, reactors: &str, clients: &str) -> Vec<Finding> {
        let list = |text: &str| text.parse().unwrap();
        examine(&Options {
            root: self.path().to_path_buf(),
            reactor_cpus: list(reactors),
            client_cpus: list(clients),
            ..Options::default()
        })
    }
}

fn find<'a>(findings: &'a [Finding], topic: &str, subject: Option<&str>) -> &'a Finding {
    let fits = |f: &&Finding| f.topic == topic && f.subject.as_deref() == subject;
    findings.iter().find(fits).unwrap_or_else(|| panic!("no {topic} of {subject:?} in {findings:#?}"))
}

#[test]
fn a_testbed_that_sits_badly_is_told_everything() {
    let found = Server::new().examine("0-1", "4,7");
    for (topic, subject, severity, part) in [
        ("CPU governor", None, Severity::Warn, "powersave on 8"),
        ("C-states", None, Severity::Warn, "170 us"),
        ("SMT", None, Severity::Info, "on"),
        ("generator on an OSD's core", None, Severity::Warn, "[4]"),
        ("interrupts", Some("nvme0n1"), Severity::Info, "reactors sit on 1"),
        ("interrupts", Some("nvme1n1"), Severity::Ok, "on CPUs 6"),
        ("interrupts", Some("eth0"), Severity::Ok, "on CPUs 3"),
        ("NUMA distance", Some("nvme0n1"), Severity::Ok, "on node 0"),
        ("NUMA distance", Some("nvme1n1"), Severity::Info, "21 from node 0"),
        ("NUMA distance", Some("eth0"), Severity::Ok, "on node 0"),
        ("PCIe link", Some("nvme0n1"), Severity::Warn, "16.0 GT/s PCIe x2"),
        ("PCIe link", Some("nvme1n1"), Severity::Warn, "8.0 GT/s PCIe x4"),
        ("PCIe link", Some("eth0"), Severity::Ok, "x4"),
        ("I/O scheduler", Some("nvme0n1"), Severity::Warn, "mq-deadline"),
        ("I/O scheduler", Some("nvme1n1"), Severity::Ok, "none"),
        ("write cache", Some("nvme1n1"), Severity::Info, "with FUA"),
        ("logical block size", Some("nvme0n1"), Severity::Info, "512 bytes, 4096"),
        ("poll queues", None, Severity::Info, "4;"),
        ("temperature", Some("nvme (hwmon3)"), Severity::Warn, "79 C"),
        ("MTU", Some("eth0"), Severity::Info, "1500"),
    ] {
        let finding = find(&found, topic, subject);
        assert_eq!(finding.severity, severity, "{finding:?}");
        assert!(finding.is.contains(part), "{finding:?}");
    }
    let link = find(&found, "PCIe link", Some("nvme1n1"));
    assert!(link.command.as_ref().is_some_and(|c| c.contains("-s 0000:41:00.0")), "{link:?}");
    assert_eq!(link.cost.as_deref(), Some("at most 3.9 instead of 7.9 GB/s"));
    let irq = find(&found, "interrupts", Some("nvme0n1")).command.clone().unwrap();
    assert!(irq.contains("in 51;"), "only the interrupt that comes: {irq}");
}

#[test]
fn the_same_server_used_well() {
    let found = Server::new().examine("2", "1,5");
    assert_eq!(find(&found, "generator on an OSD's core", None).severity, Severity::Ok);
    for drive in ["nvme0n1", "nvme1n1"] {
        assert_eq!(find(&found, "interrupts", Some(drive)).severity, Severity::Ok);
    }
    assert_eq!(find(&found, "NUMA distance", Some("nvme1n1")).severity, Severity::Ok);
}

/// A finding that is worth a warning says what is better, and how to get there.
#[test]
fn findings_are_whole() {
    for finding in Server::new().examine("0-1", "4,7") {
        if finding.severity >= Severity::Warn {
            assert!(finding.better.is_some() && finding.command.is_some(), "{finding:?}");
        }
        assert_eq!(finding.cost.is_some(), finding.source.is_some(), "{finding:?}");
    }
}
