//! Commands to one daemon (`ceph tell`), as JSON: `{"prefix": "dump_metrics", …}`.

use carmine_types::Uuid;

use crate::header::messages;
use crate::{Decoder, Encoder, Front, Result, kinds};

messages! {
    /// MCommand. Its data segment is the command's input.
    pub struct Tell: COMMAND, 1, compat 1 {
        pub fsid: Uuid,
        /// One JSON object, as a string.
        pub cmd: Vec<String>,
    }

    /// MCommandReply. Its data segment is the command's output; the header echoes the command's tid.
    pub struct TellReply: COMMAND_REPLY, 1, compat 1 {
        /// 0 or a negative errno.
        pub result: i32,
        /// For people.
        pub status: String,
    }
}

/// MPing, both ways: the answer's `text` is JSON about the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ping {
    /// `None` in the question.
    pub text: Option<String>,
}

impl Front for Ping {
    const KIND: u16 = kinds::PING;
    const VERSION: u16 = 1;
    const COMPAT: u16 = 1;

    fn encode(&self, e: &mut Encoder<'_>) {
        if let Some(text) = &self.text {
            e.str(text);
        }
    }

    fn decode(_: u16, d: &mut Decoder<'_>) -> Result<Ping> {
        Ok(Ping { text: if d.is_empty() { None } else { Some(d.string()?) } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round_trip<T: Front + PartialEq + std::fmt::Debug>(value: T) {
        assert_eq!(T::from_front(&T::header(), &value.to_front()).as_ref(), Ok(&value));
    }

    #[test]
    fn both_ways() {
        round_trip(Tell { fsid: Uuid([7; 16]), cmd: vec![r#"{"prefix":"version"}"#.into()] });
        round_trip(TellReply { result: -22, status: "no".into() });
        round_trip(Ping { text: None });
        round_trip(Ping { text: Some("{}".into()) });
    }
}
