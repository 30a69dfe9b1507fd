//! Probes: small writes to each PG, again and again, which show how long each fault kept writes from being acknowledged.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use carmine_client::Pool;
use carmine_reactor::{Group, Payload, Shard};
use carmine_types::OsdId;
use serde::Serialize;

/// PGs that are probed, at most: more would be a load of their own.
const PROBES_MAX: usize = 32;
/// Time between two writes to a PG: a pause is known within this.
const EVERY: Duration = Duration::from_millis(50);
/// Names that are tried for each PG.
const TRIES: u32 = 64;
/// Time for the last answers when everything is healed.
const LAST_LIMIT: Duration = Duration::from_secs(20);

/// A fault, or the end of one.
pub(crate) struct Strike {
    pub(crate) at: Instant,
    /// The name of its row.
    pub(crate) kind: &'static str,
    /// For people.
    pub(crate) text: String,
    pub(crate) meant: Meant,
    /// Its pauses count; not while writes wait for room anyway.
    pub(crate) is_measured: bool,
}

/// Whom a fault means.
#[derive(Default)]
pub(crate) struct Meant {
    /// The OSD, if it is one.
    pub(crate) osd: Option<OsdId>,
    /// The OSD does not serve any more: its PGs may wait until it is found out.
    pub(crate) is_loss: bool,
    /// Its PGs; `None`: all.
    pub(crate) pgs: Option<Vec<String>>,
}

/// Times from a kind of fault to the next acknowledged write that was sent after it, one for each PG and fault.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Pauses {
    pub(crate) fault: &'static str,
    /// An OSD had been lost before, and the PG still waited, or one was lost before the PG went on: the pause is not this fault's alone.
    pub(crate) overlapped: bool,
    /// Faults with such pauses.
    pub(crate) times: usize,
    /// Pauses that were measured.
    pub(crate) count: usize,
    pub(crate) median_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// The fault with the longest pause, and its PG.
    pub(crate) longest: Told,
    pub(crate) longest_pg: String,
    /// The loss that overlapped with it.
    pub(crate) longest_beside: Option<Told>,
}

/// A PG that has acknowledged no write since a fault.
#[derive(Clone)]
struct Waiting {
    /// Place of the fault in `struck`.
    place: usize,
    /// Place of the other loss that overlapped with it.
    beside: Option<usize>,
    pg: String,
}

/// A pause that was measured.
struct Pause {
    ms: f64,
    of: Waiting,
}

/// A fault as the result reports it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Told {
    pub(crate) at_s: f64,
    pub(crate) what: String,
}

struct State {
    strikes: Receiver<Strike>,
    began: Instant,
    probed: Vec<String>,
    struck: Vec<Strike>,
    waiting: Vec<Waiting>,
    /// By kind, and whether they are overlapped.
    found: BTreeMap<(&'static str, bool), Vec<Pause>>,
    error: Option<String>,
    is_over: bool,
}

/// The running probes.
pub(crate) struct Probes(Rc<RefCell<State>>);

impl State {
    /// Takes in reported faults. A fault is reported before it is made, so that no answer to a write after it is missed.
    fn take_strikes(&mut self) {
        while let Ok(strike) = self.strikes.try_recv() {
            let meant = &strike.meant;
            let is_meant = |pg: &&String| meant.pgs.as_ref().is_none_or(|pgs| pgs.contains(pg));
            let (place, struck) = (self.struck.len(), &self.struck);
            // The end of a loss is no other fault, but a second loss of the same OSD is.
            let is_other = |waiting: &Waiting| meant.is_loss || struck[waiting.place].meant.osd != meant.osd;
            let mut new = Vec::new();
            for pg in self.probed.iter().filter(is_meant) {
                let mut beside = None;
                for earlier in self.waiting.iter_mut().filter(|it| it.pg == *pg && is_other(it)) {
                    if struck[earlier.place].meant.is_loss {
                        beside = Some(earlier.place);
                    }
                    if meant.is_loss {
                        earlier.beside.get_or_insert(place);
                    }
                }
                new.push(Waiting { place, beside, pg: pg.clone() });
            }
            self.waiting.extend(new);
            self.struck.push(strike);
        }
    }

