//! Changes of the cluster map, as pure functions from a map and a wish to an incremental.

pub(crate) mod classes;
pub(crate) mod crush;
mod fullness;
pub(crate) mod gather;
pub(crate) mod group;
mod limits;
pub(crate) mod merge;
pub(crate) mod osd;
pub(crate) mod pg_num;
mod place;
pub(crate) mod pool;
pub(crate) mod pool_value;
pub(crate) mod profile;
pub(crate) mod quota;
pub(crate) mod snaps;
mod temps;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
mod upmap;

use std::collections::BTreeMap;

use carmine_types::{Epoch, Errno, OsdId, PgId, UTime, Uuid, errno};
use carmine_wire::addr::{EntityAddr, EntityAddrVec};
use carmine_wire::osdmap::{Incremental, OsdMap};

pub(crate) use classes::ClassEdit;
pub(crate) use crush::RuleEdit;
pub(crate) use group::Group;
pub(crate) use limits::FullState;
pub(crate) use merge::Merge;
pub(crate) use profile::Profile;
pub(crate) use quota::Quota;
pub(crate) use snaps::SnapWish;
pub(crate) use temps::Asked;
pub(crate) use tree::TreeEdit;
pub(crate) use upmap::Upmap;

/// Where an OSD process is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct OsdAddrs {
    /// For everybody.
    pub(crate) client: EntityAddrVec,
    /// For other OSDs.
    pub(crate) cluster: EntityAddrVec,
    /// For their heartbeats, on the cluster's network, …
    pub(crate) hb_back: EntityAddrVec,
    /// … and on the clients'.
    pub(crate) hb_front: EntityAddrVec,
}

/// A wish to change the map.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    /// An OSD process runs and can be reached.
    Boot { osd: OsdId, uuid: Uuid, addrs: OsdAddrs },
    /// The OSD process with these public addresses does not serve any longer; one that has booted since is not meant. If it is
    /// dead, nobody needs to wait for what it may still do.
    Down { osd: OsdId, addrs: EntityAddrVec, is_dead: bool },
    /// OSDs were up in these epochs for sure.
    UpThru { epochs: BTreeMap<OsdId, Epoch> },
    /// A new replicated pool; the defaults are those of the first pool.
    CreatePool {
        name: String,
        pg_num: Option<u32>,
        size: Option<u8>,
        rule: u8,
        values: Vec<(String, String)>,
    },
    /// All PGs of a pool were active.
    PoolCreated { pool: i64 },
    /// Removes a pool with its PGs.
    DeletePool { pool: i64 },
    /// Gives a pool another name.
    RenamePool { pool: String, to: String },
    /// Notes which application uses a pool; a second one only by force.
    EnableApp { pool: String, app: String, force: bool },
    /// Forgets that an application uses a pool.
    DisableApp { pool: String, app: String },
    /// Notes a value of an application that uses a pool, or with `None` forgets it.
    AppValue { pool: String, app: String, key: String, value: Option<String> },
    /// Changes the number of replicas.
    SetPool { pool: String, size: Option<u8>, min_size: Option<u8> },
    /// Changes another value of a pool, by its name.
    PoolValue { pool: String, var: String, value: String },
    /// Wishes another number of PGs, which the monitor then goes to in steps.
    PgNum { pool: String, wanted: i64 },
    /// Wishes that PGs are placed as if there were so many.
    PgpNum { pool: String, wanted: i64 },
    /// A step to what is wanted.
    PgStep { pool: i64, pg_num: u32, pgp_num: u32 },
    /// A step of a merge of its last PG into another one.
    Merge { pool: i64, merge: Merge },
    /// Keeps the autoscaler from all pools.
    NoAutoscale,
    /// Limits what a pool may hold.
    Quota { pool: String, quota: Quota },
    /// A pool holds as much as it may, or no longer.
    QuotaReached { pool: i64, full: bool },
    /// Makes, removes or forgets snapshots of a pool.
    Snap { pool: i64, wish: SnapWish },
    /// Makes or replaces an erasure code profile.
    SetProfile { name: String, profile: Profile, force: bool },
    /// Removes one.
    RemoveProfile { name: String },
    /// Changes the rules of the CRUSH map.
    Rule(RuleEdit),
    /// Changes the device classes.
    Class(ClassEdit),
    /// Calls OSDs down that may well run: they boot again.
    MarkDown { osds: Vec<OsdId> },
    /// An OSD has been down for so long that others are to have its data.
    AutoOut { osd: OsdId },
    /// Gives an OSD this weight (16.16) in the CRUSH map.
    CrushReweight { osd: OsdId, weight: u32 },
    /// Places a PG otherwise than CRUSH does.
    Upmap { pg: PgId, upmap: Upmap },
    /// How willingly this OSD leads, as a 16.16 number.
    PrimaryAffinity { osd: OsdId, affinity: u32 },
    /// Makes the number of an OSD known, whose store has this identity. It is in, and has no place in the CRUSH map yet.
    NewOsd { osd: OsdId, uuid: Uuid },
    /// Changes the CRUSH tree.
    Tree(TreeEdit),
    /// Removes an OSD that is down.
    Purge { osd: OsdId },
    /// Gives up what only this OSD has.
    Lost { osd: OsdId },
    /// Gives OSDs this weight (16.16): 0 is out, 0x10000 is in.
    Weight { osds: Vec<OsdId>, weight: u32 },
    /// Gives each of these OSDs, all of which are in, a weight of its own (16.16).
    Weights { weights: BTreeMap<OsdId, u32> },
    /// A primary asks for acting sets of PGs that it leads.
    PgTemp(Asked),
    /// The used and total space of an OSD's store.
    Fullness { osd: OsdId, used_bytes: u64, total_bytes: u64 },
    /// Sets and clears flags of the map.
    Flags { set: u32, clear: u32 },
    /// Sets or clears flags of some OSDs, CRUSH nodes and device classes.
    Group { group: Group, bits: u32, is_set: bool },
    /// Removes OSDs that are down from the list of OSDs; their places in the CRUSH map stay.
    RemoveOsds { osds: Vec<OsdId> },
    /// The end of the OSD ids.
    MaxOsd { max: u32 },
    /// Keeps a client out until then.
    Blocklist { addr: EntityAddr, until: UTime },
    /// Lets a client in again.
    Unblocklist { addr: EntityAddr },
    /// Clients of this release are to be able to read the map.
    MinCompatClient { release: String },
    /// OSDs are to be of this release at least.
    RequireOsds { release: String },
    /// An OSD of which this share is used is in this state.
    Ratio { state: FullState, ratio: f32 },
    /// Lets all clients in again.
    ClearBlocklist,
    /// Lets those in again whose time is over.
    ExpireBlocklist,
}

