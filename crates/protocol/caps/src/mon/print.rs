//! Caps as text, which parses to the same ones.

use std::fmt;

use super::{Constraint, Grant, MonCaps, Rights, bits};
use crate::cursor::{Word, write_grants};

impl fmt::Display for MonCaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_grants(f, &self.grants)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rights {
            Rights::All(allowed) => write!(f, "allow {}", Mode(*allowed)),
            Rights::Service { service, allowed } => {
                write!(f, "allow service {} {}", Word(service), Mode(*allowed))
            }
            Rights::Command { command, args } => {
                write!(f, "allow command {}{}", Word(command), if args.is_empty() { "" } else { " with" })?;
                for (name, constraint) in args {
                    write!(f, " {}", Word(name))?;
                    match constraint {
                        Constraint::Equal(value) => write!(f, "={}", Word(value)),
                        Constraint::Prefix(start) => write!(f, " prefix {}", Word(start)),
                        Constraint::Regex(text) => write!(f, " regex {}", Word(text)),
                    }?;
                }
                Ok(())
            }
            Rights::Profile(name) => write!(f, "profile {}", Word(name)),
        }?;
        self.network.as_ref().map_or(Ok(()), |network| write!(f, " network {network}"))?;
        self.filesystem.as_ref().map_or(Ok(()), |name| write!(f, " fsname={name}"))
    }
}

struct Mode(u8);

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == bits::ANY {
            return f.write_str("*");
        }
        let letters = [("r", bits::READ), ("w", bits::WRITE), ("x", bits::EXECUTE)];
        letters
            .into_iter()
            .filter(|(_, bit)| self.0 & bit != 0)
            .try_for_each(|(letter, _)| f.write_str(letter))
    }
}
