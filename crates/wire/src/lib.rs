//! carmine-wire
