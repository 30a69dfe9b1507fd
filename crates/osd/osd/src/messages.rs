//! The messages between OSDs: replication and peering. They are Carmine's own, kinds 0x8001 to 0x800f and 0x8040 to
//! 0x8048, and lossy.
//!
//! Every message begins with the same 29 bytes, the [`Head`], so that a receiver finds the PG, and by it the reactor that
//! owns it, without decoding the rest: [`peek_pg`].
//!
//! | kind | message | from | answered by |
//! |---|---|---|---|
//! | 0x8001 | [`RepOp`]: a transaction; the data that it writes in the data segment | primary | [`RepAck`], when durable |
//! | 0x8002 | [`RepAck`]: everything up to this version is durable here | replica | |
//! | 0x8003 | [`PgQuery`]: a new interval begins; say what you have | primary | [`PgNotify`] |
//! | 0x8004 | [`PgNotify`]: info, and the log if it differs from the primary's | replica | |
//! | 0x8005 | [`PgRepair`]: objects of your copy will be replaced without log entries: mark it incomplete | primary | [`PgAck`] |
//! | 0x8006 | [`PushObject`]: a transaction that makes a piece of an object equal to the primary's | primary | [`PgAck`] |
//! | 0x8007 | [`PgActivate`]: the log from now on; whether the copy is whole | primary | [`PgAck`] |
//! | 0x8008 | [`PgAck`]: done (durable), or an errno | replica | |
//! | 0x8009 | [`PgRead`]: bytes of an object, of which a block is damaged here | any member | [`PgData`] |
//! | 0x800a | [`PgData`]: the bytes, in the data segment | any member | |
//! | 0x800b | [`PgComplete`]: the copy is whole now | primary | [`PgAck`] |
//! | 0x800c | [`PgScrub`]: what your copy has of these objects | primary | [`PgScrubMap`] |
//! | 0x800d | [`PgScrubMap`]: sizes, versions, checksums | replica | |
//! | 0x800e | [`PgFetch`]: an object's metadata and omap | primary | [`PgObject`] |
//! | 0x800f | [`PgObject`]: both, the omap a page at a time | replica | |
//! | 0x8040 | [`PgBackfillScan`]: which objects has your copy, and in which versions | primary | [`PgBackfillDigest`] |
//! | 0x8041 | [`PgBackfillDigest`]: names and versions | replica | |
//! | 0x8042 | [`PgBackfillProgress`]: so far the copy is whole | primary | [`PgAck`] |
//! | 0x8043 | [`PgReserve`]: take part in a recovery, among as many as your OSD may | primary | [`PgAck`] |
//! | 0x8044 | [`PgStray`]: I am no member: is my copy needed? | anyone | [`PgAck`]; 0: remove it |
//! | 0x8045 | [`PgLease`]: help no other primary for a while | primary | [`PgLeaseAck`] |
//! | 0x8046 | [`PgLeaseAck`]: so promised | replica | |
//! | 0x8047 | [`PgRelease`]: have you left the intervals before my map? | primary | [`PgAck`]; 0: yes |
//! | 0x8048 | [`PgScrubbed`]: a scrub has ended; write it down | primary | [`PgAck`] |
//!
//! Requests of peering carry a transaction id in the message header; the answer echoes it. Byte strings are a u32 length
//! and the bytes; versions are u64 version, u32 epoch, as Ceph writes them. Long messages are divided: see `FRONT_BYTES_MAX`.

use carmine_codec::{DecodeError, Decoder, Encoder, Result, coded};
use carmine_messenger::Message;
use carmine_pgtypes::{LogEntry, OsdSet, PgInfo, Sealed, Transaction, cursor, object, pg_id};
use carmine_reactor::{Bytes, Payload};
use carmine_types::{Epoch, Eversion, ObjectId, OsdId, SpgId, is_mutated};
use carmine_wire::frame::{DATA_BYTES_MAX, SEGMENT_BYTES_MAX};
use carmine_wire::header::{Front, Header2};
use carmine_wire::private::VERSION;

