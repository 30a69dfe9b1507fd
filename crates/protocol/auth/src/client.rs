//! The side that proves who it is: to a monitor with its key, to daemons with tickets.

use std::collections::BTreeMap;

use carmine_codec::{Coded as _, Decoder, Encoder};
use carmine_types::UTime;
use carmine_wire::EntityType;

use crate::envelope::{open, put_sealed, seal, versioned};
use crate::key::{Key, Secret, random_u64};
use crate::keyring::Entity;
use crate::payload::{
    Authenticate, Authorize, AuthorizerHead, Issued, MODE_MON, RotatingKeys, TicketBlob, answer_to,
    get_tickets, later, open_connection_secret, proof, request, service_bit, service_name,
};
use crate::{AuthError, Result};

/// What both ends of a connection know after the handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// With this each signs what it has received.
    pub key: Key,
    /// What the mode that encrypts takes its keys from; empty in the other one.
    pub connection_secret: Secret,
}

/// A ticket that is held.
#[derive(Clone, Debug)]
struct Held {
    session_key: Key,
    ticket: TicketBlob,
    renew_after: UTime,
}

impl Held {
    fn new(issued: Issued, now: UTime) -> Held {
        let validity = issued.validity.to_unix();
        let renew_after = later(now, UTime::from_unix(validity - validity / 4));
        Held { session_key: issued.session_key, ticket: issued.ticket, renew_after }
    }
}

/// An entity, and the tickets that it holds.
#[derive(Debug)]
pub struct Client {
    entity: Entity,
    key: Key,
    /// Services for which tickets are wanted, as a mask.
    wanted: u32,
    /// The id that the monitor gave to this process; 0: none yet.
    global_id: u64,
    auth: Option<Held>,
    tickets: BTreeMap<u32, Held>,
    /// The challenge of the last handshake with a monitor, which renewals answer, too.
    server_challenge: u64,
    rotating: RotatingKeys,
}

/// A handshake with a monitor.
#[derive(Debug)]
pub struct MonHandshake {
    server_challenge: u64,
}

impl Client {
    /// An entity that wants tickets for these services.
    #[must_use]
    pub fn new(entity: Entity, key: Key, services: &[EntityType]) -> Client {
        let wanted = services.iter().fold(0, |mask, service| mask | service_bit(*service));
        Client {
            entity,
            key,
            wanted,
            global_id: 0,
            auth: None,
            tickets: BTreeMap::new(),
            server_challenge: 0,
            rotating: RotatingKeys::default(),
        }
    }

    /// The entity that holds the key.
    #[must_use]
    pub fn entity(&self) -> &Entity {
        &self.entity
    }

    /// The id that the monitor gave to this process; 0: none yet.
    #[must_use]
    pub fn global_id(&self) -> u64 {
        self.global_id
    }

    /// AUTH_REQUEST's payload for a monitor.
    #[must_use]
    pub fn mon_request(&self) -> Vec<u8> {
        Encoder::collect(|e| {
            e.u8(MODE_MON);
            self.entity.put(e);
            e.u64(self.global_id);
        })
    }

    /// Answers the monitor's challenge.
    ///
    /// # Errors
    /// It is none, or there are no random numbers.
    pub fn prove(&self, challenge: &[u8]) -> Result<(MonHandshake, Vec<u8>)> {
        let server_challenge = Decoder::all(challenge, "challenge of the monitor", |d| {
            versioned(d, "challenge of the monitor", 1)?;
            d.u64()
        })?;
        let payload = self.authenticate(server_challenge, self.wanted | service_bit(EntityType::AUTH))?;
        Ok((MonHandshake { server_challenge }, payload))
    }

    fn authenticate(&self, server_challenge: u64, other_keys: u32) -> Result<Vec<u8>> {
        let client_challenge = random_u64()?;
        let authenticate = Authenticate {
            client_challenge,
            proof: proof(&self.key, server_challenge, client_challenge),
            old_ticket: self.auth.as_ref().map(|held| held.ticket.clone()).unwrap_or_default(),
            other_keys,
        };
        Ok(Encoder::collect(|e| {
            e.u16(request::AUTH_SESSION_KEY);
            authenticate.put(e);
        }))
    }

    /// Takes over the tickets that the monitor gives at the end of a handshake.
    ///
    /// # Errors
    /// The monitor does not know this entity's key, or another handshake has ended before with another id.
    pub fn mon_done(
        &mut self,
        handshake: &MonHandshake,
        global_id: u64,
        payload: &[u8],
        now: UTime,
    ) -> Result<Session> {
        if self.global_id != 0 && self.global_id != global_id {
            return Err(AuthError::ForeignId { entity: self.entity.to_string(), global_id });
        }
        let (key, connection_secret) = self.take_tickets(payload, now)?;
        (self.global_id, self.server_challenge) = (global_id, handshake.server_challenge);
        Ok(Session { key, connection_secret })
    }

