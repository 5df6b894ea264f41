/** Tests against good, slow, broken and hostile registries, as real servers on loopback ports. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ask, assertRefused, getBlob, getManifest, openClient } from './testing/test-client.ts';
import { digestOf, serveImage, startServer, type Handler } from './testing/test-server.ts';

const TIMEOUT_MS = 60_000;
const DATA = Buffer.alloc(300_000, 'data');
const BLOB = { digest: digestOf(DATA), size: DATA.length };
const image = serveImage('{"a":1}', [DATA]);

test('a manifest is returned byte for byte, and its digest can be fetched alone', async () => {
  await using server = await startServer(image);
  using client = openClient({ insecureRegistries: [server.name] });
  const asked = ask(`${server.name}/some/x:1`);
  assert.equal(await getManifest(client, asked), '{"a":1}');
  assert.equal(
    await client.findManifestDigest(asked, '1', AbortSignal.timeout(TIMEOUT_MS)),
    digestOf('{"a":1}'),
  );
  assert.deepEqual((await getBlob(client, asked, BLOB)).equals(DATA), true);
  assert.equal(server.requests[0]?.line, 'GET /v2/some/x/manifests/1');
});

test("a mirror's path comes before the repository", async () => {
  await using server = await startServer(image);
  using client = openClient({ mirrors: { 'docker.io': `${server.url}/hub/` } });
  await getManifest(client, ask('node:22'));
  assert.equal(server.requests[0]?.line, 'GET /v2/hub/library/node/manifests/22');
});

test('a redirect to a private address is not followed, and the number of redirects is limited', async () => {
  await using secret = await startServer(image);
  const isPrivate = ['invalid_image', /leads to .* private address; the operator must allow both/u] as const;
  const isNoAddress = ['registry_unavailable', /no web address/u] as const;
  for (const [location, refusal] of [
    [secret.url, isPrivate],
    ['http://169.254.169.254/latest', isPrivate],
    ['http://[fe80::1]/x', isPrivate],
    ['http://[::ffff:127.0.0.1]/x', isPrivate],
    ['http://[::1]/x', isPrivate],
    ['ftp://x', isNoAddress],
    ['http://', isNoAddress],
  ] as const) {
    await using server = await startServer((_, response) => void response.writeHead(307, { location }).end());
    using client = openClient({ insecureRegistries: [server.name] });
    const [code, pattern] = refusal;
    await assertRefused(getManifest(client, ask(`${server.name}/x:1`)), code, pattern);
  }
  assert.deepEqual(secret.requests, []);
  await using loop = await startServer(
    (_, response) => void response.writeHead(302, { location: '/v2/again' }).end(),
  );
  using client = openClient({ insecureRegistries: [loop.name] });
  const asked = ask(`${loop.name}/x:1`);
  await assertRefused(getManifest(client, asked), 'registry_unavailable', /more than 5 times/u);
});

test('the client dials the address that it checked', async () => {
  await using server = await startServer(image);
  const port = server.name.split(':')[1];
  const name = `registry.example:${port}`;
  let lookups = 0;
  const resolveHost = async () => {
    lookups++;
    return [{ address: '127.0.0.1', family: 4 }];
  };
  using stranger = openClient({ resolveHost });
  await assertRefused(getManifest(stranger, ask(`${name}/x:1`)), 'invalid_image', /private address/u);
  using mixed = openClient({
    resolveHost: async () => [
      { address: '93.184.216.34', family: 4 },
      { address: '10.0.0.1', family: 4 },
    ],
  });
  await assertRefused(getManifest(mixed, ask(`${name}/x:1`)), 'invalid_image', /private address/u);
  assert.deepEqual(server.requests, []);
  lookups = 0;
  using configured = openClient({ resolveHost, mirrors: { 'docker.io': `http://${name}` } });
  await getManifest(configured, ask('x:1'));
  await getManifest(configured, ask('x:1'));
  assert.equal(lookups, 1, 'the second request used the first connection');
  using unknown = openClient({ resolveHost: () => Promise.reject(new Error('no such host')) });
  await assertRefused(
    getManifest(unknown, ask(`${name}/x:1`)),
    'registry_unavailable',
    /cannot be resolved/u,
  );
});

test('requests go through the proxy of the host, but not to private addresses', async () => {
  await using proxy = await startServer(image);
  const environment = { HTTP_PROXY: proxy.url, HTTPS_PROXY: proxy.url, NO_PROXY: 'direct.example' };
  const resolveHost = () => Promise.reject(new Error('no such host'));
  using client = openClient({
    environment,
    resolveHost,
    mirrors: { 'a.example': 'http://mirror.example', 'b.example': 'http://x.direct.example' },
  });
  assert.equal(await getManifest(client, ask('a.example/x:1')), '{"a":1}');
  assert.match(proxy.requests[0]?.line ?? '', /http:\/\/mirror\.example\/v2\/x\/manifests\/1$/u);
  await assertRefused(getManifest(client, ask('b.example/x:1')), 'registry_unavailable', /resolved/u);
  await assertRefused(getManifest(client, ask('192.168.1.1/x:1')), 'invalid_image', /private/u);
  assert.equal(proxy.requests.length, 1);
});

async function manifestOf(handler: Handler): Promise<string> {
  await using server = await startServer(handler);
  using client = openClient({ insecureRegistries: [server.name] });
  return await getManifest(client, ask(`${server.name}/x:1`));
}

test('a server that is no registry, and a manifest that is too large or too old, get their own errors', async () => {
  const answer =
    (type: string, body: string, status = 200): Handler =>
    (_, response) =>
      void response.writeHead(status, { 'content-type': type }).end(body);
  for (const [handler, code, pattern] of [
    [answer('text/html', '<html>'), 'registry_unavailable', /does not answer like an image registry/u],
    [answer('text/html', '', 404), 'registry_unavailable', /does not answer like an image registry/u],
    [answer('image/png', ''), 'registry_unavailable', /does not answer like an image registry/u],
    [answer('application/json', '{}', 404), 'image_not_found', /check name and tag/u],
    [answer('application/json', '{}', 403), 'image_not_found', /may be|private/u],
    [answer('application/json', '{}', 418), 'registry_unavailable', /status 418/u],
    [answer('application/json', 'x'.repeat(20_000)), 'invalid_image', /more than 10000 bytes/u],
    [
      answer('application/vnd.docker.distribution.manifest.v1+prettyjws', '{}'),
      'invalid_image',
      /schema 1.*push it again/u,
    ],
  ] as const) {
    await assertRefused(manifestOf(handler), code, pattern);
  }
});

test('temporary failures are retried, and lasting ones are reported', async () => {
  let failures = 2;
  const recovering: Handler = (request, response) =>
    failures-- > 0 ? void response.writeHead(503).end() : image(request, response);
  assert.equal(await manifestOf(recovering), '{"a":1}');
  await assertRefused(
    manifestOf((_, response) => void response.writeHead(500).end()),
    'registry_unavailable',
    /status 500/u,
  );
  const limited =
    (headers: Record<string, string>): Handler =>
    (_, response) =>
      void response.writeHead(429, headers).end();
  await assertRefused(
    manifestOf(limited({ 'retry-after': '120' })),
    'registry_unavailable',
    /limits the requests of this machine; try again in 120 s/u,
  );
  await assertRefused(manifestOf(limited({})), 'registry_unavailable', /try again later/u);
  await assertRefused(
    manifestOf((_, response) => void response.socket?.destroy()),
    'registry_unavailable',
    /cannot be reached/u,
  );
});

test('a request to a registry that does not answer, or answers too slowly, fails', async () => {
  await assertRefused(
    manifestOf(() => undefined),
    'registry_unavailable',
    /too slow: .* did not answer within 500 ms/u,
  );
  const drip: Handler = (_, response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    const timer = setInterval(() => response.write(' '), 20);
    response.on('close', () => clearInterval(timer));
  };
  await assertRefused(manifestOf(drip), 'registry_unavailable', /too slow: .* almost nothing/u);
});

async function blobOf(handler: Handler): Promise<{ data: Buffer; ranges: (string | undefined)[] }> {
  await using server = await startServer(handler);
  using client = openClient({ mirrors: { 'docker.io': server.url } });
  const data = await getBlob(client, ask('x:1'), BLOB);
  return { data, ranges: server.requests.map(({ range }) => range) };
}

/** Sends a part of the requested bytes and breaks off. */
function breaking(knowsRanges: boolean): Handler {
  return (request, response) => {
    const from = knowsRanges ? Number(/bytes=(\d+)-/u.exec(request.headers.range ?? '')?.[1] ?? 0) : 0;
    const isLast = request.headers.range !== undefined && from !== 100_000;
    const headers = { 'content-range': `bytes ${from}-${DATA.length - 1}/${DATA.length}` };
    response.writeHead(from > 0 ? 206 : 200, from > 0 ? headers : {});
    if (isLast) response.end(DATA.subarray(from));
    else response.write(DATA.subarray(from, from + 100_000), () => response.destroy());
  };
}

