#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| carmine_tests::fuzz::run("cephx", bytes));
