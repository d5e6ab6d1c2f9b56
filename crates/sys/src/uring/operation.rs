//! Operations in flight: their names in the ring, and their states.
//!
//! A socket has at most one operation of each kind. Its memory belongs to the kernel until the *terminal* completion,
//! which is the operation's last. The completion of a cancellation is not terminal for the cancelled operation, which
//! may still succeed.

use crate::driver::Token;

/// The kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Receiving. One operation may have many completions.
    Receive,
    /// Sending: one at a time, or bytes would overtake each other.
    Send,
    /// Waiting until a connect has ended, or until there is room to send.
    Writable,
    /// Waiting for the end of a connection that does not receive.
    HangUp,
    /// Waiting for connections to accept. One operation may have many completions.
    Accept,
    /// The loop's waker. It belongs to no socket.
    Wake,
    /// A cancellation of any operation. Its result is ignored.
    Cancel,
}

impl Kind {
    /// The kinds that sockets have.
    pub(super) const OF_SOCKETS: [Self; 5] = [Self::Receive, Self::Send, Self::Writable, Self::HangUp, Self::Accept];
}

/// The state of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum OperationState {
    /// There is none.
    Idle,
    /// The kernel has it.
    Armed,
    /// The kernel has it, and its cancellation was submitted.
    Cancelling,
}

/// A state change of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transition {
    /// It is submitted.
    Arm,
    /// Its cancellation is submitted.
    Cancel,
    /// A completion that is not the last.
    More,
    /// The terminal completion.
    Last,
}

impl OperationState {
    /// The state after a step; `None` if the step is not allowed in this state.
    pub(super) const fn after(self, step: Transition) -> Option<Self> {
        match (self, step) {
            (Self::Idle, Transition::Arm) => Some(Self::Armed),
            (Self::Armed, Transition::More) => Some(Self::Armed),
            (Self::Armed, Transition::Cancel) => Some(Self::Cancelling),
            (Self::Cancelling, Transition::More) => Some(Self::Cancelling),
            (Self::Armed | Self::Cancelling, Transition::Last) => Some(Self::Idle),
            _ => None,
        }
    }
}

/// The states of a socket's operations, two bits each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct OpStates(u16);

impl OpStates {
    pub(super) const fn state(self, kind: Kind) -> OperationState {
        match self.0 >> (2 * kind as u8) & 3 {
            0 => OperationState::Idle,
            1 => OperationState::Armed,
            _ => OperationState::Cancelling,
        }
    }

    /// Takes a step. A step that is not allowed is a bug of ours or of the kernel, and changes nothing.
    pub(super) fn step(&mut self, kind: Kind, step: Transition) -> bool {
        let Some(state) = self.state(kind).after(step) else { return false };
        self.0 = self.0 & !(3 << (2 * kind as u8)) | (state as u16) << (2 * kind as u8);
        true
    }

    pub(super) const fn is_idle(self, kind: Kind) -> bool {
        matches!(self.state(kind), OperationState::Idle)
    }

    /// Whether the kernel has no operation of the socket.
    pub(super) const fn are_over(self) -> bool {
        self.0 == 0
    }
}

/// The name of an operation in the ring: slot, kind, and as much of the generation as there is room for. A socket's
/// entry stays until all its operations have ended, so the generation only guards against a faulty kernel.
pub(super) const fn name(token: Token, kind: Kind) -> u64 {
    (token.slot as u64) << 32 | (token.generation as u64 & GENERATION_MASK) << 8 | kind as u64
}

/// The slot, the low bits of the generation, and the kind.
pub(super) const fn parse(name: u64) -> (u32, u32, Kind) {
    let kind = match name as u8 {
        0 => Kind::Receive,
        1 => Kind::Send,
        2 => Kind::Writable,
        3 => Kind::HangUp,
        4 => Kind::Accept,
        5 => Kind::Wake,
        _ => Kind::Cancel,
    };
    ((name >> 32) as u32, (name >> 8 & GENERATION_MASK) as u32, kind)
}

/// The token of operations that belong to no socket. No loop has a slot of this number.
pub(super) const NO_SOCKET: Token = Token { slot: u32::MAX, generation: u32::MAX };

/// The bits of a generation that are in a name.
pub(super) const GENERATION_MASK: u64 = 0x00FF_FFFF;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_operation_in_flight_completes_and_only_once() {
        let steps = [Transition::Arm, Transition::Cancel, Transition::More, Transition::Last];
        let table = |state: OperationState| steps.map(|step| state.after(step));
        assert_eq!(table(OperationState::Idle), [Some(OperationState::Armed), None, None, None]);
        assert_eq!(
            table(OperationState::Armed),
            [None, Some(OperationState::Cancelling), Some(OperationState::Armed), Some(OperationState::Idle)]
        );
        assert_eq!(
            table(OperationState::Cancelling),
            [None, None, Some(OperationState::Cancelling), Some(OperationState::Idle)]
        );
    }

    #[test]
    fn operations_of_one_socket_have_independent_states() {
        let mut operations = OpStates::default();
        for kind in Kind::OF_SOCKETS {
            assert!(operations.step(kind, Transition::Arm));
        }
        assert!(operations.step(Kind::Send, Transition::Cancel));
        assert!(!operations.step(Kind::Send, Transition::Arm), "it is not over");
        assert!(operations.step(Kind::Receive, Transition::Last));
        let states = Kind::OF_SOCKETS.map(|kind| operations.state(kind));
        assert_eq!(
            states,
            [
                OperationState::Idle,
                OperationState::Cancelling,
                OperationState::Armed,
                OperationState::Armed,
                OperationState::Armed
            ]
        );
        for kind in [Kind::Send, Kind::Writable, Kind::HangUp, Kind::Accept] {
            assert!(!operations.are_over());
            assert!(operations.step(kind, Transition::Last));
        }
        assert!(operations.are_over());
    }

    #[test]
    fn a_name_parses_back_to_its_parts() {
        for slot in [0, 1, u32::MAX] {
            for generation in [1, 0x00FF_FFFF] {
                for kind in Kind::OF_SOCKETS.into_iter().chain([Kind::Wake, Kind::Cancel]) {
                    assert_eq!(parse(name(Token { slot, generation }, kind)), (slot, generation, kind));
                }
            }
        }
    }
}
