//! Class `hello`: the example that comes with Ceph (`objclass` of its developer guide). Clients' tests call it to check how a
//! method's output, result and errors are handled.

use carmine_types::errno;

use super::handle::Handle;
use super::{Done, Method, blind, read, with_data, without_object, write};
use crate::error::{OpError, refuse_if};

pub(super) const METHODS: &[Method] = &[
    without_object(read("say_hello", |_, name| greeting(name))),
    blind(write("record_hello", record_hello)),
    blind(write("writes_dont_return_data", return_data)),
    blind(write("write_return_data", return_data)),
    blind(write("write_too_much_return_data", write_too_much_return_data)),
    with_data(write("turn_it_to_11", turn_it_to_11)),
    without_object(with_data(read("replay", |h, _| Ok(start_of(h).to_vec())))),
    // Each violates its declaration: one reads and is declared write-only, the other writes and is declared read-only.
    blind(write("bad_reader", |_, _| Err(OpError::new(errno::EIO)))),
    read("bad_writer", |_, _| Err(OpError::new(errno::EIO))),
];

/// Longest name that is greeted, bytes.
const NAME_BYTES_MAX: usize = 100;
/// Most bytes of an object that the methods read.
const READ_BYTES_MAX: usize = 1100;

fn greeting(name: &[u8]) -> Done {
    match name {
        [] => Ok(b"Hello, world!".to_vec()),
        _ if name.len() > NAME_BYTES_MAX => Err(OpError::new(errno::EINVAL)),
        _ => Ok([b"Hello, ", name, b"!"].concat()),
    }
}

/// Fails if the object exists.
fn record_hello(h: &mut Handle<'_, '_>, name: &[u8]) -> Done {
    let text = greeting(name)?;
    refuse_if(h.must_exist().is_ok(), errno::EEXIST)?;
    h.write_full(text)?;
    note_caller(h, b"said_by")
}

/// Its output reaches the client if the request asks for outputs of writes.
fn return_data(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    if !input.is_empty() {
        return Err(OpError::with_output(errno::EINVAL, "too much input data!"));
    }
    h.set_xattr(b"foo", b"bar".to_vec())?;
    h.told = 42;
    Ok(b"you might see this".to_vec())
}

/// Returns more than a write may return.
fn write_too_much_return_data(h: &mut Handle<'_, '_>, _: &[u8]) -> Done {
    h.set_xattr(b"foo", b"bar".to_vec())?;
    h.told = 42;
    Ok(b"nobody is told this, as it is too long. ".repeat(10))
}

fn turn_it_to_11(h: &mut Handle<'_, '_>, input: &[u8]) -> Done {
    refuse_if(!input.is_empty(), errno::EINVAL)?;
    let loud = start_of(h).to_ascii_uppercase();
    h.write_full(loud)?;
    note_caller(h, b"amplified_by")
}

fn start_of<'a>(h: &'a Handle<'_, '_>) -> &'a [u8] {
    let data = h.data();
    data.get(..READ_BYTES_MAX).unwrap_or(data)
}

/// `client.4230 127.0.0.1:0/3536386984`
fn note_caller(h: &mut Handle<'_, '_>, name: &[u8]) -> Done {
    let addr = h.caller.addr;
    let sock = addr.sock.map_or_else(|| "-".to_owned(), |sock| sock.to_string());
    let caller = format!("{} {sock}/{}", h.caller.name(), addr.nonce);
    h.set_xattr(name, caller.into_bytes()).map(|()| Vec::new())
}
