//! Regular expressions as caps of the monitor have them: characters, `.`, sets in brackets, each with `*`, `+` or `?`, from the
//! first to the last character of a value. Groups, alternatives and counts are not built: an expression with them matches nothing.

/// An expression.
pub(crate) struct Pattern(Vec<Item>);

/// One character, and how often it comes.
#[derive(Clone)]
struct Item {
    is_negated: bool,
    ranges: Vec<(char, char)>,
    may_lack: bool,
    may_repeat: bool,
}

impl Pattern {
    /// `None` if it is none, or has what is not built.
    pub(crate) fn new(text: &str) -> Option<Pattern> {
        let text = text.strip_prefix('^').unwrap_or(text);
        let text = text.strip_suffix('$').unwrap_or(text);
        let (mut items, mut rest) = (Vec::new(), text.chars().peekable());
        while let Some(c) = rest.next() {
            let (is_negated, ranges) = match c {
                '.' => (true, Vec::new()),
                '[' => set(&mut rest)?,
                '(' | ')' | '|' | '{' | '}' | '*' | '+' | '?' | '^' | '$' | '\\' | ']' => return None,
                _ => (false, vec![(c, c)]),
            };
            let item = Item { is_negated, ranges, may_lack: false, may_repeat: false };
            match rest.next_if(|c| "*+?".contains(*c)) {
                Some('*') => items.push(Item { may_lack: true, may_repeat: true, ..item }),
                Some('+') => items.push(Item { may_repeat: true, ..item }),
                Some(_) => items.push(Item { may_lack: true, ..item }),
                None => items.push(item),
            }
        }
        Some(Pattern(items))
    }

    /// Whether it matches a whole text. It takes at most the product of both lengths.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let items = &self.0;
        // Whether what came so far can be the first n items.
        let mut fits = vec![false; items.len() + 1];
        fits[0] = true;
        let lack = |fits: &mut [bool]| {
            for (n, item) in items.iter().enumerate() {
                fits[n + 1] |= fits[n] && item.may_lack;
            }
        };
        lack(&mut fits);
        for c in text.chars() {
            let mut next = vec![false; fits.len()];
            for (n, item) in items.iter().enumerate().filter(|(_, item)| item.is(c)) {
                next[n + 1] |= fits[n] || (fits[n + 1] && item.may_repeat);
            }
            lack(&mut next);
            fits = next;
        }
        fits[items.len()]
    }
}

impl Item {
    fn is(&self, c: char) -> bool {
        self.ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != self.is_negated
    }
}

/// What stands between brackets.
fn set(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<(bool, Vec<(char, char)>)> {
    let is_negated = rest.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        let from = rest.next()?;
        match from {
            ']' if !ranges.is_empty() => return Some((is_negated, ranges)),
            '[' => return None, // classes with names
            _ => {}
        }
        let mut ahead = rest.clone();
        let to = if ahead.next() == Some('-') && ahead.next().is_some_and(|to| to != ']') {
            rest.next();
            rest.next()?
        } else {
            from
        };
        if to < from {
            return None;
        }
        ranges.push((from, to));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_texts() {
        let is = |pattern: &str, text: &str| Pattern::new(pattern).expect(pattern).matches(text);
        let addr = "^[^/]+/[0-9]+$";
        assert!(is(addr, "1.2.3.4:0/17") && !is(addr, "1.2.3.4:0") && !is(addr, "a/b/1") && !is(addr, "/1"));
        assert!(!is(addr, "1.2.3.4:0/17 ") && !is(addr, "1.2.3.4/17x"));
        assert!(is("ab*c?", "a") && is("ab*c?", "abbbc") && !is("ab*c?", "abcc") && !is("ab*c?", "xab"));
        assert!(is("a+b", "aab") && !is("a+b", "b") && is("a.c", "abc") && !is("a.c", "ac") && is("", ""));
        assert!(is("[a-c-]+", "ab-") && is("[]x]", "]") && !is("[]x]", "y"));
        for not_built in ["(a)", "a|b", "a{2}", "*a", "[a", "[[:alpha:]]", "a\\b", "[b-a]", "a^"] {
            assert!(Pattern::new(not_built).is_none(), "{not_built}");
        }
    }

    #[test]
    fn a_long_text_takes_no_time() {
        let pattern = Pattern::new("a*a*a*a*a*a*a*a*a*a*b").unwrap();
        assert!(!pattern.matches(&"a".repeat(50_000)));
    }
}
