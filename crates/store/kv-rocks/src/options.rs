//! RocksDB's options, each with its reason.

use rocksdb::{BlockBasedOptions, Cache, ChecksumType, DBCompressionType, Env, Error, LogLevel, Options};

/// Most bytes per second that flushes and compactions need for the writes of one reactor: with this limit, nothing
/// waits for them at 59,000 writes of 4 KiB a second.
pub const WRITE_BYTES_PER_S_OF_REACTOR: u64 = 64 << 20;
/// The limit is kept in periods of this length: a flush of the drive waits for what is written in one of them.
const REFILL_US: i64 = 10_000;
/// One of so many requests of compactions goes before the flushes': RocksDB's default.
const FAIRNESS: i32 = 10;

/// Options that can be set from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RocksOptions {
    /// Bytes of the cache for blocks of tables, both families together. `blue` has an onode cache of its own above it.
    pub block_cache_bytes: usize,
    /// Bytes of a memtable. Two are written out while a third is filled.
    pub write_buffer_bytes: usize,
    /// Threads for flushes and compactions, in the whole process.
    pub background_threads: u16,
    /// Most that flushes and compactions write, bytes per second.
    pub write_bytes_per_s: u64,
    /// One group of options as RocksDB has it by default, to measure what it is worth (tests/tuning.rs).
    pub untuned: Option<Tuning>,
}

/// Options that can be left as RocksDB has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tuning {
    /// One thread writes, so nothing is done for many.
    SingleWriter,
    /// Tables are written back while they grow.
    BytesPerSync,
    /// Flushes and compactions write so much in a second.
    RateLimit,
    /// Three memtables instead of two.
    WriteBuffers,
    /// The first level and its tables follow the memtables' size.
    LevelSizes,
    /// Filters of the keys.
    Bloom,
    /// Indices and filters are in the cache's budget.
    CachedFilters,
    /// The cache for blocks of tables has the size that was asked for.
    BlockCache,
    /// Blocks of tables are checked with CRC32C.
    Checksum,
    /// The log's tables have larger blocks and hardly any cache.
    LogTables,
}

impl Tuning {
    /// All of them.
    pub const ALL: [Tuning; 10] = [
        Tuning::SingleWriter,
        Tuning::BytesPerSync,
        Tuning::RateLimit,
        Tuning::WriteBuffers,
        Tuning::LevelSizes,
        Tuning::Bloom,
        Tuning::CachedFilters,
        Tuning::BlockCache,
        Tuning::Checksum,
        Tuning::LogTables,
    ];
}

impl RocksOptions {
    fn tunes(&self, tuning: Tuning) -> bool {
        self.untuned != Some(tuning)
    }
}

impl Default for RocksOptions {
    fn default() -> RocksOptions {
        RocksOptions {
            block_cache_bytes: 128 << 20,
            write_buffer_bytes: 64 << 20,
            background_threads: 2,
            write_bytes_per_s: WRITE_BYTES_PER_S_OF_REACTOR,
            untuned: None,
        }
    }
}

/// Options of the database and of its families.
pub(crate) struct Tuned {
    pub(crate) db: Options,
    pub(crate) main: Options,
    pub(crate) log: Options,
}

impl Tuned {
    pub(crate) fn new(options: &RocksOptions) -> Result<Tuned, Error> {
        Ok(Tuned { db: database(options)?, main: main_family(options), log: log_family(options) })
    }
}

/// RocksDB's threads, which give way to reactors: they inherit that from the thread that makes them.
fn environment(threads: i32) -> Result<Env, Error> {
    let make = move || {
        carmine_reactor::give_way();
        let mut env = Env::new()?;
        env.set_background_threads(threads);
        env.set_high_priority_background_threads(1);
        Ok(env)
    };
    std::thread::scope(|scope| scope.spawn(make).join().unwrap_or_else(|_| Env::new()))
}

