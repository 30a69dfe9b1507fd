//! A small cluster: OSDs with a real [`Peering`] each, a model of the log and the store, a network that keeps no order, and
//! a monitor. [`World::actions`] lists everything that can happen next, [`World::step`] does one of it.

mod actions;
mod check;
mod delivery;
mod lease;
mod merge;
mod split;

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

use carmine_peering::intervals::Intervals;
use carmine_peering::{
    AttemptId, Copy, Effect, Effects, Event, Map, Member, Order, OsdState, Peering, Phase, Place, Reason,
    Task, Then, Trouble,
};
use carmine_pgtypes::PgHistory;
use carmine_types::{Epoch, Errno, Eversion, OsdId, errno};

use crate::action::{Action, Budget, CALM};
use crate::map::OsdMap;
use crate::net::{Body, Kind, Message};
use crate::stored::{CHILD, OBJECTS, PARENT, Stored, Which, backfilled, differing, pg_num, place};

/// The step that follows when a transaction is durable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Done {
    Started { attempt: u64 },
    Order { generation: u64, kind: Kind, order: Message },
    Write,
    Split,
    Merged,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Osd {
    is_up: bool,
    start: u32,
    epoch: u32,
    peering: Peering,
    /// The parent's, until it is split (`peering` is the child's then).
    parent: Option<Box<Peering>>,
    memory: Stored,
    disk: Stored,
    /// The states that the disk will take, in order.
    pending: VecDeque<(Stored, Done)>,
    /// Requests without an answer.
    waits: Vec<(Kind, u8, u64)>,
    timer: Option<u64>,
    /// The map is to say that it was up in this epoch.
    wants: u32,
    /// Replicas and up to where each has acknowledged.
    followers: Vec<(u8, u64)>,
    /// Of each replica: objects that only its log changed after the newest common entry, and all that may differ.
    differ: Vec<(u8, Which, Which)>,
    /// Replicas that lack objects.
    lacking: Vec<Lacking>,
    /// A push is on its way beside the clients' writes, which wait for it.
    pushes: bool,
    /// Where acknowledgements go.
    primary: Option<(u8, u32)>,
    /// Its lease is not over (active primary).
    is_readable: bool,
    /// The lease of another one that it waits for: its attempt, the holder and the holder's interval.
    awaits: Option<(u64, u8, u32)>,
}

/// The objects that a replica lacks.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lacking {
    osd: u8,
    /// Objects by the log: writes to them wait.
    which: Which,
    /// Objects that its backfill has passed: it is sent only their changes.
    passed: u8,
}

impl Osd {
    /// Writes to this object wait until it is pushed.
    fn holds(&self, object: u8) -> bool {
        self.pushes || self.lacking.iter().any(|lacking| lacking.which[usize::from(object)])
    }

    /// No write is on its way.
    fn is_settled(&self) -> bool {
        let last = self.memory.log.len() as u64;
        self.disk.log.len() as u64 == last && self.followers.iter().all(|(_, acked)| *acked == last)
    }
}

/// Where else CRUSH may put the PG.
fn places(map: &OsdMap) -> impl Iterator<Item = [u8; 2]> {
    let all = [[0, 1], [1, 0], [0, 2], [2, 0], [1, 2], [2, 1], [2, 3]].into_iter();
    all.filter(|wanted| wanted[..] != map.wanted && wanted.iter().all(|osd| usize::from(*osd) < map.up.len()))
}

const MONITOR: u8 = 99;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct World {
    maps: Vec<OsdMap>,
    osds: Vec<Osd>,
    net: Vec<Message>,
    /// The monitor does not know yet that the PG has served anybody.
    is_creating: bool,
    is_wiped: bool,
    /// The half that is followed after a split. The halves never talk to each other.
    half: u8,
    /// Replicas promise to help no other primary.
    has_leases: bool,
    /// Writes that a client was told of.
    acked: u32,
    next_write: u8,
    pub(crate) budget: Budget,
}

fn id(osd: u8) -> OsdId {
    OsdId(osd.into())
}

fn ids(osds: &[u8]) -> Vec<OsdId> {
    osds.iter().copied().map(id).collect()
}

impl World {
    /// A cluster that has just been made: a pool of two copies, which waits for both.
    pub(crate) fn new(osds: u8, budget: Budget) -> World {
        World::of_pool(osds, 2, 2, budget)
    }

