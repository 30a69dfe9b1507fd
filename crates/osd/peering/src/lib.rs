//! Peering: how the copies of a placement group become equal at the start of an interval, and stay so.
//!
//! [`Peering`] is a pure state machine. It takes an [`Event`] and gives [`Effects`]; it has no clock, does no I/O and waits
//! for nothing. The OSD (`carmine-osd`, `pg/peer/shell.rs`) carries the effects out and brings the results back as events; the
//! tests of this crate explore every sequence of events up to a bound instead.
//!
//! Phases: `Loading` (the PG's state is read from the store) → by the map: primary: `Peering` → `Active`; member or backfill
//! target: `Replica`; otherwise `Stray`. A primary that can do nothing before something changes is `Down` (an OSD that is down may have writes),
//! `Incomplete` (no copy that is here can lead) or `Peered` (fewer members than `min_size`). A new interval (other up or acting set, or one
//! of its OSDs restarted) begins again.
//!
//! The primary asks all that may have writes of past intervals ([`intervals`]) what they have. When all have answered it decides
//! (`choose`) who leads, and with which members; if the acting set is another one, it asks the monitor for that and waits. Otherwise its log
//! wins: what a replica has beyond the common part is undone, and objects that differ since are copied whole. It lets those that
//! differ mark their copies as incomplete, waits until the map says that it was up in this interval (`up_thru`), writes down that the PG started,
//! gives all replicas its log, and then serves clients. With `min_size` complete members it pushes what the others lack beside the
//! clients' operations, object by object; with fewer it does so before.
//!
//! Rules, each of which is an assertion here or is checked by the tests:
//! - Every acknowledged write is in the log of every OSD of the acting set that served it. So each past interval needs one witness among those
//!   that answer: a copy that was there when it began, or was activated since.
//! - `last_epoch_started` tells whose interval is the latest. The primary writes it down before any replica does, when all
//!   copies are equal, and all have written it before anything new is executed. The shortest log of the copies with the newest one has all that
//!   was acknowledged before: no shorter log leads.
//! - A copy that is being made or repaired says durably that it is incomplete before anything of it changes: it never leads, and never counts
//!   as equal.
//! - Attempts are numbered. A replica accepts nothing of an earlier attempt or of another interval than that of the last query
//!   that it answered. The primary accepts no answer to an earlier attempt.
//! - A replica may have promised another primary, of an earlier interval, that nobody else serves for a while (a read lease). The
//!   primary serves nobody before that is over, unless the holder has answered: then it leads no more.
//! - A copy whose pool has more PGs now serves nobody and answers no primary until it is split. After the split neither half answers a
//!   primary that has not seen the split. A child continues its parent's copy ([`Peering::inherit`]): it is a witness of the same
//!   intervals, and the same promises bind it.
//! - A copy that was never activated does not know who served before. Its primary waits until another copy, or the monitor
//!   ([`Event::Created`]), tells it.

mod choose;
mod event;
pub mod intervals;
mod peering;
mod phase;
mod primary;
mod replica;

pub use event::{
    Copy, Effect, Effects, Event, Lease, Level, Map, Order, OsdState, Place, Task, Then, Trouble,
};
pub use peering::{AttemptId, Member, Peering, resize_is_due};
pub use phase::{Phase, Reason, Recovery};
