//! Descriptions of other machines in TOML.
#![allow(clippy::disallowed_methods, reason = "reads the description that the user named")]

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

use crate::cpulist::CPU_NUMBER_MAX;
use crate::topology::RawCpu;
use crate::{CpuList, Topology, TopologyError};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    name: Option<String>,
    shape: Option<String>,
    allowed: Option<CpuList>,
    #[serde(default)]
    cpus: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    cpu: usize,
    socket: usize,
    /// NUMA node; the socket when left out.
    node: Option<usize>,
    /// L3 group, numbered machine-wide; the socket when left out.
    l3: Option<usize>,
    /// Core, numbered machine-wide: CPUs with the same core are SMT siblings.
    core: usize,
}

pub(crate) fn from_file(path: &Path) -> Result<Topology, TopologyError> {
    let text = std::fs::read_to_string(path).map_err(|e| bad(path, e.to_string()))?;
    let name =
        path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned());
    parse(&text, &name).map_err(|why| bad(path, why))
}

fn bad(path: &Path, why: String) -> TopologyError {
    TopologyError::File { path: path.display().to_string(), why }
}

fn parse(text: &str, default_name: &str) -> Result<Topology, String> {
    let described: Description = toml::from_str(text).map_err(|e| e.to_string())?;
    let name = described.name.unwrap_or_else(|| default_name.to_owned());
    let raw = match (described.shape, described.cpus) {
        (Some(shape), cpus) if cpus.is_empty() => {
            let regular = Topology::from_short(&shape).map_err(|e| e.to_string())?;
            regular.cpus().iter().map(raw_of).collect()
        }
        (Some(_), _) => return Err("has both `shape` and `[[cpus]]`; keep one".into()),
        (None, cpus) => entries(cpus)?,
    };
    Topology::build(name, false, raw, described.allowed).map_err(|e| e.to_string())
}

fn raw_of(cpu: &crate::Cpu) -> RawCpu {
    RawCpu { cpu: cpu.cpu, socket: cpu.socket, node: cpu.node, l3: cpu.l3, core: cpu.core }
}

fn entries(cpus: Vec<Entry>) -> Result<Vec<RawCpu>, String> {
    if cpus.is_empty() {
        return Err("describes no CPU; give `shape = \"2x28x2\"` or `[[cpus]]` entries".into());
    }
    let mut seen = BTreeSet::new();
    let mut raw = Vec::with_capacity(cpus.len());
    for entry in cpus {
        if !seen.insert(entry.cpu) {
            return Err(format!("CPU {} is described twice", entry.cpu));
        }
        if entry.cpu > CPU_NUMBER_MAX {
            return Err(format!("CPU {} is above {CPU_NUMBER_MAX}", entry.cpu));
        }
        raw.push(RawCpu {
            cpu: entry.cpu,
            socket: entry.socket,
            node: entry.node.unwrap_or(entry.socket),
            l3: entry.l3.unwrap_or(entry.socket),
            core: entry.core,
        });
    }
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shape_and_explicit_lists() {
        let t = parse("name = \"big\"\nshape = \"1x8x8x2\"\nallowed = \"0-31\"", "f").unwrap();
        assert_eq!((t.name(), t.l3_groups(), t.allowed().len()), ("big", 8, 32));
        let text = "[[cpus]]\ncpu=0\nsocket=0\ncore=0\n[[cpus]]\ncpu=1\nsocket=0\ncore=0\n[[cpus]]\ncpu=2\nsocket=7\ncore=9";
        let t = parse(text, "f").unwrap();
        assert_eq!((t.name(), t.sockets(), t.cores(), t.cpu(1).unwrap().thread), ("f", 2, 2, 1));
    }

    #[test]
    fn says_what_is_wrong() {
        let twice = "[[cpus]]\ncpu=0\nsocket=0\ncore=0\n[[cpus]]\ncpu=0\nsocket=0\ncore=1";
        for (text, part) in [
            ("", "describes no CPU"),
            ("shape = \"2\"", "`2`"),
            ("colour = 1", "colour"),
            (twice, "CPU 0 is described twice"),
            ("shape = \"1x2x1\"\nallowed = \"7\"", "no usable CPU"),
        ] {
            let error = parse(text, "f").unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
