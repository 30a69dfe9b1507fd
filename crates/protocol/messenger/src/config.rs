//! Configuration of both sides of a connection.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use carmine_reactor::Group;
use carmine_types::MsMode;
use carmine_wire::{EntityAddr, EntityAddrVec, EntityType, FEATURES};

use crate::auth::{Guard, Identity};
use crate::budget::Budget;
use crate::connection::Peer;
use crate::gate::Gate;
use crate::limits;

carmine_types::defaults! {
    /// Bounds of one connection; see the crate's page.
    #[derive(Clone, Copy, Debug)]
    pub struct Limits {
        /// Bytes of dispatched and not yet released messages beyond which reading pauses.
        pub held_bytes: usize = limits::HELD_BYTES,
        /// Number of such messages.
        pub held_messages: usize = limits::HELD_MESSAGES,
        /// Bytes waiting to be sent beyond which a server reads no more requests.
        pub queue_soft_bytes: usize = limits::QUEUE_SOFT_BYTES,
        /// Bytes waiting to be sent beyond which the connection is closed.
        pub queue_hard_bytes: usize = limits::QUEUE_HARD_BYTES,
        /// Size to which the receive buffer grows.
        pub recv_buf_bytes: usize = limits::RECV_BUF_BYTES,
        /// Time from the TCP connection to the end of the handshake.
        pub handshake: Duration = limits::HANDSHAKE_TIMEOUT,
        /// Silence after which a connection counts as idle, and gives its place to another when all places are taken.
        pub patience: Duration = limits::PATIENCE,
        /// Silence of the peer after which the connection is closed; `None`: never.
        pub idle: Option<Duration> = Some(limits::IDLE_TIMEOUT),
    }
}

/// A client's identity as it claims it in AUTH_REQUEST.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Its entity type, from HELLO.
    pub entity: EntityType,
    /// Its name, without the type.
    pub name: String,
    /// The global id it wants to keep; 0 for a new one.
    pub gid: u64,
}

/// Gives a global id to each [`Claim`]; `None`: there is none now, and the handshake fails.
pub type AssignId = Box<dyn Fn(&Claim) -> Option<u64>>;

/// Where a server takes a client's global id from.
pub enum GlobalIds {
    /// From the request: what an OSD does.
    FromRequest,
    /// From this function: what a mon does. It must return `claim.gid` if that is not 0, else a number never used before.
    Assign(AssignId),
}

impl fmt::Debug for GlobalIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GlobalIds::FromRequest => "FromRequest",
            GlobalIds::Assign(_) => "Assign",
        })
    }
}

/// Which peers' connections share a budget.
pub type Shares = fn(&Peer) -> bool;

/// The accepting side.
#[derive(Debug)]
pub struct ServerConfig {
    /// This process's entity type; a client checks it.
    pub entity: EntityType,
    /// Its number: OSD id or mon rank.
    pub id: u64,
    /// The public addresses, exactly as they stand in the OSDMap or MonMap (type, ip, port, nonce): a client that finds another
    /// address here hangs up and retries forever. A reactor's own port presents the same addresses.
    pub addrs: EntityAddrVec,
    /// Entity types that may connect.
    pub accept: Vec<EntityType>,
    /// Where global ids come from.
    pub global_ids: GlobalIds,
    /// Features offered.
    pub features: u64,
    /// Features that a client must have.
    pub required_features: u64,
    /// Limits the connections of all servers that share the gate.
    pub gate: Gate,
    /// Pause between the gate and the first byte that is sent, for clients that are not ready for a quick answer.
    pub banner_pause: Duration,
    /// Bounds of each connection.
    pub limits: Limits,
    /// Decides who is let in; `None`: everybody (method none).
    pub guard: Option<Rc<dyn Guard>>,
    /// Modes that are allowed.
    pub modes: Vec<MsMode>,
    /// Memory that connections share, and which peers' connections do.
    pub budget: Option<(Rc<Budget>, Shares)>,
    /// Scheduling group of the connections' tasks.
    pub group: Group,
}

/// msgr v2 addresses (bit 59), and the op encoding that we speak (bits 56, 57 and 21: MOSDOp v8).
const REQUIRED_OF_CLIENTS: u64 = 1 << 59 | 1 << 57 | 1 << 56 | 1 << 21;

