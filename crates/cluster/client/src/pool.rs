//! A pool and operations on its objects.

use crate::client::Client;
use crate::error::{ClientError, Result};
use crate::objecter::{Ask, Reply};
use carmine_reactor::Payload;
use carmine_types::{Epoch, ObjectId, PgId, UTime};
use carmine_wire::frame::DATA_BYTES_MAX;
use carmine_wire::osd_op::{Extent, OpList, OsdOp, OsdRequest, flags, ops};
use carmine_wire::{DecodeError, Decoder};
use smallvec::smallvec;
use std::rc::Rc;
use std::time::Duration;

/// A pool (and a namespace and a locator key in it). Cheap to clone.
#[derive(Clone, Debug)]
pub struct Pool {
    pub(crate) client: Rc<Client>,
    id: i64,
    name: Rc<str>,
    pub(crate) nspace: Rc<[u8]>,
    key: Rc<[u8]>,
    timeout: Option<Duration>,
}

/// What [`Pool::stat`] tells.
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
        Pool { client, id, name: name.into(), nspace: [].into(), key: [].into(), timeout }
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
            self.run(name.as_ref(), smallvec![OsdOp::read(offset, length)], Payload::new(), None).await?;
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
        self.write_crc(name, offset, data, None).await
    }

    /// The same with the checksum of `data` (`crc32c::raw(-1, data)`), if the caller knows it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn write_crc(
        &self,
        name: impl AsRef<[u8]>,
        offset: u64,
        data: impl Into<Payload>,
        crc: Option<u32>,
    ) -> Result<Reply> {
        let data = data.into();
        let op = OsdOp::write(offset, self.length(&data)?);
        self.run(name.as_ref(), smallvec![op], data, crc).await
    }

    /// Replaces the object by `data`; creates it if need be.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn write_full(&self, name: impl AsRef<[u8]>, data: impl Into<Payload>) -> Result<Reply> {
        let data = data.into();
        let op = OsdOp::write_full(self.length(&data)?);
        self.run(name.as_ref(), smallvec![op], data, None).await
    }

    /// Size and time of an object.
    ///
    /// # Errors
    /// ENOENT if there is no such object; else see [`ClientError`].
    pub async fn stat(&self, name: impl AsRef<[u8]>) -> Result<ObjectStat> {
        let name = name.as_ref();
        let mut reply = self.run(name, smallvec![OsdOp::stat()], Payload::new(), None).await?;
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
        self.run(name.as_ref(), smallvec![OsdOp::create(exclusive)], Payload::new(), None).await
    }

    /// Removes an object.
    ///
    /// # Errors
    /// ENOENT if there is no such object; else see [`ClientError`].
    pub async fn remove(&self, name: impl AsRef<[u8]>) -> Result<Reply> {
        self.run(name.as_ref(), smallvec![OsdOp::delete()], Payload::new(), None).await
    }

    /// Cuts or extends an object to `size` bytes.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn truncate(&self, name: impl AsRef<[u8]>, size: u64) -> Result<Reply> {
        self.run(name.as_ref(), smallvec![OsdOp::truncate(size)], Payload::new(), None).await
    }

    /// Makes a range of an object zeros; never extends it.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn zero(&self, name: impl AsRef<[u8]>, offset: u64, length: u64) -> Result<Reply> {
        self.run(name.as_ref(), smallvec![OsdOp::zero(offset, length)], Payload::new(), None).await
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
        self.run(name.as_ref(), list, data, None).await
    }

    async fn run(&self, name: &[u8], ops: OpList, data: Payload, data_crc: Option<u32>) -> Result<Reply> {
        let writes = ops.iter().any(OsdOp::is_write);
        let flags = if writes { flags::CLIENT_WRITE } else { flags::CLIENT_READ };
        let object = ObjectId::head(self.id, &self.nspace, &self.key, name);
        let mut request = OsdRequest::new(PgId::new(self.id, 0), Epoch(0), flags, &object, ops);
        if writes {
            let now = self.client.shard().unix_now();
            request.mtime = UTime { sec: now.as_secs() as u32, nsec: now.subsec_nanos() };
        }
        self.send(request, data, data_crc).await
    }

    pub(crate) async fn send(
        &self,
        request: OsdRequest,
        data: Payload,
        data_crc: Option<u32>,
    ) -> Result<Reply> {
        let ask = Ask { request, data, data_crc, timeout: self.timeout };
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
