//! Who may connect to a testbed, and what protects its connections: the keys in its folder.

use std::net::SocketAddr;
use std::path::Path;
use std::time::SystemTime;

use carmine_auth::{Entity, Entry, Key, Keyring};
use carmine_client::{Access, Credentials};
use carmine_types::{AuthKind, MsMode, OsdId, UTime};
use carmine_wire::EntityType;
use fs_err as fs;

use crate::error::{Result, failed, refuse};
use crate::files;
use crate::layout::Layout;
use crate::plan::Plan;
use crate::spec::TestbedSpec;
use crate::testbed::mon_addrs;

/// What an OSD may do, as Ceph gives it.
pub(crate) const CAPS_OF_OSD: [(&str, &str); 3] =
    [("mon", "allow profile osd"), ("mgr", "allow profile osd"), ("osd", "allow *")];
/// What the manager may do.
const CAPS_OF_MGR: [(&str, &str); 3] = [("mon", "allow profile mgr"), ("osd", "allow *"), ("mds", "allow *")];
/// What the administrator may do.
const CAPS_OF_ADMIN: [(&str, &str); 4] =
    [("mon", "allow *"), ("osd", "allow *"), ("mgr", "allow *"), ("mds", "allow *")];
/// What monitors may do.
const CAPS_OF_MON: [(&str, &str); 1] = [("mon", "allow *")];

/// Who runs a testbed.
pub(crate) fn admin() -> Entity {
    Entity::new(EntityType::CLIENT, "admin")
}

impl TestbedSpec {
    /// Fails if connections cannot be protected as asked for.
    pub(crate) fn check_modes(&self) -> Result<()> {
        refuse!(
            self.ms_mode == MsMode::Secure && self.auth == AuthKind::None,
            "--ms-mode secure: its keys come with --auth cephx, which a testbed gets when it is made; this one has --auth none"
        );
        Ok(())
    }
}

/// An OSD as an entity.
pub(crate) fn entity_of(osd: OsdId) -> Entity {
    Entity::new(EntityType::OSD, osd.0.to_string())
}

/// Makes the keys of a new testbed: one file with all for its monitors, and one for each who has a key.
pub(crate) fn make_keys(layout: &Layout, plan: &Plan) -> Result<()> {
    if plan.auth == AuthKind::None {
        return Ok(());
    }
    let now = UTime::from_unix(SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default());
    let entry = |caps: &[(&str, &str)]| -> Result<Entry> {
        let key = Key::random(now).map_err(|e| failed!("a new key: {e}"))?;
        let caps = caps.iter().map(|(service, text)| ((*service).to_owned(), (*text).to_owned()));
        Ok(Entry { key, caps: caps.collect() })
    };
    let mut all = Keyring::default();
    all.0.insert(Entity::new(EntityType::MON, ""), entry(&CAPS_OF_MON)?);
    all.0.insert(admin(), entry(&CAPS_OF_ADMIN)?);
    all.0.insert(Entity::new(EntityType::MGR, "x"), entry(&CAPS_OF_MGR)?);
    for osd in plan.osd_ids() {
        all.0.insert(entity_of(osd), entry(&CAPS_OF_OSD)?);
    }
    for (entity, entry) in all.0.iter().filter(|(entity, _)| entity.kind != EntityType::MON) {
        let own = Keyring([(entity.clone(), entry.clone())].into());
        files::write_private(&layout.keyring(entity), own.text().as_bytes())?;
    }
    files::write_private(&layout.mon_keyring(), all.text().as_bytes())
}

/// The keys with which a testbed's monitor begins; `None`: nobody is asked for one.
///
/// # Errors
/// They cannot be read.
pub fn mon_keyring(layout: &Layout, plan: &Plan) -> Result<Option<Keyring>> {
    match plan.auth {
        AuthKind::None => Ok(None),
        AuthKind::Cephx => keyring(&layout.mon_keyring()).map(Some),
    }
}

/// How the cluster of a folder is reached by those who run it: as `client.admin`.
///
/// # Errors
/// The monitor has not said yet where it is, or the key cannot be read.
pub fn access(layout: &Layout, plan: &Plan) -> Result<Access> {
    let mons = mon_addrs(layout)
        .ok_or_else(|| failed!("the monitor of {} has no address yet", layout.dir().display()))?;
    access_at(layout, plan, mons)
}

/// The same, where the monitors' addresses are known.
pub(crate) fn access_at(layout: &Layout, plan: &Plan, mons: Vec<SocketAddr>) -> Result<Access> {
    access_as(layout, plan, &admin(), mons)
}

/// How an OSD reaches its cluster.
///
/// # Errors
/// Its key cannot be read.
pub fn access_of_osd(layout: &Layout, plan: &Plan, osd: OsdId, mons: Vec<SocketAddr>) -> Result<Access> {
    access_as(layout, plan, &entity_of(osd), mons)
}

fn access_as(layout: &Layout, plan: &Plan, entity: &Entity, mons: Vec<SocketAddr>) -> Result<Access> {
    let credentials = match plan.auth {
        AuthKind::None => None,
        AuthKind::Cephx => Some(credentials(&layout.keyring(entity), entity)?),
    };
    Ok(Access { mons, credentials, modes: plan.ms_mode.into() })
}

/// An entity's key in a keyring.
pub(crate) fn credentials(path: &Path, entity: &Entity) -> Result<Credentials> {
    let entry = keyring(path)?.0.remove(entity);
    let entry = entry.ok_or_else(|| failed!("{} has no key of {entity}", path.display()))?;
    Ok(Credentials { entity: entity.clone(), key: entry.key })
}

fn keyring(path: &Path) -> Result<Keyring> {
    let text = zeroize::Zeroizing::new(fs::read_to_string(path)?);
    Keyring::parse(&text).map_err(|e| failed!("{}: {e}", path.display()))
}
