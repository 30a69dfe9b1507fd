//! The dialling side of the handshake.

use std::rc::Rc;

use carmine_reactor::Shard;
use carmine_types::Errno;
use carmine_wire::frame::Tag;
use carmine_wire::handshake::{
    AuthBadMethod, AuthDone, AuthNone, AuthReplyMore, AuthRequest, AuthRequestMore, AuthTarget, ClientIdent,
    Control, FLAG_LOSSY, MissingFeatures, ServerIdent, Signature, auth_method, connection_mode,
};
use carmine_wire::{EntityAddr, EntityType};

use crate::auth::{Identity, Side, number};
use crate::config::{ClientConfig, Target};
use crate::connection::{Connection, Established, Peer};
use crate::error::{CloseReason, ConnectError};
use crate::handshake::{Wire, unexpected};
use crate::limits::HANDSHAKE_TRIES;
use crate::message::Dispatcher;
use crate::reader::Reader;
use crate::{session, watch, with_timeout};

/// Dials `target`, which must be an `expect`, and goes through the handshake. Messages then go to `dispatcher`.
///
/// The first mon that answers gives this process its global id, which `config` then keeps.
///
/// # Errors
/// All of [`ConnectError`]: nobody there, someone else there, no answer in time, or a broken handshake.
pub async fn connect(
    shard: &Shard,
    target: impl Into<Target>,
    expect: EntityType,
    config: Rc<ClientConfig>,
    dispatcher: Rc<dyn Dispatcher>,
) -> Result<Rc<Connection>, ConnectError> {
    let target = target.into();
    let addr = target.dial;
    let sock = addr.sock.ok_or(ConnectError::NoAddress(addr))?;
    let after = config.limits.handshake;
    let stream = with_timeout(shard, after, shard.connect(sock))
        .await
        .ok_or(ConnectError::Timeout { addr, after })?
        .map_err(|source| ConnectError::Io { addr, source })?;
    let limit = watch::HandshakeLimit::start(shard, &stream, after);
    let reader = Reader::new(shard, stream.clone(), config.limits.recv_buf_bytes);
    let wire = Wire::new(stream, reader, config.identity.is_some());
    let mut dial = Dial { wire, target, expect, config: &config };
    let outcome = dial.handshake().await;
    let timed_out = limit.end();
    let Dial { wire: Wire { stream, reader, sealer, .. }, .. } = dial;
    let (peer, global_id) = match outcome {
        Ok(peer) => peer,
        Err(error) => {
            stream.shutdown();
            return Err(if timed_out { ConnectError::Timeout { addr, after } } else { error });
        }
    };
    let (limits, group) = (config.limits, config.group);
    let received_bytes = Rc::clone(&reader.received_bytes);
    let made = Established {
        stream,
        peer,
        global_id,
        accepted: false,
        budget: None,
        received_bytes,
        limits,
        group,
        sealer,
    };
    let conn = Connection::start(shard, made);
    if let Some(idle) = limits.idle {
        watch::idle(&conn, idle);
    }
    shard.spawn(group, "msgr-read", session::run(Rc::clone(&conn), reader, dispatcher));
    Ok(conn)
}

struct Dial<'a> {
    wire: Wire,
    target: Target,
    expect: EntityType,
    config: &'a ClientConfig,
}

