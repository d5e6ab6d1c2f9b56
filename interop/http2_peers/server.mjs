// A server of HTTP/2 in clear by node:http2: it prints its address. `/plaintext` and `/bytes/N` are those of `tidegate
// serve`, and `/echo` returns the body of the request.
import http2 from "node:http2";

const letters = length => "abcdefghijklmnopqrstuvwxyz\n".repeat(length / 27 + 1).slice(0, length);
const server = http2.createServer();
server.on("stream", (stream, fields) => {
  const path = fields[":path"];
  // A peer may leave at any time.
  stream.on("error", () => {});
  if (path === "/echo") {
    stream.respond({ ":status": 200 });
    stream.pipe(stream);
  } else if (path === "/plaintext") {
    stream.respond({ ":status": 200 });
    stream.end("Hello, World!");
  } else if (path.startsWith("/bytes/")) {
    stream.respond({ ":status": 200 });
    stream.end(letters(Number(path.slice("/bytes/".length))));
  } else {
    stream.respond({ ":status": 404 }, { endStream: true });
  }
});
server.listen(0, "127.0.0.1", () => console.log(`127.0.0.1:${server.address().port}`));
