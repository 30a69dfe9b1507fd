//! xattrs, omap, comparisons and class methods: on one OSD, replicated, after repairs and in a new primary.

use std::time::Duration;

use carmine_client::{ClientError, Pool, RouteMode};
use carmine_reactor::Payload;
use carmine_types::errno;
use carmine_wire::osd_op::{OsdOp, flags::compare, ops};
use carmine_wire::{Decoder, Encoder};

use super::cluster::{Cluster, Disks, noise};
use super::peering::{kill, place};

pub(crate) fn xattr(code: u16, name: &str, value: &[u8]) -> (OsdOp, Payload) {
    let op = OsdOp::xattr_op(code, name.len() as u32, value.len() as u32);
    (op, Payload::from([name.as_bytes(), value].concat()))
}

pub(crate) fn set_omap(entries: &[(String, Vec<u8>)]) -> (OsdOp, Payload) {
    let input = Encoder::collect(|e| {
        e.vec(entries, |e, (name, value)| {
            e.str(name);
            e.blob(value);
        });
    });
    (OsdOp::with_payload(ops::OMAP_SET_VALS, 0), Payload::from(input))
}

fn omap_page(after: &str, max: u64) -> (OsdOp, Payload) {
    let input = Encoder::collect(|e| {
        e.str(after);
        e.u64(max);
        e.str("");
    });
    (OsdOp::with_payload(ops::OMAP_GET_VALS, 0), Payload::from(input))
}

fn call(class: &str, method: &str, input: &[u8]) -> (OsdOp, Payload) {
    let op = OsdOp::call_method(class.len() as u8, method.len() as u8, input.len() as u32);
    (op, Payload::from([class.as_bytes(), method.as_bytes(), input].concat()))
}

fn bare(code: u16) -> (OsdOp, Payload) {
    (OsdOp::with_payload(code, 0), Payload::new())
}

pub(crate) async fn get(pool: &Pool, name: &str, op: (OsdOp, Payload)) -> Result<Vec<u8>, ClientError> {
    Ok(pool.exec(name, vec![op]).await?.take_data(0).to_vec())
}

/// All of an object's omap, read in pages.
pub(crate) async fn omap(pool: &Pool, name: &str) -> Vec<(String, Vec<u8>)> {
    let (mut all, mut after) = (Vec::new(), String::new());
    loop {
        let page = get(pool, name, omap_page(&after, 7)).await.unwrap();
        let read =
            |d: &mut Decoder<'_>| Ok((d.map(8, |d| d.string(), |d| Ok(d.blob()?.to_vec()))?, d.bool()?));
        let (entries, more) = Decoder::all(&page, "page", read).unwrap();
        assert!(entries.len() <= 7);
        all.extend(entries);
        if !more {
            return all;
        }
        after.clone_from(&all.last().unwrap().0);
    }
}

fn entries(range: std::ops::Range<u64>) -> Vec<(String, Vec<u8>)> {
    range.map(|n| (format!("key-{n:04}"), noise(n, 1 + n as usize % 300))).collect()
}

