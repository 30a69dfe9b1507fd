//! The decoder of what lies on a drive beside an object, over any bytes: it may not panic, hang, or allocate by what the bytes
//! claim.

use std::collections::BTreeMap;

use carmine_reactor::Bytes;
use carmine_types::crc32c;

use super::record;
use super::view::Delta;

/// Decodes bytes as a log of attributes, and as the body of a record whose checksum holds, alone and behind another record.
pub fn decode_attributes(bytes: &[u8]) {
    let _ = record::replay(bytes);
    let crc = crc32c::raw(crc32c::SEED, bytes);
    let whole = [&(bytes.len() as u32).to_le_bytes(), &crc.to_le_bytes(), bytes].concat();
    let _ = record::replay(&whole);
    let _ = record::replay(&[record::encode(&full()), whole].concat());
}

/// Good inputs: a log of two records, and the body of a record.
#[must_use]
pub fn attribute_seeds() -> Vec<Vec<u8>> {
    let clearing = Delta { cleared: [true; 3], ..Delta::default() };
    let (full, clearing) = (record::encode(&full()), record::encode(&clearing));
    let body = full.get(8..).unwrap_or_default().to_vec();
    vec![[full, clearing].concat(), body]
}

/// A change with a bit of everything.
fn full() -> Delta {
    let changes = || {
        BTreeMap::from([
            (Box::from(&b"name"[..]), Some(Bytes::from(b"value".to_vec()))),
            (Box::from(&b"old"[..]), None),
        ])
    };
    Delta {
        reset: true,
        cleared: [false, true, false],
        changes: [changes(), changes(), changes()],
        omap_header: Some(Bytes::from(b"header".to_vec())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_good() {
        let [log, body] = attribute_seeds().try_into().unwrap();
        assert!(record::replay(&log).is_ok());
        assert!(record::replay(&body).is_err(), "a body is no log");
        decode_attributes(&body);
    }
}
