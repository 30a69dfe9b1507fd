//! The side of the monitor: knows everybody's keys, and gives out tickets (Ceph's `KeyServer` and `CephxServiceHandler`).

use std::collections::BTreeMap;

use carmine_codec::{Coded, DecodeError, Decoder, Encoder};
use carmine_types::UTime;
use carmine_wire::EntityType;

use crate::client::Session;
use crate::envelope::{open, put_sealed, seal, versioned};
use crate::key::{Key, SESSION_SECRET_BYTES, Secret, random_u64};
use crate::keyring::{Entity, Entry};
use crate::payload::{
    Authenticate, Authorize, AuthorizerHead, Issued, MODE_MON, RotatingKeys, Ticket, TicketBlob, proof,
    put_tickets, request, service_bit, service_name,
};
use crate::service::{Guest, read_ticket};
use crate::{AuthError, Result};

/// Services that have keys of their own.
const SERVICES: [EntityType; 5] =
    [EntityType::MON, EntityType::MDS, EntityType::OSD, EntityType::MGR, EntityType::AUTH];

/// How long tickets are valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// For a service (`auth_service_ticket_ttl`).
    pub service: UTime,
    /// For the monitors (`auth_mon_ticket_ttl`).
    pub auth: UTime,
}

impl Default for Validity {
    /// Those of Ceph 16.2.15: an hour, and three days.
    fn default() -> Validity {
        let hours = |hours: u32| UTime { sec: hours * 3600, nsec: 0 };
        Validity { service: hours(1), auth: hours(72) }
    }
}

/// Everybody's keys and caps, and the services' keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Issuer {
    /// Who is known.
    pub entities: BTreeMap<Entity, Entry>,
    services: BTreeMap<u32, RotatingKeys>,
    /// How long tickets are valid.
    pub validity: Validity,
}

/// A handshake with somebody who wants tickets.
#[derive(Debug)]
pub struct Handshake {
    entity: Entity,
    /// The id that it wants to keep; 0: a new one.
    global_id: u64,
    challenge: u64,
}

impl Handshake {
    /// Reads the payload of AUTH_REQUEST. Returns the payload of AUTH_REPLY_MORE, which is the same for names that nobody has.
    ///
    /// # Errors
    /// It cannot be read, or there are no random numbers.
    pub fn begin(payload: &[u8]) -> Result<(Handshake, Vec<u8>)> {
        let (entity, global_id) = Decoder::all(payload, "request for tickets", |d| match d.u8()? {
            MODE_MON => Ok((d.get()?, d.u64()?)),
            mode => Err(DecodeError::BadValue { what: "mode of a request for tickets", value: mode.into() }),
        })?;
        let challenge = random_u64()?;
        let more = Encoder::collect(|e| {
            e.u8(1);
            e.u64(challenge);
        });
        Ok((Handshake { entity, global_id, challenge }, more))
    }

    /// Who it says it is.
    #[must_use]
    pub fn entity(&self) -> &Entity {
        &self.entity
    }

    /// The id that it wants to keep; 0: a new one.
    #[must_use]
    pub fn wanted_id(&self) -> u64 {
        self.global_id
    }
}

/// Somebody who has proved its key.
#[derive(Debug)]
pub struct Proved {
    /// Who, and what it may do at monitors.
    pub guest: Guest,
    /// What both ends know.
    pub session: Session,
    /// AUTH_DONE's payload.
    pub payload: Vec<u8>,
}

impl Issuer {
    /// Replaces the keys of services whose time has come; true if there are new ones, which have to be kept before they are used.
    ///
    /// # Errors
    /// [`AuthError::NoRandom`].
    pub fn rotate(&mut self, now: UTime) -> Result<bool> {
        let mut has_changed = false;
        for service in SERVICES {
            let ttl = if service == EntityType::AUTH { self.validity.auth } else { self.validity.service };
            has_changed |= self.services.entry(service_bit(service)).or_default().rotate(now, ttl)?;
        }
        Ok(has_changed)
    }

    /// Whether [`Issuer::rotate`] would replace keys.
    #[must_use]
    pub fn is_due(&self, now: UTime) -> bool {
        let expires = |service| self.services.get(&service_bit(service)).and_then(RotatingKeys::expires);
        SERVICES.into_iter().any(|service| expires(service).is_none_or(|expires| expires <= now))
    }

