//! PGNLS: the objects of one PG in Ceph's order (PROTOCOL.md of the wire crate, §6); PGNLS_FILTER: only those with an xattr of a
//! given value.

use carmine_types::{ObjectId, SNAP_HEAD, errno};
use carmine_wire::Decoder;
use carmine_wire::osd_op::{ANSWER_BYTES, OsdOp, ops};
use carmine_wire::pgls::{ALL_NAMESPACES, END_OF_PG, HObject, ListedObject, PgNlsArg, PgNlsReply};

use crate::cls;
use crate::error::OpError;
use crate::op::{ClientOp, Outcome};
use crate::pg::Pg;
use crate::pg::copies::Objects;
use crate::shard::OsdShard;

/// Most objects in one answer, whatever the client asks for.
const ENTRIES_MAX: u64 = 4096;
/// Bytes of an object in an answer besides its name.
const ENTRY_BYTES: usize = 12;

/// Answers a request that is one listing operation.
pub(crate) async fn execute(osd: &OsdShard, pg: &Pg, op: &ClientOp) -> Outcome {
    if op.request.ops.iter().any(|request| request.code == ops::SCRUB_LS) {
        return pg.list_inconsistent(op);
    }
    match op.request.ops.first().map(|request| request.code) {
        // Hit sets exist only for cache tiers: there are none.
        Some(ops::HIT_SET_LS) => return Outcome::with_output(0, 0u32.to_le_bytes().to_vec()),
        Some(ops::HIT_SET_GET) => return Outcome::error(errno::ENOENT),
        _ => {}
    }
    match page(osd, pg, op).await {
        Ok((result, reply)) => Outcome::with_output(result, reply.encode()),
        Err(error) => Outcome::error(error.report()),
    }
}

async fn page(osd: &OsdShard, pg: &Pg, op: &ClientOp) -> Result<(i32, PgNlsReply), OpError> {
    let [request] = op.request.ops.as_slice() else { return Err(OpError::new(errno::EOPNOTSUPP)) };
    let (filter, cursor) = decode_request(request, &op.data.to_vec())?;
    if cursor.max {
        return Ok((END_OF_PG, PgNlsReply { next: HObject::max(), entries: Vec::new() }));
    }
    let wanted = request.pgls().max_entries.clamp(1, ENTRIES_MAX) as usize;
    let from = (!cursor.is_min()).then_some(&cursor.object);
    let (_turn, objects) = (osd.lists.acquire(1).await, pg.objects(osd));
    // One more than wanted: it is where the next page begins.
    let found = objects.list(from, wanted + 1).await?;
    let wanted = fitting(&found).min(wanted);
    let more = found.get(wanted).cloned();
    let mut entries = Vec::new();
    for oid in found.iter().take(wanted).filter(|oid| wanted_namespace(op, oid)) {
        if match &filter {
            Some(filter) => filter.matches(objects, oid).await?,
            None => true,
        } {
            entries.push(ListedObject::from(oid));
        }
    }
    Ok(match more {
        Some(next) => (0, PgNlsReply { next: next.into(), entries }),
        None => (END_OF_PG, PgNlsReply { next: after(pg), entries }),
    })
}

/// The filter, if there is one, and where to continue.
fn decode_request(request: &OsdOp, input: &[u8]) -> Result<(Option<Filter>, HObject), OpError> {
    let mut d = Decoder::new(input, "input of a listing");
    let filter = match request.code {
        ops::PGNLS => None,
        ops::PGNLS_FILTER => Some(Filter::decode(&mut d)?),
        _ => return Err(OpError::new(errno::EOPNOTSUPP)),
    };
    let cursor = PgNlsArg::decode(d.rest()).map_err(|_| OpError::new(errno::EINVAL))?.cursor;
    Ok((filter, cursor))
}

/// Objects whose xattr has this value: the only filters that come with Ceph.
struct Filter {
    /// Its name in the store; empty: no xattr, whose value counts as empty.
    xattr: Vec<u8>,
    value: Vec<u8>,
}

impl Filter {
    /// The names of a class and a method come first and are ignored; then the filter's name and its arguments.
    fn decode(d: &mut Decoder<'_>) -> Result<Filter, OpError> {
        let mut word = || d.blob().map(<[u8]>::to_vec).map_err(|_| OpError::new(errno::EINVAL));
        let (_, _, name) = (word()?, word()?, word()?);
        if name != b"plain" && name != b"hello.hello" {
            let class = name.split(|byte| *byte == b'.').next().filter(|class| class.len() < name.len());
            let is_barred = class.is_some_and(|class| !class.is_empty() && !cls::is_known(class));
            return Err(OpError::new(if is_barred { errno::EPERM } else { errno::EINVAL }));
        }
        Ok(Filter { xattr: word()?, value: word()? })
    }

    async fn matches(&self, objects: Objects<'_>, oid: &ObjectId) -> Result<bool, OpError> {
        if self.xattr.is_empty() {
            return Ok(self.value.is_empty());
        }
        let meta = objects.stat(oid).await?;
        Ok(meta.is_some_and(|meta| meta.xattrs.get(&self.xattr).is_some_and(|value| **value == *self.value)))
    }
}

/// How many of the objects fit in an answer: at least one, and as many as the request was admitted for.
fn fitting(found: &[ObjectId]) -> usize {
    let mut bytes = 0;
    let fits = found.iter().take_while(|oid| {
        bytes += (oid.nspace.len() + oid.key.len() + oid.name.len() + ENTRY_BYTES) as u64;
        bytes <= ANSWER_BYTES
    });
    fits.count().max(1)
}

fn wanted_namespace(op: &ClientOp, object: &ObjectId) -> bool {
    object.snap == SNAP_HEAD && (op.oid.nspace.as_ref() == ALL_NAMESPACES || op.oid.nspace == object.nspace)
}

/// The first possible object of the next PG in the order of reversed hashes; after the last PG, the end of all objects.
fn after(pg: &Pg) -> HObject {
    let bits = pg.peer.bits().min(32);
    let first = u64::from(pg.id.pgid.ps.reverse_bits()) & !(u64::from(u32::MAX) >> bits);
    match u32::try_from(first + (1u64 << (32 - bits))) {
        Ok(next) => HObject::from(ObjectId::cursor(pg.id.pgid.pool, next.reverse_bits())),
        Err(_) => HObject::max(),
    }
}
