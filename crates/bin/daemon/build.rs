//! Notes what only the build knows, for `build.rs` in src.

use std::path::PathBuf;
use std::process::Command;

/// The workspace's lock file, from this crate's folder.
const LOCK: &str = "../../../Cargo.lock";

/// RocksDB's version is the build part of its crate's: `0.19.0+11.8.1`.
fn rocksdb_version() -> Option<String> {
    let lock = std::fs::read_to_string(LOCK).ok()?;
    let package = lock.split("[[package]]").find(|p| p.contains("name = \"librocksdb-sys\""))?;
    let line = package.lines().find_map(|line| line.strip_prefix("version = "))?;
    Some(line.trim_matches('"').split_once('+')?.1.to_string())
}

/// The output of `git`, if it is there and succeeds.
fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok().filter(|out| out.status.success())?;
    Some(String::from_utf8_lossy(&out.stdout).trim().to_string())
}

/// Commit that is built, with `+` if files differ from it: what `CARMINE_GIT_HASH` says, or else git. Nothing for sources
/// that are not in a repository, also if they lie inside of another one.
fn git_hash() -> String {
    println!("cargo::rerun-if-env-changed=CARMINE_GIT_HASH");
    if let Ok(told) = std::env::var("CARMINE_GIT_HASH") {
        return told;
    }
    if git(&["ls-files", "--error-unmatch", "build.rs"]).is_none() {
        return String::new();
    }
    let hash = git(&["rev-parse", "--short=12", "HEAD"]).unwrap_or_default();
    let changed =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|list| !list.is_empty());
    watch(git(&["rev-parse", "--git-path", "logs/HEAD"]).map(PathBuf::from));
    if changed { format!("{hash}+") } else { hash }
}

/// Runs this again when the commit changes, or a source of a crate.
fn watch(commits: Option<PathBuf>) {
    let folders = |path: PathBuf| std::fs::read_dir(path).into_iter().flatten().flatten();
    let crates = folders("../..".into()).flat_map(|group| folders(group.path()));
    let sources = crates.map(|folder| folder.path().join("src"));
    // Cargo takes a path that does not exist for one that has changed.
    for path in sources.chain(commits).filter(|path| path.exists()) {
        println!("cargo::rerun-if-changed={}", path.display());
    }
}

fn main() {
    let env = |name: &str| std::env::var(name).unwrap_or_else(|_| "unknown".into());
    let rustc = Command::new(env("RUSTC")).arg("--version").output();
    let rustc = rustc.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_string());
    println!("cargo::rustc-env=CARMINE_RUSTC={}", rustc.unwrap_or_else(|_| "unknown".into()));
    println!("cargo::rustc-env=CARMINE_GIT_HASH={}", git_hash());
    for name in ["PROFILE", "OPT_LEVEL", "TARGET", "DEBUG"] {
        println!("cargo::rustc-env=CARMINE_{name}={}", env(name));
    }
    // Set by cargo as flags separated by 0x1f.
    let flags = env("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " ");
    println!("cargo::rustc-env=CARMINE_RUSTFLAGS={flags}");
    // Set in .cargo/config.toml: RocksDB's own flags beside the profile's.
    let cxxflags = format!("CXXFLAGS_{}", env("TARGET").replace('-', "_"));
    println!("cargo::rustc-env=CARMINE_CXXFLAGS={}", std::env::var(&cxxflags).unwrap_or_default());
    println!("cargo::rustc-env=CARMINE_ROCKSDB={}", rocksdb_version().unwrap_or_else(|| "unknown".into()));
    println!("cargo::rerun-if-env-changed={cxxflags}");
    println!("cargo::rerun-if-changed={LOCK}");
    println!("cargo::rerun-if-changed=build.rs");
}
