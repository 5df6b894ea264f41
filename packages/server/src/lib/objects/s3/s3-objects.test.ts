/** Faults of an S3 server and of the network in front of it; object-store.test.ts has the ordinary behaviour. */
import assert from 'node:assert/strict';
import type { IncomingMessage } from 'node:http';
import { after, before, test, type TestContext } from 'node:test';
import { inspect } from 'node:util';
import {
  CompleteMultipartUploadCommand,
  ListMultipartUploadsCommand,
  ListPartsCommand,
} from '@aws-sdk/client-s3';
import { TestAuthority } from '../../tls/testing/certificate.ts';
import { pollUntil } from '../../waiting/deadline.ts';
import { checkCreateOnly, checkObjectStore } from '../check-object-store.ts';
import type { S3Location } from '../object-store-config.ts';
import { ObjectStoreError } from '../object-store-error.ts';
import type { ByteRange, ObjectStore } from '../object-store.ts';
import { FaultProxy, type Fault } from '../testing/fault-proxy.ts';
import { BUCKET, ObjectServer, SECRET_KEY } from '../testing/object-server.ts';
import { createS3Client } from './s3-client.ts';
import { S3Objects } from './s3-objects.ts';
import type { S3Limits } from './s3-requests.ts';

const PART_BYTES = 5 << 20;
const LIMITS: S3Limits = { attemptMs: 3000, deadlineMs: 15_000, idleMs: 500, partBytes: PART_BYTES };
/** For requests that must fail. */
const HASTY = { deadlineMs: 700, attemptMs: 300 };

let server: ObjectServer;
before(async () => {
  server = await ObjectServer.start();
});
after(() => server[Symbol.asyncDispose]());

interface Disturbed {
  objects: S3Objects;
  proxy: FaultProxy;
  /** The same objects without the proxy. */
  direct: S3Objects;
}

let prefixes = 0;

/** Opens an empty store behind a proxy. */
async function openDisturbed(context: TestContext, limits: Partial<S3Limits> = {}): Promise<Disturbed> {
  const prefix = `faults/${++prefixes}`;
  const proxy = await FaultProxy.start(server.port);
  const objects = S3Objects.open(server.locate({ endpoint: proxy.endpoint, prefix }), {
    ...LIMITS,
    ...limits,
  });
  const direct = S3Objects.open(server.locate({ prefix }), LIMITS);
  context.after(async () => {
    objects[Symbol.dispose]();
    direct[Symbol.dispose]();
    await proxy[Symbol.asyncDispose]();
  });
  return { objects, proxy, direct };
}

function openBriefly(context: TestContext, location: S3Location): S3Objects {
  const objects = S3Objects.open(location, { ...LIMITS, ...HASTY });
  context.after(() => objects[Symbol.dispose]());
  return objects;
}

async function read(objects: ObjectStore, key: string, range?: ByteRange): Promise<string> {
  return Buffer.concat(await Array.fromAsync(objects.get(key, range))).toString();
}

function* buildLarge(text = 'x'): Generator<Uint8Array> {
  for (let piece = 0; piece < 12; piece++) yield Buffer.alloc(1 << 20, text);
}

/** Returns the fault for the first request that matches, and for no later one. */
function onlyOnce(matches: (request: IncomingMessage) => boolean, fault: Fault) {
  let isDone = false;
  return (request: IncomingMessage): Fault | undefined => {
    if (isDone || !matches(request)) return undefined;
    isDone = true;
    return fault;
  };
}

const isPut = ({ method }: IncomingMessage): boolean => method === 'PUT';
const isGet = ({ method }: IncomingMessage): boolean => method === 'GET';
const isComplete = ({ method, url }: IncomingMessage): boolean =>
  method === 'POST' && url?.includes('uploadId=') === true;

async function countUploads(): Promise<number> {
  const client = createS3Client(server.locate());
  const { Uploads = [] } = await client.send(new ListMultipartUploadsCommand({ Bucket: BUCKET }));
  client.destroy();
  return Uploads.length;
}

