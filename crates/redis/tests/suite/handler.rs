//! The handler of a server: the order of replies, transactions, channels, versions.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use tidegate_engine::task;
use tidegate_redis::{
    Answer, CallContext, ChannelPost, Channels, Command, Handler, HandlerConfig, OutgoingReply, ServerCodec, Service,
    error_for_count,
};
use tidegate_testkit::Embedded;

/// Counts, and waits as long as it is asked to.
#[derive(Default)]
struct Counter {
    count: i64,
    executed: Rc<RefCell<Vec<String>>>,
}

impl Service for Counter {
    fn call(&mut self, command: &Command, _: &CallContext) -> Answer {
        self.executed.borrow_mut().push(String::from_utf8_lossy(command.name()).into_owned());
        match command.name() {
            b"INCR" => {
                self.count += 1;
                OutgoingReply::Integer(self.count).into()
            }
            b"SLEEP" => {
                let millis = String::from_utf8_lossy(command.argument(1).unwrap_or_default()).parse().unwrap_or(0);
                Answer::later(async move {
                    task::sleep(std::time::Duration::from_millis(millis)).await;
                    OutgoingReply::Simple(format!("slept {millis}").into())
                })
            }
            b"BLOCK" => {
                let millis = String::from_utf8_lossy(command.argument(1).unwrap_or_default()).parse().unwrap_or(0);
                let dropped = LogDrop(self.executed.clone());
                Answer::blocking(async move {
                    task::sleep(std::time::Duration::from_millis(millis)).await;
                    std::mem::forget(dropped);
                    OutgoingReply::Simple(format!("blocked {millis}").into())
                })
            }
            b"PANIC" => Answer::later(async { panic!("on purpose") }),
            b"TORN" => OutgoingReply::Simple("a\r\nb".into()).into(),
            _ => Answer::Unknown,
        }
    }

    fn check(&self, command: &Command) -> Result<bool, OutgoingReply> {
        match command.name() {
            b"INCR" if command.count() > 1 => Err(error_for_count(command)),
            name => Ok(matches!(name, b"INCR" | b"SLEEP")),
        }
    }
}

/// Logs a future that is dropped before its end.
struct LogDrop(Rc<RefCell<Vec<String>>>);

impl Drop for LogDrop {
    fn drop(&mut self) {
        self.0.borrow_mut().push("dropped".to_owned());
    }
}

/// A connection, and the log of its commands.
fn logging_pipe() -> (Embedded<ChannelPost>, Rc<RefCell<Vec<String>>>) {
    let executed = Rc::default();
    let service = Counter { executed: Rc::clone(&executed), ..Counter::default() };
    (Embedded::new(ServerCodec::default(), Handler::new(service)), executed)
}

fn pipe() -> Embedded<ChannelPost> {
    Embedded::new(ServerCodec::default(), Handler::new(Counter::default()))
}

fn written(pipe: &mut Embedded<ChannelPost>) -> String {
    String::from_utf8_lossy(&pipe.take_written()).replace("\r\n", " ")
}

/// The replies to commands in inline form.
fn talk(pipe: &mut Embedded<ChannelPost>, commands: &str) -> String {
    pipe.receive(commands.replace('\n', "\r\n").as_bytes());
    written(pipe)
}

fn advance(pipe: &mut Embedded<ChannelPost>, millis: u64) {
    pipe.advance(std::time::Duration::from_millis(millis));
}

#[test]
fn replies_leave_in_the_order_of_their_commands() {
    let mut pipe = pipe();
    assert_eq!(talk(&mut pipe, "SLEEP 20\nINCR\nSLEEP 5\nPING\nNONE\nINCR\n"), "");
    advance(&mut pipe, 10);
    assert_eq!(written(&mut pipe), "", "the second sleep is over, and the first is not");
    advance(&mut pipe, 15);
    let unknown = "-ERR unknown command 'NONE', with args beginning with:  ";
    assert_eq!(written(&mut pipe), format!("+slept 20 :1 +slept 5 +PONG {unknown}:2 "));
    assert_eq!(talk(&mut pipe, "INCR\n"), ":3 ");
}

