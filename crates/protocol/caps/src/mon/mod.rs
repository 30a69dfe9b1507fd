//! Caps of a monitor's sessions: services, commands and profiles. Unlike an OSD's, what several grants allow adds up.

mod grammar;
mod print;

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::Unparsable;
use crate::network::Network;
use crate::pattern::Pattern;

/// What a session may do at a monitor. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MonCaps {
    grants: Vec<Grant>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Grant {
    rights: Rights,
    network: Option<Network>,
    /// The only file system that the session is shown.
    filesystem: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Rights {
    /// Bits of [`bits`] for every service.
    All(u8),
    Service {
        service: String,
        allowed: u8,
    },
    /// A command, if its arguments are as they must be.
    Command {
        command: String,
        args: BTreeMap<String, Constraint>,
    },
    Profile(String),
}

/// What an argument must be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Constraint {
    Equal(String),
    Prefix(String),
    /// A [`Pattern`].
    Regex(String),
}

mod bits {
    pub(super) const READ: u8 = 1;
    pub(super) const WRITE: u8 = 2;
    pub(super) const EXECUTE: u8 = 4;
    pub(super) const ALL: u8 = READ | WRITE | EXECUTE;
    /// More than all others together.
    pub(super) const ANY: u8 = 0xff;
}

/// Arguments of a command.
pub type Args = BTreeMap<String, String>;

/// What a session asks of a monitor.
#[derive(Clone, Copy, Debug)]
pub struct MonRequest<'a> {
    /// The session's name, like `osd.0` or `client.admin`.
    pub entity: &'a str,
    /// The part of the monitor that it is for: `mon`, `osd`, `pg`, `auth`, `log`, `config-key` and so on.
    pub service: &'a str,
    /// The command; empty for messages.
    pub command: &'a str,
    /// Its arguments.
    pub args: &'a Args,
    /// It reads.
    pub read: bool,
    /// It writes.
    pub write: bool,
    /// It executes; all that concerns keys does.
    pub execute: bool,
    /// The session's address, as far as it is known.
    pub client: Option<IpAddr>,
}

impl MonCaps {
    /// Reads a text.
    ///
    /// # Errors
    /// Where it cannot be read further; then it grants nothing.
    pub fn parse(text: &str) -> Result<MonCaps, Unparsable> {
        grammar::parse(text)
    }

    /// `allow *`.
    pub fn everything() -> MonCaps {
        let grant = Grant { rights: Rights::All(bits::ANY), network: None, filesystem: None };
        MonCaps { grants: vec![grant] }
    }

    /// Whether a request is allowed.
    pub fn allow(&self, request: &MonRequest<'_>) -> bool {
        let wanted =
            [(request.read, bits::READ), (request.write, bits::WRITE), (request.execute, bits::EXECUTE)];
        let needed = wanted.iter().filter(|(is_wanted, _)| *is_wanted).fold(0, |all, (_, bit)| all | bit);
        let mut allowed = 0;
        let mut grants = self.grants.iter().filter(|grant| grant.is_for(request.client));
        grants.any(|grant| {
            allowed |= grant.rights.allowed(request);
            grant.is_everything() || needed & !allowed == 0
        })
    }

    /// Whether they are those of an administrator.
    pub fn allow_everything(&self) -> bool {
        self.grants.iter().any(|grant| grant.is_everything())
    }
}

impl Grant {
    fn is_for(&self, client: Option<IpAddr>) -> bool {
        self.network.as_ref().is_none_or(|network| network.contains(client))
    }

    fn is_everything(&self) -> bool {
        self.rights == Rights::All(bits::ANY) && self.filesystem.is_none()
    }
}

impl Rights {
    /// What of a request is allowed.
    fn allowed(&self, request: &MonRequest<'_>) -> u8 {
        match self {
            // Only who may do everything may see all keys of the store.
            Rights::All(_) if request.service == "config-key" => 0,
            Rights::All(allowed) => *allowed,
            Rights::Service { service, allowed } if service == request.service => *allowed,
            Rights::Command { command, args } if command == request.command => {
                let is_met = |(name, constraint): (&String, &Constraint)| {
                    request.args.get(name).is_some_and(|value| constraint.is_met(value))
                };
                if args.iter().all(is_met) { bits::ALL } else { 0 }
            }
            Rights::Profile(name) => {
                profile(name, request.entity).iter().fold(0, |all, rights| all | rights.allowed(request))
            }
            _ => 0,
        }
    }
}

