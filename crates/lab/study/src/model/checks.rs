//! What a model says of points that it was not fitted to, and what would prove it wrong.

use carmine_stats::{Interval, mean};
use serde::Serialize;

use super::Line;
use crate::lists::{distinct, span};

/// A prediction beside what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Check {
    pub reactors: u32,
    pub predicted_iops: f64,
    pub measured_iops: f64,
    /// Predicted ÷ measured − 1.
    pub error: f64,
    /// Where the measured mean should fall with 95 %; `None` of a prediction that has no interval.
    pub interval: Option<Interval>,
}

impl Check {
    pub(super) fn new(
        reactors: u32,
        predicted_iops: f64,
        measured_iops: f64,
        interval: Option<Interval>,
    ) -> Check {
        let error = predicted_iops / measured_iops - 1.0;
        Check { reactors, predicted_iops, measured_iops, error, interval }
    }

    /// False if what was measured lies outside the interval.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.interval.is_none_or(|(low, high)| (low..=high).contains(&self.measured_iops))
    }
}

/// Two reactors of the lines that have one value of an axis, from their own cost at one reactor and the growth of all other lines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HeldOut {
    /// Such as `iodepth 16`.
    pub held_out: String,
    pub lines: usize,
    /// Mean growth of the other lines, a part of their cost at one reactor.
    pub growth_of_others: f64,
    /// The error that is farthest from 0: predicted ÷ measured − 1.
    pub worst_error: f64,
    /// Mean size of the errors.
    pub mean_error: f64,
}

/// Leaves out each value of each axis that tells lines apart.
pub(super) fn held_out(lines: &[Line], axes: &[String]) -> Vec<HeldOut> {
    let value = |line: &Line, axis: &str| line.config.show(axis).map(|value| format!("{axis} {value}"));
    let mut all = Vec::new();
    for axis in axes {
        let values = distinct(lines.iter().filter_map(|line| value(line, axis)));
        all.extend(values.into_iter().filter_map(|held| {
            let (inside, others): (Vec<&Line>, Vec<&Line>) =
                lines.iter().partition(|line| value(line, axis).as_ref() == Some(&held));
            one_held_out(held, &inside, &others)
        }));
    }
    all
}

fn one_held_out(held: String, inside: &[&Line], others: &[&Line]) -> Option<HeldOut> {
    let growths: Vec<f64> = others.iter().filter_map(|line| Some(line.law?.growth)).collect();
    let growth = mean(&growths);
    let error = |line: &&Line| line.law.map(|law| law.two / (law.one * (1.0 + growth)) - 1.0);
    let errors: Vec<f64> = inside.iter().filter_map(error).collect();
    let (least, most) = span(errors.iter().copied());
    (!growths.is_empty() && !errors.is_empty()).then(|| HeldOut {
        held_out: held,
        lines: errors.len(),
        growth_of_others: growth,
        worst_error: if -least > most { least } else { most },
        mean_error: mean(&errors.iter().map(|error| error.abs()).collect::<Vec<_>>()),
    })
}

/// The sweep that a large machine has to run.
const SWEEP: &str = "carmine sweep model --set reactors=1,2,4,8,16,32,64 --out LARGE";

/// What would prove the model wrong; nothing without a prediction.
pub(super) fn falsified_by(lines: &[Line]) -> Vec<String> {
    let laws = || lines.iter().filter_map(|line| line.law);
    if laws().next().is_none() {
        return Vec::new();
    }
    let percent = |part: f64| part * 100.0;
    let (low, high) = span(laws().flat_map(|law| [law.growth_interval.0, law.growth_interval.1]));
    vec![
        format!("On a machine with more cores than reactors run: {SWEEP} && carmine model LARGE (with --set reactors=1,2,4,8 for 9 cores, and so on)"),
        "The law is wrong if the mean IOPS of three clean repeats at 4 or more reactors lie outside the interval that `carmine model LARGE` \
         gives from 1 and 2 there; it then says FALSIFIED, and its exit code is 1. One of twenty may lie outside by chance."
            .to_owned(),
        "Above the interval, the growth ends: reactors share less than the line says. Below it they share more, such as memory bandwidth, the \
         L3 cache or a link between sockets: `carmine bench --in-process --stages` at both sizes shows the stage that grew."
            .to_owned(),
        format!(
            "The costs of this machine do not hold for that one if the growth for each added reactor there lies outside {:.1} % to {:.1} % of the \
             cost at one reactor.",
            percent(low),
            percent(high)
        ),
        "A verdict other than OSD, QD or WAIT there (DEVICE, ALIEN, SHARED and so on) falsifies an assumption, and not the law.".to_owned(),
    ]
}
