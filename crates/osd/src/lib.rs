//! carmine-osd
