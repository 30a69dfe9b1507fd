//! COPY_FROM: the object becomes a copy of another one, which may be on any OSD and is read like by any client.
//!
//! The target object is busy meanwhile. Two objects copied to each other at the same time would wait forever, so a copy that
//! takes too long ends with an error.

use std::rc::Rc;
use std::time::Duration;

use carmine_client::{Client, ClientError, Options, Pool, RouteMode};
use carmine_codec::{Decoder, Encoder};
use carmine_pgtypes::Step;
use carmine_reactor::{Bytes, Payload};
use carmine_types::errno;
use carmine_wire::osd_op::{Locator, OsdOp, WHOLE_OBJECT_BYTES, ops};

use super::{Operation, decode};
use crate::config::{COPY_CLIENT, REQUEST_BYTES_MAX};
use crate::error::{OpError, refuse_if};
use crate::pg::op::exec::{ObjectState, wrong_version};
use crate::shard::OsdShard;

/// Longest wait for one answer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes asked for at a time.
const PIECE_BYTES: u64 = 4 << 20;
/// Omap entries asked for at a time.
const PAGE: u64 = 1024;

/// The object that is copied.
struct Source {
    pool: Pool,
    name: Vec<u8>,
    /// The version at which all of it is read.
    version: u64,
}

pub(super) async fn from(operation: Operation<'_>, state: &mut ObjectState<'_>) -> Result<(), OpError> {
    let (osd, wish) = (operation.objects.osd, operation.op.copy_from());
    // COPY_FROM2 also says where to truncate the copy, which only CephFS uses.
    let (name, locator) = decode(&operation.input.to_vec(), |d| {
        let from = (d.blob()?.to_vec(), Locator::decode(d)?);
        d.bytes(d.remaining())?;
        Ok(from)
    })?;
    let oid = state.oid;
    let is_itself = locator.pool == oid.pool
        && name == *oid.name
        && locator.nspace == oid.nspace
        && locator.key == oid.key;
    refuse_if(is_itself, errno::EINVAL)?;
    let pool = client(osd).await?.pool_by_id(locator.pool).map_err(copy_error)?;
    let pool = pool
        .at_snap(wish.snapid)
        .in_namespace(&locator.nspace)
        .with_locator(&locator.key)
        .with_timeout(Some(TIMEOUT));
    let (source, size) = Source::open(pool, name, wish.src_version).await?;
    refuse_if(size > REQUEST_BYTES_MAX, errno::EFBIG)?;
    if size > WHOLE_OBJECT_BYTES {
        operation.client.acquire_more(osd).await;
    }
    let mut data = Payload::new();
    while (data.len() as u64) < size {
        let left = (size - data.len() as u64).min(PIECE_BYTES);
        let piece = source.ask(OsdOp::read(data.len() as u64, left), Vec::new()).await?;
        refuse_if(piece.is_empty(), errno::EAGAIN)?;
        data.append(&piece);
    }
    state.touch();
    state.truncate(0);
    state.write_unlimited(0, data)?;
    source.copy_attrs(operation, state).await
}

/// This shard's client, for reading from other OSDs. It is created at the first copy.
async fn client(osd: &OsdShard) -> Result<Rc<Client>, OpError> {
    let known = osd.client.borrow().clone();
    if let Some(client) = known {
        return Ok(client);
    }
    let options = Options { name: COPY_CLIENT.to_owned(), ..Options::route(RouteMode::Single) };
    let client = Client::connect(&osd.shard, &osd.config.access, options).await.map_err(copy_error)?;
    Ok(Rc::clone(osd.client.borrow_mut().get_or_insert(client)))
}

/// The error for the client that asked for the copy.
fn copy_error(error: ClientError) -> OpError {
    OpError::because(error.errno(), format_args!("a copy fails: {error}"))
}

impl Source {
    /// The object and its size. `version` 0 is any.
    async fn open(pool: Pool, name: Vec<u8>, version: u64) -> Result<(Source, u64), OpError> {
        let mut stat = pool.exec(&name, vec![(OsdOp::stat(), Payload::new())]).await.map_err(copy_error)?;
        if version != 0 && version != stat.user_version {
            return Err(wrong_version(version, stat.user_version));
        }
        let out = stat.take_data(0).to_vec();
        let size = Decoder::new(&out, "stat").u64().map_err(|_| OpError::new(errno::EIO))?;
        Ok((Source { pool, name, version: stat.user_version }, size))
    }

    /// The output of an operation, guarded by the version that the copy began with.
    async fn ask(&self, op: OsdOp, input: Vec<u8>) -> Result<Payload, OpError> {
        let guard = (OsdOp::assert_version(self.version), Payload::new());
        let reply = self.pool.exec(&self.name, vec![guard, (op, Payload::from(input))]).await;
        Ok(reply.map_err(copy_error)?.take_data(1))
    }

    async fn copy_attrs(&self, copy: Operation<'_>, state: &mut ObjectState<'_>) -> Result<(), OpError> {
        state.clear_xattrs();
        if state.was.as_ref().is_some_and(|was| was.has_omap) {
            state.change_omap(Step::ClearOmap);
        }
        let xattrs = self.ask(OsdOp::with_payload(ops::GET_XATTRS, 0), Vec::new()).await?.to_vec();
        let xattrs_len = xattrs.len();
        let xattrs = Decoder::all(&xattrs, "xattrs", |d| d.map(8, |d| d.blob(), |d| d.blob()));
        for (name, value) in xattrs.map_err(|_| OpError::new(errno::EIO))? {
            state.set_xattr(name, Bytes::from(value.to_vec()))?;
        }
        let header = self.ask(OsdOp::with_payload(ops::OMAP_GET_HEADER, 0), Vec::new()).await?;
        if !header.is_empty() {
            state.change_omap(Step::SetOmapHeader { header: Bytes::from(header.to_vec()) });
        }
        let (mut after, mut bytes) = (Vec::new(), xattrs_len + header.len());
        loop {
            let input = Encoder::collect(|e| {
                e.blob(&after);
                e.u64(PAGE);
                e.blob(b"");
            });
            let page = self.ask(OsdOp::with_payload(ops::OMAP_GET_VALS, 0), input).await?.to_vec();
            bytes += page.len();
            if bytes as u64 > WHOLE_OBJECT_BYTES {
                copy.client.acquire_more(copy.objects.osd).await;
            }
            let read = |d: &mut Decoder<'_>| {
                let own = |d: &mut Decoder<'_>| Ok(d.blob()?.to_vec());
                Ok((d.map(8, own, own)?, d.bool()?))
            };
            let (entries, more) = Decoder::all(&page, "omap", read).map_err(|_| OpError::new(errno::EIO))?;
            drop(page);
            let Some((last, _)) = entries.last() else { return Ok(()) };
            after.clone_from(last);
            let entries = entries.into_iter().map(|(key, value)| (key.into(), Bytes::from(value)));
            state.change_omap(Step::SetOmap { entries: entries.collect() });
            // It is written in one transaction: stop before it exceeds what a message can carry.
            refuse_if(state.is_too_long(), errno::EFBIG)?;
            if !more {
                return Ok(());
            }
        }
    }
}
