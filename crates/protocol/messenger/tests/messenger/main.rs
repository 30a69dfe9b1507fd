//! Both sides of the messenger against each other and against hand-made peers, over loopback sockets (`uring`) and in the
//! simulator (`sim`).
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod auth;
mod common;
mod dial;
mod flow;
mod hostile;
mod pair;
mod raw;
mod replay;
