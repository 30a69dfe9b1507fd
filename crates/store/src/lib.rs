//! carmine-store
