//! The key `cache`: where responses of an upstream are kept, and how many bytes of them.

use std::path::PathBuf;

use tidegate::http::cache::{Cache, CacheLimits};

use super::keys::{Key, Keys, Kind};
use super::literal::is_field_name;
use super::mistakes::{Located, Mistakes};

/// Where responses are kept, and how many bytes of them.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CacheRule {
    pub(crate) folder: Option<Located<PathBuf>>,
    memory_bytes: Option<u64>,
    disk_bytes: Option<Located<u64>>,
    entry_bytes: Option<u64>,
    stale_if_error: Option<u32>,
    ignore_client_control: bool,
    targeted_fields: Vec<String>,
}

impl Keys for CacheRule {
    const TITLE: &'static str = "cache";
    const TEXT: &'static str =
        "Responses of the upstream that are kept (RFC 9111). `POST /cache/purge` of `--admin` removes some.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new(
            "memory-bytes",
            Kind::Integer { min: MIB, max: i64::MAX },
            "Bytes of all responses in memory.",
            |to, value, reader| to.memory_bytes = Some(reader.integer(value).unsigned_abs()),
        )
        .default("134217728")
        .known_as(&["memory", "size", "max-size"]),
        Key::<Self>::new(
            "folder",
            Kind::Path,
            "Keep responses in this folder as well, which is made if it is not there. They survive a restart. Each cache has a \
             folder of its own.",
            |to, value, reader| to.folder = Some(reader.path(value)),
        )
        .known_as(&["path", "directory"]),
        Key::<Self>::new(
            "disk-bytes",
            Kind::Integer { min: MIB, max: i64::MAX },
            "Bytes of all responses in the folder.",
            |to, value, reader| to.disk_bytes = Some(Located::new(reader.integer(value).unsigned_abs(), value.place)),
        )
        .default("4294967296"),
        Key::<Self>::new(
            "entry-bytes",
            Kind::Integer { min: 1024, max: i64::MAX },
            "Bytes of one response; a longer one is passed on and not kept. A quarter of the memory at most.",
            |to, value, reader| to.entry_bytes = Some(reader.integer(value).unsigned_abs()),
        )
        .default("8388608"),
        Key::<Self>::new(
            "stale-if-error",
            Kind::Seconds { min: 0, max: 30 * 86_400 },
            "How long a response may replace a 500, 502, 503 or 504 after its lifetime, also where the upstream does not say so.",
            |to, value, reader| to.stale_if_error = Some(reader.count(value)),
        )
        .default("0"),
        Key::<Self>::new(
            "ignore-client-control",
            Kind::Boolean,
            "Ignore the `Cache-Control` of clients, but for `no-store`: none can have a response fetched again.",
            |to, value, reader| to.ignore_client_control = reader.boolean(value),
        )
        .default("false"),
        Key::<Self>::new(
            "targeted-fields",
            Kind::OneOrMore(&Kind::Text),
            "Fields of responses that replace `Cache-Control` for this cache, such as `CDN-Cache-Control` (RFC 9213).",
            |to, value, reader| {
                for name in reader.texts(value) {
                    if !is_field_name(&name.value) {
                        let text = format!("`{}` is not the name of a field", name.value.escape_debug());
                        reader.mistake(name.place, text);
                    }
                    to.targeted_fields.push(name.value);
                }
            },
        )
        .default("[]"),
    ];

    fn check(&mut self, mistakes: &mut Mistakes) {
        if let (None, Some(bytes)) = (&self.folder, &self.disk_bytes) {
            mistakes.add(bytes.place, "`disk-bytes` needs a `folder`");
        }
    }
}

impl CacheRule {
    /// Looks whether the folder can be one, and takes it out of the rule, so that it is neither made nor read.
    pub(crate) fn check_folder(&mut self) -> Result<(), String> {
        let Some(folder) = self.folder.take() else { return Ok(()) };
        match std::fs::metadata(&folder.value) {
            Ok(found) if !found.is_dir() => {
                Err(format!("cannot keep responses in {}: it is no folder", folder.value.display()))
            }
            _ => Ok(()),
        }
    }

    /// The cache. It reads its folder, if it has one.
    pub(crate) fn open(&self) -> Result<Cache, String> {
        let mut limits = CacheLimits::default();
        let bytes =
            |set: Option<u64>, default: usize| set.map_or(default, |set| usize::try_from(set).unwrap_or(default));
        limits.memory_bytes_max = bytes(self.memory_bytes, limits.memory_bytes_max);
        limits.entry_bytes_max = bytes(self.entry_bytes, limits.entry_bytes_max);
        limits.disk_bytes_max = self.disk_bytes.as_ref().map_or(limits.disk_bytes_max, |bytes| bytes.value);
        let mut builder = Cache::builder().limits(limits);
        if let Some(seconds) = self.stale_if_error {
            builder = builder.stale_if_error(std::time::Duration::from_secs(seconds.into()));
        }
        if self.ignore_client_control {
            builder = builder.ignore_client_control();
        }
        builder = self.targeted_fields.iter().fold(builder, |builder, name| builder.targeted_field(name));
        let Some(folder) = &self.folder else { return builder.build().map_err(|error| error.to_string()) };
        let built = builder.folder(&folder.value).build();
        built.map_err(|error| format!("cannot keep responses in {}: {error}", folder.value.display()))
    }
}

const MIB: i64 = 1024 * 1024;
