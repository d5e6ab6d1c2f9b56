// Requests over HTTP/2 by node:http2: `client.mjs URL`, with a certificate of any signer.
import assert from "node:assert";
import http2 from "node:http2";

const MEGABYTE = 1_000_000;
const url = process.argv[2];
const letters = length => "abcdefghijklmnopqrstuvwxyz\n".repeat(length / 27 + 1).slice(0, length);
const session = http2.connect(url, { rejectUnauthorized: false });
session.on("error", error => { throw error; });

const request = (method, path, body) => new Promise((resolve, reject) => {
  const stream = session.request({ ":method": method, ":path": path }, { endStream: body === undefined });
  const pieces = [];
  let head;
  stream.on("response", fields => { head = fields; });
  stream.on("data", piece => pieces.push(piece));
  stream.on("end", () => resolve({ head, body: Buffer.concat(pieces).toString("latin1") }));
  stream.on("error", reject);
  if (body !== undefined) stream.end(body);
});

assert.equal((await request("GET", "/plaintext")).body, "Hello, World!");
assert.ok((await request("GET", `/bytes/${MEGABYTE}`)).body === letters(MEGABYTE), "large body");
const head = await request("HEAD", "/bytes/1000");
assert.deepEqual([head.head["content-length"], head.body], ["1000", ""]);
assert.ok((await request("POST", "/echo", letters(MEGABYTE))).body === letters(MEGABYTE), "echo");
assert.equal((await request("GET", "/nowhere")).head[":status"], 404);
const short = await Promise.all(Array.from({ length: 300 }, () => request("GET", "/bytes/1000")));
assert.ok(short.every(({ body }) => body === letters(1000)), "at once");
await new Promise(resolve => {
  const stream = session.request({ ":path": `/stream/${100 * MEGABYTE}` });
  stream.once("data", () => stream.close(http2.constants.NGHTTP2_CANCEL));
  stream.on("close", resolve);
  stream.resume();
});
assert.equal((await request("GET", "/plaintext")).body, "Hello, World!");
session.close();
