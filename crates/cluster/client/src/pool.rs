//! A pool, operations on its objects, and listing them: PG after PG, in the order of their bit-reversed hashes.

use std::rc::Rc;
use std::time::Duration;

use carmine_reactor::Payload;
use carmine_types::{Epoch, ObjectId, PgId, SNAP_HEAD, UTime};
use carmine_wire::frame::DATA_BYTES_MAX;
use carmine_wire::osd_op::{Extent, OpList, OsdOp, OsdRequest, flags, ops};
use carmine_wire::pgls::{ALL_NAMESPACES, HObject, ListedObject, PgNlsArg, PgNlsReply};
use carmine_wire::{DecodeError, Decoder};
use smallvec::smallvec;

use crate::client::Client;
use crate::error::{ClientError, Result};
use crate::objecter::{Ask, Reply};

/// A pool (and a namespace and a locator key in it). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pool {
    client: Rc<Client>,
    id: i64,
    name: Rc<str>,
    nspace: Rc<[u8]>,
    key: Rc<[u8]>,
    timeout: Option<Duration>,
    /// The snapshot that reads see.
    snap: u64,
    /// The snapshot context of writes: the newest snapshot, and the existing ones in descending order.
    context: (u64, Rc<[u64]>),
}

/// The result of [`Pool::stat`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectStat {
    /// Length in bytes.
    pub size: u64,
    /// Time of the last write, by the writer's clock.
    pub mtime: UTime,
}

impl Pool {
    pub(crate) fn new(client: Rc<Client>, id: i64, name: &str) -> Pool {
        let timeout = client.options().op_timeout;
        let (snap, context) = (SNAP_HEAD, (0, [].into()));
        Pool { client, id, name: name.into(), nspace: [].into(), key: [].into(), timeout, snap, context }
    }

    /// The same pool, in another namespace; empty is the default one.
    pub fn in_namespace(&self, nspace: impl AsRef<[u8]>) -> Pool {
        Pool { nspace: nspace.as_ref().into(), ..self.clone() }
    }

    /// The same pool, with a locator key: objects lie where one of that name would; empty for none.
    pub fn with_locator(&self, key: impl AsRef<[u8]>) -> Pool {
        Pool { key: key.as_ref().into(), ..self.clone() }
    }

    /// The same pool, with another limit for each operation; `None`: as long as it takes.
    pub fn with_timeout(&self, timeout: Option<Duration>) -> Pool {
        Pool { timeout, ..self.clone() }
    }

    /// The same pool, read as it was at a snapshot; [`SNAP_HEAD`]: as it is.
    pub fn at_snap(&self, snap: u64) -> Pool {
        Pool { snap, ..self.clone() }
    }

    /// The same pool, whose writes preserve these snapshots: the newest that there was, and those that exist, descending.
    pub fn with_snaps(&self, seq: u64, snaps: &[u64]) -> Pool {
        Pool { context: (seq, snaps.into()), ..self.clone() }
    }

    /// The pool's number.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// The pool's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The client that it belongs to.
    pub fn client(&self) -> &Rc<Client> {
        &self.client
    }

    /// The PG of an object; `None` if the pool is gone.
    pub fn pg_of(&self, name: impl AsRef<[u8]>) -> Option<PgId> {
        self.client.view()?.object_pg(self.id, &self.nspace, &self.key, name.as_ref())
    }

    /// Reads `length` bytes at `offset` (0: up to the end). Less comes back at the end of the object.
    ///
    /// # Errors
    /// ENOENT if there is no such object; else see [`ClientError`].
    pub async fn read(&self, name: impl AsRef<[u8]>, offset: u64, length: u64) -> Result<Payload> {
        let mut reply =
            self.run(name.as_ref(), smallvec![OsdOp::read(offset, length)], Payload::new()).await?;
        Ok(reply.take_data(0))
    }

