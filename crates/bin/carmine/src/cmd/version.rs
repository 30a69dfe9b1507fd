//! `carmine version`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use carmine_daemon::build;
use clap::Args;

#[derive(Args)]
pub(crate) struct VersionArgs {
    /// Compiler, flags, RocksDB, allocator
    #[arg(long, short)]
    verbose: bool,
    /// Folder of a testbed (not used)
    #[arg(long, value_name = "FOLDER", hide = true)]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: &VersionArgs) -> Result<ExitCode> {
    let mut text = format!("carmine {}\n", env!("CARGO_PKG_VERSION"));
    if args.verbose {
        let rows = [
            ("commit", build::commit().into()),
            (
                "profile",
                format!("{} (opt-level {}, debug {})", build::PROFILE, build::OPT_LEVEL, build::DEBUG),
            ),
            ("assertions", if cfg!(debug_assertions) { "on".into() } else { "off".into() }),
            ("rustc", build::RUSTC.into()),
            ("target", build::TARGET.into()),
            ("rustflags", build::RUSTFLAGS.into()),
            ("features", if cfg!(feature = "rocks") { "rocks".into() } else { String::new() }),
            ("allocator", build::ALLOCATOR.into()),
            ("rocksdb", rocksdb()),
        ];
        for (name, value) in rows {
            text.push_str(&format!("{name:<11}{}\n", value.trim()));
        }
    }
    super::done(&text)
}

/// Version, flags, and what RocksDB itself says about its checksums, which it logs when an empty database is opened.
#[cfg(feature = "rocks")]
fn rocksdb() -> String {
    use carmine_kv_rocks::{RocksKv, RocksOptions};
    let ask = || -> Result<Option<String>> {
        let folder = tempfile::tempdir()?;
        Ok(RocksKv::open(folder.path(), RocksOptions::default())?.crc32_support())
    };
    let crc = match ask() {
        Ok(answer) => answer.unwrap_or_else(|| "not known".into()),
        Err(e) => format!("not known ({e})"),
    };
    format!("{} (-O3 {}), fast CRC32C: {crc}", build::ROCKSDB, build::CXXFLAGS)
}

#[cfg(not(feature = "rocks"))]
fn rocksdb() -> String {
    "not built in: no store `blue`".into()
}
