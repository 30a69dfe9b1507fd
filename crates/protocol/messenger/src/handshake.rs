//! The part of the handshake that both sides share: control frames before the session is established.

use crate::auth::Transcript;
use crate::error::CloseReason;
use crate::limits::TRANSCRIPT_BYTES_MAX;
use crate::reader::Reader;
use carmine_reactor::{Chunk, TcpStream};
use carmine_wire::frame::Tag;
use carmine_wire::frame::secure::Cipher;
use carmine_wire::handshake::{Banner, Control, Hello};
use carmine_wire::{EntityAddr, EntityType};

pub(crate) type Result<T> = std::result::Result<T, CloseReason>;

/// A stream on which the handshake runs.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    pub(crate) reader: Reader,
    /// What was said so far, if it will have to be signed.
    transcript: Option<Transcript>,
    /// Encrypts what is sent.
    pub(crate) sealer: Option<Box<Cipher>>,
}

impl Wire {
    /// A new stream. `is_signed`: the sides will sign what they have heard.
    pub(crate) fn new(stream: TcpStream, reader: Reader, is_signed: bool) -> Wire {
        Wire { stream, reader, transcript: is_signed.then(Transcript::default), sealer: None }
    }

    /// What was sent and received so far.
    pub(crate) fn end_transcript(&mut self) -> (Vec<u8>, Vec<u8>) {
        let Transcript { sent, received } = self.transcript.take().unwrap_or_default();
        (sent, received)
    }

    pub(crate) async fn send_bytes(&mut self, bytes: Vec<u8>) -> Result<()> {
        if let Some(transcript) = &mut self.transcript {
            transcript.sent.extend_from_slice(&bytes);
        }
        Ok(self.stream.send(vec![Chunk::Bytes(bytes)]).await?)
    }

    /// Exchanges banners and HELLOs; returns the peer's HELLO. `entity` is what we are.
    pub(crate) async fn greet(&mut self, entity: EntityType) -> Result<Hello> {
        let mut banner = Vec::new();
        Banner::default().encode_into(&mut banner);
        self.send_bytes(banner).await?;
        let heard = self.transcript.as_mut().map(|transcript| &mut transcript.received);
        self.reader.banner(heard).await?.check_compatible()?;
        let peer_addr = EntityAddr::msgr2(self.stream.peer_addr(), 0);
        self.send(&Hello { entity, peer_addr }).await?;
        self.expect().await
    }

    /// The next frame, which must not be a message.
    pub(crate) async fn next(&mut self) -> Result<(Tag, Vec<u8>)> {
        let mut heard = self.transcript.as_mut().map(|transcript| &mut transcript.received);
        self.reader.wait().await?;
        self.reader.overhear(heard.as_deref_mut());
        let preamble = self.reader.preamble()?;
        if preamble.tag == Tag::Message {
            return Err(CloseReason::protocol("a message before the end of the handshake"));
        }
        let payload = self.reader.control(&preamble, heard).await?;
        if self.transcript.as_ref().is_some_and(|said| said.received.len() > TRANSCRIPT_BYTES_MAX) {
            return Err(CloseReason::protocol(format!(
                "more than {TRANSCRIPT_BYTES_MAX} bytes before it said who it is"
            )));
        }
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