impl ServerConfig {
    /// A server with the default limits that accepts clients, OSDs, mons and mgrs.
    pub fn new(entity: EntityType, id: u64, addrs: EntityAddrVec) -> ServerConfig {
        ServerConfig {
            entity,
            id,
            addrs,
            accept: vec![EntityType::CLIENT, EntityType::OSD, EntityType::MON, EntityType::MGR],
            global_ids: GlobalIds::FromRequest,
            features: FEATURES,
            required_features: REQUIRED_OF_CLIENTS,
            gate: Gate::new(limits::CONNECTIONS_MAX),
            banner_pause: Duration::ZERO,
            limits: Limits::default(),
            guard: None,
            modes: vec![MsMode::Crc],
            budget: None,
            group: Group::Client,
        }
    }

    /// The same with a function that assigns global ids.
    pub fn assigning(mut self, assign: impl Fn(&Claim) -> Option<u64> + 'static) -> ServerConfig {
        self.global_ids = GlobalIds::Assign(Box::new(assign));
        self
    }
}

/// The dialling side.
#[derive(Debug)]
pub struct ClientConfig {
    /// This process's entity type.
    pub entity: EntityType,
    /// Its name without the type: `admin`, or an OSD's number.
    pub name: String,
    /// Its global id. 0 until a mon assigned one; [`crate::connect`] fills it in. An OSD sets its number.
    pub gid: Cell<u64>,
    /// Part of this process's address; anything that differs between processes and restarts.
    pub nonce: u32,
    /// The public address of a daemon, which it announces; `None`: that of a client, without a port.
    pub(crate) addr: Option<EntityAddr>,
    /// The number of a daemon, by which it identifies itself (`osd.3`); a client does so by its global id.
    pub(crate) number: Option<u64>,
    /// Proves who this process is; `None`: it only says so (method none).
    pub identity: Option<Rc<dyn Identity>>,
    /// Modes to ask a monitor for, the best first, …
    pub mon_modes: Vec<MsMode>,
    /// … and to ask all others for.
    pub modes: Vec<MsMode>,
    /// Features offered.
    pub features: u64,
    /// Features that a server must have.
    pub required_features: u64,
    /// Bounds of each connection.
    pub limits: Limits,
    /// Scheduling group of the connections' tasks.
    pub group: Group,
    /// Connection attempts so far; each one carries its number.
    pub(crate) global_seq: Cell<u64>,
}

/// The feature that every modern peer has: msgr v2 addresses.
const REQUIRED_OF_SERVERS: u64 = 1 << 59;

impl ClientConfig {
    /// A config with the default limits; idle connections are kept.
    pub fn new(entity: EntityType, name: impl Into<String>, nonce: u32) -> ClientConfig {
        ClientConfig {
            entity,
            name: name.into(),
            gid: Cell::new(0),
            nonce,
            addr: None,
            number: None,
            identity: None,
            mon_modes: vec![MsMode::Crc],
            modes: vec![MsMode::Crc],
            features: FEATURES,
            required_features: REQUIRED_OF_SERVERS,
            limits: Limits { idle: None, ..Limits::default() },
            group: Group::Client,
            global_seq: Cell::new(0),
        }
    }

    /// The same for the daemon of this type and number, which announces its public address.
    pub fn daemon(entity: EntityType, number: u32, addr: EntityAddr) -> ClientConfig {
        let client = ClientConfig::new(entity, number.to_string(), addr.nonce);
        ClientConfig { addr: Some(addr), number: Some(number.into()), ..client }
    }
}

/// The server to dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// Where the TCP connection goes.
    pub dial: EntityAddr,
    /// The address that the server must present. It differs from `dial` for a reactor's own port.
    pub ident: EntityAddr,
}

impl Target {
    /// Dials another port of the daemon whose public address is `ident`.
    pub fn port_of(ident: EntityAddr, port: u16) -> Target {
        let mut dial = ident;
        if let Some(sock) = &mut dial.sock {
            sock.set_port(port);
        }
        Target { dial, ident }
    }
}

impl From<EntityAddr> for Target {
    fn from(addr: EntityAddr) -> Target {
        Target { dial: addr, ident: addr }
    }
}
