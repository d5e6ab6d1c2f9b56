//! `SentinelWatch`: the answers of a sentinel, and its reports of another master.

use std::sync::Arc;
use std::task::{Context, Poll};

use tidegate_engine::task;

use crate::client::config::ClientConfig;
use crate::client::connection::{PipelineMaker, ReplyPipeline};
use crate::client::router::Router;
use crate::client::slots::{address, elements, field, integer, text};
use crate::client::subscriber::Subscriber;
use crate::client::subscriber_queue::{SubscriberEvent, SubscriberQueue};
use crate::client::supervisor::{SubscriberServer, supervise_subscriber};
use crate::owned::OwnedValue;

/// A subscription at the sentinel that has answered last.
#[derive(Debug, Default)]
pub(crate) struct SentinelWatch {
    current: Option<(Box<str>, Box<str>, Subscriber)>,
}

impl SentinelWatch {
    /// The master in a reply to SENTINEL GET-MASTER-ADDR-BY-NAME.
    pub(crate) fn master(reply: &OwnedValue, host: &str) -> Result<Box<str>, String> {
        let found = match elements(reply) {
            Some([name, port]) => integer(port).and_then(|port| address(text(name), port, host)),
            _ => None,
        };
        found.ok_or_else(|| "the sentinel knows no such master".to_owned())
    }

    /// The replicas in a reply to SENTINEL REPLICAS that are in order.
    pub(crate) fn replicas(reply: &OwnedValue, host: &str) -> Vec<Box<str>> {
        let is_down = |flags: &str| flags.split(',').any(|flag| matches!(flag, "s_down" | "o_down" | "disconnected"));
        let replica = |replica: &OwnedValue| {
            let find = |name| field(replica, name);
            let is_linked = find("master-link-status").and_then(text).is_none_or(|status| status == "ok");
            let is_usable = is_linked && !find("flags").and_then(text).is_some_and(is_down);
            let found = address(find("ip").and_then(text), find("port").and_then(integer)?, host);
            found.filter(|_| is_usable)
        };
        elements(reply).unwrap_or_default().iter().take(REPLICAS_MAX).filter_map(replica).collect()
    }

    /// Subscribes at a sentinel, unless it is the one that is watched already.
    pub(crate) fn watch<P: ReplyPipeline>(
        &mut self,
        address: &str,
        name: &str,
        config: ClientConfig,
        router: &Arc<Router>,
        make: &PipelineMaker<P>,
    ) {
        if self.current.as_ref().is_some_and(|(current, ..)| &**current == address) {
            return;
        }
        let queue = Arc::new(SubscriberQueue::default());
        let subscriber = Subscriber::new(queue.clone(), None);
        subscriber.subscribe("+switch-master");
        let server = SubscriberServer::At(address.into(), router.clone());
        drop(task::spawn(supervise_subscriber(Arc::new(config), server, queue, make.clone())));
        self.current = Some((address.into(), name.into(), subscriber));
    }

    /// Whether the sentinel has reported something that may mean another master. Wakes the task when it does.
    pub(crate) fn poll_reports(&mut self, cx: &Context<'_>) -> bool {
        let Some((_, name, subscriber)) = &mut self.current else { return false };
        let mut reports = false;
        while let Poll::Ready(Some(event)) = subscriber.poll_recv(cx) {
            reports |= match event {
                SubscriberEvent::Message(message) => {
                    message.payload.split(|byte| *byte == b' ').next() == Some(name.as_bytes())
                }
                // A report may have been missed before.
                SubscriberEvent::Up => true,
                _ => false,
            };
        }
        reports
    }
}

/// Replicas that are looked at.
const REPLICAS_MAX: usize = 64;
