// Messages by the package ws: `client.mjs URL`, with a certificate of any signer.
import assert from "node:assert";
import { once } from "node:events";
import { createRequire } from "node:module";

// ESM ignores NODE_PATH.
const WebSocket = createRequire(import.meta.url)("ws");
const url = process.argv[2];
const messages = ["high water", "", "Flut µ 潮 🌊", Buffer.alloc(0), Buffer.alloc(256_000, "tide"), "x".repeat(70_000)];

const open = async perMessageDeflate => {
  const socket = new WebSocket(url, { perMessageDeflate, rejectUnauthorized: false });
  await once(socket, "open");
  return socket;
};

for (const deflate of [true, false, { clientNoContextTakeover: true, serverNoContextTakeover: true, threshold: 0 }]) {
  const socket = await open(deflate);
  for (const message of messages) {
    socket.send(message);
    const [data, isBinary] = await once(socket, "message");
    assert.equal(isBinary, Buffer.isBuffer(message));
    assert.ok(data.equals(Buffer.from(message)), "echo");
  }
  socket.send("in ", { fin: false });
  socket.send("two fragments", { fin: true });
  const [whole] = await once(socket, "message");
  assert.equal(whole.toString(), "in two fragments");
  socket.ping("are you there");
  const [pong] = await once(socket, "pong");
  assert.equal(pong.toString(), "are you there");
  socket.close(1000, "done");
  const [code] = await once(socket, "close");
  assert.equal(code, 1000);
}
