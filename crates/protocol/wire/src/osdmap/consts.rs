//! Bits and numbers that occur inside an OSDMap.

/// `osd_state`: the id is in use.
pub const STATE_EXISTS: u32 = 1;
/// `osd_state`: the OSD is running, as far as the monitor knows.
pub const STATE_UP: u32 = 2;
/// `osd_state`: the monitor marked it out by itself.
pub const STATE_AUTOOUT: u32 = 4;
/// `osd_state`: never been in yet.
pub const STATE_NEW: u32 = 8;

/// `osd_state`: its store is so full that clients may not write.
pub const STATE_FULL: u32 = 0x10;
/// `osd_state`: its store is nearly full.
pub const STATE_NEARFULL: u32 = 0x20;
/// `osd_state`: its store is so full that no data may be moved to it.
pub const STATE_BACKFILLFULL: u32 = 0x40;

/// `osd_state`: all bits that tell how full a store is.
pub const STATES_FULL: u32 = STATE_FULL | STATE_NEARFULL | STATE_BACKFILLFULL;

/// `osd_state` bits and their names.
pub const STATE_NAMES: &[(u32, &str)] = &[
    (STATE_EXISTS, "exists"),
    (STATE_UP, "up"),
    (STATE_AUTOOUT, "autoout"),
    (STATE_NEW, "new"),
    (STATE_FULL, "full"),
    (STATE_NEARFULL, "nearfull"),
    (STATE_BACKFILLFULL, "backfillfull"),
    (0x80, "destroyed"),
    (0x100, "noup"),
    (0x200, "nodown"),
    (0x400, "noin"),
    (0x800, "noout"),
    (0x1000, "stop"),
];

/// OSD weight of an OSD that is fully in (16.16 fixed point).
pub const WEIGHT_IN: u32 = 0x1_0000;
/// OSD weight of an OSD that is out.
pub const WEIGHT_OUT: u32 = 0;
/// Primary affinity that never passes an OSD over (16.16 fixed point); also the value of an OSD without an entry.
pub const AFFINITY_MAX: u32 = 0x1_0000;

/// Flags of a fresh Pacific cluster: sortbitwise, recovery_deletes, purged_snapdirs, pglog_hardlimit.
pub const FLAGS_DEFAULT: u32 = 0x58_8000;
/// Map flag: client reads wait.
pub const FLAG_PAUSERD: u32 = 4;
/// Map flag: client writes wait.
pub const FLAG_PAUSEWR: u32 = 8;
/// Map flag: OSDs do not come up.
pub const FLAG_NOUP: u32 = 0x20;
/// Map flag: OSDs are not marked down.
pub const FLAG_NODOWN: u32 = 0x40;
/// Map flag: nobody goes out by itself.
pub const FLAG_NOOUT: u32 = 0x80;
/// Map flag: OSDs that boot do not come in.
pub const FLAG_NOIN: u32 = 0x100;
/// Map flag: no backfill goes on.
pub const FLAG_NOBACKFILL: u32 = 0x200;
/// Map flag: no recovery by the log goes on.
pub const FLAG_NORECOVER: u32 = 0x400;
/// Map flag: backfill is paused for PGs with enough copies.
pub const FLAG_NOREBALANCE: u32 = 0x4000;
/// Map flag: no scheduled scrub begins.
pub const FLAG_NOSCRUB: u32 = 0x800;
/// Map flag: no scheduled deep scrub begins.
pub const FLAG_NODEEP_SCRUB: u32 = 0x1000;
/// Map flag: removed snapshots are not trimmed.
pub const FLAG_NOSNAPTRIM: u32 = 0x20_0000;
/// Map flags and their names, in the order `osdmaptool` prints them; the former ones (nearfull, full, and bits 16 to
/// 18, which required releases) it does not print.
pub const FLAG_NAMES: &[(u32, &str)] = &[
    (FLAG_PAUSERD, "pauserd"),
    (FLAG_PAUSEWR, "pausewr"),
    (0x10, "pauserec"),
    (FLAG_NOUP, "noup"),
    (FLAG_NODOWN, "nodown"),
    (FLAG_NOOUT, "noout"),
    (FLAG_NOIN, "noin"),
    (FLAG_NOBACKFILL, "nobackfill"),
    (FLAG_NOREBALANCE, "norebalance"),
    (FLAG_NORECOVER, "norecover"),
    (FLAG_NOSCRUB, "noscrub"),
    (FLAG_NODEEP_SCRUB, "nodeep-scrub"),
    (0x2000, "notieragent"),
    (FLAG_NOSNAPTRIM, "nosnaptrim"),
    (0x8000, "sortbitwise"),
    (0x8_0000, "recovery_deletes"),
    (0x10_0000, "purged_snapdirs"),
    (0x40_0000, "pglog_hardlimit"),
];