    /// Writes `data` at `offset`; creates and extends the object.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn write(
        &self,
        name: impl AsRef<[u8]>,
        offset: u64,
        data: impl Into<Payload>,
    ) -> Result<Reply> {
        let data = data.into();
        let op = OsdOp::write(offset, self.length(&data)?);
        self.run(name.as_ref(), smallvec![op], data).await
    }

    /// Replaces the object by `data`; creates it if need be.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn write_full(&self, name: impl AsRef<[u8]>, data: impl Into<Payload>) -> Result<Reply> {
        let data = data.into();
        let op = OsdOp::write_full(self.length(&data)?);
        self.run(name.as_ref(), smallvec![op], data).await
    }

    /// Size and time of an object.
    ///
    /// # Errors
    /// ENOENT if there is no such object; else see [`ClientError`].
    pub async fn stat(&self, name: impl AsRef<[u8]>) -> Result<ObjectStat> {
        let name = name.as_ref();
        let mut reply = self.run(name, smallvec![OsdOp::stat()], Payload::new()).await?;
        let bytes = reply.take_data(0).to_vec();
        let stat = Decoder::all(&bytes, "stat", |d| Ok(ObjectStat { size: d.u64()?, mtime: d.utime()? }));
        stat.map_err(|error: DecodeError| ClientError::BadReply {
            what: format!("stat of {:?} in pool {}", String::from_utf8_lossy(name), self.id),
            reason: error.to_string(),
        })
    }

    /// Creates an empty object.
    ///
    /// # Errors
    /// EEXIST if `exclusive` and it exists; else see [`ClientError`].
    pub async fn create(&self, name: impl AsRef<[u8]>, exclusive: bool) -> Result<Reply> {
        self.run(name.as_ref(), smallvec![OsdOp::create(exclusive)], Payload::new()).await
    }

    /// Removes an object.
    ///
    /// # Errors
    /// ENOENT if there is no such object; else see [`ClientError`].
    pub async fn remove(&self, name: impl AsRef<[u8]>) -> Result<Reply> {
        self.run(name.as_ref(), smallvec![OsdOp::delete()], Payload::new()).await
    }

    /// Cuts or extends an object to `size` bytes.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn truncate(&self, name: impl AsRef<[u8]>, size: u64) -> Result<Reply> {
        self.run(name.as_ref(), smallvec![OsdOp::truncate(size)], Payload::new()).await
    }

    /// Makes a range of an object zeros; never extends it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn zero(&self, name: impl AsRef<[u8]>, offset: u64, length: u64) -> Result<Reply> {
        self.run(name.as_ref(), smallvec![OsdOp::zero(offset, length)], Payload::new()).await
    }

    /// Runs several operations on one object, in order and (if any of them writes) all or nothing. Each comes with its
    /// input; its `payload_len` is set to the length of that, and that of a write, too.
    ///
    /// # Errors
    /// The errno of the first operation that failed; else see [`ClientError`].
    pub async fn exec(&self, name: impl AsRef<[u8]>, ops: Vec<(OsdOp, Payload)>) -> Result<Reply> {
        let mut data = Payload::new();
        let mut list = OpList::with_capacity(ops.len());
        for (mut op, input) in ops {
            op.payload_len = self.length(&input)?;
            if matches!(op.code, ops::WRITE | ops::WRITE_FULL | ops::APPEND) {
                op = op.with_extent(Extent { length: input.len() as u64, ..op.extent() });
            }
            list.push(op);
            data.append(&input);
        }
        self.length(&data)?;
        self.run(name.as_ref(), list, data).await
    }

    async fn run(&self, name: &[u8], ops: OpList, data: Payload) -> Result<Reply> {
        let writes = ops.iter().any(OsdOp::is_write);
        let flags = if writes { flags::CLIENT_WRITE } else { flags::CLIENT_READ };
        let object = ObjectId::head(self.id, &self.nspace, &self.key, name);
        let mut request = OsdRequest::new(PgId::new(self.id, 0), Epoch(0), flags, &object, ops);
        request.snapid = self.snap;
        if writes {
            (request.snap_seq, request.snaps) = (self.context.0, self.context.1.to_vec());
            let now = self.client.shard().unix_now();
            request.mtime = UTime { sec: now.as_secs() as u32, nsec: now.subsec_nanos() };
        }
        self.send(request, data).await
    }

    async fn send(&self, request: OsdRequest, data: Payload) -> Result<Reply> {
        let ask = Ask { request, data, timeout: self.timeout };
        self.client.objecter().execute(ask).await
    }

    /// The length of `data`, which must fit into one message.
    fn length(&self, data: &Payload) -> Result<u32> {
        match u32::try_from(data.len()) {
            Ok(len) if data.len() <= DATA_BYTES_MAX => Ok(len),
            _ => Err(ClientError::TooLarge {
                what: format!("operation in pool {}", self.id),
                bytes: data.len(),
                limit: DATA_BYTES_MAX,
            }),
        }
    }
}

