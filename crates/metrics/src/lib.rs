//! carmine-metrics
