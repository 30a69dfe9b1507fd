//! Why somebody is not let in.

use carmine_codec::DecodeError;
use carmine_types::UTime;
use carmine_types::errno;

/// Why a step of the authentication failed: one line for a log. A peer only learns the [errno](AuthError::errno).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// Bytes that are not what they should be.
    #[error("{0}")]
    Malformed(#[from] DecodeError),
    /// What should be encrypted with a key is not, or with another one.
    #[error("{what} is not encrypted with the expected key: one side has a wrong key")]
    WrongKey { what: &'static str },
    /// Nobody of this name is known.
    #[error("no key is known for {entity}")]
    UnknownEntity { entity: String },
    /// The proof is not made with the entity's key.
    #[error("{entity} has a wrong key")]
    WrongProof { entity: String },
    /// The entity has no caps for monitors.
    #[error("{entity} has no mon caps")]
    NoMonCaps { entity: String },
    /// A global id that belongs to another ticket, or to none.
    #[error("{entity} wants global id {global_id} without the ticket for it")]
    ForeignId { entity: String, global_id: u64 },
    /// The ticket is made with a service key that is not known (any more).
    #[error(
        "the ticket is made with service key {secret_id}, and this daemon has {known}: it has expired, or a clock is wrong"
    )]
    UnknownSecret { secret_id: u64, known: String },
    /// The ticket has expired.
    #[error("the ticket of {entity} expired at {expires}, and it is {now}")]
    Expired { entity: String, expires: UTime, now: UTime },
    /// A ticket for another service, or of another session.
    #[error("the ticket is for {found}, not for {expected}")]
    Foreign { found: String, expected: String },
    /// An authorizer that does not answer this connection's challenge.
    #[error("the authorizer of {entity} does not answer this connection's challenge: it is a replay")]
    Replayed { entity: String },
    /// The answer is not to this request.
    #[error("the answer is to another request")]
    WrongAnswer,
    /// There is no ticket to present.
    #[error("there is no ticket for {service} yet")]
    NoTicket { service: String },
    /// A request that is not known.
    #[error("request {0:#06x} of cephx is not known")]
    UnknownRequest(u16),
    /// A refusal by the monitor.
    #[error("the monitor refuses the request: error {0}")]
    Refused(i32),
    /// A key that cannot be used.
    #[error("{0}")]
    BadKey(String),
    /// The kernel gives no random numbers.
    #[error("the kernel gives no random numbers: {0}")]
    NoRandom(String),
}

impl AuthError {
    /// What the peer is told, as Ceph does: the same for all that concerns keys, so that nobody learns which names exist.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            AuthError::Malformed(_) => errno::EPERM,
            AuthError::UnknownRequest(_) => errno::EINVAL,
            AuthError::NoRandom(_) => errno::EIO,
            _ => errno::EACCES,
        }
    }
}