#[test]
fn commands_that_change_the_connection_wait_for_the_replies_before_them() {
    let mut pipe = pipe();
    assert_eq!(talk(&mut pipe, "SLEEP 20\nHELLO 3\nINCR\nSUBSCRIBE a\nQUIT\nINCR\n"), "");
    advance(&mut pipe, 50);
    let seen = written(&mut pipe);
    assert!(seen.starts_with("+slept 20 %7 $6 server "), "{seen}");
    assert!(seen.ends_with(":1 >3 $9 subscribe $1 a :1 +OK "), "{seen}");
    assert!(pipe.is_closed() || pipe.is_write_closed());
}

#[test]
fn replies_that_are_due_are_sent_after_the_client_has_ended_its_side() {
    let mut pipe = pipe();
    assert_eq!(talk(&mut pipe, "SLEEP 20\nINCR\n"), "");
    pipe.receive_fin();
    assert!(!pipe.is_closed());
    advance(&mut pipe, 30);
    assert_eq!(written(&mut pipe), "+slept 20 :1 ");
    assert!(pipe.is_closed() || pipe.is_write_closed());
}

#[test]
fn commands_behind_a_blocking_one_are_executed_after_it() {
    let (mut pipe, executed) = logging_pipe();
    assert_eq!(talk(&mut pipe, "INCR\nSLEEP 10\nBLOCK 30\nINCR\nMULTI\nINCR\nEXEC\nBLOCK 30\nPING\n"), ":1 ");
    assert_eq!(*executed.borrow(), ["INCR", "SLEEP", "BLOCK"]);
    advance(&mut pipe, 15);
    assert_eq!(written(&mut pipe), "+slept 10 ");
    assert_eq!(executed.borrow().len(), 3, "the reply before it lets nothing pass");
    advance(&mut pipe, 20);
    assert_eq!(written(&mut pipe), "+blocked 30 :2 +OK +QUEUED *1 :3 ");
    advance(&mut pipe, 35);
    assert_eq!(written(&mut pipe), "+blocked 30 +PONG ");
    assert_eq!(talk(&mut pipe, "INCR\n"), ":4 ");
    pipe.receive_fin();
    assert!(pipe.is_write_closed());
}

#[test]
fn a_blocked_client_that_leaves_or_is_drained_gets_nothing_more() {
    for drain in [false, true] {
        let (mut pipe, executed) = logging_pipe();
        assert_eq!(talk(&mut pipe, "SLEEP 10\nBLOCK 30\nINCR\n"), "");
        if drain {
            pipe.drain(std::time::Duration::from_secs(10));
        } else {
            pipe.receive_fin();
        }
        assert_eq!(*executed.borrow(), ["SLEEP", "BLOCK", "dropped"]);
        assert!(!pipe.is_write_closed(), "a reply before it is due");
        advance(&mut pipe, 15);
        assert_eq!(written(&mut pipe), "+slept 10 ");
        assert!(pipe.is_write_closed());
        assert_eq!(executed.borrow().len(), 3);
    }
}

#[test]
fn a_blocked_client_that_resets_is_forgotten() {
    let (mut pipe, executed) = logging_pipe();
    assert_eq!(talk(&mut pipe, "BLOCK 30\nINCR\n"), "");
    pipe.reset();
    assert!(pipe.is_closed());
    assert_eq!(*executed.borrow(), ["BLOCK", "dropped"]);
}

#[test]
fn a_client_with_too_many_replies_under_way_waits() {
    let executed = Rc::new(RefCell::new(Vec::new()));
    let service = Counter { executed: executed.clone(), ..Counter::default() };
    let config = HandlerConfig { queued_replies_max: 4, ..HandlerConfig::default() };
    let mut pipe = Embedded::new(ServerCodec::default(), Handler::with(service, Arc::new(config), Channels::new()));
    talk(&mut pipe, &format!("SLEEP 20\n{}", "INCR\n".repeat(100)));
    assert_eq!(executed.borrow().len(), 4);
    advance(&mut pipe, 30);
    assert_eq!(written(&mut pipe).split(' ').filter(|part| part.starts_with(':')).count(), 100);
    assert_eq!(executed.borrow().len(), 101);
}