impl Dial<'_> {
    async fn handshake(&mut self) -> Result<(Peer, u64), ConnectError> {
        let hello = self.wire.greet(self.config.entity).await.map_err(|e| self.failed(e))?;
        if hello.entity != self.expect {
            let (expected, found) = (self.expect, hello.entity);
            return Err(ConnectError::WrongEntity { addr: self.target.dial, expected, found });
        }
        let global_id = self.authenticate().await?;
        let own = hello.peer_addr.sock.map(|sock| sock.ip());
        let own = own.map_or_else(EntityAddr::default, |ip| EntityAddr::client(ip, self.config.nonce));
        let own = self.config.addr.unwrap_or(own);
        let ident = self.identify(own, global_id).await?;
        if !ident.addrs.contains(&self.target.ident) {
            let found = ident.addrs.0.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            return Err(ConnectError::WrongAddress { addr: self.target.ident, found });
        }
        let missing =
            self.config.required_features & !ident.supported | ident.required & !self.config.features;
        if missing != 0 {
            return Err(ConnectError::Features { addr: self.target.dial, missing });
        }
        let peer = Peer {
            entity: hello.entity,
            name: String::new(),
            gid: ident.gid,
            addr: self.target.ident,
            sock: self.wire.stream.peer_addr(),
            features: self.config.features & ident.supported,
            guest: None,
        };
        Ok((peer, global_id))
    }

    async fn authenticate(&mut self) -> Result<u64, ConnectError> {
        let global_id = match self.config.identity.clone() {
            None => self.say_who().await?,
            Some(identity) => self.prove_who(&*identity).await?,
        };
        if self.config.gid.get() == 0 || (self.config.identity.is_some() && self.expect == EntityType::MON) {
            self.config.gid.set(global_id);
        }
        Ok(global_id)
    }

    /// Method cephx.
    async fn prove_who(&mut self, identity: &dyn Identity) -> Result<u64, ConnectError> {
        let addr = self.target.dial;
        let identity_fails = |source| ConnectError::Identity { addr, source };
        let mut proof = identity.prove(self.expect).map_err(identity_fails)?;
        let modes = if self.expect == EntityType::MON { &self.config.mon_modes } else { &self.config.modes };
        let numbers: Vec<u32> = modes.iter().map(|mode| number(*mode)).collect();
        let request = AuthRequest { method: auth_method::CEPHX, modes: numbers, payload: proof.request() };
        self.wire.send(&request).await.map_err(|e| self.failed(e))?;
        for _ in 0..HANDSHAKE_TRIES {
            let (tag, payload) = self.wire.next().await.map_err(|e| self.failed(e))?;
            match tag {
                Tag::AuthReplyMore => {
                    let challenge = AuthReplyMore::decode(&payload).map_err(|e| self.failed(e.into()))?;
                    let answer = proof.answer(&challenge.payload).map_err(identity_fails)?;
                    self.wire.send(&AuthRequestMore { payload: answer }).await.map_err(|e| self.failed(e))?;
                }
                Tag::AuthDone => {
                    let done = AuthDone::decode(&payload).map_err(|e| self.failed(e.into()))?;
                    let mode = modes.iter().find(|mode| number(**mode) == done.mode).copied();
                    let mode = mode.ok_or_else(|| {
                        self.failed(CloseReason::protocol(format!(
                            "the server chose connection mode {}, for which nobody has asked",
                            done.mode
                        )))
                    })?;
                    let session = proof.done(done.global_id, &done.payload).map_err(identity_fails)?;
                    self.wire.protect(Side::Client, mode, &session).await.map_err(|e| self.failed(e))?;
                    return Ok(done.global_id);
                }
                Tag::AuthBadMethod => {
                    let bad = AuthBadMethod::decode(&payload).map_err(|e| self.failed(e.into()))?;
                    proof.refused();
                    let allowed = (bad.allowed_methods, bad.allowed_modes);
                    return Err(self.refused(bad.result, allowed, &request));
                }
                other => return Err(self.failed(unexpected(other, "AuthDone"))),
            }
        }
        Err(self.failed(CloseReason::protocol("the server asks for more and more proofs")))
    }

    /// Why there is no session with a peer that allows these methods and modes.
    fn refused(
        &self,
        result: i32,
        (methods, modes): (Vec<u32>, Vec<u32>),
        request: &AuthRequest,
    ) -> ConnectError {
        let addr = self.target.dial;
        let fits = methods.contains(&request.method) && modes.iter().any(|mode| request.modes.contains(mode));
        if fits {
            return ConnectError::Refused { addr, errno: Errno(result) };
        }
        let wanted = format!("method {} in modes {:?}", request.method, request.modes);
        ConnectError::Auth { addr, methods, modes, wanted }
    }

    /// Method none.
    async fn say_who(&mut self) -> Result<u64, ConnectError> {
        let target = if self.expect == EntityType::MON { AuthTarget::Mon } else { AuthTarget::Osd };
        let identity = AuthNone {
            target,
            entity: self.config.entity,
            name: self.config.name.clone(),
            global_id: self.config.gid.get(),
        };
        let request = AuthRequest::none(&identity);
        self.wire.send(&request).await.map_err(|e| self.failed(e))?;
        let (tag, payload) = self.wire.next().await.map_err(|e| self.failed(e))?;
        let done = match tag {
            Tag::AuthDone => AuthDone::decode(&payload).map_err(|e| self.failed(e.into()))?,
            Tag::AuthBadMethod => {
                let bad = AuthBadMethod::decode(&payload).map_err(|e| self.failed(e.into()))?;
                return Err(self.refused(bad.result, (bad.allowed_methods, bad.allowed_modes), &request));
            }
            other => return Err(self.failed(unexpected(other, "AuthDone"))),
        };
        if done.mode != connection_mode::CRC {
            let text = format!("the server chose connection mode {}, not crc", done.mode);
            return Err(self.failed(CloseReason::protocol(text)));
        }
        self.wire.send(&Signature::default()).await.map_err(|e| self.failed(e))?;
        let signature: Signature = self.wire.expect().await.map_err(|e| self.failed(e))?;
        signature.check_none().map_err(|e| self.failed(e.into()))?;
        Ok(done.global_id)
    }

    async fn identify(&mut self, own: EntityAddr, gid: u64) -> Result<ServerIdent, ConnectError> {
        let config = self.config;
        config.global_seq.set(config.global_seq.get() + 1);
        let ident = ClientIdent {
            addrs: own.into(),
            target: self.target.ident,
            gid: config.number.unwrap_or(gid),
            global_seq: config.global_seq.get(),
            supported: config.features,
            required: config.required_features,
            flags: FLAG_LOSSY,
            cookie: 0,
        };
        self.wire.send(&ident).await.map_err(|e| self.failed(e))?;
        let (tag, payload) = self.wire.next().await.map_err(|e| self.failed(e))?;
        match tag {
            Tag::ServerIdent => ServerIdent::decode(&payload).map_err(|e| self.failed(e.into())),
            Tag::IdentMissingFeatures => {
                let missing = MissingFeatures::decode(&payload).map_err(|e| self.failed(e.into()))?.0;
                Err(ConnectError::Features { addr: self.target.dial, missing })
            }
            other => Err(self.failed(unexpected(other, "ServerIdent"))),
        }
    }

    fn failed(&self, reason: CloseReason) -> ConnectError {
        ConnectError::Handshake { addr: self.target.dial, reason: reason.to_string() }
    }
}
