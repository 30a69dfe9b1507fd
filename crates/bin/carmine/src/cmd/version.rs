//! `carmine version`.

use std::process::ExitCode;

use crate::args::VersionArgs;
use crate::output::print;

pub(crate) fn run(args: &VersionArgs) -> anyhow::Result<ExitCode> {
    let mut text = format!("carmine {}\n", env!("CARGO_PKG_VERSION"));
    if args.verbose {
        let features: Vec<&str> =
            [("rocks", cfg!(feature = "rocks"))].iter().filter(|f| f.1).map(|f| f.0).collect();
        let rows = [
            ("commit", commit().into()),
            (
                "profile",
                format!(
                    "{} (opt-level {}, debug {})",
                    env!("CARMINE_PROFILE"),
                    env!("CARMINE_OPT_LEVEL"),
                    env!("CARMINE_DEBUG")
                ),
            ),
            ("assertions", if cfg!(debug_assertions) { "on".into() } else { "off".into() }),
            ("rustc", env!("CARMINE_RUSTC").into()),
            ("target", env!("CARMINE_TARGET").into()),
            ("rustflags", env!("CARMINE_RUSTFLAGS").into()),
            ("features", features.join(" ")),
            ("allocator", allocator()),
            ("rocksdb", rocksdb()),
        ];
        for (name, value) in rows {
            text.push_str(&format!("{name:<11}{}\n", value.trim()));
        }
    }
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The commit that was built, with `+` if files differed from it.
pub(super) fn commit() -> &'static str {
    match env!("CARMINE_GIT_HASH") {
        "" => "unknown (not built in a git repository)",
        hash => hash,
    }
}

/// See the `global_allocator` in main.rs.
pub(super) fn allocator() -> String {
    "mimalloc".into()
}

/// Version, flags, and what RocksDB itself says of its checksums: it is asked by opening an empty database.
#[cfg(feature = "rocks")]
fn rocksdb() -> String {
    use carmine_kv_rocks::{RocksKv, RocksOptions};
    let ask = || -> anyhow::Result<Option<String>> {
        let folder = tempfile::tempdir()?;
        Ok(RocksKv::open(folder.path(), RocksOptions::default())?.crc32_support())
    };
    let crc = match ask() {
        Ok(answer) => answer.unwrap_or_else(|| "not told".into()),
        Err(e) => format!("not known ({e})"),
    };
    format!("{} (-O3 {}), fast CRC32C: {crc}", env!("CARMINE_ROCKSDB"), env!("CARMINE_CXXFLAGS"))
}

#[cfg(not(feature = "rocks"))]
fn rocksdb() -> String {
    "not built in: no store `blue`".into()
}
