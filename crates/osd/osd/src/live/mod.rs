//! The views of a running OSD: metrics over HTTP, and the admin socket. Both are tasks of one reactor in the group `admin`, which
//! ask the other reactors by message.

mod asok;
pub(crate) mod gather;
mod guests;
mod http;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use carmine_reactor::{Group, Shard, ShardId};

use crate::shard::OsdShard;

pub use asok::serve_admin_socket;
pub use http::serve_http;

/// Begins to measure the utilisation of every reactor of this OSD, once a second.
pub fn measure_load(osd: &Rc<OsdShard>) {
    for to in (0..osd.shard.shards()).map(ShardId) {
        osd.shard.submit_to(to, load_start);
    }
}

// The load of a reactor in the last second.

/// Length of the window: each sample wakes a sleeping reactor once.
const WINDOW: Duration = Duration::from_secs(1);

/// Utilisation of one reactor, sampled once a second.
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
fn load_start(shard: &Shard) {
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
