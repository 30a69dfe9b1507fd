//! Blocks that the store cannot give, because their checksum does not hold or the drive fails, come from another member of
//! the acting set. The store compares the bytes with its own checksum and writes them to a new place; then the operation
//! goes on as if nothing had been.

use std::rc::Rc;

use carmine_messenger::Message;
use carmine_peering::Phase;
use carmine_pgtypes::ObjectChange;
use carmine_reactor::Payload;
use carmine_store::{Prepared, StoreError};
use carmine_types::{Errno, ObjectId, errno};

use super::Pg;
use crate::error::OpError;
use crate::messages::{Head, PgData, PgRead};
use crate::shard::OsdShard;

/// Bytes that one checksum covers.
const BLOCK_BYTES: u32 = 4096;
/// Damaged blocks that one operation heals at most.
const BLOCKS_MAX: usize = 1024;
/// Most that one member asks of another.
const READ_BYTES_MAX: u32 = 1 << 20;

/// Reads from the store, and heals what is damaged. Healing waits on the heap: it is rare, and each operation's future would
/// have room for it.
pub(super) async fn read(osd: &OsdShard, oid: &ObjectId, off: u64, len: u64) -> Result<Payload, Unhealed> {
    let mut healed = 0;
    loop {
        match osd.store.read(oid, off, len).await {
            Err(error) if healed < BLOCKS_MAX => Box::pin(heal(osd, error)).await?,
            Err(error) => return Err(Unhealed { error, is_lost: false }),
            Ok(data) => return Ok(data),
        }
        healed += 1;
    }
}

/// Prepares a write, and heals what it needs.
pub(super) async fn prepare(osd: &OsdShard, changes: &[ObjectChange]) -> Result<Prepared, StoreError> {
    let mut healed = 0;
    loop {
        match osd.store.prepare(changes).await {
            Err(error) if healed < BLOCKS_MAX => Box::pin(heal(osd, error)).await?,
            done => return done,
        }
        healed += 1;
    }
}

/// A block that stays damaged.
pub(super) struct Unhealed {
    pub error: StoreError,
    /// Every other member said that it has not the content either.
    pub is_lost: bool,
}

impl From<Unhealed> for StoreError {
    fn from(unhealed: Unhealed) -> StoreError {
        unhealed.error
    }
}

/// Gives a lost block its content back; the error is what it was if that cannot be.
pub(super) async fn heal(osd: &OsdShard, error: StoreError) -> Result<(), Unhealed> {
    let unknown = |error| Unhealed { error, is_lost: false };
    let Some((oid, off)) = error.lost_block() else { return Err(unknown(error)) };
    osd.metrics.borrow_mut().blocks_lost += 1;
    let id = osd.view().and_then(|view| view.object_pg(oid.pool, &oid.nspace, &oid.key, &oid.name));
    let Some(pg) = id.and_then(|id| osd.pg(id.into())) else { return Err(unknown(error)) };
    let mut is_lost = true;
    for member in pg.acting().into_iter().filter(|member| *member != osd.config.id) {
        let request = PgRead { head: pg.head(osd), off, len: BLOCK_BYTES, oid: oid.clone() };
        let answer = osd.peers.request(member, pg.id, Message::of(&request)).await;
        let healed = match answer.map(take_data) {
            None => {
                is_lost = false;
                Err("it does not answer".to_owned())
            }
            Some(Err(errno)) => {
                is_lost &= matches!(errno.0, errno::EIO | errno::ENOENT);
                Err(errno.to_string())
            }
            Some(Ok(_)) if !pg.contains(oid) => Err("the object is another PG's by now".to_owned()),
            Some(Ok(data)) => give(osd, &pg, oid, off, &data).await.map_err(|error| error.to_string()),
        };
        match healed {
            Ok(()) => {
                osd.metrics.borrow_mut().blocks_healed += 1;
                return Ok(());
            }
            Err(why) => tracing::warn!("pg {}: object {oid}, offset {off}: not from {member}: {why}", pg.id),
        }
    }
    tracing::error!("pg {}: no other copy has it: {error}", pg.id);
    Err(Unhealed { error, is_lost })
}

fn take_data(answer: Message) -> Result<Payload, Errno> {
    let data: PgData = answer.decode().map_err(|_| Errno(errno::EINVAL))?;
    match data.result {
        0 => Ok(answer.into_parts().0.data),
        errno => Err(Errno(errno)),
    }
}

async fn give(osd: &OsdShard, pg: &Pg, oid: &ObjectId, off: u64, data: &Payload) -> Result<(), StoreError> {
    osd.store.heal(pg.id, pg.bits.get(), oid, off, data).await?.await
}

impl Pg {
    /// Another member of the acting set lacks bytes of an object. It knows by its own checksum whether ours are those.
    pub(crate) async fn answer_read(self: &Rc<Self>, osd: &OsdShard, read: PgRead) -> Message {
        let head = read.head;
        let serves = matches!(self.peering.borrow().phase(), Phase::Active | Phase::Replica { .. });
        if !serves || read.len > READ_BYTES_MAX {
            return answer(head, Err(OpError::of(errno::EAGAIN)));
        }
        if !self.contains(&read.oid) {
            return answer(head, Err(OpError::of(errno::EINVAL)));
        }
        let data = osd.store.read(&read.oid, read.off, read.len.into()).await;
        answer(head, data.map_err(OpError::from))
    }
}

fn answer(head: Head, data: Result<Payload, OpError>) -> Message {
    match data {
        Ok(data) => Message::of(&PgData { head, result: 0 }).with_data(data),
        Err(error) => Message::of(&PgData { head, result: error.told() }),
    }
}
