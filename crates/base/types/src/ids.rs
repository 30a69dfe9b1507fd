//! Identifiers of the cluster map: epochs, OSDs, placement groups.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::rjenkins::stable_mod;

/// "No OSD here" in up and acting sets (CRUSH_ITEM_NONE).
pub const NO_OSD: i32 = 0x7fff_ffff;

/// Version of the OSDMap. 0 means "no map yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of an OSD in the OSDMap, printed `osd.N`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OsdId(pub u32);

impl fmt::Display for OsdId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "osd.{}", self.0)
    }
}

impl OsdId {
    /// The id of a CRUSH device or up-set entry; `None` for buckets (negative) and for [`NO_OSD`].
    pub fn from_item(item: i32) -> Option<OsdId> {
        if item == NO_OSD { None } else { u32::try_from(item).ok().map(OsdId) }
    }
}

/// A placement group: pool and placement seed. Printed as Ceph does, the seed in hex: `1.7f`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgId {
    pub pool: i64,
    /// Placement seed, already folded to less than the pool's pg_num.
    pub ps: u32,
}

impl PgId {
    pub const fn new(pool: i64, ps: u32) -> PgId {
        PgId { pool, ps }
    }

    /// The PG in which an object of this hash lives while the pool has `pg_num` PGs.
    pub fn of_hash(pool: i64, hash: u32, pg_num: u32) -> PgId {
        PgId { pool, ps: stable_mod(hash, pg_num) }
    }
}

impl fmt::Display for PgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:x}", self.pool, self.ps)
    }
}

/// The shard of a PG of a replicated pool: there is only one (NO_SHARD).
pub const NO_SHARD: i8 = -1;

/// One copy's part of a placement group (spg_t): in an erasure-coded pool each member of the acting set holds another
/// shard; in a replicated pool it is always [`NO_SHARD`]. Printed as Ceph does: `1.7f`, or `1.7fs2` with a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpgId {
    pub pgid: PgId,
    pub shard: i8,
}

impl SpgId {
    /// The PG of a replicated pool.
    pub const fn replicated(pgid: PgId) -> SpgId {
        SpgId { pgid, shard: NO_SHARD }
    }
}

impl Default for SpgId {
    fn default() -> SpgId {
        SpgId::replicated(PgId::new(0, 0))
    }
}

impl From<PgId> for SpgId {
    fn from(pgid: PgId) -> SpgId {
        SpgId::replicated(pgid)
    }
}

impl fmt::Display for SpgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shard {
            NO_SHARD => self.pgid.fmt(f),
            shard => write!(f, "{}s{shard}", self.pgid),
        }
    }
}

/// The text is not a PG id of the form `1.7f`, or `1.7fs2` where it may have a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPgId(pub String);

impl fmt::Display for BadPgId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is not a PG id: expected POOL.SEED with the seed in hex, such as 1.7f", self.0)
    }
}

impl std::error::Error for BadPgId {}

impl FromStr for PgId {
    type Err = BadPgId;

    fn from_str(text: &str) -> Result<PgId, BadPgId> {
        let bad = || BadPgId(text.to_owned());
        let (pool, seed) = text.split_once('.').ok_or_else(bad)?;
        let pool = pool.parse().map_err(|_| bad())?;
        let ps = u32::from_str_radix(seed, 16).map_err(|_| bad())?;
        Ok(PgId { pool, ps })
    }
}

impl FromStr for SpgId {
    type Err = BadPgId;

    /// A PG without a shard is that of a replicated pool.
    fn from_str(text: &str) -> Result<SpgId, BadPgId> {
        let Some((pgid, shard)) = text.split_once('s') else { return text.parse().map(SpgId::replicated) };
        match shard.parse() {
            Ok(shard @ 0..) => Ok(SpgId { pgid: pgid.parse()?, shard }),
            _ => Err(BadPgId(text.to_owned())),
        }
    }
}

// Versions of PG log entries and ids of client requests.

/// Position in a PG's log: ordered by epoch, then version. Printed as Ceph does: `epoch'version`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Eversion {
    // The derived order depends on the order of these two fields.
    pub epoch: u32,
    pub version: u64,
}

