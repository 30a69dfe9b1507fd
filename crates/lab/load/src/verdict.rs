//! The limit of a load: one decision table, of which the first row that holds gives the verdict.

mod figures;
mod table;

use serde::{Deserialize, Serialize};

use crate::window::Window;

pub(crate) use figures::{Facts, Figure};
pub use table::page;
pub(crate) use table::{DISTURBED, FOREIGN, RAW_WRONG, UNEVEN};

carmine_types::words! {
    /// The limiter of a point; [`crate::words`] says what each means.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Limiter: "limiter" {
        Osd = "OSD",
        Alien = "ALIEN",
        Client = "CLIENT",
        Device = "DEVICE",
        Net = "NET",
        Qd = "QD",
        Imbalanced = "IMBALANCED",
        Quota = "QUOTA",
        Contended = "CONTENDED",
        Shared = "SHARED",
        Wait = "WAIT",
        Unknown = "UNKNOWN",
    }
}

carmine_types::words! {
    /// A place where an operation's latency passes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Place: "place" {
        /// From decoded until its PG runs it.
        Queue = "in the queue of the PG's reactor",
        /// Checks and reads, those of the drive among them.
        Store = "in the object store, which reads the drive",
        /// A write until it is durable.
        Log = "in the store's log, which writes and flushes",
        /// Until the other copies have it, too.
        Replicas = "waiting for the other copies",
        Reply = "in writing the answer",
        /// The rest of the client's latency.
        Outside = "outside the OSDs (sockets, network, client)",
    }
}

carmine_types::defaults! {
    /// Facts that the verdict needs beside the window.
    #[derive(Clone, Debug, PartialEq, Deserialize)]
    #[serde(default)]
    pub struct Evidence {
        /// A CPU of the grid is shared with something else.
        pub shared: bool,
        /// Part of the window that the busiest generator thread was busy or waited for a CPU; `None` for in-process load,
        /// which has none.
        pub client_busy: Option<f64>,
        /// The load host that has this thread, if several hosts make the load.
        pub client_host: Option<String>,
        /// The load host that a quota stopped for longest, likewise.
        pub throttled_host: Option<String>,
        /// CPUs that the generator used of those it may use. `None` for our own generator: its idle threads may spin.
        pub client_cpus: Option<(f64, u32)>,
        /// Part of the window for which a CPU quota stopped the generator; `None` without a quota.
        pub client_throttled: Option<f64>,
        /// Operations of the OSDs' clients in the window that are the load's own.
        pub own_ops: f64,
        /// Operations that the load keeps in flight.
        pub depth: f64,
        /// For open-loop load: it kept up with its schedule.
        pub rate_met: Option<bool>,
        /// CPUs that the OSDs were given; 0 if that is not known.
        pub allocated_cores: f64,
        /// The stores keep data on a drive, which a baseline can be taken of.
        pub on_drive: bool,
        /// Of what the drive does at the depth at which it does most, in percent.
        pub percent_of_device_limit: Option<f64>,
        /// Of the raw baselines at the load's depth, in percent.
        pub percent_of_device: Option<f64>,
        pub percent_of_messenger: Option<f64>,
        /// Mean latency of an operation in µs, and the places where it passes, as far as they are known.
        pub latency_us: Option<f64>,
        pub places_us: Vec<(Place, f64)>,
        /// A short window with more load.
        pub more_load: Option<MoreLoad>,
    }
}

/// The gain of more load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoreLoad {
    /// Such as `numjobs 2` or `iodepth 64`.
    pub what: String,
    pub iops: f64,
    /// `iops` by those of the window.
    pub ratio: f64,
    /// The additional generator threads had client CPUs of their own.
    pub own_cpus: bool,
}

impl MoreLoad {
    fn gain_percent(&self) -> f64 {
        (self.ratio - 1.0) * 100.0
    }
}

/// The answer of the decision table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    pub limiter: Limiter,
    /// The limit of the load, as a clause with its figures.
    pub reason: String,
    /// The next thing to try.
    pub next: String,
}

/// Names what limited the load of a window, and says why, and what to try next.
pub fn verdict(window: &Window, evidence: &Evidence) -> Verdict {
    Facts::new(window, evidence).verdict()
}

