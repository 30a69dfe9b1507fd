//! Settings and limits of the kernel.

use crate::Finding;
use crate::finding::{KERNEL, OWN, TUNING_GUIDE, bad, info, ok, warn};
use crate::machine::Machine;

/// Kernel defaults of TCP's buffer sizes differ with memory; these do not.
const TCP_SETTINGS: [(&str, &str); 3] =
    [("tcp_low_latency", "0"), ("tcp_sack", "1"), ("tcp_timestamps", "1")];
/// DEFER_TASKRUN came with it.
const KERNEL_MIN: (u32, u32) = (6, 1);
/// An OSD has a descriptor for each connection and for each table of RocksDB.
const FILES_MIN: u64 = 4_096;
/// Clocks that are read in user space, in some ten nanoseconds.
const FAST_CLOCKS: [&str; 3] = ["tsc", "arch_sys_counter", "kvm-clock"];

/// BBR paces what a connection sends, over loopback, too.
const PACED: &str = "bbr";

/// A setting of the kernel's TCP.
fn tcp_setting(machine: &Machine<'_>, name: &str) -> Option<String> {
    machine.text(format!("proc/sys/net/ipv4/{name}"))
}

/// Congestion control that slows what a testbed sends.
pub(super) fn congestion_control(machine: &Machine<'_>) -> Option<Finding> {
    let is = tcp_setting(machine, "tcp_congestion_control")?;
    if is != PACED {
        return Some(ok(is));
    }
    let found = warn(format!("{is}: it paces stock clients and Ceph's OSDs over loopback, too"))
        .better("cubic, the kernel's default, as Carmine's own connections over loopback have anyway")
        .cost("4 MiB over loopback: 0.7 of the bytes a second, for 1.5 times the CPU", OWN)
        .command("sysctl -w net.ipv4.tcp_congestion_control=cubic");
    Some(found)
}

/// Tunables that are not worth touching.
pub(super) fn tcp(machine: &Machine<'_>) -> Option<Finding> {
    let setting = |name: &str| tcp_setting(machine, name);
    let congestion = setting("tcp_congestion_control")?;
    let touched = TCP_SETTINGS.iter().filter_map(|(name, default)| {
        setting(name).filter(|value| value != default).map(|value| format!("{name} = {value}"))
    });
    let touched: Vec<String> = touched.collect();
    let finding = if touched.is_empty() {
        info(format!("{congestion}, and else nothing changed: leave that as it is"))
    } else {
        info(format!("changed by hand: {}", touched.join(", ")))
            .better("the kernel's defaults: old tunings are the first thing to remove")
    };
    Some(finding.cost("not worth touching: no effect that could be measured", TUNING_GUIDE))
}

/// Whether the kernel lets this process use io_uring.
pub(super) fn io_uring(machine: &Machine<'_>) -> Option<Finding> {
    let release = machine.text("proc/sys/kernel/osrelease")?;
    let disabled = machine.number("proc/sys/kernel/io_uring_disabled").unwrap_or(0);
    let has_filter = machine.field("proc/self/status", "Seccomp:").is_some_and(|mode| mode != "0");
    Some(if version(&release).is_some_and(|have| have < KERNEL_MIN) {
        let (major, minor) = KERNEL_MIN;
        bad(format!("kernel {release} is too old"))
            .better(format!("Linux {major}.{minor} or later: reactors do not start here"))
    } else if disabled != 0 {
        let who = if disabled == 1 { "for all but a group and root" } else { "for everybody" };
        bad(format!("switched off {who} (kernel.io_uring_disabled = {disabled})"))
            .better("0: reactors do not start without it")
            .cost("the sysctl refuses io_uring_setup", KERNEL)
            .command("sysctl -w kernel.io_uring_disabled=0")
    } else if has_filter {
        warn(format!("kernel {release} allows it, but this process has a seccomp filter, which may not"))
            .better("no filter: containers forbid io_uring by default")
            .command("start the container with --security-opt seccomp=unconfined")
    } else {
        ok(format!("allowed, kernel {release}"))
    })
}

/// `6.12.3-generic` as (6, 12).
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

