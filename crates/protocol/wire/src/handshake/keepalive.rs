//! Control frames of an open session.

use carmine_types::UTime;

use super::Control;
use crate::frame::Tag;
use crate::{Decoder, Encoder, Result};

/// "Are you there?" Must be answered with the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive2(pub UTime);

impl Control for Keepalive2 {
    const TAG: Tag = Tag::Keepalive2;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.utime(self.0);
    }

    fn decode_fields(d: &mut Decoder<'_>) -> Result<Keepalive2> {
        Ok(Keepalive2(d.utime()?))
    }
}

/// The answer to [`Keepalive2`], with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive2Ack(pub UTime);

impl Control for Keepalive2Ack {
    const TAG: Tag = Tag::Keepalive2Ack;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.utime(self.0);
    }

    fn decode_fields(d: &mut Decoder<'_>) -> Result<Keepalive2Ack> {
        Ok(Keepalive2Ack(d.utime()?))
    }
}

/// Number of the last message received; only of use in lossless sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack(pub u64);

impl Control for Ack {
    const TAG: Tag = Tag::Ack;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.u64(self.0);
    }

    fn decode_fields(d: &mut Decoder<'_>) -> Result<Ack> {
        Ok(Ack(d.u64()?))
    }
}
