//! cephx and secure mode between a client, a monitor and an OSD.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;

use carmine_auth::client::Client;
use carmine_auth::issuer::{self, Issuer};
use carmine_auth::{AuthError, Entity, Entry, Key};
use carmine_messenger::cephx::{ByTicket, KeyHolder, KeyIdentity, TicketGuard};
use carmine_messenger::{Check, ClientConfig, ConnectError, Connection, Guard, Verdict, connect};
use carmine_reactor::{Chunk, Group, Shard};
use carmine_types::{MsMode, UTime};
use carmine_wire::{EntityAddr, EntityType};

use super::common::{Recorder, Server, both, message, noise, server, until};

both!(
    tickets_open_doors,
    messages_of_all_sizes_are_encrypted,
    a_changed_byte_ends_the_connection,
    who_is_not_let_in_hears_why,
    modes_are_not_talked_down,
);

/// A monitor's guard.
#[derive(Debug)]
struct MonGuard(Rc<RefCell<Issuer>>, UTime);

struct MonCheck(Rc<RefCell<Issuer>>, UTime, Option<issuer::Handshake>);

impl Guard for MonGuard {
    fn check(&self) -> Box<dyn Check> {
        Box::new(MonCheck(Rc::clone(&self.0), self.1, None))
    }
}

impl Check for MonCheck {
    fn on_payload(&mut self, payload: &[u8], is_secure: bool) -> Result<Verdict, AuthError> {
        let Some(handshake) = &self.2 else {
            let (handshake, more) = issuer::Handshake::begin(payload)?;
            self.2 = Some(handshake);
            return Ok(Verdict::More(more));
        };
        let proved = self.0.borrow().prove(handshake, payload, is_secure, self.1, || Some(4242))?;
        Ok(Verdict::Done { guest: proved.guest, session: proved.session, payload: proved.payload })
    }
}

/// A monitor and an OSD that let in who has a key, and a client that has one.
struct World {
    mon: Server,
    osd: Server,
    client: Rc<KeyHolder>,
    guard: Rc<TicketGuard>,
    issuer: Rc<RefCell<Issuer>>,
}

async fn world(shard: &Shard, recorder: Rc<Recorder>, modes: &[MsMode]) -> World {
    let now = UTime::from_unix(shard.unix_now());
    let mut issuer = Issuer::default();
    issuer.rotate(now).unwrap();
    let entity = Entity::new(EntityType::CLIENT, "admin");
    let caps = [("mon", "allow *"), ("osd", "allow rw")].map(|(service, text)| (service.into(), text.into()));
    let key = Key::random(now).unwrap();
    issuer.entities.insert(entity.clone(), Entry { key: key.clone(), caps: caps.into() });
    let guard = TicketGuard::new(shard, EntityType::OSD);
    guard.set_keys(issuer.service_keys(EntityType::OSD).unwrap().clone());
    let issuer = Rc::new(RefCell::new(issuer));
    let at_mon = Rc::new(MonGuard(Rc::clone(&issuer), now));
    let mon = server(shard, Recorder::echo(), |config| {
        config.entity = EntityType::MON;
        config.guard = Some(at_mon);
        config.modes = modes.to_vec();
    });
    let mon = mon.await;
    let at_osd = Rc::new(ByTicket(Rc::clone(&guard)));
    let osd = server(shard, recorder, |config| {
        config.guard = Some(at_osd);
        config.modes = modes.to_vec();
    });
    let osd = osd.await;
    let client = KeyHolder::new(shard, Client::new(entity, key, &[EntityType::OSD]), false);
    World { mon, osd, client, guard, issuer }
}

impl World {
    fn config(&self, modes: &[MsMode]) -> Rc<ClientConfig> {
        let mut config = ClientConfig::new(EntityType::CLIENT, "admin", 77);
        config.identity = Some(Rc::new(KeyIdentity(Rc::clone(&self.client))));
        (config.modes, config.mon_modes) = (modes.to_vec(), modes.to_vec());
        Rc::new(config)
    }

    async fn dial(
        &self,
        shard: &Shard,
        to: EntityType,
        config: &Rc<ClientConfig>,
        recorder: Rc<Recorder>,
    ) -> Result<Rc<Connection>, ConnectError> {
        let server = if to == EntityType::MON { &self.mon } else { &self.osd };
        connect(shard, server.addr, to, Rc::clone(config), recorder).await
    }
}

