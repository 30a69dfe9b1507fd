//! Requests that wait for a reply with their number.

use carmine_messenger::{Connection, Message, Parts};
use carmine_reactor::sync::oneshot;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// Requests without an answer yet, by transaction id. At most as many as there are callers that wait.
#[derive(Default)]
pub(crate) struct Pending {
    last: Cell<u64>,
    waiting: RefCell<BTreeMap<u64, Waiting>>,
}

/// Where the reply to a request comes in.
pub(crate) type Asked = oneshot::Receiver<Message>;

struct Waiting {
    /// Kept to be sent again.
    request: Parts,
    reply: oneshot::Sender<Message>,
}

impl Pending {
    /// Registers the request that `make` makes of its number, and returns where its reply will come in. It is not sent.
    pub(crate) fn register(&self, make: impl FnOnce(u64) -> Message) -> (u64, Asked) {
        let id = self.last.get() + 1;
        self.last.set(id);
        let (request, _) = make(id).with_tid(id).into_parts();
        let (reply, receiver) = oneshot::channel();
        let mut waiting = self.waiting.borrow_mut();
        // Callers that gave up leave their entry behind; this is where it goes.
        waiting.retain(|_, waiting| !waiting.reply.is_closed());
        waiting.insert(id, Waiting { request, reply });
        (id, receiver)
    }

    /// Sends a request.
    pub(crate) fn send(&self, id: u64, conn: &Connection) {
        if let Some(Waiting { request, .. }) = self.waiting.borrow().get(&id) {
            conn.send_parts(&request.header, &request.front, &request.data);
        }
    }

    /// Sends all requests that somebody still waits for, in their order.
    pub(crate) fn send_all(&self, conn: &Connection) {
        self.waiting.borrow_mut().retain(|_, waiting| !waiting.reply.is_closed());
        for Waiting { request, .. } in self.waiting.borrow().values() {
            conn.send_parts(&request.header, &request.front, &request.data);
        }
    }

    /// Hands a reply to whoever waits for it; nobody may.
    pub(crate) fn resolve(&self, id: u64, reply: Message) {
        let waiting = self.waiting.borrow_mut().remove(&id);
        if let Some(waiting) = waiting {
            // The caller may have given up meanwhile.
            let _ = waiting.reply.send(reply);
        }
    }

    /// Tells all callers that no reply will come.
    pub(crate) fn fail_all(&self) {
        let all = std::mem::take(&mut *self.waiting.borrow_mut());
        drop(all);
    }
}
