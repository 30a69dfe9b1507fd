//! What a classic OSD hears that asks what is here of a PG: that there is nothing, where that is certain, and no word otherwise.

use std::time::Duration;

use carmine_client::RouteMode;
use carmine_messenger::Message;
use carmine_types::{Epoch, Eversion, MonKind, PgId, SpgId};
use carmine_wire::FEATURES;
use carmine_wire::osd_msg::{PgNotify2, PgQuery2, PgQuestion};
use carmine_wire::osdmap::PgPool;

use super::cluster::{Cluster, Disks, noise};
use super::mixed::set_features;
use super::mon::POOL_ID;
use super::raw::Raw;

const PGS: u32 = 4;

/// Three OSDs, of which the first and another one have PG 0, and the two others all other PGs.
fn start(seed: u64, disks: Disks) -> Cluster {
    let cluster = Cluster::with_mon(seed, disks, 2, PGS, &[2, 1, 1], 256 << 20, MonKind::Ceph);
    cluster.mon.place(0..1, &[0, 1]);
    cluster.mon.place(1..PGS, &[1, 2]);
    cluster.client(RouteMode::Direct, |_, pool| async move {
        for at in 0..20 {
            pool.write_full(format!("o{at}"), noise(at, 512)).await.unwrap();
        }
    });
    // Copies that were made before are removed when the new ones are whole.
    cluster.pass(Duration::from_secs(8));
    cluster
}

fn ask(raw: &Raw, ps: u32, kind: i32, epoch_sent: Epoch) {
    let question = PgQuestion { kind, epoch_sent, to: -1, from: -1, ..PgQuestion::default() };
    raw.send_message(Message::encode(&PgQuery2 { pg: PgId::new(POOL_ID, ps).into(), question }));
}

/// What the OSD says within half a second.
fn answer_to(cluster: &Cluster, raw: &Raw, ps: u32, epoch: Epoch) -> Option<PgNotify2> {
    ask(raw, ps, PgQuestion::INFO, epoch);
    cluster.pass(Duration::from_millis(500));
    let mut answers = raw.take_notices();
    assert!(answers.len() <= 1, "one answer to one question: {answers:?}");
    answers.pop()
}

#[test]
fn who_has_nothing_says_so_under_the_asker_s_map_and_members_say_nothing() {
    let cluster = start(90, Disks::Blue);
    let (raw, epoch) = (Raw::of_osd(&cluster, 7, 0), cluster.mon.epoch());
    let PgNotify2 { pg, answer } = answer_to(&cluster, &raw, 1, epoch).expect("it has nothing of this PG");
    assert_eq!(pg, SpgId::from(PgId::new(POOL_ID, 1)));
    assert_eq!((answer.query_epoch, answer.epoch_sent), (epoch, epoch));
    assert_eq!((answer.info.last_update, answer.info.last_epoch_started), (Eversion::ZERO, Epoch(0)));
    assert_eq!(answer_to(&cluster, &raw, 0, epoch), None, "it serves this PG");
    assert_eq!(answer_to(&cluster, &raw, PGS, epoch), None, "there is no such PG");
    for kind in 1..6 {
        ask(&raw, 1, kind, epoch);
    }
    cluster.pass(Duration::from_secs(1));
    assert_eq!(raw.take_notices(), [], "it is asked for a log, and has none");

    // Nothing is said before the asker's map is there, and then at once: it does not ask again.
    let next = Epoch(epoch.0 + 1);
    assert_eq!(answer_to(&cluster, &raw, 2, next), None);
    cluster.mon.change(|_| {});
    cluster.pass(Duration::from_secs(1));
    let late = raw.take_notices();
    assert_eq!(late.iter().map(|notify| notify.answer.query_epoch).collect::<Vec<_>>(), [next]);
    assert!(late[0].answer.epoch_sent >= next);

    // A question that waits for its map is dropped when its connection closes.
    ask(&raw, 2, PgQuestion::INFO, Epoch(u32::MAX));
    cluster.pass(Duration::from_secs(1));
    raw.kill(&cluster);
    cluster.pass(Duration::from_secs(1));
    cluster.mon.change(|_| {});
    let raw = Raw::of_osd(&cluster, 7, 0);
    assert!(answer_to(&cluster, &raw, 2, epoch).is_some());
}

#[test]
fn a_copy_counts_as_nothing_until_it_was_active_and_only_where_its_osd_is_no_member() {
    let cluster = start(91, Disks::Blue);
    let raw = Raw::of_osd(&cluster, 7, 0);
    let own = cluster.mon.map().osd_xinfo[1].features;
    set_features(&cluster, FEATURES);
    cluster.mon.place(3..4, &[0, 1]);
    cluster.pass(Duration::from_secs(2));
    assert!(cluster.states(0).iter().any(|(state, _)| state == "down"), "{:?}", cluster.states(0));
    assert_eq!(answer_to(&cluster, &raw, 3, cluster.mon.epoch()), None, "it is a member");
    cluster.mon.place(3..4, &[1, 2]);
    cluster.pass(Duration::from_secs(2));
    assert!(
        answer_to(&cluster, &raw, 3, cluster.mon.epoch()).is_some(),
        "it is none any more, and was never active"
    );
    set_features(&cluster, own);

    // The others die, and get what is here alone.
    [1, 2].into_iter().for_each(|osd| cluster.kill(osd));
    [1, 2].into_iter().for_each(|osd| cluster.mon.down(osd));
    cluster.mon.place(0..1, &[1, 2]);
    cluster.pass(Duration::from_secs(2));
    assert_eq!(answer_to(&cluster, &raw, 0, cluster.mon.epoch()), None, "a copy that was active");
    cluster.kill(0);
    cluster.mon.down(0);
    cluster.pass(Duration::from_secs(1));
    cluster.start_osd(0, 2);
    cluster.wait_up(1);
    let raw = Raw::of_osd(&cluster, 7, 0);
    assert_eq!(answer_to(&cluster, &raw, 0, cluster.mon.epoch()), None, "also after a restart");
    assert!(answer_to(&cluster, &raw, 1, cluster.mon.epoch()).is_some());

    // The copy is split: what it has may belong to each of its parts, and to no other PG.
    cluster.mon.changes_with(|map, inc| {
        let pool = map.pools[&POOL_ID].clone();
        inc.new_pools
            .insert(POOL_ID, PgPool { pg_num: 2 * PGS, pgp_num: PGS, pg_num_pending: 2 * PGS, ..pool });
    });
    cluster.pass(Duration::from_secs(2));
    assert_eq!(answer_to(&cluster, &raw, PGS, cluster.mon.epoch()), None);
    assert!(answer_to(&cluster, &raw, 1, cluster.mon.epoch()).is_some());
}

#[test]
fn a_store_that_forgets_says_nothing() {
    let cluster = start(92, Disks::Cyan);
    let raw = Raw::of_osd(&cluster, 7, 0);
    assert_eq!(answer_to(&cluster, &raw, 1, cluster.mon.epoch()), None);
}
