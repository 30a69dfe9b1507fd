//! Authentication frames. Only the method "none" is implemented.

use super::controls;
use crate::{DecodeError, Decoder, Encoder, EntityType, Result};

/// Authentication methods.
pub mod auth_method {
    pub const NONE: u32 = 1;
}

/// Connection modes.
pub mod connection_mode {
    pub const CRC: u32 = 1;
}

controls! {
    /// Client → server: which method and modes it wants.
    pub struct AuthRequest: AuthRequest {
        /// One of [`auth_method`].
        pub method: u32,
        /// [`connection_mode`]s in order of preference.
        pub modes: Vec<u32>,
        /// Depends on the method, see [`AuthNone`].
        pub payload: Vec<u8>,
    }
}

impl AuthRequest {
    /// The request for method none in crc mode.
    pub fn none(identity: &AuthNone) -> AuthRequest {
        let payload = Encoder::collect(|e| identity.encode(e));
        AuthRequest { method: auth_method::NONE, modes: vec![connection_mode::CRC], payload }
    }
}

/// Whom an [`AuthNone`] payload is for: its first byte differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthTarget {
    Mon,
    Osd,
}

/// AUTH_REQUEST payload of method none: who the client says it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthNone {
    pub target: AuthTarget,
    pub entity: EntityType,
    /// Name after the type: "admin" of "client.admin".
    pub name: String,
    /// 0 in the first request to a monitor, which then assigns one.
    pub global_id: u64,
}

/// auth_mode "mon", and the version of the authorizer that OSDs get.
const MODE_MON: u8 = 10;
const AUTHORIZER_VERSION: u8 = 1;

impl AuthNone {
    pub fn encode(&self, e: &mut Encoder<'_>) {
        e.u8(match self.target {
            AuthTarget::Mon => MODE_MON,
            AuthTarget::Osd => AUTHORIZER_VERSION,
        });
        e.u32(self.entity.0.into());
        e.str(&self.name);
        e.u64(self.global_id);
    }

    pub fn decode(payload: &[u8]) -> Result<AuthNone> {
        Decoder::all(payload, "auth none payload", |d| {
            let target = match d.u8()? {
                MODE_MON => AuthTarget::Mon,
                AUTHORIZER_VERSION => AuthTarget::Osd,
                mode => return Err(DecodeError::BadValue { what: "auth mode", value: mode.into() }),
            };
            let kind = d.u32()?;
            let kind = u8::try_from(kind)
                .map_err(|_| DecodeError::BadValue { what: "entity type", value: kind.into() })?;
            Ok(AuthNone { target, entity: EntityType(kind), name: d.string()?, global_id: d.u64()? })
        })
    }
}

controls! {
    /// Server → client: that method is not possible, these are.
    pub struct AuthBadMethod: AuthBadMethod {
        pub method: u32,
        /// Negative errno.
        pub result: i32,
        pub allowed_methods: Vec<u32>,
        pub allowed_modes: Vec<u32>,
    }
}

impl AuthBadMethod {
    /// The answer to any method but none.
    pub fn only_none(method: u32) -> AuthBadMethod {
        AuthBadMethod {
            method,
            result: carmine_types::errno::EOPNOTSUPP,
            allowed_methods: vec![auth_method::NONE],
            allowed_modes: vec![connection_mode::CRC],
        }
    }
}

controls! {
    /// Server → client: accepted.
    pub struct AuthDone: AuthDone {
        /// The client's identity in the cluster.
        pub global_id: u64,
        /// The [`connection_mode`] chosen.
        pub mode: u32,
        /// Empty for method none.
        pub payload: Vec<u8>,
    }

    /// Signature over what was received so far. Without a session key (method none) it is all zeros, and the
    /// receiver checks for exactly that.
    #[derive(Default)]
    pub struct Signature(pub [u8; 32]): AuthSignature;
}

impl Signature {
    /// Fails unless this is the signature of method none.
    pub fn check_none(&self) -> Result<()> {
        match self.0.iter().find(|byte| **byte != 0) {
            None => Ok(()),
            Some(byte) => Err(DecodeError::BadValue { what: "signature", value: (*byte).into() }),
        }
    }
}
