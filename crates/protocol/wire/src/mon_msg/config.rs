//! Options that the monitor pushes to a client. A client waits for this message, even if it is empty.

use crate::header::priority;
use crate::{Decoder, Encoder, Front, Result, kinds};

/// MConfig.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigMsg {
    /// Option and value.
    pub options: Vec<(String, String)>,
}

impl Front for ConfigMsg {
    const KIND: u16 = kinds::CONFIG;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = priority::MON_REPLY;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.vec(&self.options, |e, (option, value)| {
            e.str(option);
            e.str(value);
        });
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<ConfigMsg> {
        Ok(ConfigMsg { options: d.map(8, |d| d.string(), |d| d.string())? })
    }
}
