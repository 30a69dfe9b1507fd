//! carmine-kv-rocks
pub use rocksdb;