impl Eversion {
    pub const ZERO: Eversion = Eversion { epoch: 0, version: 0 };

    pub const fn new(epoch: u32, version: u64) -> Eversion {
        Eversion { epoch, version }
    }
}

impl fmt::Display for Eversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}'{}", self.epoch, self.version)
    }
}

/// The effect of a PG log entry on its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogOp {
    /// The object exists after it.
    Modify,
    /// The object does not exist after it.
    Delete,
    /// Nothing: the request failed, or had no effect. It is kept so that a resend is answered the same.
    Error,
}

/// Identity of a client request, equal for all resends of it: the client's global id, its incarnation and
/// the transaction id from the message header. (The reqid field on the wire is always zero.)
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReqId {
    /// Global id of the client, from its connection.
    pub client: u64,
    pub inc: i32,
    pub tid: u64,
}

impl fmt::Display for ReqId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "client.{}.{}:{}", self.client, self.inc, self.tid)
    }
}

// Wall-clock time as Ceph writes it.

/// Seconds and nanoseconds since 1970. Wraps in 2106, as Ceph's does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UTime {
    pub sec: u32,
    /// Below 10^9 when we make it; a peer may send anything.
    pub nsec: u32,
}

impl UTime {
    pub const ZERO: UTime = UTime { sec: 0, nsec: 0 };

    /// From the time since 1970; seconds beyond 32 bits are cut off.
    pub fn from_unix(since_1970: Duration) -> UTime {
        UTime { sec: since_1970.as_secs() as u32, nsec: since_1970.subsec_nanos() }
    }

    /// The time since 1970.
    pub fn to_unix(self) -> Duration {
        Duration::from_secs(self.sec.into()) + Duration::from_nanos(self.nsec.into())
    }
}

impl fmt::Display for UTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}", self.sec, self.nsec)
    }
}

/// A scrub that ended: the PG's newest change then, and when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ScrubStamp {
    pub version: Eversion,
    pub time: UTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pg_id_prints_its_seed_in_hex_and_parses_back() {
        let pg = PgId::new(1, 0x7f);
        assert_eq!(pg.to_string(), "1.7f");
        assert_eq!("1.7f".parse(), Ok(pg));
        for bad in ["", "1", "1.", ".7", "1.g", "x.7", "1.7.8", "1.123456789"] {
            assert!(bad.parse::<PgId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn osd_id_excludes_buckets_and_the_empty_slot() {
        assert_eq!(OsdId::from_item(3), Some(OsdId(3)));
        assert_eq!(OsdId::from_item(-2), None);
        assert_eq!(OsdId::from_item(NO_OSD), None);
        assert_eq!(OsdId(4).to_string(), "osd.4");
    }

    #[test]
    fn a_shard_is_printed_only_where_there_are_several_and_parses_back() {
        let pg = PgId::new(1, 0x7f);
        assert_eq!(SpgId::from(pg).to_string(), "1.7f");
        assert_eq!(SpgId { pgid: pg, shard: 2 }.to_string(), "1.7fs2");
        for id in [SpgId::from(pg), SpgId { pgid: pg, shard: 2 }] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for bad in ["", "1.7fs", "1.7fs-1", "1.7fs128", "1.7fs2s3", "s2", "1.s2"] {
            assert!(bad.parse::<SpgId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn eversions_sort_by_epoch_first() {
        assert!(Eversion::new(2, 1) > Eversion::new(1, 9));
        assert!(Eversion::new(2, 2) > Eversion::new(2, 1));
        assert_eq!(Eversion::new(16, 5).to_string(), "16'5");
    }

    #[test]
    fn converts_both_ways() {
        let time = Duration::new(1_795_000_000, 987_654_321);
        assert_eq!(UTime::from_unix(time).to_unix(), time);
        assert_eq!(UTime { sec: 7, nsec: 5 }.to_string(), "7.000000005");
        assert_eq!(UTime { sec: 1, nsec: u32::MAX }.to_unix(), Duration::new(5, 294_967_295));
    }
}