    /// The same with a pool of this size and `min_size`.
    pub(crate) fn of_pool(osds: u8, size: u8, min_size: usize, budget: Budget) -> World {
        World::of_parts(osds, size, min_size, budget, false)
    }

    /// The same; the PG has a neighbour, which may be merged into it, or has not.
    pub(crate) fn of_parts(osds: u8, size: u8, min_size: usize, budget: Budget, is_split: bool) -> World {
        let first = OsdMap {
            up: (0..osds).map(|_| Some((1, 1))).collect(),
            up_thru: vec![0; osds.into()],
            temp: Vec::new(),
            wanted: (0..size).collect(),
            size: size.into(),
            min_size,
            is_split,
            announced: 0,
            merged: None,
        };
        let osd = |me| Osd {
            is_up: true,
            start: 1,
            epoch: 0,
            peering: Peering::new(id(me)),
            parent: None,
            memory: Stored::default(),
            disk: Stored::default(),
            pending: VecDeque::new(),
            waits: Vec::new(),
            timer: None,
            wants: 0,
            followers: Vec::new(),
            differ: Vec::new(),
            lacking: Vec::new(),
            pushes: false,
            primary: None,
            is_readable: false,
            awaits: None,
        };
        let mut world = World {
            maps: vec![first],
            osds: (0..osds).map(osd).collect(),
            net: Vec::new(),
            is_creating: true,
            is_wiped: false,
            half: PARENT,
            has_leases: false,
            acked: 0,
            next_write: 0,
            budget,
        };
        (0..osds).for_each(|osd| world.begin(osd));
        world
    }

    /// The same cluster with room for other troubles.
    pub(crate) fn with(mut self, budget: Budget) -> World {
        self.budget = budget;
        self
    }

    /// A dead member whose repair did not end.
    pub(crate) fn spoil(&mut self, osd: u8) {
        self.budget.kills = 1;
        self.step(Action::Kill(osd));
        let disk = &mut self.osd(osd).disk;
        (disk.incomplete, disk.data) = (true, [0; 2]);
    }

    /// What happens soonest happens as long as this holds, but nothing does at this OSD.
    pub(crate) fn run_without(&mut self, n: u8, goes_on: impl Fn(&World) -> bool) {
        let is_there = |world: &World, action: &Action| match *action {
            Action::Deliver(at) => world.net[at].to == n,
            Action::Durable(osd)
            | Action::SeeMap(osd)
            | Action::Start(osd)
            | Action::Boot(osd)
            | Action::Timer(osd) => osd == n,
            _ => false,
        };
        self.budget = Budget { timers: 9, ..CALM };
        while goes_on(self)
            && let Some(action) = self.actions().into_iter().find(|action| !is_there(self, action))
        {
            self.step(action);
        }
    }

    /// This primary serves clients.
    pub(crate) fn is_serving(&self, n: u8) -> bool {
        self.osds[usize::from(n)].peering.is_active()
    }

    /// An object is on its way to a replica, beside the writes of clients.
    pub(crate) fn is_recovering(&self) -> bool {
        self.osds.iter().any(|osd| osd.pushes)
    }

    /// Others serve than CRUSH names.
    pub(crate) fn has_temp(&self) -> bool {
        self.maps.last().is_some_and(|map| !map.temp.is_empty())
    }

    /// A replica is about to be told that its copy is complete.
    pub(crate) fn is_activating(&self) -> bool {
        self.net.iter().any(|message| matches!(message.body, Body::Activate { .. }))
    }

    fn osd(&mut self, osd: u8) -> &mut Osd {
        &mut self.osds[usize::from(osd)]
    }

    /// An OSD reads its store, and all maps since the one that it knows of.
    fn begin(&mut self, osd: u8) {
        let seen = self.osd(osd).memory.history.epoch.0;
        self.begin_at(osd, if seen == 0 { self.maps.len() as u32 } else { seen });
    }

    /// The same with the maps from this epoch on.
    fn begin_at(&mut self, osd: u8, epoch: u32) {
        let half = Some(self.half).filter(|_| self.maps[epoch as usize - 1].is_split);
        let ours = self.osd(osd);
        ours.epoch = epoch - 1;
        if ours.disk.made == 0 {
            (ours.disk.made, ours.disk.half) = (epoch, half);
            (ours.memory.made, ours.memory.half) = (epoch, half);
        }
        self.promised_before(osd);
        while (self.osd(osd).epoch as usize) < self.maps.len() {
            self.see_map(osd);
        }
        if !self.is_split_due(osd) && !self.merges(osd) {
            self.load(osd);
        }
    }

