//! More writes than a log has entries, while they cannot be committed.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::Duration;

use carmine_client::RouteMode;
use carmine_types::errno;
use carmine_wire::osd_op::{OsdOp, OsdRequest};

use super::cluster::{Cluster, Disks};
use super::peering::place;
use super::raw::{Answer, Raw};

const SECOND: Duration = Duration::from_secs(1);
/// A log is cut when it has 3,256 entries.
const WRITES: u64 = 3_400;
/// Uncommitted writes of a PG at the most.
const IN_FLIGHT: u64 = 2_000;

/// A PG of two OSDs that do not hear each other, with two clients of its primary. The replica does not hear the monitor, either: it
/// would learn that it is said to be down, and boot again.
struct Parted {
    cluster: Cluster,
    clients: [Raw; 2],
    next_tid: Cell<u64>,
}

impl Parted {
    fn start(seed: u64, disks: Disks) -> Parted {
        let cluster = Cluster::start(seed, disks, 2, 1, &[1, 1]);
        place(&cluster, 1, &[0, 1]);
        let clients = [11, 12].map(|gid| Raw::of_client(&cluster, 0, gid));
        for other in ["osd.0", "mon"] {
            cluster.sim.cut("osd.1", other);
            cluster.sim.cut(other, "osd.1");
        }
        Parted { cluster, clients, next_tid: Cell::new(1) }
    }

    /// Sends a request; its transaction.
    fn send(&self, client: usize, name: &str, op: OsdOp, data: &[u8]) -> u64 {
        let tid = self.next_tid.replace(self.next_tid.get() + 1);
        self.clients[client].send(&self.clients[client].request(&self.cluster, name, op), data, tid);
        tid
    }

    /// Sends appends of one byte, each to an object of its own.
    fn append(&self, client: usize, count: u64) -> Vec<u64> {
        let one = |_| self.send(client, &format!("o{}", self.next_tid.get()), OsdOp::append(1), b"x");
        let tids = (0..count).map(one).collect();
        self.cluster.pass(SECOND / 20);
        tids
    }

    fn answers(&self, client: usize, tids: &[u64]) -> Vec<Answer> {
        tids.iter().flat_map(|tid| self.clients[client].answers(*tid)).collect()
    }

    /// The map says that the replica is down; each of these requests is answered, once.
    fn go_on_alone(&self, sent: [&[u64]; 2]) {
        self.cluster.mon.down(1);
        let are_answered = |client: usize| self.clients[client].answered() >= sent[client].len();
        self.cluster.wait("all answers", || are_answered(0) && are_answered(1));
        self.cluster.pass(SECOND);
        for (client, tids) in sent.iter().enumerate() {
            let answers = self.answers(client, tids);
            assert_eq!(answers.len(), tids.len(), "one answer to each");
            assert!(
                answers.iter().all(|answer| answer.result == 0),
                "{:?}",
                answers.iter().find(|a| a.result != 0)
            );
            let versions: BTreeSet<_> = answers.iter().map(|answer| answer.version).collect();
            assert_eq!(versions.len(), tids.len());
        }
    }

    /// The replica comes back, and gets all.
    fn heal(&self) {
        self.cluster.sim.mend_network();
        self.cluster.mon.up_again(1);
        self.cluster.pass(SECOND * 20);
        self.cluster.check_equal(&[0, 1]);
    }

    fn sizes_are_one(&self, tids: &[u64]) {
        let names: Vec<String> = tids.iter().map(|tid| format!("o{tid}")).collect();
        let wrong = self.cluster.client(RouteMode::Direct, |_, pool| async move {
            let mut wrong = Vec::new();
            for name in names {
                let data = pool.read(name.clone(), 0, 0).await.unwrap();
                wrong.extend((data.len() != 1).then_some((name, data.len())));
            }
            wrong
        });
        assert_eq!(wrong, [], "objects with other than one byte");
    }

