//! Questions to the monitor that have one answer.

use super::MonSession;
use crate::error::{ClientError, Result};
use carmine_messenger::{Connection, Message, with_timeout};
use carmine_reactor::Payload;
use carmine_types::Epoch;
use carmine_wire::mon_msg::{
    Command, CommandAck, GetVersion, GetVersionReply, PoolOp, PoolOpReply, StatFs, StatFsReply,
};
use std::time::Duration;

/// Answer to a command.
#[derive(Clone, Debug)]
pub struct CommandReply {
    /// 0 or a negative errno.
    pub result: i32,
    /// For people.
    pub status: String,
    /// The output.
    pub data: Vec<u8>,
}

impl MonSession {
    /// Runs a command given as JSON, e.g. `{"prefix": "osd pool ls"}`, and returns its answer, whatever its result. If the
    /// session is lost before the answer comes, the command is sent again.
    ///
    /// # Errors
    /// No answer within `limit`.
    pub async fn command(&self, json: &str, input: Payload, limit: Duration) -> Result<CommandReply> {
        let what = format!("command {json}");
        let command = Command { version: 0, fsid: self.fsid(), cmd: vec![json.to_owned()] };
        let reply = self.request(&what, limit, |_| Message::of(&command).with_data(input)).await?;
        let ack: CommandAck = decode(&what, &reply)?;
        Ok(CommandReply { result: ack.result, status: ack.status, data: reply.data.to_vec() })
    }

    /// Number of the newest OSDMap that the mon has.
    ///
    /// # Errors
    /// No answer within `limit`.
    pub async fn newest_osdmap(&self, limit: Duration) -> Result<Epoch> {
        let what = "question for the newest map";
        let ask = |handle| Message::of(&GetVersion { handle, what: "osdmap".to_owned() });
        let reply: GetVersionReply = decode(what, &self.request(what, limit, ask).await?)?;
        Ok(Epoch(u32::try_from(reply.newest).unwrap_or(u32::MAX)))
    }

    /// Space in the cluster, or in one pool.
    ///
    /// # Errors
    /// No answer within `limit`.
    pub async fn statfs(&self, pool: Option<i64>, limit: Duration) -> Result<StatFsReply> {
        let what = "question for the space used";
        let ask = StatFs { version: 0, fsid: self.fsid(), pool };
        decode(what, &self.request(what, limit, |_| Message::of(&ask)).await?)
    }

    /// Creates or deletes a pool or a snapshot; returns when this process has the map in which it is done.
    ///
    /// # Errors
    /// The mon's errno, or no answer within `limit`.
    pub async fn pool_op(&self, op: PoolOp, limit: Duration) -> Result<PoolOpReply> {
        let what = format!("pool operation {:#x} on {:?}", op.op, op.name);
        let op = PoolOp { fsid: self.fsid(), ..op };
        let reply: PoolOpReply = decode(&what, &self.request(&what, limit, |_| Message::of(&op)).await?)?;
        if reply.result < 0 {
            return Err(ClientError::Errno { what, errno: carmine_types::errno::Errno(reply.result) });
        }
        self.wait_for_map(reply.epoch, limit).await?;
        Ok(reply)
    }

    /// Sends what `make` makes (given the request's number) and waits for the reply of that number.
    async fn request(
        &self,
        what: &str,
        limit: Duration,
        make: impl FnOnce(u64) -> Message,
    ) -> Result<Message> {
        let (id, reply) = self.pending.register(make);
        if let Some(conn) = self.connection() {
            self.pending.send(id, &conn);
        }
        match with_timeout(&self.shard, limit, reply).await {
            Some(Ok(reply)) => Ok(reply),
            Some(Err(_)) => Err(ClientError::Closed),
            None => Err(self.no_answer(what, limit)),
        }
    }

    /// Sends all requests without an answer on a new connection.
    pub(super) fn resend(&self, conn: &Connection) {
        self.pending.send_all(conn);
    }
}

fn decode<T: carmine_wire::Front>(what: &str, reply: &Message) -> Result<T> {
    reply.decode().map_err(|error| ClientError::BadReply { what: what.to_owned(), reason: error.to_string() })
}
