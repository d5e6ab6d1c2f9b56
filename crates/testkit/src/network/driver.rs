//! The driver of a loop in a simulated network.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tidegate_buffer::{Pool, Scratch};
use tidegate_sys::{Address, Class, Completion, Driver, Operation, Side, Socket, Token, Wake, Waker};

use super::agenda::Event;
use super::faults::Fault;
use super::stream::Owner;
use super::world::{Place, World};

/// The driver. It keeps nothing but memory: what it has to say is looked up in the world when it is asked.
pub(super) struct Simulated {
    world: Rc<RefCell<World>>,
    desk: usize,
    woken: Arc<AtomicBool>,
    scratch: Scratch,
}

impl Simulated {
    pub(super) fn new(world: Rc<RefCell<World>>, desk: usize, pool: &Pool) -> Self {
        let woken = world.borrow().driver_states[desk].woken.clone();
        Self { world, desk, woken, scratch: Scratch::new(pool) }
    }

    fn adopt(world: &mut World, owner: Owner, socket: &Socket, listens: bool) -> Option<Completion> {
        let place = match *socket {
            Socket::Simulated(id) if listens => {
                world.listeners.get_mut(id).map(|listener| listener.owner = Some(owner)).map(|()| Place::Listener(id))
            }
            Socket::Simulated(id) => world.ends.get_mut(id).map(|end| end.owner = Some(owner)).map(|()| Place::End(id)),
            Socket::Descriptor(_) => None,
        };
        let Some(place) = place else { return Some(Completion::Failed(io::ErrorKind::Unsupported.into())) };
        world.driver_states[owner.desk].sockets.put(owner.token, place);
        // Much may have happened to it before.
        world.line_up(place);
        None
    }

    fn close(world: &mut World, owner: Owner, reset: bool) -> Option<Completion> {
        let mut in_flight = false;
        match world.driver_states[owner.desk].sockets.remove(owner.token) {
            Some(Place::End(id)) => {
                // The bytes are the loop's until that send is over, and the last word comes after it.
                in_flight = world.ends.get(id).is_some_and(|end| end.taken.is_some());
                world.close(id, reset);
            }
            Some(Place::Listener(id)) => world.close_listener(id),
            Some(Place::Closed(_)) | None => {}
        }
        if in_flight || world.strikes(Fault::LateClose) {
            let later = world.some_time(CLOSE_MAX);
            world.put(later, Event::Closed { desk: owner.desk, token: owner.token });
            return None;
        }
        Some(Completion::Closed)
    }
}

impl Driver for Simulated {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn waker(&self) -> Waker {
        Waker::new(Arc::new(Flag(self.woken.clone())))
    }

    fn submit(&mut self, token: Token, operation: Operation<'_>) -> Option<Completion> {
        let world = &mut *self.world.borrow_mut();
        let owner = Owner { desk: self.desk, token };
        let desk = &mut world.driver_states[self.desk];
        desk.activity += 1;
        let place = desk.sockets.get(token);
        let completion = match (operation, place) {
            (Operation::Listen(socket), _) => Self::adopt(world, owner, &socket, true),
            (Operation::Adopt(socket), _) => Self::adopt(world, owner, &socket, false),
            (Operation::Connect { address, local, .. }, _) => world.connect(owner, address, local),
            (Operation::Accept(on), Some(place @ Place::Listener(_)))
            | (Operation::Receive(on), Some(place @ Place::End(_))) => {
                world.go_on(place, on);
                None
            }
            (Operation::Send { queue, bytes_max }, Some(Place::End(id))) => {
                world.send(id, queue, bytes_max).map(Completion::Sent)
            }
            (Operation::ShutdownWrite, Some(Place::End(id))) => {
                world.shut(id);
                None
            }
            (Operation::Close { reset }, _) => Self::close(world, owner, reset),
            _ => None,
        };
        if let Some(completion) = &completion {
            world.told(owner, completion);
        }
        completion
    }

