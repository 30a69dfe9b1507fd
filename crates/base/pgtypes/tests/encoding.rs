//! The encodings: what is written is read back, and nothing that is read panics or takes memory by what it claims.

use std::sync::Arc;

use allocation_counter::measure;
use carmine_codec::{DecodeError, Decoder, Encoder};
use carmine_pgtypes::*;
use carmine_reactor::{Bytes, Payload};
use carmine_types::{Epoch, Eversion, LogOp, NO_OSD, ObjectId, OsdId, PgId, ReqId, ScrubStamp, SpgId, UTime};
use proptest::collection::vec;
use proptest::prelude::*;

fn bytes(most: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..most).prop_map(Bytes::from)
}

fn name() -> impl Strategy<Value = Box<[u8]>> {
    vec(any::<u8>(), 0..20).prop_map(Vec::into_boxed_slice)
}

prop_compose! {
    fn eversion()(epoch in any::<u32>(), version in any::<u64>()) -> Eversion { Eversion { epoch, version } }
}

prop_compose! {
    fn utime()(sec in any::<u32>(), nsec in any::<u32>()) -> UTime { UTime { sec, nsec } }
}

prop_compose! {
    fn pg()(pool in any::<i64>(), ps in any::<u32>(), shard in any::<i8>()) -> SpgId {
        SpgId { pgid: PgId { pool, ps }, shard }
    }
}

prop_compose! {
    fn object()(pool in any::<i64>(), hash in any::<u32>(), nspace in name(), key in name(), name in name(),
                snap in any::<u64>(), generation in any::<u64>(), shard in any::<i8>()) -> ObjectId {
        ObjectId { pool, hash, nspace, key, name, snap, generation, shard }
    }
}

/// Few entries have any.
fn returned() -> impl Strategy<Value = Option<Arc<Returned>>> {
    let op = (any::<i32>(), vec(any::<u8>(), 0..70).prop_map(Vec::into_boxed_slice));
    prop::option::of(vec(op, 0..4).prop_map(|ops| Arc::new(Returned(ops.into()))))
}

prop_compose! {
    fn entry()(version in eversion(), prior in eversion(), client in any::<u64>(), inc in any::<i32>(), tid in any::<u64>(),
               oid in object().prop_map(Arc::new), op in prop::sample::select(vec![LogOp::Modify, LogOp::Delete, LogOp::Error]),
               user_version in any::<u64>(), result in any::<i32>(), mtime in utime(), clones in vec(any::<u64>(), 0..4).prop_map(Vec::into_boxed_slice),
               returned in returned()) -> LogEntry {
        LogEntry { version, prior, reqid: ReqId { client, inc, tid }, oid, op, user_version, result, mtime, clones, returned }
    }
}

prop_compose! {
    /// With holes, and with any of its OSDs as the primary, or none.
    fn osd_set()(items in vec(prop_oneof![Just(NO_OSD), 0..NO_OSD], 0..5), primary in any::<usize>()) -> OsdSet {
        let primary = items.get(primary % 6).and_then(|item| OsdId::from_item(*item));
        OsdSet::new(&items, primary)
    }
}

prop_compose! {
    fn interval()(first in any::<u32>(), last in any::<u32>(), acting in osd_set()) -> Interval {
        Interval { first: Epoch(first), last: Epoch(last), acting }
    }
}

prop_compose! {
    fn history()(epoch in any::<u32>(), since in any::<u32>(), clean in any::<u32>(), past in vec(interval(), 0..4)) -> PgHistory {
        PgHistory { epoch: Epoch(epoch), same_interval_since: Epoch(since), last_epoch_clean: Epoch(clean), past }
    }
}

prop_compose! {
    fn scrubs()(count in any::<u64>(), last in (eversion(), utime()), deep in (eversion(), utime()), errors in any::<u64>(),
                deep_errors in any::<u64>(), omaps in any::<[u64; 4]>()) -> Scrubbed {
        let stamp = |(version, time)| ScrubStamp { version, time };
        let [objects, large, keys, bytes] = omaps;
        let omaps = Omaps { objects, large, size: OmapSize { keys, bytes } };
        Scrubbed { count, last: stamp(last), last_deep: stamp(deep), errors, deep_errors, omaps }
    }
}

