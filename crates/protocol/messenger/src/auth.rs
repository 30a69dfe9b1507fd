//! How the two sides of a connection prove who they are, and what protects their frames from then on.
//!
//! Method none has no proofs: it is what a side does that has no [`Identity`] or [`Guard`]. cephx is behind these traits, since its keys
//! and tickets belong to the owners of the connections.

use std::fmt::Debug;

use carmine_auth::client::Session;
use carmine_auth::service::Guest;
use carmine_auth::{AuthError, SESSION_SECRET_BYTES};
use carmine_types::MsMode;
use carmine_wire::EntityType;
use carmine_wire::frame::secure::{Cipher, KEY_BYTES, NONCE_BYTES};
use carmine_wire::handshake::{Control, Signature, connection_mode};

use crate::error::CloseReason;
use crate::handshake::{Result, Wire};

/// Who this process is, for those that it dials.
pub trait Identity: Debug {
    /// Begins to prove it to a peer of this kind.
    ///
    /// # Errors
    /// There is nothing to prove it with yet.
    fn prove(&self, to: EntityType) -> std::result::Result<Box<dyn Proof>, AuthError>;
}

/// A proof on one connection.
pub trait Proof {
    /// The first payload.
    fn request(&self) -> Vec<u8>;

    /// The answer to the peer's challenge.
    ///
    /// # Errors
    /// It is none.
    fn answer(&mut self, challenge: &[u8]) -> std::result::Result<Vec<u8>, AuthError>;

    /// The peer is satisfied.
    ///
    /// # Errors
    /// It cannot be the peer that it should be.
    fn done(&mut self, global_id: u64, payload: &[u8]) -> std::result::Result<Session, AuthError>;

    /// The peer refuses it.
    fn refused(&mut self) {}
}

/// Decides who is let in.
pub trait Guard: Debug {
    /// Begins to check a peer that has connected.
    fn check(&self) -> Box<dyn Check>;
}

/// The check of one peer.
pub trait Check {
    /// Looks at a payload of the peer. `is_secure`: the connection will be encrypted.
    ///
    /// # Errors
    /// Why the peer is not let in.
    fn on_payload(&mut self, payload: &[u8], is_secure: bool) -> std::result::Result<Verdict, AuthError>;
}

/// What becomes of a peer.
#[derive(Debug)]
pub enum Verdict {
    /// It has to answer this.
    More(Vec<u8>),
    /// It is let in.
    Done {
        /// The peer that has proved itself.
        guest: Guest,
        /// What both sides know.
        session: Session,
        /// The last payload for it.
        payload: Vec<u8>,
    },
}

/// The side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// A mode's number on the wire.
pub(crate) fn number(mode: MsMode) -> u32 {
    match mode {
        MsMode::Crc => connection_mode::CRC,
        MsMode::Secure => connection_mode::SECURE,
    }
}

impl Wire {
    /// Begins the mode that both sides have agreed on: from here on frames are encrypted, or not. Each side then signs what it has
    /// received so far, with the session's key.
    ///
    /// # Errors
    /// The peer has sent, or received, something else than this side has.
    pub(crate) async fn protect(&mut self, side: Side, mode: MsMode, session: &Session) -> Result<()> {
        let (sent, received) = self.end_transcript();
        if mode == MsMode::Secure {
            let [sealer, opener] = ciphers(side, session)?;
            self.sealer = Some(Box::new(sealer));
            self.reader.decrypt(opener);
        }
        self.send(&Signature(session.key.sign(&received))).await?;
        let signature: Signature = self.expect().await?;
        if !session.key.verifies(&sent, &signature.0) {
            return Err(CloseReason::protocol(
                "the peer's signature is not that of what was sent: it was changed on its way, or the peer has another key",
            ));
        }
        Ok(())
    }
}

/// The ciphers of sending and of receiving.
fn ciphers(side: Side, session: &Session) -> Result<[Cipher; 2]> {
    let secret = &session.connection_secret.0;
    let parts = secret.first_chunk::<KEY_BYTES>().zip(secret.get(KEY_BYTES..)).and_then(|(key, rest)| {
        let (nonces, _) = rest.as_chunks::<NONCE_BYTES>();
        Some((key, nonces.first()?, nonces.get(1)?))
    });
    let (key, of_server, of_client) = parts.ok_or_else(|| {
        let found = secret.len();
        CloseReason::protocol(format!(
            "a secret of {found} bytes, not {SESSION_SECRET_BYTES}, for an encrypted connection"
        ))
    })?;
    let [server, client] = [of_server, of_client].map(|nonce| Cipher::new(key, nonce));
    Ok(if side == Side::Server { [server, client] } else { [client, server] })
}

/// What both sides have said until they know each other.
#[derive(Default)]
pub(crate) struct Transcript {
    pub(crate) sent: Vec<u8>,
    pub(crate) received: Vec<u8>,
}

impl Wire {
    /// Sends one frame.
    pub(crate) async fn send(&mut self, control: &impl Control) -> Result<()> {
        let mut bytes = Vec::new();
        match &mut self.sealer {
            None => control.frame_into(&mut bytes),
            Some(sealer) => control.seal_into(sealer, &mut bytes),
        }
        self.send_bytes(bytes).await
    }
}