/// The soft limit of this name; the inner `None`: there is none.
fn soft_limit(machine: &Machine<'_>, name: &str) -> Option<Option<u64>> {
    Some(machine.field("proc/self/limits", name)?.split_whitespace().next()?.parse().ok())
}

pub(super) fn locked_memory(machine: &Machine<'_>) -> Option<Finding> {
    Some(match soft_limit(machine, "Max locked memory")? {
        None => ok("unlimited"),
        Some(bytes) => {
            info(format!("{} KiB: enough as long as buffers are not registered with the ring", bytes >> 10))
                .better("unlimited, to register them")
                .cost("registered buffers save 0.2 us of a disk operation", OWN)
                .command("ulimit -l unlimited (or LimitMEMLOCK=infinity)")
        }
    })
}

pub(super) fn open_files(machine: &Machine<'_>) -> Option<Finding> {
    Some(match soft_limit(machine, "Max open files")? {
        None => ok("unlimited"),
        Some(n) if n >= FILES_MIN => ok(n.to_string()),
        Some(n) => warn(n.to_string())
            .better(format!("at least {FILES_MIN}: beyond the limit connections are refused"))
            .command("ulimit -n 65536 (or LimitNOFILE=65536), as any user up to the hard limit"),
    })
}

/// Large pages of memory.
pub(super) fn huge_pages(machine: &Machine<'_>) -> Option<Finding> {
    let modes = machine.text("sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let reserved = machine.field("proc/meminfo", "HugePages_Total:").unwrap_or_else(|| "0".into());
    Some(match super::chosen(&modes)? {
        "always" => info(format!("transparent: always; {reserved} reserved"))
            .better("madvise: with always, the kernel may compact memory in the middle of a measurement")
            .cost("a page fault can stall while memory is reclaimed and compacted for it", KERNEL)
            .command("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        mode => ok(format!("transparent: {mode}; {reserved} reserved")),
    })
}

/// Where time comes from.
pub(super) fn clock(machine: &Machine<'_>) -> Option<Finding> {
    let dir = "sys/devices/system/clocksource/clocksource0";
    let source = machine.text(format!("{dir}/current_clocksource"))?;
    if FAST_CLOCKS.contains(&source.as_str()) {
        return Some(ok(source));
    }
    let finding = warn(format!("{source}: every reading of the clock enters the kernel"))
        .cost("a system call for each time stamp, several for each operation", KERNEL);
    let others = machine.text(format!("{dir}/available_clocksource")).unwrap_or_default();
    Some(match FAST_CLOCKS.iter().find(|fast| others.split_whitespace().any(|other| other == **fast)) {
        Some(fast) => finding.better(*fast).command(format!("echo {fast} > /{dir}/current_clocksource")),
        None => finding.better("tsc, which the kernel found unstable on this machine: see its log"),
    })
}

/// Protections against leaks of the processor.
pub(super) fn mitigations(machine: &Machine<'_>) -> Option<Finding> {
    let dir = "sys/devices/system/cpu/vulnerabilities";
    let leaks = machine.list(dir);
    let with = |prefix: &str| {
        let state = |leak: &String| machine.text(format!("{dir}/{leak}")).unwrap_or_default();
        let leaks: Vec<_> = leaks.iter().filter(|leak| state(leak).starts_with(prefix)).cloned().collect();
        if leaks.is_empty() { "none".to_owned() } else { leaks.join(", ") }
    };
    let (active, open) = (with("Mitigation"), with("Vulnerable"));
    let found = if active == "none" && open == "none" {
        ok("none is needed on this processor")
    } else {
        info(format!("active: {active}; open: {open}"))
            .better(
                "the same on every machine that is compared; switched off only where nobody else's code runs",
            )
            .cost(
                "system calls and interrupts cost more with them; how much depends on the processor",
                KERNEL,
            )
            .command("add mitigations=off to the kernel's command line; reboot")
    };
    (!leaks.is_empty()).then_some(found)
}

#[cfg(test)]
mod tests {
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn paced_connections_are_slow() {
        let tree = Tree::new(&[("proc/sys/net/ipv4/tcp_congestion_control", "bbr\n")]);
        let found = tree.one("congestion control");
        assert_eq!(found.severity, Severity::Warn);
        assert_eq!(found.command.as_deref(), Some("sysctl -w net.ipv4.tcp_congestion_control=cubic"));
        // It hides no other finding.
        tree.put("proc/sys/net/ipv4/tcp_sack", "0\n");
        assert!(tree.one("TCP tunables").is.contains("tcp_sack = 0"));
        tree.put("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n");
        assert_eq!(tree.one("congestion control").severity, Severity::Ok);
    }

    #[test]
    fn old_tunings_are_named() {
        let tree = Tree::new(&[("proc/sys/net/ipv4/tcp_congestion_control", "cubic\n")]);
        assert!(tree.one("TCP tunables").better.is_none());
        tree.put("proc/sys/net/ipv4/tcp_timestamps", "0\n");
        let found = tree.one("TCP tunables");
        assert!(found.is.contains("tcp_timestamps = 0") && found.better.is_some());
    }

    #[test]
    fn allowed_forbidden_old() {
        let tree = Tree::new(&[("proc/sys/kernel/osrelease", "6.12.3-generic\n")]);
        assert_eq!(tree.one("io_uring").severity, Severity::Ok);
        tree.put("proc/self/status", "Name:\tx\nSeccomp:\t2\n");
        assert_eq!(tree.one("io_uring").severity, Severity::Warn);
        tree.put("proc/sys/kernel/io_uring_disabled", "2\n");
        assert!(tree.one("io_uring").is.contains("everybody"));
        let old = Tree::new(&[("proc/sys/kernel/osrelease", "5.15.0")]);
        assert_eq!(old.one("io_uring").severity, Severity::Bad);
    }

    #[test]
    fn soft_limits() {
        let of = |text| {
            let tree = Tree::new(&[("proc/self/limits", text)]);
            ["locked memory", "open files"].map(|topic| tree.one(topic))
        };
        let found = of(
            "Max open files            1024    524288   files\nMax locked memory   8388608   8388608   bytes\n",
        );
        assert_eq!((found[0].severity, found[1].severity), (Severity::Info, Severity::Warn));
        assert!(found[0].is.starts_with("8192 KiB"));
        let free =
            of("Max open files  unlimited unlimited files\nMax locked memory  unlimited unlimited bytes");
        assert!(free.iter().all(|f| f.severity == Severity::Ok));
        assert!(of("").iter().all(|f| f.severity == Severity::NotPresent));
    }

    #[test]
    fn huge_pages_modes() {
        let path = "sys/kernel/mm/transparent_hugepage/enabled";
        let tree =
            Tree::new(&[(path, "always [madvise] never\n"), ("proc/meminfo", "HugePages_Total:       7\n")]);
        let found = tree.one("huge pages");
        assert_eq!((found.severity, found.is.as_str()), (Severity::Ok, "transparent: madvise; 7 reserved"));
        tree.put(path, "[always] madvise never\n");
        assert_eq!(tree.one("huge pages").severity, Severity::Info);
    }

    #[test]
    fn sources() {
        let current = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        assert_eq!(Tree::new(&[(current, "tsc\n")]).one("clock source").severity, Severity::Ok);
        let tree = Tree::new(&[(current, "hpet\n")]);
        assert!(tree.one("clock source").command.is_none());
        tree.put("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm\n");
        assert!(tree.one("clock source").command.unwrap().starts_with("echo tsc "));
    }

    #[test]
    fn active_and_open() {
        let dir = "sys/devices/system/cpu/vulnerabilities";
        let tree = Tree::new(&[(&format!("{dir}/meltdown"), "Not affected\n")]);
        assert_eq!(tree.one("kernel mitigations").severity, Severity::Ok);
        tree.put(&format!("{dir}/spectre_v2"), "Mitigation: Retpolines\n");
        tree.put(&format!("{dir}/mds"), "Vulnerable: no microcode\n");
        assert_eq!(tree.one("kernel mitigations").is, "active: spectre_v2; open: mds");
    }
}
