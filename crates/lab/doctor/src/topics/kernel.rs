//! Settings and limits of the kernel.

use crate::Finding;
use crate::finding::{KERNEL, OWN, TEBIBYTE, TUNING_GUIDE, absent, bad, info, ok, warn};
use crate::machine::{Build, Machine, NeededSpace};

/// Kernel defaults of TCP's buffer sizes differ with memory; these do not.
const TCP_SETTINGS: [(&str, &str); 3] =
    [("tcp_low_latency", "0"), ("tcp_sack", "1"), ("tcp_timestamps", "1")];
/// DEFER_TASKRUN came with it.
const KERNEL_MIN: (u32, u32) = (6, 1);
/// An OSD has a descriptor for each connection and for each table of RocksDB.
const FILES_MIN: u64 = 4_096;
/// Clocks that are read in user space, in some ten nanoseconds.
const FAST_CLOCKS: [&str; 3] = ["tsc", "arch_sys_counter", "kvm-clock"];

/// Tunables that are not worth touching.
pub(super) fn tcp(machine: &Machine<'_>) -> Option<Finding> {
    let setting = |name: &str| machine.text(format!("proc/sys/net/ipv4/{name}"));
    let congestion = setting("tcp_congestion_control")?;
    let touched = TCP_SETTINGS.iter().filter_map(|(name, default)| {
        setting(name).filter(|value| value != default).map(|value| format!("{name} = {value}"))
    });
    let touched: Vec<String> = touched.collect();
    let finding = if touched.is_empty() {
        info(format!("{congestion}, nothing changed: leave it so"))
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
        warn(format!("kernel {release} allows it; this process has a seccomp filter, which may not"))
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
            .better("madvise: with always, memory can be gathered in the middle of a measurement")
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
    let finding = warn(format!("{source}: every look at the clock enters the kernel"))
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

// How this program was built, the room for its stores, and the options of its testbed.

/// A file system that is fuller than this spreads new files over the space that is left.
const FULL_PERCENT: u64 = 90;

pub(super) fn profile(build: &Build) -> Finding {
    if build.profile == "release" && !build.assertions {
        return ok("release");
    }
    let assertions = if build.assertions { ", with debug assertions" } else { "" };
    bad(format!("{}{assertions}", build.profile))
        .better("release: figures of other builds say nothing")
        .command("cargo build --release, as any user")
}

pub(super) fn rocksdb(build: &Build) -> Finding {
    let Some(version) = &build.rocksdb else {
        return absent("left out of this build; the store blue is not available");
    };
    // The workspace sets -O3 for it in every profile; its own checksums need these flags on x86-64.
    if cfg!(target_arch = "x86_64") && !build.rocksdb_flags.contains("-msse4.2") {
        return warn(format!("{version}, -O3, checksums of its log in software"))
            .better("built with -msse4.2 -mpclmul")
            .command("build inside the repository, whose .cargo/config.toml sets CXXFLAGS, as any user");
    }
    ok(format!("{version}, -O3 {}", build.rocksdb_flags).trim_end())
        .cost("without optimisation compaction took 3 times as long, and random writes halved", TEBIBYTE)
}

/// The checksums of messages and blocks choose their instructions when the program runs.
pub(super) fn crc(machine: &Machine<'_>) -> Finding {
    let cpuinfo = machine.text("proc/cpuinfo").unwrap_or_default();
    let mut lines = cpuinfo.lines();
    let Some(flags) = lines.find(|line| line.starts_with("flags") || line.starts_with("Features")) else {
        return absent("the processor's features are not shown");
    };
    let has = |name: &str| flags.split_whitespace().any(|flag| flag == name);
    if has("sse4_2") || has("crc32") {
        let wide = if has("pclmulqdq") || has("pmull") { ", several streams at once" } else { "" };
        return ok(format!("by the processor's instruction{wide}"));
    }
    bad("by table, in software: the processor has no instruction for it")
        .better("a processor with SSE4.2 or ARMv8 CRC; every byte of data is checked several times")
}

/// Bytes that may still be written into a folder; `None` if it does not exist.
#[must_use]
pub fn free_bytes(folder: &std::path::Path) -> Option<u64> {
    rustix::fs::statvfs(folder).ok().map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize))
}

