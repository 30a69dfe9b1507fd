//! The structures that the sides exchange. None has a length of its own: each begins with a byte that is its version.

use std::collections::BTreeMap;
use std::fmt;

use carmine_codec::{Coded, DecodeError, Decoder, Encoder, coded};
use carmine_types::UTime;
use carmine_wire::EntityType;

use crate::envelope::{open, put_sealed, versioned};
use crate::key::{Key, Secret};
use crate::keyring::Entity;
use crate::{AuthError, Result};

/// First byte of an AUTH_REQUEST to a service, and to a monitor.
pub(crate) const MODE_AUTHORIZER: u8 = 1;
pub(crate) const MODE_MON: u8 = 10;

/// Kinds of requests to a monitor.
pub(crate) mod request {
    pub(crate) const AUTH_SESSION_KEY: u16 = 0x0100;
    pub(crate) const PRINCIPAL_SESSION_KEY: u16 = 0x0200;
    pub(crate) const ROTATING_KEY: u16 = 0x0400;
}

/// A service, as a bit of a mask: the number of its entity type.
#[must_use]
pub fn service_bit(service: EntityType) -> u32 {
    service.0.into()
}

pub(crate) fn service_name(service: u32) -> String {
    u8::try_from(service).map_or_else(|_| format!("service {service}"), |bit| EntityType(bit).to_string())
}

impl Coded for Entity {
    const BYTES_MIN: usize = 8;

    fn put(&self, e: &mut Encoder<'_>) {
        e.u32(self.kind.0.into());
        e.str(&self.id);
    }

    fn get(d: &mut Decoder<'_>) -> carmine_codec::Result<Entity> {
        let kind = d.u32()?;
        let kind = u8::try_from(kind)
            .map_err(|_| DecodeError::BadValue { what: "entity type", value: kind.into() })?;
        Ok(Entity { kind: EntityType(kind), id: d.string()? })
    }
}

/// A ticket as its holder has it (`CephXTicketBlob`): encrypted with a key of the service, which `secret_id` names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TicketBlob {
    pub(crate) secret_id: u64,
    pub(crate) blob: Vec<u8>,
}

impl Coded for TicketBlob {
    const BYTES_MIN: usize = 13;

    fn put(&self, e: &mut Encoder<'_>) {
        e.u8(1);
        e.u64(self.secret_id);
        e.blob(&self.blob);
    }

    fn get(d: &mut Decoder<'_>) -> carmine_codec::Result<TicketBlob> {
        versioned(d, "ticket", 1)?;
        Ok(TicketBlob { secret_id: d.u64()?, blob: d.blob()?.to_vec() })
    }
}

/// What a ticket says, readable by its service (`CephXServiceTicketInfo` with its `AuthTicket`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) entity: Entity,
    pub(crate) global_id: u64,
    pub(crate) created: UTime,
    pub(crate) expires: UTime,
    /// The caps for this service as text; `None`: it has none.
    pub(crate) caps: Option<String>,
    pub(crate) session_key: Key,
}

/// Unused since Ceph has pools with names.
const AUID: u64 = u64::MAX;
const NSEC_PER_S: u32 = 1_000_000_000;

fn always(found: u64, value: u64, what: &'static str) -> carmine_codec::Result<()> {
    if found == value { Ok(()) } else { Err(DecodeError::BadValue { what, value: found }) }
}

impl Coded for Ticket {
    const BYTES_MIN: usize = 60;

    fn put(&self, e: &mut Encoder<'_>) {
        e.u8(1);
        e.u8(2);
        self.entity.put(e);
        e.u64(self.global_id);
        e.u64(AUID);
        e.utime(self.created);
        e.utime(self.expires);
        e.u8(1);
        e.u8(0); // allow_all
        // A text within a blob: two lengths.
        e.with_len(|e| self.caps.iter().for_each(|caps| e.str(caps)));
        e.u32(0); // flags
        self.session_key.put(e);
    }

