//! Limits of locked memory and open files.

use crate::Finding;
use crate::machine::Machine;
use crate::source::OWN;

const LOCKED: &str = "locked memory";
const FILES: &str = "open files";
/// An OSD has a descriptor for each connection and for each table of RocksDB.
const FILES_MIN: u64 = 4_096;

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let limits = machine.host.text("proc/self/limits").unwrap_or_default();
    vec![locked(soft(&limits, "Max locked memory")), files(soft(&limits, "Max open files"))]
}

/// The soft limit in this line: a number, or none for `unlimited`. The outer `None`: no such line.
fn soft(limits: &str, name: &str) -> Option<Option<u64>> {
    let word = limits.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next())?;
    Some(word.parse().ok())
}

fn locked(limit: Option<Option<u64>>) -> Finding {
    match limit {
        None => Finding::absent(LOCKED, "the limit is not shown"),
        Some(None) => Finding::ok(LOCKED, "unlimited"),
        Some(Some(bytes)) => Finding::info(
            LOCKED,
            format!("{} KiB: enough as long as buffers are not registered with the ring", bytes >> 10),
        )
        .better("unlimited, to register them")
        .cost("registered buffers save 0.2 us of a disk operation", OWN)
        .command("ulimit -l unlimited (or LimitMEMLOCK=infinity)"),
    }
}

fn files(limit: Option<Option<u64>>) -> Finding {
    match limit {
        None => Finding::absent(FILES, "the limit is not shown"),
        Some(None) => Finding::ok(FILES, "unlimited"),
        Some(Some(n)) if n >= FILES_MIN => Finding::ok(FILES, format!("{n}")),
        Some(Some(n)) => Finding::warn(FILES, format!("{n}"))
            .better(format!("at least {FILES_MIN}: beyond it connections are refused"))
            .command("ulimit -n 65536 (or LimitNOFILE=65536), as any user up to the hard limit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn soft_limits() {
        let of = |text| Tree::new(&[("proc/self/limits", text)]).find(examine);
        let found = of(
            "Max open files            1024    524288   files\nMax locked memory   8388608   8388608   bytes\n",
        );
        assert_eq!((found[0].severity, found[1].severity), (Severity::Info, Severity::Warn));
        assert!(found[0].is.starts_with("8192 KiB"));
        let free =
            of("Max open files  unlimited unlimited files\nMax locked memory  unlimited unlimited bytes");
        assert!(free.iter().all(|f| f.severity == Severity::Ok));
        assert!(of("").iter().all(|f| f.severity == Severity::NotPresent));
    }
}
