//! Kernel files below a root folder.

use std::path::{Path, PathBuf};

/// Most bytes of a file that are looked at.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The tree that is looked at.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    root: PathBuf,
}

impl Host {
    pub(crate) fn new(root: &Path) -> Host {
        Host { root: root.to_path_buf() }
    }

    /// A file's text without the white space around it; `None` if it cannot be read.
    pub(crate) fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        use std::io::Read;
        let file = std::fs::File::open(self.root.join(path)).ok()?;
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// A file that holds one number.
    pub(crate) fn number(&self, path: impl AsRef<Path>) -> Option<i64> {
        self.text(path)?.parse().ok()
    }

    /// The names in a folder, sorted; none if it cannot be read.
    pub(crate) fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = std::fs::read_dir(self.root.join(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort_unstable_by_key(|name| (name.len(), name.clone()));
        names
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// The first of `path` (its links resolved) and the folders around it that has an entry `name`.
    pub(crate) fn find_up(&self, path: &str, name: &str) -> Option<PathBuf> {
        let start = self.root.join(path).canonicalize().ok()?;
        let root = self.root.canonicalize().ok()?;
        let inside = start.ancestors().take_while(|at| at.starts_with(&root) && *at != root);
        inside.map(|at| at.join(name)).find(|found| found.exists())
    }
}
