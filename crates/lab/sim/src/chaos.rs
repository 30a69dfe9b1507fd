//! The faults of a run, drawn from its seed, and the end of all of them.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use carmine_reactor::sim::{NodeId, SimStuck};
use serde_json::json;

use crate::cluster::{Cluster, HEARTBEATS, PGS, POOL, Shape, name_of};
use crate::lag;
use crate::load::{self, Load};
use crate::model::BLOCK_TAG;
use crate::run;

const CLIENTS: u32 = 3;
/// Requests of each client, at least.
const REQUESTS: u32 = 60;
/// Virtual time in which an OSD that is cut off is called down, and another leads in its place.
const ALONE: Duration = Duration::from_secs(10);
/// Virtual time in which all copies become whole while all OSDs run.
const RECOVERED: Duration = Duration::from_secs(2);
/// Virtual time in which clients write what one OSD gets and another does not.
const DIVERGED: Duration = Duration::from_millis(200);
/// Virtual time in which PGs are active again after a change of the map.
const PEERED: Duration = Duration::from_secs(1);

/// The kinds of faults that a run may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Theme {
    /// OSDs leave and come back, and the pool's size changes.
    Members,
    /// One OSD's drive loses data, and cannot be read in places; the others' copies are complete enough to heal it.
    Wounds,
    /// Another pool takes all room that there is, and gives it back.
    Full,
    /// Logs are short, and replicas stand still while many writes are in flight.
    Lag,
}

/// A client's process.
struct Running {
    number: u32,
    node: NodeId,
    done: Rc<Cell<bool>>,
}

pub(crate) struct Chaos {
    pub(crate) cluster: Cluster,
    pub(crate) load: Rc<Load>,
    pub(crate) rng: fastrand::Rng,
    theme: Theme,
    /// The OSD with the bad drive.
    wounded: u32,
    stopped: BTreeSet<u32>,
    /// OSDs whose drives take no writes, or make none durable.
    failing: BTreeSet<u32>,
    /// A pool that takes all room, and the process that fills it.
    filler: Option<(String, NodeId)>,
    fillers: u32,
    is_cut: bool,
    clients: Vec<Running>,
    next_client: u32,
    /// The faults, with their virtual times.
    pub(crate) trace: Vec<String>,
    pub(crate) faults: usize,
}