test('a create whose answer is lost is known to have succeeded', async (context) => {
  const { objects, proxy } = await openDisturbed(context);
  proxy.rule = onlyOnce(isPut, { kind: 'lose-answer' });
  assert.equal(await objects.putIfAbsent('lost', ['mine']), true);
  assert.deepEqual(
    proxy.seen.map((line) => line.split(' ', 1)[0]),
    ['PUT', 'PUT', 'HEAD'],
  );
  assert.equal(await objects.putIfAbsent('lost', ['late']), false);
  assert.equal(await read(objects, 'lost'), 'mine');
});

test('a create that another writer wins while its answers are lost is known to have failed', async (context) => {
  const { objects, proxy, direct } = await openDisturbed(context);
  await direct.put('taken', ['theirs']);
  proxy.rule = onlyOnce(isPut, { kind: 'lose-answer' });
  assert.equal(await objects.putIfAbsent('taken', ['mine']), false);
  assert.equal(await read(objects, 'taken'), 'theirs');
});

test('a large create or put whose last answer is lost is known to have succeeded', async (context) => {
  const { objects, proxy } = await openDisturbed(context);
  for (const write of [
    () => objects.putIfAbsent('large', buildLarge('a')),
    () => objects.put('large', buildLarge('b')).then(() => true),
  ]) {
    proxy.rule = onlyOnce(isComplete, { kind: 'lose-answer' });
    assert.equal(await write(), true);
  }
  assert.equal(await read(objects, 'large', { start: 0, end: 1 }), 'b');
  proxy.rule = onlyOnce(isComplete, { kind: 'lose-answer' });
  assert.equal(await objects.putIfAbsent('large', buildLarge('c')), false);
  assert.equal(await countUploads(), 0);
});

test('one winner among many writers although half of the requests get 503 or lose their answer', async (context) => {
  const { objects, proxy } = await openDisturbed(context);
  const counts = new Map<string, number>();
  proxy.rule = (request) => {
    const writer = String(request.headers['x-amz-meta-coppice-write-id']);
    const name = `${request.method} ${request.url} ${writer}`;
    const count = (counts.get(name) ?? 0) + 1;
    counts.set(name, count);
    if (count % 2 === 1) return { kind: 'answer', status: 503 };
    return isPut(request) && count === 2 ? { kind: 'lose-answer' } : undefined;
  };
  for (let round = 0; round < 3; round++) {
    const texts = ['a', 'b', 'c', 'd', 'e', 'f'];
    const won = await Promise.all(texts.map((text) => objects.putIfAbsent(`race/${round}`, [text])));
    assert.equal(won.filter(Boolean).length, 1);
    assert.equal(await read(objects, `race/${round}`), texts[won.indexOf(true)]);
  }
  assert.equal((await Array.fromAsync(objects.list('race/'))).length, 3);
  await objects.delete('race/0');
});

test('a read continues where the connection broke or stalled', async (context) => {
  const { objects, proxy, direct } = await openDisturbed(context);
  const content = Buffer.concat(Array.from({ length: 40_000 }, (_, index) => Buffer.from(`${index},`)));
  await direct.put('long', [content]);
  let requests = 0;
  proxy.rule = () => {
    requests += 1;
    const stalls = requests === 2;
    return requests < 4 ? { kind: 'break-body', afterBytes: 50_000, stalls } : undefined;
  };
  assert.equal(await read(objects, 'long', { start: 10 }), content.subarray(10).toString());
  assert.equal(requests, 4);
});

test('a read never joins the bytes of two objects', async (context) => {
  const { objects, proxy, direct } = await openDisturbed(context);
  await direct.put('changing', [Buffer.alloc(100_000, 'a')]);
  proxy.rule = onlyOnce(isGet, { kind: 'break-body', afterBytes: 1000 });
  const pieces = objects.get('changing')[Symbol.asyncIterator]();
  await pieces.next();
  await direct.put('changing', [Buffer.alloc(100_000, 'b')]);
  await assert.rejects(async () => {
    while ((await pieces.next()).done !== true);
  }, /was replaced while it was read/u);
});

