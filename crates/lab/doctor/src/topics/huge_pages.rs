//! Large pages of memory.

use crate::Finding;
use crate::machine::Machine;
use crate::source::KERNEL;

const TOPIC: &str = "huge pages";

pub(super) fn examine(machine: &Machine<'_>) -> Vec<Finding> {
    let modes = machine.host.text("sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let mode = modes.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
    let meminfo = machine.host.text("proc/meminfo").unwrap_or_default();
    let reserved = meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Total:"));
    let reserved = reserved.map_or("0", str::trim);
    vec![match mode {
        None => Finding::absent(TOPIC, "the kernel has no transparent huge pages"),
        Some("always") => Finding::info(TOPIC, format!("transparent: always; {reserved} reserved"))
            .better("madvise: with always, memory can be gathered in the middle of a measurement")
            .cost("a page fault can stall while memory is reclaimed and compacted for it", KERNEL)
            .command("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"),
        Some(mode) => Finding::ok(TOPIC, format!("transparent: {mode}; {reserved} reserved")),
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Severity;
    use crate::testing::Tree;

    #[test]
    fn modes() {
        let path = "sys/kernel/mm/transparent_hugepage/enabled";
        let tree =
            Tree::new(&[(path, "always [madvise] never\n"), ("proc/meminfo", "HugePages_Total:       7\n")]);
        let found = tree.one(examine);
        assert_eq!((found.severity, found.is.as_str()), (Severity::Ok, "transparent: madvise; 7 reserved"));
        tree.put(path, "[always] madvise never\n");
        assert_eq!(tree.one(examine).severity, Severity::Info);
    }
}
