//! Clients with caps: what they may do is what a real OSD lets them do (the table of `carmine-caps`), and changes with the map.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use carmine_caps::OsdCaps;
use carmine_messenger::{Message, Peer};
use carmine_osd::messages::{Head, PgStray};
use carmine_types::{Epoch, ObjectId, OsdId, PgId, UTime, errno};
use carmine_wire::osd_op::{OpList, OsdOp, OsdRequest, flags, ops};
use carmine_wire::osdmap::PgPool;
use carmine_wire::private::Admin;

use super::cluster::{Cluster, Disks};
use super::raw::Raw;

const TABLE: &str = include_str!("../../../../protocol/caps/tests/verdicts.tsv");

/// Clients with global ids from this one on have the caps of the table's keys, one each; others have none.
const FIRST_GID: u64 = 50_000;
const POOLS: [(i64, &str); 2] = [(2, "a"), (3, "b")];

/// The table's keys: name and text.
fn keys() -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = TABLE.lines().filter_map(|line| line.strip_prefix("key\t"));
    rows.filter_map(|row| row.split_once('\t'))
}

fn gid_of(key: &str) -> u64 {
    FIRST_GID + keys().position(|(name, _)| name == key).expect("a key of the table") as u64
}

/// The caps of who connects to an OSD of these tests.
pub(crate) fn caps_of(peer: &Peer) -> Option<Arc<OsdCaps>> {
    let (_, text) = keys().nth(usize::try_from(peer.gid.checked_sub(FIRST_GID)?).ok()?)?;
    // Where the table was made clients had other addresses.
    let text = match text {
        _ if text.contains("127.0.0.0/8") => text.replace("127.0.0.0/8", &format!("{}/32", peer.sock.ip())),
        _ => text.replace("10.0.0.0/8", "127.0.0.0/8"),
    };
    Some(Arc::new(OsdCaps::parse(&text).unwrap_or_default()))
}

fn tags(role: &str) -> BTreeMap<String, BTreeMap<String, String>> {
    let roles = BTreeMap::from([("role".to_owned(), role.to_owned())]);
    let mut tags = BTreeMap::from([("rbd".to_owned(), BTreeMap::new()), ("myapp".to_owned(), roles)]);
    if role != "main" {
        tags.insert("other".to_owned(), BTreeMap::new());
    }
    tags
}

fn pool(role: &str) -> PgPool {
    let pool = PgPool::replicated(1, 1, 4, 0, Epoch(1), UTime::ZERO);
    PgPool { application_metadata: tags(role), ..pool }
}

/// A cluster of one OSD with the pools of the table.
fn cluster() -> Cluster {
    let cluster = Cluster::start(1, Disks::Cyan, 1, 4, &[2]);
    cluster.mon.change(|inc| {
        for ((id, name), role) in POOLS.into_iter().zip(["main", "second"]) {
            inc.new_pools.insert(id, pool(role));
            inc.new_pool_names.insert(id, name.to_owned());
        }
        inc.new_pool_max = 3;
    });
    cluster.pass(Duration::from_secs(1));
    cluster
}

/// An operation by its word in the table, and its input.
fn operation(word: &str) -> (OsdOp, Vec<u8>) {
    if let [_, class, method] = word.split('.').collect::<Vec<_>>()[..] {
        let op = OsdOp::call_method(class.len() as u8, method.len() as u8, 0);
        return (op, [class, method].concat().into_bytes());
    }
    match u16::from_str_radix(word, 16).expect("a code") {
        ops::READ => (OsdOp::read(0, 4), Vec::new()),
        ops::WRITE => (OsdOp::write(0, 4), b"data".to_vec()),
        ops::WATCH => (OsdOp::watch_op(flags::watch::WATCH, 1, 1), Vec::new()),
        ops::PGNLS => (OsdOp::pgnls(10, 0, 0), Vec::new()),
        code => (OsdOp::with_payload(code, 0), Vec::new()),
    }
}

