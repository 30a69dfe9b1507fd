//! The allocator of the OSDs: Debian builds Ceph without tcmalloc, which upstream's packages have.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::programs::Programs;

/// The library as Debian's libgoogle-perftools4 names it.
const LIBRARY: &str = "libtcmalloc.so.4";
/// Debian's folders of shared libraries.
const FOLDERS: [&str; 4] =
    ["/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib"];

/// What the OSDs allocate memory with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocator {
    /// `tcmalloc (preloaded)`, `tcmalloc (linked)`, or `libc`.
    pub name: String,
    /// The library that is preloaded.
    pub preload: Option<PathBuf>,
    /// What to do about it, for people; empty if nothing.
    pub advice: String,
}

impl Allocator {
    /// How `programs`' OSD allocates: linked, preloaded, or the C library's.
    pub fn of(programs: &Programs) -> Self {
        let linked = std::fs::read(&programs.osd).is_ok_and(|bytes| contains(&bytes, b"libtcmalloc"));
        let library =
            FOLDERS.map(|folder| Path::new(folder).join(LIBRARY)).into_iter().find(|file| file.is_file());
        Self::choose(linked, library)
    }

    fn choose(linked: bool, library: Option<PathBuf>) -> Self {
        match (linked, library) {
            (true, _) => Self { name: "tcmalloc (linked)".into(), preload: None, advice: String::new() },
            (false, Some(library)) => {
                Self { name: "tcmalloc (preloaded)".into(), preload: Some(library), advice: String::new() }
            }
            (false, None) => Self {
                name: "libc".into(),
                preload: None,
                advice: "this ceph-osd has no tcmalloc, which makes it slower than upstream's builds; as root run:  \
                         apt-get install -y --no-install-recommends libgoogle-perftools4"
                    .into(),
            },
        }
    }
}

fn contains(bytes: &[u8], word: &[u8]) -> bool {
    bytes.windows(word.len()).any(|window| window == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_linked_one_needs_no_preload_and_none_is_said() {
        let library = PathBuf::from("/x/libtcmalloc.so.4");
        assert_eq!(Allocator::choose(true, Some(library.clone())).preload, None);
        assert_eq!(Allocator::choose(false, Some(library.clone())).preload, Some(library));
        let none = Allocator::choose(false, None);
        assert!(none.name == "libc" && none.advice.contains("libgoogle-perftools4"));
        assert!(contains(b"..libtcmalloc.so", b"libtcmalloc") && !contains(b"lib", b"libtcmalloc"));
    }
}
