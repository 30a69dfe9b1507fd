//! Blocks that the store cannot give, because their checksum does not hold or the drive fails, come from another member of
//! the acting set. The store compares the bytes with its own checksum and writes them to a new place; then the operation
//! goes on as if nothing had been.
//!
//! A block that nobody has is lost. While an OSD of past intervals that is down may have it, its object is unfound, as in
//! Ceph: clients' operations that need it wait until that OSD is back, or is given up (`ceph osd lost`).

use std::time::Duration;

use carmine_messenger::Message;
use carmine_peering::Phase;
use carmine_peering::intervals::Sources;
use carmine_reactor::Payload;
use carmine_store::StoreError;
use carmine_types::{Errno, ObjectId, OsdId, errno};

use super::reads::Objects;
use crate::error::OpError;
use crate::messages::{Head, PgData, PgRead};
use crate::pg::Pg;
use crate::shard::OsdShard;

/// Bytes that one checksum covers.
const BLOCK_BYTES: u32 = 4096;
/// Most that one member asks of another.
const READ_BYTES_MAX: u32 = 1 << 20;

/// So often an operation that waits for an unfound object looks whether somebody else can be asked.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// An operation that meets an unfound object …
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::pg) enum IfUnfound {
    /// … waits until it is found, or lost: a client's does.
    Wait,
    /// … fails.
    Fail,
}

/// A block that stays damaged.
pub(in crate::pg) struct Unhealed {
    pub error: StoreError,
    pub fate: Fate,
}

/// What is known of content that nobody could give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pg) enum Fate {
    /// Somebody who is up did not say.
    Unknown,
    /// An OSD that is down may have it.
    Unfound,
    /// All that may have it said that they have not.
    Lost,
}

impl From<Unhealed> for StoreError {
    fn from(unhealed: Unhealed) -> StoreError {
        unhealed.error
    }
}

impl Objects<'_> {
    /// Gives a lost block its content back; the error is what it was if that cannot be.
    pub(in crate::pg) async fn heal(self, error: StoreError, unfound: IfUnfound) -> Result<(), Unhealed> {
        let Objects { osd, pg } = self;
        let unknown = |error| Unhealed { error, fate: Fate::Unknown };
        let Some((oid, off)) = error.lost_block() else { return Err(unknown(error)) };
        osd.metrics.borrow_mut().blocks_lost += 1;
        let generation = pg.peer.generation();
        loop {
            let sources = pg.sources();
            let asked = pg.ask_for_block(osd, &sources.up, oid, off).await;
            if pg.peer.is_past(generation) && asked != Asked::Healed {
                return Err(unknown(error));
            }
            // Others may have it: this OSD cannot keep it any more.
            if let Some(stopped) = osd.store.refusal() {
                return Err(unknown(stopped));
            }
            let fate = match asked {
                _ if !sources.down.is_empty() => Fate::Unfound,
                Asked::Unanswered => Fate::Unknown,
                Asked::Healed | Asked::HaveNot => Fate::Lost,
            };
            if pg.peer.leads() {
                pg.note_unfound(osd, oid, asked != Asked::Healed && fate == Fate::Unfound);
            }
            if asked == Asked::Healed {
                osd.metrics.borrow_mut().blocks_healed += 1;
                return Ok(());
            }
            match fate {
                Fate::Unfound => {
                    tracing::error!("pg {}: unfound, {:?} may have it: {error}", pg.id, sources.down);
                }
                Fate::Unknown | Fate::Lost => {
                    tracing::error!("pg {}: no other copy has it: {error}", pg.id);
                }
            }
            if fate == Fate::Lost || unfound == IfUnfound::Fail || !pg.peer.is_active() {
                return Err(Unhealed { error, fate });
            }
            osd.shard.sleep(LOOK_AGAIN).await;
            while asked == Asked::HaveNot && pg.sources() == sources && !pg.peer.is_past(generation) {
                osd.shard.sleep(LOOK_AGAIN).await;
            }
        }
    }
}

/// The outcome of asking others for a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Healed,
    /// All of them said that they have not the content.
    HaveNot,
    /// One did not say.
    Unanswered,
}

fn take_data(answer: Message) -> Result<Payload, Errno> {
    let data: PgData = answer.decode().map_err(|_| Errno(errno::EINVAL))?;
    match data.result {
        0 => Ok(answer.into_parts().0.data),
        errno => Err(Errno(errno)),
    }
}

async fn give(osd: &OsdShard, pg: &Pg, oid: &ObjectId, off: u64, data: &Payload) -> Result<(), StoreError> {
    osd.store.heal(pg.id, pg.peer.bits(), oid, off, data).await?.await
}

impl Pg {
    /// The OSDs that may have content which is lost here; those that are up are other members, and strays.
    pub(crate) fn sources(&self) -> Sources {
        let peering = self.peer.machine();
        let Sources { up, down } = peering.might_have_unfound();
        let members = peering.acting().filter(|osd| *osd != peering.me());
        Sources { up: members.chain(up).collect(), down }
    }

    async fn ask_for_block(&self, osd: &OsdShard, sources: &[OsdId], oid: &ObjectId, off: u64) -> Asked {
        let mut asked = Asked::HaveNot;
        for from in sources.iter().copied() {
            let request = PgRead { head: self.head(osd), off, len: BLOCK_BYTES, oid: oid.clone() };
            let answer = osd.peers.request(from, self.id, Message::of(&request)).await;
            let healed = match answer.map(take_data) {
                None => {
                    asked = Asked::Unanswered;
                    Err("it does not answer".to_owned())
                }
                Some(Err(errno)) => {
                    if !matches!(errno.0, errno::EIO | errno::ENOENT) {
                        asked = Asked::Unanswered;
                    }
                    Err(errno.to_string())
                }
                Some(Ok(_)) if !self.peer.contains(oid) => {
                    Err("the object is another PG's by now".to_owned())
                }
                Some(Ok(data)) => give(osd, self, oid, off, &data).await.map_err(|error| error.to_string()),
            };
            match healed {
                Ok(()) => return Asked::Healed,
                Err(why) => {
                    tracing::warn!("pg {}: object {oid}, offset {off}: not from {from}: {why}", self.id);
                }
            }
        }
        // Once its lease is over, another primary may have gone on without this one: that they have other content by then says
        // nothing about what is lost here.
        if self.is_laggy(osd) { Asked::Unanswered } else { asked }
    }

    /// Another OSD lacks bytes of an object. It knows by its own checksum whether ours are those.
    pub(crate) async fn answer_read(&self, osd: &OsdShard, read: PgRead) -> Message {
        let head = read.head;
        let serves =
            matches!(self.peer.machine().phase(), Phase::Active | Phase::Replica { .. } | Phase::Stray);
        if !serves || read.len > READ_BYTES_MAX {
            return answer(head, Err(OpError::new(errno::EAGAIN)));
        }
        if !self.peer.contains(&read.oid) {
            return answer(head, Err(OpError::new(errno::EINVAL)));
        }
        let data = osd.store.read(&read.oid, read.off, read.len.into()).await;
        answer(head, data.map_err(OpError::from))
    }
}

fn answer(head: Head, data: Result<Payload, OpError>) -> Message {
    match data {
        Ok(data) => Message::of(&PgData { head, result: 0 }).with_data(data),
        Err(error) => Message::of(&PgData { head, result: error.report() }),
    }
}
