import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Webhook } from 'standardwebhooks';
import { errorBody, LoopbackServer, sendJson } from '../testing/loopback-server.ts';
import { verifyWebhook, WebhookVerificationError } from './verify-webhook.ts';

const ID = 'hook0123456789abcdef0123';
const SECRET = `whsec_${Buffer.alloc(32, 7).toString('base64')}`;
const RECORD = {
  id: ID,
  url: 'https://example.test/hook',
  types: ['sandbox.failed'],
  description: 'alerts',
  enabled: false,
  disabled_reason: 'failing',
  failing_since: '2026-11-21T06:30:00.000Z',
  old_secret_until: null,
  created_at: '2026-11-20T06:30:00.000Z',
};
const INFO = {
  id: ID,
  url: 'https://example.test/hook',
  types: ['sandbox.failed'],
  description: 'alerts',
  enabled: false,
  disabledReason: 'failing',
  failingSince: '2026-11-21T06:30:00.000Z',
  oldSecretUntil: null,
  createdAt: '2026-11-20T06:30:00.000Z',
};
const delivery = (id: string) => ({
  id,
  event_id: 5,
  type: 'sandbox.failed',
  state: 'pending',
  created_at: '2026-11-21T06:30:00.000Z',
  next_attempt_at: '2026-11-21T06:35:00.000Z',
  attempts: [
    {
      attempt: 1,
      started_at: '2026-11-21T06:30:00.000Z',
      duration_ms: 12,
      status: 500,
      error: 'the receiver answered 500',
      response: 'busy',
    },
  ],
});

test('a webhook is created, found, changed, rotated and deleted', async () => {
  await using server = await LoopbackServer.start(({ method, url }, response) => {
    if (method === 'DELETE') response.writeHead(204).end();
    else if (url.endsWith('nothing'))
      sendJson(response, { status: 404, body: errorBody('not_found', 'none') });
    else if (url === '/v1/webhooks' && method === 'GET') sendJson(response, { body: [RECORD] });
    else if (method === 'POST') sendJson(response, { status: 201, body: { ...RECORD, secret: SECRET } });
    else sendJson(response, { body: RECORD });
  });
  const { webhooks } = server.client();
  assert.deepEqual(await webhooks.create({ url: INFO.url, types: ['sandbox.failed'] }), {
    ...INFO,
    secret: SECRET,
  });
  assert.deepEqual(server.lastJson, { url: INFO.url, types: ['sandbox.failed'] });
  assert.deepEqual(await webhooks.list(), [INFO]);
  assert.deepEqual(await webhooks.get(ID), INFO);
  assert.equal(await webhooks.get('nothing'), null);
  assert.deepEqual(await webhooks.update(ID, { enabled: true, description: '' }), INFO);
  assert.deepEqual(server.lastJson, { enabled: true, description: '' });
  assert.equal((await webhooks.rotateSecret(ID, { overlapSeconds: 60 })).secret, SECRET);
  assert.deepEqual(server.lastJson, { overlap_seconds: 60 });
  await webhooks.delete(ID);
  assert.deepEqual(
    server.seen.map(({ method, url }) => `${method} ${url}`),
    [
      'POST /v1/webhooks',
      'GET /v1/webhooks',
      `GET /v1/webhooks/${ID}`,
      'GET /v1/webhooks/nothing',
      `PATCH /v1/webhooks/${ID}`,
      `POST /v1/webhooks/${ID}/rotate`,
      `DELETE /v1/webhooks/${ID}`,
    ],
  );
  await assert.rejects(async () => webhooks.update(ID, { uri: 'x' } as object), /unknown option "uri"/u);
  await assert.rejects(async () => webhooks.get(''), TypeError);
});

