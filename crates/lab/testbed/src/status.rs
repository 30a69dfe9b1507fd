//! The state of a testbed, for people and as JSON.

use std::path::PathBuf;
use std::time::Duration;

use carmine_types::OsdId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Result, failed, refuse};
use crate::layout::{Daemon, Layout};
use crate::plan::Plan;
pub use crate::probe::PgCounts;
use crate::probe::{self, Probe};
use crate::process::ProcessId;
use crate::testbed::{http_addr, mon_addr, require_plan};

/// Time for the running processes to answer.
const LIMIT: Duration = Duration::from_secs(3);

/// A store's room for data, as its OSD tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    pub total_bytes: u64,
    pub used_bytes: u64,
    /// Room that data may still take; less than the difference, for the store keeps something back.
    pub free_bytes: u64,
}

carmine_types::words! {
    /// How full the monitor calls an OSD.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub enum Fullness: "degree" {
        /// Worth a warning.
        Nearfull = "nearfull",
        /// No data is moved to it.
        Backfillfull = "backfillfull",
        /// Writes of clients wait.
        Full = "full",
    }
}

/// Parts of a store at which it is called each of [`Fullness::ALL`].
pub(crate) type Ratios = [f32; 3];

impl Space {
    /// How full it is, if it is; as the monitor judges what the OSD reports to it.
    pub(crate) fn fullness(&self, ratios: &Ratios) -> Option<Fullness> {
        // A store that takes no more data is full.
        let used = if self.free_bytes == 0 { self.total_bytes } else { self.used_bytes };
        let share = (used as f64 / self.total_bytes.max(1) as f64) as f32;
        let degrees = Fullness::ALL.iter().zip(ratios).rev();
        degrees.into_iter().find_map(|(degree, ratio)| (share >= *ratio).then_some(*degree))
    }
}

/// One OSD.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OsdStatus {
    /// Its number.
    pub id: u32,
    /// The running process.
    pub pid: Option<i32>,
    /// Up in the map.
    pub up: bool,
    /// Reactors it runs with.
    pub reactors: Option<u64>,
    /// PGs of which it is the primary.
    pub pgs: Option<PgCounts>,
    /// Room in its store.
    pub space: Option<Space>,
    /// How full that is by the ratios of the map; `None` if it is not.
    pub fullness: Option<Fullness>,
    /// Where it serves its metrics: `http://ADDRESS/metrics`.
    pub http: Option<String>,
    /// Its admin socket.
    pub admin_socket: Option<PathBuf>,
    /// Why it did not answer.
    pub problem: Option<String>,
    /// Its own account.
    pub detail: Option<Value>,
}

/// A testbed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    /// Its folder.
    pub dir: String,
    /// `running`, `stopped`, `degraded` (some processes are gone or some PG is not active) or `incomplete`.
    pub state: String,
    /// Process of the monitor.
    pub mon_pid: Option<i32>,
    /// Its address.
    pub mon_addr: Option<String>,
    /// Epoch of the map.
    pub epoch: Option<u32>,
    /// The OSDs.
    pub osds: Vec<OsdStatus>,
    /// Part of a store at which it is full: writes of clients wait from then on.
    pub full_ratio: Option<f32>,
    /// PGs of all pools.
    pub pgs_total: Option<u64>,
    /// PGs as their primaries see them.
    pub pgs: Option<PgCounts>,
    /// Everything that is wrong, for people.
    pub problems: Vec<String>,
    /// The plan, with its grid.
    pub plan: Plan,
}

/// The process of a daemon that runs.
pub(crate) fn pid(layout: &Layout, daemon: Daemon) -> Result<Option<i32>> {
    Ok(ProcessId::running(layout, daemon)?.map(|id| id.pid))
}

/// Time for the answer to a question, which may read a whole store.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// Asks one OSD a question of its admin protocol (JSON); returns the answer (JSON).
pub fn ask_osd(layout: &Layout, osd: OsdId, question: &str) -> Result<String> {
    let plan = require_plan(layout)?;
    refuse!(osd.0 >= plan.osds(), "{osd}: this testbed has OSDs 0 to {}", plan.osds() - 1);
    let addr = mon_addr(layout)
        .ok_or_else(|| failed!("the monitor of {} is not running", layout.dir().display()))?;
    probe::ask(addr, osd, question, ANSWER_LIMIT)
}

