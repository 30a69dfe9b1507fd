//! Whole OSDs in the simulator: real messenger, real client, real stores; the monitor is the fake that the client's tests use, too.

mod at_once;
mod attrs;
mod barred;
mod basics;
mod bench;
mod cluster;
mod damaged;
mod faults;
mod flaky;
mod gaps;
mod heal;
mod heartbeat;
mod in_flight;
mod incomplete;
mod late;
mod lease;
mod lengths;
mod live;
mod memory;
mod misdirected;
#[path = "../../../../cluster/client/tests/shared/mon.rs"]
mod mon;
mod order;
mod peering;
mod pools;
mod raw;
mod recovery;
mod resend;
mod resized;
mod scrub;
mod skipped;
mod slow;
mod snaps;
mod unfound;
mod usage;
mod watch;
