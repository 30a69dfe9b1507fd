//! Facts about this program and its machine that a daemon tells the monitor, with the names that Ceph's metadata has.

/// The value of `key` in lines such as `key: value` or `key="value"`.
fn value_of(text: &str, key: &str, sign: char) -> String {
    let found = text.lines().filter_map(|line| line.split_once(sign)).find(|(name, _)| name.trim() == key);
    found.map_or_else(String::new, |(_, value)| value.trim().trim_matches('"').to_owned())
}

/// Read once, before the reactors start.
pub fn facts() -> Vec<(String, String)> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (memory, system) = (read("/proc/meminfo"), read("/etc/os-release"));
    let kb = |key| value_of(&memory, key, ':').trim_end_matches(" kB").to_owned();
    let all = [
        ("arch", std::env::consts::ARCH.to_owned()),
        ("ceph_release", "carmine".to_owned()),
        ("ceph_version", format!("carmine {}", env!("CARGO_PKG_VERSION"))),
        ("ceph_version_short", env!("CARGO_PKG_VERSION").to_owned()),
        ("cpu", value_of(&read("/proc/cpuinfo"), "model name", ':')),
        ("distro", value_of(&system, "ID", '=')),
        ("distro_description", value_of(&system, "PRETTY_NAME", '=')),
        ("distro_version", value_of(&system, "VERSION_ID", '=')),
        ("hostname", read("/proc/sys/kernel/hostname").trim().to_owned()),
        ("kernel_description", read("/proc/sys/kernel/version").trim().to_owned()),
        ("kernel_version", read("/proc/sys/kernel/osrelease").trim().to_owned()),
        ("mem_swap_kb", kb("SwapTotal")),
        ("mem_total_kb", kb("MemTotal")),
        ("os", "Linux".to_owned()),
    ];
    all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_has_a_value_on_linux() {
        let facts = facts();
        let get = |key: &str| facts.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        assert!(get("mem_total_kb").unwrap().parse::<u64>().unwrap() > 0);
        assert!(!get("hostname").unwrap().is_empty() && !get("kernel_version").unwrap().is_empty());
        assert_eq!(value_of("ID=debian\nVERSION_ID=\"12\"\n", "VERSION_ID", '='), "12");
        assert_eq!(value_of("MemTotal:  5 kB\n", "SwapTotal", ':'), "");
    }
}