prop_compose! {
    fn info()(pg in pg(), pg_num in any::<u32>(), last_update in eversion(), log_tail in eversion(), started in any::<u32>(), made in any::<u32>(), history in history(),
              acting in osd_set(), incomplete in any::<bool>(), complete_to in eversion(),
              last_backfill in proptest::option::of(object()), unfound in vec(object(), 0..3), scrubs in scrubs(), clean_before in utime(),
              promised in (any::<u32>(), any::<u32>(), any::<u32>()), origin in prop_oneof![Just((0, 0)), any::<(u32, u32)>()]) -> PgInfo {
        let last_epoch_started = Epoch(started);
        let promised = Promised { holder: OsdId(promised.0), interval: Epoch(promised.1), length_ms: promised.2 };
        let made = Epoch(made);
        let (created, split) = (Epoch(origin.0), Epoch(origin.1));
        PgInfo { pg, pg_num, last_update, log_tail, last_epoch_started, made, history, acting, promised, incomplete, complete_to, last_backfill, unfound, scrubs, clean_before, created, split }
    }
}

prop_compose! {
    fn meta()(size in any::<u64>(), version in eversion(), user_version in any::<u64>(), mtime in utime(),
              has_omap in any::<bool>(), pairs in vec((name(), bytes(50)), 0..5)) -> ObjectMeta {
        let mut xattrs = Xattrs::default();
        pairs.into_iter().for_each(|(name, value)| xattrs.set(&name, value));
        ObjectMeta { size, version, user_version, mtime, has_omap, xattrs }
    }
}

fn step() -> impl Strategy<Value = Step> {
    let range = || (any::<u64>(), any::<u64>());
    prop_oneof![
        Just(Step::Touch),
        Just(Step::Remove),
        Just(Step::ClearOmap),
        (0..OBJECT_BYTES_MAX - 100, bytes(100))
            .prop_map(|(off, data)| Step::Write { off, data: data.into() }),
        range().prop_map(|(off, len)| Step::Zero { off, len }),
        any::<u64>().prop_map(|size| Step::Truncate { size }),
        (range(), any::<u32>()).prop_map(|((off, len), crc)| Step::MarkLost { off, len, crc }),
        object().prop_map(|from| Step::CloneFrom { from: from.into() }),
        (eversion(), any::<u64>(), utime()).prop_map(|(version, user_version, mtime)| Step::SetMeta {
            version,
            user_version,
            mtime
        }),
        (name(), bytes(50)).prop_map(|(name, value)| Step::SetXattr { name, value }),
        name().prop_map(|name| Step::RemoveXattr { name }),
        name().prop_map(|prefix| Step::ClearXattrs { prefix }),
        vec((name(), bytes(50)), 0..4).prop_map(|entries| Step::SetOmap { entries }),
        bytes(50).prop_map(|header| Step::SetOmapHeader { header }),
        vec(name(), 0..4).prop_map(|keys| Step::RemoveOmap { keys }),
        (name(), name()).prop_map(|(from, to)| Step::RemoveOmapRange { from, to }),
    ]
}

/// Any transaction; of its changes some are of the object of the newest log entry.
fn transaction() -> impl Strategy<Value = Transaction> {
    let changes = vec((any::<bool>(), object(), vec(step(), 0..4)), 0..4);
    let versions = (any::<Option<bool>>(), eversion(), eversion());
    // Few PGs are split or merged.
    let split = prop_oneof![3 => Just(Vec::new()), 1 => vec(info(), 1..3)];
    let merge = prop_oneof![3 => Just(Vec::new()), 1 => vec(pg(), 1..3)];
    let of_pg = (prop::option::of(info().prop_map(Box::new)), any::<bool>(), split, merge);
    (pg(), changes, vec(entry(), 0..3), versions, of_pg).prop_map(
        |(pg, changes, log, (optional, trim, rewind), (info, forget_pg, split, merge))| {
            let newest = log.last().map(|entry| Arc::clone(&entry.oid));
            let named = |of_entry, oid| newest.clone().filter(|_| of_entry).unwrap_or_else(|| Arc::new(oid));
            let changes = changes
                .into_iter()
                .map(|(of_entry, oid, steps)| ObjectChange::new(named(of_entry, oid), steps));
            Transaction {
                changes: changes.collect(),
                log: log.into(),
                log_trim_to: optional.is_some().then_some(trim),
                log_rewind_to: (optional != Some(true)).then_some(rewind),
                info,
                forget_pg,
                split,
                merge,
                ..Transaction::new(pg, 0)
            }
        },
    )
}

