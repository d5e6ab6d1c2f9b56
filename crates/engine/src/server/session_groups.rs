//! Endpoints whose sessions outlast their server: they hand the same sockets to a successor, which then receives alone, and get
//! the datagrams of their sessions from it.
//!
//! The order of a handover leaves no datagram to two processes. The successor starts its loops, and does not receive. The
//! predecessor stops receiving on all loops, and then says which sessions are being established. Then the successor begins.
//! Datagrams wait in the kernel meanwhile.
//!
//! Each endpoint of the predecessor has a pipe (`message_pipe.rs` of `sys`), whose ends for sending go to the successor, and
//! from there to its own one: so each generation sends to all earlier ones directly. One thread receives from the pipes of a
//! superseded server. A pipe ends when no process has the other end, since the successor has no such endpoint, or has failed:
//! then the endpoint receives from its socket again.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::mpsc::{RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_codec::EndpointPlace;
use tidegate_sys::Address;
use tidegate_sys::handover::{self, BLOCK_BYTES_MAX, LISTENERS_MAX};
use tidegate_sys::message_pipe::{self, MESSAGE_BYTES_MAX, MessageReceiver, MessageSender};

use crate::endpoint::{Predecessors, SteeredLoops};

/// The endpoints of a server whose sessions outlast it, by the address of their sockets.
#[derive(Debug, Default)]
pub(crate) struct SessionGroups {
    groups: Vec<SessionGroup>,
    /// Receives from a successor.
    thread: Mutex<Option<SuccessorThread>>,
    /// Pipes that serve nothing: closing them makes room for the descriptors of a handover.
    reserve: Mutex<Vec<(MessageSender, MessageReceiver)>>,
}

/// The endpoints at one address.
#[derive(Debug)]
pub(super) struct SessionGroup {
    pub(super) endpoints: Arc<SteeredLoops>,
    /// Clones of their sockets, for as long as they have them.
    pub(super) sockets: Vec<Weak<OwnedFd>>,
}

/// A handover in progress.
pub(crate) struct SessionHandover {
    /// The parcel of the successor.
    pub(super) parcel: SessionParcel,
    /// The pipes of each group's endpoints, in the order of the parcel.
    receivers: GroupReceivers,
    /// Waits for the pipes; `None` if there are none.
    thread: Option<SuccessorThread>,
}

/// The pipes of some groups.
type GroupReceivers = Vec<(Arc<SteeredLoops>, Vec<MessageReceiver>)>;

/// The sockets, pipes and secrets of sessions, as a successor gets them.
#[derive(Default)]
pub(crate) struct SessionParcel {
    pub(super) bytes: Vec<u8>,
    pub(super) descriptors: Vec<OwnedFd>,
}

impl SessionParcel {
    pub(super) fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        self.descriptors.iter().map(AsFd::as_fd).collect()
    }
}

impl SessionGroups {
    pub(super) fn new(groups: Vec<SessionGroup>) -> Arc<Self> {
        let all = Self { groups, thread: Mutex::default(), reserve: Mutex::default() };
        all.fill_reserve();
        Arc::new(all)
    }

    /// Opens the pipes of the reserve that are missing, as far as there are descriptors.
    fn fill_reserve(&self) {
        let mut reserve = self.reserve.lock().unwrap_or_else(PoisonError::into_inner);
        let missing = self.descriptors_of_handover().div_ceil(2).saturating_sub(reserve.len());
        reserve.extend((0..missing).map_while(|_| message_pipe::open().ok()));
    }

    /// The descriptors that a handover opens: clones of the sockets, their pipes, clones of earlier pipes, and the pipe that ends
    /// the thread.
    fn descriptors_of_handover(&self) -> usize {
        let of_group = |group: &SessionGroup| {
            let earlier = group.endpoints.generation().map_or(0, |(_, predecessors)| predecessors.living().count());
            3 * group.sockets.len() + earlier
        };
        if self.groups.is_empty() { 0 } else { 2 + self.groups.iter().map(of_group).sum::<usize>() }
    }

