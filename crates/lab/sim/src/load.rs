//! The clients: random requests for a few objects, several at a time, all of which are in the history.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use carmine_client::{Client, ClientError, Pool, Reply};
use carmine_reactor::{Group, Payload, Shard};
use carmine_types::{Eversion, UTime, errno};
use carmine_wire::osd_op::{OsdOp, flags::compare, ops};
use carmine_wire::{Decoder, Encoder};

use crate::cluster::POOL;
use crate::history::{Answer, Call, History};
use crate::model::{Output, Step, bytes, name};

pub(crate) const OBJECTS: u32 = 8;
const OBJECT_BYTES: u64 = 20_000;
/// Sizes of the objects that take all room.
const FILL_BYTES: [usize; 3] = [128 << 10, 16 << 10, 4 << 10];
/// Requests that a client has in flight, mostly.
pub(crate) const WINDOW: usize = 6;

/// Times between two requests of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Mostly.
    pub(crate) pause_us: u64,
    /// Now and then, at most.
    pub(crate) rest_us: u64,
}

/// Sometimes a rush, sometimes nothing for a while.
pub(crate) const RUSHES: Pace = Pace { pause_us: 200, rest_us: 600_000 };

/// State that all clients share.
#[derive(Default)]
pub(crate) struct Load {
    pub(crate) history: RefCell<History>,
    /// Numbers of data, each given once.
    next_data: Cell<u64>,
    /// Faults still go on.
    pub(crate) is_troubled: Cell<bool>,
    /// Requests that a client has in flight.
    pub(crate) window: Cell<usize>,
    /// How fast clients are.
    pub(crate) pace: Cell<Pace>,
    /// The client that is cut off with one OSD: it only reads, and goes on when others would wait for answers.
    pub(crate) lonely: Cell<Option<u32>>,
    /// Answers that no client may get.
    pub(crate) errors: RefCell<Vec<String>>,
}

impl Load {
    fn data(&self) -> u64 {
        self.next_data.set(self.next_data.get() + 1);
        self.next_data.get()
    }
}

pub(crate) fn object_name(object: u32) -> String {
    format!("o{object}")
}

fn op_of(step: &Step) -> (OsdOp, Payload) {
    let data = |op: OsdOp, bytes: Vec<u8>| (op, Payload::from(bytes));
    let xattr = |op: &dyn Fn(u32, u32) -> OsdOp, key: u8, value: &[u8]| {
        let key = name(key);
        let op = op(key.len() as u32, value.len() as u32);
        (op, Payload::from([key.as_bytes(), value].concat()))
    };
    let change = |code: u16| move |key, value| OsdOp::xattr_op(code, key, value);
    let is_equal = |key, value| OsdOp::cmp_xattr(key, value, compare::EQ, compare::MODE_STRING);
    let with = |code: u16, input: Vec<u8>| (OsdOp::with_payload(code, 0), Payload::from(input));
    match *step {
        Step::Write { off, len, data: number } => data(OsdOp::write(off, 0), bytes(number, off, len)),
        Step::WriteFull { len, data: number } => data(OsdOp::write_full(0), bytes(number, 0, len)),
        Step::Append { len, data: number } => data(OsdOp::append(0), bytes(number, 8, len)),
        Step::Truncate(size) => (OsdOp::truncate(size), Payload::new()),
        Step::Create { exclusive } => (OsdOp::create(exclusive), Payload::new()),
        Step::Delete => (OsdOp::delete(), Payload::new()),
        Step::SetXattr(key, value) => xattr(&change(ops::SET_XATTR), key, &value.to_le_bytes()),
        Step::RmXattr(key) => xattr(&change(ops::RM_XATTR), key, &[]),
        Step::Guard(key, value) => xattr(&is_equal, key, &value.to_le_bytes()),
        Step::OmapSet(key, value) => {
            let pairs = BTreeMap::from([(name(key), value.to_le_bytes().to_vec())]);
            with(ops::OMAP_SET_VALS, Encoder::collect(|e| e.put(&pairs)))
        }
        Step::OmapRm(key) => with(ops::OMAP_RM_KEYS, Encoder::collect(|e| e.put(&vec![name(key)]))),
        Step::OmapClear => with(ops::OMAP_CLEAR, Vec::new()),
        Step::Stat => (OsdOp::stat(), Payload::new()),
        Step::Read => (OsdOp::read(0, 0), Payload::new()),
        Step::GetXattrs => with(ops::GET_XATTRS, Vec::new()),
        Step::OmapVals => {
            let all = ((String::new(), 1000_u64), String::new());
            with(ops::OMAP_GET_VALS, Encoder::collect(|e| e.put(&all)))
        }
    }
}

type Pairs = BTreeMap<String, Vec<u8>>;

fn output(step: &Step, data: &[u8]) -> Result<Output, String> {
    let output = match step {
        Step::Stat => {
            Decoder::all(data, "stat", |d| d.get::<(u64, UTime)>()).map(|(size, _)| Output::Size(size))
        }
        Step::Read => Ok(Output::Data(data.to_vec())),
        Step::GetXattrs => Decoder::all(data, "xattrs", |d| d.get()).map(Output::Pairs),
        Step::OmapVals => {
            Decoder::all(data, "omap", |d| d.get::<(Pairs, bool)>()).map(|(pairs, _)| Output::Pairs(pairs))
        }
        _ => Ok(Output::None),
    };
    output.map_err(|error| format!("the answer to {step:?}: {error}"))
}