fn encoded(encode: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
    Encoder::collect(encode)
}

fn decoded(bytes: &[u8], data: &Payload) -> Result<Transaction, DecodeError> {
    Decoder::all(bytes, "transaction", |d| Transaction::decode(d, data))
}

fn without_data(bytes: &[u8]) -> Result<Transaction, DecodeError> {
    Decoder::all(bytes, "transaction", Transaction::decode_without_data)
}

/// A transaction with one write to `oid`.
fn writing(oid: &Arc<ObjectId>, data: &Payload) -> Transaction {
    let mut txn = Transaction::new(PgId::new(1, 0).into(), 0);
    txn.changes.push(ObjectChange::new(Arc::clone(oid), [Step::Write { off: 5, data: data.clone() }]));
    txn
}

/// Every decoder over any bytes, with the memory that each may take.
fn decode_everything(bytes: &[u8]) {
    let bounded = |decode: &dyn Fn(), what: &str| {
        let held = measure(decode).bytes_max;
        let limit = MEMORY_BYTES_FIXED + bytes.len() * MEMORY_PER_INPUT_BYTE_MAX;
        assert!(
            held <= limit as u64,
            "{what} held {held} bytes for {} of input: {}",
            bytes.len(),
            bytes.escape_ascii()
        );
    };
    bounded(&|| drop(Decoder::new(bytes, "entry").get::<LogEntry>()), "LogEntry");
    bounded(&|| drop(Decoder::new(bytes, "info").get::<PgInfo>()), "PgInfo");
    bounded(&|| drop(Decoder::new(bytes, "metadata").get::<ObjectMeta>()), "ObjectMeta");
    bounded(&|| drop(object::get::<ObjectId>(&mut Decoder::new(bytes, "object"))), "ObjectId");
    let data = Payload::from(vec![7; 100]);
    bounded(&|| drop(decoded(bytes, &data)), "Transaction");
    bounded(&|| drop(without_data(bytes)), "Transaction without data");
}

proptest! {
    /// What a transaction counts for is never less than what it takes in a message.
    #[test]
    fn no_change_takes_more_than_it_counts_for(txn in transaction()) {
        let txn = Transaction { changes: txn.changes, pg: txn.pg, ..Transaction::default() };
        let mut encoded = Vec::new();
        txn.encode(&mut Encoder::new(&mut encoded));
        let empty = Encoder::collect(|e| Transaction::new(txn.pg, 0).encode(e)).len() as u64;
        prop_assert!(encoded.len() as u64 + txn.data_bytes() <= empty + txn.bytes_max());
        let steps: usize = txn.changes.iter().map(|change| change.steps.len()).sum();
        prop_assert!(steps as u64 * STEP_BYTES <= txn.bytes_max());
    }
}