    /// An OSD has read its store.
    fn load(&mut self, osd: u8) {
        self.on(osd, Event::Loaded);
        self.announce(osd, 0);
    }

    /// Does one thing.
    pub(crate) fn step(&mut self, action: Action) {
        match action {
            Action::Durable(n) => self.durable(n),
            Action::Deliver(at) => {
                let message = self.net.remove(at);
                self.deliver(message);
            }
            Action::Duplicate(at) => {
                self.budget.duplicates -= 1;
                let message = self.net[at].clone();
                self.deliver(message);
            }
            Action::GiveUp(n, at) => {
                let wait = self.osd(n).waits.remove(at);
                self.budget.late -= u8::from(self.is_on_its_way(n, &wait));
                let (kind, from, attempt) = wait;
                self.answered(n, kind, from, attempt, Err(Trouble::NoAnswer));
            }
            Action::SeeMap(n) => self.see_map(n),
            Action::Timer(n) => {
                self.budget.timers -= 1;
                let attempt = self.osd(n).timer.take().unwrap();
                self.on(n, Event::Timer { attempt });
            }
            Action::CannotApply(n) => {
                self.budget.failures -= 1;
                self.on(n, Event::CannotApply(Errno(errno::ENOSPC)));
            }
            Action::Kill(n) => {
                self.budget.kills -= 1;
                let start = self.osd(n).start;
                let osd = self.osd(n);
                (osd.is_up, osd.memory, osd.timer, osd.primary) = (false, Stored::default(), None, None);
                osd.wants = 0;
                osd.pending.clear();
                osd.waits.clear();
                osd.followers.clear();
                osd.lacking.clear();
                osd.pushes = false;
                (osd.peering, osd.parent) = (Peering::new(id(n)), None);
                (osd.is_readable, osd.awaits) = (false, None);
                self.net.retain(|m| m.to != n || m.to_start != start);
            }
            Action::MarkDown(n) => self.new_map(|map, _| map.up[usize::from(n)] = None),
            Action::SkipMaps(n) => {
                self.budget.gaps -= 1;
                self.osd(n).epoch = self.maps.len() as u32 - 1;
                self.see_map(n);
            }
            Action::Start(n) => {
                self.start(n);
                self.begin(n);
            }
            Action::StartLate(n) => {
                self.budget.gaps -= 1;
                self.start(n);
                self.begin_at(n, self.maps.len() as u32);
            }
            Action::Boot(n) => {
                let start = self.osd(n).start;
                self.new_map(|map, epoch| map.up[usize::from(n)] = Some((start, epoch)));
            }
            Action::Alive(n) => {
                let wants = self.osd(n).wants;
                self.new_map(|map, _| map.up_thru[usize::from(n)] = wants);
            }
            Action::Write(n) => self.write(n),
            Action::Recover(n) => {
                let to = self.osd(n).lacking[0].osd;
                let there = self.osd(to).memory.data;
                let osd = self.osd(n);
                let data = osd.memory.data;
                let differ = differing(&data, &there);
                let Lacking { which, passed, .. } = &mut osd.lacking[0];
                let mut push = *which;
                if *which == Which::default() && *passed < OBJECTS {
                    // Nothing is written here between the comparison and the push.
                    push[usize::from(*passed)] = differ[usize::from(*passed)];
                    *passed += 1;
                }
                osd.pushes = true;
                self.ask(n, to, Body::Push { which: push, data });
            }
            Action::AskTemp(n) => {
                let asked = self.temp_to_ask(n).unwrap();
                self.send(n, MONITOR, 0, AttemptId::default(), Body::Temp { asked });
            }
            Action::Create(n) => {
                let history = self.past();
                self.on(n, Event::Created(history));
            }
            Action::DropTemp => {
                self.budget.drops -= 1;
                self.new_map(|map, _| map.temp.clear());
            }
            Action::Wipe(n) => {
                self.budget.wipes -= 1;
                self.is_wiped = true;
                self.osd(n).disk = Stored::default();
            }
            Action::Move(wanted) => {
                self.budget.moves -= 1;
                self.new_map(|map, _| map.wanted = wanted.to_vec());
            }
            Action::MoveWith(wanted, n) => {
                (self.budget.moves, self.budget.pairs) = (self.budget.moves - 1, self.budget.pairs - 1);
                let osd = self.osd(n);
                let start = osd.is_up.then_some(osd.start);
                self.new_map(|map, epoch| {
                    map.wanted = wanted.to_vec();
                    map.up[usize::from(n)] = start.map(|start| (start, epoch));
                });
            }
            Action::Split => self.split(None),
            Action::SplitTo(wanted) => self.split(Some(wanted)),
            Action::AnnounceMerge => self.announce_merge(),
            Action::RetractMerge => self.retract_merge(),
            Action::SayMergeable(n) => self.say_mergeable(n),
            Action::Load(n) => {
                self.divide(n);
                self.load(n);
            }
            Action::Cut(n) => {
                self.budget.cuts -= 1;
                self.new_map(|map, _| map.up[usize::from(n)] = None);
            }
            Action::LeaseOver(n) => self.lease_over(n),
        }
        self.net.sort_by_key(|m| (m.to, m.from, m.attempt));
        self.check();
    }

