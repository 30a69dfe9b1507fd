//! The limit of a load: one decision table, of which the first row that holds gives the verdict.

mod curves;
mod figures;
mod table;

use serde::{Deserialize, Serialize};

use crate::window::Window;

pub use curves::{LevelCurve, Suspicion, curves, level};
pub(crate) use figures::{Facts, Figure};
pub use table::page;
pub(crate) use table::{DISTURBED, RAW_WRONG, UNEVEN};

carmine_types::words! {
    /// The limiter of a point; [`crate::words`] says what each means.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "UPPERCASE")]
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
        Unknown = "UNKNOWN",
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
        /// CPUs that the generator used of those it may use. `None` for our own generator: its idle threads may spin.
        pub client_cpus: Option<(f64, u32)>,
        /// Operations that the load keeps in flight.
        pub depth: f64,
        /// For open-loop load: it kept up with its schedule.
        pub rate_met: Option<bool>,
        /// CPUs that the OSDs were given; 0 if that is not known.
        pub allocated_cores: f64,
        /// The stores keep data on a drive, which a baseline can be taken of.
        pub on_drive: bool,
        /// Of the raw baselines, in percent.
        pub percent_of_device: Option<f64>,
        pub percent_of_messenger: Option<f64>,
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

/// Names what limited the load of a window, says why, and what to try next.
pub fn verdict(window: &Window, evidence: &Evidence) -> Verdict {
    Facts::of(window, evidence).verdict()
}

impl Facts {
    /// The first row that holds. The last has no conditions.
    pub(crate) fn verdict(&self) -> Verdict {
        let row =
            table::ROWS.iter().find(|row| row.holds(self)).unwrap_or(&table::ROWS[table::ROWS.len() - 1]);
        let mut reason = row.reason(self);
        if let (Limiter::Client | Limiter::Qd | Limiter::Unknown, Some(more)) = (row.limiter, &self.more_load)
        {
            let gain = more.gain_percent();
            let word = match row.limiter {
                Limiter::Unknown => "more load was no help",
                _ if gain >= figures::GAIN_PERCENT => "confirmed",
                _ => "not refuted, as no client CPU was free",
            };
            let more_or_less = if gain < 0.0 { "less" } else { "more" };
            reason += &format!("; {word}: {} gave {:.0} % {more_or_less}", more.what, gain.abs());
        }
        Verdict { limiter: row.limiter, reason, next: row.next.to_owned() }
    }
}

#[cfg(test)]
mod tests;