async fn every_op(pool: Pool) {
    assert!(get(&pool, "x", xattr(ops::GET_XATTR, "a", b"")).await.unwrap_err().is_not_found());
    assert!(get(&pool, "x", bare(ops::OMAP_CLEAR)).await.unwrap_err().is_not_found());
    pool.exec("x", vec![xattr(ops::SET_XATTR, "a", b"1"), xattr(ops::SET_XATTR, "b", b"")]).await.unwrap();
    assert_eq!(pool.stat("x").await.unwrap().size, 0, "an attribute makes the object");
    assert_eq!(get(&pool, "x", xattr(ops::GET_XATTR, "a", b"")).await.unwrap(), b"1");
    let missing = get(&pool, "x", xattr(ops::GET_XATTR, "c", b"")).await.unwrap_err();
    assert_eq!(missing.errno(), errno::ENODATA);
    let all = get(&pool, "x", bare(ops::GET_XATTRS)).await.unwrap();
    assert_eq!(all, [vec![2, 0, 0, 0, 1, 0, 0, 0], b"a\x01\0\0\x001\x01\0\0\0b\0\0\0\0".to_vec()].concat());
    // A guard that does not hold: nothing is done.
    let guard = |value: &[u8]| {
        let op = OsdOp::cmp_xattr(1, value.len() as u32, compare::EQ, compare::MODE_STRING);
        (op, Payload::from([b"a", value].concat()))
    };
    let write = || (OsdOp::write_full(0), Payload::from(b"data".to_vec()));
    let failed = pool.exec("x", vec![xattr(ops::SET_XATTR, "a", b"2"), guard(b"2"), write()]).await;
    assert_eq!(failed.unwrap_err().errno(), errno::ECANCELED, "it sees what was before the request");
    assert_eq!(get(&pool, "x", xattr(ops::GET_XATTR, "a", b"")).await.unwrap(), b"1");
    pool.exec("x", vec![guard(b"1"), write(), xattr(ops::RM_XATTR, "a", b"")]).await.unwrap();
    assert_eq!(pool.read("x", 0, 0).await.unwrap().to_vec(), b"data");

    pool.exec("x", vec![set_omap(&entries(0..40))]).await.unwrap();
    assert_eq!(omap(&pool, "x").await, entries(0..40));
    let range = Encoder::collect(|e| {
        e.str("key-0010");
        e.str("key-0030");
    });
    pool.exec("x", vec![(OsdOp::with_payload(ops::OMAP_RM_RANGE, 0), Payload::from(range))]).await.unwrap();
    assert_eq!(omap(&pool, "x").await, [entries(0..10), entries(30..40)].concat());
    // Data and attributes go together.
    pool.exec("x", vec![(OsdOp::delete(), Payload::new()), (OsdOp::create(true), Payload::new())])
        .await
        .unwrap();
    assert_eq!((omap(&pool, "x").await, pool.stat("x").await.unwrap().size), (vec![], 0));

    let same = (OsdOp::write_same_op(2, 9, 3), Payload::from(b"abc".to_vec()));
    pool.exec("x", vec![same]).await.unwrap();
    assert_eq!(pool.read("x", 0, 0).await.unwrap().to_vec(), b"\0\0abcabcabc");
    let compared = |data: &'static [u8]| {
        let op = OsdOp { code: ops::CMPEXT, ..OsdOp::read(2, data.len() as u64) };
        (op, Payload::from(data.to_vec()))
    };
    pool.exec("x", vec![compared(b"abc"), write()]).await.unwrap();
    let differs = pool.exec("x", vec![compared(b"tab"), write()]).await.unwrap_err();
    assert_eq!(differs.errno(), -4097);
}

async fn classes(pool: Pool) {
    let get_id = || call("rbd", "get_id", b"");
    assert!(get(&pool, "id", get_id()).await.unwrap_err().is_not_found());
    for (class, method, error) in [
        ("rbd", "unheard_of", errno::EOPNOTSUPP),
        ("rgw", "unheard_of", errno::EOPNOTSUPP),
        ("unheard_of", "add", errno::EPERM),
    ] {
        // Whether there is an object or not.
        assert_eq!(get(&pool, "id", call(class, method, b"")).await.unwrap_err().errno(), error);
    }
    let id = Encoder::collect(|e| e.str("1f"));
    pool.exec("id", vec![(OsdOp::create(true), Payload::new()), call("rbd", "set_id", &id)]).await.unwrap();
    assert_eq!(get(&pool, "id", get_id()).await.unwrap(), id);
    let unknown = get(&pool, "id", call("rbd", "group_image_set", b"")).await.unwrap_err();
    assert_eq!(unknown.errno(), errno::EOPNOTSUPP);
    let again = pool.exec("id", vec![call("rbd", "set_id", &id)]).await.unwrap_err();
    assert_eq!(again.errno(), errno::EEXIST);
    // A method whose request only reads by its flags changes the object all the same.
    let resize = [8u64.to_le_bytes().to_vec(), vec![1]].concat();
    get(&pool, "map", call("rbd", "object_map_resize", &resize)).await.unwrap();
    let map = get(&pool, "map", call("rbd", "object_map_load", b"")).await.unwrap();
    assert_eq!(map[18..20], [0x55, 0x55]);
}

#[test]
fn attributes_and_methods_on_one_osd() {
    for disks in [Disks::Cyan, Disks::Blue] {
        let cluster = Cluster::start(1, disks, 1, 8, &[2]);
        cluster.client(RouteMode::Single, |_, pool| every_op(pool));
        cluster.client(RouteMode::Single, |_, pool| classes(pool));
    }
}

#[test]
fn attributes_are_the_same_on_all_copies() {
    let cluster = Cluster::start(2, Disks::Blue, 3, 8, &[2, 1, 1]);
    cluster.client(RouteMode::Single, |_, pool| every_op(pool));
    cluster.client(RouteMode::Single, |_, pool| classes(pool));
    cluster.check_equal(&[0, 1, 2]);
}