    fn get(d: &mut Decoder<'_>) -> carmine_codec::Result<Ticket> {
        versioned(d, "ticket for a service", 1)?;
        versioned(d, "ticket", 2)?;
        let entity = d.get()?;
        let global_id = d.u64()?;
        // CBC has no checksum: whoever changes a byte of a ticket turns the sixteen bytes around it into noise. So the fields that nobody
        // uses, of which each of the first blocks has one, must be what they always are.
        always(d.u64()?, AUID, "auid of a ticket")?;
        let (created, expires) = (d.utime()?, d.utime()?);
        for time in [created, expires] {
            always(u64::from(time.nsec / NSEC_PER_S), 0, "time of a ticket")?;
        }
        versioned(d, "caps of a ticket", 1)?;
        let allow_all = d.bool()?;
        let caps = match (d.blob()?, allow_all) {
            (_, true) => Some("allow *".to_owned()),
            ([], false) => None,
            (text, false) => Some(Decoder::all(text, "caps", |d| d.string())?),
        };
        always(d.u32()?.into(), 0, "flags of a ticket")?;
        Ok(Ticket { entity, global_id, created, expires, caps, session_key: d.get()? })
    }
}

/// One ticket for its holder. The holder alone can read the encrypted part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Issued {
    pub(crate) service: u32,
    pub(crate) session_key: Key,
    /// How long it is valid.
    pub(crate) validity: UTime,
    pub(crate) ticket: TicketBlob,
}

/// Tickets of one answer, at most: a service is a bit of a mask of 32.
const TICKETS_MAX: u32 = 32;

/// Writes tickets. Session keys are encrypted with `key`; the tickets, too, if their holder had one whose session key is `old`.
pub(crate) fn put_tickets(e: &mut Encoder<'_>, tickets: &[Issued], key: &Key, old: Option<&Key>) {
    e.u8(1);
    e.count(tickets.len());
    for issued in tickets {
        e.u32(issued.service);
        e.u8(1);
        put_sealed(e, key, |e| {
            e.u8(1);
            issued.session_key.put(e);
            e.utime(issued.validity);
        });
        e.u8(old.is_some().into());
        match old {
            None => e.with_len(|e| issued.ticket.put(e)),
            Some(old) => put_sealed(e, old, |e| e.with_len(|e| issued.ticket.put(e))),
        }
    }
}

/// Reads what [`put_tickets`] wrote.
pub(crate) fn get_tickets(d: &mut Decoder<'_>, key: &Key, old: Option<&Key>) -> Result<Vec<Issued>> {
    versioned(d, "answer with tickets", 1)?;
    let count = d.u32()?;
    if count > TICKETS_MAX {
        return Err(DecodeError::BadValue { what: "number of tickets", value: count.into() }.into());
    }
    (0..count).map(|_| get_ticket(d, key, old)).collect()
}

fn get_ticket(d: &mut Decoder<'_>, key: &Key, old: Option<&Key>) -> Result<Issued> {
    let service = d.u32()?;
    versioned(d, "ticket in an answer", 1)?;
    let (session_key, validity) = open(key, d.blob()?, "session key of a ticket", |d| {
        versioned(d, "session key of a ticket", 1)?;
        Ok((d.get()?, d.utime()?))
    })?;
    let is_sealed = d.u8()? != 0;
    let bytes = d.blob()?;
    let ticket = if is_sealed {
        let old = old.ok_or(AuthError::WrongKey { what: "a renewed ticket" })?;
        let inner = open(old, bytes, "renewed ticket", |d| d.blob().map(<[u8]>::to_vec))?;
        Decoder::all(&inner, "ticket", |d| d.get())?
    } else {
        Decoder::all(bytes, "ticket", |d| d.get())?
    };
    Ok(Issued { service, session_key, validity, ticket })
}

