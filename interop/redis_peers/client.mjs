// ioredis: `client.mjs PORT`. It speaks RESP2.
import assert from 'node:assert/strict';
import { createRequire } from 'node:module';

// An import does not look into NODE_PATH.
const Redis = createRequire(import.meta.url)('ioredis');

const connect = () => new Redis({ port: Number(process.argv[2]), host: '127.0.0.1', connectionName: 'peer' });
const client = connect();

assert.equal(await client.client('GETNAME'), 'peer');
const long = Buffer.alloc(6_000_000, 'tide');
await client.set('long', long);
assert.ok((await client.getBuffer('long')).equals(long));
await client.hset('h', { one: '1', two: '2' });
assert.deepEqual(await client.hgetall('h'), { one: '1', two: '2' });

await client.del('count');
const replies = await Promise.all(Array.from({ length: 5000 }, () => client.incr('count')));
assert.deepEqual(replies, Array.from({ length: 5000 }, (_, number) => number + 1));
await assert.rejects(client.incr('h'), /WRONGTYPE/);

const results = await client.multi().incr('count').get('count').exec();
assert.deepEqual(results, [[null, 5001], [null, '5001']]);
await client.watch('count');
await client.incr('count');
assert.equal(await client.multi().incr('count').exec(), null);

await client.del('jobs');
const waiting = connect();
const job = waiting.blpop('jobs', 30);
assert.equal(await client.ping(), 'PONG');
await client.rpush('jobs', 'job');
assert.deepEqual(await job, ['jobs', 'job']);

const subscriber = connect();
const message = new Promise((resolve) => subscriber.on('message', (...words) => resolve(words)));
assert.equal(await subscriber.subscribe('tide'), 1);
assert.equal(await client.publish('tide', 'in'), 1);
assert.deepEqual(await message, ['tide', 'in']);
assert.equal(await client.eval('return ARGV[1]', 0, 'a'), 'a');
for (const connection of [client, waiting, subscriber]) connection.disconnect();