test('a slow answer ends at its deadline, and the request is repeated', async (context) => {
  const { objects, proxy } = await openDisturbed(context, { attemptMs: 400 });
  proxy.rule = onlyOnce(isPut, { kind: 'delay', durationMs: 2000 });
  assert.equal(await objects.putIfAbsent('slow', ['x']), true);
  proxy.rule = () => ({ kind: 'delay', durationMs: 2000 });
  const hasty = S3Objects.open(server.locate({ endpoint: proxy.endpoint }), { ...LIMITS, ...HASTY });
  const startedAt = performance.now();
  await assert.rejects(hasty.put('slow', ['x']), /took longer than 300 ms; check that the server runs/u);
  assert.ok(performance.now() - startedAt < 1900);
  hasty[Symbol.dispose]();
});

test('a read of a body that stalls for good ends at its deadline', async (context) => {
  const { objects, proxy, direct } = await openDisturbed(context, { ...HASTY, idleMs: 200 });
  await direct.put('stalled', [Buffer.alloc(10_000)]);
  proxy.rule = () => ({ kind: 'break-body', afterBytes: 0, stalls: true });
  await assert.rejects(read(objects, 'stalled'), (error) => {
    assert.ok(error instanceof ObjectStoreError);
    return error.code === 'unavailable' && error.isTransient;
  });
});

test('requests wait for a server that is away for some seconds', async (context) => {
  await using own = await ObjectServer.start();
  const objects = S3Objects.open(own.locate(), LIMITS);
  context.after(() => objects[Symbol.dispose]());
  await objects.put('before', ['1']);
  await own.stop();
  const writing = objects.putIfAbsent('during', ['2']);
  const reading = read(objects, 'before');
  setTimeout(() => void own.resume(), 2000);
  assert.equal(await writing, true);
  assert.equal(await reading, '1');
  assert.equal(await read(objects, 'during'), '2');
});

test('a failed upload is removed from the server', async (context) => {
  const { objects, proxy } = await openDisturbed(context, { deadlineMs: 1000 });
  proxy.rule = ({ url }) =>
    url?.includes('partNumber=2') === true ? { kind: 'answer', status: 500 } : undefined;
  await assert.rejects(objects.put('broken', buildLarge()), /putting part 2 of .*500/u);
  assert.equal(await countUploads(), 0);
  await assert.rejects(read(objects, 'broken'), { code: 'not_found' });
});

test('a writer holds only some parts in memory', async (context) => {
  const { objects, proxy } = await openDisturbed(context);
  let taken = 0;
  let uploaded = 0;
  proxy.rule = ({ url }) => {
    if (url?.includes('partNumber=') === true) uploaded += PART_BYTES;
    return undefined;
  };
  await objects.put(
    'stream',
    (function* () {
      for (; taken < 60 << 20; taken += 1 << 20) {
        assert.ok(taken - uploaded <= 2 * PART_BYTES + (1 << 20), `${taken} taken, ${uploaded} uploaded`);
        yield Buffer.alloc(1 << 20);
      }
    })(),
  );
  assert.equal(uploaded, 60 << 20);
});

test('a request that a server with another clock refused is signed again', async (context) => {
  const { objects, proxy } = await openDisturbed(context);
  const body = '<Error><Code>RequestTimeTooSkewed</Code><Message>too old</Message></Error>';
  proxy.rule = onlyOnce(isPut, { kind: 'answer', status: 403, body });
  await objects.put('skewed', ['x']);
  assert.equal(await read(objects, 'skewed'), 'x');
});

test('closing ends requests that are being repeated', async (context) => {
  const { objects, proxy } = await openDisturbed(context);
  proxy.rule = () => ({ kind: 'answer', status: 503 });
  const writing = assert.rejects(objects.put('never', ['x']), /the store is closing/u);
  await pollUntil({ step: 'the first request', timeoutMs: 5000, intervalMs: 5 }, () => proxy.seen[0]);
  objects[Symbol.dispose]();
  await writing;
  await assert.rejects(objects.put('never', ['x']), /the store is closing/u);
});