/// Makes a request and enters it into the history, and later its answer.
async fn request(load: Rc<Load>, pool: Pool, client: u32, object: u32, steps: Vec<Step>) {
    let shard = pool.client().shard().clone();
    let call = Call { client, object, steps: steps.clone(), at_ns: shard.now_ns(), answer: None };
    let place = load.history.borrow_mut().begin(call);
    let asked = pool.exec(object_name(object), steps.iter().map(op_of).collect()).await;
    let (at_ns, may_be_full) = (shard.now_ns(), load.history.borrow().may_be_full);
    let answer = match asked {
        Ok(reply) => {
            outputs(&steps, reply).map(|(outputs, version)| Answer { at_ns, result: Ok(outputs), version })
        }
        Err(ClientError::Errno { errno, .. }) if errno.0 == errno::ENOSPC && !may_be_full => {
            Err("refused for want of room, and no drive is full".to_owned())
        }
        Err(ClientError::Errno { errno, .. }) => {
            Ok(Answer { at_ns, result: Err(errno.0), version: Eversion::default() })
        }
        Err(error) => Err(error.to_string()),
    };
    match answer {
        Ok(answer) => load.history.borrow_mut().calls[place].answer = Some(answer),
        Err(error) => load.errors.borrow_mut().push(format!("client.{client} o{object}: {error}")),
    }
}

fn outputs(steps: &[Step], mut reply: Reply) -> Result<(Vec<Output>, Eversion), String> {
    let all = steps.iter().enumerate().map(|(n, step)| output(step, &reply.take_data(n).to_vec()));
    let all = all.collect::<Result<_, _>>()?;
    Ok((all, reply.version))
}

/// Reads all of an object.
fn read_steps() -> Vec<Step> {
    vec![Step::Stat, Step::Read, Step::GetXattrs, Step::OmapVals]
}

fn draw(load: &Load, shard: &Shard) -> Vec<Step> {
    let below = |n: u64| shard.random_u64() % n;
    let (off, len) = (below(OBJECT_BYTES), 1 + below(9_000));
    let key = || below(4) as u8;
    match below(20) {
        0..=3 => vec![Step::Write { off, len, data: load.data() }],
        4 => vec![Step::Write { off: off & !4095, len: 4096, data: load.data() }],
        5 => vec![Step::WriteFull { len, data: load.data() }],
        6 | 7 => vec![Step::Append { len: 1 + below(600), data: load.data() }],
        8 => vec![Step::Create { exclusive: false }, Step::Truncate(off)],
        9 => vec![Step::Delete],
        10 => vec![Step::SetXattr(key(), load.data())],
        11 => vec![Step::OmapSet(key(), load.data()), Step::OmapSet(key(), load.data())],
        12 => vec![Step::Create { exclusive: false }, Step::OmapRm(key())],
        13 => {
            let value = load.data();
            vec![Step::Write { off, len, data: value }, Step::SetXattr(0, value), Step::OmapSet(0, value)]
        }
        14 => {
            // One of the values that were given lately may be there.
            let value = load.next_data.get().saturating_sub(below(30));
            vec![Step::Guard(0, value), Step::Append { len: 64, data: value }, Step::SetXattr(0, load.data())]
        }
        15 => match below(4) {
            0 => vec![Step::Create { exclusive: true }],
            1 => vec![Step::Create { exclusive: false }, Step::OmapClear],
            2 => vec![Step::SetXattr(3, load.data()), Step::RmXattr(3)],
            _ => vec![Step::Stat],
        },
        _ => read_steps(),
    }
}

/// A client: `count` requests, and more for as long as there is trouble.
pub(crate) async fn client(load: Rc<Load>, client: Rc<Client>, number: u32, count: u32) {
    let Ok(pool) = client.wait_pool(POOL).await else { return };
    let shard = client.shard().clone();
    let in_flight = Rc::new(Cell::new(0_usize));
    let mut made = 0;
    while made < count || load.is_troubled.get() {
        made += 1;
        let object = (shard.random_u64() % u64::from(OBJECTS)) as u32;
        let is_lonely = || load.lonely.get() == Some(number);
        let steps = if is_lonely() { read_steps() } else { draw(&load, &shard) };
        issue(&shard, &in_flight, request(Rc::clone(&load), pool.clone(), number, object, steps)).await;
        let pause_us = match shard.random_u64() % 4 {
            _ if is_lonely() => 50_000,
            0 => shard.random_u64() % load.pace.get().rest_us,
            _ => load.pace.get().pause_us,
        };
        shard.sleep(Duration::from_micros(pause_us)).await;
        while in_flight.get() >= load.window.get() && !is_lonely() {
            shard.sleep(Duration::from_millis(1)).await;
        }
    }
    while in_flight.get() > 0 {
        shard.sleep(Duration::from_millis(1)).await;
    }
}

/// Sends a request now (the first poll sends it, so that those for one object leave in the history's order), and lets it end
/// on its own.
async fn issue(shard: &Shard, in_flight: &Rc<Cell<usize>>, work: impl Future<Output = ()> + 'static) {
    let own = Rc::clone(in_flight);
    own.set(own.get() + 1);
    let mut work = Box::pin(async move {
        work.await;
        own.set(own.get() - 1);
    });
    if poll_fn(|cx| Poll::Ready(work.as_mut().poll(cx))).await.is_pending() {
        shard.spawn(Group::Client, "request", work);
    }
}

/// Writes to a pool until there is no room for the smallest object.
pub(crate) async fn fill(client: Rc<Client>, name: String) {
    let Ok(pool) = client.wait_pool(&name).await else { return };
    for bytes in FILL_BYTES {
        let mut n = 0;
        while pool.write_full(format!("f{bytes}.{n}"), vec![1; bytes]).await.is_ok() {
            n += 1;
        }
    }
}

/// Reads all of each object.
pub(crate) async fn read_all(load: Rc<Load>, pool: Pool, number: u32) {
    for object in 0..OBJECTS {
        request(Rc::clone(&load), pool.clone(), number, object, read_steps()).await;
    }
}