    fn start(&mut self, n: u8) {
        let osd = self.osd(n);
        (osd.is_up, osd.start, osd.memory) = (true, osd.start + 1, osd.disk.clone());
    }

    /// The acting set that this OSD would ask the monitor for, if that changes something and is not on its way; empty: none of its own.
    fn temp_to_ask(&self, n: u8) -> Option<Vec<u8>> {
        let (osd, map) = (&self.osds[usize::from(n)], &self.maps[self.maps.len() - 1]);
        if !osd.is_up || osd.epoch as usize != self.maps.len() {
            return None;
        }
        let mut asked: Vec<u8> = osd.peering.wanted_acting()?.iter().map(|osd| osd.0 as u8).collect();
        if asked == map.up_set() {
            asked.clear();
        }
        let is_sent = self.net.iter().any(|m| m.from == n && m.body == Body::Temp { asked: asked.clone() });
        (asked != map.temp && !is_sent).then_some(asked)
    }

    /// The monitor tells this primary of the past.
    fn is_created(&self, n: u8) -> bool {
        let osd = &self.osds[usize::from(n)];
        let waits = *osd.peering.phase() == Phase::Peering(Reason::WaitsForHistory);
        self.is_creating && osd.is_up && waits && osd.epoch as usize == self.maps.len()
    }

    /// What the monitor knows of the past.
    fn past(&self) -> PgHistory {
        let mut intervals = Intervals::default();
        let known = PgHistory { last_epoch_clean: Epoch(1), ..PgHistory::default() };
        intervals.load(&known);
        (1..=self.maps.len() as u32).for_each(|epoch| {
            intervals.follow(&self.map_of(epoch));
        });
        intervals.known()
    }

    fn new_map(&mut self, change: impl FnOnce(&mut OsdMap, u32)) {
        let mut map = self.maps[self.maps.len() - 1].clone();
        map.merged = None;
        change(&mut map, self.maps.len() as u32 + 1);
        map.clean_temps();
        self.maps.push(map);
    }

    /// The map says that an OSD was started again that is no member, and whose copy this primary keeps equal. The primary sends it again
    /// what it has not acknowledged, and it refuses that.
    fn send_again(&mut self, n: u8) {
        let Some(before) = (self.osds[usize::from(n)].epoch as usize).checked_sub(2) else { return };
        let start = |at: usize, osd: u8| self.maps[at].up[usize::from(osd)].map(|(start, _)| start);
        let osd = &self.osds[usize::from(n)];
        let again = osd.followers.iter().find(|(osd, _)| start(before, *osd) != start(before + 1, *osd));
        if let Some((osd, _)) = again.filter(|_| osd.peering.is_active()) {
            let (attempt, why) =
                (self.osds[usize::from(n)].peering.attempt_id().attempt, Reason::NotActive(id(*osd)));
            self.on(n, Event::ReplicaStopped { attempt, why });
        }
    }

    /// A stray tells the primary of a new interval that it has a copy.
    fn announce(&mut self, n: u8, generation: u64) {
        let osd = &self.osds[usize::from(n)];
        let has_copy = osd.memory.started > 0 || osd.memory.incomplete;
        if *osd.peering.phase() != Phase::Stray || osd.peering.generation() == generation || !has_copy {
            return;
        }
        let map = &self.maps[osd.epoch as usize - 1];
        let Some(primary) = map.acting().first().copied() else { return };
        let start = map.up[usize::from(primary)].map_or(0, |(start, _)| start);
        self.send(n, primary, start, AttemptId::default(), Body::Stray);
    }

