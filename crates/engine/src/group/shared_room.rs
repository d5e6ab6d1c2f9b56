//! `SharedRoom` as the room of a backplane: the messages of all nodes reach the members of this one.

use bytes::Bytes;
use tidegate_codec::{Broadcast, Encoded};

use super::backplane::{BackplaneRoom, Kick, MessageForm, NodeId, NodePresence, Position, RoomDelivery, RoomEvent};
use super::room::SharedRoom;
use super::room_state::{RemoteMembers, RoomState};

impl<C: Broadcast, P: Send + Sync> SharedRoom<C, P> {
    /// The message of a delivery for members, empty if it has no encoding, and as it was published.
    fn message_of<'a>(&self, delivery: &'a RoomDelivery) -> Option<(Encoded<C>, Option<&'a Bytes>)> {
        let message = &delivery.message;
        if message.bytes.len() >= super::MESSAGE_BYTES_MAX {
            return None;
        }
        match message.form {
            MessageForm::Encoded => Some((Encoded::of(message.bytes.clone()), None)),
            MessageForm::Plain => {
                let event = RoomEvent::Message { bytes: &message.bytes, position: delivery.position };
                Some((self.encoded(event).unwrap_or_else(|| Encoded::of(Bytes::new())), Some(&message.bytes)))
            }
            MessageForm::Kick => None,
        }
    }

    /// Sends an event to the members: to connections if it has an encoding.
    fn send_event(&self, state: &RoomState<C, P>, event: RoomEvent<'_>) {
        self.report_missed(state);
        self.notify_subscribers(state, event);
        if let Some(message) = self.encoded(event) {
            // A loop that does not keep up: its members learn of it before the next one, if gaps have an encoding.
            let _ = self.group.send(&message);
        }
    }
}

impl<C: Broadcast, P: Send + Sync> BackplaneRoom for SharedRoom<C, P> {
    fn opened(&self, position: Option<Position>, messages: Vec<RoomDelivery>) {
        let mut state = self.lock();
        let before = messages.first().and_then(|first| first.position);
        let before = before.map(|first| Position { offset: first.offset.saturating_sub(1), ..first });
        state.forget_before(before.or(position));
        for delivery in messages {
            if let (Some(position), Some((message, plain))) = (delivery.position, self.message_of(&delivery)) {
                state.remember(position, &message, plain, &self.limits);
            }
        }
        state.is_open = true;
        for waiting in std::mem::take(&mut state.waiting).into_values() {
            let first = self.first_messages(&state, waiting.after);
            // A loop that does not keep up: the member gets the next messages.
            let _ = self.group.join_with(&waiting.member, &first);
        }
        self.open_subscribers(&mut state);
    }

    fn deliver(&self, delivery: RoomDelivery) -> bool {
        if delivery.message.form == MessageForm::Kick {
            return Kick::from_bytes(&delivery.message.bytes).is_none_or(|kick| self.kick_here(kick).is_ok());
        }
        let mut state = self.lock();
        let Some((message, plain)) = self.message_of(&delivery) else { return true };
        let position = delivery.position;
        self.report_missed(&state);
        state.messages_sent += 1;
        if let Some(position) = position {
            state.remember(position, &message, plain, &self.limits);
        }
        if let Some(bytes) = plain {
            self.notify_subscribers(&state, RoomEvent::Message { bytes, position });
        }
        self.group.send(&message).is_ok()
    }

    fn gap(&self, position: Option<Position>) {
        let mut state = self.lock();
        state.forget_before(position);
        self.send_event(&state, RoomEvent::Gap { position });
    }

    fn connected(&self, is_connected: bool) {
        let state = self.lock();
        self.send_event(&state, if is_connected { RoomEvent::Up } else { RoomEvent::Down });
    }

    fn presence(&self, names_max: usize) -> NodePresence {
        let state = self.lock();
        let Some(link) = &self.link else { return NodePresence::default() };
        let names = state.present.values().take(names_max).map(|name| (link.describe)(name)).collect();
        NodePresence { count: state.present.len(), names }
    }

    fn node_presence(&self, node: NodeId, presence: Option<NodePresence>) {
        let members = presence.zip(self.link.as_ref()).map(|(presence, link)| RemoteMembers {
            count: presence.count,
            names: presence.names.iter().filter_map(|name| (link.read_name)(name)).collect(),
        });
        let mut state = self.lock();
        let elsewhere = &mut state.elsewhere;
        let before = match (elsewhere.binary_search_by_key(&node, |(node, _)| *node), members) {
            (Ok(place), Some(members)) => Some(std::mem::replace(&mut elsewhere[place].1, members)),
            (Ok(place), None) => Some(elsewhere.remove(place).1),
            (Err(place), Some(members)) => {
                if elsewhere.len() < FEW_NODES {
                    elsewhere.reserve_exact(1);
                }
                elsewhere.insert(place, (node, members));
                None
            }
            (Err(_), None) => None,
        };
        drop(state);
        // Descriptions are dropped after the lock.
        drop(before);
    }

    fn try_close(&self) -> bool {
        let mut state = self.lock();
        if !state.present.is_empty() {
            return false;
        }
        state.is_open = false;
        let elsewhere = std::mem::take(&mut state.elsewhere);
        drop(state);
        drop(elsewhere);
        true
    }
}

/// Up to so many nodes, memory grows by one at a time: most rooms have members on few.
const FEW_NODES: usize = 8;
