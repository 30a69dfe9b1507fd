//! The axes that a plan can vary.

/// What values an axis takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A whole number in a range, or an expression that is rounded to one.
    Count { min: u64, max: u64 },
    /// CPUs: a whole number, or with a fraction down to a thousandth; or this word for no limit.
    CpusOr { max: u64, word: &'static str },
    /// As a count, but rounded to the nearest power of two.
    PowerOfTwo { max: u64 },
    /// Bytes: a number, a text such as `64K`, or an expression.
    Bytes,
    /// A number above 0.
    Float,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Any text; the command that takes it checks it.
    Text,
}

/// When an axis takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Another value needs another data folder.
    Layout,
    /// Another value needs a restart of the OSDs.
    Start,
    /// Another value needs another load only.
    Load,
    /// Says something about the point but changes nothing.
    Label,
}

/// One axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axis {
    /// Its name in plans and in `points.json`.
    pub name: &'static str,
    pub kind: Kind,
    pub role: Role,
    /// What it is, for `--list` and for errors.
    pub about: &'static str,
}

const fn row(name: &'static str, role: Role, kind: Kind, about: &'static str) -> Axis {
    Axis { name, kind, role, about }
}

const fn count(max: u64) -> Kind {
    Kind::Count { min: 1, max }
}

/// All axes, but for `peer_opt.*`.
pub const AXES: &[Axis] = &[
    row("osds", Role::Layout, count(1024), "OSD processes"),
    row("osds_per_device", Role::Layout, count(64), "OSDs that share a device, a slice each"),
    row("store", Role::Layout, Kind::Word(&["blue", "cyan", "null"]), "object store"),
    row("pool_size", Role::Layout, count(10), "replicas"),
    row("pgs", Role::Layout, Kind::PowerOfTwo { max: 65_536 }, "PGs of the pool, rounded to a power of two"),
    row("osd_size_bytes", Role::Layout, Kind::Bytes, "block file of each OSD"),
    row(
        "fill",
        Role::Layout,
        Kind::Count { min: 0, max: 90 },
        "percentage of the store that is written before",
    ),
    row(
        "age",
        Role::Layout,
        Kind::Count { min: 0, max: 1000 },
        "rounds of random writes of 64K before, each of as many bytes as are filled; the same in every store",
    ),
    row(
        "peer",
        Role::Layout,
        Kind::Word(&["none", "ceph", "ceph-tuned"]),
        "who is measured: none is Carmine",
    ),
    row(
        "peer_build",
        Role::Layout,
        Kind::Text,
        "folder of a Ceph build to be the peer, instead of the installed packages",
    ),
    row("reactors", Role::Start, count(256), "reactors of each OSD"),
    row("alien_threads", Role::Start, count(256), "alien threads of each OSD"),
    row("balance", Role::Start, Kind::Word(&["default", "osd", "socket", "l3"]), "placement strategy"),
    row("poll", Role::Start, Kind::Text, "poll policy: poll, adaptive, adaptive:MICROSECONDS, sleep"),
    row(
        "cpus",
        Role::Start,
        Kind::CpusOr { max: 4096, word: "no-limit" },
        "CPUs that each OSD may use; parts of one, such as 0.5, with confine = quota",
    ),
    row("confine", Role::Start, Kind::Word(&["none", "cpuset", "quota"]), "how `cpus` is enforced"),
    row(
        "smt",
        Role::Start,
        Kind::Word(&["off", "on"]),
        "reactors on whole cores only, or on both threads of half as many",
    ),
    row("osd_memory_bytes", Role::Start, Kind::Bytes, "memory of each OSD"),
    row(
        "flush_mode",
        Role::Start,
        Kind::Word(&["auto", "flush", "dsync", "none"]),
        "how the store blue makes writes durable",
    ),
    row(
        "device_class",
        Role::Start,
        Kind::Word(&["auto", "hdd", "ssd", "nvme"]),
        "class of the drives, for the store blue",
    ),
    row("prefer_deferred_bytes", Role::Start, Kind::Bytes, "writes of less go into the log of blue first"),
    row("data_cache_bytes", Role::Start, Kind::Bytes, "cache of data of each OSD, for the store blue"),
    row("readahead_bytes", Role::Start, Kind::Bytes, "what blue reads ahead of a stream"),
    row("discard", Role::Start, Kind::Word(&["off", "on"]), "the store blue discards freed space"),
    row("osd_wrap", Role::Start, Kind::Text, "command that starts each OSD, such as perf or numactl"),
    row("osd_env", Role::Start, Kind::Text, "NAME=VALUE in the OSDs' environment"),
    row("workload", Role::Load, Kind::Word(super::workload::NAMES), "load by the studies' names"),
    row("bs_bytes", Role::Load, Kind::Bytes, "bytes of an operation, instead of the workload's"),
    row("iodepth", Role::Load, count(16_384), "operations in flight of each job"),
    row(
        "jobs",
        Role::Load,
        count(1024),
        "generator threads (rados-bench: processes), each with its own connections",
    ),
    row("processes", Role::Load, count(1024), "processes that the jobs are dealt to (fio-rados, fio-rbd)"),
    row("size_bytes", Role::Load, Kind::Bytes, "bytes that the load spreads over"),
    row("volumes", Role::Load, count(1024), "rbd images that the load spreads over (fio-rbd)"),
    row("objects", Role::Load, count(1 << 22), "objects of 4 MiB that the load spreads over"),
    row("route", Role::Load, Kind::Word(&["direct", "single"]), "connections of the client"),
    row("rate_iops", Role::Load, Kind::Float, "arrivals per second (open loop)"),
    row(
        "rate_percent",
        Role::Load,
        Kind::Count { min: 0, max: 1000 },
        "arrivals in percent of the capacity; 0 measures the capacity, closed loop",
    ),
    row(
        "search_step",
        Role::Load,
        Kind::Count { min: 0, max: 40 },
        "step of the search for the highest rate under search_p99; 0 measures the capacity",
    ),
    row("arrivals", Role::Load, Kind::Word(&["fixed", "poisson"]), "open loop: evenly spaced or independent"),
    row("cache", Role::Load, Kind::Word(&["cold", "onode-warm", "cached"]), "state of the OSDs' caches"),
    row("client", Role::Load, Kind::Word(&["own", "fio-rbd", "fio-rados", "rados-bench"]), "load generator"),
    row(
        "profile",
        Role::Load,
        Kind::Word(&["none", "oncpu", "offcpu"]),
        "flamegraph of the OSDs, taken before the window where perf works",
    ),
    row("seconds", Role::Load, count(86_400), "length of the window, instead of the plan's runtime"),
    row("step", Role::Label, Kind::Count { min: 0, max: 10_000 }, "number of a step in a fixed order"),
];

/// Settings of a peer are axes, too: `peer_opt.NAME`.
const PEER_OPTION: Axis =
    row("peer_opt.*", Role::Layout, Kind::Text, "an option of the peer's configuration");

/// The axis of this name.
pub fn axis(name: &str) -> Option<Axis> {
    if name.strip_prefix("peer_opt.").is_some_and(|rest| !rest.is_empty()) {
        return Some(PEER_OPTION);
    }
    AXES.iter().find(|axis| axis.name == name).copied()
}
