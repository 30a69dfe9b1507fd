//! The repair of one object, whose writes wait meanwhile.
//!
//! The content of the authoritative copy is written as a client's write would be: an entry of the log, which all members apply,
//! and which is durable on all of them before the repair counts. A good copy is replaced by an equal one in one step of its
//! store, so there are never fewer good copies than before, whatever crashes.

use std::sync::Arc;
use std::time::Duration;

use carmine_messenger::{Message, with_timeout};
use carmine_pgtypes::{KEY_BYTES, ObjectChange, ObjectMeta, Step};
use carmine_reactor::sync::oneshot;
use carmine_reactor::{Bytes, Payload};
use carmine_store::{BLOCK_BYTES, OmapRange};
use carmine_types::crc32c::SEED;
use carmine_types::{Errno, LogOp, ObjectId, OsdId, ReqId, SNAP_HEAD};
use carmine_wire::osd_op::{OpList, OsdRequest, flags};

use super::OMAP_PAGE_BYTES;
use super::compare::Inconsistent;
use super::run::{End, Range, Run, fail_if};
use super::scan::{checksums, of_header, part};
use crate::config::{REQUEST_BYTES_MAX, TXN_BYTES_MAX};
use crate::messages::{PgData, PgFetch, PgObject, PgRead, Scanned};
use crate::op::{ClientOp, ReplyTo};
use crate::pg::copies::{IfUnfound, own_store};
use crate::pg::op::exec::Plan;
use crate::pg::op::extra::Extra;
use crate::pg::op::snaps::CloneChange;

/// Bytes of data read at once.
const PIECE_BYTES: u64 = 1 << 20;
/// How often a repair that waits for its commit checks that the generation is still current.
const LOOK: Duration = Duration::from_millis(100);

/// An object without its data.
struct Content {
    meta: ObjectMeta,
    header: Bytes,
    omap: Vec<(Box<[u8]>, Bytes)>,
    /// Size of the object's content, including the data.
    bytes: u64,
}

impl Run {
    /// Repairs an object; returns what is still wrong with it afterwards.
    pub(super) async fn repair(&mut self, object: Inconsistent) -> Result<Option<Inconsistent>, End> {
        let oid = Arc::new(object.object.oid.clone());
        match self.write_over(&oid, object).await {
            Ok(()) => {}
            Err(End::Failed(why)) => {
                tracing::error!("pg {}: object {oid} cannot be repaired: {why}", self.pg.id);
            }
            Err(end) => return Err(end),
        }
        self.check_current()?;
        let left = self.compare_copies(std::slice::from_ref(&oid), &Range::single(&oid)).await?.pop();
        if left.is_none() {
            tracing::info!("pg {}: object {oid} is repaired", self.pg.id);
            self.osd.metrics.borrow_mut().scrub_repaired += 1;
            self.repaired += 1;
        }
        Ok(left)
    }

    async fn write_over(&self, oid: &Arc<ObjectId>, object: Inconsistent) -> Result<(), End> {
        let object = if object.authority.is_some() { Some(object) } else { self.heal(oid).await? };
        match object.as_ref().map(|object| (object, &object.authority)) {
            None => Ok(()),
            Some((_, None)) => Err(End::Failed("no copy can be read".to_owned())),
            Some((object, Some((from, right)))) if object.only_unreadable() => {
                self.write_data(oid, *from, right).await
            }
            Some((_, Some((from, right)))) => self.write_whole(oid, *from, right).await,
        }
    }

    /// Heals this copy, if no copy can be read whole, with blocks of any members: together they may have all. Returns what is
    /// still wrong.
    async fn heal(&self, oid: &Arc<ObjectId>) -> Result<Option<Inconsistent>, End> {
        let objects = self.pg.objects(&self.osd);
        let size = objects.stat(oid).await?.map_or(0, |meta| meta.size);
        let mut off = 0;
        while off < size {
            let piece = PIECE_BYTES.min(size - off);
            let read = objects.read(oid, off, piece, IfUnfound::Fail).await;
            read.map_err(|unhealed| End::from(unhealed.error))?;
            self.check_current()?;
            off += piece;
        }
        Ok(self.compare_copies(std::slice::from_ref(oid), &Range::single(oid)).await?.pop())
    }

