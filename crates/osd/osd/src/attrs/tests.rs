use std::collections::BTreeMap;
use std::rc::Rc;

use carmine_reactor::Bytes;
use carmine_store::TxnOp;
use carmine_types::ObjectId;
use proptest::prelude::*;

use super::{Attrs, Change, Kind, View, record};

/// A step of a request.
#[derive(Clone, Debug)]
enum Step {
    Set(u8, Vec<u8>),
    Remove(u8),
    Clear,
    Header(Vec<u8>),
    Delete,
}

fn step() -> impl Strategy<Value = Step> {
    let value = || prop::collection::vec(any::<u8>(), 0..600);
    prop_oneof![
        8 => (0..12u8, value()).prop_map(|(n, value)| Step::Set(n, value)),
        3 => (0..12u8).prop_map(Step::Remove),
        1 => Just(Step::Clear),
        1 => value().prop_map(Step::Header),
        1 => Just(Step::Delete),
    ]
}

/// Carries out the steps of a transaction on the bytes of the log.
fn store(log: &mut Vec<u8>, steps: &[TxnOp]) {
    for step in steps {
        match step {
            TxnOp::Remove { .. } => log.clear(),
            TxnOp::Write { off, data, .. } => {
                assert_eq!(*off as usize, log.len());
                log.extend_from_slice(&data.to_vec());
            }
            other => panic!("{other:?}"),
        }
    }
}

proptest! {
    /// After any requests: what the view shows, what the cache would hold and what the log says is what the model has.
    #[test]
    fn log_view_and_memory_agree_with_a_map(requests in prop::collection::vec(prop::collection::vec(step(), 0..6), 0..40)) {
        let oid = ObjectId::head(1, b"", b"", b"o");
        let (mut model, mut header) = (BTreeMap::<Vec<u8>, Vec<u8>>::new(), Vec::new());
        let (mut attrs, mut log) = (Rc::new(Attrs::default()), Vec::new());
        for request in requests {
            let mut view = View::new(Rc::clone(&attrs));
            for step in request {
                match step {
                    Step::Set(n, value) => {
                        view.set(Kind::Omap, &[n], Bytes::from(value.clone()));
                        model.insert(vec![n], value);
                    }
                    Step::Remove(n) => {
                        view.remove(Kind::Omap, &[n]);
                        model.remove(&vec![n]);
                    }
                    Step::Clear => {
                        view.clear(Kind::Omap);
                        model.clear();
                    }
                    Step::Header(value) => {
                        view.set_omap_header(Bytes::from(value.clone()));
                        header = value;
                    }
                    Step::Delete => {
                        view = View::removed();
                        model.clear();
                        header.clear();
                    }
                }
                let seen: Vec<_> = view.after(Kind::Omap, None, b"").map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
                prop_assert_eq!(seen, model.clone().into_iter().collect::<Vec<_>>());
                let later: Vec<_> = view.after(Kind::Omap, Some(&[5]), b"").map(|(k, _)| k.to_vec()).collect();
                prop_assert_eq!(later, model.range(vec![6]..).map(|(k, _)| k.clone()).collect::<Vec<_>>());
                prop_assert_eq!(view.omap_header().to_vec(), header.clone());
            }
            if let Some((change, steps)) = Change::of(view, &oid, true).unwrap() {
                store(&mut log, &steps);
                let Change { base, delta, log_bytes } = change;
                let mut new = (*base).clone();
                new.apply(delta);
                new.log_bytes = log_bytes;
                attrs = Rc::new(new);
            }
            prop_assert_eq!(&record::replay(&log).unwrap(), &*attrs);
            let live: usize = model.iter().map(|(k, v)| k.len() + v.len() + record::ENTRY_BYTES).sum();
            prop_assert_eq!(attrs.bytes, live + header.len());
            prop_assert!(log.len() <= 2 * attrs.bytes.max(16 << 10) + (24 << 10), "the log is cut");
        }
    }

    #[test]
    fn damage_is_found(at: prop::sample::Index, bit in 0..8u8, bytes: Vec<u8>) {
        let mut view = View::new(Rc::default());
        view.set(Kind::Xattr, b"name", Bytes::from(b"value".to_vec()));
        let (_, steps) = Change::of(view, &ObjectId::head(1, b"", b"", b"o"), true).unwrap().unwrap();
        let mut log = Vec::new();
        store(&mut log, &steps);
        let at = at.index(log.len());
        log[at] ^= 1 << bit;
        prop_assert!(record::replay(&log).is_err());
        let _ = record::replay(&bytes);
    }
}
