//! Logs of a point that failed: what its OSDs said is kept beside what its commands said.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The end of each log, bytes.
const TAIL_BYTES: u64 = 32 << 10;

/// Adds the ends of all logs in `folder` to the file `log`. What can't be read is left out: it only explains.
pub(super) fn keep_logs(folder: &Path, log: &Path) {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == "log"));
    paths.sort_unstable();
    let Ok(mut to) = OpenOptions::new().create(true).append(true).open(log) else { return };
    for path in paths {
        if let Ok(tail) = tail(&path) {
            let name = path.file_name().unwrap_or_default().display().to_string();
            let _ = write!(to, "--- the end of {name}\n{}\n", String::from_utf8_lossy(&tail).trim_end());
        }
    }
}

fn tail(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ends_of_all_logs_follow_what_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        std::fs::write(path("osd.0.log"), format!("{}last words\n", "x".repeat(100_000))).unwrap();
        std::fs::write(path("mon.log"), "calm\n").unwrap();
        std::fs::write(path("testbed.json"), "{}").unwrap();
        std::fs::create_dir(path("out")).unwrap();
        let log = path("out/point");
        std::fs::write(&log, "error: osd.0 died\n").unwrap();
        keep_logs(dir.path(), &log);
        let kept = std::fs::read_to_string(&log).unwrap();
        assert!(
            kept.starts_with("error: osd.0 died\n--- the end of mon.log\ncalm\n--- the end of osd.0.log\n")
        );
        assert!(kept.ends_with("last words\n") && kept.len() < 40_000 && !kept.contains("{}"));
    }
}
