//! One run: there are faults for a while, then none; then everything must be healed within a bound of virtual time.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use carmine_client::{Client, Pool};
use carmine_reactor::sim::SimStuck;
use carmine_types::{OsdId, PgId};
use carmine_wire::osdmap::PgPool;
use serde::Serialize;
use serde_json::Value;

use crate::chaos::Chaos;
use crate::check::{Fault, check};
use crate::cluster::{POOL, POOL_ID, Shape};
use crate::load::{self, OBJECTS, object_name};

/// Faults of a run, at least and at most.
const FAULTS: std::ops::Range<u32> = 8..32;
/// Virtual time after the last fault in which every request must be answered, and every PG be active and clean.
const BOUND: Duration = Duration::from_secs(60);

/// Virtual time in which the monitor removes surplus members of a PG.
const SETTLED: Duration = Duration::from_secs(15);
/// Virtual time for repairing data that nobody has read.
const REPAIR: Duration = Duration::from_secs(30);

/// The result of a seed.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    pub seed: u64,
    /// `None`: the seed passed.
    pub error: Option<String>,
    pub faults: usize,
    pub requests: usize,
    pub answered: usize,
    /// Virtual time from the last fault until every PG was clean.
    pub healed_ms: f64,
    pub virtual_ms: f64,
    /// The faults, and the requests that show what is wrong.
    pub trace: Vec<String>,
}

thread_local! {
    /// Where the last panic of this thread was.
    static PANICKED: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// From now on a panic is a seed's outcome, and is reported only there.
pub fn keep_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|at| format!("at {}:{}", at.file(), at.line()));
        PANICKED.with(|panicked| *panicked.borrow_mut() = place);
    }));
}

/// Runs a seed. The same one gives the same outcome.
#[must_use]
pub fn run(seed: u64) -> Outcome {
    PANICKED.take();
    let mut chaos = Chaos::new(seed);
    let mut healed_ms = 0.0;
    let mut error = through(&mut chaos, &mut healed_ms).err();
    if let Some((error, place)) = error.as_mut().zip(PANICKED.take()) {
        *error += &format!(" ({place})");
    }
    chaos.note_ends();
    let history = std::mem::take(&mut *chaos.load.history.borrow_mut());
    let mut trace = std::mem::take(&mut chaos.trace);
    if let Some(Fault { object, what, calls }) = check(&history).into_iter().next() {
        let what = format!("object {}: {what}", object_name(object));
        trace.push(format!("{what} and before it:"));
        trace.extend(calls);
        error = Some(error.map_or_else(|| what.clone(), |error| format!("{what}; {error}")));
    }
    let first_error = chaos.load.errors.borrow().first().cloned();
    Outcome {
        seed,
        error: error.or(first_error),
        faults: chaos.faults,
        requests: history.calls.len(),
        answered: history.answered(),
        healed_ms,
        virtual_ms: chaos.cluster.sim.now_ns() as f64 / 1e6,
        trace,
    }
}