    /// Rewrites the whole object in one step, if copies differ in more than unreadable blocks: a part of it would look like a
    /// good copy after a crash.
    async fn write_whole(&self, oid: &Arc<ObjectId>, from: OsdId, right: &Scanned) -> Result<(), End> {
        let too_long = || format!("it has {} bytes, more than {REQUEST_BYTES_MAX}", right.size);
        fail_if(right.size > REQUEST_BYTES_MAX, too_long)?;
        let content = self.content(oid, from).await?;
        let mut data = Payload::new();
        while (data.len() as u64) < right.size {
            let off = data.len() as u64;
            data.append(&self.piece(oid, from, off, right.size).await?);
        }
        let is_right = data.crc32c(SEED) == right.data
            && content.meta.version == right.version
            && checksums(&content.meta.xattrs) == (right.attr_names, right.attrs)
            && content.omap_crc() == right.omap;
        fail_if(!is_right, || format!("the copy of {from} has changed"))?;
        let Content { meta, header, omap, .. } = content;
        let mut steps = vec![Step::Remove, Step::Truncate { size: meta.size }];
        steps.extend(without_zeros(&data).map(|(off, data)| Step::Write { off, data }));
        let xattrs = meta.xattrs.iter();
        steps.extend(xattrs.map(|(name, value)| Step::SetXattr { name: name.into(), value: value.clone() }));
        steps.extend((!header.is_empty()).then_some(Step::SetOmapHeader { header }));
        steps.extend((!omap.is_empty()).then_some(Step::SetOmap { entries: omap }));
        self.submit(oid, &meta, steps).await
    }

    /// Overwrites copies whose data cannot be read, piece by piece: the pieces not yet written stay unreadable.
    async fn write_data(&self, oid: &Arc<ObjectId>, from: OsdId, right: &Scanned) -> Result<(), End> {
        let meta = self.meta_of(from, oid).await?;
        let mut off = 0;
        while off < right.size {
            let data = self.piece(oid, from, off, right.size).await?;
            let len = data.len() as u64;
            self.submit(oid, &meta, [Step::Write { off, data }]).await?;
            off += len;
        }
        Ok(())
    }

    /// Reads the next bytes of a member's copy, at least one.
    async fn piece(&self, oid: &ObjectId, from: OsdId, off: u64, size: u64) -> Result<Payload, End> {
        let len = PIECE_BYTES.min(size - off);
        self.osd.pace.throttle(&self.osd.shard, len).await;
        let data = if from == self.osd.config.id {
            own_store(&self.osd).read(oid, off, len).await?
        } else {
            let head = self.pg.head(&self.osd);
            let read = PgRead { head, off, len: len as u32, oid: oid.clone() };
            let answer = self.osd.peers.request(from, self.pg.id, Message::encode(&read)).await;
            let answer = answer.ok_or_else(|| End::Failed(format!("{from} does not answer")))?;
            let result = answer.decode::<PgData>().map_err(|error| End::Failed(error.to_string()))?.result;
            fail_if(result != 0, || format!("{from}: {}", Errno(result)))?;
            answer.into_parts().0.data
        };
        self.check_current()?;
        fail_if(data.len() as u64 != len, || format!("the copy of {from} has changed its size"))?;
        Ok(data)
    }

    /// Metadata of a member's copy.
    pub(super) async fn meta_of(&self, member: OsdId, oid: &ObjectId) -> Result<ObjectMeta, End> {
        if member == self.osd.config.id {
            return Ok(own_store(&self.osd).stat(oid).await?.unwrap_or_default());
        }
        let ask = |head| Message::encode(&PgFetch { head, oid: oid.clone(), from: None });
        Ok(self.ask(member, ask, |answer: &PgObject| answer.result).await?.meta)
    }

    /// Metadata and omap of a member's copy.
    async fn content(&self, oid: &ObjectId, from: OsdId) -> Result<Content, End> {
        if from == self.osd.config.id { self.own_content(oid).await } else { self.fetch(oid, from).await }
    }

    async fn own_content(&self, oid: &ObjectId) -> Result<Content, End> {
        let store = own_store(&self.osd);
        let meta = store.stat(oid).await?.ok_or_else(|| End::Failed("it is gone".to_owned()))?;
        let mut content = Content::new(meta, store.omap_header(oid).await?)?;
        let mut range = OmapRange::all(OMAP_PAGE_BYTES);
        loop {
            let page = store.omap_page(oid, &range).await?;
            range = range.after(&page);
            content.append(page.entries)?;
            if !page.more {
                return Ok(content);
            }
        }
    }

    async fn fetch(&self, oid: &ObjectId, from: OsdId) -> Result<Content, End> {
        let ask = |from: Option<Vec<u8>>| {
            move |head| Message::encode(&PgFetch { head, oid: oid.clone(), from: from.clone() })
        };
        let result = |answer: &PgObject| answer.result;
        let PgObject { meta, header, mut more, .. } = self.ask(from, ask(None), result).await?;
        let mut content = Content::new(meta, Bytes::from(header))?;
        let mut start = Vec::new();
        while more {
            let page: PgObject = self.ask(from, ask(Some(start)), result).await?;
            let Some((last, _)) = page.entries.last() else { break };
            start = [last.as_slice(), &[0]].concat(); // the smallest key above it
            more = page.more;
            content.append(page.entries.into_iter().map(|(key, value)| (key.into(), Bytes::from(value))))?;
        }
        Ok(content)
    }

