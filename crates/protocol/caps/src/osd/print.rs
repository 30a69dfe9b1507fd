//! Caps as text, which parses to the same ones.

use std::fmt;

use super::{Grant, Match, OsdCaps, Rights, Rule, Spec, Tag, bits};
use crate::cursor::{Quoted, Word, write_grants};

impl fmt::Display for OsdCaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_grants(f, &self.grants)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.rights {
            // What follows a class would be its method.
            Rights::Rule(Rule { place, spec: spec @ Spec::Class { .. } }) => write!(f, "allow{place}{spec}"),
            Rights::Rule(Rule { place, spec }) => write!(f, "allow{spec}{place}"),
            Rights::Profile { name, place, .. } => write!(f, "profile {}{place}", Word(name)),
        }?;
        self.network.as_ref().map_or(Ok(()), |network| write!(f, " network {network}"))
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Spec::Allow(bits::ANY) => f.write_str(" *"),
            Spec::Allow(allowed) => {
                let has = |bit| allowed & bit == bit;
                let letters = [("r", bits::READ), ("w", bits::WRITE), ("x", bits::EXECUTE)];
                let letters: String =
                    letters.into_iter().filter(|(_, bit)| has(*bit)).map(|(letter, _)| letter).collect();
                if !letters.is_empty() {
                    write!(f, " {letters}")?;
                }
                match allowed & bits::EXECUTE {
                    bits::CLASS_READ => f.write_str(" class-read"),
                    bits::CLASS_WRITE => f.write_str(" class-write"),
                    _ => Ok(()),
                }
            }
            Spec::Class { class, method } => {
                write!(f, " class {}", Word(class))?;
                method.as_ref().map_or(Ok(()), |method| write!(f, " {}", Word(method)))
            }
        }
    }
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(pool) = &self.pool {
            write!(f, " pool={}", Word(pool))?;
        }
        if let Some(namespace) = &self.namespace {
            write!(f, " namespace={}", Word(namespace))?;
        }
        if let Some(Tag { application, key, value }) = &self.tag {
            write!(f, " tag {} {}={}", Word(application), Pattern(key), Pattern(value))?;
        }
        self.object_prefix.as_ref().map_or(Ok(()), |prefix| write!(f, " object_prefix {}", Word(prefix)))
    }
}

/// A key or a value of a tag.
struct Pattern<'a>(&'a str);

impl fmt::Display for Pattern<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "*" => f.write_str("*"),
            // `all` is `*`, also at the beginning of a word.
            word if word.starts_with("all") => Quoted(word).fmt(f),
            word => Word(word).fmt(f),
        }
    }
}
