//! The OSDMap as this process knows it.

use carmine_messenger::Message;
use carmine_reactor::sync::Notify;
use carmine_types::Epoch;
use carmine_wire::mon_msg::OsdMapMsg;
use carmine_wire::osdmap::{Incremental, OsdMap};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

/// Why a message yields no map.
enum Unusable {
    /// It has changes only, and the map before them is missing.
    Gap,
    /// It cannot be read, or is of another cluster.
    Bad(String),
}

/// Called with every newer map, in order.
type Watcher = Rc<dyn Fn(&Arc<OsdMap>)>;
/// Asks the mon for maps from an epoch on.
type Asker = Rc<dyn Fn(Epoch)>;

/// Holds the newest map, whoever sent it: the mon or an OSD.
#[derive(Default)]
pub(crate) struct Maps {
    current: RefCell<Option<Arc<OsdMap>>>,
    watchers: RefCell<Vec<Watcher>>,
    changed: Notify,
    /// Called when a message could not be used, with the first epoch to ask the mon for; 0: the current map, whole.
    on_unusable: RefCell<Option<Asker>>,
}

impl Maps {
    /// The newest map; `None` until the first one came.
    pub(crate) fn current(&self) -> Option<Arc<OsdMap>> {
        self.current.borrow().clone()
    }

    /// Number of the newest map; 0: none yet.
    pub(crate) fn epoch(&self) -> Epoch {
        self.current.borrow().as_ref().map(|map| map.epoch).unwrap_or_default()
    }

    /// Calls `watcher` with each newer map, and at once with the current one.
    pub(crate) fn watch(&self, watcher: impl Fn(&Arc<OsdMap>) + 'static) {
        let watcher: Watcher = Rc::new(watcher);
        self.watchers.borrow_mut().push(Rc::clone(&watcher));
        if let Some(map) = self.current() {
            watcher(&map);
        }
    }

    /// Waits until the map is of `epoch` or newer.
    pub(crate) async fn reached(&self, epoch: Epoch) -> Arc<OsdMap> {
        loop {
            if let Some(map) = self.current().filter(|map| map.epoch >= epoch) {
                return map;
            }
            self.changed.notified().await;
        }
    }

    /// Applies the newer maps of an OSD_MAP message from `sender`. A message that cannot be used is logged and dropped.
    pub(crate) fn apply(&self, msg: &Message, sender: &str) {
        let maps = msg.decode::<OsdMapMsg>().map_err(|e| Unusable::Bad(e.to_string()));
        let why = match maps.and_then(|maps| self.newer_of(&maps)) {
            Ok(newer) => return newer.into_iter().for_each(|map| self.replace(map)),
            Err(why) => why,
        };
        let have = self.epoch();
        let ask = self.on_unusable.borrow().clone();
        let from = match why {
            Unusable::Gap => Epoch(have.0 + 1),
            Unusable::Bad(reason) => {
                tracing::warn!(sender, reason, have = have.0, "map message cannot be used");
                Epoch(0)
            }
        };
        if let Some(ask) = ask {
            ask(from);
        }
    }

    /// Calls `ask` whenever a message could not be used, with the first epoch to ask for; 0: the current map, whole.
    pub(crate) fn on_unusable(&self, ask: impl Fn(Epoch) + 'static) {
        *self.on_unusable.borrow_mut() = Some(Rc::new(ask));
    }

    /// The maps newer than the current one that the message leads to, in order. Each counts: a PG that another OSD served in
    /// between has dropped what was sent to it before.
    fn newer_of(&self, msg: &OsdMapMsg) -> std::result::Result<Vec<Arc<OsdMap>>, Unusable> {
        let mut newest = self.current();
        if let Some(known) = &newest
            && known.fsid != msg.fsid
        {
            let why = format!("it is of another cluster: {} instead of {}", msg.fsid, known.fsid);
            return Err(Unusable::Bad(why));
        }
        let have = |map: &Option<Arc<OsdMap>>| map.as_ref().map_or(0, |map| map.epoch.0);
        let mut newer = Vec::new();
        for (epoch, bytes) in &msg.incrementals {
            if epoch.0 == have(&newest) + 1
                && let Some(base) = &newest
            {
                let bad = |e: &dyn std::fmt::Display| Unusable::Bad(format!("incremental {epoch}: {e}"));
                let step = Incremental::decode(bytes).map_err(|e| bad(&e))?;
                let map = step.applied(base).map_err(|e| bad(&e))?;
                newer.push(Arc::clone(&map));
                newest = Some(map);
            }
        }
        // Maps of a message that jumps over epochs.
        let mut full: Vec<_> = msg.full.iter().filter(|(epoch, _)| epoch.0 > have(&newest)).collect();
        full.sort_by_key(|(epoch, _)| *epoch);
        full.dedup_by_key(|(epoch, _)| *epoch);
        for (epoch, bytes) in full {
            let map = OsdMap::decode(bytes).map_err(|e| Unusable::Bad(format!("full map {epoch}: {e}")))?;
            let map = Arc::new(map);
            newer.push(Arc::clone(&map));
            newest = Some(map);
        }
        let beyond = msg.incrementals.iter().any(|(epoch, _)| epoch.0 > have(&newest));
        if beyond && newer.is_empty() {
            return Err(Unusable::Gap);
        }
        Ok(newer)
    }

    fn replace(&self, map: Arc<OsdMap>) {
        tracing::debug!(epoch = map.epoch.0, "new map");
        *self.current.borrow_mut() = Some(Arc::clone(&map));
        let watchers = self.watchers.borrow().clone();
        watchers.iter().for_each(|watcher| watcher(&map));
        self.changed.notify_all();
    }
}