/// `pg_pool.type` of a replicated pool.
pub const POOL_REPLICATED: u8 = 1;
/// `pg_pool.type` of an erasure-coded pool.
pub const POOL_ERASURE: u8 = 3;
/// `pg_pool.object_hash`: rjenkins, the only one in use.
pub const HASH_RJENKINS: u8 = 2;
/// `pg_pool.flags`: placement seeds are hashed with the pool id (every pool since 2013).
pub const POOL_HASHPSPOOL: u64 = 1;
/// `pg_pool.flags`: writes are refused.
pub const POOL_FULL: u64 = 2;
/// `pg_pool.flags`: it is full because its quota is reached.
pub const POOL_FULL_QUOTA: u64 = 0x400;
/// `pg_pool.flags`: an OSD is nearly full.
pub const POOL_NEARFULL: u64 = 0x800;
/// `pg_pool.flags`: an OSD is so full that no data may be moved to it.
pub const POOL_BACKFILLFULL: u64 = 0x1000;
/// `pg_pool.flags`: no scheduled scrub begins.
pub const POOL_NOSCRUB: u64 = 0x100;
/// `pg_pool.flags`: no scheduled deep scrub begins.
pub const POOL_NODEEP_SCRUB: u64 = 0x200;
/// `pg_pool.flags`: clients choose the snapshots of each write (`selfmanaged_snaps`).
pub const POOL_SELFMANAGED_SNAPS: u64 = 0x2000;
/// `pg_pool.flags`: snapshots are of the whole pool, and in the map (`pool_snaps`).
pub const POOL_POOL_SNAPS: u64 = 0x4000;
/// `pg_pool.flags`: not all of its PGs were active yet.
pub const POOL_CREATING: u64 = 0x8000;
/// Pool flags and their names, by bit, as Pacific prints them (it has no name for 0x10000, which is eio).
pub const POOL_FLAG_NAMES: &[(u64, &str)] = &[
    (POOL_HASHPSPOOL, "hashpspool"),
    (POOL_FULL, "full"),
    (0x4, "ec_overwrites"),
    (0x8, "incomplete_clones"),
    (0x10, "nodelete"),
    (0x20, "nopgchange"),
    (0x40, "nosizechange"),
    (0x80, "write_fadvise_dontneed"),
    (POOL_NOSCRUB, "noscrub"),
    (POOL_NODEEP_SCRUB, "nodeep-scrub"),
    (POOL_FULL_QUOTA, "full_quota"),
    (POOL_NEARFULL, "nearfull"),
    (POOL_BACKFILLFULL, "backfillfull"),
    (POOL_SELFMANAGED_SNAPS, "selfmanaged_snaps"),
    (POOL_POOL_SNAPS, "pool_snaps"),
    (POOL_CREATING, "creating"),
    (0x2_0000, "bulk"),
];

/// Release number of Pacific in `require_osd_release`.
pub const RELEASE_PACIFIC: u8 = 16;
/// Release number of Luminous in `require_min_compat_client`.
pub const RELEASE_LUMINOUS: u8 = 12;
/// "No change" in the release fields of an incremental.
pub const RELEASE_UNCHANGED: u8 = 0xff;

/// Name of a Ceph release by number (`12` is `luminous`); `unknown` when it has none here.
pub fn release_name(number: u8) -> &'static str {
    const NAMES: &str = "unknown argonaut bobtail cuttlefish dumpling emperor firefly giant hammer infernalis jewel kraken \
        luminous mimic nautilus octopus pacific quincy reef squid tentacle";
    NAMES.split(' ').nth(number.into()).unwrap_or("unknown")
}
