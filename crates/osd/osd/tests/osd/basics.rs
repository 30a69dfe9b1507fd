//! Requests of clients to OSDs without faults.

use carmine_client::{Pool, RouteMode};
use carmine_reactor::Payload;
use carmine_types::errno;
use carmine_wire::Decoder;
use carmine_wire::osd_op::{OsdOp, OsdRequest, flags, ops};

use super::cluster::{Cluster, Disks, noise};

async fn bytes(pool: &Pool, name: &str) -> Vec<u8> {
    pool.read(name, 0, 0).await.unwrap().to_vec()
}

/// Every operation, its result, and what it leaves behind.
async fn every_op(pool: Pool) {
    let not_found = pool.read("x", 0, 10).await.unwrap_err();
    assert!(not_found.is_not_found());
    assert!(pool.stat("x").await.unwrap_err().is_not_found());
    assert!(pool.remove("x").await.unwrap_err().is_not_found());

    let first = pool.write("x", 4, b"hello".to_vec()).await.unwrap();
    assert_eq!(bytes(&pool, "x").await, b"\0\0\0\0hello");
    let second = pool.write("x", 0, b"HE".to_vec()).await.unwrap();
    assert!(second.version > first.version && second.user_version > first.user_version);
    assert_eq!(pool.read("x", 5, 100).await.unwrap().to_vec(), b"ello");
    assert_eq!(pool.read("x", 100, 10).await.unwrap().len(), 0);
    assert_eq!(pool.stat("x").await.unwrap().size, 9);

    pool.truncate("x", 2).await.unwrap();
    assert_eq!(bytes(&pool, "x").await, b"HE");
    pool.truncate("x", 4).await.unwrap();
    assert_eq!(bytes(&pool, "x").await, b"HE\0\0");
    pool.exec("x", vec![(OsdOp::append(3), Payload::from(b"end".to_vec()))]).await.unwrap();
    pool.zero("x", 1, 2).await.unwrap();
    pool.zero("x", 7, 100).await.unwrap();
    pool.zero("x", 6, 0).await.unwrap();
    assert_eq!(bytes(&pool, "x").await, b"H\0\0\0end");
    // Zeros up to the end cut it off.
    pool.zero("x", 6, 1).await.unwrap();
    assert_eq!(bytes(&pool, "x").await, b"H\0\0\0en");
    pool.zero("x", 5, 100).await.unwrap();
    assert_eq!(bytes(&pool, "x").await, b"H\0\0\0e");
    // An empty write behind the end makes it longer.
    pool.write("x", 8, Vec::new()).await.unwrap();
    pool.write("x", 3, Vec::new()).await.unwrap();
    assert_eq!(bytes(&pool, "x").await, b"H\0\0\0e\0\0\0");
    pool.write_full("x", b"all new".to_vec()).await.unwrap();
    assert_eq!(bytes(&pool, "x").await, b"all new");
    pool.write_full("x", b"short".to_vec()).await.unwrap();
    assert_eq!(bytes(&pool, "x").await, b"short");

    // Nothing is made of what does not exist.
    pool.zero("none", 0, 10).await.unwrap();
    pool.truncate("none", 10).await.unwrap();
    assert!(pool.stat("none").await.unwrap_err().is_not_found());
    // A write of nothing makes an empty object, as does a hint.
    pool.write("empty", 0, Vec::new()).await.unwrap();
    assert_eq!(pool.stat("empty").await.unwrap().size, 0);
    pool.exec("hint", vec![(OsdOp::set_alloc_hint(4096, 4096), Payload::new())]).await.unwrap();
    assert_eq!(pool.stat("hint").await.unwrap().size, 0);
    pool.create("hint", false).await.unwrap();
    assert_eq!(pool.create("hint", true).await.unwrap_err().errno(), errno::EEXIST);
    pool.create("new", true).await.unwrap();
    pool.remove("new").await.unwrap();
    assert!(pool.stat("new").await.unwrap_err().is_not_found());
    // A read of nothing at an empty object.
    assert_eq!(bytes(&pool, "empty").await, b"");

    let big = noise(1, 300_000);
    pool.write("big", 1000, big.clone()).await.unwrap();
    assert!(pool.read("big", 1000, 0).await.unwrap().to_vec() == big);
    assert!(pool.read("big", 71_234, 5678).await.unwrap().to_vec() == big[70_234..75_912]);
    // A read without a length is of all, but a sparse one of nothing: no extent, no bytes.
    let nothing =
        pool.exec("big", vec![(OsdOp::sparse_read(0, 0), Payload::new())]).await.unwrap().take_data(0);
    assert_eq!(nothing.to_vec(), [0; 8]);
}