    /// Operations that the primary has not answered, and writes that it has submitted so far.
    fn count(&self) -> (u64, u64) {
        let total = self.cluster.ask(&[0], "dump_ops_in_flight")[0]["num_ops"].as_u64().unwrap();
        let status = self.cluster.ask(&[0], "status").remove(0);
        let last_update = status["pg_states"][0]["last_update"].as_str().unwrap().to_owned();
        (total, last_update.split_once('\'').unwrap().1.parse().unwrap())
    }
}

#[test]
fn each_append_is_applied_once() {
    let parted = Parted::start(81, Disks::Cyan);
    let sent = [0, 1].map(|client| parted.append(client, WRITES / 2));
    assert!(sent.iter().enumerate().all(|(client, tids)| parted.answers(client, tids).is_empty()));
    let counted = parted.count();
    parted.go_on_alone([&sent[0], &sent[1]]);
    parted.sizes_are_one(&sent.concat());
    assert_eq!(counted, (WRITES, IN_FLIGHT), "the others waited");
    parted.heal();
    parted.sizes_are_one(&sent.concat());
}

/// A request that comes again while it waits is executed once, in its first place: after it more writes wait than the log remembers.
#[test]
fn only_the_last_sending_of_a_request_waits() {
    let parted = Parted::start(85, Disks::Cyan);
    let first = parted.append(1, IN_FLIGHT);
    let append = parted.clients[0].request(&parted.cluster, "x", OsdOp::append(1));
    let again = |tid, retry_attempt| {
        let request = OsdRequest { retry_attempt, epoch: parted.cluster.mon.map().epoch, ..append.clone() };
        parted.clients[0].send(&request, b"x", tid);
    };
    let on_x = |count| (0..count).map(|_| parted.send(1, "x", OsdOp::append(1), b"y")).collect::<Vec<_>>();
    // There is no room for it, …
    again(900_001, 0);
    let queued = on_x(WRITES);
    parted.cluster.pass(SECOND / 20);
    again(900_001, 1);
    // … and then it waits for its PG, after a later request of its client.
    parted.cluster.mon.min_size(2);
    parted.cluster.pass(SECOND / 20);
    again(900_003, 0);
    let waiting = on_x(WRITES);
    again(900_002, 0);
    parted.cluster.pass(SECOND / 20);
    (900_001..900_004).for_each(|tid| again(tid, 2));
    parted.cluster.pass(SECOND / 20);
    parted.cluster.mon.min_size(1);
    parted.go_on_alone([&[900_001, 900_002, 900_003], &[first, queued, waiting].concat()]);
    let read = parted.clients[0].request(&parted.cluster, "x", OsdOp::read(0, 0));
    let data = parted.clients[0].ask(&parted.cluster, read, b"", 900_004).unwrap().data;
    assert_eq!(data.iter().filter(|byte| **byte == b'x').count(), 3);
    assert_eq!(data.len() as u64, 3 + 2 * WRITES);
}

/// When a primary leads again, requests come again that were executed, after so many new ones that the log would forget them
/// (`carmine sim --seed 1767`).
#[test]
fn requests_that_were_executed_are_answered_before_others_run() {
    let parted = Parted::start(86, Disks::Cyan);
    let few = parted.append(1, 10);
    let most = parted.append(0, IN_FLIGHT - 10);
    place(&parted.cluster, 1, &[1, 0]);
    place(&parted.cluster, 1, &[0, 1]);
    assert_eq!(parted.count(), (0, IN_FLIGHT), "they were executed and dropped");
    let request = |name: String, retry_attempt| {
        let first = parted.clients[0].request(&parted.cluster, &name, OsdOp::append(1));
        OsdRequest { retry_attempt, ..first }
    };
    // As many as the OSD reads from one client.
    let others = [13, 14].map(|gid| Raw::of_client(&parted.cluster, 0, gid));
    for (n, other) in others.iter().enumerate() {
        (0..IN_FLIGHT).for_each(|tid| other.send(&request(format!("new{n}-{tid}"), 0), b"x", tid));
    }
    parted.cluster.pass(SECOND / 20);
    for (client, tids) in [(0, &most), (1, &few)] {
        tids.iter().for_each(|tid| parted.clients[client].send(&request(format!("o{tid}"), 1), b"x", *tid));
    }
    parted.cluster.pass(SECOND / 20);
    assert_eq!(parted.count().0, 3 * IN_FLIGHT);
    parted.go_on_alone([&most, &few]);
    parted.sizes_are_one(&[most, few].concat());
}

