/** Challenges, tokens and the parties that receive credentials, with real servers on loopback ports. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { RegistryCredentials } from '../../../lib/protocol/runner-protocol.ts';
import { ask, assertRefused, BASIC, CREDENTIALS, getManifest, openClient } from './testing/test-client.ts';
import { guarded, serveImage, startServer, type Handler } from './testing/test-server.ts';

const image = serveImage('{}', []);
const WRONG = { username: 'ann', password: 'wrong-4711' };

test('credentials are sent when a registry asks for them, and not before', async () => {
  await using server = await startServer(guarded(() => BASIC, 'Basic realm="x"', image));
  using client = openClient({ insecureRegistries: [server.name] });
  assert.equal(await getManifest(client, ask(`${server.name}/x:1`, CREDENTIALS)), '{}');
  await getManifest(client, ask(`${server.name}/x:1`, CREDENTIALS));
  const sent = server.requests.map(({ authorization }) => authorization);
  assert.deepEqual(sent, [undefined, BASIC, BASIC]);
});

test('an image that is not shown may be private, and wrong credentials get another error than none', async () => {
  await using server = await startServer(guarded(() => BASIC, 'Basic realm="x"', image));
  using client = openClient({ insecureRegistries: [server.name] });
  const name = `${server.name}/x:1`;
  await assertRefused(
    getManifest(client, ask(name)),
    'image_not_found',
    new RegExp(`private.*PUT /v1/registries/${server.name}`, 'u'),
  );
  await assertRefused(
    getManifest(client, ask(name, WRONG)),
    'image_not_found',
    new RegExp(`refused the credentials stored for ${server.name}`, 'u'),
  );
});

test('identities of different accesses differ, and hold no secret', () => {
  using client = openClient();
  const identify = (credentials?: RegistryCredentials): string =>
    client.endpoints.identify('r.example', credentials);
  const identities = [undefined, CREDENTIALS, WRONG].map((credentials) => identify(credentials));
  assert.equal(new Set(identities).size, 3);
  assert.equal(identify({ ...CREDENTIALS }), identities[1]);
  assert.doesNotMatch(identities.join(' '), /g-4711|d-4711|ann/u);
});

/** A login server that counts its tokens, and a registry that takes only the last one. */
async function startTokenServers(lifetimeS?: number, tokenStatus = 200) {
  let token = 0;
  const login = await startServer((request, response) => {
    if (tokenStatus !== 200 || request.headers.authorization !== BASIC) {
      response.writeHead(tokenStatus === 200 ? 401 : tokenStatus).end();
      return;
    }
    response.end(JSON.stringify({ token: `token-4711-${++token}`, expires_in: lifetimeS }));
  });
  const challenge = `Bearer realm="${login.url}/token",service="a \\"quoted\\" service, with comma",scope="repository:other:push"`;
  const registry = await startServer(guarded(() => `Bearer token-4711-${token}`, challenge, image));
  return { login, registry };
}

test('a token is requested once, for this repository, and used until it expires', async () => {
  const { login, registry } = await startTokenServers(300);
  await using _login = login;
  await using _registry = registry;
  using client = openClient({ insecureRegistries: [registry.name, login.name] });
  const asked = ask(`${registry.name}/some/x:1`, CREDENTIALS);
  await Promise.all(Array.from({ length: 5 }, () => getManifest(client, asked)));
  await getManifest(client, asked);
  assert.equal(login.requests.length, 1);
  const url = new URL(login.requests[0]?.line.split(' ')[1] ?? '', login.url);
  assert.deepEqual(Object.fromEntries(url.searchParams), {
    service: 'a "quoted" service, with comma',
    scope: 'repository:some/x:pull',
  });
  assert.ok(registry.requests.every(({ authorization }) => authorization !== BASIC));
});

test('an expired token is replaced, and so is one that the registry no longer accepts', async () => {
  const { login, registry } = await startTokenServers(0);
  await using _login = login;
  await using _registry = registry;
  using client = openClient({ insecureRegistries: [registry.name, login.name] });
  for (let round = 0; round < 3; round++) {
    assert.equal(await getManifest(client, ask(`${registry.name}/x:1`, CREDENTIALS)), '{}');
  }
  assert.equal(login.requests.length, 3);
});

test('a login server that refuses, fails or answers nonsense gets its own error', async () => {
  for (const [status, code, pattern] of [
    [200, 'image_not_found', /refused the credentials stored for/u],
    [503, 'registry_unavailable', /status 503/u],
    [404, 'registry_unavailable', /login server/u],
  ] as const) {
    const { login, registry } = await startTokenServers(300, status);
    await using _login = login;
    await using _registry = registry;
    using client = openClient({ insecureRegistries: [registry.name, login.name] });
    await assertRefused(getManifest(client, ask(`${registry.name}/x:1`, WRONG)), code, pattern);
  }
  const nonsense = ['', '<html>', '{"token":5}', '{"token":"a\\nb"}', '{}', `"${'x'.repeat(100_000)}"`];
  for (const body of nonsense) {
    await using login = await startServer((_, response) => response.end(body));
    const challenge = `Bearer realm="${login.url}"`;
    await using registry = await startServer(guarded(() => 'never', challenge, image));
    using client = openClient({ insecureRegistries: [registry.name, login.name] });
    await assertRefused(
      getManifest(client, ask(`${registry.name}/x:1`)),
      'registry_unavailable',
      /gave no token/u,
    );
  }
});

