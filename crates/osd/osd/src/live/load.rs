//! How busy a reactor was in the last second.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use carmine_reactor::{Group, Shard};

/// Length of the window: a look each second costs a sleeping reactor one wake-up.
const WINDOW: Duration = Duration::from_secs(1);

/// Utilisation of one reactor, looked at once a second.
#[derive(Default)]
pub(crate) struct Load {
    /// Percent in the last whole window; none before the first.
    percent: Cell<Option<f64>>,
}

impl Load {
    /// Percent of the last whole second in which the reactor worked.
    pub(crate) fn percent(&self) -> Option<f64> {
        self.percent.get()
    }
}

/// Begins to measure on this shard.
pub(crate) fn start(shard: &Shard) {
    if shard.local::<Load>().is_some() {
        return;
    }
    let load = Rc::new(Load::default());
    shard.set_local(Rc::clone(&load));
    let own = shard.clone();
    shard.spawn(Group::Admin, "load", async move {
        let mut before = own.stats();
        loop {
            own.sleep(WINDOW).await;
            let now = own.stats();
            let wall_ns = now.wall_ns.saturating_sub(before.wall_ns).max(1);
            let busy_ns = now.busy_ns.saturating_sub(before.busy_ns);
            load.percent.set(Some((100.0 * busy_ns as f64 / wall_ns as f64).min(100.0)));
            before = now;
        }
    });
}
