//! A shared response cache (RFC 9111): stored responses answer requests in the place of an upstream, or of a function.
//!
//! [`Cache::wrap`] puts it in front of a function of a router, such as a proxy. All loops share the stored responses.
//!
//! ```no_run
//! use tidegate::http::cache::Cache;
//! use tidegate::http::proxy::{Proxy, Upstreams};
//! use tidegate::http::{Router, Server};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let upstreams = Upstreams::new(["http://10.0.0.1:8080"])?;
//! let cache = Cache::builder().folder("/var/cache/tidegate").build()?;
//! let router = move || Router::new().fallback(cache.wrap(Proxy::new(&upstreams)));
//! Server::bind("0.0.0.0:80")?.start(router)?.wait();
//! # Ok(())
//! # }
//! ```
//!
//! | a response to GET is stored | unless |
//! |---|---|
//! | with a lifetime of its own: `s-maxage`, `max-age`, `Expires` | `no-store`, `private`; `Vary: *`; a 206 |
//! | with a validator: `ETag`, `Last-Modified`; from the latter a tenth of its age is a lifetime | the request has `no-store` |
//! | to a request with `Authorization`, if it has `public`, `s-maxage` or `must-revalidate` | |
//! | with `Set-Cookie`, if it has `public` | |
//!
//! A response whose `Vary` names a request field that the function in front of which the cache stands fills in by itself, such as
//! `X-Forwarded-For` of a proxy, is not stored: the cache does not see that value. `X-Forwarded-Proto` and `X-Forwarded-Host`
//! follow from the URL, unless the proxy trusts clients that name others. Middleware between the cache and its function that
//! changes request fields has to add no `Vary` by them.
//!
//! A stored response is used as long as it is fresh. Then the upstream is asked whether it is still valid, and a 304 makes it
//! fresh again: its fields replace the stored ones, its `Vary` chooses from then on, and its cookies go to the one client
//! that was waiting for it. `stale-while-revalidate` and `stale-if-error` (RFC 5861) have a stale one sent in the meantime.
//! Conditional requests, HEAD, and a range of bytes are answered from a whole stored response. Partial responses (206) are passed
//! on, and neither stored nor combined, which RFC 9111 §3.3 and §3.4 leave to the cache. A response to HEAD with another
//! validator or length removes the stored one. POST and other unsafe methods remove those for their target, and for `Location` and
//! `Content-Location` of the same origin.
//!
//! **Requests for one key are joined**: one goes to the upstream, and the others wait for it, at most
//! [`waiting_timeout`](CacheLimits::waiting_timeout). If the response turns out not to be storable, they go on by
//! themselves, and further ones do not wait for some seconds. A request that leaves stops no other.
//!
//! **A flood stays within the budget**: the bytes of keys, fields and bodies count, invented queries and values of `Vary`
//! take each other's place, and responses that are used stay. The same holds for the folder, for its index in memory, and for
//! responses that wait to be written: if the folder is slow, they are left out.
//!
//! **A newer response is never followed by an older one.** An older file leaves the index of the folder when a newer response
//! comes, whether that is written or not. After a restart with a clock that was set back, the ages of files are not known: they
//! are validated before they are used.
//!
//! Each response has `Cache-Status` (RFC 9211): [`Outcome::of`] reads it for a log. [`Cache::counts`] has the figures.
//!
//! Read next: `function.rs`, the way of a request; `rules/storing.rs` and `rules/freshness.rs`, the rules; `store/shard.rs`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `cache.rs` | `Cache`, `CacheBuilder`: settings; purges |
//! | `shared.rs` | the state that loops share |
//! | `limits.rs` | `CacheLimits` |
//! | `function.rs` | `Cached`: the function, and the way of a request through the cache |
//! | `plain_heads.rs` | the fields of requests that came lately, which say nothing to a cache |
//! | `fetch.rs` | a request that goes to the upstream, and its response; revalidations |
//! | `fill.rs` | a response that is stored while its body is on its way |
//! | `flights.rs` | the requests on their way, and those that wait for them |
//! | `answer.rs` | the response to a client from a stored one |
//! | `entry.rs` | a stored response |
//! | `key.rs` | the URL in one form |
//! | `outcome.rs` | `Outcome`, and `Cache-Status` |
//! | `counts.rs` | `CacheCounts` |
//! | `metrics.rs` | the same as text for Prometheus |
//! | `rules/` | RFC 9111 free of I/O: directives (`control.rs`), the fields that rules read (`facts.rs`), lifetimes (`freshness.rs`), storing, `Vary`, conditions, ranges, updates by a 304 |
//! | `store/` | responses in memory, in shards (`shard.rs`) with an order of eviction (`queues.rs`); in a folder (`disk.rs`) of files (`file.rs`) |

#![forbid(unsafe_code)]

mod answer;
mod cache;
mod counts;
mod entry;
mod fetch;
mod fill;
mod flights;
mod function;
mod key;
mod limits;
mod metrics;
mod outcome;
mod plain_heads;
mod rules;
mod shared;
mod store;

pub use self::cache::{Cache, CacheBuilder};
pub use self::counts::CacheCounts;
pub use self::function::{Cached, CachedFunction};
pub use self::limits::CacheLimits;
pub use self::outcome::Outcome;