test('refusals are not repeated, name the remedy and show no secret', async (context) => {
  using authority = new TestAuthority();
  await using secure = await ObjectServer.start({ tls: authority.issue('s3') });
  const refused: [string, S3Location, RegExp][] = [
    ['no bucket', server.locate({ bucket: 'missing' }), /bucket does not exist.*create it/u],
    ['no trust', secure.locate(), /certificate of the server is not trusted.*set ca=/u],
    ['no TLS', server.locate({ endpoint: server.endpoint.replace('http:', 'https:') }), /endpoint/u],
    ['other region', server.locate({ region: 'eu-north-9' }), /set region=/u],
  ];
  for (const [name, location, message] of refused)
    await assert.rejects(openBriefly(context, location).put('k', ['x']), (error) => {
      assert.ok(error instanceof ObjectStoreError, name);
      assert.match(error.message, message, name);
      assert.equal(error.isTransient, false, name);
      assert.ok(!inspect(error, { depth: 9 }).includes(SECRET_KEY), name);
      return true;
    });
  assert.throws(() => openBriefly(context, secure.locate({ caPath: '/nonexistent.pem' })), {
    message: /authorities in \/nonexistent\.pem cannot be used: .*set ca=/u,
  });
  await assert.rejects(read(openBriefly(context, server.locate({ bucket: 'missing' })), 'k'), {
    code: 'unavailable',
  });
});

test('wrong or absent credentials are reported as such', async (context) => {
  const { AWS_ACCESS_KEY_ID: id = '', AWS_SECRET_ACCESS_KEY: secret = '' } = process.env;
  context.after(() => Object.assign(process.env, { AWS_ACCESS_KEY_ID: id, AWS_SECRET_ACCESS_KEY: secret }));
  const wrong = 'a-wrong-secret-key-that-no-error-shows';
  process.env['AWS_SECRET_ACCESS_KEY'] = wrong;
  await assert.rejects(openBriefly(context, server.locate()).put('k', ['x']), (error) => {
    assert.match(String(error), /refused the signature \(SignatureDoesNotMatch\); check the secret/u);
    return !inspect(error, { depth: 9 }).includes(wrong);
  });
  delete process.env['AWS_ACCESS_KEY_ID'];
  delete process.env['AWS_SECRET_ACCESS_KEY'];
  Object.assign(process.env, { AWS_EC2_METADATA_DISABLED: 'true', AWS_SHARED_CREDENTIALS_FILE: '/dev/null' });
  await assert.rejects(
    openBriefly(context, server.locate()).put('k', ['x']),
    /there are no credentials .*AWS_ACCESS_KEY_ID/u,
  );
  delete process.env['AWS_SHARED_CREDENTIALS_FILE'];
});

test('a server that ignores create-only is refused', async (context) => {
  const { objects, proxy, direct } = await openDisturbed(context);
  proxy.rule = (request) => {
    if (!isPut(request) || request.headers['if-none-match'] === undefined) return undefined;
    const key = decodeURIComponent(request.url ?? '')
      .replace(/^.*?\/check\//u, 'check/')
      .replace(/\?.*/u, '');
    const act = async (body: Buffer): Promise<string> => {
      await direct.put(key, [body]);
      return '';
    };
    return { kind: 'act', act };
  };
  for (const check of [checkCreateOnly, checkObjectStore])
    await assert.rejects(check(objects), /unfit \(create-only writes\): it did not refuse.*If-None-Match/u);
  assert.deepEqual(await Array.fromAsync(direct.list('')), []);
});

test('a server that ignores create-only for large objects is refused', async (context) => {
  const { objects, proxy, direct } = await openDisturbed(context);
  const client = createS3Client(server.locate());
  context.after(() => client.destroy());
  proxy.rule = (request) => {
    if (!isComplete(request)) return undefined;
    const url = new URL(request.url ?? '', server.endpoint);
    const Key = decodeURIComponent(url.pathname).replace(`/${BUCKET}/`, '');
    const where = { Bucket: BUCKET, Key, UploadId: url.searchParams.get('uploadId') ?? '' };
    const act = async (): Promise<string> => {
      const { Parts = [] } = await client.send(new ListPartsCommand(where));
      const parts = Parts.map(({ ETag, PartNumber }) => ({ ETag, PartNumber }));
      await client.send(new CompleteMultipartUploadCommand({ ...where, MultipartUpload: { Parts: parts } }));
      return '<CompleteMultipartUploadResult/>';
    };
    return { kind: 'act', act };
  };
  await checkCreateOnly(objects);
  await assert.rejects(checkObjectStore(objects), /unfit \(create-only writes of large objects\): 2 of 2/u);
  assert.deepEqual(await Array.fromAsync(direct.list('')), []);
});
