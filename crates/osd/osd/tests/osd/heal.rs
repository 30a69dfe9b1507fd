//! Bit rot and bad sectors: an operation that meets them gets the bytes from another copy, and the damage is gone; without
//! another copy it is an error, never data.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_types::errno;

use super::cluster::{Cluster, Disks, noise};
use super::peering::place;

/// Several blocks, and a part of one.
const BYTES: usize = 5 * 4096 + 1000;

fn content() -> Vec<u8> {
    noise(77, BYTES)
}

/// OSDs of which osd.0 leads all PGs, with one object.
fn start(seed: u64, size: u8) -> Cluster {
    let reactors: Vec<u16> = (0..size).map(|osd| 1 + u16::from(osd) % 2).collect();
    let cluster = Cluster::start(seed, Disks::Blue, size, 4, &reactors);
    place(&cluster, 4, &(0..size.into()).collect::<Vec<_>>());
    cluster
        .client(RouteMode::Direct, |_, pool| async move { pool.write_full("a", content()).await.unwrap() });
    cluster
}

/// Damage to the object's `block`th block on an OSD.
#[derive(Clone, Copy)]
enum Harm {
    Bit(u8),
    Sector,
}

fn harm(cluster: &Cluster, osd: u32, block: usize, harm: Harm) {
    let disk = cluster.disk(osd);
    let places = disk.find(&content()[block * 4096..][..16]);
    assert!(!places.is_empty(), "block {block} is not on osd.{osd}");
    for at in places {
        match harm {
            Harm::Bit(bit) => disk.flip(at + 3, bit),
            Harm::Sector => disk.unreadable(at),
        }
    }
}

fn read(cluster: &Cluster) -> Result<Vec<u8>, i32> {
    cluster.client(RouteMode::Direct, |_, pool| async move {
        pool.read("a", 0, 0).await.map(|data| data.to_vec()).map_err(|error| error.errno())
    })
}

#[test]
fn a_read_heals_what_it_meets() {
    for (seed, kind) in [(31, Harm::Bit(5)), (32, Harm::Sector)] {
        for size in [2, 3] {
            let cluster = start(seed, size);
            // In the middle, and the last one, of which the object has only a part.
            harm(&cluster, 0, 2, kind);
            harm(&cluster, 0, 5, kind);
            assert!(read(&cluster) == Ok(content()));
            assert_eq!(cluster.counter(&[0], "blocks_healed"), 2);
            // It is gone: nothing is met any more.
            assert!(read(&cluster) == Ok(content()));
            assert_eq!(cluster.counter(&[0], "blocks_lost"), 2);
            cluster.check_equal(&(0..size.into()).collect::<Vec<_>>());
        }
    }
}

/// What a stopped store refuses is no answer (`carmine sim --seed 606`): a client would take it for the word of the blocklist.
#[test]
fn a_read_of_a_store_that_has_stopped_is_answered_by_whoever_leads_next() {
    let cluster = start(40, 2);
    harm(&cluster, 0, 2, Harm::Bit(5));
    cluster.disk(0).fail_writes(true);
    let reading = cluster.background(RouteMode::Direct, |_, pool| async move {
        pool.read("a", 0, 0).await.map(|data| data.to_vec()).map_err(|error| error.errno())
    });
    cluster.pass(Duration::from_secs(1));
    assert!(!reading.is_done());
    cluster.kill(0);
    cluster.mon.down(0);
    cluster.wait("the data", || reading.is_done());
    assert!(reading.result() == Ok(content()));
}

#[test]
fn a_copy_that_is_damaged_too_is_no_help_and_the_next_one_is() {
    let cluster = start(33, 3);
    harm(&cluster, 0, 1, Harm::Bit(1));
    harm(&cluster, 1, 1, Harm::Bit(2));
    assert!(read(&cluster) == Ok(content()));
    assert_eq!(cluster.counter(&[0], "blocks_healed"), 1);
}

#[test]
fn without_a_good_copy_a_read_is_an_error_and_never_data() {
    for size in [1, 2] {
        let cluster = start(34, size);
        (0..size.into()).for_each(|osd| harm(&cluster, osd, 1, Harm::Bit(7)));
        assert_eq!(read(&cluster), Err(errno::EIO));
        // Other blocks of it are there.
        let rest = cluster.client(RouteMode::Direct, |_, pool| async move {
            pool.read("a", 8192, 0).await.map(|data| data.to_vec()).map_err(|error| error.errno())
        });
        assert!(rest == Ok(content()[8192..].to_vec()));
        // A write of all of the block mends it.
        cluster.client(RouteMode::Direct, |_, pool| async move {
            pool.write("a", 4096, content()[4096..8192].to_vec()).await.unwrap();
        });
        assert!(read(&cluster) == Ok(content()));
    }
}

#[test]
fn a_write_of_a_part_of_a_damaged_block_heals_it_first() {
    for kind in [Harm::Bit(0), Harm::Sector] {
        let cluster = start(35, 2);
        harm(&cluster, 0, 3, kind);
        harm(&cluster, 0, 5, kind);
        cluster.client(RouteMode::Direct, |_, pool| async move {
            pool.write("a", 3 * 4096 + 100, b"in the middle".to_vec()).await.unwrap();
            pool.truncate("a", 5 * 4096 + 10).await.unwrap();
        });
        let mut wanted = content();
        wanted[3 * 4096 + 100..][..13].copy_from_slice(b"in the middle");
        wanted.truncate(5 * 4096 + 10);
        assert!(read(&cluster) == Ok(wanted));
        assert_eq!(cluster.counter(&[0], "blocks_healed"), 2);
        cluster.check_equal(&[0, 1]);
    }
}

