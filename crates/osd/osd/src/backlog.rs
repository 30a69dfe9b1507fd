//! Messages that wait until a peer can be reached.

use carmine_messenger::Message;
use carmine_types::SpgId;

use crate::messages::RepOp;

/// Messages that wait for a session. Writes of clients are bounded for each connection, not for an OSD, so there may be
/// more: those are left out, which is remembered.
const MESSAGES_MAX: usize = 64 << 10;

/// What waits for one session, in order.
#[derive(Default)]
pub(crate) struct Backlog {
    messages: Vec<(SpgId, Message)>,
    overflowed: bool,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// PGs that messages wait for.
    pub(crate) fn pgs(&self) -> impl Iterator<Item = SpgId> {
        self.messages.iter().map(|(pg, _)| *pg)
    }

    /// Appends a message, if there is room.
    pub(crate) fn push(&mut self, pg: SpgId, message: Message) {
        if self.messages.len() < MESSAGES_MAX {
            self.messages.push((pg, message));
        } else {
            self.overflowed = true;
        }
    }

    /// Takes all messages.
    pub(crate) fn take(&mut self) -> Vec<(SpgId, Message)> {
        std::mem::take(&mut self.messages)
    }

    /// Forgets writes: their PGs are going to send again all that is not acknowledged.
    pub(crate) fn forget_writes(&mut self) {
        self.messages.retain(|(_, message)| message.header.kind != RepOp::KIND);
        self.overflowed = false;
    }

    /// Whether a message was left out since this was last asked.
    pub(crate) fn take_overflow(&mut self) -> bool {
        std::mem::take(&mut self.overflowed)
    }
}

#[cfg(test)]
mod tests {
    use carmine_types::PgId;
    use carmine_wire::header::Front;

    use crate::messages::PgQuery;

    use super::*;

    use carmine_reactor::Payload;

    const PG: SpgId = SpgId::replicated(PgId::new(1, 2));

    fn write() -> Message {
        RepOp::message(Vec::new(), Payload::new(), None)
    }

    #[test]
    fn what_does_not_fit_is_remembered_once() {
        let mut backlog = Backlog::default();
        (0..MESSAGES_MAX).for_each(|_| backlog.push(PG, write()));
        assert!(!backlog.take_overflow());
        backlog.push(PG, write());
        assert_eq!(backlog.take().len(), MESSAGES_MAX);
        assert!(backlog.take_overflow() && !backlog.take_overflow());
    }

    #[test]
    fn writes_that_are_sent_again_do_not_pile_up() {
        let mut backlog = Backlog::default();
        (0..=MESSAGES_MAX).for_each(|_| backlog.push(PG, write()));
        backlog.forget_writes();
        assert!(backlog.is_empty() && !backlog.take_overflow());
        backlog.push(PG, Message::from_header(PgQuery::header(), Vec::new()));
        backlog.push(PG, write());
        backlog.forget_writes();
        let kinds: Vec<u16> = backlog.take().iter().map(|(_, message)| message.header.kind).collect();
        assert_eq!(kinds, [PgQuery::KIND]);
    }
}
