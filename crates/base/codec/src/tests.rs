use proptest::prelude::*;

use super::*;

#[test]
fn a_getter_that_fails_consumes_nothing() {
    let mut d = Decoder::new(&[5, 0, 0, 0, 1], "short");
    assert_eq!(d.u64(), Err(DecodeError::Truncated { what: "short", need: 8, left: 5 }));
    assert!(d.blob().is_err());
    assert!(d.str().is_err());
    assert!(d.envelope("struct", 1).is_err());
    assert_eq!(d.remaining(), 5);
}

#[test]
fn counts_that_cannot_fit_are_refused_before_any_item() {
    let bytes = [0xff, 0xff, 0xff, 0x7f, 1, 2, 3];
    let mut d = Decoder::new(&bytes, "list");
    let mut items = 0;
    let result = d.vec(1, |d| {
        items += 1;
        d.u8()
    });
    assert_eq!(result, Err(DecodeError::Truncated { what: "list", need: 0x7fff_ffff, left: 3 }));
    assert_eq!(items, 0);
}

#[test]
fn envelope_skips_newer_fields_and_refuses_incompatible_ones() {
    let bytes = Encoder::collect(|e| {
        e.envelope(9, 2, |e| {
            e.u32(7);
            e.str("a field from the future");
        });
        e.u8(0xaa);
    });
    let mut d = Decoder::new(&bytes, "outer");
    let mut envelope = d.envelope("inner", 2).unwrap();
    assert_eq!((envelope.version, envelope.compat), (9, 2));
    assert_eq!(envelope.body.u32(), Ok(7));
    assert_eq!(d.u8(), Ok(0xaa));
    assert!(envelope.at_least(10).is_err());

    let error = Decoder::new(&bytes, "outer").envelope("inner", 1).unwrap_err();
    assert_eq!(error, DecodeError::TooNew { what: "inner", compat: 2, known: 1 });
    assert_eq!(error.to_string(), "inner: needs a reader of version 2, this one knows 1");
}

#[test]
fn text_must_be_utf8() {
    let bytes = Encoder::collect(|e| e.blob(b"ok\xffno"));
    let mut d = Decoder::new(&bytes, "name");
    assert_eq!(d.str(), Err(DecodeError::BadValue { what: "name", value: 0xff }));
    assert_eq!(d.blob(), Ok(&b"ok\xffno"[..]));
}

#[test]
fn all_demands_that_every_byte_is_used() {
    assert_eq!(Decoder::all(&[1, 2], "two", |d| d.u16()), Ok(0x201));
    let error = Decoder::all(&[1, 2, 3], "two", |d| d.u16()).unwrap_err();
    assert_eq!(error.to_string(), "two: 1 bytes are left over at the end");
}

/// Squares, to see that a module's layout is used.
mod squared {
    use super::*;

    pub(super) const BYTES_MIN: usize = 2;

    pub(super) fn put(root: &u8, e: &mut Encoder<'_>) {
        e.u16(u16::from(*root) * u16::from(*root));
    }

    pub(super) fn get(d: &mut Decoder<'_>) -> Result<u8> {
        Ok(d.u16()?.isqrt() as u8)
    }
}

coded! {
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Plain {
        first: u8 [u32],
        second: Vec<u16>,
        third: u8 = squared,
    }
}

coded! {
    #[derive(Clone, Debug, Default, PartialEq)]
    struct Versioned: versioned "versioned", 4, compat 2, oldest 3 {
        old: u8,
        new: Option<String>; since 4,
    }
}

#[test]
fn a_layout_is_said_once() {
    let value = Plain { first: 1, second: vec![2, 3], third: 4 };
    let bytes = Encoder::collect(|e| e.put(&value));
    assert_eq!(bytes, [1, 0, 0, 0, 0, 2, 0, 0, 0, 2, 0, 3, 0, 16, 0]);
    assert_eq!(Decoder::all(&bytes, "plain", |d| d.get()), Ok(value));
    assert_eq!(Plain::BYTES_MIN, 1 + 4 + 4 + 2);
}

#[test]
fn an_older_structure_lacks_fields_and_a_newer_one_has_more() {
    let read = |version, fields: &[u8]| {
        let bytes = Encoder::collect(|e| e.envelope(version, 2, |e| e.bytes(fields)));
        Decoder::all(&bytes, "test", |d| d.get::<Versioned>())
    };
    let value = Versioned { old: 7, new: Some("x".into()) };
    let bytes = Encoder::collect(|e| e.put(&value));
    assert_eq!(bytes, [4, 2, 7, 0, 0, 0, 7, 1, 1, 0, 0, 0, b'x']);
    assert_eq!(Decoder::all(&bytes, "test", |d| d.get()), Ok(value.clone()));
    assert_eq!(read(3, &[7]), Ok(Versioned { new: None, ..value.clone() }));
    assert_eq!(read(5, &[7, 1, 1, 0, 0, 0, b'x', 9, 9]), Ok(value));
    let too_old = DecodeError::TooOld { what: "versioned", version: 2, oldest: 3 };
    assert_eq!(read(2, &[7]), Err(too_old));
}

proptest! {
    #[test]
    fn round_trip(
        ints in any::<(u8, u16, u32, u64)>(),
        signed in any::<(i8, i16, i32, i64)>(),
        flag: bool,
        text: String,
        list: Vec<u32>,
        pairs: Vec<(u8, Vec<u8>)>,
    ) {
        let bytes = Encoder::collect(|e| e.envelope(3, 1, |e| {
            e.u8(ints.0); e.u16(ints.1); e.u32(ints.2); e.u64(ints.3);
            e.i8(signed.0); e.i16(signed.1); e.i32(signed.2); e.i64(signed.3);
            e.bool(flag);
            e.str(&text);
            e.vec(&list, |e, item| e.u32(*item));
            e.vec(&pairs, |e, (key, value)| { e.u8(*key); e.blob(value); });
        }));
        let mut d = Decoder::new(&bytes, "test");
        let mut body = d.envelope("test", 1).unwrap().body;
        prop_assert_eq!((body.u8()?, body.u16()?, body.u32()?, body.u64()?), ints);
        prop_assert_eq!((body.i8()?, body.i16()?, body.i32()?, body.i64()?), signed);
        prop_assert_eq!(body.bool()?, flag);
        prop_assert_eq!(body.string()?, text);
        prop_assert_eq!(body.vec(4, |d| d.u32())?, list);
        prop_assert_eq!(body.map(5, |d| d.u8(), |d| Ok(d.blob()?.to_vec()))?, pairs);
        body.finish()?;
        d.finish()?;
    }
}
