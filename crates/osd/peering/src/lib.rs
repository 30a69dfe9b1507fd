//! Peering: how the copies of a placement group become equal at the start of an interval, and stay so.
//!
//! [`Peering`] is a pure state machine. It takes an [`Event`] and gives [`Effects`]; it has no clock, does no I/O and waits
//! for nothing. The OSD (`carmine-osd`, `pg/peer/shell.rs`) carries the effects out and brings the results back as events; the
//! tests of this crate explore every sequence of events up to a bound instead.
//!
//! Phases: `Loading` (the PG's state is read from the store) → by the map: primary: `Peering` → `Active`; member but not
//! primary: `Replica`; an owner of the data is down, or another OSD that may have served clients without this copy
//! ([`intervals`]), or there are fewer members than the pool's `min_size`: `Down`; not a member: `Stray`. A new interval (other acting set, or one of its OSDs restarted) begins again.
//!
//! An owner has every acknowledged write: the PG serves clients only while all owners are up. To go on without one, the
//! primary first lets the monitor strike it off the map's list; it is no owner again before it has all that others have.
//!
//! Every acknowledged write is in the log of every owner, so the primary's log wins: what a replica has beyond the common
//! part is undone, and objects that differ since are copied whole. The primary asks all replicas at once what they have, lets
//! those that differ mark their copies as incomplete, waits until the map says that it was up in this interval (`up_thru`),
//! writes down that the PG started, gives all replicas its log, and then serves clients. With `min_size` complete copies it pushes what the others lack beside the clients' operations, object by
//! object; with fewer it does so before.
//!
//! Rules, each of which is an assertion here or is checked by the tests:
//! - `last_epoch_started` tells whose interval is the latest. The primary writes it down before any replica does, when all
//!   copies are equal, and all have written it before anything new is executed. So a replica with a later one has data that
//!   the primary may lack (it lost its store), unless both end in the same entry: then the primary changes nothing and says so.
//! - A copy that is being made or repaired says durably that it is incomplete before anything of it changes: it never leads,
//!   and never counts as equal. A primary that finds another member's copy better than its own, or full, names it as successor;
//!   one that is incomplete looks for such a member while owners are down, too.
//! - Attempts are numbered. A replica takes nothing of an earlier attempt or of another interval than that of the last query
//!   that it answered. The primary takes no answer to an earlier attempt.
//! - A replica may have promised another primary, of an earlier interval, that nobody else serves for a while (a read lease). The
//!   primary serves nobody before that is over, and the copies name no later interval before: it is the only one to wait for.
//! - Between the promise to the monitor that all members are complete and the monitor's next map no attempt begins.

mod event;
pub mod intervals;
mod peering;
mod phase;
mod primary;
mod replica;

pub use event::{Copy, Effect, Effects, Event, Lease, Level, Map, Order, OsdState, Place, Then, Trouble};
pub use peering::{AttemptId, Member, Peering};
pub use phase::{Phase, Reason, Recovery};
