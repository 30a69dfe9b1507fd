//! The replica's side: which orders of a primary are taken.

use carmine_pgtypes::{OsdSet, PgInfo};
use carmine_types::{Epoch, Errno, errno, is_mutated};

use crate::{AttemptId, Effect, Effects, Order, Peering, Phase, Then};

const AGAIN: Then = Then::Refuse(Errno(errno::EAGAIN));

impl Peering {
    pub(crate) fn on_order(
        &mut self,
        own: &PgInfo,
        attempt: AttemptId,
        epoch: Epoch,
        order: Order,
        fx: &mut Effects,
    ) -> Then {
        if let Order::Query { acting } = order {
            return self.on_query(own, attempt, epoch, &acting, fx);
        }
        let is_current = self.following == Some(attempt) || is_mutated("late_order");
        // Beside clients an incomplete copy is given what it lacks.
        let takes = match self.phase {
            Phase::Replica { active: false } => order != Order::Complete,
            Phase::Replica { active: true } => matches!(order, Order::Push | Order::Complete),
            _ => false,
        };
        if !takes || !is_current {
            return AGAIN;
        }
        let generation = self.generation;
        if let Order::Repair { has_room, .. } = order {
            self.had_no_room = !has_room;
        }
        match order {
            Order::Repair { has_room: false, .. } => Then::Refuse(Errno(errno::ENOSPC)),
            // Once an attempt, before anything is pushed: a second one would take its place back.
            Order::Repair { .. } if self.is_repaired => AGAIN,
            Order::Repair { complete_to, last_backfill, .. } => {
                self.is_repaired = true;
                let incomplete = !is_mutated("unmarked_repair");
                // The epoch in which it was started stays: nobody leads without what was written then.
                let info = PgInfo { incomplete, complete_to, last_backfill, ..own.clone() };
                Then::CarryOut { generation, info: Some(Box::new(info)) }
            }
            Order::Activate { last_epoch_started } if last_epoch_started != attempt.interval => {
                Then::Refuse(Errno(errno::EINVAL))
            }
            // A copy is marked before it is changed.
            Order::Push if !own.incomplete && !is_mutated("unmarked_repair") => AGAIN,
            _ => Then::CarryOut { generation, info: None },
        }
    }

    /// A primary begins an interval. Only with the same members as the primary's is it the same interval; until then it
    /// asks again.
    fn on_query(
        &mut self,
        own: &PgInfo,
        attempt: AttemptId,
        epoch: Epoch,
        acting: &OsdSet,
        fx: &mut Effects,
    ) -> Then {
        let follows = matches!(self.phase, Phase::Replica { .. } | Phase::Stray);
        // A primary that died, or was called dead, had not seen all of today's members up. A question that was overtaken by
        // one of a later attempt must not take that one's place.
        let is_old = (attempt.interval < self.map.members_since() || Some(attempt) <= self.following)
            && !is_mutated("old_query");
        // One from before the split asks for more than this copy has. Its acting set may be the same.
        let is_undivided = epoch < own.split && !is_mutated("undivided_query");
        let has_map = epoch <= self.map.epoch && self.acting() == acting && !is_undivided;
        if !has_map || !follows || is_old || attempt.interval == Epoch(0) || self.why_closed(own).is_some() {
            return AGAIN;
        }
        self.next_generation(fx);
        (self.following, self.is_repaired) = (Some(attempt), false);
        if self.phase != Phase::Stray {
            self.phase = Phase::Replica { active: false };
        }
        Then::CarryOut { generation: self.generation, info: None }
    }

    pub(crate) fn carried_out(
        &mut self,
        own: &PgInfo,
        generation: u64,
        activates: bool,
        fx: &mut Effects,
    ) -> Then {
        if self.generation != generation {
            return AGAIN;
        }
        if activates {
            // A repair may have changed the info meanwhile, if the primary does not keep to the order of its steps.
            let is_started = self.following.is_some_and(|id| id.interval == own.last_epoch_started);
            if !is_started {
                return AGAIN;
            }
            // Its own info is the primary's now, and what the primary knows of the past with it.
            self.intervals.adopt(&own.history);
            // Orders that are still being carried out end without effect.
            self.next_generation(fx);
            self.phase = Phase::Replica { active: true };
        }
        Then::Answer
    }

    /// A write of the primary cannot be applied here: the primary makes the copies equal again.
    pub(crate) fn cannot_apply(&mut self, errno: Errno, fx: &mut Effects) {
        if self.phase != (Phase::Replica { active: true }) {
            return;
        }
        fx.list.push(Effect::TellPrimary(errno));
        self.next_generation(fx);
        self.phase = Phase::Replica { active: false };
    }
}
