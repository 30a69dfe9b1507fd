//! `bench`, as Ceph's OSDs have it: writes to the object store alone (no client, no replica, no log), reports the rate when all
//! of it is durable, and removes what it wrote.
//!
//! The objects lie in the only PG of a pool that no map has. Like any PG it has one owner, the first reactor, which executes all
//! orders one after the other, wherever they arrive. If the OSD stops before the end, its next start finds and removes the
//! objects, like those of a deleted pool.

use std::collections::VecDeque;
use std::rc::Rc;

use carmine_pgtypes::{ObjectChange, PgInfo, Step, Transaction};
use carmine_reactor::{Bytes, Payload, Shard, ShardId};
use carmine_store::{Commit, StoreError};
use carmine_types::{ObjectId, PgId, SpgId};
use serde_json::{Value, json};

use crate::pg::{WHOLE_POOL, remove_objects};
use crate::shard::OsdShard;

/// The PG; real pools count up from 1.
const PG: SpgId = SpgId::replicated(PgId { pool: -2, ps: 0 });
/// The shard that owns it.
const OWNER: ShardId = ShardId(0);
/// Bytes to write, if nobody says how many.
const COUNT_DEFAULT: u64 = 1 << 30;
/// Bytes of one write, by default and at the most (Ceph's osd_bench_max_block_size).
const SIZE_DEFAULT: u64 = 4 << 20;
const SIZE_MAX: u64 = 64 << 20;
/// An order may write what a slow drive writes in this time, as in Ceph (osd_bench_duration).
const DURATION_S: u64 = 30;
/// Writes a second of a slow drive (osd_bench_small_size_max_iops), if they are smaller than [`LARGE_SIZE`].
const SMALL_IOPS: u64 = 100;
const LARGE_SIZE: u64 = 1 << 20;
/// Bytes a second of a slow drive in larger writes (osd_bench_large_size_max_throughput).
const LARGE_BYTES_PER_S: u64 = 100 << 20;
/// Bytes of one object by default and at the most.
const OBJECT_SIZE_DEFAULT: u64 = 4 << 20;
const OBJECT_SIZE_MAX: u64 = 1 << 30;
/// Part of the free space that the objects may use: copy-on-write needs some, and others write, too.
const SPACE_PART: u64 = 4;
/// Writes under way at the same time, and their bytes.
const WRITES: usize = 16;
const WRITES_BYTES: u64 = 128 << 20;
/// The data repeats a piece of this length.
const PIECE_BYTES: u64 = 1 << 20;

/// The writes that a `bench` command asks for.
#[derive(Debug, PartialEq, Eq)]
struct Order {
    /// Bytes in all.
    count: u64,
    /// Bytes of one write.
    size: u64,
    /// Objects in turn, and the bytes of each.
    objects: u64,
    object_size: u64,
}

impl Order {
    /// Ceph's parameters `count`, `size`, `object_size` and `object_num`.
    fn parse(question: &Value, free_bytes: u64) -> Result<Order, String> {
        let get = |key: &str, default: u64, max: u64| {
            let Some(value) = question.get(key) else { return Ok(default) };
            let number = value.as_u64().or_else(|| value.as_str()?.parse().ok());
            number.filter(|n| (1..=max).contains(n)).ok_or(format!("{key} {value}: take 1 to {max}"))
        };
        let size = get("size", SIZE_DEFAULT, SIZE_MAX)?;
        let object_size = get("object_size", OBJECT_SIZE_DEFAULT.max(size), OBJECT_SIZE_MAX)?;
        if object_size < size {
            return Err(format!("object_size {object_size} is less than size {size}"));
        }
        let room = free_bytes / SPACE_PART / object_size;
        let count = get("count", COUNT_DEFAULT, u64::MAX)?;
        check_duration(count, size)?;
        let objects = get("object_num", count.div_ceil(object_size).min(room).max(1), u64::from(u32::MAX))?;
        if objects > room {
            return Err(format!(
                "{objects} objects of {object_size} bytes: the store has {free_bytes} bytes left, of which a quarter is taken"
            ));
        }
        Ok(Order { count, size, objects, object_size })
    }

    /// Object and offset of the write with this number.
    fn object_and_offset(&self, write: u64) -> (u64, u64) {
        let per_object = (self.object_size / self.size).max(1);
        ((write / per_object) % self.objects, (write % per_object) * self.size)
    }
}

/// Refuses an order that could block an OSD on a slow drive for long.
fn check_duration(count: u64, size: u64) -> Result<(), String> {
    let (per_s, rate) = if size < LARGE_SIZE {
        (size * SMALL_IOPS, format!("{SMALL_IOPS} IOPS"))
    } else {
        (LARGE_BYTES_PER_S, format!("{} MiB/s", LARGE_BYTES_PER_S >> 20))
    };
    let most = per_s * DURATION_S;
    if count <= most {
        return Ok(());
    }
    Err(format!(
        "count {count}: 'count' values greater than {most} for a block size of {size} bytes, which is {DURATION_S} seconds at \
         {rate}, are refused: take less, or measure with `carmine store bench`"
    ))
}

pub(super) async fn bench(osd: &Rc<OsdShard>, question: &Value) -> Result<Value, String> {
    let order = Order::parse(question, osd.store.statfs().free)?;
    // In a task of its own, so that the objects are removed even if the asker goes away.
    let carry_out = async move |shard: Shard| match OsdShard::on(&shard) {
        Some(osd) => carry_out(&osd, &order).await,
        None => Err("the OSD starts or stops".to_owned()),
    };
    osd.shard.call(OWNER, carry_out).await
}

