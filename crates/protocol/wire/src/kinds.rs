//! Message types. Ceph uses none from 0x8000 on: those are Carmine's own (see `private`).

macro_rules! kinds {
    ($($name:ident = $value:literal,)*) => {
        $(pub const $name: u16 = $value;)*

        /// The name of a message type, for errors and logs.
        pub fn name(kind: u16) -> &'static str {
            match kind {
                $($value => stringify!($name),)*
                _ => "UNKNOWN",
            }
        }
    };
}

kinds! {
    PING = 2,
    MON_MAP = 4,
    MON_GET_MAP = 5,
    STATFS = 13,
    STATFS_REPLY = 14,
    MON_SUBSCRIBE = 15,
    MON_SUBSCRIBE_ACK = 16,
    AUTH = 17,
    AUTH_REPLY = 18,
    MON_GET_VERSION = 19,
    MON_GET_VERSION_REPLY = 20,
    OSD_MAP = 41,
    OSD_OP = 42,
    OSD_OP_REPLY = 43,
    WATCH_NOTIFY = 44,
    FS_MAP = 45,
    POOL_OP_REPLY = 48,
    POOL_OP = 49,
    MON_COMMAND = 50,
    MON_COMMAND_ACK = 51,
    LOG = 52,
    LOG_ACK = 53,
    GET_POOL_STATS = 58,
    GET_POOL_STATS_REPLY = 59,
    OSD_BACKOFF = 61,
    CONFIG = 62,
    OSD_PING = 70,
    OSD_BOOT = 71,
    OSD_FAILURE = 72,
    OSD_ALIVE = 73,
    OSD_MARK_ME_DOWN = 74,
    OSD_PG_TEMP = 78,
    OSD_BEACON = 79,
    COMMAND = 97,
    COMMAND_REPLY = 98,
    OSD_PG_CREATED = 116,
    OSD_PG_CREATE2 = 120,
    OSD_SCRUB2 = 121,
    MGR_OPEN = 0x700,
    MGR_MAP = 0x704,
    VERSION_NOTICE = 0x8000,
    REP_OP = 0x8001,
    REP_ACK = 0x8002,
    PG_QUERY = 0x8003,
    PG_NOTIFY = 0x8004,
    PG_REPAIR = 0x8005,
    PUSH_OBJECT = 0x8006,
    PG_ACTIVATE = 0x8007,
    PG_ACK = 0x8008,
    PG_READ = 0x8009,
    PG_DATA = 0x800a,
    PG_COMPLETE = 0x800b,
    PG_SCRUB = 0x800c,
    PG_SCRUB_MAP = 0x800d,
    PG_FETCH = 0x800e,
    PG_OBJECT = 0x800f,
    ROUTE = 0x8010,
    ROUTE_REPLY = 0x8011,
    OSD_STATS = 0x8020,
    OSD_DAMAGE = 0x8025,
    ADMIN = 0x8030,
    ADMIN_REPLY = 0x8031,
    PG_BACKFILL_SCAN = 0x8040,
    PG_BACKFILL_DIGEST = 0x8041,
    PG_BACKFILL_PROGRESS = 0x8042,
    PG_RESERVE = 0x8043,
    PG_STRAY = 0x8044,
    PG_LEASE = 0x8045,
    PG_LEASE_ACK = 0x8046,
    PG_RELEASE = 0x8047,
    PG_SCRUBBED = 0x8048,
}
