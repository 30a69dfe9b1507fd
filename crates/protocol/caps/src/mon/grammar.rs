//! The grammar of a monitor's caps, read as Ceph's parser does: the first alternative that fits is taken.

use std::collections::BTreeMap;

use super::{Constraint, Grant, MonCaps, Rights, bits};
use crate::Unparsable;
use crate::cursor::Cursor;

pub(super) fn parse(text: &str) -> Result<MonCaps, Unparsable> {
    let mut c = Cursor::new(text);
    let (mut grants, mut next) = (Vec::new(), grant(&mut c));
    while let Some(found) = next {
        grants.push(found);
        next = c.attempt(|c| {
            c.take_all(|c| c == ' ');
            c.take(";").or_else(|| c.take(","))?;
            c.take_all(|c| c == ' ');
            grant(c)
        });
    }
    if grants.is_empty() || !c.is_at_end() {
        return Err(Unparsable { text: text.to_owned(), at: c.at() });
    }
    Ok(MonCaps { grants })
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n')
}

fn spaces(c: &mut Cursor<'_>) -> Option<()> {
    c.take_some(is_space).map(|_| ())
}

fn grant(c: &mut Cursor<'_>) -> Option<Grant> {
    c.attempt(|c| {
        c.take_all(is_space);
        let rights = c.attempt(all);
        let rights = rights.or_else(|| c.attempt(profile)).or_else(|| c.attempt(service));
        let rights = rights.or_else(|| c.attempt(command))?;
        let network = c.network(is_space);
        let filesystem = match rights {
            Rights::All(_) => c.attempt(filesystem),
            _ => None,
        };
        c.take_all(is_space);
        Some(Grant { rights, network, filesystem })
    })
}

fn allow(c: &mut Cursor<'_>) -> Option<()> {
    c.take("allow")?;
    spaces(c)
}

/// Between a name and its value.
fn is(c: &mut Cursor<'_>) -> Option<()> {
    c.take("=").or_else(|| spaces(c))
}

fn word(c: &mut Cursor<'_>) -> Option<String> {
    c.word().map(str::to_owned)
}

fn all(c: &mut Cursor<'_>) -> Option<Rights> {
    allow(c)?;
    allowed(c).map(Rights::All)
}

fn filesystem(c: &mut Cursor<'_>) -> Option<String> {
    spaces(c)?;
    c.take("fsname")?;
    is(c)?;
    c.take_some(|c| c.is_ascii_alphanumeric() || "_.-".contains(c)).map(str::to_owned)
}

fn profile(c: &mut Cursor<'_>) -> Option<Rights> {
    c.attempt(allow);
    c.take("profile")?;
    is(c)?;
    word(c).map(Rights::Profile)
}

fn service(c: &mut Cursor<'_>) -> Option<Rights> {
    allow(c)?;
    c.take("service")?;
    is(c)?;
    let service = word(c)?;
    spaces(c)?;
    Some(Rights::Service { service, allowed: allowed(c)? })
}

fn command(c: &mut Cursor<'_>) -> Option<Rights> {
    allow(c)?;
    c.take("command")?;
    is(c)?;
    let command = word(c)?;
    let args = c.attempt(|c| {
        spaces(c)?;
        c.take("with")?;
        let mut args = BTreeMap::new();
        while let Some((name, constraint)) = c.attempt(constraint) {
            args.entry(name).or_insert(constraint); // the first of several counts
        }
        Some(args).filter(|args| !args.is_empty())
    });
    Some(Rights::Command { command, args: args.unwrap_or_default() })
}

fn constraint(c: &mut Cursor<'_>) -> Option<(String, Constraint)> {
    spaces(c)?;
    let name = word(c)?;
    if c.take("=").is_some() {
        return Some((name, Constraint::Equal(word(c)?)));
    }
    spaces(c)?;
    let is_prefix = c.take("prefix").is_some();
    if !is_prefix {
        c.take("regex")?;
    }
    spaces(c)?;
    let value = word(c)?;
    Some((name, if is_prefix { Constraint::Prefix(value) } else { Constraint::Regex(value) }))
}

/// `*`, or some of `r`, `w` and `x` in this order.
fn allowed(c: &mut Cursor<'_>) -> Option<u8> {
    if c.take("*").or_else(|| c.take("all")).is_some() {
        return Some(bits::ANY);
    }
    let letters = [("r", bits::READ), ("w", bits::WRITE), ("x", bits::EXECUTE)];
    let taken = letters.into_iter().filter_map(|(letter, bit)| c.take(letter).map(|()| bit));
    taken.reduce(|all, bit| all | bit)
}
