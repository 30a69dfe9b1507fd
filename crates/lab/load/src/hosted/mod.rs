//! Loads made by the tools that Ceph's users know: `rados bench` and fio's engines `rados` and `rbd`. This has their
//! command lines for a [`LoadSpec`] and reads what they print; who starts them is the controller.

mod figures;
pub mod fio;
pub mod rados;

use serde::{Deserialize, Serialize};

use crate::spec::{LoadSpec, Rw, SpecError};

pub use figures::{HostedFigures, Latency};

carmine_types::words! {
    /// Who makes the load.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Tool: "client" {
        /// This program.
        #[default]
        Carmine = "carmine",
        /// `rados bench`.
        RadosBench = "rados-bench",
        /// fio with `ioengine=rados`.
        FioRados = "fio-rados",
        /// fio with `ioengine=rbd`.
        FioRbd = "fio-rbd",
    }
}

/// Where a tool finds the cluster.
#[derive(Clone, Debug)]
pub struct ClusterAccess {
    /// Path of `ceph.conf`.
    pub conf: String,
    /// Pool.
    pub pool: String,
}

/// What a tool cannot do of a load, before anything is started; then what it does differently, as remarks for the result.
///
/// # Errors
/// The tool has no such load.
pub fn check(tool: Tool, spec: &LoadSpec) -> Result<Vec<String>, SpecError> {
    let refuse = |what: &'static str, text: String, why: &str| {
        Err(SpecError::Value { what, text, why: format!("{tool} {why}") })
    };
    if tool != Tool::Carmine && (spec.verify || spec.verify_only) {
        return refuse("--verify", String::new(), "does not check blocks; take --client carmine");
    }
    if spec.volumes > 1 && tool != Tool::FioRbd {
        return refuse("--volumes", spec.volumes.to_string(), "loads objects, no images; take fio-rbd");
    }
    if spec.processes > 1 && !matches!(tool, Tool::FioRados | Tool::FioRbd) {
        let why = match tool {
            Tool::RadosBench => "has a process for each job; raise --numjobs",
            _ => "is one process with a thread for each job; raise --numjobs, or take fio-rados",
        };
        return refuse("--processes", spec.processes.to_string(), why);
    }
    if tool != Tool::RadosBench {
        return Ok(Vec::new());
    }
    if let Some(bytes) = spec.io_bytes {
        let why = "ends by time only and overwrites nothing; take carmine, fio-rados or fio-rbd";
        return refuse("--io-size or --age", format!("({bytes} bytes)"), why);
    }
    if let Some(rate) = spec.rate_iops {
        return refuse("--rate", rate.to_string(), "has no rate; take fio-rados");
    }
    if spec.rw == Rw::RandRw {
        return refuse("--rw", spec.rw.to_string(), "either reads or writes; take fio-rados");
    }
    let mut marks = vec!["rados bench tells no percentiles".to_owned()];
    if spec.rw == Rw::Read {
        marks.push("rados bench reads in order only once: the window ends when all was read".into());
    }
    if spec.rw == Rw::RandWrite {
        marks.push(
            "rados bench writes each block once, in order, into fresh objects: no random overwrites".into(),
        );
    }
    Ok(marks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        for tool in Tool::ALL {
            assert_eq!(tool.to_string().parse(), Ok(*tool));
            assert_eq!(serde_json::to_value(tool).unwrap(), tool.word());
        }
        let error = "cosbench".parse::<Tool>().unwrap_err().to_string();
        assert!(error.contains("`cosbench`") && error.contains("fio-rbd"), "{error}");
    }

    #[test]
    fn what_a_tool_cannot_do_is_said_before_the_load() {
        let random = LoadSpec { rw: Rw::RandRw, ..LoadSpec::default() };
        assert!(check(Tool::RadosBench, &random).unwrap_err().to_string().contains("--rw randrw"));
        assert_eq!(check(Tool::FioRados, &random), Ok(Vec::new()));
        let rate = LoadSpec { rate_iops: Some(100.0), ..LoadSpec::default() };
        assert!(check(Tool::RadosBench, &rate).is_err() && check(Tool::FioRbd, &rate).is_ok());
        let verify = LoadSpec { verify: true, ..LoadSpec::default() };
        assert!(check(Tool::FioRados, &verify).is_err() && check(Tool::Carmine, &verify).is_ok());
        let sized = LoadSpec { io_bytes: Some(1 << 20), ..LoadSpec::default() };
        assert!(check(Tool::RadosBench, &sized).unwrap_err().to_string().contains("--age"));
        assert!(check(Tool::FioRados, &sized).is_ok() && check(Tool::FioRbd, &sized).is_ok());
        let dealt = LoadSpec { numjobs: 4, volumes: 2, ..LoadSpec::default() };
        assert!(check(Tool::FioRbd, &dealt).is_ok() && check(Tool::FioRados, &dealt).is_err());
        let dealt = LoadSpec { numjobs: 4, processes: 2, ..LoadSpec::default() };
        assert!(check(Tool::FioRados, &dealt).is_ok());
        for tool in [Tool::Carmine, Tool::RadosBench] {
            assert!(check(tool, &dealt).unwrap_err().to_string().contains("--processes 2"));
        }
        let write = LoadSpec { rw: Rw::RandWrite, ..LoadSpec::default() };
        assert!(check(Tool::RadosBench, &write).unwrap().iter().any(|mark| mark.contains("fresh objects")));
    }
}
