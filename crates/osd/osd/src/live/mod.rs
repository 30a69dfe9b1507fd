//! What an OSD shows of itself while it runs: metrics over HTTP, and the admin socket. Both are tasks of one reactor in
//! the group `admin`; what the other reactors know is asked of them by message.

mod asok;
pub(crate) mod gather;
mod http;
mod load;
mod request;

use std::rc::Rc;

use carmine_reactor::ShardId;

pub use asok::serve_admin_socket;
pub use http::serve_http;

use crate::shard::OsdShard;

/// Begins to measure the utilisation of every reactor of this OSD, once a second.
pub fn measure_load(osd: &Rc<OsdShard>) {
    for to in (0..osd.shard.shards()).map(ShardId) {
        osd.shard.submit_to(to, load::start);
    }
}