/// Room in the folders of stores.
pub(super) fn space(machine: &Machine<'_>) -> Vec<Finding> {
    let look = |place: &NeededSpace| match rustix::fs::statvfs(&place.folder) {
        Ok(fs) => {
            let bytes = |blocks: u64| blocks.saturating_mul(fs.f_frsize);
            room(place.needed_bytes, bytes(fs.f_bavail), bytes(fs.f_blocks))
        }
        Err(_) => absent("the folder does not exist"),
    };
    machine.options.places.iter().map(|place| look(place).on(place.folder.display().to_string())).collect()
}

fn room(needed_bytes: u64, free_bytes: u64, total_bytes: u64) -> Finding {
    let percent = 100 - (free_bytes.saturating_mul(100) / total_bytes.max(1)).min(100);
    let is = format!("{} of {} MiB are free ({percent} % used)", free_bytes >> 20, total_bytes >> 20);
    if free_bytes < needed_bytes {
        bad(is)
            .better(format!("{} MiB free, for stores that are not written through yet", needed_bytes >> 20))
            .command("carmine up --osd-size SIZE in a folder with room, as any user")
    } else if percent >= FULL_PERCENT {
        let fuller = "block files are scattered over the space that is left";
        warn(is).better(format!("less than {FULL_PERCENT} % used: {fuller}"))
    } else {
        ok(is)
    }
}

/// Options of the testbed that are not their defaults.
pub(super) fn changed(machine: &Machine<'_>) -> Vec<Finding> {
    let changed = machine.options.changed.iter();
    changed.map(|(name, value, default)| info(format!("{value} (default: {default})")).on(name)).collect()
}

#[cfg(test)]
mod tests {
    use crate::Severity;
    use crate::testing::Tree;

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

#[cfg(test)]
mod program_tests {
    use super::*;
    use crate::testing::{Tree, find};
    use crate::{Options, Severity};

    const BUILD: [&str; 4] = ["build", "RocksDB's build", "CRC32C", "allocator"];

    fn found(build: Build) -> Vec<Severity> {
        let tree = Tree::new(&[("proc/cpuinfo", "flags : sse4_2 pclmulqdq\n")]);
        let options = Options { build: Some(build), ..tree.options() };
        BUILD.iter().flat_map(|topic| find(&options, topic)).map(|f| f.severity).collect()
    }

    fn good() -> Build {
        Build {
            profile: "release".into(),
            assertions: false,
            rocksdb: Some("11.8.1".into()),
            rocksdb_flags: "-msse4.2 -mpclmul".into(),
            allocator: "mimalloc".into(),
        }
    }

    #[test]
    fn builds() {
        assert_eq!(found(good()), [Severity::Ok; 4]);
        assert_eq!(found(Build { profile: "debug".into(), ..good() })[0], Severity::Bad);
        assert_eq!(found(Build { assertions: true, ..good() })[0], Severity::Bad);
        assert_eq!(found(Build { rocksdb: None, ..good() })[1], Severity::NotPresent);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(found(Build { rocksdb_flags: String::new(), ..good() })[1], Severity::Warn);
        }
        let slow = Tree::new(&[("proc/cpuinfo", "flags : fpu\n")]);
        assert_eq!(crc(&Machine::look(&slow.options())).severity, Severity::Bad);
        assert!(BUILD.iter().all(|topic| Tree::new(&[]).find(topic).is_empty()));
    }

    #[test]
    fn room_is_compared_with_need() {
        assert_eq!(room(5 << 20, 4 << 20, 100 << 20).severity, Severity::Bad);
        assert_eq!(room(5 << 20, 6 << 20, 100 << 20).severity, Severity::Warn);
        assert_eq!(room(5 << 20, 60 << 20, 100 << 20).severity, Severity::Ok);
    }

    #[test]
    fn real_folders() {
        let tree = Tree::new(&[]);
        let of = |folder| {
            let place = NeededSpace { folder, needed_bytes: 0 };
            find(&Options { places: vec![place], ..tree.options() }, "free space").remove(0).severity
        };
        assert_ne!(of(tree.path().to_path_buf()), Severity::NotPresent);
        assert_eq!(of(tree.path().join("none")), Severity::NotPresent);
    }

    #[test]
    fn each_is_named() {
        let tree = Tree::new(&[]);
        let changed = vec![("poll".to_owned(), "sleep".to_owned(), "adaptive".to_owned())];
        let found = find(&Options { changed, ..tree.options() }, "changed option");
        assert_eq!(
            (found[0].subject.as_deref(), found[0].is.as_str()),
            (Some("poll"), "sleep (default: adaptive)")
        );
    }
}
