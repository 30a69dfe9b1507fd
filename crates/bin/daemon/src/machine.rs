//! Facts about this program and its machine that a daemon tells the monitor, with the names that Ceph's metadata has.

use carmine_types::MonKind;

/// The value of `key` in lines such as `key: value` or `key="value"`.
fn value_of(text: &str, key: &str, sign: char) -> String {
    let found = text.lines().filter_map(|line| line.split_once(sign)).find(|(name, _)| name.trim() == key);
    found.map_or_else(String::new, |(_, value)| value.trim().trim_matches('"').to_owned())
}

/// The release of Ceph whose protocol Carmine speaks.
const SPOKEN: &str = "16.2.15";

/// This program's version. Real monitors and managers read Ceph's form of a version, and warn if OSDs have different ones: they get
/// the release whose protocol this program speaks.
fn version(mon: MonKind) -> [(&'static str, String); 4] {
    let own = env!("CARGO_PKG_VERSION");
    let hash = crate::build::GIT_HASH.trim_end_matches('+');
    let [text, short, release] = match mon {
        MonKind::Embedded => [format!("carmine {own}"), own.to_owned(), "carmine".to_owned()],
        MonKind::Ceph => {
            [format!("ceph version {SPOKEN} ({hash}) pacific (stable)"), SPOKEN.into(), "pacific".into()]
        }
    };
    [
        ("carmine_version", format!("{own} {hash}").trim_end().to_owned()),
        ("ceph_release", release),
        ("ceph_version", text),
        ("ceph_version_short", short),
    ]
}

/// Read once, before the reactors start, by a daemon with this kind of monitor.
pub fn facts(mon: MonKind) -> Vec<(String, String)> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let (memory, system) = (read("/proc/meminfo"), read("/etc/os-release"));
    let kb = |key| value_of(&memory, key, ':').trim_end_matches(" kB").to_owned();
    let all = [
        ("arch", std::env::consts::ARCH.to_owned()),
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
    all.into_iter().chain(version(mon)).map(|(key, value)| (key.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_has_a_value_on_linux() {
        let facts = facts(MonKind::Embedded);
        let get = |key: &str| facts.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str());
        assert!(get("mem_total_kb").unwrap().parse::<u64>().unwrap() > 0);
        assert_eq!(get("ceph_release"), Some("carmine"));
        let real = self::facts(MonKind::Ceph);
        assert!(
            real.iter()
                .any(|(key, value)| key == "ceph_version" && value.starts_with("ceph version 16.2.15 ("))
        );
        assert!(!get("hostname").unwrap().is_empty() && !get("kernel_version").unwrap().is_empty());
        assert_eq!(value_of("ID=debian\nVERSION_ID=\"12\"\n", "VERSION_ID", '='), "12");
        assert_eq!(value_of("MemTotal:  5 kB\n", "SwapTotal", ':'), "");
    }
}
