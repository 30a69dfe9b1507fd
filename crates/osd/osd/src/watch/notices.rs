//! Memory of notifications: one text shared by all watchers of all shards, and the watchers' answers until they are sent on.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use carmine_reactor::Bytes;
use carmine_types::crc32c;
use carmine_wire::header::Front;
use carmine_wire::osd_op::WatchNotify;

use super::registry::Sends;
use crate::config::NOTIFY_BYTES_MAX;
use crate::shard::OsdShard;

/// A notification's text, with its checksum: all messages that carry it share its memory.
#[derive(Clone, Default)]
pub(super) struct Text {
    bytes: Bytes,
    crc: u32,
}

impl Text {
    pub(super) fn new(bytes: Vec<u8>) -> Text {
        let crc = crc32c::raw(crc32c::SEED, &bytes);
        Text { bytes: Bytes::from(bytes), crc }
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Room for an answer, until this is dropped.
#[derive(Debug)]
pub(super) struct Room {
    answers: Rc<Cell<usize>>,
    bytes: usize,
}

impl Drop for Room {
    fn drop(&mut self) {
        self.answers.set(self.answers.get() - self.bytes);
    }
}

/// The memory that a shard's notifications hold.
#[derive(Default)]
pub(crate) struct Notices {
    /// Texts that may still be in use: by a notification that has not ended, or a connection that has not sent it yet.
    texts: RefCell<Vec<Bytes>>,
    /// Bytes of answers.
    answers: Rc<Cell<usize>>,
}

impl Notices {
    /// Stores a text, if there is room.
    pub(super) fn store_text(&self, text: Vec<u8>) -> Option<Text> {
        let text = Text::new(text);
        let mut texts = self.texts.borrow_mut();
        texts.retain(Bytes::is_shared);
        let bytes: usize = texts.iter().map(Bytes::len).sum();
        if bytes + text.bytes.len() > NOTIFY_BYTES_MAX {
            return None;
        }
        if !text.bytes.is_empty() {
            texts.push(text.bytes.clone());
        }
        Some(text)
    }

    /// Reserves room for an answer of this many bytes, if there is enough.
    pub(super) fn room(&self, bytes: usize) -> Option<Room> {
        let used = self.answers.get() + bytes;
        if used > NOTIFY_BYTES_MAX {
            return None;
        }
        self.answers.set(used);
        Some(Room { answers: Rc::clone(&self.answers), bytes })
    }
}

/// Sends a notification to watchers on all shards, with one message per shard.
pub(super) fn send(osd: &OsdShard, sends: Sends) {
    let Sends { message, text, mut to } = sends;
    to.sort_by_key(|(origin, _)| origin.home); // keeps the order of each connection
    for part in to.chunk_by(|a, b| a.0.home == b.0.home) {
        let Some((first, _)) = part.first() else { continue };
        let (home, message, text) = (first.home, message.clone(), text.clone());
        if home == osd.shard.id() {
            send_here(osd, message, &text, part.iter().map(|(to, cookie)| (to.conn, *cookie)));
            continue;
        }
        let part: Vec<(u64, u64)> = part.iter().map(|(to, cookie)| (to.conn, *cookie)).collect();
        OsdShard::run_on(&osd.shard, home, move |osd| send_here(osd, message, &text, part.into_iter()));
    }
}

fn send_here(osd: &OsdShard, mut message: WatchNotify, text: &Text, to: impl Iterator<Item = (u64, u64)>) {
    let header = WatchNotify::header();
    for (conn, cookie) in to {
        if let Some(conn) = osd.conn(conn) {
            message.cookie = cookie;
            let [before, behind] = message.around(text.bytes.len());
            conn.send_around(&header, [&before, &behind], &text.bytes, text.crc);
        }
    }
}

/// Tells all shards that there is no room, so that they close stalled connections that hold it.
pub(super) fn report_short(osd: &OsdShard) {
    osd.is_short.set(true);
    osd.run_on_others(|osd| osd.is_short.set(true));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_count_while_somebody_has_them() {
        const MIB: usize = 1 << 20;
        let notices = Notices::default();
        let kept: Vec<Text> = (0..16).map(|_| notices.store_text(vec![0; MIB]).expect("room")).collect();
        assert!(notices.store_text(vec![0; 1]).is_none());
        let waits = kept[3].bytes.slice(..5); // as in a connection's queue
        drop(kept);
        assert!(notices.store_text(vec![0; 15 * MIB]).is_some(), "that is all that anybody has");
        assert!(notices.store_text(vec![0; 15 * MIB + 1]).is_none());
        drop(waits);
        assert!(notices.store_text(vec![0; 16 * MIB]).is_some());
        assert!(notices.store_text(Vec::new()).is_some());
    }

    #[test]
    fn answers_count_until_they_are_told() {
        let notices = Notices::default();
        let all = notices.room(NOTIFY_BYTES_MAX).expect("room");
        assert!(notices.room(1).is_none());
        drop(all);
        assert!(notices.room(1).is_some());
    }
}
