//! Small files that are whole or absent: each is written under another name and renamed.

use std::fs::Permissions;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fs_err::os::unix::fs::OpenOptionsExt as _;
use fs_err::{self as fs, File, OpenOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Result, failed};
use crate::output::json_text;

/// Writes `bytes` to `path` so that a reader (also after a crash) sees the old file or the new one.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    write_with_mode(path, bytes, 0o666)
}

/// The same for a file that only its user may read.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    write_with_mode(path, bytes, 0o600)
}

/// The same with these rights, as far as the umask lets them.
fn write_with_mode(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    // Its own name: parent and child may write different files of one folder at the same time.
    let temp = path.with_added_extension(format!("{}.new", std::process::id()));
    let write = || {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(mode);
        let mut file = options.open(&temp)?;
        file.write_all(bytes)?;
        file.sync_data()?;
        fs::rename(&temp, path)
    };
    Ok(write().inspect_err(|_| _ = fs::remove_file(&temp))?)
}

/// Writes `value` as indented JSON, see [`write_whole`].
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    write_whole(path, json_text(value)?.as_bytes())
}

/// Reads a JSON file; `None` if it does not exist.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>> {
    let text = match fs::read_to_string(path) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        other => other?,
    };
    serde_json::from_str(&text).map(Some).map_err(|e| {
        failed!("{} is damaged ({e}); was it edited or written by another version?", path.display())
    })
}

/// Bytes that may still be written into a folder.
///
/// # Errors
/// Its file system does not say.
pub fn free_bytes(folder: &Path) -> Result<u64> {
    rustix::fs::statvfs(folder)
        .map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize))
        .map_err(|e| failed!("cannot ask for the free space of {}: {e}", folder.display()))
}

/// A new random id, from the kernel.
pub fn fresh_uuid() -> Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

/// Makes a folder that only its user may look into.
pub(crate) fn private_dir(path: impl AsRef<Path>) -> Result<()> {
    fs::create_dir_all(&path)?;
    Ok(fs::set_permissions(&path, Permissions::from_mode(0o700))?)
}

/// Removes a file or a link; a missing one is fine.
pub fn remove_file(path: &Path) -> Result<()> {
    gone(fs::remove_file(path))
}

/// Removes a folder with all in it; a missing one is fine. Links inside are removed, not followed.
pub(crate) fn remove_dir(path: &Path) -> Result<()> {
    gone(fs::remove_dir_all(path))
}

fn gone(removed: io::Result<()>) -> Result<()> {
    match removed {
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e.into()),
        _ => Ok(()),
    }
}

/// The last words of a daemon, in `lines` lines at most. Ceph's daemons write thousands of recent events after the reason for
/// which they abort; these are left out.
pub(crate) fn last_words(path: &Path, lines: usize) -> String {
    let text = end_of(path, 0, 8 << 20);
    let Some((said, dump)) = text.rsplit_once("--- begin dump of recent events ---") else {
        return last_lines(text.trim_end(), lines);
    };
    let after = dump.split_once("--- end dump of recent events ---").map_or("", |(_, after)| after);
    last_lines(format!("{said}{after}").trim_end(), lines)
}

/// The last `limit_bytes` of a log's text after its first `from` bytes.
pub fn end_of(path: &Path, from: u64, limit_bytes: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        file.seek(SeekFrom::Start(len.saturating_sub(limit_bytes).max(from)))?;
        let mut bytes = Vec::new();
        file.take(limit_bytes).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
}

/// The last lines of a text.
pub fn last_lines(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_absence() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        assert_eq!(read_json::<Vec<u32>>(&path).unwrap(), None);
        write_json(&path, &vec![1, 2]).unwrap();
        assert_eq!(read_json::<Vec<u32>>(&path).unwrap(), Some(vec![1, 2]));
        fs::write(&path, "[1,").unwrap();
        assert!(read_json::<Vec<u32>>(&path).unwrap_err().to_string().contains("damaged"));
    }

    #[test]
    fn tail_of_a_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert_eq!(end_of(&path, 0, 3), "");
        fs::write(&path, "a\nb\nc\nd\n").unwrap();
        assert_eq!(last_words(&path, 2), "c\nd");
        assert_eq!((end_of(&path, 4, 100).as_str(), end_of(&path, 4, 2).as_str()), ("c\nd\n", "d\n"));
    }

    #[test]
    fn the_reason_of_an_abort_is_not_buried() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("osd.0.log");
        let dump = "   -9> an event\n".repeat(20_000);
        let said = "starting\n-1 osd.0 unable to mount its store\n--- begin dump of recent events ---\n";
        fs::write(&path, format!("{said}{dump}")).unwrap();
        assert_eq!(last_words(&path, 1), "-1 osd.0 unable to mount its store");
        fs::write(&path, format!("{said}{dump}--- end dump of recent events ---\nAborted\n")).unwrap();
        let words = last_words(&path, 12);
        assert!(words.starts_with("starting\n-1 osd.0 unable") && words.ends_with("Aborted"), "{words}");
    }
}
