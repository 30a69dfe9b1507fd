//! The state of a testbed, for people and as JSON: its processes, and the cluster as its own protocol shows it (the map, and every
//! OSD's account of its PGs).

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use carmine_client::{Access, Client, Options};
use carmine_reactor::sync::oneshot;
use carmine_reactor::{Config, Group, PollPolicy, Shard, block_on};
use carmine_types::{MonKind, OsdId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::auth::{access, access_at};
use crate::ceph::{is_of_quorum, mon_state};
use crate::daemons::{Daemons, Lost};
use crate::error::{Result, fail_if, failed};
use crate::files;
use crate::folder::{BedKind, require};
use crate::layout::{Daemon, Layout};
use crate::output::note;
use crate::peer;
use crate::plan::Plan;
use crate::process::ProcessId;
use crate::testbed::{Event, StartOptions, http_addr, mon_addrs, require_plan};

/// Time for one process's answer about its state.
pub(crate) const LIMIT: Duration = Duration::from_secs(3);
/// Time for the answer to a question, which may read a whole store.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// The monitor listens already: its first map comes at once, or not at all.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// Pause between two looks.
const PAUSE: Duration = Duration::from_millis(20);
/// Buffers of the controller's reactor: it moves maps of some kilobytes.
const ARENA_BYTES: usize = 8 << 20;
/// It has a handful of operations in flight.
const RING_ENTRIES: u32 = 64;

/// A store's room for data, as its OSD reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    pub total_bytes: u64,
    pub used_bytes: u64,
    /// Room that data may still take; less than the difference, since the store keeps a reserve.
    pub free_bytes: u64,
}

carmine_types::words! {
    /// How full the monitor calls an OSD.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Fullness: "degree" {
        /// Worth a warning.
        Nearfull = "nearfull",
        /// No data is moved to it.
        Backfillfull = "backfillfull",
        /// Writes of clients wait.
        Full = "full",
    }
}

/// Parts of a store at which each level of [`Fullness::ALL`] begins.
pub(crate) type Ratios = [f32; 3];

impl Space {
    /// The level of fullness, if it has reached one, as the monitor judges what the OSD reports to it.
    pub(crate) fn fullness(&self, ratios: &Ratios) -> Option<Fullness> {
        // A store that takes no more data is full.
        let used = if self.free_bytes == 0 { self.total_bytes } else { self.used_bytes };
        let share = (used as f64 / self.total_bytes.max(1) as f64) as f32;
        let degrees = Fullness::ALL.iter().zip(ratios).rev();
        degrees.into_iter().find_map(|(degree, ratio)| (share >= *ratio).then_some(*degree))
    }
}

/// PGs of which an OSD is the primary.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PgCounts {
    /// All of them.
    pub total: u64,
    /// PGs that serve clients.
    pub active: u64,
    /// PGs whose replicas are all equal.
    pub clean: u64,
}

/// One OSD.
#[derive(Clone, Debug, Serialize)]
pub struct OsdStatus {
    /// Its number.
    pub id: u32,
    /// The running process.
    pub pid: Option<i32>,
    /// Up in the map.
    pub up: bool,
    /// Its address for clients, by the map.
    pub addr: Option<String>,
    /// Its address for other OSDs, if that is on another network.
    pub cluster_addr: Option<String>,
    /// Reactors it runs with.
    pub reactors: Option<u64>,
    /// PGs of which it is the primary.
    pub pgs: Option<PgCounts>,
    /// Room in its store.
    pub space: Option<Space>,
    /// How its reads and writes go to its drive; `None` for a store in memory.
    pub io_path: Option<String>,
    /// The level of its fullness by the ratios of the map; `None` if it has reached none.
    pub fullness: Option<Fullness>,
    /// Where it serves its metrics: `http://ADDRESS/metrics`.
    pub http: Option<String>,
    /// Its admin socket.
    pub admin_socket: Option<PathBuf>,
    /// CPUs that it is confined to, if it is a peer's.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cpus: Vec<usize>,
    /// Why it did not answer.
    pub problem: Option<String>,
    /// Its own account.
    pub detail: Option<Value>,
}

