//! Files that are whole or absent.

use std::io::{ErrorKind, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ArchiveError;

/// Writes a file beside its name, syncs it and renames it: a reader sees all of it or none.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), ArchiveError> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::Builder::new().prefix(".part-").tempfile_in(dir)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        readable(file.as_file())?;
        file.persist(path).map_err(|e| e.error)?;
        // The rename itself is durable only when the folder is.
        std::fs::File::open(dir)?.sync_all()
    };
    write().map_err(ArchiveError::io("write", path))
}

/// Temporary files are their owner's alone; an archive is there to be handed on.
fn readable(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

pub(super) fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), ArchiveError> {
    let mut bytes = serde_json::to_vec_pretty(value).map_err(ArchiveError::json(path))?;
    bytes.push(b'\n');
    write_whole(path, &bytes)
}

/// `None` if the file does not exist.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, ArchiveError> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(ArchiveError::io("read", path)(e)),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(ArchiveError::json(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_nothing_is_left_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        write_json(&path, &vec![1, 2]).unwrap();
        write_json(&path, &vec![3]).unwrap();
        assert_eq!(read_json::<Vec<u32>>(&path).unwrap(), Some(vec![3]));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn absent_is_none_and_damaged_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("b.json");
        assert_eq!(read_json::<u32>(&path).unwrap(), None);
        std::fs::write(&path, b"{\"a\":").unwrap();
        let error = read_json::<u32>(&path).unwrap_err().to_string();
        assert!(error.contains("b.json"), "{error}");
    }

    #[test]
    fn a_folder_that_is_missing_is_named() {
        let error = write_whole(Path::new("/nonexistent-folder/x"), b"").unwrap_err().to_string();
        assert!(error.contains("/nonexistent-folder/x"), "{error}");
    }
}