/// The log of a write that waits does not forget it while others come, of whatever kind it is.
#[test]
fn an_older_write_does_not_win_and_a_create_succeeds_once() {
    let parted = Parted::start(82, Disks::Cyan);
    let older = parted.send(0, "twice", OsdOp::write_full(3), b"old");
    let create = parted.send(0, "new", OsdOp::create(true), b"");
    let first = [vec![older, create], parted.append(0, 1_640)].concat();
    let second = parted.append(1, 1_700);
    let newer = parted.send(0, "twice", OsdOp::write_full(3), b"new");
    let again = parted.send(0, "new", OsdOp::create(false), b"");
    parted.cluster.pass(SECOND / 20);
    parted.go_on_alone([&[first, vec![newer, again]].concat(), &second]);
    let read = parted.clients[0].request(&parted.cluster, "twice", OsdOp::read(0, 0));
    assert_eq!(parted.clients[0].ask(&parted.cluster, read, b"", 900_000).unwrap().data, b"new");
    let exclusive = parted.clients[0].request(&parted.cluster, "new", OsdOp::create(true));
    assert_eq!(
        parted.clients[0].ask(&parted.cluster, exclusive, b"", 900_001).unwrap().result,
        errno::EEXIST
    );
}

/// Writes that wait for room are served in turn: those of one object in their order, with its reads between them, and those
/// that have to read before they are submitted.
#[test]
fn writes_that_wait_for_room_keep_their_order() {
    for seed in [83, 84] {
        let parted = Parted::start(seed, Disks::Blue);
        let cluster = &parted.cluster;
        cluster.sim.mend_network();
        let prepared = parted.send(0, "slow", OsdOp::write_full(9_000), &[7; 9_000]);
        cluster.wait("an answer", || !parted.answers(0, &[prepared]).is_empty());
        cluster.sim.delay("osd.1", "osd.0", SECOND / 5);
        let others = parted.append(1, 2_040);
        let mut hot = Vec::new();
        let mut reads = Vec::new();
        for n in 0..600u32 {
            hot.push(parted.send(0, "hot", OsdOp::append(4), &n.to_le_bytes()));
            if n % 50 == 0 {
                reads.push((n, parted.send(0, "hot", OsdOp::read(0, 0), b"")));
            }
            if n % 10 == 0 {
                // A part of a block: the rest has to be read.
                hot.push(parted.send(0, "slow", OsdOp::write(u64::from(n), 4), &n.to_le_bytes()));
            }
        }
        cluster.wait("all answers", || {
            let [mixed, appends] = &parted.clients;
            mixed.answered() == 1 + hot.len() + reads.len() && appends.answered() == others.len()
        });
        assert!(parted.answers(0, &hot).iter().all(|answer| answer.result == 0));
        let all: Vec<u8> = (0..600u32).flat_map(u32::to_le_bytes).collect();
        for (n, tid) in reads {
            let seen = parted.answers(0, &[tid]).remove(0).data;
            assert!(
                seen.len() >= (n as usize + 1) * 4 && seen == all[..seen.len()],
                "seed {seed}: the read behind {n}"
            );
        }
        parted.sizes_are_one(&others);
        assert_eq!(parted.count().0, 0);
    }
}
