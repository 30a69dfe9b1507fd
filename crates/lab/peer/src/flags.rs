//! How the peer's programs were built: of a package its version, of a build folder what CMake wrote down.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// Entries of CMake's cache that decide how fast the result is.
const CMAKE_ENTRIES: [&str; 5] =
    ["CMAKE_BUILD_TYPE", "CMAKE_CXX_FLAGS", "CMAKE_CXX_COMPILER", "ALLOCATOR", "WITH_SEASTAR"];

/// What can be found out; empty if nothing.
pub(crate) fn build_flags(build: Option<&Path>) -> BTreeMap<String, String> {
    match build {
        Some(folder) => std::fs::read_to_string(folder.join("CMakeCache.txt"))
            .map(|text| cmake_entries(&text))
            .unwrap_or_default(),
        None => debian_version().map(|version| ("debian_package".to_owned(), version)).into_iter().collect(),
    }
}

/// `NAME:TYPE=VALUE`, one a line.
fn cmake_entries(text: &str) -> BTreeMap<String, String> {
    let entry = |line: &str| {
        let (name, value) = line.split_once('=')?;
        let name = name.split(':').next()?;
        CMAKE_ENTRIES.contains(&name).then(|| (name.to_owned(), value.trim().to_owned()))
    };
    text.lines().filter_map(entry).collect()
}

fn debian_version() -> Option<String> {
    let said = Command::new("dpkg-query")
        .args(["-W", "-f=${Version}", "ceph-osd"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    let version = String::from_utf8(said.stdout).ok()?.trim().to_owned();
    (said.status.success() && !version.is_empty()).then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cmakes_cache() {
        let text = "# a comment\nCMAKE_BUILD_TYPE:STRING=RelWithDebInfo\nALLOCATOR:STRING=tcmalloc\nOTHER:BOOL=ON\nodd\n";
        let found = cmake_entries(text);
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found["CMAKE_BUILD_TYPE"].as_str(), found["ALLOCATOR"].as_str()),
            ("RelWithDebInfo", "tcmalloc")
        );
    }
}
