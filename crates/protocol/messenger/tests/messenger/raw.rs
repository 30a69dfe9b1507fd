//! A peer made by hand, frame by frame.

use carmine_reactor::{Chunk, Shard, TcpStream};
use carmine_wire::frame::{FrameReader, Tag};
use carmine_wire::handshake::{
    AuthDone, AuthNone, AuthRequest, AuthTarget, BANNER_BYTES, Banner, ClientIdent, Control, FLAG_LOSSY,
    Hello, ServerIdent, Signature,
};
use carmine_wire::{EntityAddr, EntityType, FEATURES};

/// A client that does only what it is told.
pub(crate) struct Raw {
    shard: Shard,
    stream: TcpStream,
    received: Vec<u8>,
}

impl Raw {
    pub(crate) async fn connect(shard: &Shard, addr: EntityAddr) -> Raw {
        let stream = shard.connect(addr.sock.unwrap()).await.unwrap();
        Raw { shard: shard.clone(), stream, received: Vec::new() }
    }

    /// Sends bytes; false if the peer is gone.
    pub(crate) async fn send(&self, bytes: &[u8]) -> bool {
        self.stream.send(vec![Chunk::Bytes(bytes.to_vec())]).await.is_ok()
    }

    pub(crate) async fn control(&self, control: &impl Control) {
        let mut bytes = Vec::new();
        control.frame_into(&mut bytes);
        self.send(&bytes).await;
    }

    /// Receives what is there; false at the end of the stream.
    async fn more(&mut self) -> bool {
        let (received, buf) = self.stream.recv(self.shard.buf(65_536), 0).await;
        let mut buf = buf;
        match received {
            Ok(0) | Err(_) => false,
            Ok(bytes) => {
                buf.set_len(bytes);
                self.received.extend_from_slice(&buf);
                true
            }
        }
    }

    /// Receives until the peer closes; what came before that.
    pub(crate) async fn drain(&mut self) -> Vec<u8> {
        while self.more().await {}
        std::mem::take(&mut self.received)
    }

    async fn read_exact(&mut self, len: usize) -> Option<Vec<u8>> {
        while self.received.len() < len {
            if !self.more().await {
                return None;
            }
        }
        Some(self.received.drain(..len).collect())
    }

    pub(crate) async fn banner(&mut self) -> Option<()> {
        self.read_exact(BANNER_BYTES).await.map(|_| ())
    }

    /// The next frame: its tag and segments.
    pub(crate) async fn frame(&mut self) -> Option<(Tag, [Vec<u8>; 4])> {
        let mut frames = FrameReader::default();
        frames.preamble(&mut self.read_exact(frames.need()).await?).unwrap();
        let mut body = self.read_exact(frames.need()).await?;
        let frame = frames.body(&mut body).unwrap();
        Some((frame.tag, frame.segments.map(<[u8]>::to_vec)))
    }

    /// The next frame, which must be this control frame.
    pub(crate) async fn expect<C: Control>(&mut self) -> C {
        let (tag, segments) = self.frame().await.expect("the peer hung up");
        assert_eq!(tag, C::TAG);
        C::decode(&segments[0]).unwrap()
    }

    /// Banner and HELLO, both ways.
    pub(crate) async fn greet(&mut self, entity: EntityType) -> Hello {
        self.send(&banner()).await;
        self.control(&Hello { entity, peer_addr: EntityAddr::default() }).await;
        self.banner().await.unwrap();
        self.expect().await
    }

    /// The handshake up to the signatures.
    pub(crate) async fn authenticate(&mut self) {
        self.greet(EntityType::CLIENT).await;
        self.control(&AuthRequest::none(&identity())).await;
        self.expect::<AuthDone>().await;
        self.expect::<Signature>().await;
        self.control(&Signature::default()).await;
    }

    /// The whole handshake.
    pub(crate) async fn handshake(&mut self, target: EntityAddr) -> ServerIdent {
        self.authenticate().await;
        self.control(&ident(target)).await;
        self.expect().await
    }
}

pub(crate) fn banner() -> Vec<u8> {
    let mut bytes = Vec::new();
    Banner::default().encode_into(&mut bytes);
    bytes
}

pub(crate) fn identity() -> AuthNone {
    AuthNone {
        target: AuthTarget::Osd,
        entity: EntityType::CLIENT,
        name: "admin".to_owned(),
        global_id: 4711,
    }
}

pub(crate) fn ident(target: EntityAddr) -> ClientIdent {
    ClientIdent {
        addrs: EntityAddr::client("127.0.0.1".parse().unwrap(), 5).into(),
        target,
        gid: 4711,
        global_seq: 1,
        supported: FEATURES,
        required: 0,
        flags: FLAG_LOSSY,
        cookie: 0,
    }
}
