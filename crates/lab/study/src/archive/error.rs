//! What can be wrong with an archive.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// A file of an archive that can't be read, understood or written.
#[derive(Debug, Error)]
pub enum ArchiveError {
    /// The file system refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    /// Not the JSON that ARCHIVE.md describes.
    #[error("{}: {source}", path.display())]
    Json { path: PathBuf, source: serde_json::Error },
    /// The folder has no `run.json`.
    #[error("{}: no run is archived here (there is no run.json); name a folder that `carmine sweep --out` made", dir.display())]
    NoRun { dir: PathBuf },
    /// Written by another version.
    #[error("{}: archive format {found}; this carmine reads format {wanted}: take the carmine that wrote it", path.display())]
    Format { path: PathBuf, found: u32, wanted: u32 },
    /// Text that would leave the folder, or is not a file name.
    #[error("{}: `{stem}` is no file name (letters, digits, `.`, `_` and `-` only)", path.display())]
    Stem { path: PathBuf, stem: String },
}

impl ArchiveError {
    pub(crate) fn io<'a>(
        what: &'static str,
        path: &'a Path,
    ) -> impl FnOnce(std::io::Error) -> ArchiveError + 'a {
        move |source| ArchiveError::Io { what, path: path.to_path_buf(), source }
    }

    pub(crate) fn json(path: &Path) -> impl FnOnce(serde_json::Error) -> ArchiveError + '_ {
        move |source| ArchiveError::Json { path: path.to_path_buf(), source }
    }
}
