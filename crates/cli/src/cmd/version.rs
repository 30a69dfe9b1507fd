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

/// Asks the allocator itself: the version is only there if it really is linked in.
fn allocator() -> String {
    "mimalloc".into()
}

#[cfg(feature = "rocks")]
fn rocksdb() -> String {
    carmine_kv_rocks::build_info()
}

#[cfg(not(feature = "rocks"))]
fn rocksdb() -> String {
    "not built in: no store `blue`".into()
}