/// First kind of this module.
pub const KIND_FIRST: u16 = 0x8001;
/// Last of these kinds.
pub const KIND_LAST: u16 = 0x800f;
/// First and last kind of recovery, backfill, leases and ended scrubs.
pub const RECOVERY_KINDS: std::ops::RangeInclusive<u16> = 0x8040..=0x8048;

coded! {
    /// The head, with which every message begins.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Head {
        /// The PG.
        pub pg: SpgId = pg_id,
        /// The sender's map when it sent this.
        pub epoch: Epoch,
        /// The primary's epoch at which the interval began for it. A replica ignores messages of any interval other than that of
        /// the last [`PgQuery`] it answered.
        pub interval: Epoch,
        /// Counts the primary's attempts to activate the PG since its process started. A replica ignores messages of attempts
        /// before that of the last [`PgQuery`] it answered in this interval.
        pub attempt: u64,
    }
}

/// The head of any message of this module; `None` if the front is too short to be one.
pub fn peek_head(front: &[u8]) -> Option<Head> {
    Decoder::new(front, "replication head").get().ok()
}

/// The PG that any message of this module is about.
pub fn peek_pg(front: &[u8]) -> Option<SpgId> {
    peek_head(front).map(|head| head.pg)
}

/// Longest front. The rest of a longer one travels in the data segment, after the data, where it may be as long as any message,
/// and where all receivers share one copy.
///
/// The front is then the head and the number of these bytes (u32), and [`IS_LONG`] is set.
const FRONT_BYTES_MAX: usize = 64 << 10;
const _: () = assert!(FRONT_BYTES_MAX <= SEGMENT_BYTES_MAX);
/// Bit of a header's `compat` version. A receiver that does not know it refuses the message.
const IS_LONG: u16 = 1 << 15;
const _: () = assert!(VERSION < IS_LONG);

/// Bytes of a [`Head`].
const HEAD_BYTES: usize = 29;

/// A message that may be sent several times: its parts are shared.
#[derive(Clone, Debug)]
pub struct Packed {
    header: Header2,
    front: Vec<u8>,
    data: Payload,
}

impl Packed {
    /// A message with a transaction: the head, and the encoded transaction; `data` is what it writes.
    ///
    /// # Panics
    /// If it is longer than a message may be: every receiver would refuse it, each time it is sent. Requests of clients are
    /// refused long before (`TXN_BYTES_MAX`).
    fn new(kind: u16, head: &Head, txn: &Sealed, mut data: Payload) -> Packed {
        let mut header = Header2::new(kind, VERSION, VERSION);
        let encoded = txn.encoded();
        let mut front = Vec::with_capacity(32 + encoded.len().min(FRONT_BYTES_MAX));
        let mut e = Encoder::new(&mut front);
        e.put(head);
        if HEAD_BYTES + encoded.len() <= FRONT_BYTES_MAX || is_mutated("send_long_front") {
            e.bytes(encoded);
        } else {
            header.compat |= IS_LONG;
            e.u32(u32::try_from(encoded.len()).unwrap_or(u32::MAX));
            data.append(&Payload::from(encoded.clone()));
        }
        assert_may_be_sent(&header, &front, &data);
        Packed { header, front, data }
    }

    /// The message, to be sent once.
    #[must_use]
    pub fn message(&self) -> Message {
        Message::from_header(self.header, self.front.clone()).with_data(self.data.clone())
    }
}

fn assert_may_be_sent(header: &Header2, front: &[u8], data: &Payload) {
    let (kind, front, data) = (header.kind, front.len(), data.len());
    assert!(
        front <= FRONT_BYTES_MAX && data <= DATA_BYTES_MAX,
        "a message of kind {kind:#x} with {front} bytes in front and {data} bytes of data"
    );
}

