//! A client, a daemon and a monitor, with time going by.

use carmine_wire::EntityType;
use proptest::prelude::*;

use super::*;

const START: u32 = 1_000_000;

fn at(seconds: u32) -> UTime {
    UTime { sec: START + seconds, nsec: 0 }
}

struct World {
    issuer: Issuer,
    next_id: u64,
}

fn entity(text: &str) -> Entity {
    text.parse().unwrap()
}

impl World {
    /// Tickets of services are valid for 30 s, those for monitors for 60 s.
    fn new() -> World {
        let seconds = |sec| UTime { sec, nsec: 0 };
        let mut issuer = Issuer::default();
        issuer.validity = issuer::Validity { service: seconds(30), auth: seconds(60) };
        issuer.rotate(at(0)).unwrap();
        let mut world = World { issuer, next_id: 100 };
        world.add("client.a", &[("mon", "allow r"), ("osd", "allow rw pool=p")]);
        world.add("osd.3", &[("mon", "allow profile osd"), ("osd", "allow *")]);
        world.add("client.none", &[("osd", "allow *")]);
        world
    }

    fn add(&mut self, name: &str, caps: &[(&str, &str)]) {
        let caps = caps.iter().map(|(service, text)| ((*service).to_owned(), (*text).to_owned())).collect();
        self.issuer.entities.insert(entity(name), Entry { key: Key::random(at(0)).unwrap(), caps });
    }

    fn client(&self, name: &str) -> Client {
        let key = self.issuer.entities.get(&entity(name)).map(|entry| entry.key.clone());
        let key = key.unwrap_or_else(|| Key::random(at(0)).unwrap());
        Client::new(entity(name), key, &[EntityType::MON, EntityType::OSD])
    }

    /// Runs a handshake with the monitor; returns the monitor's side and the guest that it let in.
    fn connect(
        &mut self,
        client: &mut Client,
        is_secure: bool,
        now: UTime,
    ) -> Result<(issuer::Handshake, service::Guest)> {
        let (handshake, challenge) = issuer::Handshake::begin(&client.mon_request())?;
        let (own, more) = client.prove(&challenge)?;
        self.next_id += 1;
        let next_id = self.next_id;
        let proved = self.issuer.prove(&handshake, &more, is_secure, now, || Some(next_id))?;
        let session = client.mon_done(&own, proved.guest.global_id, &proved.payload, now)?;
        assert_eq!(session, proved.session);
        assert_eq!(session.connection_secret.0.len(), if is_secure { SESSION_SECRET_BYTES } else { 0 });
        Ok((handshake, proved.guest))
    }

    fn osd_keys(&self) -> RotatingKeys {
        self.issuer.service_keys(EntityType::OSD).unwrap().clone()
    }
}

/// A client's handshake with an OSD that has these keys.
fn present(client: &Client, keys: &RotatingKeys, is_secure: bool, now: UTime) -> Result<service::Guest> {
    let authorizer = client.authorizer(EntityType::OSD)?;
    let mut handshake = service::Handshake::default();
    let mut on = |payload: &[u8]| handshake.on_payload(EntityType::OSD, keys, payload, is_secure, now);
    let Answer::Challenge(challenge) = on(&authorizer.request())? else { panic!("no challenge") };
    match on(&authorizer.answer(&challenge)?)? {
        Answer::Done { guest, session, payload } => {
            assert_eq!(authorizer.done(&payload)?, session);
            Ok(guest)
        }
        Answer::Challenge(_) => panic!("a second challenge"),
    }
}

#[test]
fn a_client_gets_in_and_stays_in_while_keys_rotate() {
    for is_secure in [false, true] {
        let mut world = World::new();
        let (mut client, mut osd) = (world.client("client.a"), world.client("osd.3"));
        let (client_side, guest) = world.connect(&mut client, is_secure, at(0)).unwrap();
        assert_eq!(guest.caps.as_deref(), Some("allow r"));
        let (osd_side, osd_guest) = world.connect(&mut osd, is_secure, at(0)).unwrap();
        let id = client.global_id();
        for second in 0..400 {
            let now = at(second);
            world.issuer.rotate(now).unwrap();
            for (side, guest, who) in [(&client_side, &guest, &mut client), (&osd_side, &osd_guest, &mut osd)]
            {
                // All are on their way before the first answer comes.
                let requests = who.renewals(now).unwrap();
                let answer = |request: Vec<u8>| world.issuer.on_request(side, guest, &request, now).unwrap();
                for reply in requests.into_iter().map(answer).collect::<Vec<_>>() {
                    who.take_reply(&reply, now).unwrap();
                }
            }
            if osd.rotating().expires().is_none_or(|expires| expires <= now) {
                let request = Client::rotating_request();
                let reply = world.issuer.on_request(&osd_side, &osd_guest, &request, now).unwrap();
                osd.take_reply(&reply, now).unwrap();
            }
            let seen = present(&client, osd.rotating(), is_secure, now).unwrap();
            assert_eq!((seen.entity.to_string(), seen.global_id), ("client.a".to_owned(), id));
            assert_eq!(seen.caps.as_deref(), Some("allow rw pool=p"));
            assert_eq!(
                present(&osd, osd.rotating(), is_secure, now).unwrap().caps.as_deref(),
                Some("allow *")
            );
        }
        // A session that is made anew keeps the id, by the old ticket.
        world.connect(&mut client, is_secure, at(400)).unwrap();
        assert_eq!(client.global_id(), id);
    }
}

