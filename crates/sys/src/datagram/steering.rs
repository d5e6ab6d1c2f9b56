//! `Steering`: which socket of a group that shares an address gets a datagram, by a number in the datagram.
//!
//! The kernel chooses by a hash of both addresses, so a peer that changes its address comes to another socket. A rule
//! reads the number of the socket from the datagram itself. It is data, from which a program for the kernel (classic BPF,
//! `SO_ATTACH_REUSEPORT_CBPF`) and the same decision in this process are made. A number that no socket has means: by hash.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Where datagrams have the number of the socket that they are for: the place in the group of those that share an
/// address, in the order in which they were bound.
///
/// ```
/// use tidegate::sys::Steering;
///
/// // The low four bits of the third byte, in datagrams whose first byte is below 128.
/// let steering = Steering { only_if: Some((0, 0x80, 0)), xor_offset: None, offset: 2, mask: 0x0f };
/// assert_eq!(steering.number(&[0x40, 7, 0x35]), Some(5));
/// assert_eq!((steering.number(&[0xc0, 7, 0x35]), steering.number(&[0x40, 7])), (None, None));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Steering {
    /// An offset, a mask and a value: datagrams have a number if the byte there, under the mask, has the value.
    pub only_if: Option<(u16, u8, u8)>,
    /// The byte with which the byte at `offset` is XORed first.
    pub xor_offset: Option<u16>,
    /// The byte that has the number, counted from the beginning of the payload.
    pub offset: u16,
    /// The bits of the number.
    pub mask: u8,
}

impl Steering {
    /// The number in a payload; `None` if it has none.
    #[must_use]
    pub fn number(&self, payload: &[u8]) -> Option<usize> {
        let byte = |offset: u16| payload.get(usize::from(offset)).copied();
        if let Some((offset, mask, value)) = self.only_if
            && byte(offset)? & mask != value
        {
            return None;
        }
        let xor = self.xor_offset.map_or(Some(0), byte)?;
        Some(usize::from((byte(self.offset)? ^ xor) & self.mask))
    }

    /// Whether each of so many sockets has a number that the mask can hold.
    #[must_use]
    pub fn tells_apart(&self, sockets: usize) -> bool {
        sockets <= usize::from(self.mask) + 1 && (usize::from(self.mask) + 1).is_power_of_two()
    }

    /// The same as a program, which returns the place of a socket, or [`BY_HASH`].
    fn program(&self, sockets: u32) -> Vec<libc::sock_filter> {
        let guard = self.only_if.map_or(0, |(offset, ..)| offset);
        let last = self.offset.max(guard).max(self.xor_offset.unwrap_or(0));
        let mut program = vec![step(LOAD_LENGTH, 0), step(JUMP_GREATER_OR_EQUAL, u32::from(last) + 1)];
        if let Some((offset, mask, value)) = self.only_if {
            program.extend([step(LOAD_BYTE, offset.into()), step(AND, mask.into()), step(JUMP_EQUAL, value.into())]);
        }
        if let Some(offset) = self.xor_offset {
            program.extend([step(LOAD_BYTE, offset.into()), step(TO_X, 0)]);
        }
        program.push(step(LOAD_BYTE, self.offset.into()));
        if self.xor_offset.is_some() {
            program.push(step(XOR_X, 0));
        }
        program.extend([step(AND, self.mask.into()), step(JUMP_LESS, sockets), step(RETURN_A, 0)]);
        program.push(step(RETURN, BY_HASH));
        // A jump whose condition does not hold goes to the last step.
        let end = program.len() - 1;
        for (place, step) in program.iter_mut().enumerate() {
            let to_end = end.saturating_sub(place + 1) as u8;
            match step.code {
                JUMP_GREATER_OR_EQUAL | JUMP_EQUAL => step.jf = to_end,
                // Of the same code as "greater or equal", the other way round.
                JUMP_LESS => (step.code, step.jt) = (JUMP_GREATER_OR_EQUAL, to_end),
                _ => {}
            }
        }
        program
    }
}

/// Steers the datagrams of the group of `sockets` sockets to which this one belongs.
///
/// # Errors
/// Those of the system, and `InvalidInput` if the rule does not tell so many apart.
pub(super) fn attach(socket: BorrowedFd<'_>, steering: &Steering, sockets: usize) -> io::Result<()> {
    if !steering.tells_apart(sockets) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut steps = steering.program(sockets as u32);
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    let (value, length) = (&raw const program, size_of::<libc::sock_fprog>() as libc::socklen_t);
    let name = libc::SO_ATTACH_REUSEPORT_CBPF;
    // SAFETY: the pointer and the length describe `program`, whose steps live until the end of the call; the kernel copies
    // and checks them.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, value.cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn step(code: u16, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: 0, jf: 0, k }
}

/// No group has so many sockets: the kernel chooses by a hash.
const BY_HASH: u32 = u32::MAX;

// Codes of classic BPF.
const LOAD_LENGTH: u16 = 0x80;
const LOAD_BYTE: u16 = 0x30;
const AND: u16 = 0x54;
const XOR_X: u16 = 0xac;
const TO_X: u16 = 0x07;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER_OR_EQUAL: u16 = 0x35;
const RETURN: u16 = 0x06;
const RETURN_A: u16 = 0x16;
/// Stands for a jump of the other direction, and is no code of the kernel.
const JUMP_LESS: u16 = 0xffff;

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: [Steering; 3] = [
        Steering { only_if: None, xor_offset: None, offset: 0, mask: 0xff },
        Steering { only_if: Some((0, 0x80, 0)), xor_offset: Some(1), offset: 2, mask: 0x7f },
        Steering { only_if: Some((3, 0x0f, 2)), xor_offset: None, offset: 1, mask: 0x03 },
    ];

    #[test]
    fn a_mask_tells_as_many_sockets_apart_as_it_has_numbers() {
        let counts = RULES.map(|rule| [1, 4, 5, 128, 129, 256, 257].map(|sockets| rule.tells_apart(sockets)));
        assert_eq!(counts[0], [true, true, true, true, true, true, false]);
        assert_eq!(counts[1], [true, true, true, true, false, false, false]);
        assert_eq!(counts[2], [true, true, false, false, false, false, false]);
        assert!(!Steering { mask: 0x06, ..RULES[0] }.tells_apart(2));
    }
}
