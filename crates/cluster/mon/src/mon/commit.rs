//! The one task that changes the map. Changes wait in a queue; it makes them into the next epoch, appends that to the state file,
//! and only when it is durable lets the world know: it becomes the current map, is pushed to every subscriber, and the changes are
//! answered.
//!
//! Each change is an epoch of its own, or, with a propose interval ([`MapRules`]), all that were asked within it are one, as in Ceph.
//! Each epoch is pushed on its own, so nobody misses that an OSD was down for a moment.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use carmine_types::{OsdId, UTime, is_mutated};
use carmine_wire::EntityAddrVec;
use carmine_wire::osdmap::OsdMap;
use tracing::info;

use super::{Done, Mon, Published};
use crate::change::Change;
use crate::change::gather::{Gathered, Outcome};
use crate::change::group::NODOWN;
use crate::change::pool::check_pgs;
use crate::options::OptionEdit;
use crate::record::Record;
use crate::state::{Saved, StateFile};
use crate::{MapRules, MonError};

pub(super) enum Work {
    Change(Change, Done),
    /// The session of the OSD with these addresses ended.
    Ended(OsdId, EntityAddrVec, String),
    /// Note what OSDs said in [`Mon::up_thru`].
    UpThru,
    /// Reserve global ids below this one.
    Gids(u64),
    /// Change the options of clients.
    Options(OptionEdit, Done),
}

impl Mon {
    /// Does what comes next in the queue, or waits until there is something.
    pub(super) async fn do_next(&self, state: &mut StateFile) -> Result<(), MonError> {
        let next = self.work.borrow_mut().pop_front();
        match next {
            None => self.wait_for_work().await,
            Some(Work::Gids(next)) => {
                self.append(state, Record::Gid { next }, &self.current(), next).await?;
                self.gids_reserved.set(next);
                self.gids_asked.set(false);
            }
            Some(Work::Options(edit, done)) => self.commit_options(state, &edit, done).await?,
            Some(first) if self.rules.propose_interval.is_zero() => {
                self.commit(state, [first].into()).await?
            }
            Some(first) => {
                self.work.borrow_mut().push_front(first);
                self.wait_to_propose().await;
                let is_other = |work: &Work| matches!(work, Work::Gids(_) | Work::Options(..));
                let all = self.work.take();
                let (others, changes): (VecDeque<Work>, VecDeque<Work>) = all.into_iter().partition(is_other);
                self.work.replace(others);
                self.commit(state, changes).await?;
            }
        }
        Ok(())
    }

    /// Returns when the next map may be proposed: a propose interval after the last one, and if that is over, a moment later, so that
    /// what is asked at the same time comes together.
    async fn wait_to_propose(&self) {
        let MapRules { propose_interval, min_wait, .. } = self.rules;
        let since_last = self.committed_ns.get().map(|at_ns| self.shard.now_ns().saturating_sub(at_ns));
        let left = since_last.and_then(|ns| propose_interval.checked_sub(Duration::from_nanos(ns)));
        self.shard.sleep(left.unwrap_or(min_wait)).await;
    }

    /// Makes the next epoch out of these changes, if there is anything to be changed. Those that need an epoch of their own come next.
    async fn commit(&self, state: &mut StateFile, works: VecDeque<Work>) -> Result<(), MonError> {
        let (now, current, limit) = (self.now(), self.current(), self.options.borrow().max_pg_per_osd());
        let mut gathered = Gathered::new(&current.map, now);
        let (mut changes, mut answers, mut later) = (Vec::new(), Vec::new(), VecDeque::new());
        for (change, done) in works.into_iter().filter_map(|work| self.wish(work, &current.map)) {
            match gathered.add(&change, |before, after| check_pgs(before, after, limit)) {
                Outcome::Gathered => {
                    changes.push(change);
                    answers.push((done, Ok(())));
                }
                Outcome::Nothing => answers.push((done, Ok(()))),
                Outcome::Refused(refusal) => {
                    info!("refused {change:?}: {}", refusal.text);
                    answers.push((done, Err(refusal)));
                }
                Outcome::Later => later.push_back(Work::Change(change, done)),
            }
        }
        later.append(&mut self.work.take());
        self.work.replace(later);
        let map = {
            let new = self.creating.borrow();
            gathered.finish(self.rules.primes_pg_temp.then_some(&*new))
        };
        if let Some(map) = map {
            let next = Rc::new(current.next(map));
            let gids = self.gids_reserved.get();
            self.append(state, Record::Map(next.bytes.to_vec()), &next, gids).await?;
            self.committed_ns.set(Some(self.shard.now_ns()));
            changes.iter().for_each(|change| info!("epoch {}: {change:?}", next.map.epoch));
            self.publish(&current, &next, now);
        }
        answers.into_iter().for_each(|(done, result)| done(self, result));
        Ok(())
    }