    /// Reads the answer to a proof. Returns the session's key and the connection's secret.
    fn take_tickets(&mut self, payload: &[u8], now: UTime) -> Result<(Key, Secret)> {
        let mut d = Decoder::new(payload, "answer to a proof");
        answer_to(&mut d, request::AUTH_SESSION_KEY)?;
        let old = self.auth.as_ref().map(|held| held.session_key.clone());
        let tickets = get_tickets(&mut d, &self.key, old.as_ref())?;
        let auth = tickets.into_iter().find(|issued| issued.service == service_bit(EntityType::AUTH));
        let auth = auth.ok_or_else(|| AuthError::NoTicket { service: "auth".to_owned() })?;
        let key = auth.session_key.clone();
        // Monitors before Nautilus end here.
        let (secret, extra) = if d.is_empty() { (&[][..], &[][..]) } else { (d.blob()?, d.blob()?) };
        let connection_secret = open_connection_secret(&key, secret)?;
        if !extra.is_empty() {
            let tickets = get_tickets(&mut Decoder::new(extra, "more tickets"), &key, None)?;
            self.hold(tickets, now);
        }
        d.finish()?;
        self.auth = Some(Held::new(auth, now));
        Ok((key, connection_secret))
    }

    fn hold(&mut self, tickets: Vec<Issued>, now: UTime) {
        for issued in tickets {
            self.tickets.insert(issued.service, Held::new(issued, now));
        }
    }

    /// Payloads of MAuth that are due; no others should be sent until all have been answered. Tickets are renewed after three quarters of
    /// their time.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn renewals(&self, now: UTime) -> Result<Vec<Vec<u8>>> {
        let Some(auth) = &self.auth else { return Ok(Vec::new()) };
        let mut due = Vec::new();
        if auth.renew_after <= now {
            // It comes alone: the answers to others are encrypted with its session key, which changes.
            let other_keys = service_bit(EntityType::AUTH);
            return Ok(vec![self.authenticate(self.server_challenge, other_keys)?]);
        }
        let missing = |service: u32| self.tickets.get(&service).is_none_or(|held| held.renew_after <= now);
        let bits = (0..u32::BITS).map(|bit| 1 << bit).filter(|bit| self.wanted & bit != 0);
        let services: u32 = bits.filter(|service| missing(*service)).sum();
        if services != 0 {
            let authorizer = self.authorizer_with(service_bit(EntityType::AUTH), auth)?;
            due.push(Encoder::collect(|e| {
                e.u16(request::PRINCIPAL_SESSION_KEY);
                e.bytes(&authorizer.request());
                e.u8(1);
                e.u32(services);
            }));
        }
        Ok(due)
    }

    /// Payload of MAuth by which a daemon asks for its service's keys.
    #[must_use]
    pub fn rotating_request() -> Vec<u8> {
        Encoder::collect(|e| e.u16(request::ROTATING_KEY))
    }

    /// Takes over the monitor's answer to one of these payloads (the payload of MAuthReply).
    ///
    /// # Errors
    /// It cannot be read, or refuses.
    pub fn take_reply(&mut self, payload: &[u8], now: UTime) -> Result<()> {
        let mut d = Decoder::new(payload, "answer of the monitor");
        match Decoder::new(payload, "answer of the monitor").u16()? {
            request::AUTH_SESSION_KEY => self.take_tickets(payload, now).map(drop),
            request::PRINCIPAL_SESSION_KEY => {
                answer_to(&mut d, request::PRINCIPAL_SESSION_KEY)?;
                let auth = self.auth.as_ref().ok_or(AuthError::WrongAnswer)?;
                let tickets = get_tickets(&mut d, &auth.session_key, None)?;
                d.finish()?;
                self.hold(tickets, now);
                Ok(())
            }
            request::ROTATING_KEY => {
                answer_to(&mut d, request::ROTATING_KEY)?;
                self.rotating = open(&self.key, d.blob()?, "service keys", |d| d.get())?;
                d.finish()?;
                Ok(())
            }
            other => Err(AuthError::UnknownRequest(other)),
        }
    }

    /// The keys of its service, as far as they were asked for.
    #[must_use]
    pub fn rotating(&self) -> &RotatingKeys {
        &self.rotating
    }

    /// What a daemon of this service wants to see.
    ///
    /// # Errors
    /// There is no ticket for it yet, or there are no random numbers.
    pub fn authorizer(&self, service: EntityType) -> Result<Authorizer> {
        let service = service_bit(service);
        let held = self.tickets.get(&service);
        let held = held.ok_or_else(|| AuthError::NoTicket { service: service_name(service) })?;
        self.authorizer_with(service, held)
    }

    fn authorizer_with(&self, service: u32, held: &Held) -> Result<Authorizer> {
        let head = AuthorizerHead { global_id: self.global_id, service, ticket: held.ticket.clone() };
        Ok(Authorizer { head, session_key: held.session_key.clone(), nonce: random_u64()? })
    }

    /// A daemon has refused the ticket for this service: the next renewal asks for another.
    pub fn drop_ticket(&mut self, service: EntityType) {
        self.tickets.remove(&service_bit(service));
    }

    /// A monitor does not accept the old ticket any more: this process begins anew, with another id.
    pub fn forget(&mut self) {
        (self.global_id, self.auth) = (0, None);
        self.tickets.clear();
    }

    /// The tickets that are held, for other reactors: these present them, too, and this one renews them.
    #[must_use]
    pub fn tickets(&self) -> Tickets {
        Tickets { global_id: self.global_id, held: self.tickets.clone() }
    }
}