fn through(chaos: &mut Chaos, healed_ms: &mut f64) -> Result<(), String> {
    let words = |stuck: SimStuck| stuck.to_string();
    let faults = FAULTS.start + (chaos.cluster.sim.seed() % u64::from(FAULTS.end - FAULTS.start)) as u32;
    // The cluster comes up first, mostly.
    chaos.cluster.pass(Duration::from_millis(500 * (chaos.cluster.sim.seed() % 4))).map_err(words)?;
    for _ in 0..faults {
        chaos.step().map_err(words)?;
    }
    chaos.heal().map_err(words)?;
    let healed_ns = chaos.cluster.sim.now_ns();
    let end_ns = healed_ns + BOUND.as_nanos() as u64;
    let seen = Rc::<RefCell<String>>::default();
    let shape = chaos.cluster.shape;
    let osds = shape.osds;
    let own = Rc::clone(&seen);
    let (_, is_clean) = chaos.cluster.task("watcher", move |client| clean(client, osds, Rc::clone(&own)));
    let sim = &chaos.cluster.sim;
    chaos.cluster.run(|| is_clean.get() || sim.now_ns() > end_ns).map_err(words)?;
    if !is_clean.get() {
        chaos.note_ends();
        return Err(format!("not clean {BOUND:?} after everything was healed: {}", seen.borrow()));
    }
    *healed_ms = (sim.now_ns() - healed_ns) as f64 / 1e6;
    chaos.cluster.run(|| chaos.clients_are_done() || sim.now_ns() > end_ns).map_err(words)?;
    if !chaos.clients_are_done() {
        return Err(format!("requests have no answer {BOUND:?} after everything was healed"));
    }
    chaos.cluster.pass(SETTLED).map_err(words)?;
    let has_wounds = chaos.has_wounds();
    let (wrong, load) = (Rc::<RefCell<Option<String>>>::default(), Rc::clone(&chaos.load));
    let own = Rc::clone(&wrong);
    let (_, is_read) = chaos.cluster.task("reader", move |client| {
        let (load, wrong) = (Rc::clone(&load), Rc::clone(&own));
        async move {
            if let Ok(pool) = client.wait_pool(POOL).await {
                load::read_all(load, pool.clone(), u32::MAX).await;
                if has_wounds {
                    let _ = client.mon_command(r#"{"prefix":"osd repair","who":"all"}"#).await;
                    client.shard().sleep(REPAIR).await;
                }
                reach_pgs(&client).await;
                clean(Rc::clone(&client), osds, Rc::default()).await;
                *wrong.borrow_mut() = compare(&pool, shape).await.err();
            }
        }
    });
    chaos.cluster.run(|| is_read.get()).map_err(words)?;
    let answered_by_reader =
        chaos.load.history.borrow().calls.iter().rev().take(OBJECTS as usize).all(|c| c.answer.is_some());
    if !answered_by_reader {
        return Err("an object cannot be read at the end".to_owned());
    }
    wrong.take().map_or(Ok(()), Err)
}

/// Waits until all OSDs are up and all of their PGs are clean; `seen`: the reason why they were not when last looked at.
pub(crate) async fn clean(client: Rc<Client>, osds: u32, seen: Rc<RefCell<String>>) {
    let shard = client.shard().clone();
    loop {
        let mut why = String::new();
        for osd in (0..osds).map(OsdId) {
            if !client.view().is_some_and(|view| view.map().is_up(osd)) {
                why += &format!("{osd} is not up; ");
                continue;
            }
            match admin(&client, osd, r#"{"prefix":"status"}"#).await {
                Ok(status) if status["pgs"]["clean"] == status["pgs"]["total"] => {}
                Ok(status) => {
                    let unclean = status["pg_states"].as_array().into_iter().flatten();
                    let unclean = unclean.filter(|pg| pg["primary"] == true && pg["state"] != "active+clean");
                    let words = unclean
                        .map(|pg| format!("{} {} {} {}", pg["pg"], pg["state"], pg["why"], pg["acting"]));
                    why += &format!("{osd}: {}; ", words.collect::<Vec<_>>().join(", "));
                }
                Err(error) => why += &format!("{error}; "),
            }
        }
        if why.is_empty() {
            return;
        }
        *seen.borrow_mut() = why;
        shard.sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until the pool has as many PGs as it is to have, where they belong. It gets there in small steps.
async fn reach_pgs(client: &Client) {
    let is_there = |pool: &PgPool| {
        (pool.pg_num, pool.pgp_num, pool.pg_num_pending)
            == (pool.pg_num_target, pool.pgp_num_target, pool.pg_num)
    };
    while !client.view().is_some_and(|view| view.map().pool(POOL_ID).is_some_and(is_there)) {
        client.shard().sleep(Duration::from_secs(1)).await;
    }
}

async fn admin(client: &Client, osd: OsdId, question: &str) -> Result<Value, String> {
    let text = client.admin(osd, question).await.map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| format!("{osd} answered {text}: {error}"))
}

/// All copies of each PG have the same objects.
async fn compare(pool: &Pool, shape: Shape) -> Result<(), String> {
    let (osds, size) = (shape.osds, usize::from(shape.size));
    let client = pool.client();
    client.wait_newest_map().await.map_err(|error| error.to_string())?;
    let mut copies = Vec::new();
    for osd in (0..osds).map(OsdId) {
        copies.push(admin(client, osd, r#"{"prefix":"pg_contents"}"#).await?);
    }
    let view = client.view().ok_or("there is no map")?;
    let pgs = view.map().pool(pool.id()).map_or(0, |pool| pool.pg_num);
    for pg in (0..pgs).map(|ps| PgId::new(pool.id(), ps)) {
        let members: Vec<OsdId> = view.mapping(pg).acting_osds().collect();
        if members.len() != size {
            return Err(format!("{pg} has the members {members:?}, not {size}"));
        }
        let of = |osd: OsdId| &copies[osd.0 as usize]["pgs"][pg.to_string()];
        for osd in &members {
            if of(*osd) != of(members[0]) {
                let (one, other) = (of(*osd), of(members[0]));
                return Err(format!("{pg}: {osd} has {one}, and {} has {other}", members[0]));
            }
        }
    }
    Ok(())
}
