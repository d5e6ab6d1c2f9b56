#!/usr/bin/env python3
"""redis-py, and hiredis if that is installed: `client.py PORT VERSION`."""

import sys
import threading

import redis

PORT, VERSION = int(sys.argv[1]), int(sys.argv[2])


def connect(**options):
    return redis.Redis(host="127.0.0.1", port=PORT, protocol=VERSION, socket_timeout=60, **options)


def check_values(client):
    assert client.set("a\r\n\0", b"\r\n\0\xff") and client.get("a\r\n\0") == b"\r\n\0\xff"
    long = b"tide" * 1_500_000
    assert client.set("long", long) and client.get("long") == long
    assert client.hset("h", mapping={"one": "1", "two": "2"}) >= 0
    assert client.hgetall("h") == {b"one": b"1", b"two": b"2"}
    client.zadd("z", {"one": 1.5, "two": 2.5})
    assert [list(pair) for pair in client.zrange("z", 0, -1, withscores=True)] == [[b"one", 1.5], [b"two", 2.5]]
    assert client.get("none") is None and client.eval("return {1, 'a'}", 0) == [1, b"a"]
    try:
        client.incr("h")
        raise AssertionError("INCR of a hash")
    except redis.ResponseError as error:
        assert "WRONGTYPE" in str(error), error


def check_pipelines(client):
    client.delete("count")
    pipeline = client.pipeline(transaction=False)
    for _ in range(5_000):
        pipeline.incr("count")
    assert pipeline.execute() == list(range(1, 5_001))
    client.set("watched", 1)

    def double(pipeline):
        value = int(pipeline.get("watched"))
        pipeline.multi()
        pipeline.set("watched", value * 2)

    threads = [threading.Thread(target=lambda: connect().transaction(double, "watched")) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert client.get("watched") == b"256"


def check_waiting(client):
    client.delete("jobs")
    got = []
    waiting = threading.Thread(target=lambda: got.append(connect().blpop("jobs", 30)))
    waiting.start()
    while waiting.is_alive():
        if not client.llen("jobs"):
            client.rpush("jobs", "job")
        waiting.join(0.01)
    assert [list(pair) for pair in got] == [[b"jobs", b"job"]], got
    client.delete("jobs")


def check_channels(client):
    subscriber = client.pubsub()
    subscriber.subscribe("tide")
    subscriber.psubscribe("e*")
    for _ in range(2):
        assert subscriber.get_message(timeout=60)["type"] in ("subscribe", "psubscribe")
    assert client.publish("tide", "in") == 1 and client.publish("ebb", "out") == 1
    messages = [subscriber.get_message(timeout=60) for _ in range(2)]
    assert [message["data"] for message in messages] == [b"in", b"out"], messages
    subscriber.unsubscribe()
    subscriber.close()


def main():
    client = connect(client_name="peer")
    assert client.client_getname() in ("peer", b"peer")
    assert client.ping() and "redis_version" in client.info()
    check_values(client)
    check_pipelines(client)
    check_waiting(client)
    check_channels(client)
    other = connect(db=3)
    other.set("db", "3")
    assert other.get("db") == b"3" and client.get("db") is None
    try:
        connect(db=99).ping()
        raise AssertionError("there is no database 99")
    except redis.ResponseError:
        pass


main()
