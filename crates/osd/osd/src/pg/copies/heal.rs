//! Blocks that the store cannot read, because of a bad checksum or a failing drive, are fetched from another member of the acting
//! set. The store compares the bytes with its own checksum and writes them to a new place; then the operation continues as usual.
//!
//! A block that nobody has is lost. While an OSD of past intervals that is down may have it, its object is unfound, as in Ceph:
//! clients' operations that need it wait until that OSD is back, or is declared lost (`ceph osd lost`).

use std::time::Duration;

use carmine_messenger::Message;
use carmine_peering::Phase;
use carmine_peering::intervals::Sources;
use carmine_reactor::Payload;
use carmine_store::{BLOCK_BYTES, StoreError};
use carmine_types::{Errno, ObjectId, OsdId, errno};

use super::reads::Objects;
use crate::error::{OpError, refuse_if};
use crate::messages::{PgData, PgRead};
use crate::pg::Pg;
use crate::shard::OsdShard;

/// Most bytes that one member requests from another at once.
const READ_BYTES_MAX: u32 = 1 << 20;

/// How often an operation that waits for an unfound object checks whether another OSD can be asked.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// An operation that meets an unfound object …
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::pg) enum IfUnfound {
    /// … waits until it is found or lost (clients' operations).
    Wait,
    /// … fails.
    Fail,
}

/// A block that stays damaged.
pub(in crate::pg) struct Unhealed {
    pub error: StoreError,
    pub fate: Fate,
}

/// What is known of content that no OSD could give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::pg) enum Fate {
    /// An OSD that is up did not answer.
    Unknown,
    /// An OSD that is down may have it.
    Unfound,
    /// All OSDs that might have it answered that they do not.
    Lost,
}

impl From<Unhealed> for StoreError {
    fn from(unhealed: Unhealed) -> StoreError {
        unhealed.error
    }
}

impl Objects<'_> {
    /// Restores a lost block from another copy; returns the original error if that fails.
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
            // Others may have it, but this OSD cannot store it any more.
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
            let told = match fate {
                Fate::Unfound => format!("unfound, {:?} may have it", sources.down),
                Fate::Unknown | Fate::Lost => "no other copy has it".to_owned(),
            };
            tracing::error!("pg {}: {told}: {error}", pg.id);
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

/// The outcome of asking other OSDs for a block.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Healed,
    /// All answered that they do not have the content.
    HaveNot,
    /// At least one did not answer.
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
    /// The OSDs that may have content which is lost here: other members, strays, and OSDs that are down.
    pub(crate) fn sources(&self) -> Sources {
        let peering = self.peer.machine();
        let Sources { up, down } = peering.might_have_unfound();
        let members = peering.acting().osds().filter(|osd| *osd != peering.me());
        Sources { up: members.chain(up).collect(), down }
    }

    async fn ask_for_block(&self, osd: &OsdShard, sources: &[OsdId], oid: &ObjectId, off: u64) -> Asked {
        let mut asked = Asked::HaveNot;
        for from in sources.iter().copied() {
            let request = PgRead { head: self.head(osd), off, len: BLOCK_BYTES as u32, oid: oid.clone() };
            let answer = osd.peers.request(from, self.id, Message::encode(&request)).await;
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
        // Once its lease has ended, another primary may have continued without this one: that the others then have different
        // content says nothing about what is lost here.
        if self.is_laggy(osd) { Asked::Unanswered } else { asked }
    }

    /// Answers an OSD that lacks bytes of an object. It checks ours by its own checksum.
    pub(crate) async fn answer_read(&self, osd: &OsdShard, read: PgRead) -> Message {
        let PgRead { head, off, len, oid } = read;
        let serves =
            matches!(self.peer.machine().phase(), Phase::Active | Phase::Replica { .. } | Phase::Stray);
        let data = async {
            refuse_if(!serves || len > READ_BYTES_MAX, errno::EAGAIN)?;
            refuse_if(!self.peer.contains(&oid), errno::EINVAL)?;
            Ok::<_, OpError>(osd.store.read(&oid, off, len.into()).await?)
        };
        match data.await {
            Ok(data) => Message::encode(&PgData { head, result: 0 }).with_data(data),
            Err(error) => Message::encode(&PgData { head, result: error.report() }),
        }
    }
}