/// The proof of an entity's key (`CephXAuthenticate`, version 3).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Authenticate {
    pub(crate) client_challenge: u64,
    pub(crate) proof: u64,
    pub(crate) old_ticket: TicketBlob,
    /// Services for which tickets are wanted.
    pub(crate) other_keys: u32,
}

impl Coded for Authenticate {
    const BYTES_MIN: usize = 34;

    fn put(&self, e: &mut Encoder<'_>) {
        e.u8(3);
        e.u64(self.client_challenge);
        e.u64(self.proof);
        self.old_ticket.put(e);
        e.u32(self.other_keys);
    }

    fn get(d: &mut Decoder<'_>) -> carmine_codec::Result<Authenticate> {
        let version = versioned(d, "proof of a key", 3)?;
        Ok(Authenticate {
            client_challenge: d.u64()?,
            proof: d.u64()?,
            old_ticket: d.get()?,
            other_keys: if version > 1 { d.u32()? } else { 0 },
        })
    }
}

/// The proof that somebody has a key: both challenges, encrypted, and folded into 64 bits.
pub(crate) fn proof(key: &Key, server_challenge: u64, client_challenge: u64) -> u64 {
    let buffer = Encoder::collect(|e| {
        put_sealed(e, key, |e| {
            e.u64(server_challenge);
            e.u64(client_challenge);
        });
    });
    // Whole words only, of which the first has the length.
    let words = buffer.as_chunks::<8>().0;
    words.iter().fold(0, |sum, word| sum ^ u64::from_le_bytes(*word))
}

/// `CephXAuthorize`: the part of an authorizer that only who knows the session key can write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Authorize {
    pub(crate) nonce: u64,
    /// One more than the challenge that it answers.
    pub(crate) answer: Option<u64>,
}

impl Coded for Authorize {
    const BYTES_MIN: usize = 18;

    fn put(&self, e: &mut Encoder<'_>) {
        e.u8(2);
        e.u64(self.nonce);
        e.bool(self.answer.is_some());
        e.u64(self.answer.unwrap_or_default());
    }

    fn get(d: &mut Decoder<'_>) -> carmine_codec::Result<Authorize> {
        versioned(d, "authorizer", 2)?;
        let (nonce, has_answer, answer) = (d.u64()?, d.u8()? != 0, d.u64()?);
        Ok(Authorize { nonce, answer: has_answer.then_some(answer) })
    }
}

/// The open part of an authorizer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AuthorizerHead {
    pub(crate) global_id: u64,
    pub(crate) service: u32,
    pub(crate) ticket: TicketBlob,
}

impl Coded for AuthorizerHead {
    const BYTES_MIN: usize = 26;

    fn put(&self, e: &mut Encoder<'_>) {
        e.u8(MODE_AUTHORIZER);
        e.u64(self.global_id);
        e.u32(self.service);
        self.ticket.put(e);
    }

    fn get(d: &mut Decoder<'_>) -> carmine_codec::Result<AuthorizerHead> {
        versioned(d, "authorizer", MODE_AUTHORIZER)?;
        Ok(AuthorizerHead { global_id: d.u64()?, service: d.u32()?, ticket: d.get()? })
    }
}

coded! {
    /// A service's key, and when it is replaced.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Expiring {
        version: u8,
        key: Key,
        expires: UTime,
    }
}

/// The keys of a service (`RotatingSecrets`): the last, the current and the next one, by their numbers.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct RotatingKeys {
    keys: BTreeMap<u64, (Key, UTime)>,
    newest: u64,
}

impl fmt::Debug for RotatingKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "service keys {:?}", self.keys.keys().collect::<Vec<_>>())
    }
}

/// Keys that a service has at a time.
pub(crate) const KEYS: usize = 3;

impl RotatingKeys {
    /// The key of this number.
    pub(crate) fn get(&self, id: u64) -> Option<&Key> {
        self.keys.get(&id).map(|(key, _)| key)
    }

