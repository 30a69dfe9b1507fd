//! Names of the files in a testbed's folder.
//!
//! ```text
//! testbed.json      the plan, with a format number
//! ceph.conf         for stock Ceph clients: rados -c DIR/ceph.conf
//! keyring           all keys with which the monitors begin (`--auth cephx`); ceph.NAME.keyring the key of one: of `client.admin`,
//!                   `osd.0`, `mgr.x`; only their user may read them
//! lock              held (flock) by the command that starts, stops or removes the testbed
//! mon.log           log of the monitor; `mon.b.log` and `mon.c.log` of further ones
//! mgr.log           log of the manager beside a real monitor
//! mon/              the monitor's state; `mon.b/`, `mon.c/`
//! osd.N.log         log of OSD N
//! osd.N/            store of OSD N: `block` (or a link to the device), `db/` (or a link to where it lies), `block.wal` (a link
//!                   to the log if that has a device or file of its own), `damaged` (why it has ended itself, if it has)
//! device.N          block file that several OSDs share (`--osds-per-device`)
//! run/NAME.json     process id and start time of `mon`, `mon.b`, `mgr`, `osd.0`, …
//! run/confine.json  the control groups of the OSDs (`--confine`)
//! run/network       how the names of network namespaces begin (`--namespaces`)
//! run/relay.N.json  process of the relay of OSD N (`--net-delay-us`); beside it `relay.N.measured`, what it has measured, and `relay.N.log`
//! run/mon.addr      addresses of the monitors, a line each; the embedded one writes it once it listens
//! run/osd.N.http    address of the metrics of OSD N, written by itself once it serves them
//! osd.N.asok        admin socket of OSD N while it runs: ceph --admin-daemon PATH help
//! ```

use std::path::{Path, PathBuf};

use carmine_auth::Entity;
use carmine_types::OsdId;

use crate::error::{Result, fail_if, refuse};

/// Monitors that a testbed has, at most.
pub(crate) const MONS_MAX: u8 = 3;

/// A process of a testbed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Daemon {
    /// A monitor, by its number.
    Mon(u8),
    /// The manager beside a real monitor.
    Mgr,
    /// One OSD.
    Osd(OsdId),
}

impl Daemon {
    /// The first monitor, the only one of most testbeds.
    pub const MON: Daemon = Daemon::Mon(0);

    /// All monitors that a testbed can have.
    pub(crate) fn mons() -> impl Iterator<Item = Daemon> {
        (0..MONS_MAX).map(Daemon::Mon)
    }

    /// Its number, if it is a monitor.
    pub fn as_mon(self) -> Option<u8> {
        if let Self::Mon(mon) = self { Some(mon) } else { None }
    }

    /// Name of its program's file.
    pub fn program(self) -> &'static str {
        match self {
            Self::Mon(_) => "carmine-mon",
            Self::Mgr => "ceph-mgr",
            Self::Osd(_) => "carmine-osd",
        }
    }

    /// Its program in the folder of all of them.
    ///
    /// # Errors
    /// It is missing.
    pub(crate) fn program_in(self, folder: &Path) -> Result<PathBuf> {
        let path = folder.join(self.program());
        fail_if!(
            !path.is_file(),
            "{} is missing: the daemons must be in the same folder as carmine; `scripts/quickstart --build` builds all three \
             (or: cargo build --release -p carmine-cli -p carmine-osd-daemon -p carmine-mon-daemon)",
            path.display()
        );
        Ok(path)
    }
}

impl std::fmt::Display for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Self::MON => f.write_str("mon"),
            Self::Mon(mon) => write!(f, "mon.{}", mon_name(mon)),
            Self::Mgr => f.write_str("mgr"),
            Self::Osd(id) => write!(f, "osd.{}", id.0),
        }
    }
}

/// A monitor's name in its cluster: a, b or c.
pub(crate) fn mon_name(mon: u8) -> char {
    char::from(b'a' + mon)
}

/// Paths inside one testbed's folder. Always absolute, so that a daemon's command line names the folder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    dir: PathBuf,
}

impl Layout {
    /// The layout of `dir`, which need not exist yet.
    pub fn new(dir: &Path) -> Result<Self> {
        refuse!(dir.as_os_str().is_empty(), "--dir is empty: name a folder for the testbed");
        let dir = std::path::absolute(dir)?;
        // An existing folder is taken by its real name: two spellings of one folder are one testbed.
        let dir = dir.canonicalize().unwrap_or(dir);
        Ok(Self { dir })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
    /// A daemon's log.
    pub fn log(&self, daemon: Daemon) -> PathBuf {
        self.dir.join(format!("{daemon}.log"))
    }
    /// A daemon's process record.
    pub fn pid_file(&self, daemon: Daemon) -> PathBuf {
        self.run_dir().join(format!("{daemon}.json"))
    }
    /// A monitor's state folder.
    pub fn mon_dir(&self, mon: u8) -> PathBuf {
        self.dir.join(Daemon::Mon(mon).to_string())
    }
    /// The key of somebody.
    pub(crate) fn keyring(&self, entity: &Entity) -> PathBuf {
        self.dir.join(format!("ceph.{entity}.keyring"))
    }
    /// A block file that several OSDs share.
    pub fn device_file(&self, device: u32) -> PathBuf {
        self.dir.join(format!("device.{device}"))
    }
}

/// Files and folders by their names, in which `{id}` is an OSD's number.
macro_rules! paths {
    ($($(#[$doc:meta])+ $name:ident($($id:ident)?) $path:literal)+) => {
        impl Layout {
            $(
                $(#[$doc])+
                pub fn $name(&self $(, $id: OsdId)?) -> PathBuf {
                    self.dir.join(format!($path $(, $id = $id.0)?))
                }
            )+
        }
    };
}

paths! {
    /// The stored plan.
    plan() "testbed.json"
    /// Configuration for stock clients.
    ceph_conf() "ceph.conf"
    /// All keys with which the monitors begin.
    mon_keyring() "keyring"
    /// The lock file.
    lock() "lock"
    /// A peer's map of monitors.
    monmap() "monmap"
    /// An OSD's store folder.
    osd_dir(id) "osd.{id}"
    /// The block file of an OSD, or the link to its device.
    block(id) "osd.{id}/block"
    /// The folder of an OSD's RocksDB, or the link to it.
    db(id) "osd.{id}/db"
    /// The link to an OSD's log, if that has a device or file of its own.
    wal(id) "osd.{id}/block.wal"
    /// The link to the place that the log is moving to.
    wal_new(id) "osd.{id}/block.wal.new"
    /// Why an OSD has ended itself, and is not to be started again.
    damaged(id) "osd.{id}/damaged"
    /// The same, when it is to serve what it can read all the same.
    damage_accepted(id) "osd.{id}/damage-accepted"
    /// Folder of the process records.
    run_dir() "run"
    /// Record of the OSDs' control groups.
    confine_file() "run/confine.json"
    /// Record of the network namespaces.
    network_file() "run/network"
    /// Record of the process that delays an OSD's frames.
    relay_pid(id) "run/relay.{id}.json"
    /// What that process has measured.
    relay_measured(id) "run/relay.{id}.measured"
    /// Its log.
    relay_log(id) "run/relay.{id}.log"
    /// Addresses of the monitors.
    mon_addr() "run/mon.addr"
    /// Where an OSD writes the address of its metrics once it serves them.
    http_addr(id) "run/osd.{id}.http"
    /// An OSD's admin socket; there only while it runs.
    admin_socket(id) "osd.{id}.asok"
}
