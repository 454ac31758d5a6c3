//! Which kinds of login a server may ask for: libpq's `require_auth`.

/// A kind of login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// The server asks for nothing.
    None,
    /// The password in the clear.
    Password,
    Md5,
    ScramSha256,
    /// Known by name only: no login by these is there.
    Gss,
    Sspi,
}

const METHODS: [(&str, Method); 6] = [
    ("none", Method::None),
    ("password", Method::Password),
    ("md5", Method::Md5),
    ("scram-sha-256", Method::ScramSha256),
    ("gss", Method::Gss),
    ("sspi", Method::Sspi),
];

impl Method {
    pub(super) fn name(self) -> &'static str {
        let mut methods = METHODS.into_iter();
        methods
            .find(|(_, it)| *it == self)
            .map_or("", |(name, _)| name)
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// The kinds of login that a server may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequireAuth {
    /// A bit for each method.
    allowed: u8,
}

impl RequireAuth {
    /// Whatever it likes.
    pub(super) const ANY: RequireAuth = RequireAuth { allowed: u8::MAX };

    /// Reads a list of methods that are allowed, or, each behind a `!`, of those that are not. An empty one allows all.
    ///
    /// # Errors
    ///
    /// What is wrong with it, to be read after the name of the option.
    pub(super) fn parse(list: &str) -> Result<Self, String> {
        if list.trim().is_empty() {
            return Ok(RequireAuth::ANY);
        }
        let (mut named, mut negated) = (0, None);
        for item in list.split(',').map(str::trim) {
            let (is_negated, name) = match item.strip_prefix('!') {
                Some(name) => (true, name),
                None => (false, item),
            };
            if negated.is_some_and(|it| it != is_negated) {
                return Err("mixes methods with and without \"!\"".to_owned());
            }
            negated = Some(is_negated);
            let known = METHODS.into_iter().find(|(known, _)| *known == name);
            let Some((_, method)) = known else {
                let known = METHODS.map(|(name, _)| name).join(", ");
                return Err(format!("has {name:?} in it, which is none of {known}"));
            };
            if named & method.bit() != 0 {
                return Err(format!("has {name} in it twice"));
            }
            named |= method.bit();
        }
        let allowed = if negated == Some(true) { !named } else { named };
        Ok(RequireAuth { allowed })
    }

    pub(super) fn allows(self, method: Method) -> bool {
        self.allowed & method.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(list: &str) -> Vec<&'static str> {
        let parsed = RequireAuth::parse(list).unwrap();
        let methods = METHODS.into_iter().filter(|(_, it)| parsed.allows(*it));
        methods.map(|(name, _)| name).collect()
    }

    #[test]
    fn h33_a_list_says_what_is_allowed_or_what_is_not() {
        assert_eq!(allowed("scram-sha-256"), ["scram-sha-256"]);
        assert_eq!(allowed("md5, scram-sha-256"), ["md5", "scram-sha-256"]);
        assert_eq!(allowed("none"), ["none"]);
        assert_eq!(
            allowed("!password,!md5"),
            ["none", "scram-sha-256", "gss", "sspi"]
        );
        assert_eq!(allowed("!none").len(), 5);
        assert_eq!(allowed("").len(), 6);
    }

    #[test]
    fn h33_a_list_that_makes_no_sense_is_an_error() {
        for (list, says) in [
            ("scram", "none of none, password"),
            ("md5,", "\"\" in it"),
            ("!", "\"\" in it"),
            ("md5,!none", "mixes"),
            ("!md5,none", "mixes"),
            ("md5,md5", "twice"),
            ("SCRAM-SHA-256", "none of"),
        ] {
            let wrong = RequireAuth::parse(list).unwrap_err();
            assert!(wrong.contains(says), "{list}: {wrong}");
        }
    }
}
