//! cephx of this monitor: it lets in who has a key that it knows, gives tickets to sessions, and looks at their caps.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::{Rc, Weak};

use carmine_auth::issuer::{self, Issuer, Validity};
use carmine_auth::service::{self, Answer};
use carmine_auth::{AuthError, Entity, Entry, Keyring, RotatingKeys};
use carmine_caps::{MonCaps, MonRequest, OsdCaps};
use carmine_messenger::{Check, Connection, Guard, Message, Peer, Verdict};
use carmine_types::{MsMode, UTime, errno};
use carmine_wire::mon_msg::{Auth, AuthReply, PoolOp};
use carmine_wire::{EntityType, kinds};
use tracing::{info, warn};

use crate::accept::SESSIONS_MAX;
use crate::change::{Refusal, refuse};
use crate::mon::Mon;
use crate::options::OptionEdit;

/// How a monitor lets others in.
#[derive(Clone, Debug)]
pub struct AuthConfig {
    /// Who is known to a monitor without a state.
    pub keyring: Keyring,
    /// How long tickets are valid.
    pub validity: Validity,
    /// Modes that are allowed.
    pub modes: Vec<MsMode>,
}

/// A change of what the monitor knows of others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AuthEdit {
    /// Somebody has this key and these caps.
    Set(Entity, Entry),
    /// Somebody is forgotten.
    Remove(Entity),
    /// Keys of services are replaced as far as their time is over.
    Rotate,
}

/// Entities that are known, at most.
const ENTITIES_MAX: usize = 10_000;
/// Longest name, and longest text of caps, bytes.
const NAME_BYTES_MAX: usize = 256;
const CAPS_BYTES_MAX: usize = 4 << 10;

impl AuthEdit {
    /// What is known after the change.
    ///
    /// # Errors
    /// E2BIG: too many are known, or caps are too long; EIO: there are no random numbers.
    pub(crate) fn applied(&self, mut issuer: Issuer, now: UTime) -> Result<Issuer, Refusal> {
        match self {
            AuthEdit::Set(entity, entry) => {
                let is_long = entity.id.len() > NAME_BYTES_MAX
                    || entry.caps.iter().any(|(service, caps)| service.len() + caps.len() > CAPS_BYTES_MAX);
                if is_long || issuer.entities.len() >= ENTITIES_MAX {
                    return Err(refuse(
                        errno::E2BIG,
                        format!("{entity}: its name or caps are too long, or too many are known"),
                    ));
                }
                issuer.entities.insert(entity.clone(), entry.clone());
            }
            AuthEdit::Remove(entity) => _ = issuer.entities.remove(entity),
            AuthEdit::Rotate => _ = issuer.rotate(now).map_err(|e| refuse(errno::EIO, e.to_string()))?,
        }
        Ok(issuer)
    }
}

/// Handshakes whose challenge their sessions' renewals answer, by global id.
pub(crate) type Handshakes = BTreeMap<u64, issuer::Handshake>;

/// What a monitor knows at its start: what it has kept, or the keyring of its configuration.
pub(crate) fn at_start(config: &AuthConfig, kept: Option<Issuer>, now: UTime) -> Result<Issuer, AuthError> {
    let mut issuer = kept.unwrap_or_else(|| {
        let mut issuer = Issuer::default();
        issuer.entities.clone_from(&config.keyring.0);
        issuer
    });
    issuer.validity = config.validity;
    issuer.rotate(now)?;
    Ok(issuer)
}

/// Lets in who proves a key (at the monitor's door), or has a ticket for the manager (at that).
#[derive(Clone)]
pub(crate) struct DoorGuard {
    pub(crate) mon: Weak<Mon>,
    pub(crate) door: EntityType,
}

impl fmt::Debug for DoorGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the guard of the {}'s door", self.door)
    }
}

impl Guard for DoorGuard {
    fn check(&self) -> Box<dyn Check> {
        let mon = Weak::clone(&self.mon);
        match self.door {
            EntityType::MON => Box::new(KeyCheck { mon, handshake: None }),
            _ => Box::new(TicketCheck { mon, handshake: service::Handshake::default() }),
        }
    }
}

/// A stopping monitor lets nobody in.
fn stopping() -> AuthError {
    AuthError::NoTicket { service: "a monitor that stops".to_owned() }
}

struct KeyCheck {
    mon: Weak<Mon>,
    handshake: Option<issuer::Handshake>,
}

impl Check for KeyCheck {
    fn on_payload(&mut self, payload: &[u8], is_secure: bool) -> Result<Verdict, AuthError> {
        let mon = self.mon.upgrade().ok_or_else(stopping)?;
        let Some(handshake) = self.handshake.take() else {
            let (handshake, more) = issuer::Handshake::begin(payload)?;
            self.handshake = Some(handshake);
            return Ok(Verdict::More(more));
        };
        let proved = mon.with_issuer(|issuer| {
            issuer.prove(&handshake, payload, is_secure, mon.now(), || mon.assign_gid())
        })?;
        let mut handshakes = mon.handshakes.borrow_mut();
        // Each is a session's, or of one that never came to be: an id is given to one process.
        while handshakes.len() >= 2 * SESSIONS_MAX {
            handshakes.pop_first();
        }
        handshakes.insert(proved.guest.global_id, handshake);
        Ok(Verdict::Done { guest: proved.guest, session: proved.session, payload: proved.payload })
    }
}