    /// Packs the sockets, pipes and secrets for a successor. Nothing changes before [`release`](Self::release), which opens
    /// nothing any more. If no descriptors are free, those of the reserve are.
    ///
    /// # Errors
    /// The process has no descriptors left, or may have no further thread.
    pub(super) fn pack(&self) -> io::Result<SessionHandover> {
        self.try_pack().or_else(|_| {
            drop(std::mem::take(&mut *self.reserve.lock().unwrap_or_else(PoisonError::into_inner)));
            self.try_pack()
        })
    }

    /// A handover has failed, and its descriptors are free again.
    pub(super) fn on_failed(&self) {
        self.fill_reserve();
    }

    fn try_pack(&self) -> io::Result<SessionHandover> {
        let mut handover = SessionHandover { parcel: SessionParcel::default(), receivers: Vec::new(), thread: None };
        for group in &self.groups {
            let sockets: Vec<Arc<OwnedFd>> = group.sockets.iter().filter_map(Weak::upgrade).collect();
            if sockets.len() == group.endpoints.places() {
                group.pack(&sockets, &mut handover)?;
            }
        }
        if !handover.receivers.is_empty() {
            handover.thread = Some(SuccessorThread::prepare()?);
        }
        Ok(handover)
    }

    /// The successor runs: the endpoints receive from it, and no longer from their sockets. Returns the sessions that are being
    /// established.
    pub(super) fn release(&self, handover: SessionHandover) -> Vec<u8> {
        drop(handover.parcel);
        let stopping: Vec<_> = handover.receivers.iter().map(|(group, _)| group.switch_receiving(false)).collect();
        let deadline = Instant::now() + STOP_TIMEOUT;
        for stopped in stopping {
            // A loop that hangs reads no further datagram. It may handle the batch that it has read.
            if stopped.recv_timeout(deadline.saturating_duration_since(Instant::now()))
                == Err(RecvTimeoutError::Timeout)
            {
                tracing::warn!(subsystem = "takeover", "a loop goes on receiving datagrams for now");
            }
        }
        let establishing = supersede(handover.receivers.iter().map(|(group, _)| &**group));
        if let Some(thread) = &handover.thread {
            thread.start(handover.receivers);
        }
        *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = handover.thread;
        // Nothing is handed over twice.
        drop(std::mem::take(&mut *self.reserve.lock().unwrap_or_else(PoisonError::into_inner)));
        establishing
    }

    /// The successor has failed after all.
    pub(super) fn resume(&self) {
        drop(self.thread.lock().unwrap_or_else(PoisonError::into_inner).take());
        self.groups.iter().for_each(|group| resume(&group.endpoints));
    }
}

impl SessionGroup {
    /// Appends the sockets, the pipes of earlier generations, new ones to the endpoints of this one, and the state.
    fn pack(&self, sockets: &[Arc<OwnedFd>], handover: &mut SessionHandover) -> io::Result<()> {
        let Some((own, predecessors)) = self.endpoints.generation() else { return Ok(()) };
        let mut pipes: Vec<(EndpointPlace, MessageSender)> = Vec::new();
        for (place, sender) in predecessors.living() {
            pipes.push((place, sender.try_clone()?));
        }
        let mut receivers = Vec::new();
        for place in 0..sockets.len() {
            let (sender, receiver) = message_pipe::open()?;
            pipes.push((EndpointPlace { generation: own.number(), place: place as u8 }, sender));
            receivers.push(receiver);
        }
        // If there is no room for all pipes, those of the oldest generations are left out.
        let parcel = &mut handover.parcel;
        let room = PIPES_MAX.min(LISTENERS_MAX.saturating_sub(parcel.descriptors.len() + sockets.len()));
        if room < sockets.len() {
            return Ok(());
        }
        pipes.drain(..pipes.len().saturating_sub(room));
        let state = own.state();
        for count in [sockets.len(), pipes.len(), state.len()] {
            parcel.bytes.extend((count as u32).to_le_bytes());
        }
        parcel.bytes.extend(state);
        parcel.bytes.extend(pipes.iter().flat_map(|(place, _)| [place.generation, place.place]));
        for socket in sockets {
            parcel.descriptors.push(socket.try_clone()?);
        }
        parcel.descriptors.extend(pipes.into_iter().map(|(_, sender)| OwnedFd::from(sender)));
        handover.receivers.push((self.endpoints.clone(), receivers));
        Ok(())
    }
}