test('a broken download resumes where it broke', async () => {
  const { data, ranges } = await blobOf(breaking(true));
  assert.ok(data.equals(DATA));
  assert.deepEqual(ranges, [undefined, 'bytes=100000-', 'bytes=200000-']);
  const whole = await blobOf(breaking(false));
  assert.ok(whole.data.equals(DATA), 'a server without ranges sends all again');
});

test('a blob that is damaged, short, endless or from another range is refused', async () => {
  const other = Buffer.from(DATA);
  other[12_345] = 0;
  await assertRefused(
    blobOf((_, response) => void response.end(other)),
    'registry_unavailable',
    /does not match its digest/u,
  );
  await assertRefused(
    blobOf((_, response) => void response.end(DATA.subarray(1))),
    'registry_unavailable',
    /broke off|status|match its digest/u,
  );
  const endless: Handler = (_, response) => {
    const more = (): boolean => response.write(Buffer.alloc(50_000, 'data'), () => setImmediate(more));
    response.on('error', () => undefined);
    more();
  };
  await assertRefused(blobOf(endless), 'registry_unavailable', /longer than 300000 bytes/u);
  const shifted: Handler = (request, response) => {
    if (request.headers.range === undefined) {
      response.write(DATA.subarray(0, 1000), () => response.destroy());
    } else response.writeHead(206, { 'content-range': 'bytes 5-9/10' }).end('12345');
  };
  await assertRefused(blobOf(shifted), 'registry_unavailable', /another range/u);
  await assertRefused(
    blobOf((_, response) => void response.writeHead(404).end()),
    'image_not_found',
    /check name/u,
  );
});

