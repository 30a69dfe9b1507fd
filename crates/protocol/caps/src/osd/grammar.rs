//! The grammar of an OSD's caps. It is read as Ceph's parser does: the first alternative that fits is taken, also where another one
//! would have read more. So `allow class lock pool=a` is no caps (`pool` is the method there), and `allow pool=a class lock` is.

use super::{Grant, Match, OsdCaps, Rights, Rule, Spec, Tag, bits, profile};
use crate::Unparsable;
use crate::cursor::Cursor;

pub(super) fn parse(text: &str) -> Result<OsdCaps, Unparsable> {
    let mut c = Cursor::new(text);
    c.take_all(is_space);
    let (mut grants, mut next) = (Vec::new(), grant(&mut c));
    while let Some(found) = next {
        grants.push(found);
        next = c.attempt(|c| {
            c.take(";").or_else(|| c.take(","))?;
            grant(c)
        });
    }
    let at = c.at();
    c.take_all(is_space);
    if grants.is_empty() || !c.is_at_end() {
        return Err(Unparsable { text: text.to_owned(), at });
    }
    Ok(OsdCaps { grants })
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t')
}

fn spaces(c: &mut Cursor<'_>) -> Option<()> {
    c.take_some(is_space).map(|_| ())
}

fn grant(c: &mut Cursor<'_>) -> Option<Grant> {
    c.attempt(|c| {
        c.take_all(is_blank);
        let spec_first = |c: &mut Cursor<'_>| {
            c.take("allow")?;
            let spec = spec(c)?;
            Some(Rights::Rule(Rule { place: place(c), spec }))
        };
        let place_first = |c: &mut Cursor<'_>| {
            c.take("allow")?;
            let place = place(c);
            Some(Rights::Rule(Rule { place, spec: spec(c)? }))
        };
        let rights =
            c.attempt(spec_first).or_else(|| c.attempt(place_first)).or_else(|| c.attempt(of_profile))?;
        let network = c.network(is_space);
        c.take_all(is_blank);
        Some(Grant { rights, network })
    })
}

fn of_profile(c: &mut Cursor<'_>) -> Option<Rights> {
    c.take("profile")?;
    is(c)?;
    let name = c.word()?.to_owned();
    let pool = pool(c);
    // Without a pool, too.
    let place = Match { pool, namespace: namespace(c), ..Match::default() };
    let rules = profile(&name, &place);
    Some(Rights::Profile { name, place, rules })
}

/// Between a name and its value.
fn is(c: &mut Cursor<'_>) -> Option<()> {
    c.take("=").or_else(|| spaces(c))
}

fn any(c: &mut Cursor<'_>) -> Option<()> {
    c.take("*").or_else(|| c.take("all"))
}

fn spec(c: &mut Cursor<'_>) -> Option<Spec> {
    c.attempt(|c| allowed(c).map(Spec::Allow)).or_else(|| {
        c.attempt(|c| {
            let class = word_after(c, "class")?;
            let method = c.attempt(|c| {
                spaces(c)?;
                c.word().map(str::to_owned)
            });
            Some(Spec::Class { class, method })
        })
    })
}

/// `*`, or some of `r`, `w` and `x` in this order, and some of the words for classes in theirs.
fn allowed(c: &mut Cursor<'_>) -> Option<u8> {
    let all = c.attempt(|c| {
        spaces(c)?;
        any(c)
    });
    if all.is_some() {
        return Some(bits::ANY);
    }
    let letters = c.attempt(|c| {
        spaces(c)?;
        let letters = [("r", bits::READ), ("w", bits::WRITE), ("x", bits::EXECUTE)];
        some(letters.into_iter().filter_map(|(letter, bit)| c.take(letter).map(|()| bit)))
    });
    let classes = [(" class-read", bits::CLASS_READ), (" class-write", bits::CLASS_WRITE)];
    let classes = some(classes.into_iter().filter_map(|(word, bit)| {
        c.attempt(|c| {
            spaces(c)?;
            c.take(word.trim_start()).map(|()| bit)
        })
    }));
    (letters.is_some() || classes.is_some()).then(|| letters.unwrap_or(0) | classes.unwrap_or(0))
}

/// All bits, if there are any.
fn some(bits: impl Iterator<Item = u8>) -> Option<u8> {
    bits.reduce(|all, bit| all | bit)
}

/// Where a rule holds; nothing is everywhere.
fn place(c: &mut Cursor<'_>) -> Match {
    let tagged = c.attempt(|c| {
        let namespace = namespace(c);
        Some(Match { namespace, tag: Some(tag(c)?), ..Match::default() })
    });
    tagged.unwrap_or_else(|| Match {
        pool: pool(c),
        namespace: namespace(c),
        object_prefix: c.attempt(|c| word_after(c, "object_prefix")),
        tag: None,
    })
}

/// A word after this one.
fn word_after(c: &mut Cursor<'_>, name: &str) -> Option<String> {
    spaces(c)?;
    c.take(name)?;
    spaces(c)?;
    c.word().map(str::to_owned)
}

fn pool(c: &mut Cursor<'_>) -> Option<String> {
    c.attempt(|c| {
        spaces(c)?;
        c.take("pool")?;
        is(c)?;
        c.word().map(str::to_owned)
    })
}

fn namespace(c: &mut Cursor<'_>) -> Option<String> {
    c.attempt(|c| {
        spaces(c)?;
        c.take("namespace")?;
        is(c)?;
        let mut name = c.quoted().or_else(|| c.word())?.to_owned();
        if c.take("*").is_some() {
            name.push('*');
        }
        Some(name)
    })
}

fn tag(c: &mut Cursor<'_>) -> Option<Tag> {
    let pattern = |c: &mut Cursor<'_>| match any(c) {
        Some(()) => Some("*".to_owned()),
        None => c.word().map(str::to_owned),
    };
    c.attempt(|c| {
        let application = word_after(c, "tag")?;
        spaces(c)?;
        let key = pattern(c)?;
        c.take_all(is_space);
        c.take("=")?;
        c.take_all(is_space);
        Some(Tag { application, key, value: pattern(c)? })
    })
}
