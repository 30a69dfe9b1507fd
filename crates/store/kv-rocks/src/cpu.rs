//! CPU time of RocksDB's threads, by the names that it gives them: `rocksdb:high` flush memtables, `rocksdb:low` (and
//! `rocksdb:bottom`) compact tables.

use std::path::Path;

use carmine_store::KvCpu;

/// Of this process, all databases together. `None` where the kernel does not tell.
pub(crate) fn cpu() -> Option<KvCpu> {
    sum_threads(Path::new("/proc/self/task"))
}

fn sum_threads(tasks: &Path) -> Option<KvCpu> {
    let mut sum = KvCpu::default();
    for task in std::fs::read_dir(tasks).ok()?.flatten() {
        // A thread may end while it is looked at.
        let text = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let name = text("comm");
        let Some(pool) = name.trim().strip_prefix("rocksdb:") else { continue };
        let first = text("schedstat").split_ascii_whitespace().next().and_then(|ns| ns.parse::<u64>().ok());
        let part = if pool.starts_with("high") { &mut sum.flush_ns } else { &mut sum.compaction_ns };
        *part += first?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_told_apart_by_their_names() {
        let dir = tempfile::tempdir().unwrap();
        let thread = |tid: &str, name: &str, schedstat: &str| {
            std::fs::create_dir(dir.path().join(tid)).unwrap();
            std::fs::write(dir.path().join(tid).join("comm"), format!("{name}\n")).unwrap();
            std::fs::write(dir.path().join(tid).join("schedstat"), schedstat).unwrap();
        };
        thread("1", "osd.0-0", "1000 5 7\n");
        thread("2", "rocksdb:high", "20 5 7\n");
        thread("3", "rocksdb:low", "300 5 7\n");
        thread("4", "rocksdb:bottom", "4 5 7\n");
        assert_eq!(sum_threads(dir.path()), Some(KvCpu { flush_ns: 20, compaction_ns: 304 }));
        thread("5", "rocksdb:low", "");
        assert_eq!(sum_threads(dir.path()), None, "absent is not zero");
        assert_eq!(sum_threads(&dir.path().join("nothing")), None);
    }
}