    /// The change that is to be made; `None` if there is nothing to be done any more.
    fn wish(&self, work: Work, map: &OsdMap) -> Option<(Change, Done)> {
        let nobody = || Box::new(|_: &Mon, _| {}) as Done;
        match work {
            Work::Change(change, done) => Some((change, done)),
            Work::UpThru => Some((Change::UpThru { epochs: self.up_thru.take() }, nobody())),
            Work::Ended(osd, ..) if NODOWN.holds(map, osd) => None,
            Work::Ended(osd, addrs, why) => {
                let change = self.after_session(map, osd, &addrs)?;
                info!("{osd}: {why}");
                Some((change, nobody()))
            }
            Work::Gids(_) | Work::Options(..) => unreachable!("these are no changes of the map"),
        }
    }

    /// Puts a map into force that is durable.
    fn publish(&self, current: &Published, next: &Rc<Published>, now: UTime) {
        if !(is_mutated("forget_map") && current.map.epoch.0.is_multiple_of(3)) {
            self.history.borrow_mut().note(current.map.epoch, Rc::clone(&current.bytes));
        }
        *self.current.borrow_mut() = Rc::clone(next);
        self.creating.borrow_mut().follow(Some(&current.map), &next.map);
        self.forget_old_stats(&next.map);
        self.failures.borrow_mut().on_map(&next.map);
        self.log.borrow_mut().note_osds(&current.map, &next.map, now);
        self.push_news();
        let is_freed = |osd| NODOWN.holds(&current.map, osd) && !NODOWN.holds(&next.map, osd);
        if next.map.osds().any(is_freed) {
            self.end_lost_sessions(&next.map);
        }
    }

    async fn commit_options(
        &self,
        state: &mut StateFile,
        edit: &OptionEdit,
        done: Done,
    ) -> Result<(), MonError> {
        let current = self.current();
        let edited = self.options.borrow().edited_at(edit, self.now());
        let result = match edited {
            Err(refusal) => Err(refusal),
            Ok(options) if options == *self.options.borrow() => Ok(()),
            Ok(options) => {
                let (next_gid, bytes) = (self.gids_reserved.get(), options.encode());
                let record = Record::Options(bytes.clone());
                let saved = Saved { fsid: self.fsid, next_gid, map: current.bytes.to_vec(), options: bytes };
                state.older = self.older_than(&current);
                state.append(&[record], &saved).await?;
                info!("options: {:?}", edit.shown());
                *self.options.borrow_mut() = options;
                self.push_options();
                Ok(())
            }
        };
        done(self, result);
        Ok(())
    }

    async fn append(
        &self,
        state: &mut StateFile,
        record: Record,
        newest: &Published,
        next_gid: u64,
    ) -> Result<(), MonError> {
        let options = self.options.borrow().encode();
        let saved = Saved { fsid: self.fsid, next_gid, map: newest.bytes.to_vec(), options };
        state.older = self.older_than(newest);
        state.append(&[record], &saved).await
    }

    /// The maps before `newest`, oldest first. A map is stored before it is in force, so the current one may be among them.
    fn older_than(&self, newest: &Published) -> Vec<Rc<Vec<u8>>> {
        let (current, history) = (self.current(), self.history.borrow());
        let mut older = history.all();
        if newest.map.epoch > current.map.epoch {
            older.push(Rc::clone(&current.bytes));
        }
        let oldest = history.oldest().unwrap_or(current.map.epoch);
        assert_eq!(
            u64::from(newest.map.epoch.0) - u64::from(oldest.0),
            older.len() as u64,
            "maps are missing between epoch {oldest} and epoch {}",
            newest.map.epoch
        );
        older
    }
}
