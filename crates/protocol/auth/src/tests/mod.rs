//! The bytes of real Ceph 16.2.15 (`vectors.json`: one of each kind of exchange out of captures with cephx in crc and in secure mode, and
//! with three monitors; all keys are throw-away), and the three sides against each other.

mod sides;

use carmine_codec::{Coded as _, Decoder, Encoder};
use carmine_types::UTime;
use carmine_wire::EntityType;
use serde_json::Value;

use crate::client::{Authorizer, Client, MonHandshake};
use crate::issuer::{self, Issuer};
use crate::payload::{Authenticate, AuthorizerHead, RotatingKeys, proof, service_bit};
use crate::service::{self, Answer};
use crate::*;

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().map(|digit| digit.to_digit(16).expect("a hex digit") as u8).collect();
    digits.as_chunks::<2>().0.iter().map(|[high, low]| high << 4 | low).collect()
}

struct Vector(Value);

impl Vector {
    fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_else(|| panic!("no {field} in {}", self.0))
    }

    fn bytes(&self, field: &str) -> Vec<u8> {
        hex(self.text(field))
    }

    fn number(&self, field: &str) -> u64 {
        match &self.0[field] {
            Value::String(text) => {
                u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a hex number")
            }
            number => number.as_u64().expect("a number"),
        }
    }

    fn key(&self, field: &str) -> Key {
        key(&self.bytes(field))
    }

    /// The payload in a frame: after its fields of the transport, a text with its length.
    fn payload(&self, frame: &str) -> Vec<u8> {
        let bytes = self.bytes(frame);
        let mut d = Decoder::new(&bytes, "frame");
        match frame {
            "auth_request" => {
                d.u32().unwrap();
                d.vec(4, Decoder::u32).unwrap();
            }
            "auth_done" => {
                d.u64().unwrap();
                d.u32().unwrap();
            }
            _ => {}
        }
        let payload = d.blob().unwrap().to_vec();
        d.finish().unwrap();
        payload
    }

    fn is_secure(&self) -> bool {
        self.0["con_mode"] == 2
    }

    fn check_signatures(&self) {
        for side in ["c", "s"] {
            let (signed, signature) =
                (self.bytes(&format!("signed_by_{side}")), self.bytes(&format!("signature_{side}")));
            let key = self.key("session_key");
            assert_eq!(key.sign(&signed)[..], signature);
            assert!(key.verifies(&signed, &signature) && !key.verifies(&signed[1..], &signature));
        }
    }
}

fn key(secret: &[u8]) -> Key {
    let bytes = Encoder::collect(|e| {
        e.u16(1);
        e.utime(UTime::ZERO);
        e.u16(secret.len() as u16);
        e.bytes(secret);
    });
    Decoder::all(&bytes, "key", |d| d.get()).unwrap()
}

fn vectors(kind: &str, request_type: Option<&str>) -> Vec<Vector> {
    let all: Vec<Value> = serde_json::from_str(include_str!("vectors.json")).expect("JSON");
    let fits = |vector: &Value| vector["kind"] == kind && vector["request_type"].as_str() == request_type;
    let found: Vec<Vector> = all.into_iter().filter(fits).map(Vector).collect();
    assert!(found.len() > 2, "{} of {kind} {request_type:?}", found.len());
    found
}

/// A client as it was before the exchange.
fn client(vector: &Vector) -> Client {
    let entity: Entity = vector.text("entity").parse().unwrap();
    let mut client = Client::new(entity, vector.key("secret"), &[]);
    if vector.0["old_session_key"].is_string() {
        let (id, ticket) = (vector.number("old_secret_id"), vector.bytes("old_ticket"));
        client.set_auth(vector.key("old_session_key"), id, ticket);
    }
    client
}

/// Checks a proof, and that we make the same.
fn check_proof(vector: &Vector, payload: &[u8]) -> bool {
    let mut d = Decoder::new(payload, "proof");
    assert_eq!(d.u16(), Ok(0x0100));
    let authenticate: Authenticate = d.get().unwrap();
    d.finish().unwrap();
    assert_eq!(Encoder::collect(|e| authenticate.put(e)), payload[2..]);
    assert_eq!(authenticate.client_challenge, vector.number("client_challenge"));
    proof(&vector.key("secret"), vector.number("server_challenge"), authenticate.client_challenge)
        == authenticate.proof
}

#[test]
fn sessions_with_a_monitor() {
    for vector in vectors("client-to-mon", None) {
        let (handshake, _) = issuer::Handshake::begin(&vector.payload("auth_request")).unwrap();
        assert_eq!(handshake.entity().to_string(), vector.text("entity"));
        let is_right = check_proof(&vector, &vector.payload("auth_request_more"));
        if vector.0["bad_method"].is_number() {
            // A wrong key, an unknown name (whose key the decoder took from elsewhere), and one without caps for monitors.
            continue;
        }
        assert!(is_right, "{}", vector.0);
        let mut client = client(&vector);
        let (_, more) = client.prove(&vector.payload("auth_reply_more")).unwrap();
        assert_eq!(more.len(), vector.payload("auth_request_more").len());
        let handshake = MonHandshake::new(vector.number("server_challenge"));
        let (id, payload) = (vector.number("global_id"), vector.payload("auth_done"));
        let session = client.mon_done(&handshake, id, &payload, UTime::ZERO).unwrap();
        assert_eq!(session.key.secret(), vector.bytes("session_key"));
        assert_eq!(session.connection_secret.0, vector.bytes("connection_secret"));
        assert_eq!(session.connection_secret.0.len(), if vector.is_secure() { 64 } else { 0 });
        vector.check_signatures();
    }
}