/// One monitor.
#[derive(Clone, Debug, Serialize)]
pub struct MonStatus {
    /// `mon`, or `mon.b`.
    pub name: String,
    /// The running process.
    pub pid: Option<i32>,
    /// Its address.
    pub addr: Option<String>,
    /// What a real one says it is: `leader` or `peon` in the quorum, else `electing`, `probing`, ….
    pub state: Option<String>,
}

/// A testbed, or a peer.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Its folder.
    pub dir: String,
    /// `running`, `stopped`, `degraded` (some processes are gone or some PG is not active) or `incomplete`.
    pub state: String,
    /// Process of the first monitor.
    pub mon_pid: Option<i32>,
    /// Its address.
    pub mon_addr: Option<String>,
    /// All monitors.
    pub mons: Vec<MonStatus>,
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
    /// PGs of a peer that are active and clean; `None` unless something runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pgs_clean: Option<u64>,
    /// The description of a peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<peer::About>,
    /// Everything that is wrong, for people.
    pub problems: Vec<String>,
    /// The plan, with its grid.
    pub plan: Plan,
}

impl Status {
    /// The accounts of the OSDs that answered.
    pub fn details(&self) -> impl Iterator<Item = &Value> {
        self.osds.iter().filter_map(|osd| osd.detail.as_ref())
    }
}

/// PGs whose acting set has this OSD, as their primaries among these OSDs report.
pub fn pgs_of<'a>(accounts: impl Iterator<Item = &'a Value>, osd: OsdId) -> Vec<String> {
    let told = accounts.filter_map(|account| account["pg_states"].as_array()).flatten();
    let has = |pg: &&Value| {
        pg["primary"] == true
            && pg["acting"].as_array().is_some_and(|acting| acting.iter().any(|own| *own == osd.0))
    };
    told.filter(has).filter_map(|pg| pg["pg"].as_str()).map(str::to_owned).collect()
}

/// Asks one OSD a question of its admin protocol (JSON); returns the answer (JSON).
pub fn ask_osd(layout: &Layout, osd: OsdId, question: &str) -> Result<String> {
    let plan = require_plan(layout)?;
    plan.require_osd(osd)?;
    let access = access(layout, &plan)?;
    let ask = async |_: &Shard, client: &Rc<Client>| client.admin(osd, question).await;
    with_client(&access, LIMIT, ANSWER_LIMIT, ask)?.map_err(|e| failed!("{e}"))
}

