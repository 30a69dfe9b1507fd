//! The side of a daemon: lets in who has a ticket for its service.

use std::time::Duration;

use carmine_codec::{Decoder, Encoder};
use carmine_types::UTime;
use carmine_wire::EntityType;

use crate::client::{Session, seal_challenge};
use crate::envelope::{open, put_sealed};
use crate::key::{Key, SESSION_SECRET_BYTES, Secret, random_u64};
use crate::keyring::Entity;
use crate::payload::{Authorize, AuthorizerHead, RotatingKeys, Ticket, service_bit, service_name};
use crate::{AuthError, Result};

/// By so much the clocks of monitors and daemons may differ.
const SKEW: Duration = Duration::from_secs(60);

/// Somebody who was let in, as the ticket says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guest {
    /// The peer that has proved itself.
    pub entity: Entity,
    /// The id of its process.
    pub global_id: u64,
    /// The caps for this service, as text; `None`: it has none.
    pub caps: Option<String>,
}

/// What to answer.
#[derive(Debug)]
pub enum Answer {
    /// AUTH_REPLY_MORE's payload; the next authorizer must answer it.
    Challenge(Vec<u8>),
    /// AUTH_DONE's payload.
    Done {
        /// The peer that has proved itself.
        guest: Guest,
        /// What both ends know.
        session: Session,
        /// For AUTH_DONE.
        payload: Vec<u8>,
    },
}

/// The handshake of one connection: its challenge counts for no other.
#[derive(Debug, Default)]
pub struct Handshake {
    challenge: Option<u64>,
}

impl Handshake {
    /// Looks at the payload of AUTH_REQUEST or AUTH_REQUEST_MORE, for a daemon of `service` that has these keys. `is_secure`: the
    /// connection will be encrypted.
    ///
    /// # Errors
    /// Why the peer is not let in.
    pub fn on_payload(
        &mut self,
        service: EntityType,
        keys: &RotatingKeys,
        payload: &[u8],
        is_secure: bool,
        now: UTime,
    ) -> Result<Answer> {
        let mut d = Decoder::new(payload, "authorizer");
        let head: AuthorizerHead = d.get()?;
        let sealed = d.blob()?;
        d.finish()?;
        let ticket = open_ticket(service, keys, &head, now)?;
        let Authorize { nonce, answer } = open(&ticket.session_key, sealed, "authorizer", |d| d.get())?;
        let (Some(challenge), Some(answer)) = (self.challenge.take(), answer) else {
            let challenge = random_u64()?;
            self.challenge = Some(challenge);
            return Ok(Answer::Challenge(seal_challenge(&ticket.session_key, challenge)));
        };
        if answer != challenge.wrapping_add(1) {
            return Err(AuthError::Replayed { entity: ticket.entity.to_string() });
        }
        let secret = if is_secure { Secret::random(SESSION_SECRET_BYTES)? } else { Secret::default() };
        let payload = reply(&ticket.session_key, nonce, &secret, is_secure);
        let Ticket { entity, global_id, caps, session_key, .. } = ticket;
        Ok(Answer::Done {
            guest: Guest { entity, global_id, caps },
            session: Session { key: session_key, connection_secret: secret },
            payload,
        })
    }
}

/// Decrypts and checks the ticket of an authorizer.
fn open_ticket(
    service: EntityType,
    keys: &RotatingKeys,
    head: &AuthorizerHead,
    now: UTime,
) -> Result<Ticket> {
    let (found, expected) = (service_name(head.service), service.to_string());
    if head.service != service_bit(service) {
        return Err(AuthError::Foreign { found, expected });
    }
    let secret_id = head.ticket.secret_id;
    let key =
        keys.get(secret_id).ok_or_else(|| AuthError::UnknownSecret { secret_id, known: keys.numbers() })?;
    let ticket = read_ticket(key, &head.ticket.blob)?;
    if ticket.global_id != head.global_id {
        let name = |id: u64| format!("session {id} of {}", ticket.entity);
        return Err(AuthError::Foreign { found: name(ticket.global_id), expected: name(head.global_id) });
    }
    if ticket.expires.to_unix() + SKEW < now.to_unix() {
        let entity = ticket.entity.to_string();
        return Err(AuthError::Expired { entity, expires: ticket.expires, now });
    }
    Ok(ticket)
}

pub(crate) fn read_ticket(key: &Key, blob: &[u8]) -> Result<Ticket> {
    open(key, blob, "ticket", |d| d.get())
}

fn reply(key: &Key, nonce: u64, secret: &Secret, is_secure: bool) -> Vec<u8> {
    Encoder::collect(|e| {
        put_sealed(e, key, |e| {
            e.u8(if is_secure { 2 } else { 1 });
            e.u64(nonce.wrapping_add(1));
            if is_secure {
                e.blob(&secret.0);
            }
        });
    })
}

#[cfg(test)]
impl Handshake {
    pub(crate) fn with_challenge(challenge: u64) -> Handshake {
        Handshake { challenge: Some(challenge) }
    }
}
