//! Messages that arrive: orders, requests and their answers.

use super::*;

impl World {
    pub(super) fn deliver(&mut self, message: Message) {
        let n = message.to;
        if n == MONITOR {
            return match message.body {
                Body::Temp { asked } => self.new_map(|map, _| map.heed(message.from, &asked)),
                Body::Mergeable(merged) => self.merge(message.epoch, merged),
                _ => {}
            };
        }
        if !self.osd(n).is_up || self.osd(n).start != message.to_start {
            return;
        }
        if message.of_child != self.is_child(n) || self.is_denied(n, &message) {
            return self.misdirected(n, &message);
        }
        let attempt = message.attempt;
        match message.body.clone() {
            Body::Answer { kind, result } => {
                let wait = (kind, message.from, attempt.attempt);
                let Some(at) = self.osd(n).waits.iter().position(|w| *w == wait) else { return };
                self.osd(n).waits.remove(at);
                let result = result.map_err(|code| match code {
                    errno::EAGAIN if kind == Kind::Query => Trouble::OtherMap,
                    code => Trouble::Refused(Errno(code)),
                });
                self.answered(n, kind, message.from, attempt.attempt, result);
            }
            Body::Write { version, entry, has_change } => {
                self.replicate(n, &message, version, entry, has_change);
            }
            Body::Acked { durable } => {
                let is_ours = self.osd(n).peering.attempt_id() == attempt && self.osd(n).peering.is_active();
                if let Some(follower) =
                    self.osd(n).followers.iter_mut().find(|f| f.0 == message.from && is_ours)
                {
                    follower.1 = follower.1.max(durable);
                    self.settle(n);
                }
            }
            Body::Refused => {
                if self.osd(n).peering.attempt_id() == attempt {
                    let why = Reason::NotActive(id(message.from));
                    self.on(n, Event::ReplicaStopped { attempt: attempt.attempt, why });
                }
            }
            Body::Stray => drop(self.on(n, Event::StrayFound(id(message.from)))),
            Body::Temp { .. } => {}
            order => self.order(n, order, message),
        }
    }

    pub(super) fn order(&mut self, n: u8, body: Body, message: Message) {
        let kind = body.kind().unwrap();
        let order = match &body {
            Body::Query { acting } => Order::Query { acting: ids(acting).into() },
            Body::Repair { complete_to, backfilled } => Order::Repair {
                has_room: true,
                complete_to: Eversion::new(0, *complete_to),
                last_backfill: place(*backfilled),
            },
            Body::Push { .. } | Body::Progress { .. } => Order::Push,
            Body::Complete => Order::Complete,
            Body::Activate { copy } => Order::Activate { last_epoch_started: Epoch(copy.started) },
            _ => return,
        };
        let then =
            self.on(n, Event::Ordered { attempt: message.attempt, epoch: Epoch(message.epoch), order });
        let Then::CarryOut { generation, info } = then else {
            return self.answer_order(n, &message, then);
        };
        let has_leases = self.has_leases;
        let osd = self.osd(n);
        if let Some(info) = info {
            (osd.memory.started, osd.memory.incomplete) = (info.last_epoch_started.0, info.incomplete);
            osd.memory.complete_to = info.complete_to.version;
            osd.memory.backfilled = backfilled(info.last_backfill);
        }
        match body {
            Body::Query { .. } => osd.primary = Some((message.from, message.from_start)),
            Body::Push { which, data } => {
                (0..2).filter(|at| which[*at]).for_each(|at| osd.memory.data[at] = data[at]);
            }
            Body::Activate { copy } => {
                let promised = has_leases.then_some((message.from, message.attempt.interval.0));
                osd.memory = Stored { data: osd.memory.data, made: osd.memory.made, promised, ..copy };
            }
            Body::Progress { complete_to, backfilled } => {
                (osd.memory.complete_to, osd.memory.backfilled) = (complete_to, backfilled);
            }
            Body::Complete => {
                (osd.memory.incomplete, osd.memory.complete_to, osd.memory.backfilled) = (false, 0, OBJECTS);
            }
            _ => {}
        }
        osd.pending.push_back((osd.memory.clone(), Done::Order { generation, kind, order: message }));
    }