/// Why a change was refused: an errno and a sentence for people.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refusal {
    pub(crate) code: Errno,
    pub(crate) text: String,
}

pub(crate) fn refuse(code: i32, text: impl Into<String>) -> Refusal {
    Refusal { code: Errno(code), text: text.into() }
}

impl Change {
    /// The OSD that tells this of itself.
    fn osd(&self) -> Option<OsdId> {
        match self {
            Self::Boot { osd, .. } | Self::Down { osd, .. } | Self::Fullness { osd, .. } => Some(*osd),
            Self::PgTemp(asked) => Some(asked.leader),
            _ => None,
        }
    }

    /// The incremental that does it; `None` if the map already is as wished.
    pub(crate) fn plan(&self, map: &OsdMap, now: UTime) -> Result<Option<Incremental>, Refusal> {
        Ok(self.plan_alone(map, now)?.map(|inc| fullness::follow(map, inc)))
    }

    /// The same without what follows from how full OSDs are.
    fn plan_alone(&self, map: &OsdMap, now: UTime) -> Result<Option<Incremental>, Refusal> {
        match self {
            Self::Boot { osd, uuid, addrs } => osd::boot(map, *osd, *uuid, addrs, now),
            Self::Down { osd, addrs, is_dead } => Ok(osd::down(map, *osd, addrs, *is_dead, now)),
            Self::UpThru { epochs } => Ok(osd::up_thru(map, epochs, now)),
            Self::CreatePool { name, pg_num, size, rule, values } => {
                pool::create(map, name, (*pg_num, *size, *rule), values, now)
            }
            Self::PoolCreated { pool } => Ok(pool::created(map, *pool, now)),
            Self::DeletePool { pool } => pool::delete(map, *pool, now),
            Self::RenamePool { pool, to } => pool::rename(map, pool, to, now),
            Self::EnableApp { pool, app, force } => pool::enable_app(map, pool, app, *force, now),
            Self::DisableApp { pool, app } => pool::edit(map, pool, now, |pool| {
                pool.application_metadata.remove(app);
                Ok(())
            }),
            Self::AppValue { pool, app, key, value } => {
                pool::app_value(map, (pool, app), key, value.as_deref(), now)
            }
            Self::SetPool { pool, size, min_size } => pool::set(map, pool, *size, *min_size, now),
            Self::PoolValue { pool, var, value } => pool::edit(map, pool, now, |pool| {
                *pool = pool_value::with_value(pool, var, value)?;
                Ok(())
            }),
            Self::PgNum { pool, wanted } => pg_num::set(map, pool, *wanted, now),
            Self::PgpNum { pool, wanted } => pg_num::set_placed(map, pool, *wanted, now),
            Self::PgStep { pool, pg_num, pgp_num } => Ok(pg_num::step(map, *pool, (*pg_num, *pgp_num), now)),
            Self::Merge { pool, merge } => Ok(merge::plan(map, *pool, merge, now)),
            Self::NoAutoscale => Ok(pool::no_autoscale(map, now)),
            Self::Quota { pool, quota } => quota::set(map, pool, quota, now),
            Self::QuotaReached { pool, full } => Ok(quota::reached(map, *pool, *full, now)),
            Self::Snap { pool, wish } => snaps::plan(map, *pool, wish, now),
            Self::SetProfile { name, profile, force } => profile::set(map, name, profile, *force, now),
            Self::RemoveProfile { name } => Ok(profile::remove(map, name, now)),
            Self::Rule(edit) => crush::edit(map, edit, now),
            Self::Class(edit) => classes::edit(map, edit, now),
            Self::MarkDown { osds } => osd::mark_down(map, osds, now),
            Self::AutoOut { osd } => place::auto_out(map, *osd, now),
            Self::CrushReweight { osd, weight } => place::crush_reweight(map, *osd, *weight, now),
            Self::Upmap { pg, upmap } => upmap::set(map, *pg, upmap, now),
            Self::PrimaryAffinity { osd, affinity } => osd::set_affinity(map, *osd, *affinity, now),
            Self::NewOsd { osd, uuid } => place::new_osd(map, *osd, *uuid, now),
            Self::Tree(edit) => tree::edit(map, edit, now),
            Self::Purge { osd } => place::purge(map, *osd, now),
            Self::Lost { osd } => place::lost(map, *osd, now),
            Self::Weight { osds, weight } => {
                osd::set_weights(map, osds.iter().map(|osd| (*osd, *weight)).collect(), now)
            }
            Self::Weights { weights } => osd::set_weights(map, weights.clone(), now),
            Self::PgTemp(asked) => Ok(temps::ask(map, asked, now)),
            Self::Fullness { osd, used_bytes, total_bytes } => {
                Ok(fullness::set(map, *osd, *used_bytes, *total_bytes, now))
            }
            Self::Flags { set, clear } => Ok(flags(map, *set, *clear, now)),
            Self::Group { group, bits, is_set } => Ok(group::edit(map, group, *bits, *is_set, now)),
            Self::RemoveOsds { osds } => place::remove(map, osds, now),
            Self::MaxOsd { max } => place::set_max(map, *max, now),
            Self::Blocklist { addr, until } => Ok(blocklist(map, *addr, *until, now)),
            Self::MinCompatClient { release } => limits::min_compat_client(map, release, now),
            Self::RequireOsds { release } => limits::require_osds(map, release),
            Self::Ratio { state, ratio } => Ok(limits::ratio(map, *state, *ratio, now)),
            Self::Unblocklist { addr } => unblocklist(map, addr, now),
            Self::ClearBlocklist => Ok(keep_blocklisted(map, now, |_| false)),
            Self::ExpireBlocklist => Ok(keep_blocklisted(map, now, |until| until > now)),
        }
    }
}

