//! carmine-types
