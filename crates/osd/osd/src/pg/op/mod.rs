//! Clients' operations on a PG. `write` shows the whole path of a write, and `read` that of everything else.
//!
//! - `pipeline`: all operations that are not answered, and the queue of each object (`object`).
//! - `exec`: executes a request, and turns one that writes into a plan. `sparse`, `list`: sparse reads, and listings of the PG.
//! - `extra`, `snaps`: attributes, class methods, watches, and snapshots, which plain reads and writes never touch.
//! - `usage`, `served`: the number of objects in the PG, and the operations answered.

mod changes;
pub(crate) mod exec;
pub(crate) mod extra;
pub(crate) mod list;
mod numbering;
pub(crate) mod object;
pub(crate) mod pipeline;
mod read;
pub(crate) mod served;
pub(crate) mod snaps;
pub(crate) mod sparse;
pub(crate) mod usage;
mod write;

use std::cell::{Ref, RefCell};

use carmine_types::SpgId;

use crate::config::LogLimits;
use crate::watch::Watched;
use pipeline::Pipeline;
use served::Served;
use snaps::Snaps;
use usage::Usage;

/// The part of a PG that carries out operations.
#[derive(Default)]
pub(crate) struct ClientOps {
    pipeline: Pipeline,
    /// The number and the size of its objects (primary).
    usage: RefCell<Usage>,
    /// Counts of answered operations (primary).
    served: Served,
    /// The watchers of its objects (primary).
    watched: Watched,
    /// The snapshots of its pool.
    snaps: Snaps,
}

impl ClientOps {
    pub(in crate::pg) fn new(pg: SpgId, limits: LogLimits) -> ClientOps {
        ClientOps { pipeline: Pipeline::new(pg, limits.in_flight_max()), ..ClientOps::default() }
    }

    /// The operations that are not answered yet.
    pub(in crate::pg) fn pipeline(&self) -> &Pipeline {
        &self.pipeline
    }

    /// The number and the size of the PG's objects, to be read (primary).
    pub(in crate::pg) fn usage(&self) -> Ref<'_, Usage> {
        self.usage.borrow()
    }

    /// Counts of answered operations (primary).
    pub(in crate::pg) fn served(&self) -> &Served {
        &self.served
    }

    /// The watchers of the PG's objects (primary).
    pub(crate) fn watched(&self) -> &Watched {
        &self.watched
    }

    /// The snapshots of the PG's pool.
    pub(in crate::pg) fn snaps(&self) -> &Snaps {
        &self.snaps
    }

    /// Another OSD leads: clients go to the new primary, which learns the watchers from the objects.
    pub(in crate::pg) fn forget_clients(&self) {
        self.watched.forget();
        self.usage.borrow_mut().reset();
    }
}
