//! The controller's archive: results that are whole or absent, written through `tokio-uring`.
//!
//! Its own small ring, made for one file and dropped with it; it has nothing to do with the reactors' rings, and runs on
//! the caller's thread, off the measured CPUs.

use std::io;
use std::path::{Path, PathBuf};

use carmine_testbed::output::json_text;
use serde::Serialize;
use tokio_uring::fs;

use crate::failed;
use carmine_testbed::{Result, TestbedError};

/// Entries of the ring: one file, one operation at a time.
const RING_ENTRIES: u32 = 8;

/// Writes `bytes` to `path` by way of a temporary file beside it, synced and then renamed: a reader (also after a crash)
/// sees the old file or the new one.
///
/// # Errors
/// The kernel refuses io_uring (the text says what to change); the file cannot be written (no temporary file stays).
///
/// # Panics
/// If it is called within an async runtime of tokio.
pub fn archive(path: &Path, bytes: Vec<u8>) -> Result<()> {
    let mut builder = tokio_uring::builder();
    builder.entries(RING_ENTRIES);
    let ring = tokio_uring::Runtime::new(&builder).map_err(|e| refused(path, &e))?;
    // Its own name: two processes may write the same file at the same time.
    let mut temp = path.as_os_str().to_owned();
    temp.push(format!(".{}.new", std::process::id()));
    let temp = PathBuf::from(temp);
    ring.block_on(async {
        let written = write_and_rename(&temp, path, bytes).await;
        if written.is_err() {
            let _ = fs::remove_file(&temp).await;
        }
        written
    })
    .map_err(TestbedError::io("write", path))
}

/// The same for a value as JSON.
///
/// # Errors
/// As [`archive`].
pub fn write_json<T: Serialize + ?Sized>(path: &Path, value: &T) -> Result<()> {
    archive(path, json_text(value)?.into_bytes())
}

async fn write_and_rename(temp: &Path, path: &Path, bytes: Vec<u8>) -> io::Result<()> {
    let file = fs::File::create(temp).await?;
    let (written, _) = file.write_all_at(bytes, 0).await;
    let synced = match written {
        Ok(()) => file.sync_data().await,
        Err(e) => Err(e),
    };
    // Closed in any case: a file that is only dropped is closed at some later time.
    let closed = file.close().await;
    synced.and(closed)?;
    fs::rename(temp, path).await
}

/// Names the file and what to do when there is no ring.
fn refused(path: &Path, e: &io::Error) -> TestbedError {
    failed!(
        "cannot write {}: io_uring_setup was refused ({e}): allow io_uring (a container needs \
         --security-opt seccomp=unconfined; on the host, sysctl kernel.io_uring_disabled=0)",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(dir).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_result_replaces_the_old_one_and_leaves_nothing_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("result.json");
        for text in ["{\"long\": [1, 2, 3]}\n".repeat(1000), "{}\n".to_owned(), String::new()] {
            archive(&path, text.clone().into_bytes()).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
            assert_eq!(names(dir.path()), ["result.json"]);
        }
    }

    #[test]
    fn what_cannot_be_written_is_named_and_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("no/result.json");
        let text = archive(&missing, b"{}".to_vec()).unwrap_err().to_string();
        assert!(text.contains("no/result.json"), "{text}");
        // A folder in the way: the temporary file is written, the rename fails.
        let folder = dir.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        archive(&folder, b"{}".to_vec()).unwrap_err();
        assert_eq!(names(dir.path()), ["folder"]);
    }

    #[test]
    fn a_refused_ring_says_what_to_change() {
        let e = io::Error::from(io::ErrorKind::PermissionDenied);
        let text = refused(Path::new("r.json"), &e).to_string();
        for word in ["r.json", "io_uring_setup", "seccomp=unconfined", "kernel.io_uring_disabled"] {
            assert!(text.contains(word), "{text}");
        }
    }
}