/// Marks the generations of these groups as superseded. Returns, for each group, its sessions that are being established. Groups
/// of one generation share a table: the first one has it, and the others name the first.
fn supersede<'a>(groups: impl Iterator<Item = &'a SteeredLoops>) -> Vec<u8> {
    let mut before: Vec<Option<*const ()>> = Vec::new();
    let mut establishing = Vec::new();
    for group in groups {
        let own = group.generation().map(|(own, _)| own);
        let address = own.map(|own| Arc::as_ptr(own).cast::<()>());
        let first = before.iter().position(|other| address.is_some() && *other == address);
        before.push(address);
        if let Some(first) = first {
            establishing.extend((first as u32 | SAME_AS).to_le_bytes());
            continue;
        }
        let mut of_group = own.map_or_else(Vec::new, |own| own.supersede());
        if establishing.len() + of_group.len() > ESTABLISHING_BYTES_MAX {
            // Clients of these handshakes begin anew.
            of_group.clear();
        }
        establishing.extend((of_group.len() as u32).to_le_bytes());
        establishing.extend(of_group);
    }
    establishing
}

/// The parts of [`supersede`], one for each group.
fn parts_of(establishing: &[u8]) -> Vec<&[u8]> {
    let mut parts: Vec<&[u8]> = Vec::new();
    let mut rest = establishing;
    while let Some(length) = take_count(&mut rest) {
        let first = length.checked_sub(SAME_AS as usize);
        let part = match first {
            Some(first) => parts.get(first).copied(),
            None => take(&mut rest, length),
        };
        let Some(part) = part else { break };
        parts.push(part);
    }
    parts
}

/// The endpoints receive from their sockets again.
fn resume(endpoints: &SteeredLoops) {
    if let Some((own, _)) = endpoints.generation() {
        own.resume();
    }
    drop(endpoints.switch_receiving(true));
}

/// The sockets, pipes and state of a predecessor at one address.
pub(crate) struct TakenGroup {
    pub(super) address: SocketAddr,
    pub(super) sockets: Vec<OwnedFd>,
    pub(super) predecessors: Predecessors,
    pub(super) state: Vec<u8>,
    /// Its number in the parcel.
    number: usize,
}

impl TakenGroup {
    /// The groups of a parcel.
    ///
    /// # Errors
    /// `InvalidData` if it is malformed.
    pub(super) fn unpack(parcel: SessionParcel) -> io::Result<Vec<Self>> {
        let malformed =
            || io::Error::new(io::ErrorKind::InvalidData, "the sessions of the server before are malformed");
        let (mut bytes, mut descriptors) = (&parcel.bytes[..], parcel.descriptors.into_iter());
        let mut groups = Vec::new();
        while !bytes.is_empty() {
            let [sockets, pipes, state] = [take_count(&mut bytes), take_count(&mut bytes), take_count(&mut bytes)]
                .map(|count| count.unwrap_or(usize::MAX));
            let state = take(&mut bytes, state).ok_or_else(malformed)?.to_vec();
            let places = take(&mut bytes, pipes.saturating_mul(2)).ok_or_else(malformed)?;
            let sockets: Vec<OwnedFd> = descriptors.by_ref().take(sockets).collect();
            let address = sockets.first().and_then(|socket| handover::datagram_address(socket.as_fd())?.ip());
            let address = address.ok_or_else(malformed)?;
            if sockets.iter().any(|socket| handover::datagram_address(socket.as_fd()) != Some(Address::Ip(address))) {
                return Err(malformed());
            }
            let mut senders = Vec::new();
            for place in places.chunks_exact(2) {
                let sender = MessageSender::adopt(descriptors.next().ok_or_else(malformed)?)?;
                senders.push((EndpointPlace { generation: place[0], place: place[1] }, sender));
            }
            let predecessors = Predecessors::new(senders);
            groups.push(Self { address, sockets, predecessors, state, number: groups.len() });
        }
        if descriptors.next().is_some() { Err(malformed()) } else { Ok(groups) }
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }
}

