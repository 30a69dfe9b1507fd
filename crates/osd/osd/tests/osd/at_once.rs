//! Operations that wait for nothing, for everything is in memory, and the same ones where everything has to be waited for.

use std::time::Duration;

use carmine_types::{Epoch, PgId, UTime};
use carmine_wire::osd_op::{OpList, OsdOp, OsdRequest, flags, ops};

use super::cluster::{Cluster, Disks, noise};
use super::raw::{Answer, Raw};

const BLOCK: u64 = 4096;

/// A well-formed operation, friendly or not, and the bytes that it says to bring.
fn operation(random: &mut impl FnMut(u64) -> u64) -> OsdOp {
    let offset = match random(12) {
        0 => u64::MAX - random(BLOCK),
        1 => (1 << 40) + random(4) * BLOCK,
        2 => random(3 * BLOCK),
        _ => random(4) * BLOCK,
    };
    let length = match random(8) {
        0 => u64::MAX,
        1 => 0,
        2 => random(3 * BLOCK),
        _ => BLOCK,
    };
    let input = if random(4) == 0 { random(9000) as u32 } else { BLOCK as u32 };
    let op = match random(14) {
        0..4 => OsdOp::read(offset, length),
        4..7 => OsdOp::write(offset, input),
        7 => OsdOp::write_full(input),
        8 => OsdOp::append(input),
        9 => OsdOp::stat(),
        10 => {
            [OsdOp::delete(), OsdOp::create(random(2) == 0), OsdOp::set_alloc_hint(1, 1)][random(3) as usize]
        }
        11 => [OsdOp::sparse_read(offset, length), OsdOp::zero(offset, length)][random(2) as usize],
        12 => OsdOp::truncate(random(5 * BLOCK)),
        // No such operation, or one that needs more than this request has.
        _ => OsdOp::with_payload([0x12ff, ops::GET_XATTRS, ops::ASSERT_VER][random(3) as usize], 0),
    };
    OsdOp { flags: if random(6) == 0 { flags::op::FAILOK } else { 0 }, ..op }
}

/// Requests of several operations for few objects, with their data.
fn requests(raw: &Raw, cluster: &Cluster, seed: u64) -> Vec<(OsdRequest, Vec<u8>)> {
    let numbers = noise(seed, 64 << 10);
    let mut at = 0;
    let mut random = |below: u64| {
        at += 8;
        let word = numbers[at % (numbers.len() - 8)..].first_chunk().unwrap();
        u64::from_le_bytes(*word) % below
    };
    let mut all = Vec::new();
    for n in 0..250 {
        let name = ["a", "b", "c"][random(3) as usize];
        let list: OpList = (0..1 + random(3) / 2).map(|_| operation(&mut random)).collect();
        let mut request = raw.request(cluster, name, list[0]);
        let is_write = list.iter().any(OsdOp::is_write);
        request.flags = if is_write { flags::CLIENT_WRITE } else { flags::CLIENT_READ };
        request.flags |= if random(8) == 0 { flags::RETURN_VEC } else { 0 };
        request.mtime = UTime { sec: 1 + n, nsec: 5 };
        let mut bytes: usize = list.iter().map(|op| op.payload_len as usize).sum();
        match random(30) {
            0 => request.hash ^= 1 << 20, // of the same PG
            1 => request.snapid = 7,
            2 => request.snap_seq = 7,
            3 => bytes += 1,
            _ => {}
        }
        request.ops = list;
        all.push((request, noise(seed + u64::from(n), bytes)));
    }
    all
}

/// A cluster's answers to all of them, sent in bursts.
fn answers(disks: Disks, seed: u64) -> Vec<Answer> {
    let cluster = Cluster::start(seed, disks, 1, 1, &[1]);
    let raw = Raw::new(&cluster, 0);
    assert_eq!(PgId::of_hash(1, 1 << 20, 1), PgId::new(1, 0));
    let all = requests(&raw, &cluster, seed);
    let mut tid = 0;
    for burst in all.chunks(7) {
        for (request, data) in burst {
            tid += 1;
            raw.send(&OsdRequest { epoch: Epoch(cluster.mon.map().epoch.0), ..request.clone() }, data, tid);
        }
        cluster.wait("answers", || (1..=tid).all(|tid| !raw.answers(tid).is_empty()));
        cluster.pass(Duration::from_millis(1));
    }
    let of = |tid| {
        let answers = raw.answers(tid);
        assert_eq!(answers.len(), 1, "one answer to {:?}", all[tid as usize - 1].0);
        answers[0].clone()
    };
    (1..=tid).map(of).collect()
}

/// The messenger of the client has compared the checksum of each answer, which the store may have known, with its bytes.
#[test]
fn answers_do_not_depend_on_waiting() {
    for seed in 1..6 {
        let (at_once, waiting) = (answers(Disks::Cyan, seed), answers(Disks::Blue, seed));
        for (n, (a, b)) in at_once.iter().zip(&waiting).enumerate() {
            // Not their versions: operations of other objects may come in between where there is something to wait for.
            assert_eq!(a.result, b.result, "seed {seed}, request {n}");
            assert!(a.data == b.data, "seed {seed}, request {n}: other bytes");
        }
        assert!(at_once.iter().filter(|answer| answer.result == 0).count() > 50);
    }
}