proptest! {
    #[test]
    fn entries_infos_and_metadata_round_trip(entry in entry(), info in info(), meta in meta()) {
        let bytes = encoded(|e| { e.put(&entry); e.put(&info); e.put(&meta); object::put(&entry.oid, e); });
        let mut d = Decoder::new(&bytes, "test");
        prop_assert_eq!(d.get::<LogEntry>(), Ok(entry.clone()));
        prop_assert_eq!(d.get::<PgInfo>(), Ok(info));
        prop_assert_eq!(d.get::<ObjectMeta>(), Ok(meta));
        prop_assert_eq!(object::get::<ObjectId>(&mut d), Ok(ObjectId::clone(&entry.oid)));
        prop_assert!(d.is_empty());
    }

    #[test]
    fn transactions_round_trip(txn in transaction()) {
        let (bytes, data) = (encoded(|e| txn.encode(e)), txn.data());
        prop_assert_eq!(decoded(&bytes, &data), Ok(txn.clone()));
        // Without the data all else is the same, the lengths of writes too.
        let bare = without_data(&bytes).unwrap();
        prop_assert_eq!(bare.data_bytes(), data.len() as u64);
        prop_assert_eq!(encoded(|e| bare.encode(e)), bytes);
    }

    #[test]
    fn a_change_of_the_newest_entrys_object_does_not_name_it_again(entry in entry(), object in object()) {
        let change = |oid: &Arc<ObjectId>| ObjectChange::new(Arc::clone(oid), [Step::Touch]);
        let mut txn = Transaction::new(PgId::new(1, 0).into(), 0);
        txn.changes.extend([change(&entry.oid), change(&Arc::new(object.clone()))]);
        txn.log.push(entry);
        let bytes = encoded(|e| txn.encode(e));
        let mut only_log = Transaction { changes: [].into_iter().collect(), ..txn };
        let named = encoded(|e| object::put(&object, e)).len();
        prop_assert_eq!(bytes.len() - encoded(|e| only_log.encode(e)).len(), named + 2 * (1 + 4 + 1));
        let read = decoded(&bytes, &Payload::new()).unwrap();
        prop_assert!(Arc::ptr_eq(&read.changes[0].oid, &read.log[0].oid));
        // Without an entry there is nothing that could name it.
        only_log.log.clear();
        let mut bad = encoded(|e| only_log.encode(e));
        bad.truncate(bad.len() - 4);
        bad.extend_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0, 0]);
        let refused = matches!(decoded(&bad, &Payload::new()), Err(DecodeError::BadValue { .. }));
        prop_assert!(refused);
    }

    #[test]
    fn writes_must_add_up_to_the_data(txn in transaction(), other in 0usize..200) {
        let (bytes, data) = (encoded(|e| txn.encode(e)), txn.data());
        let read = decoded(&bytes, &Payload::from(vec![0; other]));
        prop_assert_eq!(read.is_ok(), other == data.len());
    }

    #[test]
    fn a_checksum_of_the_data_is_that_of_a_lone_write(oid in object(), data in vec(any::<u8>(), 1..100)) {
        let (oid, data) = (Arc::new(oid), Payload::from(data).with_crc(9));
        let mut txn = writing(&oid, &data);
        prop_assert_eq!(txn.data().known_crc(), Some(9));
        let read = decoded(&encoded(|e| txn.encode(e)), &data).unwrap();
        prop_assert_eq!((read.data().known_crc(), &read), (Some(9), &txn));
        txn.changes.push(writing(&oid, &data).changes.remove(0));
        let both = txn.data();
        prop_assert_eq!(both.known_crc(), None);
        let read = decoded(&encoded(|e| txn.encode(e)), &both.with_crc(8)).unwrap();
        prop_assert_eq!(read.data().known_crc(), None);
    }

    #[test]
    fn random_bytes_are_errors_not_panics(bytes in vec(any::<u8>(), 0..300)) {
        decode_everything(&bytes);
    }

    #[test]
    fn changed_encodings_are_errors_not_panics(txn in transaction(), meta in meta(), changes in vec((any::<usize>(), any::<u8>()), 1..6), cut in any::<usize>()) {
        for mut bytes in [encoded(|e| txn.encode(e)), encoded(|e| e.put(&meta))] {
            for &(at, byte) in &changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            bytes.truncate(1 + cut % bytes.len());
            decode_everything(&bytes);
        }
    }
}

/// A write whose client wants no outputs is logged in as few bytes as before there were any.
#[test]
fn an_entry_without_outputs_is_no_longer_for_them() {
    let oid: Arc<ObjectId> = ObjectId::cursor(1, 0).into();
    let entry = LogEntry {
        version: Eversion::new(1, 2),
        prior: Eversion::ZERO,
        reqid: ReqId { client: 1, inc: 0, tid: 2 },
        oid,
        op: LogOp::Modify,
        user_version: 2,
        result: 0,
        mtime: UTime::ZERO,
        clones: Box::default(),
        returned: None,
    };
    let bytes = encoded(|e| e.put(&entry));
    let object = encoded(|e| object::put(&entry.oid, e)).len();
    assert_eq!(bytes.len(), 12 + 12 + 20 + object + 1 + 8 + 4 + 8 + 4);
    let returned = Some(Arc::new(Returned([(42, b"you might see this".to_vec().into())].into())));
    let longer = encoded(|e| e.put(&LogEntry { returned, ..entry }));
    assert_eq!(longer.len(), bytes.len() + 4 + 4 + 4 + 18);
    // The byte of the effect says which it is; no other value of it is one.
    let at = 12 + 12 + 20 + object;
    for byte in (0..=u8::MAX).filter(|byte| !(1..=3).contains(&(byte & 0x7f))) {
        let mut bad = longer.clone();
        bad[at] = byte;
        assert!(Decoder::new(&bad, "test").get::<LogEntry>().is_err(), "{byte:#x}");
    }
}

