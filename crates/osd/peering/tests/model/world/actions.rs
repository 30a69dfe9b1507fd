//! What can happen next.

use super::*;

impl World {
    /// Everything that can happen next. The first of it is what happens soonest when nothing goes wrong.
    pub(crate) fn actions(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        for (n, osd) in (0u8..).zip(&self.osds) {
            if osd.is_up && !osd.pending.is_empty() {
                actions.push(Action::Durable(n));
            }
        }
        actions.extend((0..self.net.len()).filter(|at| !self.is_early(&self.net[*at])).map(Action::Deliver));
        let newest = self.maps.len() as u32;
        let map = &self.maps[self.maps.len() - 1];
        for (n, osd) in (0u8..).zip(&self.osds) {
            if osd.is_up && osd.epoch < newest {
                actions.push(Action::SeeMap(n));
            }
            if osd.is_up && self.is_split_due(n) {
                actions.push(Action::Load(n));
            }
            let late = self.budget.late > 0;
            let waits = osd.waits.iter().enumerate().filter(|(_, wait)| late || !self.is_on_its_way(n, wait));
            actions.extend(waits.map(|(at, _)| Action::GiveUp(n, at)));
            let up = map.up[usize::from(n)];
            if !osd.is_up {
                actions.push(Action::Start(n));
            }
            if !osd.is_up && up.is_some() {
                actions.push(Action::MarkDown(n));
            }
            if osd.is_up && up.is_none_or(|(start, _)| start != osd.start) {
                actions.push(Action::Boot(n));
            }
            if osd.is_up
                && up.is_some_and(|(start, _)| start == osd.start)
                && map.up_thru[usize::from(n)] < osd.wants
            {
                actions.push(Action::Alive(n));
            }
        }
        for (n, osd) in (0u8..).zip(&self.osds) {
            if osd.is_up && !osd.lacking.is_empty() && !osd.pushes && osd.is_settled() {
                actions.push(Action::Recover(n));
            }
        }
        let all = || 0..self.osds.len() as u8;
        actions.extend(all().filter(|n| self.temp_to_ask(*n).is_some()).map(Action::AskTemp));
        actions.extend(all().filter(|n| self.is_created(*n)).map(Action::Create));
        actions.extend(all().filter(|n| self.is_mergeable(*n)).map(Action::SayMergeable));
        actions.extend(all().filter(|n| self.osds[usize::from(*n)].awaits.is_some()).map(Action::LeaseOver));
        for (n, osd) in (0u8..).zip(&self.osds) {
            if self.budget.timers > 0 && osd.is_up && osd.timer.is_some() {
                actions.push(Action::Timer(n));
            }
        }
        for (n, osd) in (0u8..).zip(&self.osds).filter(|_| self.budget.gaps > 0) {
            if osd.is_up && osd.epoch + 1 < newest {
                actions.push(Action::SkipMaps(n));
            }
            if !osd.is_up {
                actions.push(Action::StartLate(n));
            }
        }
        for (n, osd) in (0u8..).zip(&self.osds) {
            if self.budget.failures > 0
                && osd.is_up
                && *osd.peering.phase() == (Phase::Replica { active: true })
            {
                actions.push(Action::CannotApply(n));
            }
            if osd.is_up && self.budget.kills > 0 {
                actions.push(Action::Kill(n));
            }
            if osd.is_up
                && self.budget.cuts > 0
                && map.up[usize::from(n)].is_some_and(|(start, _)| start == osd.start)
            {
                actions.push(Action::Cut(n));
            }
            if osd.is_up
                && self.budget.writes > 0
                && osd.peering.serves()
                && !osd.holds(self.write_to(osd) % 2)
            {
                actions.push(Action::Write(n));
            }
        }
        if self.budget.duplicates > 0 {
            // Sessions deliver a push at most once: in a peering that has ended it is not taken, beside clients it would be.
            let is_push = |message: &Message| matches!(message.body, Body::Push { .. });
            let may = |at: &usize| self.net[*at].to != MONITOR && !is_push(&self.net[*at]);
            actions.extend((0..self.net.len()).filter(may).map(Action::Duplicate));
        }
        if self.budget.moves > 0 && self.osds.len() > 2 {
            let others = || places(map);
            actions.extend(others().map(Action::Move));
            if self.budget.pairs > 0 {
                let differs = |n: &u8| {
                    let osd = &self.osds[usize::from(*n)];
                    map.up[usize::from(*n)].map(|(start, _)| start) != osd.is_up.then_some(osd.start)
                };
                let with = |wanted| all().filter(differs).map(move |n| Action::MoveWith(wanted, n));
                actions.extend(others().flat_map(with));
            }
        }
        if self.budget.splits > 0 {
            actions.push(Action::Split);
            let may_move = self.half == CHILD && self.budget.pairs > 0;
            actions.extend(places(map).filter(|_| may_move).map(Action::SplitTo));
        }
        if self.budget.merges > 0 && map.is_split {
            let is_announced = map.announced > 0;
            actions.push(if is_announced { Action::RetractMerge } else { Action::AnnounceMerge });
        }
        if self.budget.drops > 0 && !map.temp.is_empty() {
            actions.push(Action::DropTemp);
        }
        if self.budget.wipes > 0 {
            let is_whole = |osd: &Osd| !osd.disk.incomplete && osd.disk.lacks(self.acked) == 0;
            let others = |n| self.osds.iter().enumerate().filter(move |(at, _)| *at != usize::from(n));
            let may = |n: &u8| !self.osds[usize::from(*n)].is_up && others(*n).any(|(_, osd)| is_whole(osd));
            actions.extend(all().filter(may).map(Action::Wipe));
        }
        actions
    }

    /// A write that would leave a gap: the sessions of OSDs keep their order. A stray's word waits for its map.
    pub(super) fn is_early(&self, message: &Message) -> bool {
        if message.body == Body::Stray {
            return self.osds[usize::from(message.to)].epoch < message.epoch;
        }
        let Body::Write { version, .. } = message.body else { return false };
        version > self.osds[usize::from(message.to)].memory.log.len() as u64 + 1
            && self.net.iter().any(
                |m| matches!(m.body, Body::Write { version: v, .. } if v < version && m.to == message.to),
            )
    }

    pub(super) fn is_on_its_way(&self, osd: u8, (kind, to, attempt): &(Kind, u8, u64)) -> bool {
        let me = &self.osds[usize::from(osd)];
        let asked = |m: &Message| {
            m.from == osd
                && m.of_child == self.is_child(osd)
                && m.from_start == me.start
                && m.to == *to
                && m.attempt.attempt == *attempt
                && m.body.kind() == Some(*kind)
        };
        let answered = |m: &Message| {
            m.from == *to
                && m.to == osd
                && m.of_child == self.is_child(osd)
                && m.attempt.attempt == *attempt
                && matches!(&m.body, Body::Answer { kind: k, .. } if k == kind)
        };
        let worked_on = |done: &Done| matches!(done, Done::Order { order, .. } if asked(order));
        self.net.iter().any(|m| asked(m) || answered(m))
            || self.osds[usize::from(*to)].pending.iter().any(|(_, done)| worked_on(done))
    }
}
