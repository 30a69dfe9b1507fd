//! carmine-tests