/// A replica that lost everything gets the attributes too; one that was away gets what changed, also what is gone.
#[test]
fn attributes_are_repaired() {
    for wiped in [true, false] {
        let cluster = Cluster::start(3, Disks::Blue, 2, 4, &[1, 1]);
        place(&cluster, 4, &[0, 1]);
        cluster.client(RouteMode::Single, |_, pool| async move {
            for n in 0..10 {
                pool.exec(format!("o{n}"), vec![set_omap(&entries(0..20))]).await.unwrap();
            }
            pool.exec("o1", vec![bare(ops::OMAP_CLEAR)]).await.unwrap();
        });
        kill(&cluster, 1);
        if wiped {
            cluster.wipe(1);
        }
        cluster.start_osd(1, 1);
        cluster.wait_up(2);
        cluster.pass(Duration::from_secs(1));
        cluster.client(RouteMode::Single, |_, pool| async move {
            pool.exec("o2", vec![set_omap(&entries(15..30))]).await.unwrap();
            assert_eq!(omap(&pool, "o0").await, entries(0..20));
            assert_eq!(omap(&pool, "o1").await, []);
            assert_eq!(omap(&pool, "o2").await, entries(0..30));
        });
        cluster.check_equal(&[0, 1]);
    }
}

/// The fields of an answer to COPY_GET that are looked at, and the cursor behind it.
struct Piece {
    size: u64,
    attrs: Vec<(Vec<u8>, Vec<u8>)>,
    data: Vec<u8>,
    omap: Vec<(Vec<u8>, Vec<u8>)>,
    cursor: Vec<u8>,
    is_last: bool,
    header: Vec<u8>,
}

fn piece_of(bytes: &[u8]) -> Piece {
    let mut d = Decoder::new(bytes, "copy").envelope("copy", 8).unwrap().body;
    let pairs = |d: &mut Decoder<'_>| d.vec(8, |d| Ok((d.blob()?.to_vec(), d.blob()?.to_vec()))).unwrap();
    let (size, _) = (d.u64().unwrap(), d.u64().unwrap());
    let attrs = pairs(&mut d);
    let (data, omap) = (d.blob().unwrap().to_vec(), d.blob().unwrap());
    let omap = if omap.is_empty() { Vec::new() } else { pairs(&mut Decoder::new(omap, "omap")) };
    let mut at = d.envelope("cursor", 1).unwrap().body;
    let (has_attrs, offset, has_data) = (at.bool().unwrap(), at.u64().unwrap(), at.bool().unwrap());
    let (key, has_omap) = (at.blob().unwrap().to_vec(), at.bool().unwrap());
    let cursor = cursor(has_attrs, offset, has_data, &key, has_omap);
    Piece {
        size,
        attrs,
        data,
        omap,
        cursor,
        is_last: has_data && has_omap,
        header: d.blob().unwrap().to_vec(),
    }
}

fn cursor(has_attrs: bool, offset: u64, has_data: bool, key: &[u8], has_omap: bool) -> Vec<u8> {
    Encoder::collect(|e| {
        e.envelope(1, 1, |e| {
            e.bool(has_attrs);
            e.u64(offset);
            e.bool(has_data);
            e.blob(key);
            e.bool(has_omap);
        });
    })
}

#[test]
fn copy_get_gives_an_object_in_pieces() {
    let cluster = Cluster::start(5, Disks::Cyan, 1, 8, &[1]);
    cluster.client(RouteMode::Single, |_, pool| async move {
        let data = noise(9, 700_000);
        pool.write_full("from", data.clone()).await.unwrap();
        let header = (OsdOp::with_payload(ops::OMAP_SET_HEADER, 0), Payload::from(b"head".to_vec()));
        pool.exec("from", vec![xattr(ops::SET_XATTR, "a", b"1"), set_omap(&entries(0..1500)), header])
            .await
            .unwrap();
        let (mut next, mut all, mut attrs) = (cursor(false, 0, false, b"", false), Vec::new(), Vec::new());
        let (mut omap, mut headers) = (Vec::new(), Vec::new());
        for most in [0, 100_000, 8 << 20, 8 << 20, 8 << 20, 8 << 20, 8 << 20, 8 << 20] {
            let input = [next.clone(), u64::to_le_bytes(most).to_vec()].concat();
            let ask = (OsdOp::with_payload(ops::COPY_GET, 0), Payload::from(input));
            let piece = piece_of(&pool.exec("from", vec![ask]).await.unwrap().take_data(0).to_vec());
            assert!(piece.size == 700_000 && piece.data.len() as u64 <= most);
            all.extend(piece.data);
            attrs.extend(piece.attrs);
            omap.extend(piece.omap);
            headers.extend(piece.header);
            next = piece.cursor;
            if piece.is_last {
                break;
            }
        }
        let entries: Vec<_> = entries(0..1500).into_iter().map(|(k, v)| (k.into_bytes(), v)).collect();
        assert!(all == data && omap == entries, "{} bytes, {} entries", all.len(), omap.len());
        assert_eq!((attrs, headers), (vec![(b"a".to_vec(), b"1".to_vec())], b"head".to_vec()));
        let ask = |input: &[u8]| (OsdOp::with_payload(ops::COPY_GET, 0), Payload::from(input.to_vec()));
        assert_eq!(pool.exec("from", vec![ask(b"x")]).await.unwrap_err().errno(), errno::EINVAL);
        let begin = [cursor(false, 0, false, b"", false), vec![0; 8]].concat();
        assert!(pool.exec("none", vec![ask(&begin)]).await.unwrap_err().is_not_found());
    });
}

