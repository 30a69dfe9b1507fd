//! carmine-load