test('a download that is too slow fails after a few tries', async () => {
  let tries = 0;
  const drip: Handler = (_, response) => {
    tries++;
    const timer = setInterval(() => response.write('d'), 20);
    response.on('close', () => clearInterval(timer));
  };
  await assertRefused(blobOf(drip), 'registry_unavailable', /almost nothing|match|status/u);
  assert.ok(tries <= 5);
});

test('at most three blobs of one registry are downloaded at a time', async () => {
  let running = 0;
  let most = 0;
  const counting: Handler = (request, response) => {
    most = Math.max(most, ++running);
    response.write(DATA.subarray(0, 100), () =>
      setTimeout(() => {
        running--;
        response.end(DATA.subarray(100));
      }, 20),
    );
  };
  await using server = await startServer(counting);
  using client = openClient({ mirrors: { 'docker.io': server.url } });
  await Promise.all(Array.from({ length: 9 }, () => getBlob(client, ask('x:1'), BLOB)));
  assert.equal(most, 3);
});

test('an abort ends the download with its own reason', async () => {
  await using server = await startServer((_, response) => void response.write('x'));
  using client = openClient({ mirrors: { 'docker.io': server.url } });
  const stop = new AbortController();
  const read = async () => {
    for await (const _ of client.readBlob(ask('x:1'), BLOB, stop.signal)) stop.abort(new Error('left'));
  };
  await assert.rejects(read(), /^Error: left$/u);
});