/// Endpoints that wait until the predecessor stops receiving, with the number of their group in its parcel.
pub(super) struct WaitingEndpoints(pub(super) Vec<(usize, Arc<SteeredLoops>)>);

impl WaitingEndpoints {
    /// Begins to receive: the predecessor has stopped, and was establishing these sessions.
    pub(super) fn begin(self, establishing: &[u8]) {
        let parts = parts_of(establishing);
        for (number, endpoints) in self.0 {
            if let (Some((own, _)), Some(part)) = (endpoints.generation(), parts.get(number)) {
                own.inherit(part);
            }
            drop(endpoints.switch_receiving(true));
        }
    }
}

fn take_count(bytes: &mut &[u8]) -> Option<usize> {
    let (count, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(u32::from_le_bytes(*count) as usize)
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(count)?;
    *bytes = rest;
    Some(taken)
}

/// The thread that receives from a successor. Dropping it ends it.
#[derive(Debug)]
struct SuccessorThread {
    /// Sends the pipes to the thread. Dropping it ends a thread that has none.
    pipes: Option<Sender<GroupReceivers>>,
    /// Dropping it ends the thread.
    ending: Option<MessageSender>,
    thread: Option<JoinHandle<()>>,
}

impl SuccessorThread {
    /// A thread that waits for its pipes.
    ///
    /// # Errors
    /// The process has no descriptors left, or may have no further thread.
    fn prepare() -> io::Result<Self> {
        let (ending, end) = message_pipe::open()?;
        let (pipes, receiver) = channel();
        let thread = std::thread::Builder::new().name("tidegate-sessions".into()).spawn(move || {
            let Ok(groups) = receiver.recv() else { return };
            let is_ending = || matches!(receiver.try_recv(), Err(TryRecvError::Disconnected));
            receive_all(sources_of(groups), &end, is_ending, |all| MessageReceiver::wait_any(all, None));
        })?;
        Ok(Self { pipes: Some(pipes), ending: Some(ending), thread: Some(thread) })
    }

    fn start(&self, groups: GroupReceivers) {
        if let Some(pipes) = &self.pipes {
            // The thread waits for them.
            let _ = pipes.send(groups);
        }
    }
}

impl Drop for SuccessorThread {
    fn drop(&mut self) {
        (self.pipes, self.ending) = (None, None);
        if let Some(thread) = self.thread.take() {
            // A panic is a bug of ours, and the thread has printed it.
            let _ = thread.join();
        }
    }
}

/// An endpoint and its pipe.
struct PipeSource {
    endpoints: Arc<SteeredLoops>,
    place: usize,
    receiver: MessageReceiver,
}

fn sources_of(groups: GroupReceivers) -> Vec<PipeSource> {
    let source =
        |endpoints: &Arc<SteeredLoops>, (place, receiver)| PipeSource { endpoints: endpoints.clone(), place, receiver };
    let of_group = |(endpoints, receivers): (Arc<SteeredLoops>, Vec<MessageReceiver>)| {
        receivers.into_iter().enumerate().map(move |each| source(&endpoints, each)).collect::<Vec<_>>()
    };
    groups.into_iter().flat_map(of_group).collect()
}

/// Receives for all endpoints until `end` has come, or `is_ending` after a failure.
///
/// After a system error it tries again. If it closed the pipes, the successor would send stateless resets for live sessions. If
/// the endpoints received from their sockets again, they would take datagrams for the successor.
fn receive_all(
    mut sources: Vec<PipeSource>,
    end: &MessageReceiver,
    is_ending: impl Fn() -> bool,
    wait: impl Fn(&[&MessageReceiver]) -> io::Result<Vec<usize>>,
) {
    let mut space = vec![0; MESSAGE_BYTES_MAX];
    let mut has_failed = false;
    while !(sources.is_empty() || has_failed && is_ending()) {
        let all: Vec<&MessageReceiver> = sources.iter().map(|source| &source.receiver).chain([end]).collect();
        let due = wait(&all).unwrap_or_else(|error| {
            on_failure(&error, &mut has_failed);
            Vec::new()
        });
        if due.contains(&sources.len()) {
            return;
        }
        // In reverse order, so that a removal does not move the sources still due.
        for number in due.into_iter().rev() {
            let may_continue = receive(&sources[number], &mut space).unwrap_or_else(|error| {
                on_failure(&error, &mut has_failed);
                true
            });
            if !may_continue {
                let ended = sources.remove(number);
                let is_last = sources.iter().all(|other| !Arc::ptr_eq(&other.endpoints, &ended.endpoints));
                if is_last {
                    resume(&ended.endpoints);
                }
            }
        }
    }
}

/// Receiving from the pipes has failed: waits before the next attempt. The first failure is logged.
fn on_failure(error: &io::Error, has_failed: &mut bool) {
    if !*has_failed {
        tracing::error!(subsystem = "takeover", %error, "receiving from the successor fails; trying again");
    }
    *has_failed = true;
    std::thread::sleep(FAILURE_PAUSE);
}

/// Receives some messages. Returns whether more may come.
fn receive(source: &PipeSource, space: &mut [u8]) -> io::Result<bool> {
    for _ in 0..MESSAGES_PER_TURN {
        match source.receiver.receive(space)? {
            None => return Ok(true),
            Some(0) => return Ok(false),
            Some(length) => {
                let message = Bytes::copy_from_slice(space.get(..length).unwrap_or_default());
                if !source.endpoints.deliver(source.place, &message) {
                    return Ok(false);
                }
            }
        }
    }
    Ok(true)
}

/// How long a successor waits at most until all loops have stopped receiving.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause after a failure of the system.
const FAILURE_PAUSE: Duration = Duration::from_millis(10);

/// Marks the number of an earlier group in the place of a length.
const SAME_AS: u32 = 1 << 31;

/// Room for the tables of all groups, with the lengths beside them.
const ESTABLISHING_BYTES_MAX: usize = BLOCK_BYTES_MAX - 4 * LISTENERS_MAX;

/// Pipes of one group: those of some generations.
const PIPES_MAX: usize = 512;

/// Messages of one endpoint before another one has a turn.
const MESSAGES_PER_TURN: usize = 16;

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::net::UdpSocket;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use tidegate_codec::EndpointGeneration;
    use tidegate_sys::message_pipe::MessageOutcome;

    use super::*;
    use crate::endpoint::Generations;

    /// A generation that counts its calls.
    #[derive(Default)]
    struct CountedGeneration {
        superseded: AtomicUsize,
        resumed: AtomicUsize,
        table: Vec<u8>,
    }

    impl EndpointGeneration for CountedGeneration {
        fn number(&self) -> u8 {
            0
        }

        fn endpoint_of(&self, _: &[u8]) -> Option<EndpointPlace> {
            None
        }

        fn state(&self) -> Vec<u8> {
            Vec::new()
        }

        fn succeed(&self, _: &[u8], _: &[EndpointPlace]) -> bool {
            true
        }

        fn supersede(&self) -> Vec<u8> {
            self.superseded.fetch_add(1, Relaxed);
            self.table.clone()
        }

        fn resume(&self) {
            self.resumed.fetch_add(1, Relaxed);
        }

        fn inherit(&self, _: &[u8]) {}

        fn on_gone(&self, _: EndpointPlace) {}
    }

    fn with_table(table: &[u8]) -> Arc<CountedGeneration> {
        Arc::new(CountedGeneration { table: table.to_vec(), ..CountedGeneration::default() })
    }

    fn endpoints(own: &Arc<CountedGeneration>) -> Arc<SteeredLoops> {
        SteeredLoops::new(None, 1, Some(Generations::new(own.clone(), None)))
    }

    #[test]
    fn addresses_of_one_generation_have_one_table_of_handshakes() {
        let (first, second) = (with_table(b"ebb"), with_table(b"flow"));
        let groups = [endpoints(&first), endpoints(&second), endpoints(&first), endpoints(&first)];
        let establishing = supersede(groups.iter().map(|group| &**group));
        assert_eq!(establishing.len(), 4 * 4 + 3 + 4);
        assert_eq!(parts_of(&establishing), [&b"ebb"[..], b"flow", b"ebb", b"ebb"]);
        assert_eq!(first.superseded.load(Relaxed), 1);
        assert_eq!(parts_of(&[7, 0, 0, 0x80]), [&[0_u8; 0]; 0], "it names no group before it");
        let large = [(); 12].map(|()| endpoints(&with_table(&vec![7; 400_000])));
        let establishing = supersede(large.iter().map(|group| &**group));
        assert!(establishing.len() <= BLOCK_BYTES_MAX && parts_of(&establishing).len() == 12);
    }

    #[test]
    fn a_failure_of_the_system_ends_no_pipe() {
        let own = with_table(b"");
        let (sender, receiver) = message_pipe::open().expect("a pair");
        let (ending, end) = message_pipe::open().expect("a pair");
        let failures = Cell::new(0);
        let sender = RefCell::new(Some(sender));
        let wait = |all: &[&MessageReceiver]| {
            failures.set(failures.get() + 1);
            match failures.get() {
                1..4 => {
                    let living = sender.borrow().as_ref().map(|sender| sender.send(&[b"ebb"]));
                    assert_eq!(living, Some(MessageOutcome::Sent), "the pipe is open");
                    Err(io::Error::from_raw_os_error(12))
                }
                _ => {
                    // Now the successor ends, and this server receives again.
                    *sender.borrow_mut() = None;
                    MessageReceiver::wait_any(all, None)
                }
            }
        };
        let sources = vec![PipeSource { endpoints: endpoints(&own), place: 0, receiver }];
        receive_all(sources, &end, || false, wait);
        assert_eq!((failures.get() >= 4, own.resumed.load(Relaxed)), (true, 1));
        drop(ending);
    }

    #[test]
    fn a_handover_that_does_not_happen_ends_its_thread() {
        let thread = SuccessorThread::prepare().expect("a thread");
        drop(thread);
        let (sender, receiver) = message_pipe::open().expect("a pair");
        let thread = SuccessorThread::prepare().expect("a thread");
        let own = with_table(b"");
        thread.start(vec![(endpoints(&own), vec![receiver])]);
        drop(thread);
        assert_eq!(own.resumed.load(Relaxed), 0, "the successor is there");
        assert!(sender.is_gone());
    }

    fn parcel(bytes: &[u8], descriptors: Vec<OwnedFd>) -> SessionParcel {
        SessionParcel { bytes: bytes.to_vec(), descriptors }
    }

    #[test]
    fn a_malformed_parcel_is_refused() {
        let socket = || OwnedFd::from(UdpSocket::bind("127.0.0.1:0").expect("a socket"));
        let pipe = || OwnedFd::from(message_pipe::open().expect("a pair").0);
        let one = [1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 7, 8, 3, 0];
        let groups = TakenGroup::unpack(parcel(&one, vec![socket(), pipe()])).expect("it is sound");
        assert_eq!((groups.len(), &groups[0].state[..]), (1, &[7, 8][..]));
        assert_eq!(groups[0].predecessors.places(), [EndpointPlace { generation: 3, place: 0 }]);
        let of_pipes = || vec![pipe(), pipe()];
        for descriptors in
            [vec![], vec![socket()], of_pipes(), vec![socket(), socket()], vec![socket(), pipe(), pipe()]]
        {
            assert!(TakenGroup::unpack(parcel(&one, descriptors)).is_err());
        }
        for cut in 1..one.len() {
            assert!(TakenGroup::unpack(parcel(&one[..cut], vec![socket(), pipe()])).is_err(), "{cut}");
        }
        let two = [2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(TakenGroup::unpack(parcel(&two, vec![socket(), socket()])).is_err(), "they have two addresses");
    }
}