/// Extents (first byte, bytes) and the data of a sparse read.
fn taken_apart(answer: &[u8]) -> (Vec<(u64, u64)>, Vec<u8>) {
    let mut d = Decoder::new(answer, "a sparse read");
    (d.get().unwrap(), d.get().unwrap())
}

/// Holes are left out, as a real Ceph 16.2.15 on BlueStore does it with the same writes.
async fn holes(pool: Pool) {
    let ask = async |name: &str, op: OsdOp| {
        pool.exec(name, vec![(op, Payload::new())]).await.unwrap().take_data(0).to_vec()
    };
    let expect = async |name: &str, offset: u64, length: u64, extents: &[(u64, u64)]| {
        let (found, data) = taken_apart(&ask(name, OsdOp::sparse_read(offset, length)).await);
        assert_eq!(found, extents, "{name}, {length} bytes from {offset}");
        let mut bytes = Vec::new();
        for (offset, length) in extents {
            bytes.extend(pool.read(name, *offset, *length).await.unwrap().to_vec());
        }
        assert!(data == bytes, "{name}: other bytes than a read gives");
        let map = ask(name, OsdOp::mapext(offset, length)).await;
        assert_eq!(Decoder::new(&map, "extents").get::<Vec<(u64, u64)>>().unwrap(), extents, "{name}");
    };
    let data = |len: usize| noise(1, len).into_iter().map(|byte| byte | 1).collect::<Vec<u8>>();

    pool.write("apart", 0, data(100)).await.unwrap();
    pool.write("apart", 200_000, data(100)).await.unwrap();
    expect("apart", 0, 400_000, &[(0, 100), (200_000, 100)]).await;
    expect("apart", 1, 200_099, &[(1, 99), (200_000, 100)]).await;
    expect("apart", 5000, 3000, &[]).await;
    expect("apart", 0, 0, &[]).await;
    expect("apart", 300_000, 10, &[]).await;

    pool.write("close", 0, data(3000)).await.unwrap();
    pool.write("close", 6000, data(3000)).await.unwrap();
    pool.write("close", 12_000, data(3000)).await.unwrap();
    expect("close", 0, u64::MAX, &[(0, 3000), (6000, 3000), (12_000, 3000)]).await;
    expect("close", 4096, 4096, &[(6000, 2192)]).await;

    pool.write("zeroed", 0, data(65_536)).await.unwrap();
    pool.zero("zeroed", 8192, 16_384).await.unwrap();
    pool.zero("zeroed", 33_000, 10_000).await.unwrap();
    expect("zeroed", 0, 65_536, &[(0, 8192), (24_576, 8424), (43_000, 22_536)]).await;

    pool.write("cut", 0, data(10_000)).await.unwrap();
    pool.truncate("cut", 5000).await.unwrap();
    pool.truncate("cut", 50_000).await.unwrap();
    expect("cut", 0, 50_000, &[(0, 5000)]).await;
    pool.truncate("cut", 0).await.unwrap();
    pool.truncate("cut", 4 << 20).await.unwrap();
    expect("cut", 0, 4 << 20, &[]).await;

    // Zeros that were written are no hole.
    pool.write("zeros", 4096, vec![0; 65_536]).await.unwrap();
    expect("zeros", 0, 100_000, &[(4096, 65_536)]).await;
    let mut mixed = data(12_000);
    mixed[1000..3000].fill(0);
    mixed[4096..5000].fill(0);
    mixed[8000..].fill(0);
    pool.write("mixed", 0, mixed).await.unwrap();
    pool.write("mixed", 200, vec![0; 500]).await.unwrap();
    expect("mixed", 0, 100_000, &[(0, 12_000)]).await;
    expect("mixed", 1500, 7000, &[(1500, 7000)]).await;
    pool.zero("mixed", 5000, 1000).await.unwrap();
    expect("mixed", 0, 4096, &[(0, 4096)]).await;
}