    pub(super) fn answer_order(&mut self, n: u8, order: &Message, then: Then) {
        let result = match then {
            Then::Refuse(errno) => Err(errno.0),
            _ => Ok((order.body.kind() == Some(Kind::Query)).then(|| {
                let osd = self.osd(n);
                let promised = osd.peering.promised_lease();
                let promised = promised.map(|lease| (lease.holder.0 as u8, lease.interval.0));
                Stored { history: osd.peering.intervals().known(), promised, ..osd.memory.clone() }
            })),
        };
        self.answer(n, order, result);
    }

    pub(super) fn answer(&mut self, n: u8, to: &Message, result: Result<Option<Stored>, i32>) {
        let Some(kind) = to.body.kind() else { return };
        let (from_start, epoch, body) = (self.osd(n).start, self.osd(n).epoch, Body::Answer { kind, result });
        let back = Message { from: n, from_start, to: to.from, to_start: to.from_start, epoch, body, ..*to };
        self.transmit(back);
    }

    pub(super) fn answered(
        &mut self,
        n: u8,
        kind: Kind,
        from: u8,
        attempt: u64,
        result: Result<Option<Stored>, Trouble>,
    ) {
        let from_id = id(from);
        let ended = result.clone().map(|_| ());
        let done = |task| Event::Done { task, attempt, from: from_id, result: ended };
        let event = match kind {
            Kind::Query => {
                let copy = result.map(|copy| {
                    let copy = copy.unwrap();
                    let info = copy.info();
                    let ours = &mut self.osds[usize::from(n)];
                    let complete_to = copy.version(copy.complete_to as usize);
                    let common = match ours.memory.common_with(&copy.log) {
                        common if !copy.incomplete => Some(common),
                        common => (copy.complete_to > 0).then(|| common.min(complete_to)),
                    };
                    let since = common.unwrap_or_default();
                    let (here, there) = (ours.memory.changed_after(since), copy.changed_after(since));
                    // Objects of which no log tells are compared.
                    let known = common.map_or(0, |_| copy.backfilled.into());
                    let compared = differing(&ours.memory.data, &copy.data);
                    let all = [0, 1].map(|at| here[at] || there[at] || (at >= known && compared[at]));
                    let undone = [0, 1].map(|at| common.is_some() && there[at] && !here[at]);
                    ours.differ.retain(|(osd, ..)| *osd != from);
                    ours.differ.push((from, undone, all));
                    Copy { info, common, changed: Vec::new(), lease: copy.promised.map(lease::of) }
                });
                Event::Notified { attempt, from: from_id, copy }
            }
            Kind::Repair => done(Task::Mark),
            // Beside the writes of clients.
            Kind::Push if self.osd(n).peering.is_recovering(attempt, from_id) => {
                if ended.is_ok() {
                    return self.pushed(n, from);
                }
                done(Task::Recover)
            }
            Kind::Progress if ended.is_ok() => return self.osd(n).pushes = false,
            Kind::Progress => done(Task::Recover),
            Kind::Push => done(Task::Push),
            Kind::Complete => done(Task::Recover),
            Kind::Activate => done(Task::Activate),
        };
        let which = match self.on(n, event) {
            Then::Push => self.differ_of(n, from).1,
            Then::PushUndone => self.differ_of(n, from).0,
            _ => return,
        };
        let data = self.osd(n).memory.data;
        self.ask(n, from, Body::Push { which, data });
    }

    pub(super) fn differ_of(&self, n: u8, from: u8) -> (Which, Which) {
        let found = self.osds[usize::from(n)].differ.iter().find(|(osd, ..)| *osd == from);
        found.map_or(([false; 2], [true; 2]), |(_, undone, all)| (*undone, *all))
    }

    /// A replica has what it was pushed beside the clients' writes: it writes down where its backfill is, or that it is whole.
    pub(super) fn pushed(&mut self, n: u8, from: u8) {
        let osd = self.osd(n);
        let at = osd.lacking.iter().position(|lacking| lacking.osd == from).unwrap();
        let lacking = &mut osd.lacking[at];
        let backfilled = lacking.passed;
        if std::mem::take(&mut lacking.which) != Which::default() && backfilled < OBJECTS {
            osd.pushes = false;
            return;
        }
        if backfilled < OBJECTS {
            let complete_to = osd.memory.log.len() as u64;
            return self.ask(n, from, Body::Progress { complete_to, backfilled });
        }
        osd.pushes = false;
        osd.lacking.remove(at);
        self.ask(n, from, Body::Complete);
    }
}