#[test]
fn who_has_no_right_is_told_no_more_than_that() {
    let mut world = World::new();
    let mut wrong = world.client("client.a");
    wrong.set_key(Key::random(at(0)).unwrap());
    let errors = [
        world.connect(&mut wrong, false, at(0)).unwrap_err(),
        world.connect(&mut world_client("client.unknown"), false, at(0)).unwrap_err(),
        {
            let mut none = world.client("client.none");
            world.connect(&mut none, false, at(0)).unwrap_err()
        },
    ];
    let words = ["wrong key", "no key is known", "no mon caps"];
    for (error, words) in errors.iter().zip(words) {
        assert!(error.to_string().contains(words) && error.errno() == -13, "{error}");
    }
}

fn world_client(name: &str) -> Client {
    World::new().client(name)
}

#[test]
fn ids_are_not_given_away() {
    let mut world = World::new();
    let mut client = world.client("client.a");
    world.connect(&mut client, false, at(0)).unwrap();
    world.add("client.b", &[("mon", "allow r")]);
    let mut thief = world.client("client.b");
    thief.set_global_id(client.global_id());
    let error = world.connect(&mut thief, false, at(0)).unwrap_err();
    assert!(matches!(error, AuthError::ForeignId { .. }), "{error}");
    // Keys of tickets are gone after some rotations: then a new id has to be asked for.
    for second in [60, 120, 180, 240] {
        world.issuer.rotate(at(second)).unwrap();
    }
    let error = world.connect(&mut client, false, at(240)).unwrap_err();
    assert!(matches!(error, AuthError::ForeignId { .. }), "{error}");
}

#[test]
fn old_foreign_and_replayed_tickets_are_refused() {
    let mut world = World::new();
    let mut client = world.client("client.a");
    world.connect(&mut client, false, at(0)).unwrap();
    let keys = world.osd_keys();
    assert!(present(&client, &keys, false, at(80)).is_ok(), "a minute is for clocks");
    let error = present(&client, &keys, false, at(91)).unwrap_err();
    assert!(matches!(error, AuthError::Expired { .. }) && error.to_string().contains("client.a"), "{error}");
    for second in [60, 120, 180] {
        world.issuer.rotate(at(second)).unwrap();
    }
    let error = present(&client, &world.osd_keys(), false, at(5)).unwrap_err();
    assert!(error.to_string().contains("service key 2, and this daemon has keys"), "{error}");
    // Another cluster's key of the same number.
    let error = present(&client, &World::new().osd_keys(), false, at(5)).unwrap_err();
    assert!(matches!(error, AuthError::WrongKey { .. }), "{error}");
    // A ticket for another service.
    let authorizer = client.authorizer(EntityType::OSD).unwrap();
    let mut handshake = service::Handshake::default();
    let error =
        handshake.on_payload(EntityType::MGR, &keys, &authorizer.request(), false, at(1)).unwrap_err();
    assert!(matches!(error, AuthError::Foreign { .. }), "{error}");
    // What somebody heard on another connection.
    let heard = {
        let mut handshake = service::Handshake::default();
        let answer =
            handshake.on_payload(EntityType::OSD, &keys, &authorizer.request(), false, at(1)).unwrap();
        let Answer::Challenge(challenge) = answer else { panic!("no challenge") };
        authorizer.answer(&challenge).unwrap()
    };
    let mut handshake = service::Handshake::default();
    let on = |handshake: &mut service::Handshake, payload: &[u8]| {
        handshake.on_payload(EntityType::OSD, &keys, payload, false, at(1))
    };
    assert!(matches!(on(&mut handshake, &heard), Ok(Answer::Challenge(_))), "nobody has asked yet");
    assert!(matches!(on(&mut handshake, &heard), Err(AuthError::Replayed { .. })));
    // A challenge counts once.
    assert!(matches!(on(&mut handshake, &heard), Ok(Answer::Challenge(_))));
}

