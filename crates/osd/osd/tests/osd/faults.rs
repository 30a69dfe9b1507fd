//! OSDs die, come back, are thought dead, and lose their role, while clients work.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_types::{OsdId, PgId};

use super::cluster::{Cluster, Disks, Running};
use super::mon::POOL_ID;
use super::order::{History, Work};
use super::peering::wait_clean;

const PGS: u32 = 4;

/// A source of choices that does not depend on the simulation's own.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}

fn clients(cluster: &Cluster, history: &History, ops: u64) -> Vec<Running<()>> {
    let work = |client| Work { client, ops, objects: 3, depth: 24, pause: Duration::from_micros(800) };
    let route = |client| if client == 0 { RouteMode::Direct } else { RouteMode::Single };
    (0..2).map(|client| history.start(cluster, route(client), work(client))).collect()
}

/// Kills an OSD; the monitor hears of it a little later.
fn kill(cluster: &Cluster, dice: &mut Dice, osd: u32) {
    cluster.kill(osd);
    cluster.pass(Duration::from_micros(dice.roll(3000)));
    cluster.mon.down(osd);
}

/// One thing that goes wrong, and heals.
fn trouble(cluster: &Cluster, dice: &mut Dice, osds: u32) {
    let osd = dice.roll(osds.into()) as u32;
    match dice.roll(6) {
        0 => {
            kill(cluster, dice, osd);
            cluster.pass(Duration::from_micros(dice.roll(20_000)));
            cluster.start_osd(osd, 1 + dice.roll(3) as u16);
        }
        // All at once.
        1 => {
            (0..osds).for_each(|osd| cluster.kill(osd));
            (0..osds).for_each(|osd| cluster.mon.down(osd));
            cluster.pass(Duration::from_micros(dice.roll(20_000)));
            (0..osds).for_each(|osd| cluster.start_osd(osd, 1 + dice.roll(3) as u16));
        }
        // Restarted before anybody notices: that the old process is down is in the map just before the new one is up.
        2 => {
            cluster.kill(osd);
            cluster.start_osd(osd, 1 + dice.roll(3) as u16);
        }
        // Thought dead; sometimes nobody notices before it is up again.
        3 => {
            cluster.mon.merge.set(dice.roll(2) == 0);
            cluster.mon.down(osd);
            cluster.mon.up_again(osd);
            cluster.pass(Duration::from_millis(1));
            cluster.mon.merge.set(false);
        }
        // CRUSH names another primary.
        4 => {
            let (first, ps) = (dice.roll(osds.into()) as i32, dice.roll(PGS.into()) as u32);
            let up: Vec<i32> = (0..osds as i32).map(|n| (first + n) % osds as i32).collect();
            cluster.mon.place(ps..ps + 1, &up);
        }
        // Somebody else leads for now, perhaps with fewer members than there should be.
        _ => {
            let (first, count) = (dice.roll(osds.into()) as i32, 1 + dice.roll(osds.into()) as i32);
            let pg = PgId::new(POOL_ID, dice.roll(PGS.into()) as u32);
            let acting = (0..count).map(|n| (first + n) % osds as i32).collect();
            let back = dice.roll(3) == 0;
            cluster.mon.change(move |inc| {
                inc.new_pg_temp.insert(pg, if back { Vec::new() } else { acting });
            });
        }
    }
}

fn thrash(seed: u64) {
    let cluster = Cluster::start(seed, Disks::Blue, 3, PGS, &[2, 1, 3]);
    let (history, mut dice) = (History::default(), Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1));
    let clients = clients(&cluster, &history, 900);
    for _ in 0..10 {
        cluster.pass(Duration::from_micros(dice.roll(60_000)));
        trouble(&cluster, &mut dice, 3);
    }
    // Time for a boot message to be repeated, where the map had an address that was out of date.
    cluster.pass(Duration::from_secs(3));
    cluster.wait_up(3);
    for _ in 0..100 {
        if clients.iter().all(Running::is_done) {
            break;
        }
        cluster.pass(Duration::from_secs(1));
    }
    assert!(clients.iter().all(Running::is_done), "seed {seed}: clients wait");
    history.check(true);
    wait_clean(&cluster, &[0, 1, 2]);
    cluster.check_equal(&[0, 1, 2]);
    let up: Vec<bool> = (0..3).map(|osd| cluster.mon.map().is_up(OsdId(osd))).collect();
    assert_eq!(up, [true; 3]);
}

#[test]
fn thrash_0() {
    (0..16).for_each(thrash);
}

#[test]
fn thrash_1() {
    (16..32).for_each(thrash);
}
