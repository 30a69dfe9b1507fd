//! carmine-reactor