const MODES: [MsMode; 2] = [MsMode::Crc, MsMode::Secure];

async fn tickets_open_doors(shard: Shard) {
    for mode in MODES {
        let world = world(&shard, Recorder::echo(), &MODES).await;
        let config = world.config(&[mode]);
        let early = world.dial(&shard, EntityType::OSD, &config, Recorder::sink()).await.unwrap_err();
        assert!(early.to_string().contains("there is no ticket for osd yet"), "{early}");
        let mon = world.dial(&shard, EntityType::MON, &config, Recorder::sink()).await.unwrap();
        assert_eq!((mon.global_id(), config.gid.get()), (4242, 4242));
        let osd = world.dial(&shard, EntityType::OSD, &config, Recorder::sink()).await.unwrap();
        assert_eq!(osd.global_id(), 4242);
        until(&shard, || !world.osd.recorder.accepted.borrow().is_empty()).await;
        let accepted = Rc::clone(&world.osd.recorder.accepted.borrow()[0]);
        let guest = accepted.peer().guest.clone().unwrap();
        assert_eq!(
            (guest.entity.to_string(), guest.caps.as_deref()),
            ("client.admin".into(), Some("allow rw"))
        );
        assert_eq!((accepted.peer().gid, accepted.peer().name.as_str()), (4242, "admin"));
    }
}

/// Lengths around those at which the receiving code changes its ways.
const SIZES: [usize; 12] = [0, 1, 15, 16, 17, 4096, 16_384, 262_000, 262_145, 1_048_577, 3_000_001, 8 << 20];

async fn messages_of_all_sizes_are_encrypted(shard: Shard) {
    let world = world(&shard, Recorder::echo(), &[MsMode::Secure]).await;
    let config = world.config(&[MsMode::Secure]);
    world.dial(&shard, EntityType::MON, &config, Recorder::sink()).await.unwrap();
    let sent: Vec<_> = (0..40_u64)
        .map(|n| (noise(n, n as usize * 37 % 700), noise(n + 1000, SIZES[n as usize * 5 % SIZES.len()])))
        .collect();
    let (expected, next) = (sent.clone(), Rc::new(RefCell::new(0)));
    let seen = Rc::clone(&next);
    let recorder = Recorder::new(move |_, msg| {
        let n = *seen.borrow();
        let (front, data) = &expected[n];
        assert!(msg.front == *front && msg.data.to_vec() == *data, "message {n} of {} bytes", data.len());
        let is_aligned = |chunk: &carmine_reactor::Bytes| {
            chunk.len() <= 1 << 20 && (chunk.as_ptr() as usize).is_multiple_of(4096)
        };
        assert!(msg.data.iter().all(is_aligned), "message {n}");
        *seen.borrow_mut() += 1;
    });
    let conn = world.dial(&shard, EntityType::OSD, &config, recorder.clone()).await.unwrap();
    for (tid, (front, data)) in sent.iter().enumerate() {
        conn.send(message(tid as u64, front.clone(), data.clone()));
        conn.keepalive();
        until(&shard, || conn.queued_bytes() < 16 << 20).await;
    }
    until(&shard, || *next.borrow() == sent.len()).await;
    assert!(recorder.closed.borrow().is_empty());
}

/// Listens, and passes on what comes to `to`; the byte at `at` of the client's stream is changed.
async fn between(shard: &Shard, to: EntityAddr, at: usize) -> EntityAddr {
    let listener = shard.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let (addr, own): (SocketAddr, _) = (listener.local_addr(), shard.clone());
    shard.spawn(Group::Admin, "between", async move {
        let Ok((socket, _)) = listener.accept().await else { return };
        let client = socket.into_stream(&own);
        let server = own.connect(to.sock.unwrap()).await.unwrap();
        let (back, forth) = (server.clone(), client.clone());
        let task = own.clone();
        own.spawn(Group::Admin, "back", async move { pass(&task, back, forth, usize::MAX).await });
        pass(&own, client, server, at).await;
    });
    EntityAddr::msgr2(addr, to.nonce)
}

