//! "Send me these maps, now and when they change."

use crate::{Decoder, Encoder, Front, Result, kinds};

/// Bit of [`Subscription::flags`]: send one and forget the subscription.
pub const ONETIME: u8 = 1;

/// One thing subscribed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// "config", "monmap", "mgrmap", "osdmap"; unknown names are to be ignored.
    pub what: String,
    /// The first version wanted; 0 for the current one.
    pub start: u64,
    /// [`ONETIME`].
    pub flags: u8,
}

impl Subscription {
    pub fn new(what: &str, start: u64, onetime: bool) -> Subscription {
        Subscription { what: what.to_owned(), start, flags: if onetime { ONETIME } else { 0 } }
    }
}

/// MMonSubscribe v3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscribe {
    /// Real clients write them ascending by name.
    pub what: Vec<Subscription>,
    pub hostname: String,
}

impl Front for Subscribe {
    const KIND: u16 = kinds::MON_SUBSCRIBE;
    const VERSION: u16 = 3;
    const COMPAT: u16 = 1;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.vec(&self.what, |e, s| {
            e.str(&s.what);
            e.u64(s.start);
            e.u8(s.flags);
        });
        e.str(&self.hostname);
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<Subscribe> {
        let what =
            d.vec(4 + 8 + 1, |d| Ok(Subscription { what: d.string()?, start: d.u64()?, flags: d.u8()? }))?;
        Ok(Subscribe { what, hostname: d.string()? })
    }
}