/// The primary has changed the block when its replica finds that it cannot: the object is copied whole. Also if it is the last
/// block, of which the object has a part only.
#[test]
fn a_replica_that_cannot_heal_a_block_before_it_changes_gets_the_object_anew() {
    for (seed, kind) in [(41, Harm::Bit(3)), (42, Harm::Sector)] {
        for (size, block) in [(2, 3), (2, 5), (3, 3)] {
            let cluster = start(seed, size);
            harm(&cluster, 1, block, kind);
            cluster.client(RouteMode::Direct, move |_, pool| async move {
                let at = block as u64 * 4096;
                pool.write("a", at + 100, b"in the middle".to_vec()).await.unwrap();
                pool.write("a", at + 200, b"and again".to_vec()).await.unwrap();
            });
            let mut wanted = content();
            wanted[block * 4096 + 100..][..13].copy_from_slice(b"in the middle");
            wanted[block * 4096 + 200..][..9].copy_from_slice(b"and again");
            assert!(read(&cluster) == Ok(wanted));
            assert!(cluster.counter(&[1], "blocks_lost") > 0, "the damage was met");
            cluster.check_equal(&(0..size.into()).collect::<Vec<_>>());
        }
    }
}

#[test]
fn a_copy_that_is_pushed_is_healed_where_it_is_read() {
    let cluster = start(43, 2);
    // osd.1 needs the object; osd.0, which sends it, has another bad block, which osd.1 has.
    harm(&cluster, 1, 3, Harm::Bit(2));
    harm(&cluster, 0, 1, Harm::Sector);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        pool.write("a", 3 * 4096 + 100, b"in the middle".to_vec()).await.unwrap();
    });
    let mut wanted = content();
    wanted[3 * 4096 + 100..][..13].copy_from_slice(b"in the middle");
    assert!(read(&cluster) == Ok(wanted));
    assert_eq!(cluster.counter(&[0], "blocks_healed"), 1);
    cluster.check_equal(&[0, 1]);
}

/// Of an object that is pushed in pieces as well: what the old copy has stays until its piece is copied. Also if the old copy has
/// a bad block at its end, which cannot be cut.
#[test]
fn a_copy_that_is_pushed_in_pieces_is_healed_where_it_is_read() {
    const BIG: usize = (3 << 20) + 1000;
    const BAD: usize = (2 << 20) + 5 * 4096;
    for (seed, theirs) in [(44, 0), (45, 3 << 20)] {
        let cluster = Cluster::start(seed, Disks::Blue, 2, 1, &[1, 1]);
        place(&cluster, 1, &[0, 1]);
        let mut wanted = noise(78, BIG);
        let data = wanted.clone();
        cluster.client(RouteMode::Direct, |_, pool| async move { pool.write_full("a", data).await.unwrap() });
        for (osd, bad) in [(1, theirs), (0, BAD)] {
            let places = cluster.disk(osd).find(&wanted[bad..][..16]);
            assert!(!places.is_empty());
            places.into_iter().for_each(|at| cluster.disk(osd).unreadable(at));
        }
        cluster.client(RouteMode::Direct, move |_, pool| async move {
            pool.write("a", theirs as u64 + 100, b"in the middle".to_vec()).await.unwrap();
        });
        wanted[theirs + 100..][..13].copy_from_slice(b"in the middle");
        assert!(read(&cluster) == Ok(wanted));
        // Twice, if the copy is begun anew before what was healed is written.
        assert!((1..=2).contains(&cluster.counter(&[0], "blocks_healed")));
        cluster.check_equal(&[0, 1]);
    }
}

/// A block that no copy can give is an error in the copies that are made of it, too; all else is served.
#[test]
fn a_block_that_is_lost_everywhere_does_not_keep_its_pg_from_serving() {
    for (seed, kind) in [(51, Harm::Bit(2)), (52, Harm::Sector)] {
        let cluster = Cluster::start(seed, Disks::Blue, 2, 4, &[1, 2, 1]);
        place(&cluster, 4, &[0, 1]);
        cluster.client(RouteMode::Direct, |_, pool| async move {
            pool.write_full("a", content()).await.unwrap();
            pool.write_full("b", content()[..100].to_vec()).await.unwrap();
        });
        (0..2).for_each(|osd| harm(&cluster, osd, 2, kind));
        place(&cluster, 4, &[0, 2]);
        for leader in [0, 2] {
            place(&cluster, 4, &[leader, 2 - leader]);
            cluster.pass(Duration::from_secs(1));
            cluster.client(RouteMode::Direct, |_, pool| async move {
                let data = pool.read("a", 0, 8192).await.unwrap().to_vec();
                assert!(data == content()[..8192]);
                let data = pool.read("a", 3 * 4096, 0).await.unwrap().to_vec();
                assert!(data == content()[3 * 4096..]);
                assert!(pool.read("b", 0, 0).await.unwrap().to_vec() == content()[..100]);
                let lost = pool.read("a", 8192 + 10, 20).await.map(|data| data.to_vec());
                assert_eq!(lost.map_err(|error| error.errno()), Err(errno::EIO));
            });
        }
        cluster.client(RouteMode::Direct, |_, pool| async move {
            pool.write("a", 8192, content()[8192..3 * 4096].to_vec()).await.unwrap();
        });
        assert_eq!(read(&cluster), Ok(content()), "overwritten, it is there again");
        cluster.check_equal(&[2, 0]);
    }
}