#[test]
fn the_state_of_a_monitor_survives() {
    let world = World::new();
    let bytes = Encoder::collect(|e| world.issuer.put(e));
    let read: Issuer = Decoder::all(&bytes, "keys", |d| d.get()).unwrap();
    assert_eq!(
        (&read.entities, read.service_keys(EntityType::OSD)),
        (&world.issuer.entities, Some(&world.osd_keys()))
    );
}

#[test]
fn a_keyring_is_read_as_it_was_written() {
    let world = World::new();
    let mut ring = Keyring(world.issuer.entities.clone());
    ring.0
        .get_mut(&entity("client.a"))
        .unwrap()
        .caps
        .insert("mon".into(), "allow command \"x\" with a=b".into());
    assert_eq!(Keyring::parse(&ring.text()), Ok(ring));
    let lax = "# a comment\n[client.a]\nkey=AQDl5ANq5ehGHxAA8zI+aJfW0ocDVc4uxNKD7g==\n caps_osd = allow r\n";
    let ring = Keyring::parse(lax).unwrap();
    assert_eq!(ring.0[&entity("client.a")].caps["osd"], "allow r");
    for (text, words) in [
        ("key = x", "line 1: a value before the first section"),
        ("[client.a]\nkey = !", "line 2: the key is not base64"),
        ("[client.a]\nkey = AQ==", "line 2: the key cannot be used"),
        ("[client.a]\nkey = AgDl5ANq5ehGHxAA8zI+aJfW0ocDVc4uxNKD7g==", "only 1, AES-128, is known"),
        ("[nobody]", "line 1: `nobody` names nobody"),
        ("[client.a]\n", "[client.a] has no key"),
        ("[client.a]\nkeys = 1", "line 2: `keys` is not known"),
    ] {
        let error = Keyring::parse(text).unwrap_err().to_string();
        assert!(error.contains(words) && error.lines().count() == 1, "{error}");
    }
}

proptest! {
    /// Whatever a peer sends, it is an answer or an error.
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut world = World::new();
        let mut client = world.client("client.a");
        let (side, guest) = world.connect(&mut client, true, at(0)).unwrap();
        let _ = issuer::Handshake::begin(&bytes);
        let _ = world.issuer.prove(&side, &bytes, true, at(0), || Some(1));
        let _ = world.issuer.on_request(&side, &guest, &bytes, at(0));
        let _ = client.prove(&bytes);
        let _ = client.take_reply(&bytes, at(0));
        let _ = client.mon_done(&MonHandshake::new(1), 101, &bytes, at(0));
        let authorizer = client.authorizer(EntityType::OSD).unwrap();
        let _ = (authorizer.answer(&bytes), authorizer.done(&bytes));
        let _ = service::Handshake::default().on_payload(EntityType::OSD, &world.osd_keys(), &bytes, true, at(0));
        let _ = Decoder::all(&bytes, "keys", |d| d.get::<Issuer>());
        let _ = Keyring::parse(&String::from_utf8_lossy(&bytes));
    }

    /// The same with what was right but for one byte.
    #[test]
    fn no_changed_byte_gets_in(at_byte in any::<prop::sample::Index>(), by in 1..=255u8) {
        let mut world = World::new();
        let mut client = world.client("client.a");
        world.connect(&mut client, false, at(0)).unwrap();
        let keys = world.osd_keys();
        let authorizer = client.authorizer(EntityType::OSD).unwrap();
        let mut handshake = service::Handshake::default();
        let answer = handshake.on_payload(EntityType::OSD, &keys, &authorizer.request(), false, at(1)).unwrap();
        let Answer::Challenge(challenge) = answer else { panic!("no challenge") };
        let mut more = authorizer.answer(&challenge).unwrap();
        let place = at_byte.index(more.len());
        more[place] ^= by;
        let answer = handshake.on_payload(EntityType::OSD, &keys, &more, false, at(1));
        // CBC lets some changes of the plain text pass: of the nonce, which the client checks.
        let got_in = matches!(&answer, Ok(Answer::Done { payload, .. }) if authorizer.done(payload).is_ok());
        prop_assert!(!got_in, "byte {} of {}", place, more.len());
    }
}
