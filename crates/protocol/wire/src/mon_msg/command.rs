//! Commands as JSON: `{"prefix": "osd pool ls", ...}`.

use carmine_types::Uuid;

use super::paxos;
use crate::header::priority;
use crate::{Decoder, Encoder, Front, Result, kinds};

/// MMonCommand. Its data segment is the command's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Map version that the client knows.
    pub version: u64,
    pub fsid: Uuid,
    /// One JSON object, as a string.
    pub cmd: Vec<String>,
}

impl Front for Command {
    const KIND: u16 = kinds::MON_COMMAND;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, e: &mut Encoder<'_>) {
        paxos::put(&self.version, e);
        e.uuid(self.fsid);
        e.vec(&self.cmd, |e, part| e.str(part));
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<Command> {
        Ok(Command { version: paxos::get(d)?, fsid: d.uuid()?, cmd: d.vec(4, |d| d.string())? })
    }
}

/// MMonCommandAck. Its data segment is the command's output; the header echoes the command's tid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandAck {
    pub version: u64,
    /// 0 or a negative errno.
    pub result: i32,
    /// For people.
    pub status: String,
    /// The command's.
    pub cmd: Vec<String>,
}

impl Front for CommandAck {
    const KIND: u16 = kinds::MON_COMMAND_ACK;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;
    const PRIORITY: u16 = priority::MON_REPLY;

    fn encode(&self, e: &mut Encoder<'_>) {
        paxos::put(&self.version, e);
        e.i32(self.result);
        e.str(&self.status);
        e.vec(&self.cmd, |e, part| e.str(part));
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<CommandAck> {
        Ok(CommandAck {
            version: paxos::get(d)?,
            result: d.i32()?,
            status: d.string()?,
            cmd: d.vec(4, |d| d.string())?,
        })
    }
}