/// Looks at the testbed in a folder. Takes no lock and changes nothing.
pub fn status(layout: &Layout) -> Result<Status> {
    let plan = require_plan(layout)?;
    let mon_pid = pid(layout, Daemon::Mon)?;
    let addr = mon_addr(layout).filter(|_| mon_pid.is_some());
    let mut problems = Vec::new();
    let seen = match addr {
        None => Probe::default(),
        Some(addr) => probe::with_client(addr, LIMIT, LIMIT, async |_, client| probe::look(client).await)
            .unwrap_or_else(|e| {
                problems.push(format!("the monitor does not answer: {e}"));
                Probe::default()
            }),
    };
    let mut osds = Vec::new();
    for id in (0..plan.osds()).map(OsdId) {
        let answer = seen.up.get(&id);
        let found = answer.and_then(|a| a.as_ref().ok());
        let pid = pid(layout, Daemon::Osd(id))?;
        osds.push(OsdStatus {
            id: id.0,
            pid,
            http: pid.and_then(|_| Some(http_addr(layout, id)?.to_string())),
            admin_socket: pid.map(|_| layout.admin_socket(id)).filter(|path| path.exists()),
            up: answer.is_some(),
            reactors: found.and_then(|o| o.reactors),
            pgs: found.map(|o| o.pgs),
            space: found.and_then(|o| o.space),
            fullness: found.and_then(|o| o.space?.fullness(seen.ratios.as_ref()?)),
            problem: answer.and_then(|a| a.as_ref().err().cloned()),
            detail: found.map(|o| o.answer.clone()),
        });
    }
    let runs = mon_pid.is_some() || osds.iter().any(|o| o.pid.is_some());
    let state = if !plan.complete {
        problems
            .push("an `up` was interrupted while it made this testbed: `carmine destroy` removes it".into());
        "incomplete"
    } else if !runs {
        "stopped"
    } else {
        complain(&plan, layout, &osds, mon_pid, &seen, &mut problems);
        if problems.is_empty() { "running" } else { "degraded" }
    };
    let known = (seen.epoch > 0).then_some(&seen);
    Ok(Status {
        dir: layout.dir().display().to_string(),
        state: state.into(),
        mon_pid,
        mon_addr: addr.map(|a| a.to_string()),
        epoch: known.map(|p| p.epoch),
        osds,
        full_ratio: known.and_then(|p| p.ratios?.last().copied()),
        pgs_total: known.map(|p| p.pgs),
        pgs: known.map(Probe::counts),
        problems,
        plan,
    })
}

/// Lists what is wrong with a testbed of which something runs.
fn complain(
    plan: &Plan,
    layout: &Layout,
    osds: &[OsdStatus],
    mon_pid: Option<i32>,
    seen: &Probe,
    problems: &mut Vec<String>,
) {
    let known = seen.epoch > 0;
    let dead = |daemon: Daemon| format!("{daemon} is dead; see {}", layout.log(daemon).display());
    problems.extend(mon_pid.is_none().then(|| dead(Daemon::Mon)));
    problems.extend(osds.iter().filter_map(|osd| {
        let daemon = Daemon::Osd(OsdId(osd.id));
        match (osd.pid, &osd.problem) {
            (None, _) => Some(dead(daemon)),
            (Some(_), Some(why)) => Some(format!("{daemon} does not answer: {why}")),
            (Some(_), None) => (!osd.up && known).then(|| format!("{daemon} runs but is not up")),
        }
    }));
    let (active, pgs) = (seen.counts().active, seen.pgs);
    match seen.missing(plan).filter(|_| known && problems.is_empty()) {
        Some(missing) => problems.push(format!("waiting for {missing}")),
        None if known && active < pgs => problems.push(format!(
            "{active} of {pgs} PGs are active; ops of the others wait until all their OSDs are up"
        )),
        None => {}
    }
    let full = osds.iter().filter(|osd| osd.fullness == Some(Fullness::Full));
    problems.extend(full.filter_map(|osd| {
        let space = osd.space?;
        Some(format!(
            "osd.{} is full ({} of {} MiB are used), so the pools are full and writes wait: remove objects, or make the testbed \
             with a larger --osd-size",
            osd.id,
            space.used_bytes >> 20,
            space.total_bytes >> 20
        ))
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Wish;
    use carmine_topology::Topology;

    #[test]
    fn a_full_osd_is_a_problem_and_one_that_is_nearly_full_is_not() {
        let plan = Plan::new(&Wish::default(), &Topology::from_short("1x4x1").unwrap(), "f").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(folder.path()).unwrap();
        let of = |fullness| {
            let space = Some(Space { total_bytes: 64 << 20, used_bytes: 62 << 20, free_bytes: 2 << 20 });
            let osd = OsdStatus {
                id: 0,
                pid: Some(1),
                up: true,
                reactors: None,
                pgs: None,
                space,
                fullness,
                http: None,
                admin_socket: None,
                problem: None,
                detail: None,
            };
            let mut problems = Vec::new();
            complain(&plan, &layout, &[osd], Some(1), &Probe::default(), &mut problems);
            problems
        };
        assert!(of(None).is_empty() && of(Some(Fullness::Nearfull)).is_empty());
        let [said] = &of(Some(Fullness::Full))[..] else { panic!("one problem") };
        assert!(said.starts_with("osd.0 is full (62 of 64 MiB are used)"), "{said}");
    }

    #[test]
    fn degrees_are_those_of_the_map() {
        let ratios = [0.85, 0.90, 0.95];
        let of = |used: u64, free: u64| {
            Space { total_bytes: 100, used_bytes: used, free_bytes: free }.fullness(&ratios)
        };
        assert_eq!((of(0, 100), of(84, 16)), (None, None));
        assert_eq!((of(85, 15), of(90, 10)), (Some(Fullness::Nearfull), Some(Fullness::Backfillfull)));
        assert_eq!((of(95, 5), of(20, 0)), (Some(Fullness::Full), Some(Fullness::Full)));
    }
}