    /// A split has moved the object of a probe into another PG.
    fn rename(&mut self, from: &str, to: &str) {
        let waiting = self.waiting.iter_mut().map(|waiting| &mut waiting.pg);
        let names = self.probed.iter_mut().chain(waiting).filter(|pg| *pg == from);
        names.for_each(|pg| to.clone_into(pg));
    }

    fn is_done(&mut self) -> bool {
        self.take_strikes();
        self.waiting.is_empty() || self.error.is_some()
    }

    fn acknowledge(&mut self, pg: &str, sent: Instant, now: Instant) {
        self.take_strikes();
        let State { waiting, struck, found, .. } = self;
        waiting.retain(|of| {
            let strike = &struck[of.place];
            let ends = of.pg == pg && sent >= strike.at;
            if ends && strike.is_measured {
                let ms = now.duration_since(strike.at).as_secs_f64() * 1e3;
                let pause = Pause { ms, of: of.clone() };
                found.entry((strike.kind, of.beside.is_some())).or_default().push(pause);
            }
            !ends
        });
    }
}

impl Probes {
    /// Starts to write, and to listen for faults.
    pub(crate) fn start(pool: &Pool, strikes: Receiver<Strike>) -> Probes {
        let shard = pool.client().shard().clone();
        let names = names(pool);
        let state = Rc::new(RefCell::new(State {
            strikes,
            began: Instant::now(),
            probed: names.keys().cloned().collect(),
            struck: Vec::new(),
            waiting: Vec::new(),
            found: BTreeMap::new(),
            error: None,
            is_over: false,
        }));
        for (pg, name) in names {
            shard.spawn(Group::Client, "probe", probe(pool.clone(), Rc::clone(&state), pg, name));
        }
        Probes(state)
    }

    /// Lines for the faults from the `from`th on.
    pub(crate) fn lines(&self, from: usize) -> Vec<String> {
        let mut state = self.0.borrow_mut();
        state.take_strikes();
        let line = |told: Told| format!("{:8.1} s  {}", told.at_s, told.what);
        state.struck[from..].iter().map(|strike| line(state.describe(strike))).collect()
    }

    /// Waits until every PG has acknowledged a write after the last fault, and ends the probes.
    ///
    /// # Errors
    /// A probe failed, or a PG acknowledges nothing.
    pub(crate) async fn finish(&self, shard: &Shard) -> Result<()> {
        let began = Instant::now();
        while !self.0.borrow_mut().is_done() && began.elapsed() < LAST_LIMIT {
            shard.sleep(EVERY).await;
        }
        let mut state = self.0.borrow_mut();
        state.is_over = true;
        match (&state.error, state.waiting.first()) {
            (Some(error), _) => bail!("a probe failed: {error}"),
            (None, Some(Waiting { place, pg, .. })) => {
                bail!("PG {pg} has acknowledged no write since: {}", state.struck[*place].text)
            }
            (None, None) => Ok(()),
        }
    }

    /// All faults, and the pauses of each kind.
    pub(crate) fn found(&self) -> (Vec<Told>, Vec<Pauses>) {
        let mut state = self.0.borrow_mut();
        let told = state.struck.iter().map(|strike| state.describe(strike)).collect();
        let found = std::mem::take(&mut state.found);
        (told, found.into_iter().filter_map(|(kind, found)| state.row(kind, found)).collect())
    }
}

impl Pauses {
    /// Its line in a table.
    pub(crate) fn line(&self) -> String {
        let Pauses { fault, times, count, median_ms, p99_ms, max_ms, longest, longest_pg, .. } = self;
        let fault = format!("{fault}{}", if self.overlapped { ", overlapped" } else { "" });
        let beside = self.longest_beside.as_ref();
        let beside = beside
            .map_or(String::new(), |beside| format!(", beside {} at {:.1} s", beside.what, beside.at_s));
        format!(
            "{fault:<32} {times:>6} {count:>6} {median_ms:>10.0} {p99_ms:>10.0} {max_ms:>10.0}  at {:.1} s, PG {longest_pg}{beside}\n",
            longest.at_s
        )
    }
}

impl State {
    fn describe(&self, strike: &Strike) -> Told {
        Told { at_s: strike.at.duration_since(self.began).as_secs_f64(), what: strike.text.clone() }
    }

