//! What a client asks its monitor, and what it is told: subscriptions, options, versions of maps, commands.

use carmine_codec::coded;
use carmine_types::Uuid;

use super::paxos;
use crate::header::messages;

/// Bit of [`Subscription::flags`]: send one and forget the subscription.
pub const ONETIME: u8 = 1;

coded! {
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
}

impl Subscription {
    pub fn new(what: &str, start: u64, onetime: bool) -> Subscription {
        Subscription { what: what.to_owned(), start, flags: if onetime { ONETIME } else { 0 } }
    }
}

messages! {
    /// MMonSubscribe v3: "send me these maps, now and when they change".
    pub struct Subscribe: MON_SUBSCRIBE, 3, compat 1 {
        /// Real clients write them ascending by name.
        pub what: Vec<Subscription>,
        pub hostname: String,
    }

    /// MConfig: options that the monitor pushes to a client, which waits for this message even if it is empty.
    #[derive(Default)]
    pub struct ConfigMsg: CONFIG, 1, compat 1, priority MON_REPLY {
        /// Option and value.
        pub options: Vec<(String, String)>,
    }

    /// MMonGetVersion: "which version of this map is the newest?"
    pub struct GetVersion: MON_GET_VERSION, 1, compat 1 {
        /// Chosen by the client; the reply echoes it (header tids are 0).
        pub handle: u64,
        /// "osdmap".
        pub what: String,
    }

    /// MMonGetVersionReply. The client then waits for that version: never name one that is not delivered.
    pub struct GetVersionReply: MON_GET_VERSION_REPLY, 2, compat 2, priority MON_REPLY {
        pub handle: u64,
        pub newest: u64,
        pub oldest: u64,
    }

    /// MMonCommand: `{"prefix": "osd pool ls", ...}`. Its data segment is the command's input.
    pub struct Command: MON_COMMAND, 1, compat 1 {
        /// Map version that the client knows.
        pub version: u64 = paxos,
        pub fsid: Uuid,
        /// One JSON object, as a string.
        pub cmd: Vec<String>,
    }

    /// MMonCommandAck. Its data segment is the command's output; the header echoes the command's tid.
    pub struct CommandAck: MON_COMMAND_ACK, 1, compat 1, priority MON_REPLY {
        pub version: u64 = paxos,
        /// 0 or a negative errno.
        pub result: i32,
        /// For people.
        pub status: String,
        /// The command's.
        pub cmd: Vec<String>,
    }
}