/// The same message, with a front that every receiver accepts.
///
/// # Panics
/// As [`Packed::new`].
pub(crate) fn fitted(mut message: Message) -> Message {
    if message.front.len() > FRONT_BYTES_MAX {
        let rest = message.front.split_off(HEAD_BYTES);
        message.front.extend_from_slice(&(rest.len() as u32).to_le_bytes());
        message.data.append(&Payload::from(rest));
        message.header.compat |= IS_LONG;
    }
    assert_may_be_sent(&message.header, &message.front, &message.data);
    message
}

/// Reassembles the front of a received message.
///
/// # Errors
/// If the length of the moved part is missing, or larger than the data.
pub(crate) fn join(header: &mut Header2, front: &mut Vec<u8>, data: &mut Payload) -> Result<()> {
    if header.compat & IS_LONG != 0 {
        let rest = split_rest(front, data)?.to_vec();
        front.truncate(HEAD_BYTES);
        front.extend_from_slice(&rest);
        header.compat &= !IS_LONG;
    }
    Ok(())
}

/// Splits the moved part of the front from the data.
fn split_rest(front: &[u8], data: &mut Payload) -> Result<Payload> {
    let mut d = Decoder::new(front, "head of a long message");
    d.get::<Head>()?;
    let len = d.u32()? as usize;
    d.finish()?;
    let too_few = DecodeError::Truncated { what: "long message", need: len as u64, left: data.len() };
    let at = data.len().checked_sub(len).ok_or(too_few)?;
    let rest = data.slice(at, len);
    *data = data.slice(0, at);
    Ok(rest)
}

/// A message that carries a transaction.
#[derive(Clone, Debug)]
pub struct WithTxn<const KIND: u16> {
    /// The head, with which every message begins.
    pub head: Head,
    /// The transaction.
    pub txn: Sealed,
}

/// Primary to replica: apply this transaction, whose one log entry is the next one of the PG's log.
pub type RepOp = WithTxn<0x8001>;
/// Primary to replica: make a piece of an object equal to mine.
pub type PushObject = WithTxn<0x8006>;

impl<const KIND: u16> WithTxn<KIND> {
    /// Message type.
    pub const KIND: u16 = KIND;

    /// The message; `data` is what the transaction writes.
    ///
    /// # Panics
    /// If the transaction is longer than a message may be.
    #[must_use]
    pub fn pack(head: &Head, txn: &Sealed, data: Payload) -> Packed {
        Packed::new(KIND, head, txn, data)
    }

    /// Reads a message. Of the received memory only the transaction's own bytes stay referenced. Its objects are not checked: the
    /// caller must check that they lie in the PG.
    ///
    /// # Errors
    /// If the bytes are no such message, or the data does not add up.
    pub fn read(header: &Header2, front: Vec<u8>, mut data: Payload) -> Result<WithTxn<KIND>> {
        let (head, encoded) = if header.compat & IS_LONG == 0 {
            let front = Bytes::from(front);
            let mut d = Decoder::new(&front, "replicated transaction");
            let head = d.get()?;
            let at = front.len() - d.remaining();
            (head, front.slice(at..))
        } else {
            let encoded = split_rest(&front, &mut data)?.to_vec();
            (Decoder::new(&front, "replicated transaction").get()?, Bytes::from(encoded))
        };
        let mut d = Decoder::new(&encoded, "replicated transaction");
        let txn = Transaction::decode(&mut d, &data)?;
        d.finish()?;
        Ok(WithTxn { head, txn: Sealed::decoded(txn, encoded) })
    }
}