    /// Percentiles are the nearest that were measured.
    fn row(&self, (fault, overlapped): (&'static str, bool), mut found: Vec<Pause>) -> Option<Pauses> {
        found.sort_by(|a, b| a.ms.total_cmp(&b.ms));
        let last = found.last()?;
        let at =
            |part: f64| found[((found.len() as f64 * part).ceil() as usize).clamp(1, found.len()) - 1].ms;
        Some(Pauses {
            fault,
            overlapped,
            times: found.iter().map(|pause| pause.of.place).collect::<BTreeSet<_>>().len(),
            count: found.len(),
            median_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms: last.ms,
            longest: self.describe(&self.struck[last.of.place]),
            longest_pg: last.of.pg.clone(),
            longest_beside: last.of.beside.map(|place| self.describe(&self.struck[place])),
        })
    }
}

/// PGs, each with the name of an object that lies in it.
fn names(pool: &Pool) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    for n in 0..PROBES_MAX as u32 * TRIES {
        let name = format!("thrash.probe.{n}");
        if let Some(pg) = pool.pg_of(&name).filter(|_| names.len() < PROBES_MAX) {
            names.entry(pg.to_string()).or_insert(name);
        }
    }
    names
}

async fn probe(pool: Pool, state: Rc<RefCell<State>>, mut pg: String, name: String) {
    let shard = pool.client().shard().clone();
    let mut data = shard.buf(512);
    data.fill(1);
    let data = Payload::from(data.freeze());
    while !state.borrow().is_over {
        if let Some(now) = pool.pg_of(&name).map(|pg| pg.to_string()).filter(|now| *now != pg) {
            state.borrow_mut().rename(&pg, &now);
            pg = now;
        }
        let sent = Instant::now();
        match pool.write(&name, 0, data.clone()).await {
            Ok(_) => state.borrow_mut().acknowledge(&pg, sent, Instant::now()),
            Err(error) => {
                state.borrow_mut().error.get_or_insert(format!("{name}: {error}"));
                return;
            }
        }
        shard.sleep(EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    fn state(strikes: Receiver<Strike>, began: Instant) -> State {
        State {
            strikes,
            began,
            probed: vec!["1.0".into(), "1.1".into()],
            struck: Vec::new(),
            waiting: Vec::new(),
            found: BTreeMap::new(),
            error: None,
            is_over: false,
        }
    }

    #[test]
    fn a_pause_ends_with_the_first_write_that_was_sent_after_the_fault() {
        let (send, strikes) = channel();
        let began = Instant::now();
        let at = |ms| began + Duration::from_millis(ms);
        let mut state = state(strikes, began);
        let strike = |ms, kind, pgs| Strike {
            at: at(ms),
            kind,
            text: String::new(),
            meant: Meant { pgs, ..Meant::default() },
            is_measured: true,
        };
        send.send(strike(100, "kill", Some(vec!["1.1".into(), "1.7".into()]))).unwrap();
        send.send(strike(200, "out", None)).unwrap();
        state.acknowledge("1.0", at(90), at(150));
        state.acknowledge("1.1", at(90), at(160));
        assert_eq!(state.waiting.len(), 3);
        state.acknowledge("1.1", at(150), at(900));
        state.acknowledge("1.0", at(210), at(220));
        state.acknowledge("1.1", at(901), at(902));
        let found = |kind| state.found[&(kind, false)].iter().map(|pause| pause.ms).collect::<Vec<_>>();
        assert_eq!((found("kill"), found("out")), (vec![800.0], vec![20.0, 702.0]));
        assert!(state.waiting.is_empty());
    }

    #[test]
    fn a_pause_that_another_loss_overlaps_is_blamed_on_neither_alone() {
        let (send, strikes) = channel();
        let began = Instant::now();
        let at = |s| began + Duration::from_secs(s);
        let mut state = state(strikes, began);
        let strike = |s, kind, osd, is_loss| {
            let (osd, text) = (Some(OsdId(osd)), format!("{kind} of osd.{osd}"));
            let meant = Meant { osd, is_loss, pgs: Some(vec!["1.1".into()]) };
            send.send(Strike { at: at(s), kind, text, meant, is_measured: true }).unwrap();
        };
        // A stop with nothing but faults that cost no OSD beside, and the end of it.
        strike(0, "stop", 0, true);
        strike(5, "cut", 1, false);
        strike(14, "go on", 0, false);
        state.acknowledge("1.1", at(15), at(15));
        // A stop of another OSD begins before the PG has gone on.
        strike(20, "stop", 0, true);
        strike(33, "go on", 0, false);
        strike(34, "stop", 1, true);
        strike(40, "cut", 2, false);
        state.acknowledge("1.1", at(54), at(54));
        // It is over.
        strike(60, "stop", 1, true);
        state.acknowledge("1.1", at(80), at(80));
        let found = |kind, overlapped| {
            let pauses = state.found.get(&(kind, overlapped)).into_iter().flatten();
            pauses.map(|pause| (pause.ms / 1e3) as u32).collect::<Vec<_>>()
        };
        assert_eq!((found("stop", false), found("stop", true)), (vec![15, 20], vec![34, 20]));
        assert_eq!((found("go on", false), found("go on", true)), (vec![1], vec![21]));
        assert_eq!((found("cut", false), found("cut", true)), (vec![], vec![10, 14]));
        // The same OSD twice.
        strike(90, "stop", 0, true);
        strike(91, "go on", 0, false);
        strike(92, "stop", 0, true);
        state.acknowledge("1.1", at(99), at(99));
        assert_eq!(state.found[&("stop", true)].len(), 4);
        state.found.get_mut(&("stop", true)).unwrap().truncate(2);
        let found = state.found.remove(&("stop", true)).unwrap();
        let row = state.row(("stop", true), found).unwrap();
        assert_eq!((row.times, row.longest.what.as_str()), (2, "stop of osd.0"));
        assert_eq!(row.longest_beside.unwrap().what, "stop of osd.1");
    }

    #[test]
    fn percentiles_are_measured_values_and_the_longest_is_named() {
        let (_send, strikes) = channel();
        let mut state = state(strikes, Instant::now());
        let strike = |text: &str| Strike {
            at: state.began,
            kind: "kill",
            text: text.into(),
            meant: Meant { is_loss: true, ..Meant::default() },
            is_measured: true,
        };
        state.struck = vec![strike("one"), strike("two")];
        let pause = |ms: u32| Pause {
            ms: ms.into(),
            of: Waiting { place: usize::from(ms == 200), beside: None, pg: format!("1.{ms}") },
        };
        let row = state.row(("kill", false), (1..=200).rev().map(pause).collect()).unwrap();
        assert_eq!((row.count, row.median_ms, row.p99_ms, row.max_ms), (200, 100.0, 198.0, 200.0));
        assert_eq!((row.times, row.longest.what.as_str(), row.longest_pg.as_str()), (2, "two", "1.200"));
        assert_eq!(state.row(("kill", false), vec![pause(7)]).unwrap().median_ms, 7.0);
        assert!(state.row(("kill", false), Vec::new()).is_none());
    }
}
