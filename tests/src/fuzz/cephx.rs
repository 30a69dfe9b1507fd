//! cephx: what each side reads of a peer, and keyrings.

use carmine_auth::client::Client;
use carmine_auth::issuer::{self, Issuer};
use carmine_auth::{Entity, Entry, Key, Keyring, RotatingKeys, service};
use carmine_types::UTime;
use carmine_wire::EntityType;

const NOW: UTime = UTime { sec: 1_000_000, nsec: 0 };

/// The first byte says who reads the rest.
pub(super) fn all_sides(bytes: &[u8]) {
    let Some((side, bytes)) = bytes.split_first() else { return };
    let key = Key::from_base64("AQAAAAAAAAAAABAAAQEBAQEBAQEBAQEBAQEBAQ==").expect("a key");
    let entity = Entity::new(EntityType::CLIENT, "a");
    let mut client = Client::new(entity.clone(), key.clone(), &[EntityType::OSD]);
    let mut issuer = Issuer::default();
    let caps = [("mon".to_owned(), "allow r".to_owned())].into();
    issuer.entities.insert(entity, Entry { key, caps });
    issuer.rotate(NOW).expect("random numbers");
    match side % 6 {
        0 => drop(issuer::Handshake::begin(bytes)),
        1 => {
            let (handshake, challenge) = issuer::Handshake::begin(&client.mon_request()).expect("a request");
            drop(client.prove(&challenge).expect("a challenge"));
            drop(issuer.prove(&handshake, bytes, true, NOW, || Some(1)));
        }
        2 => drop(client.prove(bytes)),
        3 => drop(client.take_reply(bytes, NOW)),
        4 => {
            let keys = issuer.service_keys(EntityType::OSD).cloned().unwrap_or_else(RotatingKeys::default);
            drop(service::Handshake::default().on_payload(EntityType::OSD, &keys, bytes, true, NOW));
        }
        _ => drop(Keyring::parse(&String::from_utf8_lossy(bytes))),
    }
}

pub(super) fn seeds() -> Vec<Vec<u8>> {
    let key = Key::from_base64("AQAAAAAAAAAAABAAAQEBAQEBAQEBAQEBAQEBAQ==").expect("a key");
    let entity = Entity::new(EntityType::CLIENT, "a");
    let client = Client::new(entity.clone(), key.clone(), &[EntityType::OSD]);
    let ring = Keyring([(entity, Entry { key, caps: [("osd".into(), "allow r".into())].into() })].into());
    let challenge = [&[1u8][..], &7u64.to_le_bytes()].concat();
    let (_, proof) = client.prove(&challenge).expect("a challenge");
    let with = |side: u8, bytes: &[u8]| [&[side][..], bytes].concat();
    vec![
        with(0, &client.mon_request()),
        with(1, &proof),
        with(2, &challenge),
        with(3, &[0, 4, 0, 0, 0, 0, 32, 0, 0, 0]),
        with(4, &[1, 1, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        with(5, ring.text().as_bytes()),
    ]
}
