//! Options that stand in the lines of fio's users and that `bench` does not have: those that say what it does anyway are
//! taken, the others are refused with what it has instead.

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, Command, Error, FromArgMatches};

use carmine_load::hosted::Tool;

/// Each option, the values that are taken (fio's flags are 1 if they have none), and what is said to all others.
const WORDS: [(&str, &[&str], &str); 13] = [
    ("time_based", &["1"], "bench always loads for --runtime; --io-size ends it after so many bytes"),
    ("group_reporting", &["1"], "bench always reports all jobs together"),
    ("direct", &["1"], "there is no page cache between bench and the OSDs"),
    (
        "thread",
        &["1"],
        "jobs are threads; with --client fio-rados or fio-rbd, --processes deals them to processes",
    ),
    ("norandommap", &["1"], "bench draws every block anew, whatever was drawn before"),
    (
        "ioengine",
        &["rados", "rbd"],
        "bench sends RADOS operations itself; --client fio-rados or fio-rbd take fio with the engine rados or rbd",
    ),
    ("number_ios", &[], "bench counts bytes of all jobs: take --io-size, which is operations x --bs"),
    ("rate_iops", &[], "fio's is for each job; take --rate, which is for all jobs together"),
    ("rate_process", &[], "take --arrivals fixed or poisson"),
    ("name", &[], "leave it out: the job of the result is named after --rw"),
    ("filename", &[], "bench loads objects of a --pool: --size says how much of it"),
    ("output", &[], "take --json FILE"),
    ("output-format", &[], "take --json FILE: it has fio's JSON"),
];

/// The options were looked at; nothing of them is needed later.
#[derive(Clone, Debug)]
pub(crate) struct FioWords;

impl Args for FioWords {
    fn augment_args(command: Command) -> Command {
        WORDS.iter().fold(command, |command, (name, taken, instead)| {
            let check = move |text: &str| match taken.contains(&text) {
                true => Ok(text.to_owned()),
                false => Err(*instead),
            };
            let arg = Arg::new(*name).long(*name).hide(true);
            let arg = arg.num_args(0..=1).default_missing_value("1").value_parser(check);
            command.arg(if *name == "time_based" { arg.conflicts_with("io_size") } else { arg })
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for FioWords {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let client = matches.get_one::<Tool>("client").copied().unwrap_or_default();
        let wrong = match (matches.get_one::<String>("ioengine").map(String::as_str), client) {
            (Some("rbd"), client) if client != Tool::FioRbd => "rbd: take --client fio-rbd",
            (Some("rados"), Tool::FioRbd) => "rados: take --client fio-rados, or leave --client out",
            _ => return Ok(Self),
        };
        Err(Error::raw(ErrorKind::ArgumentConflict, format!("--ioengine {wrong}\n")))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        Self::from_arg_matches(matches).map(|read| *self = read)
    }
}
