//! Requests of clients, and their answers.

use std::fmt;

use carmine_types::{Eversion, errno};

use crate::model::{Output, Step};

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Virtual time, nanoseconds.
    pub at_ns: u64,
    /// The outputs of all steps, or the errno.
    pub result: Result<Vec<Output>, i32>,
    /// The version that a write gave the object.
    pub version: Eversion,
}

/// A request of a client.
#[derive(Clone, Debug)]
pub struct Call {
    pub client: u32,
    pub object: u32,
    pub steps: Vec<Step>,
    /// Virtual time, nanoseconds.
    pub at_ns: u64,
    /// None came, because the client died. The request may have been executed, or not.
    pub answer: Option<Answer>,
}

impl Call {
    /// It asked for a change.
    pub fn writes(&self) -> bool {
        self.steps.iter().any(Step::is_write)
    }

    /// It was told that its change was made.
    pub fn has_changed(&self) -> bool {
        self.writes() && self.answer.as_ref().is_some_and(|answer| answer.result.is_ok())
    }

    fn had_no_room(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| answer.result == Err(errno::ENOSPC))
    }

    pub(crate) fn version(&self) -> Eversion {
        self.answer.as_ref().map_or(Eversion::default(), |answer| answer.version)
    }

    pub(crate) fn answered_ns(&self) -> u64 {
        self.answer.as_ref().map_or(u64::MAX, |answer| answer.at_ns)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |ns: u64| ns as f64 / 1e6;
        write!(f, "{:.3} ms client.{} o{} {:?}", ms(self.at_ns), self.client, self.object, self.steps)?;
        let Some(answer) = &self.answer else { return f.write_str(": no answer") };
        write!(f, ": {:.3} ms ", ms(answer.at_ns))?;
        match &answer.result {
            Err(errno) => write!(f, "errno {errno}"),
            Ok(_) if self.writes() => write!(f, "version {:?}", answer.version),
            Ok(outputs) => outputs.iter().try_for_each(|output| match output {
                Output::None => Ok(()),
                Output::Size(bytes) => write!(f, "{bytes} bytes "),
                Output::Data(data) => write!(f, "data of {} bytes, sum {:08x} ", data.len(), sum(data)),
                Output::Pairs(pairs) => {
                    let value = |v: &[u8]| v.iter().rev().fold(0u64, |n, b| n << 8 | u64::from(*b));
                    pairs.iter().try_for_each(|(key, v)| write!(f, "{key}={} ", value(v)))
                }
            }),
        }
    }
}

/// A checksum that tells data apart.
fn sum(data: &[u8]) -> u32 {
    data.iter().fold(17, |sum, byte| sum.rotate_left(5).wrapping_mul(0x0100_0193) ^ u32::from(*byte))
}

/// All requests, in the order in which they were made.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub calls: Vec<Call>,
    /// Requests may be refused for want of room; while a pool is full, its writes wait at the client, and reads pass them.
    pub may_be_full: bool,
}

impl History {
    /// Adds a request; returns its place.
    pub fn begin(&mut self, call: Call) -> usize {
        self.calls.push(call);
        self.calls.len() - 1
    }

    /// The requests for one object. Those that an OSD refused for lack of room changed nothing and are left out.
    pub(crate) fn calls_for(&self, object: u32) -> Vec<&Call> {
        self.calls.iter().filter(|call| call.object == object && !call.had_no_room()).collect()
    }

    pub fn answered(&self) -> usize {
        self.calls.iter().filter(|call| call.answer.is_some()).count()
    }
}