    /// The key with which new tickets are made: the one in the middle, or the next if it has expired.
    pub(crate) fn current(&self, now: UTime) -> Option<(u64, &Key)> {
        let (id, (key, expires)) = self.keys.iter().rev().nth(1)?;
        if *expires > now {
            return Some((*id, key));
        }
        self.keys.iter().next_back().map(|(id, (key, _))| (*id, key))
    }

    /// When the current key expires; `None`: some are missing.
    #[must_use]
    pub fn expires(&self) -> Option<UTime> {
        let (_, expires) = self.keys.values().rev().nth(1).filter(|_| self.keys.len() >= KEYS)?;
        Some(*expires)
    }

    /// The numbers of the keys, for people.
    pub(crate) fn numbers(&self) -> String {
        match (self.keys.keys().next(), self.keys.keys().next_back()) {
            (Some(first), Some(last)) => format!("keys {first} to {last}"),
            _ => "no keys yet".to_owned(),
        }
    }

    /// Makes new keys until there are enough and the current one is valid; true if there is a new one (Ceph's
    /// `KeyServer::_rotate_secret`).
    ///
    /// # Errors
    /// [`AuthError::NoRandom`].
    pub(crate) fn rotate(&mut self, now: UTime, ttl: UTime) -> Result<bool> {
        let mut has_changed = false;
        while self.expires().is_none_or(|expires| expires <= now) {
            let last = self.keys.values().next_back().map(|(_, expires)| *expires);
            let begin = match last {
                None => now,
                Some(last) => later(now, ttl).max(last),
            };
            self.newest += 1;
            self.keys.insert(self.newest, (Key::random(now)?, later(begin, ttl)));
            while self.keys.len() > KEYS {
                self.keys.pop_first();
            }
            has_changed = true;
        }
        Ok(has_changed)
    }
}

/// `time` and then `by`, a length of time.
pub(crate) fn later(time: UTime, by: UTime) -> UTime {
    UTime::from_unix(time.to_unix().saturating_add(by.to_unix()))
}

/// u8 1; the keys by their numbers; u64 the newest number.
impl Coded for RotatingKeys {
    const BYTES_MIN: usize = 13;

    fn put(&self, e: &mut Encoder<'_>) {
        e.u8(1);
        e.count(self.keys.len());
        for (id, (key, expires)) in &self.keys {
            e.u64(*id);
            Expiring { version: 1, key: key.clone(), expires: *expires }.put(e);
        }
        e.u64(self.newest);
    }

    fn get(d: &mut Decoder<'_>) -> carmine_codec::Result<RotatingKeys> {
        versioned(d, "service keys", 1)?;
        let keys: BTreeMap<u64, Expiring> = d.get()?;
        let keys = keys.into_iter().map(|(id, kept)| (id, (kept.key, kept.expires))).collect();
        Ok(RotatingKeys { keys, newest: d.u64()? })
    }
}

/// Head of an answer of the monitor: which request it answers, and how that ended.
pub(crate) fn answer_to(d: &mut Decoder<'_>, request: u16) -> Result<()> {
    if d.u16()? != request {
        return Err(AuthError::WrongAnswer);
    }
    match d.i32()? {
        0 => Ok(()),
        refused => Err(AuthError::Refused(refused)),
    }
}

/// Reads the secret of a connection: empty in the mode that only checks.
pub(crate) fn open_connection_secret(key: &Key, blob: &[u8]) -> Result<Secret> {
    if blob.is_empty() {
        return Ok(Secret::default());
    }
    let mut d = Decoder::new(blob, "secret of a connection");
    let secret =
        open(key, d.blob()?, "secret of a connection", |d| d.blob().map(|bytes| Secret(bytes.to_vec())))?;
    d.finish()?;
    Ok(secret)
}

#[cfg(test)]
impl RotatingKeys {
    pub(crate) fn of_one(id: u64, key: Key) -> RotatingKeys {
        RotatingKeys { keys: [(id, (key, UTime::ZERO))].into(), newest: id }
    }
}