    /// Reads the payload of AUTH_REQUEST_MORE. `new_id` gives an id that was never used.
    ///
    /// # Errors
    /// Why the peer is not let in.
    pub fn prove(
        &self,
        handshake: &Handshake,
        payload: &[u8],
        is_secure: bool,
        now: UTime,
        new_id: impl FnOnce() -> Option<u64>,
    ) -> Result<Proved> {
        let mut d = Decoder::new(payload, "proof of a key");
        match d.u16()? {
            request::AUTH_SESSION_KEY => {}
            other => return Err(AuthError::UnknownRequest(other)),
        }
        let authenticate: Authenticate = d.get()?;
        d.finish()?;
        let entry = self.check_proof(handshake, &authenticate)?;
        let old = self.old_ticket(&authenticate.old_ticket);
        let (entity, wanted) = (&handshake.entity, handshake.global_id);
        let foreign = || AuthError::ForeignId { entity: entity.to_string(), global_id: wanted };
        let global_id = match (wanted, &old) {
            (0, _) if !authenticate.old_ticket.blob.is_empty() => return Err(foreign()),
            (0, _) => new_id().ok_or_else(foreign)?,
            (id, Some(old)) if old.global_id == id && old.entity == *entity => id,
            _ => return Err(foreign()),
        };
        let caps = entry.caps.get("mon").filter(|caps| !caps.is_empty());
        let caps = caps.ok_or_else(|| AuthError::NoMonCaps { entity: entity.to_string() })?.clone();
        let secret = if is_secure { Secret::random(SESSION_SECRET_BYTES)? } else { Secret::default() };
        let auth = self.issue(service_bit(EntityType::AUTH), entity, entry, global_id, now)?;
        let (key, old) = (auth.session_key.clone(), old.map(|old| old.session_key));
        let wanted = authenticate.other_keys & !service_bit(EntityType::AUTH);
        let extra = self.issue_all(wanted, entity, entry, global_id, now)?;
        let payload = Encoder::collect(|e| {
            put_head(e, request::AUTH_SESSION_KEY);
            put_tickets(e, &[auth], &entry.key, old.as_ref());
            if authenticate.other_keys != 0 {
                e.with_len(|e| put_sealed(e, &key, |e| e.blob(&secret.0)));
                put_more_tickets(e, &extra, &key);
            }
        });
        let guest = Guest { entity: entity.clone(), global_id, caps: Some(caps) };
        Ok(Proved { guest, session: Session { key, connection_secret: secret }, payload })
    }

    /// The entry of who proves to have its key.
    fn check_proof(&self, handshake: &Handshake, authenticate: &Authenticate) -> Result<&Entry> {
        let entity = || handshake.entity.to_string();
        let entry = self.entities.get(&handshake.entity);
        let entry = entry.ok_or_else(|| AuthError::UnknownEntity { entity: entity() })?;
        let expected = proof(&entry.key, handshake.challenge, authenticate.client_challenge);
        if expected != authenticate.proof {
            return Err(AuthError::WrongProof { entity: entity() });
        }
        Ok(entry)
    }

    /// What a ticket of an earlier session says, if it is one of ours.
    fn old_ticket(&self, ticket: &TicketBlob) -> Option<Ticket> {
        let keys = self.services.get(&service_bit(EntityType::AUTH))?;
        read_ticket(keys.get(ticket.secret_id)?, &ticket.blob).ok()
    }