/// Tickets that can be presented but not renewed.
#[derive(Clone, Debug, Default)]
pub struct Tickets {
    global_id: u64,
    held: BTreeMap<u32, Held>,
}

impl Tickets {
    /// What a daemon of this service wants to see.
    ///
    /// # Errors
    /// There is no ticket for it yet, or there are no random numbers.
    pub fn authorizer(&self, service: EntityType) -> Result<Authorizer> {
        let service = service_bit(service);
        let held = self.held.get(&service);
        let held = held.ok_or_else(|| AuthError::NoTicket { service: service_name(service) })?;
        let head = AuthorizerHead { global_id: self.global_id, service, ticket: held.ticket.clone() };
        Ok(Authorizer { head, session_key: held.session_key.clone(), nonce: random_u64()? })
    }

    /// The id that the monitor gave to this process.
    #[must_use]
    pub fn global_id(&self) -> u64 {
        self.global_id
    }
}

/// A ticket on its way to a daemon, on one connection.
#[derive(Debug)]
pub struct Authorizer {
    head: AuthorizerHead,
    session_key: Key,
    nonce: u64,
}

impl Authorizer {
    /// AUTH_REQUEST's payload.
    #[must_use]
    pub fn request(&self) -> Vec<u8> {
        self.payload(None)
    }

    fn payload(&self, answer: Option<u64>) -> Vec<u8> {
        Encoder::collect(|e| {
            self.head.put(e);
            put_sealed(e, &self.session_key, |e| Authorize { nonce: self.nonce, answer }.put(e));
        })
    }

    /// AUTH_REQUEST_MORE's payload: the answer to the daemon's challenge.
    ///
    /// # Errors
    /// It is none.
    pub fn answer(&self, challenge: &[u8]) -> Result<Vec<u8>> {
        let challenge = open(&self.session_key, challenge, "challenge of a daemon", |d| {
            versioned(d, "challenge of a daemon", 1)?;
            d.u64()
        })?;
        Ok(self.payload(Some(challenge.wrapping_add(1))))
    }

    /// Checks AUTH_DONE's payload.
    ///
    /// # Errors
    /// The daemon does not know the session's key, or answers somebody else.
    pub fn done(&self, payload: &[u8]) -> Result<Session> {
        let mut outer = Decoder::new(payload, "answer of a daemon");
        let (nonce, connection_secret) = open(&self.session_key, outer.blob()?, "answer of a daemon", |d| {
            let version = versioned(d, "answer of a daemon", 2)?;
            let nonce = d.u64()?;
            let secret = if version > 1 { d.blob()?.to_vec() } else { Vec::new() };
            Ok((nonce, Secret(secret)))
        })?;
        outer.finish()?;
        if nonce != self.nonce.wrapping_add(1) {
            return Err(AuthError::WrongAnswer);
        }
        Ok(Session { key: self.session_key.clone(), connection_secret })
    }
}

/// A daemon's challenge, which is raw ciphertext without a length.
pub(crate) fn seal_challenge(key: &Key, challenge: u64) -> Vec<u8> {
    seal(key, |e| {
        e.u8(1);
        e.u64(challenge);
    })
}

#[cfg(test)]
mod testing {
    use super::*;

    impl Client {
        pub(crate) fn set_auth(&mut self, session_key: Key, secret_id: u64, blob: Vec<u8>) {
            let ticket = TicketBlob { secret_id, blob };
            self.auth = Some(Held { session_key, ticket, renew_after: UTime::ZERO });
        }

        pub(crate) fn mon_ticket(&self) -> Vec<u8> {
            self.auth.as_ref().map(|held| held.ticket.blob.clone()).unwrap_or_default()
        }

        pub(crate) fn set_key(&mut self, key: Key) {
            self.key = key;
        }

        pub(crate) fn set_global_id(&mut self, global_id: u64) {
            self.global_id = global_id;
        }
    }

    impl MonHandshake {
        pub(crate) fn new(server_challenge: u64) -> MonHandshake {
            MonHandshake { server_challenge }
        }
    }

    impl Authorizer {
        pub(crate) fn new(head: AuthorizerHead, session_key: Key, nonce: u64) -> Authorizer {
            Authorizer { head, session_key, nonce }
        }
    }
}
