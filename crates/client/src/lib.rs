//! carmine-client
