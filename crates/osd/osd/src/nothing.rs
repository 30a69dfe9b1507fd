//! Answers to classic OSDs that ask what this one has of a PG (MOSDPGQuery2).
//!
//! A pool of classic OSDs that is moved here by mistake is served by nobody: its PGs are new here, and do not know what was written.
//! When it is moved back, its classic OSDs ask all that were members meanwhile, and wait until each has answered: they serve again only if
//! this OSD says that it has nothing. It says so only where it is certain, since they continue without anything that it does not name.
//! Otherwise this OSD says nothing at all, and their PG waits.

use std::rc::Rc;
use std::time::Duration;

use carmine_messenger::{Connection, Message, Permit, PermitToken};
use carmine_reactor::{Group, ShardId};
use carmine_types::{Epoch, OsdId, PgId, SpgId, StoreKind};
use carmine_wire::osd_msg::{PastIntervals, PgAnswer, PgInfo, PgNotify2, PgQuery2, PgQuestion};

use crate::op::Origin;
use crate::shard::OsdShard;

/// Pause before PGs are looked at again that were still being read.
const RETRY: Duration = Duration::from_millis(50);

/// What this OSD has of a PG, or of the PG's objects in other PGs of the pool. Of several findings the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Held {
    /// Nothing was ever written to it here.
    Nothing,
    /// A PG is still being read from the store.
    Unread,
    /// There may be something.
    Data,
    /// This OSD is a member by a newer map than the asker's, or CRUSH names it.
    Member,
}

/// A question that waits for its map (shard 0).
pub(crate) struct Asked {
    query: PgQuery2,
    /// The connection on which it came, and its right to hold a message: what waits here is bounded by it.
    from: Origin,
    token: Option<PermitToken>,
}

/// Another OSD asks. Shard 0 answers: it has each map first, and the other shards get it before any later work.
pub(crate) fn on_query(osd: &Rc<OsdShard>, conn: &Rc<Connection>, msg: Message) {
    let query = match msg.decode::<PgQuery2>() {
        Ok(query) => query,
        Err(error) => return tracing::warn!("{conn:?}: a question about a PG is ignored: {error}"),
    };
    if query.question.kind != PgQuestion::INFO {
        let (pg, kind) = (query.pg, query.question.kind);
        return tracing::debug!(
            "pg {pg}: {conn:?} asks for a log (kind {kind}), and there is none: no answer"
        );
    }
    let from = Origin { home: osd.shard.id(), conn: conn.id() };
    let token = msg.into_parts().1.map(Permit::detach);
    OsdShard::run_on(&osd.shard, ShardId(0), move |first| consider(first, Asked { query, from, token }));
}

/// Answers what waited for the map that has come (shard 0).
pub(crate) fn reconsider(osd: &Rc<OsdShard>) {
    let waiting = std::mem::take(&mut *osd.asked.borrow_mut());
    waiting.into_iter().for_each(|asked| consider(osd, asked));
}

/// Drops the questions of a connection that closed (shard 0).
pub(crate) fn forget(osd: &OsdShard, from: Origin) {
    osd.asked.borrow_mut().retain(|asked| asked.from != from);
}

/// Answers once there is the asker's map, and the PGs that only the store knows are known. The question comes once in an interval, so
/// it has to be kept.
fn consider(osd: &Rc<OsdShard>, asked: Asked) {
    let is_early = asked.query.question.epoch_sent > osd.epoch() || !osd.table.borrow().knows_strays();
    if is_early {
        return osd.asked.borrow_mut().push(asked);
    }
    let own = Rc::clone(osd);
    osd.shard.spawn(Group::Recovery, "classic-query", async move {
        let Asked { query, from, token } = asked;
        let answer = answer(&own, &query).await;
        OsdShard::with_conn(&own.shard, from, move |conn| {
            token.into_iter().for_each(|token| conn.release(token));
            answer.into_iter().for_each(|answer| conn.send(Message::encode(&answer)));
        });
    });
}

/// The answer that there is nothing here; `None`: that is not certain, and nothing is said.
async fn answer(osd: &Rc<OsdShard>, query: &PgQuery2) -> Option<PgNotify2> {
    let pg = query.pg;
    // A store that forgets what it had when the OSD stops cannot tell that it never had it.
    if osd.store.kind() != StoreKind::Blue {
        tracing::info!("pg {pg}: another OSD asks what is here: no answer, as this store does not last");
        return None;
    }
    let (epoch, held) = look(osd, pg.pgid).await?;
    if held != Held::Nothing {
        tracing::info!("pg {pg}: another OSD asks what is here: no answer, as it is not nothing ({held:?})");
        return None;
    }
    tracing::info!("pg {pg}: another OSD hears that nothing of it is here");
    Some(has_nothing(query, epoch))
}

/// What all shards have of a PG, and the map under which they have it; `None`: there is no such PG, or this OSD stops.
async fn look(osd: &Rc<OsdShard>, pg: PgId) -> Option<(Epoch, Held)> {
    let own = osd.config.id;
    while !osd.is_stopping() {
        let view = osd.view()?;
        let pg_num = view.map().pool(pg.pool).map(|pool| pool.pg_num).filter(|pg_num| pg.ps < *pg_num)?;
        let mapping = view.mapping(pg);
        let mut members = mapping.acting.iter().chain(&mapping.up).filter_map(|item| OsdId::from_item(*item));
        if members.any(|osd| osd == own) {
            return Some((view.epoch(), Held::Member));
        }
        let found = osd.on_all(move |osd| held(osd, pg, pg_num)).await;
        let held = found.iter().copied().max().filter(|_| found.len() == usize::from(osd.shard.shards()));
        match held {
            None | Some(Held::Unread) => osd.shard.sleep(RETRY).await,
            Some(held) => return Some((view.epoch(), held)),
        }
    }
    None
}

/// What this reactor has of a PG, in any of the PG's shards or in PGs that were made while the pool had another `pg_num`.
fn held(osd: &OsdShard, asked: PgId, pg_num: u32) -> Held {
    let pgs = osd.pgs.borrow();
    let of_pool = pgs.values().filter(|pg| pg.id.pgid.pool == asked.pool);
    of_pool.map(|pg| pg.held(asked, pg_num)).max().unwrap_or(Held::Nothing)
}

fn has_nothing(query: &PgQuery2, epoch: Epoch) -> PgNotify2 {
    let PgQuery2 { pg, question } = query;
    PgNotify2 {
        pg: SpgId { shard: question.from, ..*pg },
        answer: PgAnswer {
            query_epoch: question.epoch_sent,
            epoch_sent: epoch,
            info: PgInfo::nothing(SpgId { shard: question.to, ..*pg }),
            to: question.from,
            from: question.to,
            past: PastIntervals::default(),
        },
    }
}
