//! Where a result comes from: build, machine, drives and time. Figures of different ones are not compared unseen.

use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::drive::StoreFacts;
use crate::fio_json::ctime;

/// The text for a fact that is not known.
const UNKNOWN: &str = "unknown";

/// Where a result comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Origin {
    /// Version of `carmine`.
    pub version: String,
    /// Commit that `carmine` was built from, or `unknown`.
    pub commit: String,
    /// Files differed from that commit.
    pub dirty: bool,
    /// Name of the machine.
    pub host: String,
    /// Version of its kernel.
    pub kernel: String,
    /// Seconds since 1970 when the load was started, its prefill included.
    pub started_unix_s: u64,
    /// The drive of each OSD's data; none for stores in memory, and for a peer.
    pub drives: Vec<OsdDrive>,
}

/// What an OSD's data lie on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct OsdDrive {
    pub osd: u32,
    /// File or device.
    pub path: PathBuf,
    /// The kernel's names of the drives below it, or `unknown`.
    pub name: String,
    /// The maker's name for it.
    pub model: Option<String>,
}

impl Origin {
    /// Of this machine and this moment. `git_hash` is as the build notes it: empty outside a repository, and with `+` if files
    /// differed.
    #[must_use]
    pub fn here(version: &str, git_hash: &str, host: String, kernel: String, started_unix_s: u64) -> Origin {
        let (commit, dirty) = git_hash.strip_suffix('+').map_or((git_hash, false), |commit| (commit, true));
        let known = |text: &str| if text.is_empty() { UNKNOWN.to_owned() } else { text.to_owned() };
        let (version, commit) = (version.to_owned(), known(commit));
        let (host, kernel) = (known(host.trim()), known(kernel.trim()));
        Origin { version, commit, dirty, host, kernel, started_unix_s, drives: Vec::new() }
    }

    /// The same with the drives under these stores.
    #[must_use]
    pub fn on(self, stores: &[StoreFacts]) -> Origin {
        let drive = |store: &StoreFacts| OsdDrive {
            osd: store.osd,
            path: store.data.path.clone(),
            name: store.data.drive.name(),
            model: store.data.drive.model.clone(),
        };
        Origin { drives: stores.iter().map(drive).collect(), ..self }
    }

    /// False of results of versions that did not record it.
    #[must_use]
    pub fn is_known(&self) -> bool {
        !self.host.is_empty()
    }

    /// The commit, with `+` if files differed from it.
    #[must_use]
    pub fn build(&self) -> String {
        format!("{}{}", self.commit, if self.dirty { "+" } else { "" })
    }

    /// The drives, each once, such as `vda (Virtio)`; empty if none is known.
    #[must_use]
    pub fn drive_names(&self) -> String {
        let mut names: Vec<String> = Vec::new();
        for OsdDrive { name, model, .. } in &self.drives {
            let name = model.as_ref().map_or_else(|| name.clone(), |model| format!("{name} ({model})"));
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    }

    /// When the load was started, in UTC.
    #[must_use]
    pub fn started(&self) -> String {
        format!("{} UTC", ctime(self.started_unix_s))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Origin { version, host, kernel, .. } = self;
        write!(f, "carmine {version} ({}) on {host}, kernel {kernel}", self.build())?;
        let drives = self.drive_names();
        if drives.is_empty() { Ok(()) } else { write!(f, ", drives {drives}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(git_hash: &str) -> Origin {
        Origin::here("0.1.0", git_hash, "box\n".into(), "6.1".into(), 1_700_000_000)
    }

    #[test]
    fn a_build_has_a_commit_may_be_dirty_and_may_be_unknown() {
        assert_eq!((here("abc").build(), here("abc").dirty), ("abc".into(), false));
        assert_eq!(
            (here("abc+").commit, here("abc+").dirty, here("abc+").build()),
            ("abc".into(), true, "abc+".into())
        );
        assert_eq!((here("").build(), here("").host), ("unknown".into(), "box".into()));
    }

    #[test]
    fn it_is_said_in_a_line_and_drives_of_several_osds_once() {
        let mut store = StoreFacts::default();
        store.data.drive.drives = vec!["vda".into()];
        store.data.drive.model = Some("Virtio".into());
        let origin = here("abc+").on(&[store.clone(), StoreFacts { osd: 1, ..store }]);
        assert_eq!(origin.to_string(), "carmine 0.1.0 (abc+) on box, kernel 6.1, drives vda (Virtio)");
        assert_eq!(
            (origin.drives[1].osd, here("abc").to_string()),
            (1, "carmine 0.1.0 (abc) on box, kernel 6.1".into())
        );
        let back: Origin = serde_json::from_value(serde_json::to_value(&origin).unwrap()).unwrap();
        assert_eq!((back, Origin::default().is_known()), (origin, false));
    }
}
