//! The transaction, which comes from other OSDs and stands in a store's log.

use carmine_pgtypes::{LogEntry, ObjectChange, PgInfo, Sealed, Step, Transaction};
use carmine_reactor::{Bytes, Payload};
use carmine_types::{Epoch, Eversion, LogOp, ObjectId, OsdId, PgId, ReqId, UTime};
use carmine_wire::Decoder;

/// Bytes of data beside a transaction.
const DATA_BYTES: usize = 8192;

/// A transaction with and without its data. One that can be decoded encodes to the same bytes.
pub(super) fn transaction(bytes: &[u8]) {
    let data = Payload::from(vec![7; DATA_BYTES]);
    if let Ok(txn) = Decoder::all(bytes, "transaction", |d| Transaction::decode(d, &data)) {
        assert_eq!(txn.data_bytes(), DATA_BYTES as u64);
        assert_eq!(Sealed::from(txn).encoded().len(), bytes.len());
    }
    let _ = Decoder::all(bytes, "transaction", |d| Transaction::decode_without_data(d));
}

/// A write, a push with xattrs and omap, and the end of a repair.
pub(super) fn transaction_seeds() -> Vec<Vec<u8>> {
    let pg = PgId::new(1, 7).into();
    let oid = std::sync::Arc::new(ObjectId::head(1, b"space", b"key", b"name"));
    let (version, mtime) = (Eversion::new(3, 9), UTime { sec: 5, nsec: 6 });
    let meta = Step::SetMeta { version, user_version: 4, mtime };
    let data = Payload::from(vec![7; DATA_BYTES]);
    let mut write = Transaction::new(pg, 0);
    write.changes.push(ObjectChange::new(oid.clone(), [Step::Write { off: 4096, data }, meta.clone()]));
    write.log.push(LogEntry {
        version,
        prior: Eversion::ZERO,
        reqid: ReqId { client: 4100, inc: 1, tid: 17 },
        oid: oid.clone(),
        op: LogOp::Modify,
        user_version: 4,
        result: 0,
        mtime,
        clones: Box::default(),
        returned: None,
    });
    write.log_trim_to = Some(Eversion::new(2, 1));
    let (name, value) = (Box::from(&b"_name"[..]), Bytes::from(b"value".to_vec()));
    let steps = [
        Step::Remove,
        Step::Truncate { size: 9999 },
        meta,
        Step::SetXattr { name, value: value.clone() },
        Step::Zero { off: 1, len: 2 },
        Step::MarkLost { off: 4096, len: 4096, crc: 0 },
        Step::MarkLost { off: 8192, len: 4096, crc: 7 },
        Step::CloneFrom { from: oid.clone() },
        Step::SetOmapHeader { header: value.clone() },
        Step::SetOmap { entries: vec![(Box::from(&b"key"[..]), value)] },
        Step::RemoveOmap { keys: vec![Box::from(&b"old"[..])] },
        Step::RemoveOmapRange { from: Box::from(&b"a"[..]), to: Box::from(&b"b"[..]) },
    ];
    let mut push = Transaction::new(pg, 0);
    push.changes.push(ObjectChange::new(oid, steps));
    let mut repaired = Transaction::new(pg, 0);
    repaired.log_rewind_to = Some(Eversion::new(2, 5));
    let acting = [OsdId(1), OsdId(2)].into();
    let info = PgInfo { pg, last_update: version, last_epoch_started: Epoch(2), acting, ..PgInfo::default() };
    repaired.info = Some(info.into());
    [write, push, repaired].into_iter().map(|txn| Sealed::from(txn).encoded().to_vec()).collect()
}
