#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| cenote_fuzz::try_input("arrays", input));