/// Looks at the testbed or the peer in a folder. Takes no lock and changes nothing.
pub fn status(kind: BedKind, layout: &Layout) -> Result<Status> {
    let plan = require(kind, layout)?;
    let pid = |daemon| -> Result<_> { Ok(ProcessId::running(layout, daemon)?.map(|id| id.pid)) };
    let mons = look_at_mons(&plan, layout)?;
    let has_mon = plan.joined.is_some() || mons.iter().any(|mon| mon.pid.is_some());
    let addrs = mon_addrs(layout).filter(|_| has_mon);
    let mut problems = Vec::new();
    let seen = match &addrs {
        None => Ok(Probe::default()),
        Some(_) if kind == BedKind::Peer => peer::look(layout, &plan),
        Some(addrs) => access_at(layout, &plan, addrs.clone()).and_then(|access| {
            with_client(&access, LIMIT, LIMIT, async |_, client| look(client, &plan).await)
        }),
    };
    let seen = seen.unwrap_or_else(|e| {
        problems.push(format!("the monitor does not answer: {e}"));
        Probe::default()
    });
    let mut osds = Vec::new();
    for id in plan.osd_ids() {
        let answer = seen.up.get(&id);
        let found = answer.and_then(|a| a.as_ref().ok());
        let pid = pid(Daemon::Osd(id))?;
        let space: Option<Space> = found.and_then(|answer| part(answer, "space"));
        osds.push(OsdStatus {
            id: id.0,
            pid,
            http: pid.and_then(|_| Some(http_addr(layout, id)?.to_string())),
            admin_socket: pid.map(|_| layout.admin_socket(id)).filter(|path| path.exists()),
            up: answer.is_some(),
            addr: seen.addrs.get(&id).map(|[public, _]| public.to_string()),
            cluster_addr: seen.cluster_addr(id).map(|addr| addr.to_string()),
            reactors: found.and_then(|answer| part(answer, "reactors")),
            pgs: found.and_then(|answer| part(answer, "pgs")),
            space,
            io_path: found.and_then(|answer| part(answer, "io_path")),
            fullness: space.and_then(|space| space.fullness(seen.ratios.as_ref()?)),
            cpus: plan.peer.iter().flat_map(|_| plan.osd_cpus(id)).collect(),
            problem: answer.and_then(|a| a.as_ref().err().cloned()),
            detail: found.cloned(),
        });
    }
    let runs = has_mon || osds.iter().any(|o| o.pid.is_some());
    let state = if !plan.complete {
        let command = kind.command();
        problems.push(format!(
            "an `up` was interrupted while it made this {kind}: `{command} destroy` removes it"
        ));
        "incomplete"
    } else if !runs {
        "stopped"
    } else {
        complain(&plan, layout, &osds, &mons, &seen, &mut problems);
        if problems.is_empty() { "running" } else { "degraded" }
    };
    let known = (seen.epoch > 0).then_some(&seen);
    Ok(Status {
        dir: layout.dir().display().to_string(),
        state: state.into(),
        mon_pid: mons.first().and_then(|mon| mon.pid),
        mon_addr: mons.first().and_then(|mon| mon.addr.clone()),
        mons,
        epoch: known.filter(|_| kind == BedKind::Testbed).map(|p| p.epoch),
        osds,
        full_ratio: known.and_then(|p| p.ratios?.last().copied()),
        pgs_total: known.map(|p| p.pgs),
        pgs: known.map(Probe::counts),
        pgs_clean: plan.peer.as_ref().filter(|_| runs).map(|_| seen.counts().clean),
        about: plan.peer.as_ref().map(|peer| peer::about(&plan, peer)).transpose()?,
        problems,
        plan,
    })
}

/// The monitors; real ones are asked what they are.
fn look_at_mons(plan: &Plan, layout: &Layout) -> Result<Vec<MonStatus>> {
    let is_real = plan.mon == MonKind::Ceph || plan.kind() == BedKind::Peer;
    let addrs = mon_addrs(layout).unwrap_or_default();
    let look = |mon: u8| -> Result<MonStatus> {
        let daemon = Daemon::Mon(mon);
        let pid = ProcessId::running(layout, daemon)?.map(|id| id.pid);
        let addr = addrs.get(usize::from(mon)).filter(|_| pid.is_some()).map(ToString::to_string);
        let state = pid.filter(|_| is_real).and_then(|_| mon_state(layout, mon));
        Ok(MonStatus { name: daemon.to_string(), pid, addr, state })
    };
    plan.mon_numbers().map(look).collect()
}

