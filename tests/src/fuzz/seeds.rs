//! The captures of real sessions that crates/protocol/wire keeps as test vectors, as seeds.

use std::path::PathBuf;

use crate::workspace_root;

#[path = "../../../crates/protocol/wire/tests/capture/mod.rs"]
mod capture;

pub(super) use capture::Captured;

fn wire_data() -> PathBuf {
    workspace_root().join("crates/protocol/wire/tests/data")
}

/// Both directions of every captured connection: banner and frames.
pub(super) fn streams() -> Vec<Vec<u8>> {
    capture::files(&wire_data(), ".streams.txt").iter().flat_map(|path| capture::streams(path)).collect()
}

/// Every captured frame of which the capture has all bytes.
pub(super) fn frames() -> Vec<Captured> {
    let mut all: Vec<Captured> = streams().iter().flat_map(|stream| capture::split(stream).1).collect();
    for path in capture::files(&wire_data(), ".frames.txt") {
        all.extend(capture::frames(&path).into_iter().filter(Captured::is_whole));
    }
    all
}

/// Files of these names' ends in these folders of the vectors.
pub(super) fn files(folders: &[&str], suffix: &str) -> Vec<Vec<u8>> {
    let paths = folders.iter().flat_map(|folder| {
        let entries = std::fs::read_dir(wire_data().join(folder)).expect("a folder of vectors").flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    });
    let mut paths: Vec<PathBuf> = paths.filter(|path| is_named(path, suffix)).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no {suffix} in {folders:?}");
    paths.iter().map(|path| std::fs::read(path).expect("a vector")).collect()
}

/// `osdmap.bin` of the suffix `osdmap.bin`; `full.7.bin` of the prefix `full.`.
fn is_named(path: &std::path::Path, part: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name == part || (part.ends_with('.') && name.starts_with(part))
}
