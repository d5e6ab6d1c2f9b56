//! The broker of a run: the model of redis-server or of nats-server.

use std::net::SocketAddr;
use std::time::Duration;

use tidegate_backplane::{Backplane, BackplaneBuilder};
use tidegate_engine::{Client as Target, Limits};
use tidegate_testkit::network::SimNode;

use crate::nats_model::NatsModel;
use crate::redis_model::{Published, RedisModel, Snapshot, ValueSet};

/// The kind of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BrokerKind {
    Redis,
    Nats,
}

pub(super) enum BrokerModel {
    Redis { model: RedisModel, snapshot: Snapshot },
    Nats(NatsModel),
}

impl BrokerModel {
    pub(super) fn new(kind: BrokerKind) -> Self {
        match kind {
            BrokerKind::Redis => Self::Redis { model: RedisModel::default(), snapshot: Snapshot::default() },
            BrokerKind::Nats => Self::Nats(NatsModel::new()),
        }
    }

    pub(super) const fn kind(&self) -> BrokerKind {
        match self {
            Self::Redis { .. } => BrokerKind::Redis,
            Self::Nats(_) => BrokerKind::Nats,
        }
    }

    pub(super) fn listen(&self, node: &SimNode) {
        let listening = match self {
            Self::Redis { model, .. } => {
                let model = model.clone();
                node.listen(PORT, Limits::default(), move |_| model.connection())
            }
            Self::Nats(model) => {
                let model = model.clone();
                node.listen(PORT, Limits::default(), move |_| model.connection())
            }
        };
        listening.expect("the port is free");
    }

    /// A node's client. Its pauses follow from the seed.
    pub(super) fn client(kind: BrokerKind, seed: u64) -> BackplaneBuilder {
        match kind {
            BrokerKind::Redis => {
                let server = Target::at(SocketAddr::from(([10, 0, 0, 1], PORT)));
                let client = tidegate_redis::Client::over(server).timeout(TIMEOUT);
                Backplane::redis_client(client.backoff_seed(seed))
            }
            BrokerKind::Nats => {
                let client = tidegate_nats::Client::to(&format!("nats://10.0.0.1:{PORT}")).expect("an address");
                Backplane::nats_client(client.timeout(TIMEOUT).backoff_seed(seed))
            }
        }
    }

    /// The broker ends. Returns whether it loses data that a check is about.
    pub(super) fn crash(&mut self, loses_data: bool) -> bool {
        match self {
            Self::Redis { model, snapshot } => {
                if loses_data {
                    model.lose_data();
                    // So does its replica.
                    *snapshot = model.snapshot();
                }
                loses_data
            }
            Self::Nats(model) => {
                model.crash(loses_data);
                // Kicks are in memory.
                true
            }
        }
    }

    /// A replica has the data of now.
    pub(super) fn replicate(&mut self) {
        if let Self::Redis { model, snapshot } = self {
            *snapshot = model.snapshot();
        }
    }

    /// The replica takes the broker's place. Returns `false` if the broker has none.
    pub(super) fn go_back(&mut self) -> bool {
        let Self::Redis { model, snapshot } = self else { return false };
        model.go_back(snapshot);
        true
    }

    pub(super) fn step_clock(&self, milliseconds: i64) {
        match self {
            Self::Redis { model, .. } => model.step_clock(milliseconds),
            Self::Nats(model) => model.step_clock(milliseconds),
        }
    }

    /// All messages of rooms, in order.
    pub(super) fn published(&self) -> Vec<Published> {
        match self {
            Self::Redis { model, .. } => model.published(),
            Self::Nats(model) => model.published(),
        }
    }

    /// All kicks that were stored, in order.
    pub(super) fn kicks(&self) -> Vec<ValueSet> {
        match self {
            Self::Redis { model, .. } => {
                model.values_set().into_iter().filter(|set| set.key.ends_with(b":k")).collect()
            }
            Self::Nats(model) => model.kicks(),
        }
    }

    /// The channel or the subject of a room.
    pub(super) fn channel(&self, room: &str) -> String {
        match self {
            Self::Redis { .. } => format!("tidegate:{{.{room}}}"),
            Self::Nats(_) => {
                let escaped = |byte: u8| match byte {
                    b'a'..=b'z' | b'0'..=b'9' => char::from(byte).to_string(),
                    byte => format!("={byte:02X}"),
                };
                format!("tidegate.room.{}", room.bytes().map(escaped).collect::<String>())
            }
        }
    }
}

const PORT: u16 = 6379;
const TIMEOUT: Duration = Duration::from_secs(5);
