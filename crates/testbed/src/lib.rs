//! carmine-testbed