    /// The facts of a map, as OSDs see them.
    fn map_of(&self, epoch: u32) -> Map {
        let map = &self.maps[epoch as usize - 1];
        let member = |osd: u8| {
            let (nonce, up_from) = map.up[usize::from(osd)].unwrap();
            let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, u16::from(osd)));
            Member { osd: id(osd), addr, nonce, up_from: Epoch(up_from) }
        };
        let state = |(up, up_thru): (&Option<_>, &u32)| {
            let up_thru = Epoch(*up_thru);
            if up.is_some() {
                OsdState::Up { up_thru }
            } else {
                OsdState::Down { lost_at: Epoch(0), up_thru }
            }
        };
        Map {
            epoch: Epoch(epoch),
            acting: ids(&map.acting()).into(),
            members: map.acting().into_iter().map(member).collect(),
            up: ids(&map.up_set()).into(),
            osds: map.up.iter().zip(&map.up_thru).map(state).collect(),
            size: map.size,
            min_size: map.min_size,
            pg_num: pg_num(map.is_split),
            is_merging: map.announced > 0,
            ..Map::default()
        }
    }

    fn send(&mut self, from: u8, to: u8, to_start: u32, attempt: AttemptId, body: Body) {
        let (from_start, epoch) = (self.osd(from).start, self.osd(from).epoch);
        let of_child = self.is_child(from);
        self.transmit(Message { from, from_start, to, to_start, attempt, epoch, of_child, body });
    }

    fn transmit(&mut self, message: Message) {
        let Message { to, to_start, .. } = message;
        let is_there = to == MONITOR || (self.osd(to).is_up && self.osd(to).start == to_start);
        self.net.extend(Some(message).filter(|_| is_there));
    }

    /// Sends a request to where the sender's map says that the OSD is.
    fn ask(&mut self, from: u8, to: u8, body: Body) {
        let (attempt, epoch) = (self.osd(from).peering.attempt_id(), self.osd(from).epoch);
        let start = self.maps[epoch as usize - 1].up[usize::from(to)].map_or(0, |(start, _)| start);
        if let Some(kind) = body.kind() {
            self.osd(from).waits.push((kind, to, attempt.attempt));
        }
        self.send(from, to, start, attempt, body);
    }

    fn on(&mut self, n: u8, event: Event) -> Then {
        let osd = self.osd(n);
        let own = osd.memory.info();
        let Effects { list, then } = osd.peering.on(&own, event);
        list.into_iter().for_each(|effect| self.perform(n, effect));
        then
    }

    fn perform(&mut self, n: u8, effect: Effect) {
        match effect {
            Effect::StartOver => {
                let osd = self.osd(n);
                osd.followers.clear();
                osd.lacking.clear();
                osd.pushes = false;
                (osd.is_readable, osd.awaits) = (false, None);
            }
            Effect::DropOps | Effect::Log(..) => {}
            Effect::Query { to, .. } => {
                let acting = self.osd(n).peering.acting().osds().map(|osd| osd.0 as u8).collect();
                self.ask(n, to.0 as u8, Body::Query { acting });
            }
            Effect::Repair { to, place: Place { common, last_backfill }, keeps_place, .. } => {
                let kept = common.filter(|common| keeps_place && common.version > 0);
                let backfilled = kept.map_or(OBJECTS, |_| backfilled(last_backfill));
                let complete_to = kept.map_or(0, |common| common.version);
                self.ask(n, to.0 as u8, Body::Repair { complete_to, backfilled });
            }
            Effect::WriteInfo { attempt, info } => {
                assert!(!info.incomplete);
                let osd = self.osd(n);
                osd.memory.history = info.history;
                osd.memory.promised = None;
                osd.memory.started = info.last_epoch_started.0;
                osd.pending.push_back((osd.memory.clone(), Done::Started { attempt }));
            }
            Effect::Activate { to, place: Place { common, last_backfill }, is_whole, .. } => {
                let memory = self.osd(n).memory.clone();
                let (complete_to, backfilled) = match common {
                    _ if is_whole => (0, OBJECTS),
                    Some(common) => (common.version, backfilled(last_backfill)),
                    None => (memory.log.len() as u64, 0),
                };
                let copy = Stored { incomplete: !is_whole, complete_to, backfilled, ..memory };
                self.ask(n, to.0 as u8, Body::Activate { copy });
            }
            Effect::Serve(followers) => {
                let has_leases = self.has_leases;
                let osd = self.osd(n);
                let len = osd.memory.log.len() as u64;
                osd.followers = followers.iter().map(|osd| (osd.0 as u8, len)).collect();
                osd.is_readable = has_leases;
                self.is_creating = false;
                self.check_equal(n);
                // Clients send again what they were not told of: the log has it, so they are told now.
                self.acked |= self.osds[usize::from(n)].memory.ids();
            }
            Effect::Recover { to, place: Place { common, last_backfill } } => {
                let osd = self.osd(n);
                let passed = common.map_or(0, |_| backfilled(last_backfill));
                let changed = common.map_or(Which::default(), |common| osd.memory.changed_after(common));
                let which = [0, 1].map(|at| changed[at] && at < usize::from(passed));
                osd.lacking.push(Lacking { osd: to.0 as u8, which, passed });
            }
            Effect::AwaitLease { attempt, lease } => {
                self.osd(n).awaits = Some((attempt, lease.holder.0 as u8, lease.interval.0));
            }
            Effect::WantUpThru(epoch) => self.osd(n).wants = epoch.0,
            Effect::Timer { attempt, .. } => self.osd(n).timer = Some(attempt),
            Effect::TellPrimary(_) => {
                if let (Some((to, start)), Some(attempt)) =
                    (self.osd(n).primary, self.osd(n).peering.following())
                {
                    self.send(n, to, start, attempt, Body::Refused);
                }
            }
        }
    }

    fn durable(&mut self, n: u8) {
        let osd = self.osd(n);
        let (stored, done) = osd.pending.pop_front().unwrap();
        osd.disk = stored;
        match done {
            Done::Started { attempt } => drop(self.on(n, Event::InfoWritten { attempt })),
            Done::Order { generation, kind, order } => {
                let activates = kind == Kind::Activate;
                let then = self.on(n, Event::CarriedOut { generation, activates });
                if activates && then == Then::Answer {
                    self.promise(n, order.from, order.attempt.interval);
                }
                self.answer_order(n, &order, then);
            }
            Done::Split => {}
            Done::Merged => self.load(n),
            Done::Write => {
                let durable = osd.disk.log.len() as u64;
                match osd.primary.filter(|_| *osd.peering.phase() == Phase::Replica { active: true }) {
                    Some((to, start)) => {
                        let attempt = osd.peering.following().unwrap();
                        self.send(n, to, start, attempt, Body::Acked { durable });
                    }
                    None => self.settle(n),
                }
            }
        }
    }

    fn write(&mut self, n: u8) {
        self.budget.writes -= 1;
        let write = self.write_to(&self.osds[usize::from(n)]);
        self.next_write = write + 1;
        let osd = self.osd(n);
        let entry = (osd.epoch.max(osd.memory.log.last().map_or(0, |last| last.0)), write);
        osd.memory.log.push(entry);
        osd.memory.data[usize::from(write % 2)] |= 1 << write;
        osd.pending.push_back((osd.memory.clone(), Done::Write));
        let version = osd.memory.log.len() as u64;
        let followers = osd.followers.clone();
        let lacking = osd.lacking.clone();
        for (to, _) in followers {
            let window = lacking.iter().find(|lacking| lacking.osd == to);
            let has_change = window.is_none_or(|window| write % 2 < window.passed);
            self.ask(n, to, Body::Write { version, entry, has_change });
        }
    }

    fn replicate(&mut self, n: u8, message: &Message, version: u64, entry: (u32, u8), has_change: bool) {
        let osd = self.osd(n);
        let takes = *osd.peering.phase() == Phase::Replica { active: true }
            && osd.peering.following() == Some(message.attempt);
        let last = osd.memory.log.len() as u64;
        if !takes {
            return self.send(n, message.from, message.from_start, message.attempt, Body::Refused);
        }
        if version == last + 1 {
            osd.memory.log.push(entry);
            if has_change {
                osd.memory.data[usize::from(entry.1 % 2)] |= 1 << entry.1;
            }
            osd.pending.push_back((osd.memory.clone(), Done::Write));
        }
    }

    /// Acknowledges the writes that are durable everywhere.
    fn settle(&mut self, n: u8) {
        let osd = self.osd(n);
        if !osd.peering.is_active() {
            return;
        }
        let committed = osd.followers.iter().map(|f| f.1).fold(osd.disk.log.len() as u64, u64::min);
        let told = osd.memory.log.iter().take(committed as usize).fold(0, |ids, (_, id)| ids | 1 << id);
        self.acked |= told;
    }
}
