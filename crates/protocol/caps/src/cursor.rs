//! Reads a text from its start, as both grammars need it. What a method takes in part and not in whole, it leaves.

use std::fmt;

use crate::network::Network;

/// A place in a text.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(text: &'a str) -> Cursor<'a> {
        Cursor { text, at: 0 }
    }

    /// How many bytes are taken.
    pub(crate) fn at(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.rest().is_empty()
    }

    /// What `read` reads; if that is nothing, the place stays as it was.
    pub(crate) fn attempt<T>(&mut self, read: impl FnOnce(&mut Cursor<'a>) -> Option<T>) -> Option<T> {
        let before = self.at;
        let found = read(self);
        if found.is_none() {
            self.at = before;
        }
        found
    }

    /// This text, if it comes next.
    pub(crate) fn take(&mut self, text: &str) -> Option<()> {
        self.rest().starts_with(text).then(|| self.at += text.len())
    }

    /// All that comes next of these characters, which may be nothing.
    pub(crate) fn take_all(&mut self, is_one: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = rest.find(|c| !is_one(c)).unwrap_or(rest.len());
        self.at += taken;
        &rest[..taken]
    }

    /// At least one of these characters.
    pub(crate) fn take_some(&mut self, is_one: impl Fn(char) -> bool) -> Option<&'a str> {
        Some(self.take_all(is_one)).filter(|taken| !taken.is_empty())
    }

    /// A text in quotes of either kind, which cannot contain them.
    pub(crate) fn quoted(&mut self) -> Option<&'a str> {
        self.attempt(|c| {
            let quote = c.rest().chars().next().filter(|first| matches!(first, '"' | '\''))?;
            c.at += 1;
            let inside = c.take_all(|one| one != quote);
            c.take(quote.encode_utf8(&mut [0; 4]))?;
            Some(inside)
        })
    }

    /// A word: in quotes, or of letters, digits and `_ . / -`. It is not empty.
    pub(crate) fn word(&mut self) -> Option<&'a str> {
        let quoted = self.attempt(|c| c.quoted().filter(|inside| !inside.is_empty()));
        quoted.or_else(|| self.take_some(is_of_word))
    }

    /// The word `network` and a network, which may be nonsense, each after some of the grammar's spaces.
    pub(crate) fn network(&mut self, is_space: fn(char) -> bool) -> Option<Network> {
        self.attempt(|c| {
            c.take_some(is_space)?;
            c.take("network")?;
            c.take_some(is_space)?;
            c.take_some(|c| c.is_ascii_hexdigit() || "/.:[]".contains(c)).map(Network::new)
        })
    }
}

fn is_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_./-".contains(c)
}

/// Grants with commas between them.
pub(crate) fn write_grants(f: &mut fmt::Formatter<'_>, grants: &[impl fmt::Display]) -> fmt::Result {
    for (n, grant) in grants.iter().enumerate() {
        write!(f, "{}{grant}", if n == 0 { "" } else { ", " })?;
    }
    Ok(())
}

/// A word as [`Cursor::word`] reads it.
pub(crate) struct Word<'a>(pub(crate) &'a str);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.0;
        match word {
            "" => f.write_str("\"\""),
            _ if word.chars().all(is_of_word) => f.write_str(word),
            _ => Quoted(word).fmt(f),
        }
    }
}

/// A word in quotes, whatever it is.
pub(crate) struct Quoted<'a>(pub(crate) &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // No word has both, because each is read from between quotes.
        let quote = if self.0.contains('"') { '\'' } else { '"' };
        write!(f, "{quote}{}{quote}", self.0)
    }
}
