//! Which server speaks MySQL's protocol, and which of its errors a repetition may cure.

use crate::driver::{DatabaseError, Violation};

/// A server that speaks MySQL's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// MySQL, MariaDB, and Galera, whose codes mean the same.
    Mysql,
    /// TiDB has numbers of its own for conflicts.
    Tidb,
    /// Vitess refuses a transaction while its pool is full.
    Vitess,
}

impl Engine {
    /// The values of the option `engine`.
    pub(super) const NAMES: [(&'static str, Option<Engine>); 5] = [
        ("auto", None),
        ("mysql", Some(Engine::Mysql)),
        ("mariadb", Some(Engine::Mysql)),
        ("tidb", Some(Engine::Tidb)),
        ("vitess", Some(Engine::Vitess)),
    ];

    /// Returns the engine of a server with this version, such as `8.0.11-TiDB-v7.5.0` and `8.0.30-Vitess`.
    pub(super) fn of(version: &str) -> Self {
        let version = version.to_ascii_lowercase();
        match version {
            version if version.contains("tidb") => Engine::Tidb,
            version if version.contains("vitess") => Engine::Vitess,
            _ => Engine::Mysql,
        }
    }

    /// Returns the violation that only this engine reports by this error, if any.
    pub(super) fn violation(self, code: u16, said: &DatabaseError) -> Option<Violation> {
        match self {
            Engine::Mysql => None,
            // Each says that the transaction was rolled back for a conflict and may be repeated as a whole.
            Engine::Tidb => {
                matches!(code, 8002 | 8005 | 8022 | 9007).then_some(Violation::Serialization)
            }
            // The number depends on the version: 1203 or 1105.
            Engine::Vitess => {
                let message = said.message.to_ascii_lowercase();
                let is_full = message.contains("transaction pool");
                is_full.then_some(Violation::Exhausted)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engine_is_read_from_the_version() {
        for (version, engine) in [
            ("8.0.36", Engine::Mysql),
            ("10.11.6-MariaDB-0+deb12u1", Engine::Mysql),
            ("8.0.11-TiDB-v7.5.0", Engine::Tidb),
            ("8.0.30-Vitess", Engine::Vitess),
        ] {
            assert_eq!(Engine::of(version), engine, "{version}");
        }
    }

    #[test]
    fn codes_of_one_engine_mean_nothing_in_another() {
        let full = DatabaseError::new("Transaction pool connection limit exceeded");
        let cases = [
            (Engine::Mysql, None, None),
            (Engine::Tidb, Some(Violation::Serialization), None),
            (Engine::Vitess, None, Some(Violation::Exhausted)),
        ];
        for (engine, conflict, exhausted) in cases {
            for code in [8002, 8005, 8022, 9007] {
                let said = DatabaseError::new("Write conflict");
                assert_eq!(engine.violation(code, &said), conflict, "{engine:?} {code}");
            }
            assert_eq!(engine.violation(1203, &full), exhausted, "{engine:?}");
            assert_eq!(engine.violation(8001, &DatabaseError::new("memory")), None);
        }
    }
}