/// Entries that a listing without a limit asks for at a time.
const PAGE: u64 = 1024;

/// Where a listing stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor {
    next: HObject,
    /// Map at which the listing began.
    start: Epoch,
}

impl Cursor {
    /// Before the first object.
    pub fn start() -> Cursor {
        Cursor { next: HObject::min(), start: Epoch(0) }
    }

    /// True behind the last object.
    pub fn is_end(&self) -> bool {
        self.next.max
    }
}

/// Part of a listing.
#[derive(Clone, Debug)]
pub struct ListPage {
    /// Objects, all of one PG; there may be none although more follow.
    pub objects: Vec<ListedObject>,
    /// Where to go on.
    pub cursor: Cursor,
}

impl Pool {
    /// Up to `max` objects of this namespace from `cursor` on, from one PG.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_page(&self, cursor: &Cursor, max: u64) -> Result<ListPage> {
        self.page(cursor, max, self.nspace.to_vec()).await
    }

    /// All objects of this namespace, in the cluster's order.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list(&self) -> Result<Vec<ListedObject>> {
        self.list_all_of(&self.nspace).await
    }

    /// All objects of all namespaces.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn list_all_namespaces(&self) -> Result<Vec<ListedObject>> {
        self.list_all_of(ALL_NAMESPACES).await
    }

    async fn list_all_of(&self, nspace: &[u8]) -> Result<Vec<ListedObject>> {
        let mut all = Vec::new();
        let mut cursor = Cursor::start();
        while !cursor.is_end() {
            let page = self.page(&cursor, PAGE, nspace.to_vec()).await?;
            all.extend(page.objects);
            cursor = page.cursor;
        }
        Ok(all)
    }

    async fn page(&self, cursor: &Cursor, max: u64, nspace: Vec<u8>) -> Result<ListPage> {
        let map = self.client.osdmap().ok_or(ClientError::Closed)?;
        let pool = map.pool(self.id()).ok_or_else(|| ClientError::NoPool(self.name().to_owned()))?;
        let (hash, start) =
            if cursor.next.is_min() { (0, map.epoch) } else { (cursor.next.object.hash, cursor.start) };
        let pg = PgId::of_hash(self.id(), hash, pool.pg_num);
        let arg = PgNlsArg { cursor: cursor.next.clone() }.encode();
        let op = OsdOp::pgnls(max, start.0, arg.len() as u32);
        // The hash is the PG's own: it stays in this PG's half if the pool is split meanwhile.
        let object = ObjectId { nspace: nspace.into(), ..ObjectId::cursor(self.id(), pg.ps) };
        let mut request = OsdRequest::new(pg, map.epoch, flags::CLIENT_PG_LIST, &object, smallvec![op]);
        request.locator.hash = pg.ps.into();
        let mut reply = self.send(request, Payload::from(arg)).await?;
        let output = reply.take_data(0).to_vec();
        let bad = |reason: String| ClientError::BadReply { what: format!("listing of PG {pg}"), reason };
        let listed = PgNlsReply::decode(&output).map_err(|error| bad(error.to_string()))?;
        if listed.next <= cursor.next {
            return Err(bad("it does not move on".to_owned()));
        }
        Ok(ListPage { objects: listed.entries, cursor: Cursor { next: listed.next, start } })
    }
}