#[test]
fn a_task_that_panics_is_an_error_in_its_place() {
    let mut pipe = pipe();
    assert_eq!(talk(&mut pipe, "PANIC\nINCR\n"), "-ERR internal error :1 ");
}

#[test]
fn transactions_are_queued_executed_discarded_and_refused() {
    let mut pipe = pipe();
    assert_eq!(talk(&mut pipe, "MULTI\nINCR\nPING\nECHO a\nEXEC\n"), "+OK +QUEUED +QUEUED +QUEUED *3 :1 +PONG $1 a ");
    assert_eq!(talk(&mut pipe, "MULTI\nINCR\nDISCARD\nINCR\n"), "+OK +QUEUED +OK :2 ");
    assert_eq!(talk(&mut pipe, "EXEC\nDISCARD\n"), "-ERR EXEC without MULTI -ERR DISCARD without MULTI ");
    let nested = "-ERR MULTI calls can not be nested -ERR WATCH inside MULTI is not allowed ";
    assert_eq!(talk(&mut pipe, "MULTI\nMULTI\nWATCH a\nEXEC\n"), format!("+OK {nested}*0 "));
    let refused = "-ERR wrong number of arguments for 'incr' command -EXECABORT Transaction discarded because of \
        previous errors. ";
    assert_eq!(talk(&mut pipe, "MULTI\nINCR a\nEXEC\n"), format!("+OK {refused}"));
    let later = talk(&mut pipe, "MULTI\nSLEEP 1\nSUBSCRIBE a\nINCR\nDISCARD\nMULTI\nSLEEP 1\nEXEC\n");
    assert!(later.ends_with("*1 -ERR this command cannot be executed in a transaction "), "{later}");
    assert!(later.contains("-ERR Command not allowed inside a transaction"), "{later}");
}

#[test]
fn a_transaction_has_a_bound_of_bytes() {
    let config = HandlerConfig { transaction_bytes_max: 400, ..HandlerConfig::default() };
    let mut pipe =
        Embedded::new(ServerCodec::default(), Handler::with(Counter::default(), Arc::new(config), Channels::new()));
    let seen = talk(&mut pipe, &format!("MULTI\n{}EXEC\n", "INCR\n".repeat(50)));
    assert!(seen.contains("+QUEUED -ERR the transaction is too long "), "{seen}");
    assert!(seen.ends_with("-EXECABORT Transaction discarded because of previous errors. "), "{seen}");
}

#[test]
fn subscribers_get_messages_of_channels_and_patterns() {
    let channels = Channels::new();
    let handler = |channels: &Channels| Handler::with(Counter::default(), Arc::default(), channels.clone());
    let mut pipe = Embedded::new(ServerCodec::default(), handler(&channels));
    let acknowledged = talk(&mut pipe, "SUBSCRIBE tide ebb\nPSUBSCRIBE t*\n");
    let wanted = "*3 $9 subscribe $4 tide :1 *3 $9 subscribe $3 ebb :2 *3 $10 psubscribe $2 t* :3 ";
    assert_eq!(acknowledged, wanted);
    assert_eq!((channels.publish(b"tide", b"\r\n"), channels.publish(b"none", b"")), (2, 0));
    pipe.run();
    assert_eq!(written(&mut pipe), "*3 $7 message $4 tide $2   *4 $8 pmessage $2 t* $4 tide $2   ");
    let refused = "-ERR Can't execute 'incr': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in \
        this context ";
    assert_eq!(talk(&mut pipe, "INCR\nPING\n"), format!("{refused}*2 $4 pong $0  "));
    let left = talk(&mut pipe, "UNSUBSCRIBE\nPUNSUBSCRIBE x\nPUNSUBSCRIBE t*\nUNSUBSCRIBE\nINCR\n");
    let wanted = "*3 $11 unsubscribe $3 ebb :2 *3 $11 unsubscribe $4 tide :1 *3 $12 punsubscribe $1 x :1 \
        *3 $12 punsubscribe $2 t* :0 *3 $11 unsubscribe $-1 :0 :1 ";
    assert_eq!(left, wanted);
    assert_eq!(channels.publish(b"tide", b"a"), 0);
}

