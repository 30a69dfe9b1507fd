//! `carmine help`: commands, and the words of results.

use std::process::ExitCode;

use carmine_load::{verdict, words};
use carmine_testbed::TestbedError::Usage;
use carmine_testbed::output::{json_text, print};
use clap::{Args, CommandFactory as _};

use super::Cli;

#[derive(Args)]
pub(crate) struct HelpArgs {
    /// A command and its subcommands, `words`, `verdicts`, or a word such as NOISY
    #[arg(value_name = "TOPIC")]
    topic: Vec<String>,
    /// Print words as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &HelpArgs) -> anyhow::Result<ExitCode> {
    let topic = args.topic.join(" ");
    let found: Vec<words::Word> =
        words::WORDS.iter().filter(|word| topic == "words" || word.name == topic).copied().collect();
    let text = match topic.as_str() {
        _ if args.json && !found.is_empty() => json_text(&found)?,
        _ if args.json => return Err(Usage("--json: only words have it".into()).into()),
        "words" => words::page(),
        "verdicts" => verdict::page(),
        _ if found.is_empty() => of_command(&args.topic)?,
        _ => found.iter().map(|word| format!("{} ({}): {}\n", word.name, word.kind, word.meaning)).collect(),
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// What `--help` of a command prints.
fn of_command(names: &[String]) -> anyhow::Result<String> {
    let mut root = Cli::command();
    root.build();
    let mut command = &mut root;
    for name in names {
        let text =
            format!("`{name}` is neither a command nor a word; see `carmine help` and `carmine help words`");
        command = command.find_subcommand_mut(name).ok_or(Usage(text))?;
    }
    Ok(command.render_long_help().to_string())
}
