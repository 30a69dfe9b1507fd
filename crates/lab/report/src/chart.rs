//! Charts: plain data, and the SVG that is made from it.

mod draw;
mod heat;
mod hit;
mod ink;
mod lines;
mod model;
mod rows;
mod scale;
mod share;
mod svg;

pub(crate) use ink::Ink;
pub(crate) use ink::style_sheet;
pub(crate) use model::{Axis, Chart, Dot, HeatPlot, Key, Line, LinePlot, Plot, Row, RowPlot};
pub(crate) use share::share_axes;
pub(crate) use svg::picture;
