//! Operation codes: mode | type | number.

pub const MODE_WRITE: u16 = 0x2000;
/// Type bits, and the types.
pub const TYPE_MASK: u16 = 0x0f00;
pub const TYPE_DATA: u16 = 0x0200;
pub const TYPE_PG: u16 = 0x0500;

macro_rules! ops {
    ($($name:ident = $value:literal $text:literal,)*) => {
        $(#[doc = $text] pub const $name: u16 = $value;)*

        /// The name of an operation, for errors and logs.
        pub fn name(code: u16) -> &'static str {
            match code {
                $($value => $text,)*
                _ => "unknown op",
            }
        }
    };
}

ops! {
    READ = 0x1201 "read",
    STAT = 0x1202 "stat",
    MAPEXT = 0x1203 "mapext",
    SPARSE_READ = 0x1205 "sparse-read",
    NOTIFY = 0x1206 "notify",
    NOTIFY_ACK = 0x1207 "notify-ack",
    ASSERT_VER = 0x1208 "assert-ver",
    LIST_WATCHERS = 0x1209 "list-watchers",
    LIST_SNAPS = 0x120a "list-snaps",
    OMAP_GET_KEYS = 0x1211 "omap-get-keys",
    OMAP_GET_VALS = 0x1212 "omap-get-vals",
    OMAP_GET_HEADER = 0x1213 "omap-get-header",
    OMAP_GET_VALS_BY_KEYS = 0x1214 "omap-get-vals-by-keys",
    OMAP_CMP = 0x1219 "omap-cmp",
    COPY_GET = 0x121e "copy-get",
    CHECKSUM = 0x121f "checksum",
    CMPEXT = 0x1220 "cmpext",
    WRITE = 0x2201 "write",
    WRITE_FULL = 0x2202 "writefull",
    TRUNCATE = 0x2203 "truncate",
    ZERO = 0x2204 "zero",
    DELETE = 0x2205 "delete",
    APPEND = 0x2206 "append",
    CREATE = 0x220d "create",
    ROLLBACK = 0x220e "rollback",
    WATCH = 0x220f "watch",
    OMAP_SET_VALS = 0x2215 "omap-set-vals",
    OMAP_SET_HEADER = 0x2216 "omap-set-header",
    OMAP_CLEAR = 0x2217 "omap-clear",
    OMAP_RM_KEYS = 0x2218 "omap-rm-keys",
    COPY_FROM = 0x221a "copy-from",
    SET_ALLOC_HINT = 0x2223 "set-alloc-hint",
    WRITE_SAME = 0x2226 "writesame",
    OMAP_RM_RANGE = 0x222c "omap-rm-range",
    COPY_FROM2 = 0x222d "copy-from2",
    GET_XATTR = 0x1301 "getxattr",
    GET_XATTRS = 0x1302 "getxattrs",
    CMP_XATTR = 0x1303 "cmpxattr",
    SET_XATTR = 0x2301 "setxattr",
    RM_XATTR = 0x2304 "rmxattr",
    CALL = 0x1401 "call",
    TMAP_UPDATE = 0x320a "tmapup",
    CACHE_PIN = 0x2224 "cache-pin",
    CACHE_UNPIN = 0x2225 "cache-unpin",
    CACHE_FLUSH = 0x821f "cache-flush",
    CACHE_EVICT = 0x8220 "cache-evict",
    CACHE_TRY_FLUSH = 0x8221 "cache-try-flush",
    HIT_SET_LS = 0x1503 "pg-hitset-ls",
    HIT_SET_GET = 0x1504 "pg-hitset-get",
    PGLS = 0x1501 "pgls",
    PGNLS_FILTER = 0x1506 "pgnls-filter",
    PGNLS = 0x1505 "pgnls",
    SCRUB_LS = 0x1507 "scrubls",
}