/// A message whose front is its fields, one after the other.
macro_rules! message {
    ($kind:literal, $(#[$meta:meta])* pub struct $name:ident $fields:tt) => {
        coded! { $(#[$meta])* pub struct $name $fields }

        impl Front for $name {
            const KIND: u16 = $kind;
            const VERSION: u16 = VERSION;
            const COMPAT: u16 = VERSION;

            fn encode(&self, e: &mut Encoder<'_>) {
                e.put(self);
            }

            fn decode(_version: u16, d: &mut Decoder<'_>) -> Result<$name> {
                d.get()
            }
        }
    };
}

message! { 0x8002,
    /// Replica to primary: every entry up to and with `version` is durable here. With a negative `result` nothing was
    /// applied, and `version` is the last entry that was.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct RepAck {
        pub head: Head,
        pub version: Eversion,
        pub result: i32,
    }
}

message! { 0x8003,
    /// Primary to replica: the interval `head.interval` begins.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgQuery {
        pub head: Head,
        /// The primary's last entry; a replica with the same one leaves out its log.
        pub last_update: Eversion,
        /// The acting set.
        pub acting: OsdSet,
    }
}

message! { 0x8004,
    /// Replica to primary: what it has.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgNotify {
        pub head: Head,
        /// 0, or an errno: then all other fields are meaningless.
        pub result: i32,
        /// The copy's info.
        pub info: PgInfo,
        /// The latest lease that this copy granted: the primary that holds it, its interval, and the milliseconds left.
        pub lease: Option<Promise>,
        /// Ascending; empty if `last_update` is the primary's.
        pub log: Vec<LogEntry>,
    }
}

message! { 0x8005,
    /// Primary to replica: objects will be pushed. From now on, and until [`PgActivate`] or [`PgComplete`] says that it is whole,
    /// the copy counts as incomplete.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgRepair {
        pub head: Head,
        /// What the copy lacks if the repair is interrupted: only objects that its log changed after this entry; zero: any
        /// object.
        pub complete_to: Eversion,
        /// `complete_to` holds only for the objects before this one; `None`: for all.
        pub last_backfill: Option<ObjectId> = cursor,
        /// Refuse with ENOSPC, before anything is changed, unless there is room for this many bytes; 0: no check.
        pub needs_bytes: u64,
    }
}

message! { 0x8007,
    /// Primary to replica: the PG is active. `log` replaces the entries after `keep_to`.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgActivate {
        pub head: Head,
        /// Last entry that both logs have in common; zero: replace the whole log.
        pub keep_to: Eversion,
        /// By its answer the replica promises to help no other primary for this many milliseconds.
        pub lease_ms: u32,
        /// The primary's info; marked incomplete if objects will be pushed while clients are already served.
        pub info: PgInfo,
        /// Ascending, all after `keep_to`.
        pub log: Vec<LogEntry>,
    }
}

message! { 0x8008,
    /// Replica to primary: the request with this transaction id is done and durable, or failed with an errno.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PgAck {
        pub head: Head,
        pub result: i32,
    }
}

message! { 0x8009,
    /// One member of the acting set to another: give me `len` bytes at `off` of your copy of this object.
    #[derive(Clone, Debug, PartialEq, Eq)]
    pub struct PgRead {
        pub head: Head,
        pub off: u64,
        /// At most 1 MiB.
        pub len: u32,
        pub oid: ObjectId = object,
    }
}

message! { 0x800a,
    /// The answer; the bytes are in the data segment, up to the end of the object.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PgData {
        pub head: Head,
        /// 0, or an errno: then there are no bytes.
        pub result: i32,
    }
}

message! { 0x800b,
    /// Primary to replica: you now have all objects that your copy lacked when it was activated.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct PgComplete {
        pub head: Head,
    }
}

mod lease;
mod recovery;
mod scrub;

pub use lease::{PgLease, PgLeaseAck, PgRelease, Promise};

pub use recovery::{
    PgBackfillDigest, PgBackfillProgress, PgBackfillScan, PgReserve, PgStray, Reserve, VersionOf,
};
pub use scrub::{PgFetch, PgObject, PgScrub, PgScrubMap, PgScrubbed, ScanCursor, Scanned};

#[cfg(test)]
mod tests {
    use carmine_messenger::Parts;
    use carmine_pgtypes::{ObjectChange, Step};
    use proptest::prelude::*;

