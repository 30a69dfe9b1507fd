//! The tools' programs.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::bail;
use carmine_load::hosted::Tool;

use carmine_testbed::TestbedError::Usage;

/// What a tool needs.
pub(super) struct ToolPrograms {
    /// The program that makes the load.
    pub(super) load: PathBuf,
    /// `rados`, to look at objects.
    pub(super) rados: PathBuf,
    /// `rbd`, to make images.
    pub(super) rbd: PathBuf,
    /// First line of what the load's program says of its version.
    pub(super) version: String,
}

fn find(program: &str, package: &str) -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    match std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file()) {
        Some(file) => Ok(file),
        None => bail!(Usage(format!(
            "{program} is not installed; as root run:  apt-get install -y --no-install-recommends {package}"
        ))),
    }
}

impl ToolPrograms {
    /// Finds what `tool` needs; a missing program is named with its package.
    pub(super) fn find(tool: Tool) -> anyhow::Result<ToolPrograms> {
        let (rados, rbd) = (find("rados", "ceph-common")?, find("rbd", "ceph-common")?);
        let load = if tool == Tool::RadosBench { rados.clone() } else { find("fio", "fio")? };
        let said = Command::new(&load).arg("--version").stdin(Stdio::null()).output()?;
        let version = String::from_utf8_lossy(&said.stdout).lines().next().unwrap_or_default().to_owned();
        Ok(ToolPrograms { load, rados, rbd, version })
    }
}
