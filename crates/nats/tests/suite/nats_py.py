"""nats-py against a broker: `nats_py.py PORT`. It prints `ok` in the end."""

import asyncio
import sys

import nats
from nats.errors import NoRespondersError


async def settle(publisher, mark) -> None:
    """Waits until the broker has all that a client has sent. The PING of nats-py's flush may overtake its messages."""
    await publisher.publish("mark", b"")
    await mark.next_msg(timeout=30)


async def main() -> None:
    client = await nats.connect(f"nats://127.0.0.1:{sys.argv[1]}", allow_reconnect=False)
    other = await nats.connect(f"nats://127.0.0.1:{sys.argv[1]}", verbose=True, no_echo=True)

    mark = await client.subscribe("mark")

    # Wildcards, headers, a subject for replies.
    tides = await client.subscribe("tides.*")
    everything = await client.subscribe("tides.>")
    await settle(client, mark)
    await other.publish("tides.brest", b"ebb", reply="inbox", headers={"A": "b"})
    for subscription in (tides, everything):
        message = await subscription.next_msg(timeout=30)
        assert (message.subject, message.data, message.reply, message.headers) == (
            "tides.brest", b"ebb", "inbox", {"A": "b"}), message

    # A queue group: one of its members gets each message.
    members = [await client.subscribe("work", "workers") for _ in range(3)]
    await settle(client, mark)
    for number in range(30):
        await other.publish("work", str(number).encode())
    await settle(other, mark)
    assert sum(member.pending_msgs for member in members) == 30
    assert all(member.pending_msgs for member in members)

    # Requests, with a service and without.
    async def shout(message) -> None:
        await message.respond(message.data.upper())

    await client.subscribe("shout", cb=shout)
    await settle(client, mark)
    assert (await other.request("shout", b"flow", timeout=30)).data == b"FLOW"
    try:
        await other.request("nothing", b"", timeout=30)
        raise AssertionError("nothing answers")
    except NoRespondersError:
        pass

    # UNSUB with a number, no echo, a long message.
    two = await client.subscribe("two")
    await two.unsubscribe(limit=2)
    own = await other.subscribe("two")
    await settle(client, mark)
    for number in range(5):
        await other.publish("two", bytes(100_000))
    await settle(other, mark)
    assert (two.delivered, own.pending_msgs) == (2, 0), (two.delivered, own.pending_msgs)
    await client.close()
    await other.close()
    print("ok")


asyncio.run(main())
