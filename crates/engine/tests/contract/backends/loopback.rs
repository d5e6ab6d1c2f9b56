//! The test backend of a real kernel: loopback, in real time, through one of the drivers.

use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tidegate_buffer::Pool;
use tidegate_engine::EventLoop;
use tidegate_sys::readiness::Readiness;
use tidegate_sys::uring::Uring;
use tidegate_sys::{Address, Driver, ListenOptions, Side as End, Socket, SocketOptions};

use super::injected::inject;
use crate::stage::{Family, LATE, Side, Site, TestBackend, Wrap};

pub(crate) struct Loopback {
    late_bytes_max: usize,
    make: fn(&Pool) -> Box<dyn Driver>,
    loops: RefCell<Vec<Rc<RefCell<EventLoop>>>>,
    directory: PathBuf,
    paths: Cell<u32>,
    seed: u64,
    /// A listener that accepts nothing, and the connections that fill its backlog.
    unresponsive: RefCell<Vec<FullListener>>,
    /// Sockets that are bound and do not listen.
    silent: RefCell<Vec<socket2::Socket>>,
    /// Sockets that were open before.
    before: usize,
    /// Scenarios run one after the other, so that sockets can be counted.
    _turn: MutexGuard<'static, ()>,
}

struct FullListener {
    _listener: TcpListener,
    _waiting: Vec<TcpStream>,
}

impl Loopback {
    pub(crate) fn epoll() -> Self {
        Self::new(0, |pool| Box::new(Readiness::new(pool).expect("there are descriptors")))
    }

    pub(crate) fn uring() -> Self {
        // The kernel may have filled all buffers of the ring, and with ring faults it fills them again in each turn in
        // which it refuses to end the receive, or delays its completions.
        let turns = if has_ring_faults() { RING_FAULT_TURNS } else { 1 };
        Self::new(turns * RING_BYTES, |pool| Box::new(Uring::new(pool).expect("the kernel has io_uring")))
    }

    fn new(late_bytes_max: usize, make: fn(&Pool) -> Box<dyn Driver>) -> Self {
        static TURN: Mutex<()> = Mutex::new(());
        // A poisoned lock comes from a scenario that has failed and has reported it.
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = std::env::temp_dir().join(format!("tidegate-contract-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory can be made");
        Self {
            late_bytes_max,
            make,
            loops: RefCell::default(),
            directory,
            paths: Cell::new(0),
            seed: tidegate_testkit::seeds(1).start,
            unresponsive: RefCell::default(),
            silent: RefCell::default(),
            before: open_sockets(),
            _turn: turn,
        }
    }
}

impl TestBackend for Loopback {
    fn site(&self, _: Side, wrap: Wrap) -> Site {
        let pool = Pool::new();
        let driver = inject((self.make)(&pool));
        let event_loop = Rc::new(RefCell::new(EventLoop::new(wrap(driver), pool.clone())));
        self.loops.borrow_mut().push(event_loop.clone());
        let at_rest = pool.ledger().used();
        Site::Real(event_loop, pool, at_rest)
    }

    fn driver(&self, _: Side, pool: &Pool) -> Box<dyn Driver> {
        inject((self.make)(pool))
    }

    fn listener(&self, family: Family) -> (Socket, Address) {
        let address = match family {
            Family::V4 => Address::Ip((Ipv4Addr::LOCALHOST, 0).into()),
            Family::V6 => Address::Ip((Ipv6Addr::LOCALHOST, 0).into()),
            Family::Unix => {
                self.paths.set(self.paths.get() + 1);
                Address::Unix(self.directory.join(format!("{}.sock", self.paths.get())))
            }
        };
        // Accepted sockets have these sizes as well. With automatic sizes, the kernel's buffers grow with the round trip, which is
        // long on a busy machine: up to 4 MiB on one side and 32 MiB on the other.
        let [send_buffer_bytes, receive_buffer_bytes] = [Some(KERNEL_BUFFER_BYTES); 2];
        let stream = SocketOptions { send_buffer_bytes, receive_buffer_bytes, ..SocketOptions::default() };
        let options = ListenOptions { stream, ..ListenOptions::default() };
        let socket = Socket::listen(&address, &options).expect("loopback can be listened at");
        let address = socket.address(End::Local).expect("a listener has an address");
        (socket, address)
    }

    fn nowhere(&self) -> Address {
        // The socket keeps the port: the kernel could give a free one to a listener, or to the socket that connects to it.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a port is free");
        let address = socket.local_addr().ok().and_then(|address| address.as_socket()).expect("it has an address");
        self.silent.borrow_mut().push(socket);
        Address::Ip(address)
    }