/// A request for an object of a pool, by its words.
fn request(cluster: &Cluster, pool: i64, oid: [&[u8]; 3], words: &str) -> (OsdRequest, Vec<u8>) {
    let [nspace, key, name] = oid;
    let (map, oid) = (cluster.mon.map(), ObjectId::head(pool, nspace, key, name));
    let pg = PgId::of_hash(pool, oid.hash, map.pool(pool).unwrap().pg_num);
    let (list, inputs): (OpList, Vec<Vec<u8>>) = words.split(' ').map(operation).unzip();
    let is_write = list.iter().any(OsdOp::is_write);
    let mode = if is_write { flags::CLIENT_WRITE } else { flags::CLIENT_READ };
    (OsdRequest::new(pg, map.epoch, mode, &oid, list), inputs.concat())
}

/// A client that sends one request after the other.
struct Client<'a>(&'a Cluster, Raw);

impl<'a> Client<'a> {
    fn new(cluster: &'a Cluster, gid: u64) -> Client<'a> {
        Client(cluster, Raw::of_client(cluster, 0, gid))
    }

    /// Result and data.
    fn ask(&self, pool: i64, nspace: &str, words: &str) -> (i32, Vec<u8>) {
        let Client(cluster, raw) = self;
        let (request, data) = request(cluster, pool, [nspace.as_bytes(), b"", b"obj"], words);
        let answer = raw.ask(cluster, request, &data, cluster.sim.now_ns()).expect("an answer");
        (answer.result, answer.data)
    }

    fn result(&self, pool: i64, words: &str) -> i32 {
        self.ask(pool, "", words).0
    }
}

/// Every request of every key is refused where a real OSD refuses it, and no other is.
#[test]
fn refusals_are_those_of_a_real_osd() {
    let cluster = cluster();
    let rows: Vec<Vec<&str>> = TABLE
        .lines()
        .filter_map(|line| line.strip_prefix("row\t"))
        .map(|row| row.split('\t').collect())
        // Commands and snapshots are no operations; and `numops` is among the classes that `x` covers here.
        .filter(|row: &Vec<&str>| row[0] != "-" && !row[4].contains("numops"))
        .collect();
    let (mut pairs, mut wrong) = (0, Vec::new());
    for (n, (key, _)) in keys().enumerate() {
        let raw = Raw::of_client(&cluster, 0, FIRST_GID + n as u64);
        for (tid, row) in rows.iter().enumerate() {
            let [pool, nspace, name, locator, words, ..] = row[..] else { panic!("{row:?}") };
            let pool = POOLS.iter().find(|(_, known)| *known == pool).expect("a pool").0;
            let nspace: &[u8] = if nspace == "@" { b"\x01" } else { nspace.as_bytes() };
            let name = if words == "1505" { "" } else { name };
            let oid = [nspace, locator.as_bytes(), name.as_bytes()];
            let (request, data) = request(&cluster, pool, oid, words);
            raw.send(&request, &data, tid as u64 + 1);
        }
        cluster.wait("all answers", || raw.answered() == rows.len());
        for (tid, row) in rows.iter().enumerate() {
            pairs += 1;
            let result = raw.answers(tid as u64 + 1)[0].result;
            let verdict = row[5].chars().nth(n).expect("a verdict of each key");
            if (result == errno::EPERM) != (verdict == 'E') {
                wrong.push(format!("{key}: {row:?}: {result}"));
            }
        }
        raw.kill(&cluster);
    }
    assert!(wrong.is_empty(), "{} of {pairs} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(pairs > 10_000, "{pairs} pairs");
}

#[test]
fn what_is_refused_is_not_done_and_the_rest_is() {
    let cluster = cluster();
    let (all, limited, none) =
        (Client::new(&cluster, 1), Client::new(&cluster, gid_of("ns1")), gid_of("none"));
    assert_eq!(all.ask(2, "", "2201").0, 0);
    assert_eq!(limited.ask(2, "", "1201"), (errno::EPERM, vec![]));
    assert_eq!(limited.ask(2, "", "2205").0, errno::EPERM);
    assert_eq!(limited.ask(2, "ns1", "1201").0, errno::ENOENT);
    assert_eq!(limited.ask(2, "ns1", "2201").0, 0);
    assert_eq!(limited.ask(2, "ns1", "1201"), (0, b"data".to_vec()));
    assert_eq!(
        limited.ask(2, "", "1201"),
        (errno::EPERM, vec![]),
        "also after the same one was allowed elsewhere"
    );
    assert_eq!(all.ask(2, "", "1201"), (0, b"data".to_vec()));
    assert_eq!(Client::new(&cluster, none).ask(2, "", "1201").0, errno::EPERM);
    assert_eq!(all.ask(2, "", "1201"), (0, b"data".to_vec()), "others have no limits");
}

/// A ping of a watch reads, whatever its code says; to watch is to write, too.
#[test]
fn a_ping_only_reads() {
    let cluster = cluster();
    let ping = |key: &str| {
        let raw = Raw::of_client(&cluster, 0, gid_of(key));
        let (mut request, _) = request(&cluster, 2, [b"", b"", b"obj"], "1201");
        request.ops = OpList::from_slice(&[OsdOp::watch_op(flags::watch::PING, 1, 0)]);
        raw.ask(&cluster, request, b"", 1).expect("an answer").result
    };
    assert_ne!(ping("r"), errno::EPERM);
    assert_eq!(ping("w"), errno::EPERM);
    assert_eq!(Client::new(&cluster, gid_of("r")).result(2, "220f"), errno::EPERM);
}

/// What is remembered of a client is forgotten when a pool gets another name or other tags.
#[test]
fn names_and_tags_of_pools_are_those_of_the_newest_map() {
    let cluster = cluster();
    let (tagged, named) = (Client::new(&cluster, gid_of("tag")), Client::new(&cluster, gid_of("pool_a")));
    let results = || [tagged.result(2, "2201"), named.result(2, "2201")];
    assert_eq!([results(), results()], [[0; 2]; 2]);
    let change = |role: &'static str, name: &'static str| {
        cluster.mon.change(move |inc| {
            inc.new_pools.insert(2, pool(role));
            inc.new_pool_names.insert(2, name.to_owned());
        });
        cluster.pass(Duration::from_secs(1));
    };
    change("second", "a");
    assert_eq!(results(), [errno::EPERM, 0]);
    change("main", "c");
    assert_eq!(results(), [0, errno::EPERM]);
    change("main", "a");
    assert_eq!(results(), [0; 2]);
}

/// More namespaces than a client's verdicts are remembered of.
#[test]
fn many_namespaces_are_told_apart() {
    let cluster = cluster();
    let client = Client::new(&cluster, gid_of("a_ns1s"));
    for round in 0..2 {
        for n in 0..40 {
            assert_eq!(client.ask(2, &format!("ns1{n}"), "2201").0, 0, "{round}");
            assert_eq!(client.ask(2, &format!("ns2{n}"), "2201").0, errno::EPERM, "{round}");
            assert_eq!(client.ask(3, &format!("ns1{n}"), "2201").0, errno::EPERM, "{round}");
        }
    }
}

/// Commands need caps for everything, and so do an OSD's messages: who only says that it is an OSD is none.
#[test]
fn what_is_no_operation_needs_caps_for_everything() {
    let cluster = cluster();
    let result = |gid: u64| {
        let raw = Raw::of_client(&cluster, 0, gid);
        raw.order(&cluster, Message::encode(&Admin { json: br#"{"prefix":"version"}"#.to_vec() }))
    };
    assert_eq!(result(1), result(gid_of("all")));
    assert_ne!(result(1), errno::EACCES);
    for key in ["rwx", "all_of_a", "osd", "none", "bad"] {
        assert_eq!(result(gid_of(key)), errno::EACCES, "{key}");
    }
    let stray = |from: u64| {
        let raw = Raw::of_osd(&cluster, u32::try_from(from).unwrap(), 0);
        let epoch = cluster.mon.map().epoch;
        let head = Head { pg: PgId::new(99, 0).into(), epoch, interval: epoch, attempt: 1 };
        raw.send_message(Message::encode(&PgStray { head, from: OsdId(1) }));
        cluster.pass(Duration::from_secs(1));
        raw.results()
    };
    assert_eq!(stray(1), [errno::ESTALE]);
    assert_eq!(stray(gid_of("all")), [errno::ESTALE]);
    assert_eq!(stray(gid_of("rwx")), [0; 0]);
}