impl Constraint {
    fn is_met(&self, value: &str) -> bool {
        match self {
            Constraint::Equal(wanted) => value == wanted,
            Constraint::Prefix(start) => value.starts_with(start.as_str()),
            Constraint::Regex(text) => Pattern::new(text).is_some_and(|pattern| pattern.matches(value)),
        }
    }
}

/// What a profile stands for. An unknown one stands for nothing.
fn profile(name: &str, entity: &str) -> Vec<Rights> {
    let service = |service: &str, allowed| Rights::Service { service: service.to_owned(), allowed };
    let command = |command: &str| Rights::Command { command: command.to_owned(), args: BTreeMap::new() };
    let limited = |command: &str, args: &[(&str, Constraint)]| Rights::Command {
        command: command.to_owned(),
        args: args.iter().map(|(name, constraint)| ((*name).to_owned(), constraint.clone())).collect(),
    };
    let (read, write) = (bits::READ, bits::WRITE);
    let own_keys = ["get", "put", "set", "exists", "delete"].map(|verb| {
        let key = Constraint::Prefix(format!("daemon-private/{entity}/"));
        limited(&format!("config-key {verb}"), &[("key", key)])
    });
    let mut rights = match name {
        "read-only" => vec![Rights::All(read)],
        "read-write" => vec![Rights::All(read | write)],
        "osd" => vec![
            service("osd", bits::ALL),
            service("mon", read),
            service("pg", read | write),
            service("log", write),
        ],
        "mgr" => vec![
            service("mgr", bits::ALL),
            service("log", read | write),
            service("mon", read | write),
            service("mds", read | write),
            service("fs", read | write),
            service("osd", read | write),
            service("auth", read | bits::EXECUTE),
            service("config-key", read | write),
            service("config", read | write),
            // For the keys of daemons that an orchestrator makes.
            command("auth get-or-create"),
            command("auth rm"),
            command("auth caps"),
        ],
        "bootstrap-osd" => vec![
            service("mon", read),
            service("osd", read),
            command("mon getmap"),
            command("osd new"),
            command("osd purge-new"),
        ],
        "simple-rados-client" => vec![service("mon", read), service("osd", read), service("pg", read)],
        "rbd" => {
            let addr = Constraint::Regex("^[^/]+/[0-9]+$".to_owned());
            let add = Constraint::Equal("add".to_owned());
            vec![
                service("mon", read),
                service("osd", read),
                service("pg", read),
                // To break the lock of a dead client, whose address and nonce it must name; in both spellings.
                limited("osd blocklist", &[("blocklistop", add.clone()), ("addr", addr.clone())]),
                limited("osd blacklist", &[("blacklistop", add), ("addr", addr)]),
            ]
        }
        "fs-client" => ["mon", "mds", "osd", "pg"].map(|name| service(name, read)).to_vec(),
        "crash" => vec![service("mon", read)],
        "role-definer" => vec![service("mon", read), service("auth", bits::ALL)],
        _ => Vec::new(),
    };
    if matches!(name, "osd" | "mgr") {
        rights.extend(own_keys);
    }
    rights
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: MonRequest<'static> = MonRequest {
        entity: "client.x",
        service: "",
        command: "",
        args: &BTreeMap::new(),
        read: false,
        write: false,
        execute: false,
        client: None,
    };

    fn message(service: &'static str, mode: &str) -> MonRequest<'static> {
        let has = |letter| mode.contains(letter);
        MonRequest { service, read: has('r'), write: has('w'), execute: has('x'), ..NOTHING }
    }

    fn allows(caps: &str, request: &MonRequest<'_>) -> bool {
        MonCaps::parse(caps).expect(caps).allow(request)
    }

    #[test]
    fn services_have_their_own_modes_and_grants_add_up() {
        assert!(allows("allow r", &message("osd", "r")) && !allows("allow r", &message("osd", "w")));
        assert!(allows("allow r, allow w", &message("osd", "rw")));
        assert!(allows("allow service osd rw", &message("osd", "rw")));
        assert!(!allows("allow service osd rw", &message("mon", "r")));
        assert!(!allows("allow service osd rw", &message("osd", "x")));
        assert!(!allows("allow rwx", &message("config-key", "r")));
        assert!(allows("allow *", &message("config-key", "r")) && allows("allow *", &message("auth", "rwx")));
        assert!(!MonCaps::default().allow(&message("mon", "r")));
        assert!(!MonCaps::default().allow(&NOTHING));
    }

    #[test]
    fn a_command_is_allowed_with_the_arguments_that_it_must_have() {
        let args = |pairs: &[(&str, &str)]| -> Args {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let asks = |caps: &str, command: &str, given: &Args| {
            let request =
                MonRequest { entity: "osd.3", command, args: given, ..message("config-key", "rwx") };
            allows(caps, &request)
        };
        let none = args(&[]);
        assert!(asks("allow command \"osd new\"", "osd new", &none));
        assert!(!asks("allow command \"osd new\"", "osd ls", &none));
        let text = "allow command x with a=b c prefix d e regex \"^[0-9]+$\"";
        assert!(asks(text, "x", &args(&[("a", "b"), ("c", "de"), ("e", "12"), ("more", "")])));
        for wrong in [
            args(&[("a", "c"), ("c", "de"), ("e", "12")]),
            args(&[("a", "b"), ("c", "e"), ("e", "12")]),
            args(&[("a", "b"), ("c", "de"), ("e", "x")]),
            args(&[("a", "b"), ("c", "de")]),
        ] {
            assert!(!asks(text, "x", &wrong), "{wrong:?}");
        }
        assert!(!asks("allow command x with a regex \"(b)\"", "x", &args(&[("a", "b")])), "not built");
        let own = args(&[("key", "daemon-private/osd.3/x")]);
        let others = args(&[("key", "daemon-private/osd.30/x")]);
        assert!(asks("allow profile osd", "config-key get", &own));
        assert!(!asks("allow profile osd", "config-key get", &others));
    }

    #[test]
    fn profiles_allow_what_their_programs_need() {
        let all = [("osd", "rwx"), ("mon", "r"), ("pg", "rw"), ("log", "w")];
        for (service, mode) in all {
            assert!(allows("allow profile osd", &message(service, mode)), "{service}");
        }
        assert!(
            !allows("profile osd", &message("mon", "w")) && !allows("profile osd", &message("auth", "r"))
        );
        assert!(allows("profile rbd", &message("osd", "r")) && !allows("profile rbd", &message("osd", "w")));
        assert!(allows("profile simple-rados-client", &message("pg", "r")));
        assert!(!allows("profile simple-rados-client", &message("log", "w")));
        assert!(
            allows("profile mgr", &message("auth", "rx")) && !allows("profile mgr", &message("auth", "w"))
        );
        assert!(!allows("profile unheard-of", &message("mon", "r")));
        let args: Args = [("blocklistop", "add"), ("addr", "10.0.0.1:0/7")]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        let list = MonRequest { command: "osd blocklist", args: &args, ..message("osd", "rw") };
        assert!(allows("profile rbd", &list) && !allows("profile simple-rados-client", &list));
        let whole: Args = args.iter().map(|(name, value)| (name.clone(), value.replace("/7", ""))).collect();
        assert!(!allows("profile rbd", &MonRequest { args: &whole, ..list }), "a whole host");
        let boot = MonRequest { command: "osd new", ..message("osd", "rw") };
        assert!(
            allows("profile bootstrap-osd", &boot) && !allows("profile bootstrap-osd", &message("osd", "w"))
        );
    }

    #[test]
    fn a_network_limits_a_grant() {
        let from = |addr: &str| MonRequest { client: addr.parse().ok(), ..message("mon", "r") };
        for caps in
            ["allow r network 10.0.0.0/8", "allow * network 10.0.0.0/8", "profile osd network 10.0.0.0/8"]
        {
            assert!(allows(caps, &from("10.1.1.1")) && !allows(caps, &from("11.1.1.1")), "{caps}");
        }
    }
}