/// The shortest inputs for the most memory: changes without steps, and steps of one byte.
#[test]
fn many_short_items_stay_within_the_memory_that_is_declared() {
    let oid: Arc<ObjectId> = ObjectId::cursor(1, 0).into();
    let mut txn = Transaction::new(PgId::new(1, 0).into(), 0);
    txn.changes.extend((0..30_000).map(|_| ObjectChange::new(Arc::clone(&oid), [])));
    decode_everything(&encoded(|e| txn.encode(e)));
    txn.changes.clear();
    txn.changes.push(ObjectChange::new(oid, (0..=1 << 17).map(|_| Step::Touch)));
    decode_everything(&encoded(|e| txn.encode(e)));
}

#[test]
fn a_write_behind_the_largest_object_is_refused() {
    let oid: Arc<ObjectId> = ObjectId::cursor(1, 0).into();
    let data = Payload::from(vec![1; 10]);
    for (off, good) in [(OBJECT_BYTES_MAX - 10, true), (OBJECT_BYTES_MAX - 9, false), (u64::MAX, false)] {
        let mut txn = writing(&oid, &data);
        txn.changes[0].steps[0] = Step::Write { off, data: data.clone() };
        let bytes = encoded(|e| txn.encode(e));
        assert_eq!(decoded(&bytes, &data).is_ok(), good, "{off}");
        assert_eq!(without_data(&bytes).is_ok(), good, "{off}");
    }
}

/// A few bytes must not stand for any amount of data.
#[test]
fn writes_without_their_data_are_bounded_together() {
    let oid: Arc<ObjectId> = ObjectId::cursor(1, 0).into();
    let one = encoded(|e| writing(&oid, &Payload::from(vec![0; 7])).encode(e));
    let at = one.len() - 8;
    assert_eq!(one[at..], 7u64.to_le_bytes());
    // The same step again and again, of the largest length.
    let (head, step) =
        (&one[..one.len() - 17 - 4], [&[2][..], &[0; 8], &OBJECT_BYTES_MAX.to_le_bytes()].concat());
    for (count, good) in [(1u32, true), (2, false), (500, false)] {
        let bytes = [head, &count.to_le_bytes(), &step.repeat(count as usize)].concat();
        assert_eq!(without_data(&bytes).is_ok(), good, "{count}");
        decode_everything(&bytes);
    }
}

#[test]
fn names_are_bounded() {
    for (len, good) in [(NAME_BYTES_MAX, true), (NAME_BYTES_MAX + 1, false)] {
        let oid = ObjectId::head(1, b"", b"", &vec![b'x'; len]);
        let bytes = encoded(|e| object::put(&oid, e));
        assert_eq!(object::get::<ObjectId>(&mut Decoder::new(&bytes, "test")).is_ok(), good, "{len}");
    }
}

#[test]
fn a_sealed_transaction_is_encoded_once_and_keeps_the_bytes_it_came_in() {
    let txn = writing(&ObjectId::cursor(1, 0).into(), &Payload::from(vec![1; 10]));
    let sealed = Sealed::from(txn.clone());
    assert_eq!(sealed.encoded().as_slice(), encoded(|e| txn.encode(e)));
    assert_eq!(sealed.encoded().as_slice().as_ptr(), sealed.clone().encoded().as_slice().as_ptr());
    let came = Bytes::from(vec![1, 2, 3]);
    assert_eq!(Sealed::decoded(txn.clone(), came.clone()).encoded(), &came);
    assert_eq!(sealed.into_txn(), txn);
}
