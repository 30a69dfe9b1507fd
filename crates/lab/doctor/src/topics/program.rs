//! The build of this program, the room for its stores, and the options of its testbed.

use crate::Finding;
use crate::finding::{TEBIBYTE, absent, bad, info, ok, warn};
use crate::machine::Machine;
use crate::machine::{Build, NeededSpace};

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