    /// Nobody waits: what the loop would have waited for is noted, and the network moves the clock.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let world = &mut *self.world.borrow_mut();
        let now = world.now;
        let several = world.driver_states[self.desk].ready.len() > 1;
        if several && world.strikes(Fault::Reordered) {
            let World { driver_states: desks, random, .. } = world;
            for order in desks[self.desk].ready.orders() {
                for last in (1..order.len()).rev() {
                    order.swap(last, random.below(last + 1));
                }
            }
        }
        let desk = &mut world.driver_states[self.desk];
        desk.ready.begin_turn();
        desk.sleep = timeout.and_then(|timeout| now.checked_add(timeout));
        desk.slept = desk.ready.is_empty() && timeout != Some(Duration::ZERO) && !desk.woken.load(Ordering::Acquire);
        Ok(())
    }

    fn next(&mut self, class: Class) -> Option<(Token, Completion)> {
        let world = &mut *self.world.borrow_mut();
        if self.woken.swap(false, Ordering::AcqRel) {
            world.told(Owner { desk: self.desk, token: NOBODY }, &Completion::Woken);
            return Some((NOBODY, Completion::Woken));
        }
        while let Some(place) = world.driver_states[self.desk].ready.next(class) {
            if let Some(said) = world.poll_socket(self.desk, place, &mut self.scratch) {
                return Some(said);
            }
        }
        None
    }

    fn pause_receives(&mut self, hold: bool) {
        let world = &mut *self.world.borrow_mut();
        let held = std::mem::replace(&mut world.driver_states[self.desk].receives_paused, hold);
        if held && !hold {
            let places = world.driver_states[self.desk].sockets.places();
            places.into_iter().for_each(|place| world.line_up(place));
        }
    }

    fn unacknowledged(&self, token: Token) -> Option<u64> {
        let world = self.world.borrow();
        let Some(Place::End(id)) = world.driver_states[self.desk].sockets.get(token) else { return None };
        world.ends.get(id).map(|end| (end.unsent.len() + end.unacknowledged) as u64)
    }

    fn has_ready(&self) -> bool {
        !self.world.borrow().driver_states[self.desk].ready.is_empty()
    }

    fn has_input(&mut self, token: Token) -> bool {
        let world = self.world.borrow();
        let Some(Place::End(id)) = world.driver_states[self.desk].sockets.get(token) else { return false };
        world.ends.get(id).is_some_and(|end| end.receiving && !end.broken && !end.inbound.is_empty())
    }

    fn now(&self) -> Instant {
        let world = self.world.borrow();
        world.start + world.now
    }

    fn system_time(&self) -> SystemTime {
        let world = self.world.borrow();
        SystemTime::UNIX_EPOCH + world.wall_ahead + world.now
    }

    fn address(&self, token: Token, side: Side) -> io::Result<Address> {
        let world = self.world.borrow();
        let address = match (world.driver_states[self.desk].sockets.get(token), side) {
            (Some(Place::Listener(id)), Side::Local) => {
                world.listeners.get(id).map(|listener| listener.address.clone())
            }
            (Some(Place::End(id)), Side::Local) => world.ends.get(id).map(|end| end.local.clone()),
            (Some(Place::End(id)), Side::Peer) => {
                world.ends.get(id).filter(|end| !end.broken && !end.connecting).map(|end| end.remote.clone())
            }
            _ => None,
        };
        address.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl Drop for Simulated {
    /// A process is gone, and with it its sockets; also those that it has accepted and done nothing with.
    fn drop(&mut self) {
        if let Ok(mut world) = self.world.try_borrow_mut() {
            world.leave_desk(self.desk);
        }
    }
}

struct Flag(Arc<AtomicBool>);

impl Wake for Flag {
    fn wake(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// No loop has a slot of this number.
const NOBODY: Token = Token { slot: u32::MAX, generation: u32::MAX };

/// How late the last word on a socket may be.
const CLOSE_MAX: Duration = Duration::from_millis(50);