test('deliveries are listed page by page, tested and retried', async () => {
  await using server = await LoopbackServer.start(({ method, url }, response) => {
    const headers = { link: `</v1/webhooks/${ID}/deliveries?cursor=x>; rel="next"` };
    if (method === 'POST') sendJson(response, { body: delivery('msg9') });
    else if (url.includes('cursor')) sendJson(response, { body: [delivery('msg2')] });
    else sendJson(response, { body: [delivery('msg1')], headers });
  });
  const { webhooks } = server.client();
  const listed = await webhooks.deliveries(ID, { state: 'pending' });
  assert.deepEqual(
    listed.map(({ id }) => id),
    ['msg1', 'msg2'],
  );
  assert.deepEqual(listed[0], {
    id: 'msg1',
    eventId: 5,
    type: 'sandbox.failed',
    state: 'pending',
    createdAt: '2026-11-21T06:30:00.000Z',
    nextAttemptAt: '2026-11-21T06:35:00.000Z',
    attempts: [
      {
        attempt: 1,
        startedAt: '2026-11-21T06:30:00.000Z',
        durationMs: 12,
        status: 500,
        error: 'the receiver answered 500',
        response: 'busy',
      },
    ],
  });
  assert.equal((await webhooks.test(ID)).id, 'msg9');
  assert.equal((await webhooks.retry(ID, 'msg1')).id, 'msg9');
  assert.equal(server.last.url, `/v1/webhooks/${ID}/deliveries/msg1/retry`);
});

const BODY = JSON.stringify({ type: 'sandbox.failed', data: { reason: 'é \u2028' } });

/** Signs as an independent implementation does. */
function sign(body = BODY, { secret = SECRET, atMs = Date.now() } = {}): Record<string, string> {
  return {
    'webhook-id': 'msg1',
    'webhook-timestamp': String(Math.floor(atMs / 1000)),
    'webhook-signature': new Webhook(secret).sign('msg1', new Date(atMs), body),
  };
}

test('a message that an independent implementation has signed is accepted, in each form of request', async () => {
  const expected = { id: 'msg1', type: 'sandbox.failed', payload: JSON.parse(BODY) as object };
  assert.deepEqual(await verifyWebhook(BODY, sign(), SECRET), expected);
  assert.deepEqual(await verifyWebhook(BODY, new Headers(sign()), SECRET), expected);
  assert.deepEqual(await verifyWebhook(new TextEncoder().encode(BODY), sign(), SECRET), expected);
  const other = sign(BODY, { secret: `whsec_${Buffer.alloc(32, 8).toString('base64')}` });
  const both = `v1a,AAAA ${other['webhook-signature']} ${sign()['webhook-signature']}`;
  assert.deepEqual(await verifyWebhook(BODY, { ...sign(), 'webhook-signature': both }, SECRET), expected);
  const old = sign(BODY, { atMs: Date.now() - 900_000 });
  assert.deepEqual(await verifyWebhook(BODY, old, SECRET, { toleranceSeconds: 1000 }), expected);
});

test('a message that was changed, is too old, or is signed by another is refused', async () => {
  const headers = sign();
  for (const [body, changes, problem] of [
    [`${BODY} `, {}, /no signature fits/u],
    [BODY, { 'webhook-id': 'msg2' }, /no signature fits/u],
    [BODY, { 'webhook-timestamp': String(Number(headers['webhook-timestamp']) + 1) }, /no signature fits/u],
    [
      BODY,
      { 'webhook-signature': headers['webhook-signature']!.replace('v1,', 'v2,') },
      /no signature fits/u,
    ],
    [BODY, { 'webhook-signature': 'v1,%' }, /no signature fits/u],
    [BODY, { 'webhook-signature': undefined }, /no header webhook-signature/u],
    [BODY, { 'webhook-id': undefined }, /no header webhook-id/u],
    [BODY, { 'webhook-timestamp': 'x' }, /is no time/u],
    [BODY, sign(BODY, { atMs: Date.now() - 400_000 }), /too far from now/u],
    [BODY, sign(BODY, { atMs: Date.now() + 400_000 }), /too far from now/u],
  ] as const)
    await assert.rejects(verifyWebhook(body, { ...headers, ...changes }, SECRET), (error) => {
      assert.ok(error instanceof WebhookVerificationError, String(error));
      assert.match(error.message, problem);
      return true;
    });
  for (const secret of ['', 'whsec_', 'whsec_%', 'secret'])
    await assert.rejects(async () => verifyWebhook(BODY, headers, secret), TypeError);
});
