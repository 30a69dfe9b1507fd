//! Requests whose data is not what their operations say, and peers whose connections end as soon as they are made.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use carmine_client::RouteMode;
use carmine_messenger::{Connection, Dispatcher, Message, ServerConfig, serve};
use carmine_osd::messages::RepOp;
use carmine_reactor::Group;
use carmine_types::{Epoch, OsdId, errno};
use carmine_wire::EntityType;
use carmine_wire::header::Front;
use carmine_wire::osd_op::{OpList, OsdOp, flags, ops};
use carmine_wire::private::{Route, RouteReply};

use super::cluster::{Cluster, Disks, noise};
use super::peering::place;
use super::raw::Raw;

const BLOCK: usize = 4096;

/// The frame's checksum is that of all of the data: with data behind that of a write, it is not the write's.
#[test]
fn payloads_must_add_up_to_the_data() {
    let cluster = Cluster::start(80, Disks::Blue, 2, 4, &[2, 2]);
    place(&cluster, 4, &[0, 1]);
    let raw = Raw::new(&cluster, 0);
    let tid = Cell::new(0);
    let ask = |list: &[OsdOp], bytes: usize| {
        tid.set(tid.get() + 1);
        let mut request = raw.request(&cluster, "a", list[0]);
        request.ops = OpList::from_slice(list);
        request.flags = flags::CLIENT_WRITE;
        let answer = raw.ask(&cluster, request, &noise(7, bytes), tid.get());
        answer.map(|answer| answer.result)
    };
    let write = |len: u32| OsdOp::write(0, len);
    let block = BLOCK as u32;
    assert_eq!(ask(&[write(block)], BLOCK), Some(0));
    for (list, bytes) in [
        (&[write(block)][..], 2 * BLOCK),
        (&[write(block)], BLOCK + 1),
        (&[write(block)], BLOCK - 1),
        (&[write(block)], 0),
        (&[write(0)], BLOCK),
        (&[write(block), OsdOp::write_full(block)], 3 * BLOCK),
        (&[OsdOp::write_full(block)], 2 * BLOCK),
        (&[OsdOp::append(block)], 2 * BLOCK),
        (&[OsdOp::write(0, u32::MAX), OsdOp::write(0, u32::MAX)], BLOCK),
        (&[OsdOp::write_same_op(0, 8192, block)], 2 * BLOCK),
        (&[OsdOp::xattr_op(ops::SET_XATTR, 3, 10)], BLOCK),
        (&[OsdOp::call_method(4, 4, 10)], BLOCK),
        (&[OsdOp::notify_op(1, 20)], BLOCK),
        (&[OsdOp::stat()], BLOCK),
        (&[OsdOp::read(0, 10)], BLOCK),
        (&[OsdOp::delete()], BLOCK),
    ] {
        assert_eq!(ask(list, bytes), Some(errno::EINVAL), "{list:?} with {bytes} bytes");
    }
    // The length that a write tells and that of its payload.
    for code in [ops::WRITE, ops::WRITE_FULL, ops::APPEND] {
        let op = OsdOp { code, payload_len: 2 * block, ..write(block) };
        assert_eq!(ask(&[op], 2 * BLOCK), Some(errno::EINVAL), "{op:?}");
    }
    // It harmed nobody, and nobody after a restart.
    let check = || {
        cluster.client(RouteMode::Direct, |_, pool| async move {
            assert!(pool.read("a", 0, 0).await.unwrap().to_vec() == noise(7, BLOCK));
            pool.write_full("b", noise(8, BLOCK)).await.unwrap();
        });
    };
    check();
    cluster.check_equal(&[0, 1]);
    for osd in 0..2 {
        cluster.kill(osd);
        let report = cluster.fsck(osd);
        assert!(report.is_clean(), "osd.{osd}: {report:?}");
        cluster.start_osd(osd, 2);
    }
    cluster.pass(Duration::from_secs(2));
    check();
}

/// A peer that lets everybody in and hangs up at the first write.
struct Deaf {
    port: u16,
    connections: Rc<Cell<u32>>,
}

impl Dispatcher for Deaf {
    fn on_accepted(&self, _: &Rc<Connection>) {
        self.connections.set(self.connections.get() + 1);
    }

    fn on_message(&self, conn: &Rc<Connection>, msg: Message) {
        match msg.header.kind {
            Route::KIND => {
                let route = RouteReply { epoch: Epoch(1), reactors: vec![self.port], pgs: Vec::new() };
                conn.send(Message::encode(&route).with_tid(msg.header.tid));
            }
            RepOp::KIND => conn.close("not understood"),
            _ => {}
        }
    }

    fn on_closed(&self, _: &Rc<Connection>, _: &str) {}
}

/// A primary does not try again at once for ever; when the peer is well, it is not long until it notices.
#[test]
fn a_connection_that_ends_at_once_is_not_made_again_at_once() {
    let cluster = Cluster::start(81, Disks::Blue, 2, 4, &[1, 1]);
    place(&cluster, 4, &[0, 1]);
    let write = |text: &'static str| {
        cluster.background(RouteMode::Direct, move |_, pool| async move {
            pool.write_full("a", text.as_bytes().to_vec()).await.unwrap();
        })
    };
    let writer = write("first");
    cluster.wait("a write", || writer.is_done());
    cluster.kill(1);
    let addr = cluster.mon.map().client_addr(OsdId(1)).unwrap().msgr2().unwrap();
    let (sock, connections) = (addr.sock.unwrap(), Rc::new(Cell::new(0)));
    let counter = Rc::clone(&connections);
    let deaf = cluster.sim.node("deaf", 1, move |shard| {
        let deaf = Rc::new(Deaf { port: sock.port(), connections: Rc::clone(&counter) });
        async move {
            let listener = shard.listen(sock).await.unwrap();
            let config = Rc::new(ServerConfig::new(EntityType::OSD, 1, addr.into()));
            let own = shard.clone();
            shard.spawn(Group::Client, "accept", async move {
                while let Ok((socket, _)) = listener.accept().await {
                    let deaf = Rc::clone(&deaf) as Rc<dyn Dispatcher>;
                    serve(&own, socket, Rc::clone(&config), deaf).await;
                }
            });
        }
    });
    let writer = write("second");
    cluster.wait("a connection", || connections.get() > 0);
    cluster.pass(Duration::from_secs(20));
    // One that asks for the route, and one for the writes, each time.
    let tried = connections.get() / 2;
    assert!((8..=50).contains(&tried), "{tried} times in 20 s");
    assert!(!writer.is_done());
    cluster.sim.kill(deaf);
    cluster.start_osd(1, 1);
    cluster.wait_up(2);
    cluster.pass(Duration::from_secs(3));
    assert!(writer.is_done());
    cluster.check_equal(&[0, 1]);
}
