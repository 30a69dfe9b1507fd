//! carmine-benches
