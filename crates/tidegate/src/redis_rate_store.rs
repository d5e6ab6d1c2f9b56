//! `RedisRateStore`: the counts of shared rate limits in Redis. It is here, since neither of the two crates knows the other.

use tidegate_engine::ConnectionRate;
use tidegate_http::{RateGrant, RateStore, TakeTokens};
use tidegate_redis::{Client, OwnedValue, Script};

/// The store of [`RateLimit::shared`](crate::http::RateLimit::shared) on Redis, since version 5: one key for each client,
/// which expires when the client has its whole burst again. The clock is that of Redis.
///
/// ```no_run
/// use std::time::Duration;
///
/// use tidegate::ConnectionRate;
/// use tidegate::http::{RateLimit, RedisRateStore, Router, Server};
/// use tidegate::redis::Client;
///
/// // A loop of its own has the connection, and the loops of the server share it.
/// let client = Client::url("redis://10.0.0.1/")?.timeout(Duration::from_secs(1)).spawn()?;
/// let limit = RateLimit::new(ConnectionRate::per_second(100)).shared("api", RedisRateStore::new(client));
/// let server = Server::bind("127.0.0.1:0")?.start(move || Router::new().get("/", || "rising").wrap(limit.clone()))?;
/// # server.drain(Duration::ZERO);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RedisRateStore {
    client: Client,
}

impl RedisRateStore {
    /// A store on the server of this client, which should have a short [timeout](tidegate_redis::ClientBuilder::timeout).
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self { client }
    }
}

impl RateStore for RedisRateStore {
    fn take(&self, client: &str, rate: ConnectionRate, tokens: u32) -> TakeTokens {
        let redis = self.client.clone();
        let key = format!("tidegate:rate:{client}");
        let micros = (rate.interval.as_nanos().max(1) as f64) / 1_000.0;
        let arguments = [micros.to_string(), rate.burst.max(1).to_string(), tokens.to_string()];
        Box::pin(async move {
            let reply = TAKE.run(&redis, [key], arguments).await?;
            let OwnedValue::Aggregate(_, values) = &reply else { return Err("the script has no array".into()) };
            let [OwnedValue::Integer(tokens), OwnedValue::Integer(wait)] = values[..] else {
                return Err("the script has no two numbers".into());
            };
            let wait = std::time::Duration::from_micros(u64::try_from(wait).unwrap_or(0));
            Ok(RateGrant { tokens: u32::try_from(tokens).unwrap_or(0), wait })
        })
    }
}

/// The generic cell rate algorithm (ITU-T I.371), in microseconds: the key has the time at which the next request would come
/// at the sustained rate. A key that lies further ahead than a whole burst, since the clock was set back, counts as a burst
/// that is used up.
static TAKE: std::sync::LazyLock<Script> = std::sync::LazyLock::new(|| {
    Script::new(
        "local interval, burst, wanted = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local limit = now + interval * burst
local arrival = math.min(math.max(tonumber(redis.call('GET', KEYS[1]) or now) or now, now), limit)
local tokens = math.min(wanted, math.floor((limit - arrival) / interval + 0.000001))
if tokens < 1 then
    return {0, math.ceil(arrival + interval - limit)}
end
arrival = arrival + tokens * interval
redis.call('SET', KEYS[1], string.format('%.3f', arrival), 'PX', math.ceil((arrival - now) / 1000))
return {tokens, 0}",
    )
});
