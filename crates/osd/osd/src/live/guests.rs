//! Connections of tools, a few at a time: one that waits for its peer gives way to a new one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use carmine_reactor::TcpStream;

/// Connections of one port or socket at a time.
const GUESTS_MAX: usize = 16;

/// Those that are open.
#[derive(Default)]
pub(super) struct Guests {
    ids: Cell<u64>,
    open: RefCell<BTreeMap<u64, Open>>,
}

struct Open {
    stream: TcpStream,
    /// Whether its question has arrived and is being answered.
    works: bool,
}

/// An open connection, until this is dropped.
pub(super) struct Guest {
    guests: Rc<Guests>,
    id: u64,
}

impl Guests {
    /// Admits a connection; `None` if there are too many and all are being answered. If there are too many, the oldest that has
    /// not asked yet, or does not read its answer, is closed.
    pub(super) fn admit(self: &Rc<Self>, stream: &TcpStream) -> Option<Guest> {
        let mut open = self.open.borrow_mut();
        if open.len() >= GUESTS_MAX {
            let oldest = open.iter().find(|(_, guest)| !guest.works).map(|(id, _)| *id)?;
            if let Some(guest) = open.remove(&oldest) {
                guest.stream.shutdown();
            }
        }
        let id = self.ids.get();
        self.ids.set(id + 1);
        open.insert(id, Open { stream: stream.clone(), works: false });
        Some(Guest { guests: Rc::clone(self), id })
    }
}

impl Guest {
    /// Runs `work` while the guest waits for this OSD: the connection does not give way meanwhile.
    pub(super) async fn while_answering<T>(&self, work: impl Future<Output = T>) -> T {
        self.set(true);
        let result = work.await;
        self.set(false);
        result
    }

    fn set(&self, works: bool) {
        if let Some(open) = self.guests.open.borrow_mut().get_mut(&self.id) {
            open.works = works;
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.guests.open.borrow_mut().remove(&self.id);
    }
}
