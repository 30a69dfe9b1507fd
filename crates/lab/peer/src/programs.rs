//! Where Ceph's programs are: the installed packages, or a build of the user's.

use std::path::{Path, PathBuf};

use carmine_testbed::{Result, TestbedError};
use serde::{Deserialize, Serialize};

use crate::command::Tool;

/// Which OSD it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Flavour {
    /// `ceph-osd`, threads and queues.
    Classic,
    /// `crimson-osd`, a Seastar reactor per core.
    Crimson,
}

/// Ceph's programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `ceph-mon`.
    pub mon: PathBuf,
    /// `ceph-osd` or `crimson-osd`.
    pub osd: PathBuf,
    /// `ceph`, the administration tool.
    pub ceph: PathBuf,
    /// `monmaptool`.
    pub monmaptool: PathBuf,
    /// Classic or Crimson.
    pub flavour: Flavour,
    /// Shared libraries and plugins of a build.
    pub lib: Option<PathBuf>,
}

/// Programs and the Debian packages that have them.
const PACKAGES: [(&str, &str); 4] = [
    ("ceph-mon", "ceph-mon"),
    ("ceph-osd", "ceph-osd"),
    ("ceph", "ceph-common"),
    ("monmaptool", "ceph-base"),
];

/// Where Debian puts programs, for a `PATH` without them.
const SYSTEM_FOLDERS: [&str; 2] = ["/usr/bin", "/usr/sbin"];

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(SYSTEM_FOLDERS.map(PathBuf::from));
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

impl Programs {
    /// Finds the programs of `build` (a folder with `bin/`), or the installed ones.
    ///
    /// # Errors
    /// Some are missing: the text has the line that installs them.
    pub fn find(build: Option<&Path>) -> Result<Self> {
        match build {
            Some(folder) => Self::built(folder),
            None => Self::installed(),
        }
    }

    fn installed() -> Result<Self> {
        let found = PACKAGES.map(|(program, _)| find(program));
        let missing: Vec<&str> = PACKAGES
            .iter()
            .zip(&found)
            .filter(|(_, at)| at.is_none())
            .map(|((_, package), _)| *package)
            .collect();
        let [Some(mon), Some(osd), Some(ceph), Some(monmaptool)] = found else {
            return Err(TestbedError::Usage(format!(
                "the peer needs Ceph's own programs; as root run:  apt-get install -y --no-install-recommends {} \
                 (and libgoogle-perftools4, the allocator that Debian's build lacks), or name a build with --peer-build",
                missing.join(" ")
            )));
        };
        Ok(Self { mon, osd, ceph, monmaptool, flavour: Flavour::Classic, lib: None })
    }

    fn built(folder: &Path) -> Result<Self> {
        let file = |program: &str| {
            let path = folder.join("bin").join(program);
            if path.is_file() {
                return Ok(path);
            }
            Err(TestbedError::Usage(format!(
                "--peer-build {}: there is no bin/{program} in it; name the build folder of a Ceph tree",
                folder.display()
            )))
        };
        let crimson = folder.join("bin/crimson-osd");
        let (osd, flavour) = if crimson.is_file() {
            (crimson, Flavour::Crimson)
        } else {
            (file("ceph-osd")?, Flavour::Classic)
        };
        Ok(Self {
            mon: file("ceph-mon")?,
            osd,
            ceph: file("ceph")?,
            monmaptool: file("monmaptool")?,
            flavour,
            lib: Some(folder.join("lib")),
        })
    }

    /// The version line of the OSD.
    ///
    /// # Errors
    /// It does not run.
    pub fn version(&self) -> Result<String> {
        let said = Tool::new(self, &self.osd).arg("--version").run()?;
        Ok(said.lines().next().unwrap_or_default().trim().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(programs: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("bin")).unwrap();
        programs.iter().for_each(|p| std::fs::write(dir.path().join("bin").join(p), "").unwrap());
        dir
    }

    #[test]
    fn a_build_with_crimson_is_crimson() {
        let dir = build(&["ceph-mon", "ceph-osd", "crimson-osd", "ceph", "monmaptool"]);
        let programs = Programs::find(Some(dir.path())).unwrap();
        assert_eq!((programs.flavour, programs.osd), (Flavour::Crimson, dir.path().join("bin/crimson-osd")));
    }

    #[test]
    fn an_incomplete_build_is_told() {
        let dir = build(&["ceph-mon", "ceph"]);
        let error = Programs::find(Some(dir.path())).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains("no bin/ceph-osd"), "{error}");
    }
}
