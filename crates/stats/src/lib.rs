//! Statistics of measurements: paired comparisons, slopes, knees, trends. Pure functions.
