//! cephx on connections: a process that proves its key to monitors and presents its tickets to daemons, and a daemon that lets in who has
//! a ticket for its service.

use std::cell::{Ref, RefCell};
use std::fmt;
use std::rc::Rc;

use carmine_auth::client::{Authorizer, Client, MonHandshake, Session, Tickets};
use carmine_auth::service::{self, Answer};
use carmine_auth::{AuthError, RotatingKeys};
use carmine_reactor::Shard;
use carmine_types::UTime;
use carmine_wire::EntityType;

use crate::auth::{Check, Guard, Identity, Proof, Verdict};

type Result<T> = std::result::Result<T, AuthError>;

/// The time, as tickets have it.
fn now(shard: &Shard) -> UTime {
    UTime::from_unix(shard.unix_now())
}

/// A process that has a session with a monitor, which gives it its tickets.
pub struct KeyHolder {
    shard: Shard,
    client: RefCell<Client>,
    /// It has a service of its own, whose keys it needs.
    is_daemon: bool,
}

impl fmt::Debug for KeyHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the key of {}", self.client.borrow().entity())
    }
}

impl KeyHolder {
    /// The process of this entity. `is_daemon`: it has a service of its own, whose keys it needs.
    #[must_use]
    pub fn new(shard: &Shard, client: Client, is_daemon: bool) -> Rc<KeyHolder> {
        let (shard, client) = (shard.clone(), RefCell::new(client));
        Rc::new(KeyHolder { shard, client, is_daemon })
    }

    /// Its tickets, for other reactors of this process.
    #[must_use]
    pub fn tickets(&self) -> Tickets {
        self.client.borrow().tickets()
    }

    /// The keys of its service, as far as it has asked for them.
    pub fn rotating(&self) -> Ref<'_, RotatingKeys> {
        Ref::map(self.client.borrow(), Client::rotating)
    }

    /// Payloads of MAuth that are due.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn renewals(&self) -> Result<Vec<Vec<u8>>> {
        let (client, now) = (self.client.borrow(), now(&self.shard));
        let mut due = client.renewals(now)?;
        if self.is_daemon && client.rotating().expires().is_none_or(|expires| expires <= now) {
            due.push(Client::rotating_request());
        }
        Ok(due)
    }

    /// Takes over the monitor's answer to one of them.
    ///
    /// # Errors
    /// It cannot be read, or refuses.
    pub fn take_reply(&self, payload: &[u8]) -> Result<()> {
        self.client.borrow_mut().take_reply(payload, now(&self.shard))
    }
}

/// [`KeyHolder`] as an [`Identity`], which its proofs need to find again.
#[derive(Clone, Debug)]
pub struct KeyIdentity(pub Rc<KeyHolder>);

impl Identity for KeyIdentity {
    fn prove(&self, to: EntityType) -> Result<Box<dyn Proof>> {
        let holder = Rc::clone(&self.0);
        if to == EntityType::MON {
            return Ok(Box::new(KeyProof { holder, handshake: None }));
        }
        let authorizer = holder.client.borrow().authorizer(to)?;
        Ok(Box::new(TicketProof { authorizer, refused: Some((holder, to)) }))
    }
}

/// The proof of a key to a monitor.
struct KeyProof {
    holder: Rc<KeyHolder>,
    handshake: Option<MonHandshake>,
}

impl Proof for KeyProof {
    fn request(&self) -> Vec<u8> {
        self.holder.client.borrow().mon_request()
    }

    fn answer(&mut self, challenge: &[u8]) -> Result<Vec<u8>> {
        let (handshake, payload) = self.holder.client.borrow().prove(challenge)?;
        self.handshake = Some(handshake);
        Ok(payload)
    }

    fn refused(&mut self) {
        self.holder.client.borrow_mut().forget();
    }

    fn done(&mut self, global_id: u64, payload: &[u8]) -> Result<Session> {
        let handshake = self.handshake.take().ok_or(AuthError::WrongAnswer)?;
        self.holder.client.borrow_mut().mon_done(&handshake, global_id, payload, now(&self.holder.shard))
    }
}

/// A ticket that is presented to a daemon.
struct TicketProof {
    authorizer: Authorizer,
    /// Who hears that it is refused, and by which service.
    refused: Option<(Rc<KeyHolder>, EntityType)>,
}

impl Proof for TicketProof {
    fn request(&self) -> Vec<u8> {
        self.authorizer.request()
    }

    fn answer(&mut self, challenge: &[u8]) -> Result<Vec<u8>> {
        self.authorizer.answer(challenge)
    }

    fn done(&mut self, _: u64, payload: &[u8]) -> Result<Session> {
        self.authorizer.done(payload)
    }

    fn refused(&mut self) {
        if let Some((holder, service)) = &self.refused {
            holder.client.borrow_mut().drop_ticket(*service);
        }
    }
}

/// The tickets of a process on a reactor that has no session with a monitor itself.
#[derive(Debug, Default)]
pub struct TicketHolder(RefCell<Tickets>);

impl TicketHolder {
    /// Takes over newer ones.
    pub fn set(&self, tickets: Tickets) {
        self.0.replace(tickets);
    }
}

impl Identity for TicketHolder {
    fn prove(&self, to: EntityType) -> Result<Box<dyn Proof>> {
        Ok(Box::new(TicketProof { authorizer: self.0.borrow().authorizer(to)?, refused: None }))
    }
}

/// A daemon that lets in who has a ticket for its service.
pub struct TicketGuard {
    shard: Shard,
    service: EntityType,
    keys: RefCell<RotatingKeys>,
}

impl fmt::Debug for TicketGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.keys.borrow())
    }
}

impl TicketGuard {
    /// A daemon of this service, which has no keys yet: nobody gets in.
    #[must_use]
    pub fn new(shard: &Shard, service: EntityType) -> Rc<TicketGuard> {
        Rc::new(TicketGuard { shard: shard.clone(), service, keys: RefCell::default() })
    }

    /// Whether it has keys of its service.
    pub fn has_keys(&self) -> bool {
        self.keys.borrow().expires().is_some()
    }

    /// Takes over newer keys of the service.
    pub fn set_keys(&self, keys: RotatingKeys) {
        self.keys.replace(keys);
    }
}

/// [`TicketGuard`] as a [`Guard`], which its checks need to find again.
#[derive(Clone, Debug)]
pub struct ByTicket(pub Rc<TicketGuard>);

impl Guard for ByTicket {
    fn check(&self) -> Box<dyn Check> {
        Box::new(TicketCheck { guard: Rc::clone(&self.0), handshake: service::Handshake::default() })
    }
}

struct TicketCheck {
    guard: Rc<TicketGuard>,
    handshake: service::Handshake,
}

impl Check for TicketCheck {
    fn on_payload(&mut self, payload: &[u8], is_secure: bool) -> Result<Verdict> {
        let (guard, keys) = (&self.guard, self.guard.keys.borrow());
        let answer =
            self.handshake.on_payload(guard.service, &keys, payload, is_secure, now(&guard.shard))?;
        Ok(match answer {
            Answer::Challenge(challenge) => Verdict::More(challenge),
            Answer::Done { guest, session, payload } => Verdict::Done { guest, session, payload },
        })
    }
}