test('a login server on a private address that the operator did not configure gets no request', async () => {
  await using login = await startServer((_, response) => response.end('{"token":"x"}'));
  await using registry = await startServer(
    guarded(() => 'never', `Bearer realm="${login.url}/token"`, image),
  );
  using client = openClient({ insecureRegistries: [registry.name] });
  const asked = ask(`${registry.name}/x:1`, CREDENTIALS);
  await assertRefused(getManifest(client, asked), 'invalid_image', /private address/u);
  assert.deepEqual(login.requests, []);
});

test('an unsupported or malformed challenge of a registry is refused', async () => {
  for (const challenge of ['Negotiate', '', 'Bearer', 'Bearer realm="file:///etc/passwd"', 'Bearer realm=']) {
    await using registry = await startServer(guarded(() => 'never', challenge, image));
    using client = openClient({ insecureRegistries: [registry.name] });
    const asked = ask(`${registry.name}/x:1`, CREDENTIALS);
    await assertRefused(getManifest(client, asked), 'registry_unavailable', /login/u);
  }
});

test('credentials are sent neither to a mirror nor to the target of a redirect', async () => {
  await using storage = await startServer(image);
  const redirect: Handler = (_, response) =>
    response.writeHead(307, { location: `${storage.url}/there/manifests/1?signature=4711` }).end();
  await using server = await startServer(guarded(() => BASIC, 'Basic realm="x"', redirect));
  const configured = { insecureRegistries: [server.name, storage.name] };
  using client = openClient(configured);
  await getManifest(client, ask(`${server.name}/x:1`, CREDENTIALS));
  assert.deepEqual(
    storage.requests.map(({ authorization }) => authorization),
    [undefined],
  );
  using mirrored = openClient({ mirrors: { 'r.example': server.url } });
  const asked = ask('r.example/x:1', CREDENTIALS);
  server.requests.length = 0;
  await assertRefused(getManifest(mirrored, asked), 'image_not_found', /private/u);
  assert.deepEqual(
    server.requests.map(({ authorization }) => authorization),
    [undefined],
  );
  assert.equal(mirrored.endpoints.identify('r.example', CREDENTIALS), 'anonymous');
});

test('HTTPS never falls back to plain HTTP, and a certificate must be valid unless configured otherwise', async () => {
  const tls = makeCertificate();
  await using plain = await startServer(image);
  await using login = await startServer(
    guarded(() => 'never', `Bearer realm="${plain.url}"`, image),
    tls,
  );
  await using moved = await startServer(
    (_, response) => void response.writeHead(302, { location: plain.url }).end(),
    tls,
  );
  using client = openClient({ insecureRegistries: [login.name, moved.name, plain.name] });
  const asked = ask(`${login.name}/x:1`, CREDENTIALS);
  await assertRefused(getManifest(client, asked), 'registry_unavailable', /no login server with an https/u);
  await assertRefused(
    getManifest(client, ask(`${moved.name}/x:1`)),
    'registry_unavailable',
    /from HTTPS to plain HTTP/u,
  );
  assert.deepEqual(plain.requests, []);
  using strict = openClient({ mirrors: { 'r.example': login.url, 'p.example': `https://${plain.name}` } });
  const [trusted, spoken] = ['r.example/x:1', 'p.example/x:1'].map((name) => ask(name));
  await assertRefused(getManifest(strict, trusted!), 'registry_unavailable', /certificate .* not trusted/u);
  await assertRefused(getManifest(strict, spoken!), 'invalid_image', /does not speak HTTPS/u);
});

test('a certificate authority of this machine is trusted, for the names in its certificates', async () => {
  const tls = makeCertificate();
  const directory = mkdtempSync(join(tmpdir(), 'coppice-tls-'));
  try {
    const certificatesPath = join(directory, 'ca.crt');
    writeFileSync(certificatesPath, tls.cert);
    await using server = await startServer(image, tls);
    const port = server.name.split(':')[1];
    const mirrors = { 'r.example': server.url, 's.example': `https://other.example:${port}` };
    const resolveHost = async () => [{ address: '127.0.0.1', family: 4 }];
    using client = openClient({ mirrors, certificatesPath, resolveHost });
    assert.equal(await getManifest(client, ask('r.example/x:1')), '{}');
    const misnamed = getManifest(client, ask('s.example/x:1'));
    await assertRefused(misnamed, 'registry_unavailable', /certificate .* not trusted/u);
  } finally {
    rmSync(directory, { recursive: true });
  }
});

function makeCertificate(): { key: string; cert: string } {
  const directory = mkdtempSync(join(tmpdir(), 'coppice-tls-'));
  try {
    const [key, cert] = [join(directory, 'key'), join(directory, 'cert')];
    const args = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
    execFileSync(
      'openssl',
      [...args, '-subj', '/CN=test', '-addext', 'subjectAltName=IP:127.0.0.1', '-keyout', key, '-out', cert],
      {
        stdio: 'ignore',
        timeout: 20_000,
      },
    );
    return { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') };
  } finally {
    rmSync(directory, { recursive: true });
  }
}
