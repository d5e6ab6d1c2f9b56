//! The driver of a loop in a simulated network.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tidegate_buffer::{Pool, ReceiveHint, Scratch};
use tidegate_sys::{Address, Class, Completion, Driver, Operation, Side, Socket, Token, Wake, Waker};

use super::datagram_sockets::DatagramSocket;
use super::event_queue::Event;
use super::faults::NetworkFault;
use super::stream::Owner;
use super::world::{SocketRef, World};

/// The driver. It has no state but its memory: it looks up each completion in the world when the loop asks for one.
pub(super) struct SimDriver {
    world: Rc<RefCell<World>>,
    /// The number of this driver.
    driver: usize,
    woken: Arc<AtomicBool>,
    scratch: Scratch,
}

impl SimDriver {
    pub(super) fn new(world: Rc<RefCell<World>>, driver: usize, pool: &Pool) -> Self {
        let woken = world.borrow().driver_states[driver].woken.clone();
        Self { world, driver, woken, scratch: Scratch::new(pool) }
    }

    fn adopt(world: &mut World, owner: Owner, socket: &Socket, listens: bool) -> Option<Completion> {
        let place = match *socket {
            Socket::Simulated(id) if listens => world
                .listeners
                .get_mut(id)
                .map(|listener| listener.owner = Some(owner))
                .map(|()| SocketRef::Listener(id)),
            Socket::Simulated(id) => {
                world.ends.get_mut(id).map(|end| end.owner = Some(owner)).map(|()| SocketRef::Endpoint(id))
            }
            Socket::Descriptor(_) => None,
        };
        let Some(place) = place else { return Some(Completion::Failed(io::ErrorKind::Unsupported.into())) };
        world.driver_states[owner.driver].sockets.put(owner.token, place);
        // Completions may be ready already.
        world.enqueue(place);
        None
    }

    fn bind(world: &mut World, owner: Owner, socket: &Socket) -> Option<Completion> {
        let bound = match *socket {
            Socket::Simulated(id) => world.datagrams.sockets.get_mut(id).map(|socket| (id, socket)),
            Socket::Descriptor(_) => None,
        };
        let Some((id, socket)) = bound else { return Some(Completion::Failed(io::ErrorKind::Unsupported.into())) };
        socket.owner = Some(owner);
        world.driver_states[owner.driver].sockets.put(owner.token, SocketRef::Datagrams(id));
        world.enqueue(SocketRef::Datagrams(id));
        None
    }

    fn close(world: &mut World, owner: Owner, reset: bool) -> Option<Completion> {
        let mut in_flight = false;
        match world.driver_states[owner.driver].sockets.remove(owner.token) {
            Some(SocketRef::Endpoint(id)) => {
                // The kernel uses the bytes until that send completes, so the completion of the close comes after it.
                in_flight = world.ends.get(id).is_some_and(|end| end.taken.is_some());
                world.close(id, reset);
            }
            Some(SocketRef::Listener(id)) => world.close_listener(id),
            Some(SocketRef::Datagrams(id)) => world.close_datagrams(id),
            Some(SocketRef::Closed(_)) | None => {}
        }
        if in_flight || world.occurs(NetworkFault::LateClose) {
            let later = world.random_delay(CLOSE_MAX);
            world.put(later, Event::Closed { driver: owner.driver, token: owner.token });
            return None;
        }
        Some(Completion::Closed)
    }
}

