//! Helpers of the whole-system tests: the workspace's metadata and the binary under test.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // tests start processes and read files

use std::path::{Path, PathBuf};

/// The workspace's root folder.
pub fn workspace_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ lies in the workspace").to_path_buf()
}