#[test]
fn authorizers() {
    for vector in vectors("authorizer", None) {
        let request = vector.payload("auth_request");
        let head: AuthorizerHead = Decoder::new(&request, "authorizer").get().unwrap();
        let service = match vector.text("service") {
            "mon" => EntityType::MON,
            "osd" => EntityType::OSD,
            _ => EntityType::MGR,
        };
        assert_eq!(head.service, service_bit(service));
        let nonce = vector.0["authorize"][0]["nonce"].as_str().unwrap();
        let nonce = u64::from_str_radix(&nonce[2..], 16).unwrap();
        let authorizer = Authorizer::new(head.clone(), vector.key("session_key"), nonce);
        assert_eq!(authorizer.request(), request);
        let more = vector.payload("auth_request_more");
        assert_eq!(authorizer.answer(&vector.payload("auth_reply_more")).unwrap(), more);
        let session = authorizer.done(&vector.payload("auth_done")).unwrap();

        let keys = RotatingKeys::of_one(head.ticket.secret_id, vector.key("ticket_service_secret"));
        let seconds = vector.text("ticket_expires").split('.').next().unwrap();
        let now = UTime { sec: seconds.parse().unwrap(), nsec: 0 };
        let mut handshake = service::Handshake::default();
        let mut on = |payload: &[u8]| handshake.on_payload(service, &keys, payload, vector.is_secure(), now);
        assert!(matches!(on(&request), Ok(Answer::Challenge(sealed)) if sealed.len() == 32));
        assert!(matches!(on(&more), Err(AuthError::Replayed { .. })), "the challenge of another connection");
        let mut handshake = service::Handshake::with_challenge(vector.number("server_challenge"));
        let done = handshake.on_payload(service, &keys, &more, vector.is_secure(), now).unwrap();
        let Answer::Done { guest, session: own, payload } = done else { panic!("another challenge") };
        assert_eq!(guest.entity.to_string(), vector.text("ticket_name"));
        assert_eq!(
            (guest.global_id, guest.caps.as_deref()),
            (head.global_id, vector.0["ticket_caps"].as_str())
        );
        assert_eq!(own.key.secret(), session.key.secret());
        if !vector.is_secure() {
            assert_eq!(payload, vector.payload("auth_done"));
        }
        assert_eq!(payload.len(), vector.payload("auth_done").len());
        vector.check_signatures();
    }
}

#[test]
fn a_ticket_is_written_as_it_was_read() {
    for vector in vectors("authorizer", None) {
        let plain = vector.bytes("ticket_plaintext");
        let ticket: payload::Ticket = Decoder::all(&plain, "ticket", |d| d.get()).unwrap();
        assert_eq!(Encoder::collect(|e| ticket.put(e)), plain);
    }
}

#[test]
fn renewals_of_the_own_ticket() {
    for vector in vectors("mauth", Some("0x0100")) {
        assert!(check_proof(&vector, &vector.bytes("request")));
        let mut client = client(&vector);
        client.take_reply(&vector.bytes("reply"), UTime::ZERO).unwrap();
        let is_new = client.mon_ticket() != vector.bytes("old_ticket");
        assert!(is_new);
    }
}

#[test]
fn renewals_of_tickets_for_services() {
    for vector in vectors("mauth", Some("0x0200")) {
        let mut client = Client::new(vector.text("entity").parse().unwrap(), key(&[1; 16]), &[]);
        client.set_auth(vector.key("session_key"), 2, Vec::new());
        client.take_reply(&vector.bytes("reply"), UTime::ZERO).unwrap();
        let request = vector.bytes("request");
        let wanted = u32::from_le_bytes(*request.last_chunk().unwrap());
        for service in [EntityType::MON, EntityType::OSD, EntityType::MGR] {
            assert_eq!(client.authorizer(service).is_ok(), wanted & service_bit(service) != 0);
        }
    }
}

#[test]
fn keys_of_services() {
    for vector in vectors("mauth", Some("0x0400")) {
        assert_eq!(vector.bytes("request"), Client::rotating_request());
        let mut client = client(&vector);
        client.take_reply(&vector.bytes("reply"), UTime::ZERO).unwrap();
        assert_eq!(Encoder::collect(|e| client.rotating().put(e)), vector.bytes("plaintext"));
        let known: RotatingKeys = Decoder::all(&vector.bytes("plaintext"), "keys", |d| d.get()).unwrap();
        assert_eq!(*client.rotating(), known);
    }
}

#[test]
fn keys_show_themselves_to_nobody() {
    let key = key(&[0xab; 16]);
    let mut issuer = Issuer::default();
    issuer.rotate(UTime { sec: 9, nsec: 0 }).unwrap();
    let entry = Entry { key: key.clone(), caps: [].into() };
    issuer.entities.insert("client.a".parse().unwrap(), entry);
    let shown = format!("{key:?} {issuer:?} {:?}", Secret(vec![0xab; 64]));
    assert!(!shown.contains("171") && !shown.to_lowercase().contains("abab"), "{shown}");
}
