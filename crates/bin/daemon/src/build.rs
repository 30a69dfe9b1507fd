//! Facts that only the build knows: commit, compiler, flags.

/// Commit that was built, with `+` if files differed from it; empty outside a git repository.
pub const GIT_HASH: &str = env!("CARMINE_GIT_HASH");
/// Version of the compiler.
pub const RUSTC: &str = env!("CARMINE_RUSTC");
/// Cargo's profile.
pub const PROFILE: &str = env!("CARMINE_PROFILE");
/// Level of optimisation.
pub const OPT_LEVEL: &str = env!("CARMINE_OPT_LEVEL");
/// Kind of debug information.
pub const DEBUG: &str = env!("CARMINE_DEBUG");
/// Target triple.
pub const TARGET: &str = env!("CARMINE_TARGET");
/// Flags of the compiler.
pub const RUSTFLAGS: &str = env!("CARMINE_RUSTFLAGS");
/// Version of RocksDB, whether or not it is linked.
pub const ROCKSDB: &str = env!("CARMINE_ROCKSDB");
/// Flags of RocksDB's compiler beside the profile's.
pub const CXXFLAGS: &str = env!("CARMINE_CXXFLAGS");
/// The memory allocator of all programs.
pub const ALLOCATOR: &str = "mimalloc";

/// The commit, as shown to people.
#[must_use]
pub fn commit() -> &'static str {
    if GIT_HASH.is_empty() { "unknown (not built in a git repository)" } else { GIT_HASH }
}
