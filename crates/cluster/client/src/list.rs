//! Listing the objects of a pool: PG after PG, in the order of their bit-reversed hashes.

use crate::error::{ClientError, Result};
use crate::pool::Pool;
use carmine_reactor::Payload;
use carmine_types::{Epoch, ObjectId, PgId};
use carmine_wire::osd_op::{OsdOp, OsdRequest, flags};
use carmine_wire::pgls::{ALL_NAMESPACES, HObject, ListedObject, PgNlsArg, PgNlsReply};
use smallvec::smallvec;

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
        let mut reply = self.send(request, Payload::from(arg), None).await?;
        let output = reply.take_data(0).to_vec();
        let bad = |reason: String| ClientError::BadReply { what: format!("listing of PG {pg}"), reason };
        let listed = PgNlsReply::decode(&output).map_err(|error| bad(error.to_string()))?;
        if listed.next <= cursor.next {
            return Err(bad("it does not move on".to_owned()));
        }
        Ok(ListPage { objects: listed.entries, cursor: Cursor { next: listed.next, start } })
    }
}
