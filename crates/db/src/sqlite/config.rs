//! Reads the DSN and its options into a configuration, and makes the template of it.

use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rusqlite::OpenFlags;

use super::connect;
use super::connection::SqliteConnection;
use super::file::SharedFile;
use super::functions::Functions;
use super::late_functions::LateFunctions;
use super::write_queue::SessionKind;
use crate::driver::{
    BoxFuture, ConnectSettings, Connection, Credentials, Dialect, Dsn, Options, Template,
};
use crate::{Error, Kind, Result};

const BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// An environment variable that turns inline runs off for the whole process: `off`.
const IN_PLACE_VARIABLE: &str = "CENOTE_SQLITE_IN_PLACE";

fn in_place_by_default() -> bool {
    std::env::var_os(IN_PLACE_VARIABLE).is_none_or(|value| value != "off")
}

/// Where the database is and how it is opened.
#[derive(Clone, Debug)]
pub(super) struct Config {
    /// The file to open: a path, or `file:…` with settings that only a URI can have.
    pub(super) target: String,
    /// The file's name for messages.
    pub(super) name: String,
    pub(super) flags: OpenFlags,
    pub(super) vfs: Option<String>,
    storage: Storage,
    pub(super) busy_timeout: Duration,
    /// Short statements run inline, on the calling task.
    pub(super) in_place: bool,
    pub(super) journal_mode: JournalMode,
    /// The pragmas, in the order in which they are set.
    pub(super) pragmas: Vec<(String, String)>,
}

