//! What sessions are subscribed to: options, maps, lines of the cluster log. Each piece is sent when the one before has left for
//! the peer, so that a subscription, however much it covers, never makes the monitor queue more than a little.

use std::rc::Rc;

use carmine_messenger::{Connection, Message};
use carmine_reactor::Group;
use carmine_types::Epoch;
use carmine_wire::EntityType;
use carmine_wire::mon_msg::{ConfigMsg, OsdMapMsg};

use crate::mon::Mon;
use crate::options::osd_default;
use crate::session::{MapWish, Session};

/// Nothing is pushed to a connection on which more than this waits to be sent. A message has no more maps or lines than this
/// either, unless one of them alone is longer.
pub(crate) const PUSH_BYTES: usize = 256 << 10;

impl Mon {
    /// Sends every session what is new to it.
    pub(crate) fn push_news(&self) {
        self.sessions.borrow_mut().values_mut().for_each(|session| self.push_to(session));
    }

    /// Sends everybody their options again.
    pub(crate) fn push_options(&self) {
        self.sessions
            .borrow_mut()
            .values_mut()
            .for_each(|session| session.lacks_options |= session.wants_options);
        self.push_news();
    }

    /// Sends a session what is new to it; a task of its own sends what has no room now.
    pub(crate) fn push_to(&self, session: &mut Session) {
        if !session.is_fed
            && self.push_some(session)
            && let Some(mon) = self.me.upgrade()
        {
            session.is_fed = true;
            self.shard.spawn(Group::Client, "mon-feed", feed(mon, Rc::clone(&session.conn)));
        }
    }

    /// Sends as much as there is room for. True: there may be more.
    fn push_some(&self, session: &mut Session) -> bool {
        while !session.conn.is_closed() {
            if session.conn.queued_bytes() > PUSH_BYTES {
                return true;
            }
            let Some(message) = self.next_news(session) else { return false };
            session.conn.send(message);
        }
        false
    }

    fn next_news(&self, session: &mut Session) -> Option<Message> {
        if std::mem::take(&mut session.lacks_options) {
            return Some(self.options_of(&session.conn));
        }
        let maps = self.next_maps(session);
        maps.or_else(|| self.next_order(session)).or_else(|| self.next_lines(session))
    }

    fn options_of(&self, conn: &Connection) -> Message {
        let all = self.options.borrow();
        let peer = conn.peer();
        let is_osd = peer.entity == EntityType::OSD;
        let own = all.effective(&format!("{}.{}", peer.entity, peer.name));
        let meant = own.iter().filter(|(name, _)| osd_default(name).is_some() == is_osd);
        let options = meant.map(|(name, (value, _))| ((*name).to_owned(), (*value).to_owned())).collect();
        Message::encode(&ConfigMsg { options })
    }

    /// The next maps that a session waits for. Clients get the current one; OSDs get those before it, too, from the one that
    /// they ask for on.
    fn next_maps(&self, session: &mut Session) -> Option<Message> {
        let (current, history) = (self.current(), self.history.borrow());
        let newest = current.map.epoch;
        let wish = session.osdmap.filter(|wish| wish.from <= newest)?;
        let wants_all = session.osd.is_some() && wish.from > Epoch(0);
        let first = if wants_all { wish.from } else { newest };
        let mut bytes = 0;
        let has_room = |(_, map): &(Epoch, Rc<Vec<u8>>)| {
            bytes += map.len();
            bytes == map.len() || bytes <= PUSH_BYTES
        };
        let maps = history.since(first).chain([(newest, Rc::clone(&current.bytes))]).take_while(has_room);
        let full: Vec<_> = maps.map(|(epoch, bytes)| (epoch, bytes.to_vec())).collect();
        let (last, _) = full.last()?;
        let is_done = wish.once && *last == newest;
        session.osdmap = (!is_done).then_some(MapWish { from: Epoch(last.0 + 1), ..wish });
        let oldest = history.oldest().filter(|_| wants_all).unwrap_or(newest);
        let front = OsdMapMsg::full(current.map.fsid, newest, Vec::new());
        Some(Message::encode(&OsdMapMsg { full, oldest, ..front }))
    }

    /// The next PGs that an OSD has to create, once it is up.
    fn next_order(&self, session: &mut Session) -> Option<Message> {
        let (wish, (osd, addrs)) = (session.pg_creates?, session.osd.as_ref()?);
        let map = &self.current().map;
        if map.client_addr(*osd) != Some(addrs) {
            return None;
        }
        let (order, wish) = self.creating.borrow().next_order(*osd, wish, map)?;
        session.pg_creates = Some(wish);
        Some(Message::encode(&order))
    }

    /// The next lines of the log that a session has not got.
    fn next_lines(&self, session: &mut Session) -> Option<Message> {
        let news = self.log.borrow().news(self.current().map.fsid, session.log.as_mut()?)?;
        Some(Message::encode(&news))
    }
}

/// Sends a session what it lacks, as its peer reads; ends when it lacks nothing.
async fn feed(mon: Rc<Mon>, conn: Rc<Connection>) {
    loop {
        conn.drained_to(PUSH_BYTES).await;
        let mut sessions = mon.sessions.borrow_mut();
        let Some(session) = sessions.get_mut(&conn.id()) else { return };
        session.is_fed = mon.push_some(session);
        if !session.is_fed {
            return;
        }
    }
}
