//! Answers from the cache, through its aliases.

use std::sync::Arc;
use std::time::Instant;

use super::answer::{Answer, LookupError};
use super::shared_cache::SharedCache;
use crate::cache::{Cache, Cached};
use crate::name::Name;
use crate::numbers::{RecordType, ResponseCode};
use crate::record_data::RecordData;
use crate::records::Record;

/// The cache's entries for a question.
#[derive(Debug, Default)]
pub(super) struct FromCache {
    /// A result that needs no server: its time has not passed, or its servers have failed a short while ago.
    pub(super) result: Option<Result<Arc<Answer>, LookupError>>,
    /// An answer whose time has passed.
    pub(super) stale: Option<Arc<Answer>>,
    pub(super) is_prefetch_due: bool,
}

/// The type under which the cache has that a name does not exist, whatever the type of the question (RFC 8020).
pub(super) const NO_NAME: RecordType = RecordType(0);

pub(super) fn read(
    cache: &SharedCache,
    name: &Name,
    record_type: RecordType,
    aliases_max: usize,
    now: Instant,
) -> FromCache {
    cache.with(|cache| read_locked(cache, name, record_type, aliases_max, now))
}

fn read_locked(cache: &mut Cache, name: &Name, record_type: RecordType, aliases_max: usize, now: Instant) -> FromCache {
    let mut found = FromCache::default();
    let (mut target, mut records, mut is_stale, mut has_failed) = (name.clone(), Vec::new(), false, false);
    for _ in 0..=aliases_max {
        let entry = cache.get(&target, record_type, now).or_else(|| cache.get(&target, NO_NAME, now));
        if let Some(entry) = entry {
            found.is_prefetch_due |= entry.is_prefetch_due;
            is_stale |= entry.is_stale;
            has_failed |= entry.has_failed;
            if entry.response_code == ResponseCode::SERVFAIL {
                found.result = Some(Err(LookupError::CachedFailure));
                return found;
            }
            let Cached { data, response_code, soa, ttl, .. } = entry;
            records.extend(data.into_iter().map(|data| Record::new(target.clone(), ttl, data)));
            let answer = Arc::new(Answer { response_code, records, soa, is_stale });
            // Servers that failed a short while ago are not asked for each query (RFC 8767 §5).
            if is_stale && !has_failed {
                found.stale = Some(answer);
            } else {
                found.result = Some(Ok(answer));
            }
            return found;
        }
        if record_type == RecordType::CNAME {
            return found;
        }
        let Some(alias) = cache.get(&target, RecordType::CNAME, now) else { return found };
        is_stale |= alias.is_stale;
        has_failed |= alias.has_failed;
        found.is_prefetch_due |= alias.is_prefetch_due;
        let Some(data) = alias.data.first() else { return found };
        let RecordData::Cname(next) = data.view() else { return found };
        let next = next.to_name();
        records.push(Record::new(target, alias.ttl, data.clone()));
        target = next;
    }
    found
}

/// Notes that the servers failed for a question to which the cache has an answer, also a stale one or one through aliases. Returns
/// false if it has none.
pub(super) fn keep_answer(
    cache: &mut Cache,
    name: &Name,
    record_type: RecordType,
    aliases_max: usize,
    has_response: bool,
    now: Instant,
) -> bool {
    let known = read_locked(cache, name, record_type, aliases_max, now);
    if known.stale.is_none() && !matches!(known.result, Some(Ok(_))) {
        return false;
    }
    let config = cache.config();
    let retry_after = if has_response { config.stale_retry } else { config.failure_ttl_min };
    let types = [record_type, NO_NAME, RecordType::CNAME];
    // Not lazily: each of them may be an entry.
    types.map(|entry| cache.note_failed_refresh(name, entry, retry_after, now)).contains(&true)
}
