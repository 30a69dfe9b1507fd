//! carmine-mon
