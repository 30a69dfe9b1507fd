//! COPY_GET: an object in pieces, with its attributes and omap. Ceph's OSDs use it among themselves for copies; the format is in
//! PROTOCOL.md of the wire crate, §6.

use carmine_codec::{Encoder, coded};
use carmine_reactor::{Bytes, Payload};
use carmine_store::{OmapPage, OmapRange};
use carmine_types::UTime;
use carmine_wire::osd_op::{ANSWER_BYTES, OsdOp};

use super::{Operation, decode, put_pairs};
use crate::error::OpError;
use crate::pg::family;
use crate::pg::op::exec::ObjectState;

/// Entries of the omap in one answer.
const ENTRIES_MAX: usize = 1024;

coded! {
    /// object_copy_cursor_t: how far a copy is.
    struct Cursor: versioned "copy cursor", 1, compat 1, oldest 0 {
        has_attrs: bool,
        offset: u64,
        has_data: bool,
        /// The last key that was copied.
        key: Vec<u8>,
        has_omap: bool,
    }
}

/// The parts of an object in one answer.
#[derive(Default)]
struct Piece {
    attrs: Vec<(Vec<u8>, Bytes)>,
    data: Vec<u8>,
    header: Bytes,
    omap: OmapPage,
}

/// Answers with as much after the cursor as the client wants and one answer may hold.
pub(super) async fn get(operation: Operation<'_>, state: &mut ObjectState<'_>) -> Result<Payload, OpError> {
    let (mut cursor, wanted) = decode(&operation.input.to_vec(), |d| Ok((d.get::<Cursor>()?, d.u64()?)))?;
    state.must_exist()?;
    let set = state.was.as_ref().map(family::set_of).transpose()?.flatten();
    let seq = set.map_or(0, |set| set.seq);
    let mtime = state.was.as_ref().map_or(state.mtime, |was| was.mtime);
    let piece = piece(operation, state, &mut cursor, wanted).await?;
    Ok(Payload::from(encode(state.size, mtime, seq, &piece, &cursor)))
}

async fn piece(
    Operation { objects, client, .. }: Operation<'_>,
    state: &mut ObjectState<'_>,
    cursor: &mut Cursor,
    wanted: u64,
) -> Result<Piece, OpError> {
    let mut piece = Piece::default();
    if !cursor.has_attrs {
        client.acquire_for(objects.osd, state.xattrs.bytes() as u64).await;
        let all = state.user_xattrs().into_iter();
        piece.attrs = all.map(|(name, value)| (name.to_vec(), value.clone())).collect();
        cursor.has_attrs = true;
    }
    let mut left = wanted.min(ANSWER_BYTES);
    if left > 0 && !cursor.has_data {
        let length = state.size.saturating_sub(cursor.offset).min(left);
        if length > 0 {
            piece.data = state.bytes(objects, &OsdOp::read(cursor.offset, length)).await?.to_vec();
        }
        left -= length;
        cursor.offset += piece.data.len() as u64;
        cursor.has_data = cursor.offset >= state.size;
    }
    if !state.was.as_ref().is_some_and(|was| was.has_omap) {
        cursor.has_omap = true;
    } else if left > 0 && cursor.has_data && !cursor.has_omap {
        if cursor.key.is_empty() {
            piece.header = state.omap_header(objects).await?;
        }
        let range = OmapRange {
            start: cursor.key.clone(),
            is_after: !cursor.key.is_empty(),
            prefix: Vec::new(),
            entries_max: ENTRIES_MAX,
            bytes_max: left as usize,
        };
        piece.omap = state.omap_page(objects, &range).await?;
        cursor.has_omap = !piece.omap.more;
        if let Some((last, _)) = piece.omap.entries.last() {
            cursor.key = last.to_vec();
        }
    }
    Ok(piece)
}

/// object_copy_data_t. It has no digests, truncations or former requests.
fn encode(size: u64, mtime: UTime, snap_seq: u64, piece: &Piece, cursor: &Cursor) -> Vec<u8> {
    let omap = Encoder::collect(|e| {
        if !piece.omap.entries.is_empty() {
            put_pairs(e, &piece.omap.entries);
        }
    });
    Encoder::collect(|e| {
        e.envelope(8, 5, |e| {
            e.u64(size);
            e.utime(mtime);
            put_pairs(e, &piece.attrs);
            e.blob(&piece.data);
            e.blob(&omap);
            e.put(cursor);
            e.blob(&piece.header);
            e.count(0); // snapshots that a clone shows
            e.u64(snap_seq);
            e.zeros(3 * 4); // flags: no digests; and the empty digests of data and omap
            e.count(0); // requests that changed it
            e.zeros(4 + 8); // its last truncation
            e.count(0); // what those requests returned
        });
    })
}

#[cfg(test)]
mod tests {
    use carmine_types::errno;

    use super::*;

    #[test]
    fn a_cursor_survives_the_wire() {
        let cursor =
            Cursor { has_attrs: true, offset: 7, has_data: false, key: b"k".to_vec(), has_omap: true };
        let bytes = Encoder::collect(|e| e.put(&cursor));
        assert_eq!(bytes, b"\x01\x01\x10\0\0\0\x01\x07\0\0\0\0\0\0\0\0\x01\0\0\0k\x01");
        let again = carmine_codec::Decoder::all(&bytes, "cursor", |d| d.get::<Cursor>()).unwrap();
        assert_eq!(Encoder::collect(|e| e.put(&again)), bytes);
        assert_eq!(decode(&bytes[..9], |d| d.get::<Cursor>()).err(), Some(OpError::new(errno::EINVAL)));
    }
}
