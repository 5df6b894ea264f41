import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { test } from 'node:test';
import { CANARY, grantOf, ProxyFixture, waitFor, type RawClient } from './testing/proxy-fixture.ts';
import type { TestGuest } from './testing/test-guest.ts';

const OPENAI = 'api.openai.com';

interface Open {
  client: RawClient;
  /** Lets the service finish its answer. */
  finish: () => void;
  isCutAtService: () => boolean;
}

/** Opens a stream of events and waits for its first event. */
async function openStream(fixture: ProxyFixture): Promise<Open> {
  const arrived = Promise.withResolvers<ServerResponse>();
  await fixture.network.serve(OPENAI, (_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('data: 1\n\n');
    arrived.resolve(response);
  });
  fixture.guest.grant(grantOf('openai'));
  const client = await fixture.open();
  client.write('POST /proxy/openai/responses HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n');
  await client.until(/data: 1/u);
  const response = await arrived.promise;
  return { client, finish: () => void response.end('data: 2\n\n'), isCutAtService: () => response.destroyed };
}

const GOES_ON: [what: string, change: (guest: TestGuest) => void][] = [
  ['the secret is replaced', (guest) => guest.grant(grantOf('openai', { secret: 'sk-rotated-secret' }))],
  ['the secret is missing after a restart', (guest) => guest.grant(grantOf('openai', { secret: null }))],
  ['another service is granted', (guest) => guest.grant(grantOf('openai'), grantOf('github'))],
  ['a policy allows the host', (guest) => guest.restrict({ default: 'deny', allow: [OPENAI] })],
  [
    'a rule allows the request',
    (guest) => guest.grant(grantOf('openai', { endpoints: [{ methods: [], paths: ['/v1/responses'] }] })),
  ],
];

for (const [what, change] of GOES_ON)
  test(`an open request continues when ${what}`, async () => {
    await using fixture = await ProxyFixture.start();
    const { client, finish } = await openStream(fixture);
    change(fixture.guest);
    change(fixture.guest);
    finish();
    await client.until(/data: 2\n\n\r\n0\r\n\r\n$/u);
    client.socket.destroy();
  });

const IS_CUT: [what: string, change: (guest: TestGuest) => void][] = [
  ['its service is revoked', (guest) => guest.grant(grantOf('github'))],
  ['everything is revoked', (guest) => guest.grant()],
  ['a rule no longer allows it', (guest) => guest.grant(grantOf('openai', { endpoints: [] }))],
  [
    'the service is at another host',
    (guest) => {
      const grant = grantOf('openai');
      guest.grant({ ...grant, service: { ...grant.service, host: 'openai.acme.example' } });
    },
  ],
  ['a policy refuses the host', (guest) => guest.restrict({ deny: [OPENAI] })],
  ['the guest is forgotten', (guest) => guest.forget()],
];

for (const [what, change] of IS_CUT)
  test(`an open request is cut on both sides when ${what}`, async () => {
    await using fixture = await ProxyFixture.start();
    const { client, isCutAtService } = await openStream(fixture);
    fixture.guest.grant(grantOf('openai', { secret: 'sk-rotated-secret' }));
    // Subscriptions must still be in place after the first change.
    await Promise.resolve();
    change(fixture.guest);
    assert.doesNotMatch(await client.closed(), /\r\n0\r\n\r\n$/u);
    await waitFor('the end at the service', isCutAtService);
    assert.deepEqual(fixture.guest.proxied, ['openai POST /v1/responses 200']);
  });

test('a new policy ends an open request to an address that it refuses', async () => {
  await using fixture = await ProxyFixture.start();
  // The policy below refuses this address.
  fixture.network.address = '198.51.100.7';
  const { client } = await openStream(fixture);
  fixture.guest.restrict({ deny: ['198.51.100.0/24'] });
  await client.closed();
});

test('the next request sends the new secret and no longer the old one', async () => {
  const seen: (string | undefined)[] = [];
  await using fixture = await ProxyFixture.start();
  await fixture.network.serve(OPENAI, (request, response) => {
    seen.push(request.headers.authorization);
    response.end('ok');
  });
  fixture.guest.grant(grantOf('openai'));
  await fixture.ask('openai/models');
  fixture.guest.grant(grantOf('openai', { secret: 'sk-rotated-secret' }));
  await fixture.ask('openai/models');
  assert.deepEqual(seen, [`Bearer ${CANARY}`, 'Bearer sk-rotated-secret']);
});

test('idle connections of a forgotten guest are closed', async () => {
  await using fixture = await ProxyFixture.start();
  const client = await fixture.open();
  client.write('GET /proxy/openai/models HTTP/1.1\r\nHost: x\r\n\r\n');
  await client.until(/ 404 /u);
  fixture.guest.forget();
  await client.closed();
  const late = await fixture.open();
  assert.equal(await late.closed(), '');
  assert.equal(fixture.guest.watches, 0);
});

test('a request that is cut before its answer is noted, too', async () => {
  const arrived = Promise.withResolvers<void>();
  await using fixture = await ProxyFixture.start();
  await fixture.network.serve(OPENAI, () => arrived.resolve());
  fixture.guest.grant(grantOf('openai'));
  const client = await fixture.open();
  client.write('GET /proxy/openai/models HTTP/1.1\r\nHost: x\r\n\r\n');
  await arrived.promise;
  fixture.guest.grant();
  assert.equal(await client.closed(), '');
  await waitFor('the note', () => fixture.guest.proxied.length === 1);
  assert.deepEqual(fixture.guest.proxied, ['openai GET /v1/models 499']);
});