/// librbd asks for all snapshots of an image in one request.
#[test]
fn a_request_may_have_thousands_of_operations() {
    let cluster = Cluster::start(6, Disks::Cyan, 1, 8, &[1]);
    cluster.client(RouteMode::Single, |_, pool| async move {
        pool.exec("o", vec![xattr(ops::SET_XATTR, "a", b"1")]).await.unwrap();
        let ask = |count: usize| (0..count).map(|_| xattr(ops::GET_XATTR, "a", b"")).collect::<Vec<_>>();
        let mut answer = pool.exec("o", ask(4000)).await.unwrap();
        assert_eq!(answer.take_data(3999).to_vec(), b"1");
        assert_eq!(pool.exec("o", ask(9000)).await.unwrap_err().errno(), errno::E2BIG);
    });
}

/// Copies are read like any client reads, from whatever OSD has the object.
#[test]
fn objects_are_copied_with_their_attributes() {
    let cluster = Cluster::start(4, Disks::Cyan, 1, 8, &[2, 1]);
    cluster.client(RouteMode::Single, |_, pool| async move {
        let data = noise(9, 70_000);
        pool.write_full("from", data.clone()).await.unwrap();
        pool.exec("from", vec![xattr(ops::SET_XATTR, "a", b"1"), set_omap(&entries(0..1500))]).await.unwrap();
        let copy_of = |from: &str, version: u64| {
            let input = Encoder::collect(|e| {
                e.str(from);
                e.envelope(6, 3, |e| {
                    e.i64(pool.id());
                    e.i32(-1);
                    e.str("");
                    e.str("");
                    e.i64(-1);
                });
            });
            let mut op = OsdOp::with_payload(ops::COPY_FROM, 0);
            op.arg[..8].copy_from_slice(&(u64::MAX - 1).to_le_bytes());
            op.arg[8..16].copy_from_slice(&version.to_le_bytes());
            (op, Payload::from(input))
        };
        let copy = |from: &str| copy_of(from, 0);
        let newest = pool.exec("from", vec![(OsdOp::stat(), Payload::new())]).await.unwrap().user_version;
        pool.exec("guarded", vec![copy_of("from", newest)]).await.unwrap();
        for (version, error) in [(newest - 1, errno::ERANGE), (newest + 1, errno::EOVERFLOW)] {
            let refused = pool.exec("guarded", vec![copy_of("from", version)]).await.unwrap_err();
            assert_eq!(refused.errno(), error);
        }
        for n in 0..6 {
            let to = format!("to-{n}");
            pool.write_full(&to, noise(1, 90_000)).await.unwrap();
            pool.exec(&to, vec![xattr(ops::SET_XATTR, "old", b"1")]).await.unwrap();
            pool.exec(&to, vec![copy("from")]).await.unwrap();
            assert!(pool.read(&to, 0, 0).await.unwrap().to_vec() == data);
            assert_eq!(omap(&pool, &to).await, entries(0..1500));
            let old = get(&pool, &to, xattr(ops::GET_XATTR, "old", b"")).await.unwrap_err();
            assert_eq!(old.errno(), errno::ENODATA);
        }
        assert!(pool.exec("to-0", vec![copy("nothing")]).await.unwrap_err().is_not_found());
        assert_eq!(pool.exec("to-0", vec![copy("to-0")]).await.unwrap_err().errno(), errno::EINVAL);
        assert!(pool.read("to-0", 0, 0).await.unwrap().to_vec() == data);
    });
}