#[test]
fn a_subscriber_of_resp3_may_send_every_command_and_closing_ends_its_subscriptions() {
    let channels = Channels::new();
    let handler = Handler::with(Counter::default(), Arc::default(), channels.clone());
    let mut pipe = Embedded::new(ServerCodec::default(), handler);
    talk(&mut pipe, "SUBSCRIBE a\nHELLO 3\n");
    // HELLO is not allowed for a subscriber of RESP2, as in Redis.
    assert_eq!(talk(&mut pipe, "UNSUBSCRIBE\n"), "*3 $11 unsubscribe $1 a :0 ");
    talk(&mut pipe, "HELLO 3\n");
    assert_eq!(talk(&mut pipe, "SUBSCRIBE a\nINCR\n"), ">3 $9 subscribe $1 a :1 :1 ");
    assert_eq!(channels.publish(b"a", b"x"), 1);
    pipe.run();
    assert_eq!(written(&mut pipe), ">3 $7 message $1 a $1 x ");
    talk(&mut pipe, "HELLO 2\n");
    assert_eq!(channels.publish(b"a", b"x"), 1);
    pipe.run();
    assert_eq!(written(&mut pipe), "*3 $7 message $1 a $1 x ");
    pipe.reset();
    assert_eq!(channels.publish(b"a", b"x"), 0);
}

#[test]
fn passwords_are_required_where_they_are_set() {
    let config = Arc::new(HandlerConfig { password: Some((*b"flow").into()), ..HandlerConfig::default() });
    let handler = || Handler::with(Counter::default(), config.clone(), Channels::new());
    let mut pipe = Embedded::new(ServerCodec::default(), handler());
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled. ";
    assert_eq!(talk(&mut pipe, "INCR\nAUTH ebb\n"), format!("-NOAUTH Authentication required. {wrong}"));
    assert!(talk(&mut pipe, "HELLO 3\n").starts_with("-NOAUTH HELLO must"));
    assert_eq!(talk(&mut pipe, "AUTH other flow\nAUTH default flow\nINCR\n"), format!("{wrong}+OK :1 "));
    assert_eq!(talk(&mut pipe, "RESET\nINCR\n"), "+RESET -NOAUTH Authentication required. ");
    assert!(talk(&mut pipe, "HELLO 3 AUTH default flow SETNAME me\n").starts_with("%7 "));
    assert_eq!(talk(&mut pipe, "CLIENT GETNAME\n"), "$2 me ");
}

#[test]
fn what_clients_send_when_they_connect_is_answered() {
    let mut pipe = pipe();
    assert_eq!(talk(&mut pipe, "CLIENT SETINFO LIB-NAME x\nCLIENT GETNAME\n"), "+OK $-1 ");
    assert!(talk(&mut pipe, "CLIENT ID\n").starts_with(':'));
    assert_eq!(talk(&mut pipe, "COMMAND DOCS\nCOMMAND\nCONFIG GET none\n"), "*0 *0 *0 ");
    // redis-benchmark reads these.
    assert_eq!(talk(&mut pipe, "CONFIG GET save\nCONFIG GET append*\n"), "*2 $4 save $0  *2 $10 appendonly $2 no ");
    assert_eq!(
        talk(&mut pipe, "SELECT 0\nSELECT 1\nSELECT x\n"),
        "+OK -ERR DB index is out of range -ERR value is not \
        an integer or out of range "
    );
    assert!(talk(&mut pipe, "INFO\n").contains("redis_version:7.0.15"));
    assert_eq!(talk(&mut pipe, "HELLO 4\n"), "-NOPROTO unsupported protocol version ");
    assert_eq!(
        talk(&mut pipe, "PUBLISH a b\nPUBSUB NUMSUB a\nPUBSUB CHANNELS\nPUBSUB NUMPAT\n"),
        ":0 *2 $1 a :0 *0 :0 "
    );
}

