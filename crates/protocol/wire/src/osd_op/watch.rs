//! Watch and notify: the message to watchers, and what operations about them carry.

use carmine_codec::coded;

use crate::header::Front;
use crate::{Decoder, Encoder, EntityAddr, EntityName, Result, kinds};

/// MWatchNotify v3: an OSD tells a watcher, or the sender of a notification. The header's tid is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WatchNotify {
    /// One of the constants of this type.
    pub op: u8,
    /// The watcher's; for [`WatchNotify::DONE`] the sender's.
    pub cookie: u64,
    pub version: u64,
    pub notify_id: u64,
    /// The sender's message to the watchers.
    pub payload: Vec<u8>,
    /// For [`WatchNotify::DONE`]: 0, or -110 if a watcher did not answer.
    pub result: i32,
    /// Global id of the sender.
    pub notifier: u64,
}

/// Values of [`WatchNotify::op`].
impl WatchNotify {
    /// To a watcher: somebody notifies.
    pub const NOTIFY: u8 = 1;
    /// To the sender: all have answered, or their time is over. The data segment is [`NotifyDone`].
    pub const DONE: u8 = 2;
    /// To a watcher: it watches no longer.
    pub const DISCONNECT: u8 = 3;
}

impl WatchNotify {
    /// The front before and behind a payload of `payload_len` bytes, for a payload that many messages share: the own one is
    /// left out.
    pub fn around(&self, payload_len: usize) -> [Vec<u8>; 2] {
        let before = Encoder::collect(|e| self.encode_before(e, payload_len));
        [before, Encoder::collect(|e| self.encode_behind(e))]
    }

    fn encode_before(&self, e: &mut Encoder<'_>, payload_len: usize) {
        e.u8(1);
        e.u8(self.op);
        e.u64(self.cookie);
        e.u64(self.version);
        e.u64(self.notify_id);
        e.count(payload_len);
    }

    fn encode_behind(&self, e: &mut Encoder<'_>) {
        e.i32(self.result);
        e.u64(self.notifier);
    }
}

impl Front for WatchNotify {
    const KIND: u16 = kinds::WATCH_NOTIFY;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = crate::header::priority::OSD_OP;

    fn encode(&self, e: &mut Encoder<'_>) {
        self.encode_before(e, self.payload.len());
        e.bytes(&self.payload);
        self.encode_behind(e);
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<WatchNotify> {
        d.u8()?;
        Ok(WatchNotify {
            op: d.u8()?,
            cookie: d.u64()?,
            version: d.u64()?,
            notify_id: d.u64()?,
            payload: d.blob()?.to_vec(),
            result: d.i32()?,
            notifier: d.u64()?,
        })
    }
}

coded! {
    /// The outcome of a notification, watcher by watcher: (global id, cookie), ascending.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    pub struct NotifyDone {
        /// Watchers that answered, and their answers.
        pub acked: Vec<((u64, u64), Vec<u8>)>,
        /// Watchers that did not answer.
        pub missed: Vec<(u64, u64)>,
    }
}

impl NotifyDone {
    pub fn encode(&self) -> Vec<u8> {
        Encoder::collect(|e| e.put(self))
    }

    /// Decodes the data segment of a [`WatchNotify::DONE`].
    pub fn decode(bytes: &[u8]) -> Result<NotifyDone> {
        Decoder::all(bytes, "end of a notification", |d| d.get())
    }
}

coded! {
    /// watch_item_t: one watcher of an object.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Watcher: versioned "watch_item", 2, compat 1, oldest 0 {
        pub name: EntityName,
        pub cookie: u64,
        pub timeout_seconds: u32,
        pub addr: EntityAddr,
    }
}

/// Output of LIST_WATCHERS.
pub fn encode_watchers(watchers: &[Watcher]) -> Vec<u8> {
    Encoder::collect(|e| e.envelope(1, 1, |e| e.vec(watchers, |e, watcher| e.put(watcher))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_notification_has_the_bytes_of_the_wire() {
        // Bytes that a Ceph 16.2.15 OSD sent, with the payload left out.
        let notify = WatchNotify {
            op: WatchNotify::NOTIFY,
            cookie: 0x7fbe_3c00_4c20,
            version: 5,
            notify_id: 0x19_0000_0002,
            notifier: 0x109b,
            ..WatchNotify::default()
        };
        let hex: String = notify.to_front().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            "0101204c003cbe7f00000500000000000000020000001900000000000000000000009b10000000000000"
        );
    }

    proptest! {
        #[test]
        fn parts_around_a_payload_are_its_front(cookie: u64, notify_id: u64, notifier: u64, payload: Vec<u8>) {
            let lean = WatchNotify { op: WatchNotify::NOTIFY, cookie, notify_id, notifier, ..WatchNotify::default() };
            let [before, behind] = lean.around(payload.len());
            let whole = WatchNotify { payload: payload.clone(), ..lean };
            prop_assert_eq!([before, payload, behind].concat(), whole.to_front());
        }

        #[test]
        fn ends_round_trip(acked: Vec<((u64, u64), Vec<u8>)>, missed: Vec<(u64, u64)>) {
            let done = NotifyDone { acked, missed };
            prop_assert_eq!(NotifyDone::decode(&done.encode())?, done);
        }

        #[test]
        fn any_bytes(bytes: Vec<u8>) {
            let _ = NotifyDone::decode(&bytes);
            let _ = WatchNotify::from_front(&WatchNotify::header(), &bytes);
        }
    }
}
