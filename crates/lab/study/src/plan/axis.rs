//! The axes that a plan can vary: the settings of a testbed, and what is not an option of `up`.

use carmine_load::{Arrivals, Route};
use carmine_testbed::spec::{Axis, Kind, Role, count, place_axes, tuning_axes};

const fn row(name: &'static str, role: Role, kind: Kind, about: &'static str) -> Axis {
    Axis { name, option: "", role, kind, about }
}

/// Axes that are not the option of `up` with the same value, but for `peer_opt.*`.
const OTHERS: &[Axis] = &[
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
    row("route", Role::Load, Kind::Word(Route::WORDS), "connections of the client"),
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
    row("arrivals", Role::Load, Kind::Word(Arrivals::WORDS), "open loop: evenly spaced or independent"),
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

/// All axes, but for `peer_opt.*`.
pub fn axes() -> impl Iterator<Item = &'static Axis> {
    place_axes().chain(tuning_axes()).chain(OTHERS)
}

/// Settings of a peer are axes, too: `peer_opt.NAME`.
const PEER_OPTION: Axis =
    row("peer_opt.*", Role::Layout, Kind::Text, "an option of the peer's configuration");

/// The axis of this name.
pub fn axis(name: &str) -> Option<Axis> {
    if name.strip_prefix("peer_opt.").is_some_and(|rest| !rest.is_empty()) {
        return Some(PEER_OPTION);
    }
    axes().find(|axis| axis.name == name).copied()
}