fn database(options: &RocksOptions) -> Result<Options, Error> {
    let mut db = Options::default();
    db.create_if_missing(true);
    db.create_missing_column_families(true);

    // Background work: bounded, and never more than asked for, because it takes CPU from the same cores as the
    // reactors unless aliens have their own.
    let threads = i32::from(options.background_threads.max(1));
    db.set_env(&environment(threads)?);
    db.set_max_background_jobs(threads);
    db.set_max_subcompactions(1);

    // One feeder writes: no need for the locks and atomics of concurrent memtable writes, nor for pipelining.
    if options.tunes(Tuning::SingleWriter) {
        db.set_allow_concurrent_memtable_write(false);
        db.set_enable_write_thread_adaptive_yield(false);
    }

    // Without a write-ahead log the tables are all that a crash leaves. Both families are flushed at the same point of the
    // commits, so that this is a prefix of them, which is what `Kv` promises.
    db.set_atomic_flush(true);
    // `fdatasync` is enough for a sync.
    db.set_use_fsync(false);
    // Tables are written back as they grow, not in one burst that a flush of the log would wait for.
    if options.tunes(Tuning::BytesPerSync) {
        db.set_bytes_per_sync(1 << 20);
    }
    // A compaction that writes as fast as it can keeps the drive so busy that each flush of `blue`'s log waits: of 7,000 writes
    // a second, one at a time, 700 were left. With a limit it takes longer, which nothing waits for.
    if options.tunes(Tuning::RateLimit) {
        let rate = i64::try_from(options.write_bytes_per_s).unwrap_or(i64::MAX);
        db.set_ratelimiter(rate, REFILL_US, FAIRNESS);
    }

    // Its own log: short, kept few.
    db.set_log_level(LogLevel::Info);
    db.set_max_log_file_size(16 << 20);
    db.set_keep_log_file_num(4);
    db.set_stats_dump_period_sec(0);
    db.set_max_open_files(512);
    Ok(db)
}

fn family(options: &RocksOptions) -> Options {
    let mut family = Options::default();
    // Onodes are small, checksummed binary values: compression would cost CPU for little.
    family.set_compression_type(DBCompressionType::None);
    family.set_write_buffer_size(options.write_buffer_bytes);
    if options.tunes(Tuning::WriteBuffers) {
        family.set_max_write_buffer_number(3);
    }
    // Values are overwritten again and again: what is merged in memory never reaches a table.
    family.set_min_write_buffer_number_to_merge(1);
    if options.tunes(Tuning::LevelSizes) {
        family.set_target_file_size_base(options.write_buffer_bytes as u64);
        family.set_max_bytes_for_level_base(4 * options.write_buffer_bytes as u64);
    }
    family
}

fn main_family(options: &RocksOptions) -> Options {
    let mut main = family(options);
    let mut table = BlockBasedOptions::default();
    if options.tunes(Tuning::BlockCache) {
        table.set_block_cache(&Cache::new_lru_cache(options.block_cache_bytes));
    }
    // A lookup of an object that does not exist (every first write) reads no table.
    if options.tunes(Tuning::Bloom) {
        table.set_bloom_filter(10.0, false);
    }
    // A lookup reads one onode or one piece of a block map, not its neighbours: RocksDB's default, kept.
    table.set_block_size(4 << 10);
    // Indices and filters count for the cache's budget, but stay.
    if options.tunes(Tuning::CachedFilters) {
        table.set_cache_index_and_filter_blocks(true);
        table.set_pin_l0_filter_and_index_blocks_in_cache(true);
    }
    checksum(options, &mut table);
    main.set_block_based_table_factory(&table);
    main
}

/// Written once, read at start, trimmed by ranges: no filters and hardly any cache.
fn log_family(options: &RocksOptions) -> Options {
    let mut log = family(options);
    let mut table = BlockBasedOptions::default();
    if options.tunes(Tuning::LogTables) {
        table.set_block_cache(&Cache::new_lru_cache(4 << 20));
        table.set_block_size(32 << 10);
    }
    checksum(options, &mut table);
    log.set_block_based_table_factory(&table);
    log
}

/// Hardware CRC32C (see `RocksKv::crc32_support`), checked on every read.
fn checksum(options: &RocksOptions, table: &mut BlockBasedOptions) {
    if options.tunes(Tuning::Checksum) {
        table.set_checksum_type(ChecksumType::CRC32c);
    }
    table.set_format_version(6);
}