/// Requests of several operations: all or nothing, results of each.
async fn vectors(pool: Pool) {
    let data = |text: &[u8]| Payload::from(text.to_vec());
    pool.exec("v", vec![(OsdOp::set_alloc_hint(1, 1), Payload::new()), (OsdOp::write(0, 0), data(b"abc"))])
        .await
        .unwrap();
    // The last one fails: nothing was done.
    let failed = pool
        .exec("v", vec![(OsdOp::write_full(0), data(b"zzz")), (OsdOp::create(true), Payload::new())])
        .await;
    assert_eq!(failed.unwrap_err().errno(), errno::EEXIST);
    assert_eq!(bytes(&pool, "v").await, b"abc");
    // It may fail.
    let mut may_fail = OsdOp::create(true);
    may_fail.flags |= flags::op::FAILOK;
    let ops = vec![(may_fail, Payload::new()), (OsdOp::append(0), data(b"def"))];
    pool.exec("v", ops).await.unwrap();
    // Reads of a request that only reads.
    let ops = vec![
        (OsdOp::stat(), Payload::new()),
        (OsdOp::read(1, 2), Payload::new()),
        (OsdOp::read(4, 9), Payload::new()),
    ];
    let mut reply = pool.exec("v", ops).await.unwrap();
    assert_eq!(reply.take_data(0).to_vec()[..8], 6u64.to_le_bytes());
    assert_eq!(reply.take_data(1).to_vec(), b"bc");
    assert_eq!(reply.take_data(2).to_vec(), b"ef");
    // Delete and make anew in one go.
    pool.exec("v", vec![(OsdOp::delete(), Payload::new()), (OsdOp::append(0), data(b"new"))]).await.unwrap();
    assert_eq!(bytes(&pool, "v").await, b"new");
    // Reads of a request see what was before it, up to the end that it has given the object.
    let write = || (OsdOp::write_full(0), data(b"newer"));
    let read = || (OsdOp::read(0, 0), Payload::new());
    let compare = |with: &[u8]| {
        (OsdOp { code: ops::CMPEXT, ..OsdOp::read(0, with.len() as u64) }, Payload::from(with.to_vec()))
    };
    let refused = pool.exec("v", vec![write(), read(), compare(b"newer")]).await.unwrap_err();
    assert_eq!(refused.errno(), -4095 - 3, "the byte at 3 differs");
    pool.exec("v", vec![read(), write(), compare(b"new\0\0")]).await.unwrap();
    assert_eq!(bytes(&pool, "v").await, b"newer");
    let stat = || (OsdOp::stat(), Payload::new());
    let gone = pool.exec("v", vec![(OsdOp::delete(), Payload::new()), stat()]).await.unwrap_err();
    assert!(gone.is_not_found());
    pool.exec("fresh", vec![(OsdOp::create(true), Payload::new()), stat()]).await.unwrap();
    // Unknown operations.
    let mut unknown = OsdOp::stat();
    for code in [0x1fff, 0x2fff] {
        unknown.code = code;
        let error = pool.exec("v", vec![(unknown, Payload::new())]).await.unwrap_err();
        assert_eq!(error.errno(), errno::EOPNOTSUPP, "{code:#x}");
    }
    // Too large.
    let error = pool.truncate("v", (128 << 20) + 1).await.unwrap_err();
    assert_eq!(error.errno(), errno::EFBIG);
    let error = pool.exec("v", vec![(OsdOp::write(u64::MAX - 1, 0), data(b"abc"))]).await.unwrap_err();
    assert_eq!(error.errno(), errno::EFBIG);
    assert_eq!(bytes(&pool, "v").await, b"newer");
}

#[test]
fn operations_on_one_osd() {
    for disks in [Disks::Cyan, Disks::Blue] {
        let cluster = Cluster::start(1, disks, 1, 8, &[1]);
        cluster.client(RouteMode::Single, |_, pool| every_op(pool));
        cluster.client(RouteMode::Single, |_, pool| vectors(pool));
        cluster.client(RouteMode::Single, |_, pool| holes(pool));
    }
}

#[test]
fn operations_replicated_and_hopping() {
    let cluster = Cluster::start(2, Disks::Blue, 3, 16, &[2, 3, 1]);
    cluster.client(RouteMode::Single, |_, pool| every_op(pool));
    cluster.client(RouteMode::Single, |_, pool| vectors(pool));
    assert!(cluster.counter(&[0, 1, 2], "op_hops") > 0, "no operation hopped");
    cluster.client(RouteMode::Direct, |_, pool| async move {
        pool.remove("x").await.unwrap();
        for name in ["v", "hint", "empty", "big"] {
            pool.remove(name).await.unwrap();
        }
        every_op(pool).await;
    });
    cluster.check_equal(&[0, 1, 2]);
}

