//! `carmine help words`, `carmine help verdicts` and `carmine help WORD`; all other help is clap's, which knows commands only.

use carmine_load::{verdict, words};
use carmine_testbed::output::json_text;
use clap::CommandFactory as _;

/// The text for these arguments; `None` if they do not ask for a word.
pub(crate) fn of_words(args: &[String]) -> Option<String> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (topic, json) = match args[..] {
        ["help", topic] => (topic, false),
        ["help", topic, "--json"] | ["help", "--json", topic] => (topic, true),
        _ => return None,
    };
    let of_topic = |word: &&words::Word| topic == "words" || word.name == topic;
    let found: Vec<words::Word> = words::WORDS.iter().filter(of_topic).copied().collect();
    match topic {
        "verdicts" if !json => Some(verdict::page()),
        _ if found.is_empty() || super::Cli::command().find_subcommand(topic).is_some() => None,
        _ if json => json_text(&found).ok(),
        "words" => Some(words::PAGE.to_owned()),
        _ => Some(
            found.iter().map(|word| format!("{} ({}): {}\n", word.name, word.kind, word.meaning)).collect(),
        ),
    }
}
