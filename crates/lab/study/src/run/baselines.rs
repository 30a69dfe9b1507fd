//! Baselines are measured in the same minutes as the points: one serves all equal loads for a while.

use std::path::PathBuf;

use crate::archive::{Config, Point};
use crate::plan::{Role, axis};

/// A baseline that is older than this says nothing about now.
const AGE_MAX_S: f64 = 600.0;

/// The baselines that were measured last.
#[derive(Default)]
pub(super) struct Baselines {
    taken: Vec<Taken>,
}

struct Taken {
    key: Config,
    at_unix_s: f64,
    file: PathBuf,
}

/// What a baseline depends on: the load's shape and where its data lies.
fn key(point: &Point) -> Config {
    let shapes =
        |name: &str| matches!(name, "workload" | "bs_bytes" | "iodepth" | "jobs" | "cpus" | "confine");
    let layout = |name: &str| axis(name).is_some_and(|axis| axis.role == Role::Layout);
    let wanted = point.config.0.iter().filter(|(name, _)| shapes(name) || layout(name));
    Config(wanted.map(|(name, value)| (name.clone(), value.clone())).collect())
}

impl Baselines {
    /// One that was taken for the same load a short while ago.
    pub(super) fn fresh(&self, point: &Point, now_unix_s: f64) -> Option<&PathBuf> {
        let key = key(point);
        let fits = |taken: &&Taken| taken.key == key && (now_unix_s - taken.at_unix_s).abs() <= AGE_MAX_S;
        self.taken.iter().rev().find(fits).map(|taken| &taken.file)
    }

    /// Remembers one.
    pub(super) fn add(&mut self, point: &Point, now_unix_s: f64, file: PathBuf) {
        let key = key(point);
        self.taken.retain(|taken| taken.key != key);
        self.taken.push(Taken { key, at_unix_s: now_unix_s, file });
    }
}