#[test]
fn direct_routes_do_not_hop() {
    let cluster = Cluster::start(3, Disks::Cyan, 2, 32, &[3, 3]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for n in 0..100u8 {
            pool.write(format!("o{n}"), 0, vec![n; 100]).await.unwrap();
        }
        for n in 0..100u8 {
            assert_eq!(pool.read(format!("o{n}"), 0, 0).await.unwrap().to_vec(), vec![n; 100]);
        }
    });
    assert_eq!(cluster.counter(&[0, 1], "op_hops"), 0);
    cluster.check_equal(&[0, 1]);
}

#[test]
fn listing_finds_every_object_once() {
    let cluster = Cluster::start(4, Disks::Cyan, 2, 16, &[2, 2]);
    cluster.client(RouteMode::Single, |_, pool| async move {
        let mut names = Vec::new();
        for n in 0..500u32 {
            let name = format!("object-{n}").into_bytes();
            pool.create(&name, false).await.unwrap();
            names.push(name);
        }
        let hidden = pool.in_namespace("other");
        hidden.create("hidden", false).await.unwrap();
        let sorted = |found: Vec<carmine_wire::pgls::ListedObject>| {
            let mut found: Vec<Vec<u8>> = found.iter().map(|o| o.name.to_vec()).collect();
            found.sort();
            found
        };
        names.sort();
        assert_eq!(sorted(pool.list().await.unwrap()), names);
        assert_eq!(sorted(hidden.list().await.unwrap()), [b"hidden".to_vec()]);
        assert_eq!(pool.list_all_namespaces().await.unwrap().len(), 501);
        // In small pages.
        let (mut cursor, mut found) = (carmine_client::Cursor::start(), Vec::new());
        while !cursor.is_end() {
            let page = pool.list_page(&cursor, 7).await.unwrap();
            found.extend(page.objects);
            cursor = page.cursor;
        }
        assert_eq!(sorted(found), names);
    });
}

#[test]
fn no_pool_keeps_hit_sets() {
    let cluster = Cluster::start(6, Disks::Cyan, 1, 8, &[1]);
    let raw = super::raw::Raw::new(&cluster, 0);
    let ask = |code, tid| {
        let mut request = raw.request(&cluster, "", OsdOp::with_payload(code, 0));
        request.hash = request.pg.ps;
        raw.ask(&cluster, request, b"", tid).unwrap()
    };
    let list = ask(ops::HIT_SET_LS, 1);
    assert_eq!((list.result, &list.data[..]), (0, &[0; 4][..]), "an empty list");
    assert_eq!(ask(ops::HIT_SET_GET, 2).result, errno::ENOENT);
}

#[test]
fn requests_that_lie_are_refused() {
    let cluster = Cluster::start(5, Disks::Cyan, 1, 8, &[2]);
    let raw = super::raw::Raw::new(&cluster, 0);
    let tid = std::cell::Cell::new(0);
    let request = |name: &str, change: &dyn Fn(&mut OsdRequest)| {
        tid.set(tid.get() + 1);
        let mut request = raw.request(&cluster, name, OsdOp::write(0, 3));
        change(&mut request);
        raw.ask(&cluster, request, b"abc", tid.get()).map(|reply| reply.result)
    };
    assert_eq!(request("ok", &|_| {}), Some(0));
    let long = "n".repeat(3000);
    assert_eq!(request(&long, &|_| {}), Some(errno::ENAMETOOLONG));
    let in_namespace_of =
        |bytes: usize| request("ok", &|request| request.locator.nspace = vec![b'n'; bytes].into());
    assert_eq!(in_namespace_of(257), Some(errno::ENAMETOOLONG));
    assert_eq!(in_namespace_of(256), Some(errno::EINVAL), "the hash is that of another namespace");
    assert_eq!(request("", &|_| {}), Some(errno::EINVAL));
    // A hash of its own would put the object where nobody finds it.
    assert_eq!(request("ok", &|request| request.hash ^= 0x8000_0000), Some(errno::EINVAL));
    assert_eq!(request("ok", &|request| request.snapid = 3), Some(errno::EINVAL));
    let of_nobody = |request: &mut OsdRequest| (request.snap_seq, request.snaps) = (1, vec![2]);
    assert_eq!(request("ok", &of_nobody), Some(errno::EINVAL), "a snapshot newer than all");
    let list = cluster.client(RouteMode::Single, |_, pool| async move { pool.list().await.unwrap().len() });
    assert_eq!(list, 1);
}
