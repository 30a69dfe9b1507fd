//! carmine-topology