impl Driver for SimDriver {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn waker(&self) -> Waker {
        Waker::new(Arc::new(WakeFlag(self.woken.clone())))
    }

    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        let world = &mut *self.world.borrow_mut();
        let owner = Owner { driver: self.driver, token };
        let state = &mut world.driver_states[self.driver];
        state.activity += 1;
        let place = state.sockets.get(token);
        let completion = match (operation, place) {
            (Operation::Listen(socket), _) => Self::adopt(world, owner, &socket, true),
            (Operation::Adopt(socket), _) => Self::adopt(world, owner, &socket, false),
            (Operation::Connect { address, local, .. }, _) => world.connect(owner, address, local),
            (Operation::Accept(on), Some(place @ SocketRef::Listener(_)))
            | (Operation::Receive(on), Some(place @ (SocketRef::Endpoint(_) | SocketRef::Datagrams(_)))) => {
                world.set_interest(place, on);
                None
            }
            (Operation::Send { queue, bytes_max }, Some(SocketRef::Endpoint(id))) => {
                world.send(id, queue, bytes_max).map(Completion::Sent)
            }
            (Operation::Bind { socket, .. }, _) => Self::bind(world, owner, &socket),
            (Operation::Transmit(transmits), Some(SocketRef::Datagrams(id))) => {
                Some(Completion::Transmitted(world.transmit_datagrams(id, transmits)))
            }
            (Operation::ShutdownWrite, Some(SocketRef::Endpoint(id))) => {
                world.shut(id);
                None
            }
            (Operation::Close { reset }, _) => Self::close(world, owner, reset),
            _ => None,
        };
        if let Some(completion) = &completion {
            world.report(owner, completion);
        }
        completion
    }

    /// Does not block: records how long the loop would have slept, and the network moves the clock.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let world = &mut *self.world.borrow_mut();
        let now = world.now;
        let several = world.driver_states[self.driver].ready.len() > 1;
        if several && world.occurs(NetworkFault::Reordered) {
            let World { driver_states: states, random, .. } = world;
            for order in states[self.driver].ready.orders() {
                for last in (1..order.len()).rev() {
                    order.swap(last, random.below(last + 1));
                }
            }
        }
        let state = &mut world.driver_states[self.driver];
        state.ready.begin_turn();
        state.sleep = timeout.and_then(|timeout| now.checked_add(timeout));
        state.slept = state.ready.is_empty() && timeout != Some(Duration::ZERO) && !state.woken.load(Ordering::Acquire);
        Ok(())
    }

    fn next(&mut self, class: Class) -> Option<(Token, Completion)> {
        let world = &mut *self.world.borrow_mut();
        if self.woken.swap(false, Ordering::AcqRel) {
            world.report(Owner { driver: self.driver, token: NO_TOKEN }, &Completion::Woken);
            return Some((NO_TOKEN, Completion::Woken));
        }
        while let Some(place) = world.driver_states[self.driver].ready.next(class) {
            if let Some(completion) = world.poll_socket(self.driver, place, &mut self.scratch) {
                return Some(completion);
            }
        }
        None
    }

    fn pause_receives(&mut self, pause: bool) {
        let world = &mut *self.world.borrow_mut();
        let was_paused = std::mem::replace(&mut world.driver_states[self.driver].receives_paused, pause);
        if was_paused && !pause {
            let places = world.driver_states[self.driver].sockets.places();
            places.into_iter().for_each(|place| world.enqueue(place));
        }
    }

    fn watch_end(&mut self, token: Token) {
        let world = &mut *self.world.borrow_mut();
        if let Some(SocketRef::Endpoint(id)) = world.driver_states[self.driver].sockets.get(token) {
            world.watch_end(id);
        }
    }

    fn note_work(&mut self, token: Token) {
        let world = &mut *self.world.borrow_mut();
        if let Some(SocketRef::Endpoint(id)) = world.driver_states[self.driver].sockets.get(token)
            && let Some(end) = world.ends.get_mut(id)
        {
            end.load.note_work();
        }
    }

    fn hint_receive(&mut self, token: Token, hint: ReceiveHint) {
        let world = &mut *self.world.borrow_mut();
        if let Some(SocketRef::Endpoint(id)) = world.driver_states[self.driver].sockets.get(token)
            && let Some(end) = world.ends.get_mut(id)
        {
            end.receive_hint = Some(hint);
        }
    }

    fn unacknowledged(&self, token: Token) -> Option<u64> {
        let world = self.world.borrow();
        let Some(SocketRef::Endpoint(id)) = world.driver_states[self.driver].sockets.get(token) else { return None };
        world.ends.get(id).map(|end| (end.unsent.len() + end.unacknowledged) as u64)
    }

    fn has_ready(&self) -> bool {
        !self.world.borrow().driver_states[self.driver].ready.is_empty()
    }

    fn has_input(&mut self, token: Token) -> bool {
        let world = self.world.borrow();
        let Some(SocketRef::Endpoint(id)) = world.driver_states[self.driver].sockets.get(token) else { return false };
        world.ends.get(id).is_some_and(|end| end.receiving && !end.broken && !end.inbound.is_empty())
    }

    fn datagram_drops(&self, token: Token) -> u64 {
        let world = self.world.borrow();
        let Some(SocketRef::Datagrams(id)) = world.driver_states[self.driver].sockets.get(token) else { return 0 };
        world.datagrams.sockets.get(id).map_or(0, |socket| socket.drops)
    }

    fn now(&self) -> Instant {
        let world = self.world.borrow();
        world.start + world.now
    }

    fn system_time(&self) -> SystemTime {
        let world = self.world.borrow();
        SystemTime::UNIX_EPOCH + world.clock_offset + world.now
    }

    fn address(&self, token: Token, side: Side) -> io::Result<Address> {
        let world = self.world.borrow();
        let address = match (world.driver_states[self.driver].sockets.get(token), side) {
            (Some(SocketRef::Listener(id)), Side::Local) => {
                world.listeners.get(id).map(|listener| listener.address.clone())
            }
            (Some(SocketRef::Datagrams(id)), Side::Local) => {
                world.datagrams.sockets.get(id).map(DatagramSocket::address)
            }
            (Some(SocketRef::Endpoint(id)), Side::Local) => world.ends.get(id).map(|end| end.local.clone()),
            (Some(SocketRef::Endpoint(id)), Side::Peer) => {
                world.ends.get(id).filter(|end| !end.broken && !end.connecting).map(|end| end.remote.clone())
            }
            _ => None,
        };
        address.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for SimDriver {
    /// The process ends and its sockets are closed, those that it accepted and never adopted included.
    fn drop(&mut self) {
        if let Ok(mut world) = self.world.try_borrow_mut() {
            world.remove_driver(self.driver);
        }
    }
}

struct WakeFlag(Arc<AtomicBool>);

impl Wake for WakeFlag {
    fn wake(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// No loop has a slot of this number.
const NO_TOKEN: Token = Token { slot: u32::MAX, generation: u32::MAX };

/// How late the completion of a close may be.
const CLOSE_MAX: Duration = Duration::from_millis(50);