    use super::*;

    /// Lengths around every limit of a message.
    fn length() -> impl Strategy<Value = usize> {
        let around = |at: usize| at.saturating_sub(80)..at + 80;
        prop_oneof![
            4 => 0..200usize,
            4 => around(FRONT_BYTES_MAX),
            2 => around(1 << 20),
            1 => around(SEGMENT_BYTES_MAX),
            1 => SEGMENT_BYTES_MAX..SEGMENT_BYTES_MAX * 2,
        ]
    }

    fn received(message: Message) -> Parts {
        let (parts, _) = message.into_parts();
        assert!(parts.front.len() <= SEGMENT_BYTES_MAX && parts.data.len() <= DATA_BYTES_MAX);
        assert!(peek_head(&parts.front).is_some());
        parts
    }

    fn head() -> Head {
        Head { epoch: Epoch(7), attempt: 9, ..Head::default() }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_transaction_of_any_length_arrives(value in length(), data in length(), xattr in length()) {
            let bytes = |len| Bytes::from(vec![7; len]);
            let mut txn = Transaction::default();
            let steps = [
                Step::SetOmap { entries: vec![(Box::from(*b"key"), bytes(value))] },
                Step::Write { off: 5, data: bytes(data).into() },
                Step::SetXattr { name: Box::from(*b"_x"), value: bytes(xattr) },
            ];
            txn.changes.push(ObjectChange::new(ObjectId::head(1, b"", b"", b"o"), steps));
            let sealed = Sealed::from(txn);
            let packed = RepOp::pack(&head(), &sealed, sealed.data());
            for message in [packed.message(), packed.message()] {
                let Parts { header, front, data } = received(message);
                let arrived = RepOp::read(&header, front, data).unwrap();
                prop_assert_eq!(arrived.head, head());
                prop_assert_eq!(&*arrived.txn, &*sealed);
                prop_assert!(arrived.txn.encoded() == sealed.encoded());
            }
        }

        #[test]
        fn an_answer_of_any_length_arrives(header in length(), value in length()) {
            let entries = vec![(b"key".to_vec(), vec![3; value])];
            let sent = PgObject { head: head(), result: 0, meta: Default::default(), header: vec![1; header], entries, more: true };
            let Parts { mut header, mut front, mut data } = received(fitted(Message::encode(&sent).with_data(vec![5; 10])));
            join(&mut header, &mut front, &mut data).unwrap();
            prop_assert_eq!(PgObject::from_front(&header, &front), Ok(sent));
            prop_assert_eq!(data.to_vec(), [5; 10]);
        }

        /// Whatever a peer says of the length.
        #[test]
        fn a_long_message_is_read_only_if_it_is_whole(len: u32, front in prop::collection::vec(any::<u8>(), 0..40), data in 0..100usize) {
            let mut header = PgObject::header();
            header.compat |= IS_LONG;
            let mut with_head = Encoder::collect(|e| e.put(&head()));
            with_head.extend_from_slice(&len.to_le_bytes());
            for front in [front, with_head] {
                prop_assert!(RepOp::read(&header, front.clone(), vec![1; data].into()).is_err());
                let (mut header, mut front, mut data) = (header, front, Payload::from(vec![1; data]));
                let _ = join(&mut header, &mut front, &mut data);
                prop_assert!(PgObject::from_front(&header, &front).is_err());
            }
        }
    }

    #[test]
    fn a_head_has_a_fixed_length() {
        assert_eq!(Encoder::collect(|e| e.put(&head())).len(), HEAD_BYTES);
    }

    #[test]
    #[should_panic(expected = "bytes of data")]
    fn no_message_is_made_that_nobody_would_take() {
        let piece = Bytes::from(vec![0; 1 << 20]);
        let data = Payload::repeat(&piece, DATA_BYTES_MAX + 1);
        let _ = RepOp::pack(&head(), &Sealed::from(Transaction::default()), data);
    }
}
