//! Every word that results, reports and messages use in a sense of their own. `docs/words.md`, which is compiled in, defines
//! each once. `carmine help words` prints it, and the report explains from it.

use std::sync::LazyLock;

use serde::Serialize;

carmine_types::words! {
    /// The kinds of words.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum WordKind: "kind of word" {
        /// It names what limited a load.
        Verdict = "verdict",
        /// It begins a remark that says how far a result can be trusted.
        Mark = "mark",
        /// Any other word.
        Term = "term",
    }
}

/// A word and its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Word {
    pub name: &'static str,
    pub kind: WordKind,
    /// One or more sentences.
    pub meaning: &'static str,
}

/// The page of `carmine help words`: a line `- **NAME**: MEANING` for each word, below a heading for each kind.
pub const PAGE: &str = include_str!("../../../../docs/words.md");

/// All words: the verdicts in order of the decision table, the marks, and the terms in alphabetical order.
pub static WORDS: LazyLock<Vec<Word>> = LazyLock::new(|| {
    let mut kind = WordKind::Verdict;
    let word = |line: &'static str| {
        match line.get(..8) {
            Some("## Marks") => kind = WordKind::Mark,
            Some("## Terms") => kind = WordKind::Term,
            _ => {}
        }
        let (name, meaning) = line.strip_prefix("- **")?.split_once("**: ")?;
        Some(Word { name, kind, meaning })
    };
    PAGE.lines().filter_map(word).collect()
});

/// The word of this name; its first meaning if it is both a verdict and a mark.
pub fn word(name: &str) -> Option<&'static Word> {
    WORDS.iter().find(|word| word.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Limiter;

    #[test]
    fn every_limiter_is_a_word_and_each_is_defined_once() {
        let of = |kind| WORDS.iter().filter(move |word| word.kind == kind).map(|word| word.name);
        let mut verdicts: Vec<&str> = of(WordKind::Verdict).collect();
        let mut limiters = Limiter::WORDS.to_vec();
        verdicts.sort_unstable();
        limiters.sort_unstable();
        assert_eq!(verdicts, limiters);
        let mut keys: Vec<_> = WORDS.iter().map(|word| (word.kind.word(), word.name)).collect();
        keys.sort_unstable();
        keys.dedup();
        assert_eq!(keys.len(), WORDS.len(), "a word is defined twice");
        let terms: Vec<String> = of(WordKind::Term).map(str::to_lowercase).collect();
        assert!(terms.is_sorted() && terms.len() > 40, "{terms:?}");
        assert!(WORDS.iter().all(|word| word.meaning.ends_with('.') && !word.name.is_empty()));
        assert_eq!(word("NOISY").map(|word| word.kind), Some(WordKind::Mark));
        assert_eq!(word("SMOKE").map(|word| word.meaning.contains("shorter than 10 s")), Some(true));
        assert_eq!(word("hum"), None);
    }
}
