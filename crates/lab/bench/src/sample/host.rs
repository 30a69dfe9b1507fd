//! What machine it was.

use std::path::Path;

use serde_json::{Value, json};

/// Processor, kernel, memory and hypervisor, for results: figures of different machines can't be compared.
pub fn host_report() -> Value {
    let file = |path: &str| super::read(Path::new(path)).unwrap_or_default();
    let cpuinfo = file("/proc/cpuinfo");
    let info = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.split(':').next().is_some_and(|key| key.trim() == name));
        line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
    };
    let memory_kib = file("/proc/meminfo")
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_ascii_whitespace().next()?.parse::<u64>().ok());
    json!({
        "cpu": info("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        "cpus": cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
        "virtual": info("flags").map(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
        "kernel": file("/proc/sys/kernel/osrelease").trim(),
        "memory_bytes": memory_kib.map(|kib| kib * 1024),
        "carmine": env!("CARGO_PKG_VERSION"),
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_the_machine() {
        let host = super::host_report();
        assert!(host["cpu"].as_str().is_some_and(|s| !s.is_empty()));
        assert!(host["kernel"].as_str().is_some_and(|s| s.contains('.')), "{host}");
    }
}
