//! Explains the words of verdicts, marks and terms where they occur, and in a glossary of those that occur.

use std::collections::BTreeSet;

use carmine_load::words::{WORDS, Word, WordKind, word};

use crate::markdown::markdown;
use crate::report::{Block, Part, Report};
use crate::table::Table;

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '-'
}

/// A text in pieces; those that are verdicts or marks come with their word.
pub(crate) fn pieces(text: &str) -> Vec<(&str, Option<&'static Word>)> {
    let (mut pieces, mut at, mut told) = (Vec::new(), 0, 0);
    for part in text.split_inclusive(|c| !is_of_word(c)) {
        let name = part.trim_end_matches(|c| !is_of_word(c));
        if let Some(word) = defined(&text[..at], name, text) {
            pieces.extend([(&text[told..at], None), (name, Some(word))]);
            told = at + name.len();
        }
        at += part.len();
    }
    pieces.push((&text[told..], None));
    pieces.retain(|(piece, _)| !piece.is_empty());
    pieces
}

/// A word in capitals. `OSD` is a verdict only where one is named: elsewhere it is the daemon.
fn defined(before: &str, name: &str, text: &str) -> Option<&'static Word> {
    let word = word(name).filter(|word| word.kind != WordKind::Term)?;
    (name != "OSD" || text == name || before.ends_with("by ")).then_some(word)
}

/// The terms in a name, such as that of a column, each with its meaning.
pub(crate) fn terms(name: &str) -> String {
    let lower = name.to_lowercase();
    let is_in = |word: &&Word| word.kind == WordKind::Term && holds(&lower, &word.name.to_lowercase());
    let told = WORDS.iter().filter(is_in).map(|word| format!("{}: {}", word.name, word.meaning));
    told.collect::<Vec<_>>().join("\n")
}

/// True if the words of `name` stand in the text, also in the plural.
fn holds(text: &str, name: &str) -> bool {
    text.match_indices(name).any(|(at, _)| {
        let after = &text[at + name.len()..];
        let after = after.strip_prefix('s').unwrap_or(after);
        !text[..at].ends_with(is_of_word) && !after.starts_with(is_of_word)
    })
}

/// A part with the words that the report uses.
pub(crate) fn glossary(report: &Report) -> Part {
    let text = markdown(report);
    let said = text.split(['\n', '|']).flat_map(|line| pieces(line.trim()));
    let said: BTreeSet<&str> = said.filter_map(|(_, word)| Some(word?.name)).collect();
    let lower = text.to_lowercase();
    let occurs = |word: &&Word| match word.kind {
        WordKind::Term => holds(&lower, &word.name.to_lowercase()),
        _ => said.contains(word.name),
    };
    let row = |word: &Word| vec![word.name.into(), word.kind.word().into(), word.meaning.into()];
    let table = Table::new("word | kind | meaning", WORDS.iter().filter(occurs).map(row));
    Part::new("words", "Words", vec![Block::Table("Words of this report".into(), table)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_and_marks_are_found_in_a_text() {
        let found = |text| -> Vec<&str> {
            pieces(text).into_iter().filter_map(|(_, word)| word.map(|word| word.name)).collect()
        };
        assert_eq!(found("SHARED 4, NOISY: x; bounded beyond it by DEVICE"), ["SHARED", "NOISY", "DEVICE"]);
        assert_eq!(found("1 OSD: at most 5 IOPS. Limited by OSD: busy"), ["OSD"]);
        assert_eq!((found("OSD"), found("UNSHARED, shared")), (vec!["OSD"], vec![]));
        let whole: String = pieces("a SHARED, b").into_iter().map(|(piece, _)| piece).collect();
        assert_eq!(whole, "a SHARED, b");
    }

    #[test]
    fn terms_are_whole_words() {
        assert!(holds("iops per core used", "core") && holds("2 reactors", "reactor"));
        assert!(!holds("scores", "core") && !holds("unused", "used"));
    }
}
