//! carmine-messenger
