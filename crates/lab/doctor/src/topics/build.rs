//! How this program, its RocksDB and its checksums were built.

use crate::Finding;
use crate::machine::Machine;
use crate::options::Build;
use crate::source::TEBIBYTE;

const PROGRAM: &str = "build";
const ROCKSDB: &str = "RocksDB's build";
const CRC: &str = "CRC32C";
const ALLOCATOR: &str = "allocator";

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let Some(build) = &machine.options.build else { return Vec::new() };
    vec![program(build), rocksdb(build), crc(machine), Finding::ok(ALLOCATOR, &*build.allocator)]
}

fn program(build: &Build) -> Finding {
    if build.profile == "release" && !build.assertions {
        return Finding::ok(PROGRAM, "release");
    }
    let assertions = if build.assertions { ", with debug assertions" } else { "" };
    Finding::bad(PROGRAM, format!("{}{assertions}", build.profile))
        .better("release: figures of other builds say nothing")
        .command("cargo build --release, as any user")
}

fn rocksdb(build: &Build) -> Finding {
    let Some(version) = &build.rocksdb else {
        return Finding::absent(ROCKSDB, "left out of this build; the store blue is not available");
    };
    // The workspace sets -O3 for it in every profile; its own checksums need these flags on x86-64.
    if cfg!(target_arch = "x86_64") && !build.rocksdb_flags.contains("-msse4.2") {
        return Finding::warn(ROCKSDB, format!("{version}, -O3, checksums of its log in software"))
            .better("built with -msse4.2 -mpclmul")
            .command("build inside the repository, whose .cargo/config.toml sets CXXFLAGS, as any user");
    }
    Finding::ok(ROCKSDB, format!("{version}, -O3 {}", build.rocksdb_flags).trim_end().to_owned())
        .cost("without optimisation compaction took 3 times as long, and random writes halved", TEBIBYTE)
}

/// The checksums of messages and blocks choose their instructions when the program runs.
fn crc(machine: &Machine<'_>) -> Finding {
    let cpuinfo = machine.host.text("proc/cpuinfo").unwrap_or_default();
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"));
    let has = |name: &str| flags.is_some_and(|flags| flags.split_whitespace().any(|flag| flag == name));
    if flags.is_none() {
        Finding::absent(CRC, "the processor's features are not shown")
    } else if has("sse4_2") || has("crc32") {
        let wide = if has("pclmulqdq") || has("pmull") { ", several streams at once" } else { "" };
        Finding::ok(CRC, format!("by the processor's instruction{wide}"))
    } else {
        Finding::bad(CRC, "by table, in software: the processor has no instruction for it")
            .better("a processor with SSE4.2 or ARMv8 CRC; every byte of data is checked several times")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Tree;
    use crate::{Options, Severity};

    fn found(build: Build) -> Vec<Severity> {
        let tree = Tree::new(&[("proc/cpuinfo", "flags : sse4_2 pclmulqdq\n")]);
        let options = Options { build: Some(build), ..tree.options() };
        examine(&Machine::look(&options)).iter().map(|f| f.severity).collect()
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
        assert!(Tree::new(&[]).find(examine).is_empty());
    }
}