async fn carry_out(osd: &Rc<OsdShard>, order: &Order) -> Result<Value, String> {
    // One at a time: two would remove each other's objects.
    let _turn = osd.walks.acquire(1).await;
    let begin_ns = osd.shard.now_ns();
    let written = write_all(osd, order).await;
    let elapsed_s = osd.shard.now_ns().saturating_sub(begin_ns).max(1) as f64 / 1e9;
    let removed = remove_objects(osd, PG, WHOLE_POOL).await;
    let writes = written.map_err(|e| e.to_string())?;
    removed.map_err(|e| format!("the objects of the benchmark cannot be removed: {e}"))?;
    let bytes = writes * order.size;
    Ok(json!({
        "bytes_written": bytes, "blocksize": order.size, "elapsed_sec": elapsed_s,
        "bytes_per_sec": bytes as f64 / elapsed_s, "iops": writes as f64 / elapsed_s,
    }))
}

/// Returns the number of writes, all of them durable.
async fn write_all(osd: &OsdShard, order: &Order) -> Result<u64, StoreError> {
    // The info makes the PG visible after a crash.
    let info = PgInfo { pg: PG, ..PgInfo::default() };
    osd.store.submit(Transaction { info: Some(info.into()), ..Transaction::new(PG, WHOLE_POOL) }).await?;
    let data = data(osd, order.size);
    let most = usize::try_from((WRITES_BYTES / order.size).max(1)).map_or(WRITES, |n| n.min(WRITES));
    let mut under_way: VecDeque<Commit> = VecDeque::with_capacity(most);
    let writes = order.count.div_ceil(order.size);
    for write in 0..writes {
        if under_way.len() >= most
            && let Some(oldest) = under_way.pop_front()
        {
            oldest.await?;
        }
        let (object, off) = order.object_and_offset(write);
        let oid = ObjectId::head(PG.pgid.pool, b"", b"", format!("bench_{object}").as_bytes());
        let mut txn = Transaction::new(PG, WHOLE_POOL);
        txn.changes.push(ObjectChange::new(oid, [Step::Write { off, data: data.clone() }]));
        let prepared = osd.store.prepare(&txn.changes).await?;
        under_way.push_back(osd.store.submit(txn));
        drop(prepared);
        osd.shard.yield_now().await;
    }
    for commit in under_way {
        commit.await?;
    }
    Ok(writes)
}

/// `len` incompressible bytes, repeated from one piece in memory.
fn data(osd: &OsdShard, len: u64) -> Payload {
    let piece_bytes = len.min(PIECE_BYTES) as usize;
    let mut piece = osd.shard.buf(piece_bytes);
    piece.set_len(piece_bytes);
    piece.as_mut_slice().chunks_mut(8).for_each(|word| {
        let random = osd.shard.random_u64().to_le_bytes();
        word.iter_mut().zip(random).for_each(|(byte, random)| *byte = random);
    });
    let piece: Bytes = piece.freeze();
    let mut data = Payload::new();
    while data.len() < len as usize {
        let rest = len as usize - data.len();
        data.push(piece.slice(..rest.min(piece_bytes)));
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(question: Value) -> Result<Order, String> {
        Order::parse(&question, 400 << 20)
    }

    #[test]
    fn orders_are_ceph_s() {
        let plain = parse(json!({})).unwrap();
        // A quarter of the free 400 MiB holds 25 objects; they are written again.
        assert_eq!(plain, Order { count: 1 << 30, size: 4 << 20, objects: 25, object_size: 4 << 20 });
        let small =
            parse(json!({ "count": 12_000, "size": 4096, "object_size": 8192, "object_num": 3 })).unwrap();
        let places: Vec<(u64, u64)> = (0..7).map(|write| small.object_and_offset(write)).collect();
        assert_eq!(places, [(0, 0), (0, 4096), (1, 0), (1, 4096), (2, 0), (2, 4096), (0, 0)]);
        assert_eq!(
            parse(json!({ "size": "65536", "count": "65536" })).unwrap().size,
            65_536,
            "tools send numbers as text, too"
        );
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for bad in [
            json!({ "size": 0 }),
            json!({ "size": SIZE_MAX + 1 }),
            json!({ "count": "many" }),
            json!({ "object_size": 4096, "size": 8192 }),
            json!({ "object_num": 26 }),
            json!({ "count": -1 }),
        ] {
            assert!(parse(bad.clone()).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_would_take_too_long_is_refused_as_by_ceph() {
        // The limits that ceph-osd 16.2.15 names for these sizes.
        for (size, most) in [(4096, 12_288_000), (65_536, 196_608_000), (1 << 20, 3_145_728_000_u64)] {
            assert_eq!(parse(json!({ "size": size, "count": most })).unwrap().count, most);
            let refusal = parse(json!({ "size": size, "count": most + 1 })).unwrap_err();
            assert!(refusal.contains(&format!("greater than {most} ")), "{refusal}");
        }
        let refusal = parse(json!({ "size": 4 << 20, "count": u64::MAX })).unwrap_err();
        assert!(refusal.contains("30 seconds at 100 MiB/s"), "{refusal}");
    }
}
