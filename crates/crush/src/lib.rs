//! carmine-crush