/// Where the database lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storage {
    File,
    /// In memory, shared by all connections.
    SharedMemory,
    /// In memory or in a temporary file, seen by its own connection only.
    Private,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JournalMode {
    /// The mode that the file has.
    AsItIs,
    /// The default: WAL where the file allows it.
    WalIfPossible,
    Asked(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    ReadOnly,
    ReadWrite,
    Create,
    Memory,
}

impl Config {
    /// Reads a DSN and options.
    pub(super) fn read(dsn: &Dsn, options: &Options) -> Result<Self> {
        let path = dsn.path().unwrap_or_default();
        let file = File::of(path)?;
        let mut options = options.clone();
        for (name, value) in &file.parameters {
            // The builder's options override those of the DSN.
            if options.get(name).is_none() {
                options.set(name.as_str(), value.as_str());
            }
        }
        let pragmas: Vec<String> = dsn
            .options()
            .chain(options.iter())
            .map(|(name, _)| name.to_owned())
            .filter(|name| pragma_name(name).is_some())
            .collect();
        let mut reader = dsn.reader(&options);

        let mode = reader.take_choice(
            "mode",
            &[
                ("ro", Mode::ReadOnly),
                ("rw", Mode::ReadWrite),
                ("rwc", Mode::Create),
                ("memory", Mode::Memory),
            ],
        )?;
        let shared = reader.take_choice("cache", &[("shared", true), ("private", false)])?;
        let immutable = reader.take_bool("immutable")?.unwrap_or(false);
        let nolock = reader.take_bool("nolock")?.unwrap_or(false);
        let vfs = reader.take("vfs").map(str::to_owned);

        let busy_timeout = reader
            .take_duration("busy_timeout", Duration::from_millis(1))?
            .unwrap_or(BUSY_TIMEOUT);
        let in_place = reader
            .take_bool("in_place")?
            .unwrap_or_else(in_place_by_default);
        let journal_mode = {
            let mut modes: Vec<_> = (JOURNAL_MODES.iter())
                .map(|mode| (*mode, JournalMode::Asked(mode)))
                .collect();
            modes.push(("keep", JournalMode::AsItIs));
            reader.take_choice("journal_mode", &modes)?
        };
        let synchronous = reader.take_choice("synchronous", SYNCHRONOUS)?;
        let foreign_keys = reader.take_bool("foreign_keys")?.unwrap_or(true);
        let cache_size = reader.take_parsed::<i64>("cache_size")?;
        let mmap_size = reader.take_size("mmap_size")?;
        let temp_store = reader.take_choice("temp_store", &same_words(TEMP_STORES))?;
        let locking_mode = reader.take_choice("locking_mode", &same_words(LOCKING_MODES))?;

        let mut settings = Vec::new();
        for option in &pragmas {
            let name = pragma_name(option).expect("only these were collected");
            // An option in the DSN and in the builder was collected twice.
            if let Some(value) = reader.take(option) {
                if !is_identifier(name) {
                    return Err(reader.error(option, "does not have the name of a pragma"));
                }
                settings.push((name.to_owned(), value.to_owned()));
            }
        }
        reader.finish()?;

        let mut set = |name: &str, value: Option<String>| {
            settings.extend(value.map(|value| (name.to_owned(), value)));
        };
        set("synchronous", synchronous.map(str::to_owned));
        set("foreign_keys", Some(u8::from(foreign_keys).to_string()));
        set("cache_size", cache_size.map(|size| size.to_string()));
        set("mmap_size", mmap_size.map(|size| size.to_string()));
        set("temp_store", temp_store.map(str::to_owned));
        set("locking_mode", locking_mode.map(str::to_owned));

        let mode = mode.unwrap_or(Mode::Create);
        let storage = file.storage(mode, shared == Some(true), vfs.as_deref());
        let is_read_only = mode == Mode::ReadOnly || immutable;
        let journal_mode = match journal_mode {
            Some(asked) => asked,
            None if storage == Storage::File && !is_read_only => JournalMode::WalIfPossible,
            None => JournalMode::AsItIs,
        };
        Ok(Config {
            target: file.target(storage, immutable, nolock),
            name: file.name,
            flags: flags(mode, shared),
            vfs,
            storage,
            busy_timeout,
            in_place,
            journal_mode,
            pragmas: settings,
        })
    }

    /// Returns whether the configuration sets this pragma.
    pub(super) fn sets(&self, pragma: &str) -> bool {
        let mut names = self.pragmas.iter().map(|(name, _)| name);
        names.any(|name| name.eq_ignore_ascii_case(pragma))
    }

    /// Returns whether the database disappears with its last connection.
    pub(super) fn needs_anchor(&self) -> bool {
        self.storage == Storage::SharedMemory
    }

    /// Returns whether the connections share SQLite's page cache.
    pub(super) fn shares_cache(&self) -> bool {
        self.storage == Storage::SharedMemory
            || self.flags.contains(OpenFlags::SQLITE_OPEN_SHARED_CACHE)
    }

    /// Returns whether each connection has a database of its own, which disappears with the connection.
    pub(super) fn is_private(&self) -> bool {
        self.storage == Storage::Private
    }

    fn check_poolable(&self) -> Result<()> {
        if !self.is_private() {
            return Ok(());
        }
        let message = "a private in-memory or temporary SQLite database cannot be pooled: every \
                       connection would see one of its own; share it, as in \
                       sqlite:file:NAME?mode=memory&cache=shared, or open it unpooled";
        Err(Error::new(Kind::Config, message))
    }
}

const JOURNAL_MODES: &[&str] = &["delete", "truncate", "persist", "memory", "wal", "off"];
const TEMP_STORES: &[&str] = &["default", "file", "memory"];
const LOCKING_MODES: &[&str] = &["normal", "exclusive"];
const SYNCHRONOUS: &[(&str, &str)] = &[
    ("off", "off"),
    ("0", "off"),
    ("normal", "normal"),
    ("1", "normal"),
    ("full", "full"),
    ("2", "full"),
    ("extra", "extra"),
    ("3", "extra"),
];

/// Choices whose value is the word itself.
fn same_words(words: &[&'static str]) -> Vec<(&'static str, &'static str)> {
    words.iter().map(|word| (*word, *word)).collect()
}

/// Returns the pragma that an option such as `pragma.secure_delete` sets.
fn pragma_name(option: &str) -> Option<&str> {
    let (prefix, name) = option.split_once('.')?;
    prefix.eq_ignore_ascii_case("pragma").then_some(name)
}

/// Returns whether SQL can contain the name without quotes.
pub(super) fn is_identifier(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn flags(mode: Mode, shared: Option<bool>) -> OpenFlags {
    let access = match mode {
        Mode::ReadOnly => OpenFlags::SQLITE_OPEN_READ_ONLY,
        Mode::ReadWrite => OpenFlags::SQLITE_OPEN_READ_WRITE,
        Mode::Create => OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE,
        Mode::Memory => {
            OpenFlags::SQLITE_OPEN_READ_WRITE
                | OpenFlags::SQLITE_OPEN_CREATE
                | OpenFlags::SQLITE_OPEN_MEMORY
        }
    };
    let cache = match shared {
        Some(true) => OpenFlags::SQLITE_OPEN_SHARED_CACHE,
        Some(false) => OpenFlags::SQLITE_OPEN_PRIVATE_CACHE,
        None => OpenFlags::empty(),
    };
    access | cache | OpenFlags::SQLITE_OPEN_NO_MUTEX | OpenFlags::SQLITE_OPEN_URI
}

/// A file's name, parsed if it is one of SQLite's URIs.
struct File {
    name: String,
    /// `file:` and the text before the `?`, unchanged. `None` if the name is no URI.
    uri: Option<String>,
    parameters: Vec<(String, String)>,
}

impl File {
    fn of(path: &str) -> Result<Self> {
        let Some(rest) = path.strip_prefix("file:") else {
            return Ok(File {
                name: path.to_owned(),
                uri: None,
                parameters: Vec::new(),
            });
        };
        let rest = rest.split('#').next().unwrap_or_default();
        let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut parameters = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| {
                let message = "a parameter in the SQLite URI has no = in it; a right one: \
                               sqlite:file:shop.db?mode=ro";
                Error::new(Kind::Config, message)
            })?;
            parameters.push((percent_decoded(name)?, percent_decoded(value)?));
        }
        // `file:///path` and `file://localhost/path`: SQLite itself refuses other hosts.
        let path = match location.strip_prefix("//") {
            Some(with_host) => with_host.find('/').map_or("", |at| &with_host[at..]),
            None => location,
        };
        Ok(File {
            name: percent_decoded(path)?,
            uri: Some(format!("file:{location}")),
            parameters,
        })
    }

    fn storage(&self, mode: Mode, is_shared: bool, vfs: Option<&str>) -> Storage {
        let in_memory = mode == Mode::Memory || self.name == ":memory:";
        if self.name.is_empty() {
            // SQLite shares no database without a name, whatever the options are.
            Storage::Private
        } else if vfs == Some("memdb") {
            match self.name.starts_with('/') {
                true => Storage::SharedMemory,
                false => Storage::Private,
            }
        } else if !in_memory {
            Storage::File
        } else if is_shared {
            Storage::SharedMemory
        } else {
            Storage::Private
        }
    }

    /// Returns what SQLite opens. Settings that have a flag are not in it.
    fn target(&self, storage: Storage, immutable: bool, nolock: bool) -> String {
        let immutable = immutable.then_some("immutable=1");
        let nolock = nolock.then_some("nolock=1");
        let query: Vec<_> = immutable.into_iter().chain(nolock).collect();
        let uri = match &self.uri {
            Some(uri) => uri.clone(),
            // SQLite shares a database in memory only if its name is a URI.
            None if storage == Storage::SharedMemory || !query.is_empty() => {
                format!("file:{}", percent_encoded(&self.name))
            }
            None => return self.name.clone(),
        };
        match query.is_empty() {
            true => uri,
            false => format!("{uri}?{}", query.join("&")),
        }
    }
}

fn percent_encoded(path: &str) -> String {
    path.replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23")
}

fn percent_decoded(text: &str) -> Result<String> {
    let malformed = || {
        let message = "a % in the SQLite URI is not followed by two hexadecimal digits of UTF-8";
        Error::new(Kind::Config, message)
    };
    let mut parts = text.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).ok_or_else(malformed)?;
        bytes.push(u8::from_str_radix(digits, 16).map_err(|_| malformed())?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).map_err(|_| malformed())
}