/// Lists what is wrong with a testbed that has running processes.
fn complain(
    plan: &Plan,
    layout: &Layout,
    osds: &[OsdStatus],
    mons: &[MonStatus],
    seen: &Probe,
    problems: &mut Vec<String>,
) {
    let known = seen.epoch > 0;
    let dead = |daemon: Daemon| match daemon {
        Daemon::Osd(osd) if layout.damaged(osd).exists() => damaged(layout, osd),
        _ => {
            let log = layout.log(daemon);
            let said = files::last_words(&log, 1);
            let why = said.split_once(" ERROR ").map(|(_, why)| format!(" ({why})")).unwrap_or_default();
            format!("{daemon} is dead{why}; see {}", log.display())
        }
    };
    problems.extend(plan.mon_numbers().zip(mons).filter_map(|(number, mon)| {
        if mon.pid.is_none() {
            return Some(dead(Daemon::Mon(number)));
        }
        let state = mon.state.as_deref().unwrap_or("silent");
        let is_outside = plan.mons > 1 && !is_of_quorum(state);
        is_outside.then(|| format!("{} is not in the quorum: it is {state}", mon.name))
    }));
    let has_mgr = plan.daemons().contains(&Daemon::Mgr);
    let mgr_runs = matches!(ProcessId::running(layout, Daemon::Mgr), Ok(Some(_)));
    problems.extend((has_mgr && !mgr_runs).then(|| dead(Daemon::Mgr)));
    problems.extend(osds.iter().filter_map(|osd| {
        let daemon = Daemon::Osd(OsdId(osd.id));
        match (osd.pid, &osd.problem) {
            (None, _) => Some(dead(daemon)),
            (Some(_), Some(why)) => Some(format!("{daemon} does not answer: {why}")),
            (Some(_), None) => (!osd.up && known).then(|| format!("{daemon} runs but is not up")),
        }
    }));
    let (PgCounts { active, clean, .. }, pgs) = (seen.counts(), seen.pgs);
    match seen.missing(plan, &[]).filter(|_| known && problems.is_empty()) {
        Some(missing) => problems.push(format!("waiting for {missing}")),
        None if known && active < pgs => problems.push(format!(
            "{active} of {pgs} PGs are active; ops of the others wait until enough of their OSDs are up"
        )),
        None if known && clean < pgs => {
            problems.push(format!("{} of {pgs} PGs have fewer copies than the pool's size", pgs - clean));
        }
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

/// Why an OSD that cannot read its metadata is not started, and what to do, for people.
pub fn damaged(layout: &Layout, osd: OsdId) -> String {
    let what = fs_err::read_to_string(layout.damaged(osd)).unwrap_or_default();
    format!(
        "{osd} cannot read its metadata and has ended itself ({}). Others have its data: make another OSD with `carmine osd add`, then \
         `carmine osd remove {}`. If all other copies of something are lost, `carmine osd start {} --accept-damage` serves \
         what it can read",
        what.trim(),
        osd.0,
        osd.0
    )
}

/// A part of an OSD's answer, if it has it.
fn part<T: DeserializeOwned>(answer: &Value, name: &str) -> Option<T> {
    serde_json::from_value(answer.get(name)?.clone()).ok()
}

/// The cluster as it was seen.
#[derive(Clone, Default, Debug)]
pub(crate) struct Probe {
    /// Epoch of the map; 0 if the monitor did not answer.
    pub(crate) epoch: u32,
    /// Up in the map, and the answer of each.
    pub(crate) up: BTreeMap<OsdId, std::result::Result<Value, String>>,
    /// The addresses of OSDs that are up, by the map: for clients, and for other OSDs.
    pub(crate) addrs: BTreeMap<OsdId, [SocketAddr; 2]>,
    /// PGs of all pools, by the map.
    pub(crate) pgs: u64,
    /// By the map.
    pub(crate) ratios: Option<Ratios>,
}

impl Probe {
    /// The sum over all OSDs that answered.
    pub(crate) fn counts(&self) -> PgCounts {
        let counts = self.up.values().flatten().filter_map(|answer| part::<PgCounts>(answer, "pgs"));
        counts.fold(PgCounts::default(), |sum, pgs| PgCounts {
            total: sum.total + pgs.total,
            active: sum.active + pgs.active,
            clean: sum.clean + pgs.clean,
        })
    }

    /// The address of an OSD for other OSDs, if that is on another network.
    fn cluster_addr(&self, osd: OsdId) -> Option<SocketAddr> {
        let [public, cluster] = self.addrs.get(&osd)?;
        (public.ip() != cluster.ip()).then_some(*cluster)
    }

    /// Filters `osds`: each that is returned is down or gives no answer.
    fn not_up(&self, osds: impl Iterator<Item = OsdId>) -> Vec<OsdId> {
        osds.filter(|osd| !matches!(self.up.get(osd), Some(Ok(_)))).collect()
    }

    /// Says, for people, what is missing until all OSDs but those that were given up are up with the same map and serve all PGs. PGs
    /// need not be clean where there are fewer OSDs than copies.
    pub(crate) fn missing(&self, plan: &Plan, lost: &[Lost]) -> Option<String> {
        let is_lost = |osd: &OsdId| lost.iter().any(|lost| lost.osd == *osd);
        let here: BTreeMap<&OsdId, _> = self.up.iter().filter(|(osd, _)| !is_lost(osd)).collect();
        // A cluster may have OSDs that have joined it, too.
        let up = plan.osd_ids().filter(|osd| here.contains_key(osd)).count();
        let (osds, counts) = (plan.osd_ids().count(), self.counts());
        if self.epoch == 0 {
            return Some("the monitor".into());
        }
        let down = plan.osd_ids().filter(|osd| !is_lost(osd) && !self.up.contains_key(osd));
        let down: Vec<OsdId> = down.collect();
        if !down.is_empty() {
            return Some(format!("OSDs: {up} of {osds} are up, not {}", names(&down)));
        }
        // An OSD that does not answer may have died without being missed yet.
        let silent =
            here.iter().filter_map(|(id, answer)| Some(format!("{id} ({})", answer.as_ref().err()?)));
        let silent: Vec<String> = silent.collect();
        if !silent.is_empty() {
            return Some(format!("an answer of {}", silent.join(", ")));
        }
        let behind = here.values().filter_map(|answer| answer.as_ref().ok());
        let behind = behind.into_iter().any(|osd| part(osd, "epoch") < Some(self.epoch));
        let can_be_clean = lost.is_empty() && osds >= usize::from(plan.pool.size);
        let ready = if can_be_clean { counts.active.min(counts.clean) } else { counts.active };
        let waits = behind || ready < self.pgs;
        waits.then(|| format!("PGs: {} of {} are active, {} clean", counts.active, self.pgs, counts.clean))
    }
}

/// Runs `work` with a client of this cluster, a monitor of which must send its map within `limit`; an operation may take `op_limit`.
pub(crate) fn with_client<R>(
    access: &Access,
    limit: Duration,
    op_limit: Duration,
    work: impl AsyncFnOnce(&Shard, &Rc<Client>) -> R,
) -> Result<R> {
    let options = Options { connect_timeout: limit, op_timeout: Some(op_limit), ..Options::default() };
    // It sleeps whenever it can, and does not use the testbed's CPUs.
    let config = Config {
        name: "probe".into(),
        poll: PollPolicy::Sleep,
        alien_threads: 0,
        arena_bytes_per_shard: ARENA_BYTES,
        ring_entries: RING_ENTRIES,
        ..Config::default()
    };
    block_on(config, async move |shard: Shard| {
        let client = Client::connect(&shard, access, options).await.map_err(|e| failed!("{e}"))?;
        let result = work(&shard, &client).await;
        client.shutdown();
        Ok(result)
    })
    .map_err(|e| failed!("cannot start a reactor: {e}"))?
}

fn names(osds: &[OsdId]) -> String {
    osds.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Waits until the OSDs that were started are up; with `all`, until all OSDs of the plan are up and all PGs are active and clean. An OSD
/// that ends, or is not up at `end`, is given up. `beside_others`: OSDs run that this start does not touch. Returns what else was
/// missing at `end`.
///
/// # Errors
/// The monitor ends or does not answer, or the start is cancelled.
pub(crate) fn wait_until_ready(
    plan: &Plan,
    (all, beside_others): (bool, bool),
    access: &Access,
    daemons: &mut Daemons,
    start: &mut StartOptions<'_>,
    end: Instant,
) -> Result<Option<String>> {
    let limit = end.saturating_duration_since(Instant::now()).min(CONNECT_LIMIT);
    with_client(access, limit, limit.min(LIMIT), async |shard, client| {
        let mut marked = 0;
        loop {
            daemons.give_up_ended()?;
            mark_down(client, &daemons.lost[marked..]).await;
            marked = daemons.lost.len();
            let found = look(client, plan).await;
            let late = found.not_up(daemons.osds());
            let missing = match all {
                true => found.missing(plan, &daemons.lost),
                false => (!late.is_empty()).then(|| format!("{} to be up", names(&late))),
            };
            // There is nothing to wait for where no OSD runs.
            let runs_an_osd = beside_others || daemons.osds().next().is_some();
            let Some(what) = missing.filter(|_| !all || runs_an_osd) else {
                return Ok(None);
            };
            fail_if!(start.cancel.load(Ordering::Relaxed), "interrupted");
            if Instant::now() > end {
                daemons.give_up_late(&late, start.limit);
                mark_down(client, &daemons.lost[marked..]).await;
                return Ok(found.missing(plan, &daemons.lost).filter(|_| all));
            }
            (start.events)(Event::Waiting(what));
            shard.sleep(PAUSE).await;
        }
    })?
}

/// Tells the monitor that these OSDs do not run, which saves the heartbeats' grace.
async fn mark_down(client: &Rc<Client>, lost: &[Lost]) {
    if lost.is_empty() {
        return;
    }
    let ids: Vec<String> = lost.iter().map(|lost| lost.osd.0.to_string()).collect();
    let command = json!({ "prefix": "osd down", "ids": ids }).to_string();
    if let Err(e) = client.mon_command(&command).await {
        // The other OSDs miss their heartbeats.
        note(&format!("note: the monitor was not told that {} do not run: {e}", ids.join(", ")));
    }
}

/// Looks once: the newest map that has arrived, then every OSD that is up; of a cluster that the OSDs of the plan have joined, only these,
/// and the PGs that they lead.
pub(crate) async fn look(client: &Rc<Client>, plan: &Plan) -> Probe {
    let Some(map) = client.osdmap() else { return Probe::default() };
    let addrs_of = |osd: OsdId| {
        let public = map.client_addr(osd)?.msgr2()?.sock?;
        let cluster = map.cluster_addrs.get(osd.0 as usize).and_then(|addrs| addrs.msgr2()?.sock);
        Some((osd, [public, cluster.unwrap_or(public)]))
    };
    let mut seen = Probe {
        epoch: map.epoch.0,
        pgs: map.pools.values().map(|pool| u64::from(pool.pg_num)).sum(),
        addrs: map.osds().filter_map(addrs_of).collect(),
        ratios: Some([map.nearfull_ratio, map.backfillfull_ratio, map.full_ratio]),
        ..Probe::default()
    };
    // All are asked at once: an OSD that hangs delays nobody else.
    let mut answers = Vec::new();
    // Others in a cluster with a real monitor may be classic ones, which do not know the question.
    let (own, others): (Vec<OsdId>, Vec<OsdId>) =
        map.osds().filter(|osd| map.is_up(*osd)).partition(|osd| plan.osd_ids().any(|own| own == *osd));
    for osd in own {
        let (tell, told) = oneshot::channel();
        let client = Rc::clone(client);
        client.shard().clone().spawn(Group::Admin, "ask", async move {
            let answer = match client.admin(osd, r#"{"prefix":"status"}"#).await {
                Ok(text) => {
                    serde_json::from_str(&text).map_err(|e| format!("its status cannot be read: {e}"))
                }
                Err(e) => Err(e.to_string()),
            };
            // Nobody waits any more if the look was abandoned.
            let _ = tell.send(answer);
        });
        answers.push((osd, told));
    }
    for (osd, told) in answers {
        seen.up.insert(osd, told.await.unwrap_or_else(|_| Err("the question was dropped".into())));
    }
    if plan.joined.is_some() || !others.is_empty() {
        seen.pgs = seen.counts().total;
    }
    seen
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
                addr: None,
                cluster_addr: None,
                reactors: None,
                pgs: None,
                space,
                io_path: None,
                fullness,
                http: None,
                admin_socket: None,
                cpus: Vec::new(),
                problem: None,
                detail: None,
            };
            let mut problems = Vec::new();
            let mon = MonStatus { name: "mon".into(), pid: Some(1), addr: None, state: None };
            complain(&plan, &layout, &[osd], &[mon], &Probe::default(), &mut problems);
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