    /// Submits a log entry that changes the object, and waits until it is durable on all members. The version that clients see,
    /// and the time, do not change.
    async fn submit(
        &self,
        oid: &Arc<ObjectId>,
        meta: &ObjectMeta,
        steps: impl IntoIterator<Item = Step>,
    ) -> Result<(), End> {
        let (osd, pg) = (&self.osd, &self.pg);
        let objects = pg.objects(osd);
        let own = objects.stat(oid).await.ok().flatten();
        let mut plan = Plan::failed(0);
        plan.changes.set_object(ObjectChange::new(Arc::clone(oid), steps));
        let is_too_long = plan.changes.bytes_max() > TXN_BYTES_MAX;
        fail_if(is_too_long, || format!("its steps take more than {TXN_BYTES_MAX} bytes"))?;
        let _prepared = objects.prepare(plan.changes.all(), IfUnfound::Fail).await?;
        // No suspension from here on until the entry is submitted.
        self.check_current()?;
        let mut request =
            OsdRequest::new(pg.id.pgid, osd.epoch(), flags::CLIENT_WRITE, oid, OpList::default());
        request.mtime = meta.mtime;
        let (tell, mut told) = oneshot::channel();
        // Entries without a client have a zero id.
        let now_ns = osd.shard.now_ns();
        let op = ClientOp::new(request, ReqId::default(), Payload::new(), now_ns, ReplyTo::Local(tell));
        let sizes = (own.as_ref().map(|own| own.size), Some(meta.size));
        let is_head = oid.snap == SNAP_HEAD;
        // A request without operations changes nothing that clients see.
        let mut extra = Extra::default();
        if !is_head {
            extra.clones.push(CloneChange { id: oid.snap, before: sizes.0, after: sizes.1 });
        }
        let plan = Plan {
            effect: LogOp::Modify,
            prior: own.as_ref().map(|own| own.version).unwrap_or_default(),
            sizes: if is_head { sizes } else { (None, None) },
            user_version: meta.user_version,
            extra: Some(Box::new(extra)),
            ..plan
        };
        pg.submit(osd, op, plan);
        loop {
            // In a new interval it would wait until the PG is active again.
            match with_timeout(&osd.shard, LOOK, &mut told).await {
                None => self.check_current()?,
                Some(Ok(reply)) if reply.result == 0 => return self.check_current(),
                Some(Ok(reply)) => return Err(End::Failed(Errno(reply.result).to_string())),
                Some(Err(_)) => return Err(End::Interval),
            }
        }
    }
}

impl Content {
    fn omap_crc(&self) -> u32 {
        let header = of_header(self.header.as_slice());
        self.omap.iter().fold(header, |crc, (key, value)| part(part(crc, key), value.as_slice()))
    }

    fn new(meta: ObjectMeta, header: Bytes) -> Result<Content, End> {
        let bytes = meta.size.saturating_add((header.len() + meta.xattrs.bytes()) as u64);
        let content = Content { meta, header, omap: Vec::new(), bytes };
        content.check_size().map(|()| content)
    }

    fn append(&mut self, entries: impl IntoIterator<Item = (Box<[u8]>, Bytes)>) -> Result<(), End> {
        for (key, value) in entries {
            self.bytes = self.bytes.saturating_add(KEY_BYTES + (key.len() + value.len()) as u64);
            self.omap.push((key, value));
        }
        self.check_size()
    }

    /// Fails if the object is too large for one transaction, which one message must carry.
    fn check_size(&self) -> Result<(), End> {
        fail_if(self.bytes > TXN_BYTES_MAX, || {
            format!("with its omap it has more than {TXN_BYTES_MAX} bytes")
        })
    }
}

/// The runs of blocks that are not all zeros, with their offsets: the others become holes, as most of them were.
fn without_zeros(data: &Payload) -> impl Iterator<Item = (u64, Payload)> {
    let block = |at: usize| data.slice(at, (BLOCK_BYTES as usize).min(data.len() - at));
    let is_zero = move |at: usize| block(at).iter().all(|chunk| chunk.iter().all(|byte| *byte == 0));
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for at in (0..data.len()).step_by(BLOCK_BYTES as usize).filter(|at| !is_zero(*at)) {
        let end = (at + BLOCK_BYTES as usize).min(data.len());
        match runs.last_mut() {
            Some(run) if run.1 == at => run.1 = end,
            _ => runs.push((at, end)),
        }
    }
    runs.into_iter().map(|(from, to)| (from as u64, data.slice(from, to - from)))
}