struct TicketCheck {
    mon: Weak<Mon>,
    handshake: service::Handshake,
}

impl Check for TicketCheck {
    fn on_payload(&mut self, payload: &[u8], is_secure: bool) -> Result<Verdict, AuthError> {
        let mon = self.mon.upgrade().ok_or_else(stopping)?;
        let (manager, now) = (EntityType::MGR, mon.now());
        let answer = mon.with_issuer(|issuer| {
            let none = RotatingKeys::default();
            let keys = issuer.service_keys(manager).unwrap_or(&none);
            self.handshake.on_payload(manager, keys, payload, is_secure, now)
        })?;
        Ok(match answer {
            Answer::Challenge(challenge) => Verdict::More(challenge),
            Answer::Done { guest, session, payload } => Verdict::Done { guest, session, payload },
        })
    }
}

impl Mon {
    fn with_issuer<T>(&self, look: impl FnOnce(&Issuer) -> Result<T, AuthError>) -> Result<T, AuthError> {
        match &self.options.borrow().auth {
            Some(issuer) => look(issuer),
            None => Err(stopping()),
        }
    }

    /// Answers a request for tickets on a session.
    pub(crate) fn on_auth(&self, conn: &Rc<Connection>, request: &Auth) {
        let Some(guest) = conn.peer().guest.clone() else { return };
        let answered = self.with_issuer(|issuer| {
            let handshakes = self.handshakes.borrow();
            let handshake = handshakes.get(&guest.global_id).ok_or(AuthError::WrongAnswer)?;
            issuer.on_request(handshake, &guest, &request.payload, self.now())
        });
        let (result, payload) = match answered {
            Ok(payload) => (0, payload),
            Err(error) => {
                warn!(peer = %conn.peer(), "refused to renew tickets: {error}");
                (error.errno(), Vec::new())
            }
        };
        let reply = AuthReply {
            protocol: request.protocol,
            result,
            global_id: guest.global_id,
            payload,
            text: String::new(),
        };
        Mon::reply(conn, Message::encode(&reply));
    }

    /// Replaces the keys of services whose time is over.
    pub(crate) fn judge_keys(&self) {
        let now = self.now();
        let is_due = self.options.borrow().auth.as_ref().is_some_and(|issuer| issuer.is_due(now));
        if is_due {
            self.change_options(
                OptionEdit::Auth(vec![AuthEdit::Rotate]),
                Box::new(|_, _| info!("services have new keys")),
            );
        }
    }

    /// Whether a message other than a command is allowed to its sender; without authentication all are.
    pub(crate) fn may_send(&self, peer: &Peer, msg: &Message) -> bool {
        let needs = match msg.header.kind {
            // These are looked at by themselves, or are for all who have a session.
            kinds::MON_COMMAND | kinds::COMMAND | kinds::AUTH | kinds::PING | kinds::MGR_OPEN => return true,
            kinds::MON_GET_MAP
            | kinds::MON_SUBSCRIBE
            | kinds::MON_GET_VERSION
            | kinds::STATFS
            | kinds::GET_POOL_STATS => ("mon", "r"),
            kinds::POOL_OP => return self.may_change_pool(peer, msg),
            kinds::LOG => ("log", "w"),
            // What OSDs tell.
            _ => ("osd", "rwx"),
        };
        allows(peer, needs.0, "", &BTreeMap::new(), needs.1)
    }

    /// Snapshots of clients take the right to write to the pool.
    fn may_change_pool(&self, peer: &Peer, msg: &Message) -> bool {
        if allows(peer, "osd", "", &BTreeMap::new(), "w") {
            return true;
        }
        let Ok(op) = msg.decode::<PoolOp>() else { return true }; // refused for that
        let is_snap = [PoolOp::CREATE_UNMANAGED_SNAP, PoolOp::DELETE_UNMANAGED_SNAP].contains(&op.op);
        let Some(guest) = peer.guest.as_ref().filter(|_| is_snap) else { return false };
        let current = self.current();
        let pool = current.map.pool_names.get(&i64::from(op.pool));
        let caps = self.options.borrow().auth.as_ref().and_then(|issuer| {
            let caps = issuer.entities.get(&guest.entity)?.caps.get("osd")?;
            OsdCaps::parse(caps).ok()
        });
        caps.zip(pool).is_some_and(|(caps, pool)| caps.allow_snapshots(pool))
    }
}

/// Whether a peer may do this; without authentication everybody may do everything. `rights`: `r`, `w` and `x`.
pub(crate) fn allows(
    peer: &Peer,
    service: &str,
    command: &str,
    args: &BTreeMap<String, String>,
    rights: &str,
) -> bool {
    let Some(guest) = &peer.guest else { return true };
    // At the manager's door the caps are those for managers, whose grammar is the same.
    let caps = guest.caps.as_deref().and_then(|caps| MonCaps::parse(caps).ok()).unwrap_or_default();
    caps.allow(&MonRequest {
        entity: &guest.entity.to_string(),
        service,
        command,
        args,
        read: rights.contains('r'),
        write: rights.contains('w'),
        execute: rights.contains('x'),
        client: Some(peer.sock.ip()),
    })
}