/// Opens the connections of one handle. See [`Sqlite`](super::Sqlite).
#[derive(Debug)]
pub(super) struct SqliteTemplate {
    blueprint: Arc<Blueprint>,
}

/// Everything that a thread needs to open a connection.
#[derive(Debug)]
pub(super) struct Blueprint {
    pub(super) config: Config,
    pub(super) functions: Functions,
    pub(super) late_functions: Option<LateFunctions>,
    /// The kind of all its sessions.
    pub(super) session_kind: SessionKind,
    /// Keeps a shared database in memory alive while there is no other connection to it.
    pub(super) anchor: Mutex<Option<rusqlite::Connection>>,
    pub(super) file: Arc<SharedFile>,
}

impl SqliteTemplate {
    pub(super) fn new(config: Config, functions: Functions, late: Option<LateFunctions>) -> Self {
        let mut blueprint = Blueprint::new(config, functions);
        blueprint.late_functions = late;
        SqliteTemplate {
            blueprint: Arc::new(blueprint),
        }
    }
}

impl Blueprint {
    pub(super) fn new(config: Config, functions: Functions) -> Self {
        Blueprint {
            config,
            functions,
            late_functions: None,
            session_kind: SessionKind::new(),
            anchor: Mutex::new(None),
            file: Arc::default(),
        }
    }
}

/// SQLite's dialect. It is one static, because remembered scans belong to a dialect's address.
pub(super) static DIALECT: Dialect = Dialect::SQLITE;

impl Template for SqliteTemplate {
    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    fn address(&self) -> String {
        self.blueprint.config.name.clone()
    }

    fn check_poolable(&self) -> Result<()> {
        self.blueprint.config.check_poolable()
    }

    fn one_writer(&self) -> bool {
        true
    }

    /// Ignores the credentials: SQLite has no users.
    fn connect<'t>(
        &'t self,
        _credentials: Credentials,
        settings: &'t ConnectSettings,
    ) -> BoxFuture<'t, Result<Box<dyn Connection>>> {
        Box::pin(async move {
            let worker = connect::connect(&self.blueprint, settings.statement_cache).await?;
            let connection: Box<dyn Connection> = Box::new(SqliteConnection::new(worker));
            Ok(connection)
        })
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