    fn free_port(&self) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback can be listened at");
        listener.local_addr().expect("a listener has an address").port()
    }

    /// When the backlog of a listener is full, the kernel drops further connections.
    fn unresponsive(&self) -> Address {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a port is free");
        socket.listen(0).expect("it can listen");
        let listener = TcpListener::from(socket);
        let address = listener.local_addr().expect("a listener has an address");
        let brief = Duration::from_millis(50);
        let waiting = std::iter::from_fn(|| TcpStream::connect_timeout(&address, brief).ok()).take(16).collect();
        self.unresponsive.borrow_mut().push(FullListener { _listener: listener, _waiting: waiting });
        Address::Ip(address)
    }

    fn unit(&self) -> Duration {
        // Ring faults cost time, in which no deadline may fire.
        Duration::from_millis(if has_ring_faults() { 150 } else { 60 })
    }

    fn late_bytes_max(&self) -> usize {
        self.late_bytes_max
    }

    /// None: a machine that runs other programs may be as late as it likes. The simulator has the bound, in virtual time.
    fn delay_max(&self) -> Duration {
        LATE
    }

    /// The kernel doubles the sizes of its buffers, of which a connection has four.
    fn bulk(&self) -> usize {
        2 << 20
    }

    fn run_until(&self, patience: Duration, is_so: &mut dyn FnMut() -> bool) -> bool {
        let begun = Instant::now();
        let mut round = 0_u32;
        loop {
            for event_loop in self.loops.borrow().clone() {
                event_loop.borrow_mut().turn(Some(Duration::ZERO)).expect("waiting does not fail");
            }
            if is_so() {
                return true;
            }
            if begun.elapsed() >= patience {
                return false;
            }
            round += 1;
            if round.is_multiple_of(ROUNDS_AWAKE) {
                std::thread::sleep(NAP);
            }
        }
    }

    fn patience(&self) -> Duration {
        Duration::from_secs(if tidegate_buffer::injected::any() { 3 } else { 120 })
    }

    fn seed(&self) -> u64 {
        self.seed
    }

    fn is_real(&self) -> bool {
        true
    }

    fn many(&self) -> usize {
        40
    }

    fn much(&self) -> usize {
        16 << 20
    }

    fn families(&self) -> &'static [Family] {
        &[Family::V4, Family::V6, Family::Unix]
    }

    fn turns_within(&self, site: &Site, time: Duration) -> u64 {
        let (begun, before) = (Instant::now(), site.counts().turns);
        while let Some(left) = time.checked_sub(begun.elapsed()) {
            site.with(|event_loop| event_loop.turn(Some(left))).expect("waiting does not fail");
        }
        site.counts().turns - before
    }

    fn wakes(&self, site: &Site, act: Box<dyn FnOnce() + Send>) -> bool {
        // Pending work is done first.
        self.run_until(NAP, &mut || false);
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(NAP * 40);
                act();
            });
            site.with(|event_loop| event_loop.turn(Some(self.patience()))).expect("waiting does not fail");
        });
        begun.elapsed() < self.patience()
    }

    fn sockets(&self) -> usize {
        self.unresponsive.take();
        self.silent.take();
        open_sockets().saturating_sub(self.before)
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("its choices were those of TIDEGATE_SEED={:#x}", self.seed);
        }
        for path in 1..=self.paths.get() {
            let _ = std::fs::remove_file(self.directory.join(format!("{path}.sock")));
        }
        // Only the last process that uses the directory succeeds.
        let _ = std::fs::remove_dir(&self.directory);
    }
}

/// Sockets that this process has open. Other tests have files, and no sockets.
fn open_sockets() -> usize {
    let names = std::fs::read_dir("/proc/self/fd").expect("the system has /proc");
    names.flatten().filter_map(|name| std::fs::read_link(name.path()).ok()).filter(|to| is_socket(to)).count()
}

fn is_socket(link: &std::path::Path) -> bool {
    link.to_string_lossy().starts_with("socket:")
}

/// The size of a kernel buffer, as an option of a socket.
pub(crate) const KERNEL_BUFFER_BYTES: usize = 64 * 1024;

/// Turns of all loops before the processor is given to the kernel's own work.
const ROUNDS_AWAKE: u32 = 8;

const NAP: Duration = Duration::from_micros(50);

/// Whether the ring is disturbed (`crates/sys/src/uring/disturbed.rs`).
fn has_ring_faults() -> bool {
    std::env::var_os("TIDEGATE_RING_FAULTS").is_some()
}

/// The buffers of a ring: 48 pages.
const RING_BYTES: usize = 48 * 4096;

/// A request is refused at most once in succession, and a wait that submits nothing is followed by one that does.
const RING_FAULT_TURNS: usize = 3;
