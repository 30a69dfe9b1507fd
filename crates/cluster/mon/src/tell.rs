//! Commands as messages: to the monitors at large (MON_COMMAND), to this one (`ceph tell mon.a`), and `ceph ping`.

use std::rc::Rc;

use carmine_messenger::{Connection, Message};
use carmine_wire::mon_msg::{Command, CommandAck};
use carmine_wire::tell::{Ping, Tell, TellReply};
use serde_json::json;

use crate::change::Refusal;
use crate::command::{self, Answer, View};
use crate::mon::Mon;

/// Sends a command's result, status and output.
type Ack = Box<dyn FnOnce(i32, String, Vec<u8>)>;

impl Mon {
    pub(crate) fn command(&self, conn: &Rc<Connection>, msg: &Message, request: Command) {
        let (conn, tid, cmd) = (Rc::clone(conn), msg.header.tid, request.cmd.clone());
        let ack = move |result, status, data: Vec<u8>| {
            let front = CommandAck { version: 0, result, status, cmd };
            Mon::reply(&conn, Message::of(&front).with_tid(tid).with_data(data));
        };
        self.run_command(&request.cmd, Box::new(ack));
    }

    pub(crate) fn tell(&self, conn: &Rc<Connection>, msg: &Message, request: &Tell) {
        let (conn, tid) = (Rc::clone(conn), msg.header.tid);
        let ack = move |result, status, data: Vec<u8>| {
            let front = TellReply { result, status };
            Mon::reply(&conn, Message::of(&front).with_tid(tid).with_data(data));
        };
        self.run_command(&request.cmd, Box::new(ack));
    }

    pub(crate) fn ping(&self, conn: &Rc<Connection>) {
        let epoch = self.current().map.epoch.0;
        let text = json!({ "health": {}, "mon_status": { "name": "a", "rank": 0, "state": "leader", "osdmap": epoch } });
        Mon::reply(conn, Message::of(&Ping { text: Some(text.to_string()) }));
    }

    fn run_command(&self, cmd: &[String], ack: Ack) {
        let current = self.current();
        let outcome = {
            let stats = self.stats.borrow();
            let view = View {
                map: &current.map,
                placement: current.placement(),
                map_bytes: &current.bytes,
                stats: &stats,
                addr: self.local_addr().to_string(),
                uptime_s: self.uptime_s(),
                now: self.now(),
            };
            command::run(cmd, &view)
        };
        match outcome {
            Err(Refusal { code, text }) => ack(code.0, text, Vec::new()),
            Ok(Answer::Done { status, data }) => ack(0, status, data),
            Ok(Answer::Change { change, status }) => {
                let done = move |_: &Mon, result: Result<(), Refusal>| match result {
                    Ok(()) => ack(0, status, Vec::new()),
                    Err(Refusal { code, text }) => ack(code.0, text, Vec::new()),
                };
                self.change(change, Box::new(done));
            }
        }
    }
}