    /// Answers the payload of MAuth on the session of `guest`, whose handshake had this challenge. Returns the payload of MAuthReply.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn on_request(
        &self,
        handshake: &Handshake,
        guest: &Guest,
        payload: &[u8],
        now: UTime,
    ) -> Result<Vec<u8>> {
        let entity = &guest.entity;
        let entry = self
            .entities
            .get(entity)
            .ok_or_else(|| AuthError::UnknownEntity { entity: entity.to_string() })?;
        let mut d = Decoder::new(payload, "request of a session");
        match d.u16()? {
            request::AUTH_SESSION_KEY => {
                let authenticate: Authenticate = d.get()?;
                d.finish()?;
                self.check_proof(handshake, &authenticate)?;
                let old = self.old_ticket(&authenticate.old_ticket).map(|old| old.session_key);
                let auth = self.issue(service_bit(EntityType::AUTH), entity, entry, guest.global_id, now)?;
                let (key, wanted) = (auth.session_key.clone(), authenticate.other_keys);
                let extra = self.issue_all(
                    wanted & !service_bit(EntityType::AUTH),
                    entity,
                    entry,
                    guest.global_id,
                    now,
                )?;
                Ok(Encoder::collect(|e| {
                    put_head(e, request::AUTH_SESSION_KEY);
                    put_tickets(e, &[auth], &entry.key, old.as_ref());
                    // The connection keeps its secret.
                    e.blob(&[]);
                    put_more_tickets(e, &extra, &key);
                }))
            }
            request::PRINCIPAL_SESSION_KEY => self.renew_services(entry, &mut d, now),
            request::ROTATING_KEY => {
                d.finish()?;
                let service = service_bit(entity.kind);
                let keys = self.services.get(&service);
                let keys = keys.ok_or_else(|| AuthError::NoTicket { service: service_name(service) })?;
                Ok(Encoder::collect(|e| {
                    put_head(e, request::ROTATING_KEY);
                    put_sealed(e, &entry.key, |e| keys.put(e));
                }))
            }
            other => Err(AuthError::UnknownRequest(other)),
        }
    }

    /// Tickets for services, for who has one for the monitors.
    fn renew_services(&self, entry: &Entry, d: &mut Decoder<'_>, now: UTime) -> Result<Vec<u8>> {
        let head: AuthorizerHead = d.get()?;
        let sealed = d.blob()?;
        versioned(d, "request for tickets", 1)?;
        let wanted = d.u32()?;
        d.finish()?;
        let id = head.ticket.secret_id;
        let ticket = self.old_ticket(&head.ticket);
        let ticket =
            ticket.ok_or_else(|| AuthError::UnknownSecret { secret_id: id, known: "others".to_owned() })?;
        // Only who knows the session's key can write this.
        let _: Authorize = open(&ticket.session_key, sealed, "authorizer", |d| d.get())?;
        let tickets = self.issue_all(wanted, &ticket.entity, entry, ticket.global_id, now)?;
        Ok(Encoder::collect(|e| {
            put_head(e, request::PRINCIPAL_SESSION_KEY);
            put_tickets(e, &tickets, &ticket.session_key, None);
        }))
    }

    fn issue_all(
        &self,
        wanted: u32,
        entity: &Entity,
        entry: &Entry,
        global_id: u64,
        now: UTime,
    ) -> Result<Vec<Issued>> {
        let all = SERVICES.map(service_bit);
        all.into_iter()
            .filter(|service| wanted & service != 0)
            .map(|service| self.issue(service, entity, entry, global_id, now))
            .collect()
    }

    fn issue(
        &self,
        service: u32,
        entity: &Entity,
        entry: &Entry,
        global_id: u64,
        now: UTime,
    ) -> Result<Issued> {
        let none = || AuthError::NoTicket { service: service_name(service) };
        let (secret_id, key) =
            self.services.get(&service).and_then(|keys| keys.current(now)).ok_or_else(none)?;
        let validity = match service == service_bit(EntityType::AUTH) {
            true => self.validity.auth,
            false => self.validity.service,
        };
        let session_key = Key::random(now)?;
        let has_caps = ![service_bit(EntityType::AUTH), service_bit(EntityType::MON)].contains(&service);
        let ticket = Ticket {
            entity: entity.clone(),
            global_id,
            created: now,
            expires: crate::payload::later(now, validity),
            caps: entry.caps.get(&service_name(service)).filter(|_| has_caps).cloned(),
            session_key: session_key.clone(),
        };
        let blob = seal(key, |e| ticket.put(e));
        Ok(Issued { service, session_key, validity, ticket: TicketBlob { secret_id, blob } })
    }

    /// The keys of a service, for a daemon in the same process.
    #[must_use]
    pub fn service_keys(&self, service: EntityType) -> Option<&RotatingKeys> {
        self.services.get(&service_bit(service))
    }
}

/// Tickets for services beside the own one; nothing if there are none.
fn put_more_tickets(e: &mut Encoder<'_>, extra: &[Issued], key: &Key) {
    e.with_len(|e| {
        if !extra.is_empty() {
            put_tickets(e, extra, key, None);
        }
    });
}

fn put_head(e: &mut Encoder<'_>, request: u16) {
    e.u16(request);
    e.u32(0);
}

/// Everything that a monitor has to keep: who is known, and the services' keys.
impl Coded for Issuer {
    const BYTES_MIN: usize = 9;

    fn put(&self, e: &mut Encoder<'_>) {
        e.u8(1);
        e.count(self.entities.len());
        for (entity, Entry { key, caps }) in &self.entities {
            entity.put(e);
            key.put(e);
            caps.put(e);
        }
        self.services.put(e);
    }

    fn get(d: &mut Decoder<'_>) -> carmine_codec::Result<Issuer> {
        versioned(d, "keys of a monitor", 1)?;
        let mut entities = BTreeMap::new();
        for _ in 0..d.count(Entity::BYTES_MIN + Key::BYTES_MIN)? {
            entities.insert(d.get()?, Entry { key: d.get()?, caps: d.get()? });
        }
        Ok(Issuer { entities, services: d.get()?, validity: Validity::default() })
    }
}
