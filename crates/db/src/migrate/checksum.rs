//! Checksums as refinery computes them, so that a history that refinery has written stays valid.

/// Returns the checksum that the history records: SipHash-1-3 over name, version and text.
pub(super) fn checksum(name: &str, version: i64, sql: &str) -> u64 {
    match i32::try_from(version) {
        Ok(short) => hash(name, &short.to_le_bytes(), sql),
        Err(_) => hash(name, &version.to_le_bytes(), sql),
    }
}

/// Whether a recorded checksum is that of a migration. refinery hashes versions as 32 bits, or as 64
/// bits with its feature `int8-versions`; both count.
pub(super) fn matches(recorded: &str, name: &str, version: i64, sql: &str) -> bool {
    let Ok(recorded) = recorded.parse::<u64>() else {
        return false;
    };
    recorded == checksum(name, version, sql) || recorded == hash(name, &version.to_le_bytes(), sql)
}

/// Hashes the way `std::hash::Hash` feeds a hasher: a string is its bytes and 0xff.
fn hash(name: &str, version: &[u8], sql: &str) -> u64 {
    let mut hasher = Sip13::new();
    hasher.write(name.as_bytes());
    hasher.write(&[0xff]);
    hasher.write(version);
    hasher.write(sql.as_bytes());
    hasher.write(&[0xff]);
    hasher.finish()
}

/// SipHash-1-3 with a key of zeros. The standard library promises no algorithm, so it is here.
struct Sip13 {
    state: [u64; 4],
    /// Bytes that do not fill a word yet, lowest first.
    tail: u64,
    length: u64,
}

impl Sip13 {
    fn new() -> Self {
        Sip13 {
            // "somepseudorandomlygeneratedbytes"
            state: [
                0x736f_6d65_7073_6575,
                0x646f_7261_6e64_6f6d,
                0x6c79_6765_6e65_7261,
                0x7465_6462_7974_6573,
            ],
            tail: 0,
            length: 0,
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.tail |= u64::from(*byte) << (8 * (self.length % 8));
            self.length += 1;
            if self.length.is_multiple_of(8) {
                self.compress(self.tail);
                self.tail = 0;
            }
        }
    }

    fn compress(&mut self, word: u64) {
        self.state[3] ^= word;
        self.round();
        self.state[0] ^= word;
    }

    fn round(&mut self) {
        let [a, b, c, d] = &mut self.state;
        *a = a.wrapping_add(*b);
        *b = b.rotate_left(13) ^ *a;
        *a = a.rotate_left(32);
        *c = c.wrapping_add(*d);
        *d = d.rotate_left(16) ^ *c;
        *a = a.wrapping_add(*d);
        *d = d.rotate_left(21) ^ *a;
        *c = c.wrapping_add(*b);
        *b = b.rotate_left(17) ^ *c;
        *c = c.rotate_left(32);
    }

    fn finish(mut self) -> u64 {
        self.compress(self.tail | (self.length & 0xff) << 56);
        self.state[2] ^= 0xff;
        for _ in 0..3 {
            self.round();
        }
        self.state.iter().fold(0, |mixed, word| mixed ^ word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_refinery() {
        // Computed by refinery-core 0.9 (`Migration::unapplied(file, sql).checksum()`).
        for (name, version, sql, expected) in REFINERY {
            assert_eq!(
                checksum(name, *version, sql),
                *expected,
                "V{version}__{name}"
            );
        }
    }

    const PERSONS: &str = "CREATE TABLE persons (id int, name varchar(255), city varchar(255));\n";
    const REFINERY: &[(&str, i64, &str, u64)] = &[
        ("initial", 1, PERSONS, 9_435_430_460_266_820_252),
        ("größe", 12, "SELECT 'ö'", 6_688_442_175_932_887_422),
        ("late", 3, "", 975_208_329_220_286_895),
        ("last", 2_147_483_647, "x", 9_117_597_621_184_535_362),
        // With its feature `int8-versions`.
        (
            "initial",
            20_240_504_090_241,
            "SELECT 1",
            490_735_546_107_098_207,
        ),
    ];

    #[test]
    fn both_widths_of_a_version_match() {
        let wide = hash("initial", &7_i64.to_le_bytes(), "SELECT 1").to_string();
        assert!(matches(&wide, "initial", 7, "SELECT 1"));
        let narrow = checksum("initial", 7, "SELECT 1").to_string();
        assert_ne!(wide, narrow);
        assert!(matches(&narrow, "initial", 7, "SELECT 1"));
        for (name, version, sql) in [
            ("initial", 7, "SELECT 2"),
            ("initial", 8, "SELECT 1"),
            ("Initial", 7, "SELECT 1"),
        ] {
            assert!(!matches(&narrow, name, version, sql));
        }
        assert!(!matches("not a number", "initial", 7, "SELECT 1"));
    }
}