impl Facts {
    /// The first row that holds. The last has no conditions.
    pub(crate) fn verdict(&self) -> Verdict {
        let row =
            table::ROWS.iter().find(|row| row.holds(self)).unwrap_or(&table::ROWS[table::ROWS.len() - 1]);
        let mut reason = row.reason(self);
        if let (Limiter::Client | Limiter::Qd | Limiter::Wait | Limiter::Unknown, Some(more)) =
            (row.limiter, &self.more_load)
        {
            let gain = more.gain_percent();
            let word = match row.limiter {
                Limiter::Wait | Limiter::Unknown => "more load was no help",
                _ if gain >= figures::GAIN_PERCENT => "confirmed",
                _ => "not refuted, as no client CPU was free",
            };
            let more_or_less = if gain < 0.0 { "less" } else { "more" };
            reason += &format!("; {word}: {} gave {:.0} % {more_or_less}", more.what, gain.abs());
        }
        Verdict { limiter: row.limiter, reason, next: row.next.to_owned() }
    }
}

/// A part of its CPUs that is used, from which OSDs or clients are at their limit.
const SATURATED: f64 = 0.90;
/// If OSDs use less than this part of their CPUs where the curve is level, most of those CPUs are idle.
const IDLE: f64 = 0.50;
/// Levels within this part of each other are the same.
const SAME: f64 = 0.10;
/// Points at the end of a curve that make a level.
const LEVEL_POINTS: usize = 3;

/// Stands below the decision table.
const CURVES_PAGE: &str = "\n## Curves that level off\n\
    IOPS against depth level off at the limit of something. Where the OSDs use less than 50 % of their CPUs at the level, they are \
    not the limit. If that holds for two or more arms, such as a store in memory and one on a disk, and their levels are within \
    10 %, the cause lies outside of the OSDs and is common to the arms. The suspect is the client if it uses a larger part of its \
    CPUs than the OSDs use of theirs (a thread of it can be saturated while others are idle), else NET.\n";

/// One arm at the level of its curve. CPUs are counted as `top` does, divided by 100 %: 860 % are 8.6.
#[derive(Clone, Debug)]
pub struct LevelCurve {
    pub arm: String,
    /// Of the level.
    pub iops: f64,
    pub osd_cpus_used: f64,
    /// That the OSDs were given.
    pub osd_cpus: f64,
    pub client_cpus_used: f64,
    pub client_cpus: f64,
}

/// The level at which a curve of IOPS, in order of rising load, ends: the mean of its last points within 10 % of the most.
/// `None` if those are fewer than three: the curve still rises, or has fallen.
pub fn level(iops: &[f64]) -> Option<f64> {
    let most = iops.iter().copied().fold(0.0, f64::max);
    let flat: Vec<f64> = iops.iter().rev().copied().take_while(|n| *n >= (1.0 - SAME) * most).collect();
    (flat.len() >= LEVEL_POINTS).then(|| flat.iter().sum::<f64>() / flat.len() as f64)
}

/// Looks for a limit outside of the OSDs in curves that level off, one of each arm: CLIENT or NET, as a suspicion, with its reason
/// in sentences. `None` if the OSDs of an arm may be the limit, or the arms level at rates of their own.
pub fn curves(levels: &[LevelCurve]) -> Option<Verdict> {
    let part = |used: f64, of: f64| if of > 0.0 { used / of } else { f64::NAN };
    let osds = |c: &LevelCurve| part(c.osd_cpus_used, c.osd_cpus);
    let clients = |c: &LevelCurve| part(c.client_cpus_used, c.client_cpus);
    let most = levels.iter().map(|c| c.iops).fold(0.0, f64::max);
    let together = levels.len() >= 2 && levels.iter().all(|c| c.iops >= (1.0 - SAME) * most);
    // A client at its limit needs no second arm as a witness.
    let full = levels.iter().all(|c| clients(c) >= SATURATED);
    if levels.is_empty() || !(together || full) || !levels.iter().all(|c| osds(c) < IDLE) {
        return None;
    }
    let limiter = if levels.iter().all(|c| clients(c) > osds(c)) { Limiter::Client } else { Limiter::Net };
    let each = levels.iter().map(|c| {
        format!(
            "{} levels off at {:.0} IOPS, while its OSDs use {:.1} of {:.0} CPUs and its clients {:.1} of {:.0}",
            c.arm, c.iops, c.osd_cpus_used, c.osd_cpus, c.client_cpus_used, c.client_cpus
        )
    });
    let each = each.collect::<Vec<_>>().join("; ");
    let common = if together { ", and what it was is common to these arms" } else { "" };
    let (who, next) = match limiter {
        Limiter::Client => (
            "the client, which uses the larger part of its CPUs",
            "repeat one point with twice the client CPUs, jobs and processes: if IOPS rise, the curves measured the client",
        ),
        _ => ("the network", "compare with `carmine baseline`, which measures the messenger without an OSD"),
    };
    let reason = format!("{each}. The OSDs were not the limit{common}. The suspect is {who}.");
    Some(Verdict { limiter, reason, next: next.to_owned() })
}

#[cfg(test)]
mod tests;