#[test]
fn a_reply_that_the_protocol_cannot_express_closes_the_connection_and_is_not_written() {
    let mut pipe = pipe();
    assert_eq!(talk(&mut pipe, "INCR\nTORN\nINCR\n"), ":1 ");
    assert!(pipe.is_closed() || pipe.is_write_closed() || pipe.is_reset());
}

#[test]
fn a_command_above_the_limit_is_refused_when_it_is_complete() {
    let limits = tidegate_redis::ProtocolLimits { whole_bytes_max: 64, ..Default::default() };
    let mut pipe = Embedded::new(ServerCodec::new(limits), Handler::new(Counter::default()));
    pipe.receive(&[b"*2\r\n$4\r\nINCR\r\n$100\r\n", &[b'x'; 100][..], b"\r\nINCR\r\n"].concat());
    assert_eq!(written(&mut pipe), "-ERR the command is longer than this server accepts :1 ");
}

#[test]
fn a_client_that_never_reads_is_not_read_either() {
    let mut pipe = pipe();
    pipe.limit_peer_reads(0);
    for _ in 0..100 {
        pipe.receive(&b"ECHO 0123456789012345678901234567890123456789\r\n".repeat(1_000));
    }
    assert!(!pipe.is_receiving());
    assert!(pipe.pool().ledger().used() < 1 << 20, "{} bytes", pipe.pool().ledger().used());
}

/// Answers every command.
struct Greedy;

impl Service for Greedy {
    fn call(&mut self, _: &Command, _: &CallContext) -> Answer {
        OutgoingReply::Simple("mine".into()).into()
    }
}

#[test]
fn a_service_does_not_get_the_commands_that_change_the_connection() {
    let mut pipe: Embedded<ChannelPost> = Embedded::new(ServerCodec::default(), Handler::new(Greedy));
    let seen = talk(&mut pipe, "MULTI\nGET a\nEXEC\nPING\nAUTH x\nHELLO 2\nSUBSCRIBE a\nUNSUBSCRIBE a\nRESET\nQUIT\n");
    assert!(seen.starts_with("+OK +QUEUED *1 +mine +mine -ERR AUTH <password> called without"), "{seen}");
    let end = "*3 $9 subscribe $1 a :1 *3 $11 unsubscribe $1 a :0 +RESET +OK ";
    assert!(seen.contains("*14 $6 server ") && seen.ends_with(end), "{seen}");
}

#[test]
fn hello_and_auth_are_queued_in_a_transaction_and_subscribe_is_refused() {
    let mut pipe = pipe();
    let seen =
        talk(&mut pipe, "MULTI\nCLIENT GETNAME\nHELLO 3 SETNAME me\nCLIENT GETNAME\nAUTH x\nEXEC\nCLIENT GETNAME\n");
    assert!(seen.starts_with("+OK +QUEUED +QUEUED +QUEUED +QUEUED *4 $-1 %7 $6 server "), "{seen}");
    assert!(seen.contains("$5 proto :3 ") && seen.contains("*0 $2 me -ERR AUTH <password> called"), "{seen}");
    assert!(seen.ends_with(" $2 me "), "{seen}");
    let broken = "-EXECABORT Transaction discarded because of previous errors. ";
    for refused in ["SUBSCRIBE a", "UNSUBSCRIBE", "PSUBSCRIBE a b"] {
        let seen = talk(&mut pipe, &format!("MULTI\n{refused}\nEXEC\n"));
        assert_eq!(seen, format!("+OK -ERR Command not allowed inside a transaction {broken}"));
    }
}

