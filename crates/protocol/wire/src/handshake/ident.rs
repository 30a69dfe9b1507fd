//! Who the two sides are and which features they have.

use super::Control;
use crate::frame::Tag;
use crate::{Decoder, Encoder, EntityAddr, EntityAddrVec, Result};

/// Bit of the ident frames' `flags`: nothing is kept when the connection breaks.
pub const FLAG_LOSSY: u64 = 1;

/// Client → server, after the signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdent {
    /// The client's own addresses.
    pub addrs: EntityAddrVec,
    /// The address that the client dialled.
    pub target: EntityAddr,
    /// Global id; -1 (all ones) before the monitor gave one to the messenger.
    pub gid: u64,
    /// Number of connection attempts of this process, to anybody.
    pub global_seq: u64,
    pub supported: u64,
    pub required: u64,
    /// [`FLAG_LOSSY`].
    pub flags: u64,
    pub cookie: u64,
}

impl Control for ClientIdent {
    const TAG: Tag = Tag::ClientIdent;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.put(&self.addrs);
        e.put(&self.target);
        e.u64(self.gid);
        e.u64(self.global_seq);
        e.u64(self.supported);
        e.u64(self.required);
        e.u64(self.flags);
        e.u64(self.cookie);
    }

    fn decode_fields(d: &mut Decoder<'_>) -> Result<ClientIdent> {
        Ok(ClientIdent {
            addrs: d.get()?,
            target: d.get()?,
            gid: d.u64()?,
            global_seq: d.u64()?,
            supported: d.u64()?,
            required: d.u64()?,
            flags: d.u64()?,
            cookie: d.u64()?,
        })
    }
}

/// Server → client: the session is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdent {
    /// Must contain the address that the client dialled, nonce included, else the client gives up.
    pub addrs: EntityAddrVec,
    pub gid: u64,
    pub global_seq: u64,
    pub supported: u64,
    pub required: u64,
    /// [`FLAG_LOSSY`]; the server decides.
    pub flags: u64,
    /// 0 for lossy sessions.
    pub cookie: u64,
}

impl Control for ServerIdent {
    const TAG: Tag = Tag::ServerIdent;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.put(&self.addrs);
        e.u64(self.gid);
        e.u64(self.global_seq);
        e.u64(self.supported);
        e.u64(self.required);
        e.u64(self.flags);
        e.u64(self.cookie);
    }

    fn decode_fields(d: &mut Decoder<'_>) -> Result<ServerIdent> {
        Ok(ServerIdent {
            addrs: d.get()?,
            gid: d.u64()?,
            global_seq: d.u64()?,
            supported: d.u64()?,
            required: d.u64()?,
            flags: d.u64()?,
            cookie: d.u64()?,
        })
    }
}

/// Server → client: the features that the server requires and the client lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingFeatures(pub u64);

impl Control for MissingFeatures {
    const TAG: Tag = Tag::IdentMissingFeatures;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.u64(self.0);
    }

    fn decode_fields(d: &mut Decoder<'_>) -> Result<MissingFeatures> {
        Ok(MissingFeatures(d.u64()?))
    }
}