impl Chaos {
    /// A cluster with all of its OSDs and clients started.
    pub(crate) fn new(seed: u64) -> Chaos {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0x5EED_FA17);
        let theme = match rng.u32(..8) {
            _ if lag::is_drawn(seed) => Theme::Lag,
            0 | 1 => Theme::Wounds,
            2 => Theme::Full,
            _ => Theme::Members,
        };
        let shape = match (theme, rng.u32(..3)) {
            (Theme::Lag, _) => lag::shape(&mut rng),
            (Theme::Full, _) => Shape::new(3, 3, 2, 8 << 20),
            (Theme::Wounds, _) => Shape::new(3, 3, 2, 16 << 20),
            (_, 0) => Shape::new(4, 2, 1, 16 << 20),
            (_, 1) => Shape::new(4, 3, 2, 16 << 20),
            _ => Shape::new(3, 3, 2, 16 << 20),
        };
        let mut chaos = Chaos {
            cluster: Cluster::new(seed, shape, HEARTBEATS),
            load: Rc::default(),
            wounded: rng.u32(..shape.osds),
            rng,
            theme,
            stopped: BTreeSet::new(),
            failing: BTreeSet::new(),
            filler: None,
            fillers: 0,
            is_cut: false,
            clients: Vec::new(),
            next_client: 0,
            trace: Vec::new(),
            faults: 0,
        };
        chaos.load.is_troubled.set(true);
        chaos.load.window.set(if theme == Theme::Lag { lag::WINDOW } else { load::WINDOW });
        chaos.load.pace.set(if theme == Theme::Lag { lag::PACE } else { load::RUSHES });
        if theme == Theme::Lag {
            (0..CLIENTS).for_each(|number| lag::part(&chaos.cluster, &format!("client.{number}"), seed));
        }
        chaos.load.history.borrow_mut().may_be_full = theme == Theme::Full;
        chaos.say(format!("{shape:?}, {theme:?}"));
        for osd in 0..shape.osds {
            let shards = 1 + chaos.rng.u16(..2);
            chaos.cluster.start(osd, shards);
        }
        (0..CLIENTS).for_each(|_| chaos.start_client());
        chaos
    }

    pub(crate) fn say(&mut self, what: String) {
        let ms = self.cluster.sim.now_ns() as f64 / 1e6;
        self.trace.push(format!("{ms:10.3} ms {what}"));
    }

    fn start_client(&mut self) {
        let number = self.next_client;
        self.next_client += 1;
        let load = Rc::clone(&self.load);
        let (node, done) = self.cluster.task(&format!("client.{number}"), move |client| {
            load::client(Rc::clone(&load), client, number, REQUESTS)
        });
        self.clients.push(Running { number, node, done });
    }

    /// Blocks of a drive went bad, perhaps without anybody having read them since.
    pub(crate) fn has_wounds(&self) -> bool {
        self.theme == Theme::Wounds
    }

    pub(crate) fn clients_are_done(&self) -> bool {
        self.clients.iter().all(|client| client.done.get())
    }

    /// One fault, or the end of one.
    ///
    /// # Errors
    /// A task panicked, or the monitor does not answer.
    pub(crate) fn step(&mut self) -> Result<(), SimStuck> {
        // Mostly in the middle of what the last fault began.
        let most_us = [20_000, 300_000, 1_500_000, 7_000_000][self.rng.usize(..4)];
        self.cluster.pass(Duration::from_micros(self.rng.u64(..most_us)))?;
        self.note_ends();
        self.faults += 1;
        if self.theme == Theme::Lag {
            return self.lag();
        }
        match self.rng.u32(..36) {
            0..=3 => self.kill(false),
            4 | 5 => self.kill(true),
            6..=9 => self.start_one(),
            10 => self.all_at_once(),
            11 | 12 => self.stop(),
            13 => self.go_on(),
            14 => self.cut_one_way(),
            15 => self.cut_off(),
            16 | 17 => self.mend(),
            18 => self.reset(),
            19 => {
                let (a, b) = (self.anybody(), name_of(self.osd()));
                self.delay(&a, &b);
            }
            20 => self.slow_drive(),
            21 => return self.kill_mon(),
            22 => self.kill_client(),
            23 => self.jump_clock(),
            24 => return self.leave_alone(),
            25 | 26 => self.fail_drive(),
            27 => self.mend_drive(),
            _ if self.theme == Theme::Wounds => return self.wound(),
            _ if self.theme == Theme::Full => return self.fill_or_make_room(),
            28..=32 => return self.change_map(),
            33 => return self.call_down(),
            34 => return self.write_in_vain(),
            _ => return self.interrupt_recovery(),
        }
        Ok(())
    }

    /// OSDs that ended by themselves.
    pub(crate) fn note_ends(&mut self) {
        let ended = std::mem::take(&mut *self.cluster.ended.borrow_mut());
        ended.into_iter().for_each(|text| self.say(text));
    }

    fn osd(&mut self) -> u32 {
        self.rng.u32(..self.cluster.shape.osds)
    }

    fn kill(&mut self, power: bool) {
        let osd = self.osd();
        if !self.cluster.runs(osd) {
            return;
        }
        let power = power.then(|| self.rng.u64(..));
        self.say(format!("osd.{osd} {}", if power.is_some() { "loses its power" } else { "is killed" }));
        self.end(osd, power);
    }

    /// Ends an OSD's process, or cuts its power: then this number draws what its drive loses. One whose store is being made keeps
    /// its power.
    pub(crate) fn end(&mut self, osd: u32, power: Option<u64>) {
        match power {
            Some(seed) => self.cluster.power_off(osd, seed),
            None => self.cluster.kill(osd),
        }
        self.stopped.retain(|osd| self.cluster.runs(*osd));
    }

    pub(crate) fn start_one(&mut self) {
        let down: Vec<u32> = (0..self.cluster.shape.osds).filter(|osd| !self.cluster.runs(*osd)).collect();
        match self.rng.choice(down) {
            Some(osd) => self.start_osd(osd),
            None => self.kill(false),
        }
    }

    fn start_osd(&mut self, osd: u32) {
        let shards = 1 + self.rng.u16(..2);
        self.say(format!("osd.{osd} starts with {shards} reactors"));
        self.cluster.start(osd, shards);
    }

    fn all_at_once(&mut self) {
        let power = self.rng.bool();
        self.say(format!("all OSDs {}", if power { "lose their power" } else { "are killed" }));
        for osd in 0..self.cluster.shape.osds {
            let seed = self.rng.u64(..);
            self.end(osd, power.then_some(seed));
        }
        for osd in 0..self.cluster.shape.osds {
            if self.rng.u32(..4) > 0 {
                self.start_osd(osd);
            }
        }
    }

    fn stop(&mut self) {
        let osd = self.osd();
        self.stop_osd(osd);
    }

    pub(crate) fn stop_osd(&mut self, osd: u32) {
        let Some(node) = self.cluster.node(osd) else { return };
        self.say(format!("osd.{osd} stands still"));
        self.stopped.insert(osd);
        self.cluster.sim.stop(node);
    }

    pub(crate) fn go_on(&mut self) {
        let Some(osd) = self.stopped.pop_first() else { return };
        self.say(format!("osd.{osd} goes on"));
        if let Some(node) = self.cluster.node(osd) {
            self.cluster.sim.go_on(node);
        }
    }

    /// An OSD, the monitor or a client.
    fn anybody(&mut self) -> String {
        match self.rng.u32(..8) {
            0 => "mon".to_owned(),
            1 => format!("client.{}", self.rng.u32(..CLIENTS)),
            _ => name_of(self.osd()),
        }
    }

    fn cut_one_way(&mut self) {
        let (a, b) = (self.anybody(), name_of(self.osd()));
        let both = self.rng.bool();
        let (from, to) = if self.rng.bool() { (&a, &b) } else { (&b, &a) };
        self.is_cut = true;
        self.say(format!("nothing gets from {from} to {to}{}", if both { ", nor back" } else { "" }));
        self.cluster.sim.cut(from, to);
        if both {
            self.cluster.sim.cut(to, from);
        }
    }

    pub(crate) fn cut_both_ways(&self, a: &str, b: &str) {
        self.cluster.sim.cut(a, b);
        self.cluster.sim.cut(b, a);
    }

    /// An OSD hears nothing from the other OSDs, nor they from it; perhaps it is also cut off from the monitor and from clients.
    fn cut_off(&mut self) {
        let osd = self.osd();
        let mut others: Vec<String> =
            (0..self.cluster.shape.osds).filter(|other| *other != osd).map(name_of).collect();
        if self.rng.bool() {
            others.push("mon".to_owned());
        }
        if self.rng.bool() {
            others.extend((0..CLIENTS).map(|number| format!("client.{number}")));
        }
        self.is_cut = true;
        self.say(format!("osd.{osd} is cut off from {}", others.join(", ")));
        for other in others {
            self.cut_both_ways(&name_of(osd), &other);
        }
    }

    /// An OSD and a client hear of nobody but each other, for longer than it takes others to lead in the OSD's place.
    fn leave_alone(&mut self) -> Result<(), SimStuck> {
        let (osd, at) = (self.osd(), self.rng.usize(..self.clients.len()));
        let number = self.clients[at].number;
        let (osd, client) = (name_of(osd), format!("client.{number}"));
        let osds = (0..self.cluster.shape.osds).map(name_of).filter(|other| *other != osd);
        let others = osds.chain(["mon".to_owned()]);
        let clients = self.clients.iter().map(|other| format!("client.{}", other.number));
        let others: Vec<String> = others.chain(clients.filter(|other| *other != client)).collect();
        self.is_cut = true;
        self.say(format!("{osd} and {client}, which reads, are cut off from all others"));
        for (other, own) in others.iter().flat_map(|other| [(other, &osd), (other, &client)]) {
            self.cut_both_ways(own, other);
        }
        self.load.lonely.set(Some(number));
        self.cluster.pass(ALONE)?;
        self.load.lonely.set(None);
        Ok(())
    }

    pub(crate) fn mend(&mut self) {
        self.say("the network is mended".to_owned());
        self.cluster.sim.mend_network();
        self.is_cut = false;
    }

    fn reset(&mut self) {
        let (a, b, half) = (self.anybody(), name_of(self.osd()), self.rng.bool());
        self.say(format!(
            "connections of {a} with {b} break{}",
            if half { ", and the latter is not told" } else { "" }
        ));
        self.cluster.sim.reset_connections(&a, &b, half);
    }

    pub(crate) fn delay(&mut self, a: &str, b: &str) {
        let up_to = Duration::from_micros(self.rng.u64(1_000..400_000));
        self.say(format!("messages of {a} and {b} take up to {up_to:?} longer"));
        self.cluster.sim.delay(a, b, up_to);
        self.cluster.sim.delay(b, a, up_to);
    }

    fn slow_drive(&mut self) {
        let (osd, by) = (self.osd(), Duration::from_micros(self.rng.u64(..100_000)));
        let by = if self.rng.bool() { by } else { Duration::ZERO };
        self.say(format!("each operation of osd.{osd}'s drive takes {by:?} longer"));
        self.cluster.disk(osd).slower(by);
    }

    /// A drive takes no writes any more, or makes none durable: its OSD ends when it finds out.
    fn fail_drive(&mut self) {
        let (osd, flushes) = (self.osd(), self.rng.bool());
        if !self.cluster.is_made(osd) || !self.failing.insert(osd) {
            return;
        }
        let what = if flushes { "makes nothing durable" } else { "takes no writes" };
        self.say(format!("osd.{osd}'s drive {what}"));
        let disk = self.cluster.disk(osd);
        if flushes {
            disk.fail_flushes(true);
        } else {
            disk.fail_writes(true);
        }
    }

    /// A drive works again, with what it had; its OSD has to be started anew.
    fn mend_drive(&mut self) {
        let Some(osd) = self.failing.pop_first() else { return };
        self.say(format!("osd.{osd}'s drive is mended, and its process is ended"));
        self.end(osd, None);
        let disk = self.cluster.disk(osd);
        disk.fail_flushes(false);
        disk.fail_writes(false);
    }

    fn fill_or_make_room(&mut self) -> Result<(), SimStuck> {
        if self.filler.is_some() {
            return self.make_room();
        }
        self.fillers += 1;
        let pool = format!("fill{}", self.fillers);
        self.say(format!("the pool {pool} takes all room"));
        self.cluster.command(&json!({ "prefix": "osd pool create", "pool": pool, "pg_num": 4 }))?;
        let name = pool.clone();
        let (node, _) = self.cluster.task("filler", move |client| load::fill(client, name.clone()));
        self.filler = Some((pool, node));
        Ok(())
    }

    fn make_room(&mut self) -> Result<(), SimStuck> {
        let Some((pool, node)) = self.filler.take() else { return Ok(()) };
        self.say(format!("the pool {pool} is removed"));
        self.cluster.sim.kill(node);
        let sure = "yes_i_really_really_mean_it";
        self.cluster.command(&json!({ "prefix": "osd pool delete", "pool": pool, "pool2": pool, sure: true }))
    }

    fn kill_mon(&mut self) -> Result<(), SimStuck> {
        let pause = Duration::from_micros(self.rng.u64(..3_000_000));
        self.say(format!("the monitor is killed, and starts again after {pause:?}"));
        self.cluster.kill_mon();
        self.cluster.pass(pause)?;
        self.cluster.start_mon();
        Ok(())
    }

    fn kill_client(&mut self) {
        let number = self.next_client;
        let at = self.rng.usize(..self.clients.len());
        let Running { node, done, .. } = &self.clients[at];
        if done.get() || number > CLIENTS + 2 {
            return;
        }
        let node = *node;
        self.say(format!("a client is killed; client.{number} comes in its place"));
        self.cluster.sim.kill(node);
        self.clients.remove(at);
        self.start_client();
    }

    fn jump_clock(&mut self) {
        let (osd, by_s) = (self.osd(), self.rng.i64(-4_000..4_000));
        if let Some(node) = self.cluster.node(osd) {
            self.say(format!("the wall clock of osd.{osd} jumps by {by_s} s"));
            self.cluster.sim.jump_clock(node, by_s);
        }
    }

    /// The drive of one OSD goes bad, where the other copies can heal it.
    fn wound(&mut self) -> Result<(), SimStuck> {
        let all_run = (0..self.cluster.shape.osds).all(|osd| self.cluster.runs(osd));
        if !all_run || self.is_cut || !self.stopped.is_empty() || !self.failing.is_empty() {
            // An OSD that is away lacks the newest blocks, which must not be lost where their only copies are.
            self.mend();
            self.go_on();
            self.mend_drive();
            if !all_run {
                self.start_one();
            }
            return Ok(());
        }
        if !self.copies_are_whole()? {
            return Ok(());
        }
        let osd = self.wounded;
        let disk = self.cluster.disk(osd);
        let Some(place) = self.rng.choice(disk.find(&BLOCK_TAG)) else { return Ok(()) };
        let what = if self.rng.u32(..3) > 0 {
            disk.flip(place + self.rng.u64(..4096), self.rng.u8(..8));
            "a bit of data flips"
        } else {
            disk.unreadable(place);
            "a block of data cannot be read"
        };
        self.say(format!("osd.{osd}: {what}, at {place:#x}"));
        Ok(())
    }

    /// Waits for a while until all copies are whole, which takes longer with slow drives and after a power cut; whether they are.
    fn copies_are_whole(&mut self) -> Result<bool, SimStuck> {
        let (osds, end_ns) =
            (self.cluster.shape.osds, self.cluster.sim.now_ns() + RECOVERED.as_nanos() as u64);
        let look = move |client| run::clean(client, osds, Rc::default());
        let (node, is_clean) = self.cluster.task(&format!("watcher.{}", self.faults), look);
        self.cluster.run(|| is_clean.get() || self.cluster.sim.now_ns() >= end_ns)?;
        self.cluster.sim.kill(node);
        Ok(is_clean.get())
    }

    fn change_map(&mut self) -> Result<(), SimStuck> {
        let osd = self.osd();
        let other = self.osd();
        let command = match self.rng.u32(..11) {
            0 | 1 => json!({ "prefix": "osd out", "ids": [osd.to_string()] }),
            2..=4 => json!({ "prefix": "osd in", "ids": [osd.to_string()] }),
            5 => {
                json!({ "prefix": "osd reweight", "id": osd, "weight": f64::from(self.rng.u32(2..10)) / 10.0 })
            }
            6 => {
                let weight = f64::from(self.rng.u32(5..20)) / 10.0;
                json!({ "prefix": "osd crush reweight", "name": format!("osd.{osd}"), "weight": weight })
            }
            7 | 8 => {
                let pg = format!("1.{:x}", self.rng.u32(..PGS));
                match self.rng.u32(..3) {
                    0 => json!({ "prefix": "osd rm-pg-upmap-items", "pgid": pg }),
                    _ if osd == other => return Ok(()),
                    _ => json!({ "prefix": "osd pg-upmap-items", "pgid": pg, "id": [osd, other] }),
                }
            }
            // The monitor waits with both, more and fewer, until all is well.
            9 => {
                let now = self.cluster.pg_num()?.unwrap_or(PGS);
                let pg_num = match self.rng.bool() {
                    true => PGS + self.rng.u32(..PGS * 4),
                    false => now.saturating_sub(self.rng.u32(1..=4)).max(1),
                };
                json!({ "prefix": "osd pool set", "pool": POOL, "var": "pg_num", "val": pg_num.to_string() })
            }
            _ => {
                let least = self.cluster.shape.min_size;
                let size = self.rng.u8(least..=3);
                json!({ "prefix": "osd pool set", "pool": POOL, "var": "size", "val": size.to_string() })
            }
        };
        self.say(command.to_string());
        self.cluster.command(&command)
    }

    /// A healthy OSD is reported down, and comes back.
    fn call_down(&mut self) -> Result<(), SimStuck> {
        let osd = self.osd();
        let command = json!({ "prefix": "osd down", "ids": [osd.to_string()] });
        self.say(command.to_string());
        self.cluster.command(&command)?;
        Ok(())
    }

    /// What an OSD wrote while it heard of no other is undone when it comes back without that; then all OSDs start anew, and it
    /// must not tell the clients, which stood still meanwhile, that it has done what they asked for.
    fn write_in_vain(&mut self) -> Result<(), SimStuck> {
        let osd = self.osd();
        if !self.cluster.runs(osd) {
            return Ok(());
        }
        self.say(format!(
            "osd.{osd} writes alone and dies, comes back, and all start anew; clients stand still"
        ));
        for other in (0..self.cluster.shape.osds).filter(|other| *other != osd) {
            self.cut_both_ways(&name_of(osd), &name_of(other));
        }
        self.cluster.pass(DIVERGED)?;
        let clients: Vec<NodeId> = self.clients.iter().map(|client| client.node).collect();
        clients.iter().for_each(|node| self.cluster.sim.stop(*node));
        self.end(osd, None);
        self.mend();
        self.cluster.pass(RECOVERED)?;
        self.start_osd(osd);
        self.cluster.pass(RECOVERED)?;
        let running: Vec<u32> = (0..self.cluster.shape.osds).filter(|osd| self.cluster.runs(*osd)).collect();
        running.iter().for_each(|osd| self.end(*osd, None));
        running.iter().for_each(|osd| self.start_osd(*osd));
        self.cluster.pass(RECOVERED)?;
        clients.iter().for_each(|node| self.cluster.sim.go_on(*node));
        Ok(())
    }

    /// An OSD dies while another, which owns the same PGs, still lacks objects that it wrote.
    fn interrupt_recovery(&mut self) -> Result<(), SimStuck> {
        let (osd, other) = (self.osd(), self.osd());
        if osd == other || !self.cluster.runs(osd) {
            return Ok(());
        }
        self.say(format!("osd.{other} misses what osd.{osd} writes, and that dies before it gives it"));
        self.forbid_recovery(true)?;
        self.cut_both_ways(&name_of(osd), &name_of(other));
        self.cluster.pass(DIVERGED)?;
        // An interval with the same members begins.
        self.set_pool("min_size", 1)?;
        self.mend();
        self.cluster.pass(PEERED)?;
        self.end(osd, None);
        self.cluster.pass(PEERED)?;
        self.start_osd(osd);
        self.set_pool("min_size", self.cluster.shape.min_size)?;
        self.forbid_recovery(false)
    }

    fn forbid_recovery(&self, is_forbidden: bool) -> Result<(), SimStuck> {
        let prefix = if is_forbidden { "osd set" } else { "osd unset" };
        self.cluster.command(&json!({ "prefix": prefix, "key": "norecover" }))
    }

    fn set_pool(&self, what: &str, value: u8) -> Result<(), SimStuck> {
        let prefix = "osd pool set";
        self.cluster
            .command(&json!({ "prefix": prefix, "pool": POOL, "var": what, "val": value.to_string() }))
    }

    /// Everything works from now on, and the map is as it was.
    ///
    /// # Errors
    /// A task panicked, or the monitor does not answer.
    pub(crate) fn heal(&mut self) -> Result<(), SimStuck> {
        self.note_ends();
        self.say("everything is healed".to_owned());
        self.cluster.sim.mend_network();
        self.is_cut = false;
        while !self.stopped.is_empty() {
            self.go_on();
        }
        while !self.failing.is_empty() {
            self.mend_drive();
        }
        self.cluster.start_mon();
        let Shape { osds, size, .. } = self.cluster.shape;
        for osd in 0..osds {
            let disk = self.cluster.disk(osd);
            disk.slower(Duration::ZERO);
            if !self.cluster.runs(osd) {
                self.start_osd(osd);
            }
        }
        self.make_room()?;
        for osd in 0..osds {
            self.cluster.command(&json!({ "prefix": "osd in", "ids": [osd.to_string()] }))?;
            self.cluster.command(&json!({ "prefix": "osd reweight", "id": osd, "weight": 1.0 }))?;
            let name = format!("osd.{osd}");
            self.cluster.command(&json!({ "prefix": "osd crush reweight", "name": name, "weight": 1.0 }))?;
        }
        for pg in 0..self.cluster.shape.pgs {
            let command = json!({ "prefix": "osd rm-pg-upmap-items", "pgid": format!("1.{pg:x}") });
            self.cluster.command(&command)?;
        }
        self.set_pool("size", size)?;
        if self.theme != Theme::Lag {
            // No more PGs are made; some are merged while clients end their work.
            let pg_num = self.cluster.pg_num()?.unwrap_or(PGS).saturating_sub(self.rng.u32(..4)).max(1);
            self.say(format!("the pool is to have {pg_num} PGs"));
            let (prefix, val) = ("osd pool set", pg_num.to_string());
            self.cluster.command(&json!({ "prefix": prefix, "pool": POOL, "var": "pg_num", "val": val }))?;
        }
        self.load.is_troubled.set(false);
        Ok(())
    }
}
