//! Which login methods a server may ask for: libpq's `require_auth`.

/// A login method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// The server asks for no login. It may have verified a client certificate.
    None,
    /// The password in clear text.
    Password,
    Md5,
    ScramSha256,
    /// These have names, but this driver does not support them.
    Gss,
    Sspi,
    OAuth,
}

const METHODS: [(&str, Method); 7] = [
    ("none", Method::None),
    ("password", Method::Password),
    ("md5", Method::Md5),
    ("scram-sha-256", Method::ScramSha256),
    ("gss", Method::Gss),
    ("sspi", Method::Sspi),
    ("oauth", Method::OAuth),
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

/// The login methods that a server may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequireAuth {
    /// One bit per method.
    allowed: u8,
}

impl RequireAuth {
    /// All methods.
    pub(super) const ANY: RequireAuth = RequireAuth { allowed: u8::MAX };

    /// Reads a list of allowed methods, or of forbidden ones with `!` before each. An empty list allows all.
    ///
    /// # Errors
    ///
    /// The problem, worded to follow the name of the option.
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
                return Err(format!("contains {name:?}, which is none of {known}"));
            };
            if named & method.bit() != 0 {
                return Err(format!("contains {name} twice"));
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
    fn list_names_allowed_or_forbidden_methods() {
        assert_eq!(allowed("scram-sha-256"), ["scram-sha-256"]);
        assert_eq!(allowed("md5, scram-sha-256"), ["md5", "scram-sha-256"]);
        assert_eq!(allowed("none"), ["none"]);
        assert_eq!(
            allowed("!password,!md5"),
            ["none", "scram-sha-256", "gss", "sspi", "oauth"]
        );
        assert_eq!(allowed("!none").len(), 6);
        assert_eq!(allowed("").len(), 7);
    }

    #[test]
    fn malformed_list_is_an_error() {
        for (list, says) in [
            ("scram", "none of none, password"),
            ("md5,", "contains \"\""),
            ("!", "contains \"\""),
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
