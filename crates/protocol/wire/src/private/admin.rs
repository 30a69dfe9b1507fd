//! Questions and orders to a process, in JSON: status, counters, start of an in-process load.

use crate::{Decoder, Encoder, Front, Result, kinds};

/// Tool → process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// One JSON object.
    pub json: Vec<u8>,
}

impl Front for Admin {
    const KIND: u16 = kinds::ADMIN;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.blob(&self.json);
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<Admin> {
        Ok(Admin { json: d.blob()?.to_vec() })
    }
}

/// The answer, with the tid of the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminReply {
    /// 0 or a negative errno.
    pub result: i32,
    /// One JSON object.
    pub json: Vec<u8>,
}

impl Front for AdminReply {
    const KIND: u16 = kinds::ADMIN_REPLY;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, e: &mut Encoder<'_>) {
        e.i32(self.result);
        e.blob(&self.json);
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<AdminReply> {
        Ok(AdminReply { result: d.i32()?, json: d.blob()?.to_vec() })
    }
}