fn flags(map: &OsdMap, set: u32, clear: u32, now: UTime) -> Option<Incremental> {
    let flags = (map.flags | set) & !clear;
    if flags == map.flags {
        return None;
    }
    let mut inc = Incremental::next(map, now);
    inc.new_flags = i32::from_ne_bytes(flags.to_ne_bytes());
    Some(inc)
}

/// A client that is kept out already keeps its time, as in Ceph.
fn blocklist(map: &OsdMap, addr: EntityAddr, until: UTime, now: UTime) -> Option<Incremental> {
    if is_listed(map, &addr) {
        return None;
    }
    let mut inc = Incremental::next(map, now);
    inc.new_blocklist.push((addr, until));
    Some(inc)
}

fn unblocklist(map: &OsdMap, addr: &EntityAddr, now: UTime) -> Result<Option<Incremental>, Refusal> {
    if !is_listed(map, addr) {
        return Err(refuse(errno::ENOENT, format!("{} isn't blocklisted", shown(addr))));
    }
    let mut inc = Incremental::next(map, now);
    inc.old_blocklist.push(*addr);
    Ok(Some(inc))
}

/// Removes all whose end is not as wished.
fn keep_blocklisted(map: &OsdMap, now: UTime, wanted: impl Fn(UTime) -> bool) -> Option<Incremental> {
    let over: Vec<EntityAddr> =
        map.blocklist.iter().filter(|(_, until)| !wanted(*until)).map(|(addr, _)| *addr).collect();
    if over.is_empty() {
        return None;
    }
    let mut inc = Incremental::next(map, now);
    inc.old_blocklist = over;
    Some(inc)
}

/// The address itself, not its host.
fn is_listed(map: &OsdMap, addr: &EntityAddr) -> bool {
    map.blocklist.iter().any(|(listed, _)| listed == addr)
}

/// `127.0.0.1:0/3710147553`, as Ceph prints addresses of any protocol.
pub(crate) fn shown(addr: &EntityAddr) -> String {
    let sock = addr.sock.map_or_else(|| "-".to_owned(), |sock| sock.to_string());
    format!("{sock}/{}", addr.nonce)
}