async fn pass(shard: &Shard, from: carmine_reactor::TcpStream, to: carmine_reactor::TcpStream, at: usize) {
    let mut passed = 0;
    loop {
        let (len, buf) = from.recv(shard.buf(16_384), 0).await;
        let Ok(len @ 1..) = len else { return to.shutdown() };
        let mut bytes = buf[..len].to_vec();
        if let Some(byte) = at.checked_sub(passed).and_then(|at| bytes.get_mut(at)) {
            *byte ^= 0x40;
        }
        passed += len;
        if to.send(vec![Chunk::Bytes(bytes)]).await.is_err() {
            return from.shutdown();
        }
    }
}

async fn a_changed_byte_ends_the_connection(shard: Shard) {
    for (mode, reason) in [(MsMode::Crc, "checksum"), (MsMode::Secure, "the tag of AES-GCM does not fit")] {
        let world = world(&shard, Recorder::sink(), &MODES).await;
        let config = world.config(&[mode]);
        world.dial(&shard, EntityType::MON, &config, Recorder::sink()).await.unwrap();
        // The handshake is some 900 bytes long.
        let through = between(&shard, world.osd.addr, 3000).await;
        let target = carmine_messenger::Target { dial: through, ident: world.osd.addr };
        let conn = connect(&shard, target, EntityType::OSD, config, Recorder::sink()).await.unwrap();
        conn.send(message(1, noise(1, 5000), noise(2, 5000)));
        until(&shard, || world.osd.recorder.closed.borrow().len() == 1).await;
        let found = world.osd.recorder.closed.borrow()[0].clone();
        assert!(found.contains(reason) && world.osd.recorder.messages.get() == 0, "{found}");
    }
    // A changed HELLO: what the sides sign is not what they said.
    let world = world(&shard, Recorder::sink(), &MODES).await;
    let config = world.config(&[MsMode::Crc]);
    world.dial(&shard, EntityType::MON, &config, Recorder::sink()).await.unwrap();
    let through = between(&shard, world.osd.addr, 11).await;
    let target = carmine_messenger::Target { dial: through, ident: world.osd.addr };
    let error = connect(&shard, target, EntityType::OSD, config, Recorder::sink()).await.unwrap_err();
    assert!(!world.osd.recorder.accepted.borrow().iter().any(|conn| !conn.is_closed()), "{error}");
}

async fn who_is_not_let_in_hears_why(shard: Shard) {
    let world = world(&shard, Recorder::sink(), &MODES).await;
    let config = world.config(&MODES);
    let none = Rc::new(ClientConfig::new(EntityType::CLIENT, "admin", 77));
    let dial = |to, config: &Rc<ClientConfig>| {
        let (world, shard, config) = (&world, shard.clone(), Rc::clone(config));
        async move { world.dial(&shard, to, &config, Recorder::sink()).await }
    };
    let error = dial(EntityType::OSD, &none).await.unwrap_err();
    assert!(matches!(&error, ConnectError::Auth { methods, .. } if methods == &[2]), "{error}");
    dial(EntityType::MON, &config).await.unwrap();
    // The service has other keys now.
    let mut issuer = Issuer::default();
    issuer.rotate(UTime::from_unix(shard.unix_now())).unwrap();
    world.guard.set_keys(issuer.service_keys(EntityType::OSD).unwrap().clone());
    let error = dial(EntityType::OSD, &config).await.unwrap_err();
    assert!(matches!(error, ConnectError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("permission denied"), "{error}");
    let due = world.client.renewals().unwrap();
    assert_eq!(due.len(), 1, "another ticket is due");
    // A key that the monitor does not know.
    world.issuer.borrow_mut().entities.clear();
    let error = dial(EntityType::MON, &config).await.unwrap_err();
    assert!(matches!(error, ConnectError::Refused { .. }), "{error}");
    assert!(world.osd.recorder.accepted.borrow().is_empty());
}

async fn modes_are_not_talked_down(shard: Shard) {
    for (allowed, wanted) in [([MsMode::Crc], [MsMode::Secure]), ([MsMode::Secure], [MsMode::Crc])] {
        let world = world(&shard, Recorder::sink(), &allowed).await;
        let error =
            world.dial(&shard, EntityType::MON, &world.config(&wanted), Recorder::sink()).await.unwrap_err();
        assert!(matches!(error, ConnectError::Auth { .. }), "{error}");
        assert!(error.to_string().contains("and this client wants method 2 in modes"), "{error}");
    }
}