#[test]
fn a_wrong_number_of_arguments_breaks_a_transaction() {
    let mut pipe = pipe();
    let count = |name: &str| format!("-ERR wrong number of arguments for '{name}' command ");
    let broken = "-EXECABORT Transaction discarded because of previous errors. ";
    for (command, name) in [("MULTI x", "multi"), ("DISCARD x", "discard"), ("RESET x", "reset"), ("AUTH", "auth")] {
        assert_eq!(talk(&mut pipe, &format!("{command}\n")), count(name));
        let seen = talk(&mut pipe, &format!("MULTI\nINCR\n{command}\nEXEC\n"));
        assert_eq!(seen, format!("+OK +QUEUED {}{broken}", count(name)));
    }
    let exec = "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command ";
    assert_eq!(talk(&mut pipe, "EXEC x\n"), exec);
    let seen = talk(&mut pipe, "MULTI\nINCR\nEXEC x\nEXEC\nINCR\n");
    assert_eq!(seen, format!("+OK +QUEUED {exec}-ERR EXEC without MULTI :1 "));
    // As in Redis, PING has any number of arguments until it is executed.
    assert_eq!(talk(&mut pipe, "MULTI\nPING a b\nEXEC\n"), format!("+OK +QUEUED *1 {}", count("ping")));
}

#[test]
fn a_transaction_with_a_command_above_the_limit_fails() {
    let limits = tidegate_redis::ProtocolLimits { whole_bytes_max: 64, ..Default::default() };
    let mut pipe = Embedded::new(ServerCodec::new(limits), Handler::new(Counter::default()));
    pipe.receive(b"MULTI\r\nINCR\r\n");
    pipe.receive(&[b"*2\r\n$4\r\nINCR\r\n$100\r\n", &[b'x'; 100][..], b"\r\nEXEC\r\nINCR\r\n"].concat());
    let broken = "-EXECABORT Transaction discarded because of previous errors. ";
    assert_eq!(
        written(&mut pipe),
        format!("+OK +QUEUED -ERR the command is longer than this server accepts {broken}:1 ")
    );
}

/// A page in a browser can make it send HTTP requests to this port.
#[test]
fn lines_of_http_close_the_connection() {
    for wire in
        ["POST / HTTP/1.1\n\nINCR\n", "Host: a\nINCR\n", "MULTI\npost a\nINCR\n", "SUBSCRIBE a\nhost: a\nINCR\n"]
    {
        let mut pipe = pipe();
        let seen = talk(&mut pipe, wire);
        assert!(!seen.contains(":1 ") || wire.starts_with("SUB"), "{seen}");
        assert!(!seen.contains('-') && !seen.contains("QUEUED"), "{seen}");
        assert!(pipe.is_closed() || pipe.is_write_closed(), "{wire}");
    }
}

#[test]
fn subcommands_have_the_errors_of_redis() {
    let mut pipe = pipe();
    for (command, name) in [
        ("CLIENT ID x", "client|id"),
        ("client setname", "client|setname"),
        ("COMMAND COUNT x", "command|count"),
        ("CONFIG GET", "config|get"),
        ("PUBSUB NUMPAT x", "pubsub|numpat"),
        ("CLIENT", "client"),
        ("PUBSUB", "pubsub"),
        ("PING a b", "ping"),
        ("SUBSCRIBE", "subscribe"),
    ] {
        let seen = talk(&mut pipe, &format!("{command}\n"));
        assert_eq!(seen, format!("-ERR wrong number of arguments for '{name}' command "));
    }
    for (command, what) in [("CLIENT TRACKING on", "TRACKING"), ("client foo", "foo"), ("CLIENT REPLY off", "REPLY")] {
        let seen = talk(&mut pipe, &format!("{command}\n"));
        assert_eq!(seen, format!("-ERR unknown subcommand '{what}'. Try CLIENT HELP. "));
    }
    assert_eq!(talk(&mut pipe, "CLIENT NO-EVICT on\nCLIENT NO-EVICT x\n"), "+OK -ERR syntax error ");
    assert!(talk(&mut pipe, "INFO\n").contains("role:master"));
    let replication = talk(&mut pipe, "INFO replication\n");
    assert!(replication.starts_with("$48 # Replication role:master "), "{replication}");
    assert_eq!(talk(&mut pipe, "INFO foo\n"), "$0  ");
}
