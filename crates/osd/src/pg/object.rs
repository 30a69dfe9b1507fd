//! Per-object order: readers share, a writer is alone while it executes, everyone in the order of arrival; readers wait
//! until the writes before them are durable.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use carmine_reactor::sync::{Notify, Permit, Semaphore};
use carmine_types::ObjectId;
use foldhash::fast::FixedState;

/// Readers of one object at once: all permits of its semaphore, which a writer takes together.
const READERS_MAX: usize = 1 << 16;

/// Objects of a PG that have operations. An object without any is not kept.
#[derive(Default)]
pub(crate) struct Objects(RefCell<HashMap<ObjectId, Rc<ObjectState>, FixedState>>);

struct ObjectState {
    /// FIFO: a waiting writer holds back the readers behind it.
    turn: Semaphore,
    /// Writes submitted and not yet durable everywhere.
    uncommitted: Cell<u32>,
    committed: Notify,
    /// Operations that hold this state.
    users: Cell<u32>,
}

/// An operation's claim on an object.
pub(crate) struct ObjectRef<'a> {
    objects: &'a Objects,
    oid: &'a ObjectId,
    state: Rc<ObjectState>,
}

/// One submitted write that is not yet durable everywhere; drop it when it is.
pub(crate) struct Uncommitted<'a>(&'a ObjectRef<'a>);

impl Objects {
    /// Registers an operation on `oid`.
    pub(crate) fn get<'a>(&'a self, oid: &'a ObjectId) -> ObjectRef<'a> {
        let mut objects = self.0.borrow_mut();
        let state = match objects.get(oid) {
            Some(state) => Rc::clone(state),
            None => {
                let state = Rc::new(ObjectState {
                    turn: Semaphore::new(READERS_MAX),
                    uncommitted: Cell::new(0),
                    committed: Notify::new(),
                    users: Cell::new(0),
                });
                objects.insert(oid.clone(), Rc::clone(&state));
                state
            }
        };
        state.users.set(state.users.get() + 1);
        ObjectRef { objects: self, oid, state }
    }

    /// Objects with operations.
    pub(crate) fn len(&self) -> usize {
        self.0.borrow().len()
    }
}

impl ObjectRef<'_> {
    /// Waits for the turn of a write; nothing else executes on the object until the permit is dropped.
    pub(crate) async fn write_turn(&self) -> Permit {
        self.state.turn.acquire(READERS_MAX).await
    }

    /// Waits for the turn of a read, and for the writes before it to be durable.
    pub(crate) async fn read_turn(&self) -> Permit {
        let permit = self.state.turn.acquire(1).await;
        while self.state.uncommitted.get() > 0 {
            self.state.committed.notified().await;
        }
        permit
    }

    /// Counts a submitted write.
    pub(crate) fn uncommitted(&self) -> Uncommitted<'_> {
        self.state.uncommitted.set(self.state.uncommitted.get() + 1);
        Uncommitted(self)
    }
}

impl Drop for Uncommitted<'_> {
    fn drop(&mut self) {
        let state = &self.0.state;
        state.uncommitted.set(state.uncommitted.get() - 1);
        if state.uncommitted.get() == 0 {
            state.committed.notify_all();
        }
    }
}

impl Drop for ObjectRef<'_> {
    fn drop(&mut self) {
        self.state.users.set(self.state.users.get() - 1);
        if self.state.users.get() == 0 {
            self.objects.0.borrow_mut().remove(self.oid);
        }
    }
}
