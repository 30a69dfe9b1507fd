//! The part of the handshake that both sides share: control frames before the session is established.

use crate::error::CloseReason;
use crate::reader::Reader;
use carmine_reactor::{Chunk, TcpStream};
use carmine_wire::frame::{Preamble, Tag};
use carmine_wire::handshake::{Banner, Control, Hello};
use carmine_wire::{EntityAddr, EntityType};

pub(crate) type Result<T> = std::result::Result<T, CloseReason>;

/// A stream on which the handshake runs.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    pub(crate) reader: Reader,
}

impl Wire {
    /// Exchanges banners and HELLOs; returns the peer's HELLO. `entity` is what we are.
    pub(crate) async fn greet(&mut self, entity: EntityType) -> Result<Hello> {
        let mut banner = Vec::new();
        Banner::default().encode_into(&mut banner);
        self.stream.send(vec![Chunk::Bytes(banner)]).await?;
        self.reader.banner().await?.check_compatible()?;
        let peer_addr = EntityAddr::msgr2(self.stream.peer_addr(), 0);
        self.send(&Hello { entity, peer_addr }).await?;
        self.expect().await
    }

    /// Sends one frame.
    pub(crate) async fn send(&self, control: &impl Control) -> Result<()> {
        let mut bytes = Vec::new();
        control.frame_into(&mut bytes);
        Ok(self.stream.send(vec![Chunk::Bytes(bytes)]).await?)
    }

    /// The next frame, which must not be a message.
    pub(crate) async fn next(&mut self) -> Result<(Tag, Vec<u8>)> {
        self.reader.wait().await?;
        let preamble: Preamble = self.reader.preamble()?;
        if preamble.tag == Tag::Message {
            return Err(CloseReason::protocol("a message before the end of the handshake"));
        }
        let payload = self.reader.control(&preamble).await?;
        Ok((preamble.tag, payload))
    }

    /// The next frame, which must be a `C`.
    pub(crate) async fn expect<C: Control>(&mut self) -> Result<C> {
        let (tag, payload) = self.next().await?;
        if tag != C::TAG {
            return Err(unexpected(tag, &format!("{:?}", C::TAG)));
        }
        Ok(C::decode(&payload)?)
    }
}

pub(crate) fn unexpected(found: Tag, expected: &str) -> CloseReason {
    CloseReason::protocol(format!("{found:?} frame in the handshake, {expected} expected"))
}
