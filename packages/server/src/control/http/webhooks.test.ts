/** Webhooks, from the change of a sandbox to real receivers on loopback. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import type { CreatedWebhook, DeliveryRecord, WebhookRecord } from '@coppice/contract';
import { sql } from 'kysely';
import { Webhook } from 'standardwebhooks';
import { TestAuthority } from '../../lib/tls/testing/certificate.ts';
import { DeliveryStore } from '../webhooks/delivery-store.ts';
import { WebhookReceiver, type AnswerWebhook } from '../webhooks/testing/webhook-receiver.ts';
import { AccountClient } from '../testing/requests/account-client.ts';
import { INVITATION, startHarnessWith, waitFor, type ControlHarness } from '../testing/control-harness.ts';

const DEADLINE_MS = 700;
const FAILING_MS = 1_500;
const RETRY_DELAYS_MS = [50, 100];
const MAX_ATTEMPTS = RETRY_DELAYS_MS.length + 1;
const BASE = { reconcileIntervalMs: 100, captureGraceMs: 300, shutdownDeadlineMs: 5_000 };
const LIMITS = {
  ...BASE,
  webhookDeadlineMs: DEADLINE_MS,
  webhookRetryDelaysMs: RETRY_DELAYS_MS,
  webhookFailingMs: 60_000,
};
const authority = new TestAuthority();
const OPENED = {
  webhookOpenRanges: ['127.0.0.0/8'],
  certificatesPath: authority.certPath,
  limits: LIMITS,
};

let harness: ControlHarness;
before(async () => {
  harness = await startHarnessWith(OPENED);
});
after(async () => {
  await harness[Symbol.asyncDispose]();
  authority[Symbol.dispose]();
});

const path = ({ id }: { id: string }, rest = ''): string => `/v1/webhooks/${id}${rest}`;

async function create(url: string, more: object = {}): Promise<CreatedWebhook> {
  const { status, body } = await harness.call('POST', '/v1/webhooks', { body: { url, ...more } });
  assert.equal(status, 201, JSON.stringify(body));
  return body;
}

const remove = async (hook: { id: string }): Promise<void> =>
  assert.equal((await harness.call('DELETE', path(hook))).status, 204);
const get = async (hook: { id: string }): Promise<WebhookRecord> =>
  (await harness.call('GET', path(hook))).body;
const listDeliveries = async (hook: { id: string }, query = ''): Promise<DeliveryRecord[]> =>
  (await harness.call('GET', path(hook, `/deliveries${query}`))).body;
const sendTest = async (hook: { id: string }): Promise<DeliveryRecord> =>
  (await harness.call('POST', path(hook, '/test'))).body;

/** Waits until a delivery is as it should be. */
async function waitForDelivery(
  hook: { id: string },
  what: string,
  fits: (delivery: DeliveryRecord) => boolean,
): Promise<DeliveryRecord> {
  let found: DeliveryRecord | undefined;
  await waitFor(what, async () => {
    found = (await listDeliveries(hook)).find(fits);
    return found !== undefined;
  });
  return found!;
}

/** Sends a test to a receiver, and waits for the first attempt. */
async function tryOnce(answer: AnswerWebhook): Promise<DeliveryRecord['attempts'][0] & { state: string }> {
  await using receiver = await WebhookReceiver.start(answer);
  const hook = await create(receiver.url());
  await sendTest(hook);
  const { attempts, state } = await waitForDelivery(hook, 'an attempt', (one) => one.attempts.length > 0);
  await remove(hook);
  return { ...attempts[0]!, state };
}

test('an event is delivered once to each webhook that wants it, signed as Standard Webhooks say', async () => {
  await using receiver = await WebhookReceiver.start();
  await using other = await WebhookReceiver.start();
  const hook = await create(receiver.url(), { types: ['sandbox.created', 'sandbox.destroyed'] });
  const unwanted = await create(other.url(), { types: ['disk.created'], description: 'disks' });
  assert.match(hook.secret, /^whsec_[A-Za-z0-9+/]{43}=$/u);
  const { id } = await harness.create({ labels: { of: 'é \u2028' } });
  await harness.call('POST', `/v1/runs/${id}/hibernate`);
  await harness.call('DELETE', `/v1/runs/${id}`);
  await waitFor('the webhooks', () => receiver.received.length === 2);
  const events = (await harness.call('GET', `/v1/events?run_id=${id}&type=sandbox.created`)).body;
  const created = receiver.received.find(({ body }) => body.includes('sandbox.created'))!;
  assert.deepEqual(new Webhook(hook.secret).verify(created.body, created.headers), events[0]);
  assert.throws(() => new Webhook(unwanted.secret).verify(created.body, created.headers));
  const { method, url, headers } = created;
  assert.deepEqual([method, url, headers['content-type']], ['POST', '/hook?a=b', 'application/json']);
  assert.ok(Math.abs(Number(headers['webhook-timestamp']) - Date.now() / 1000) < 60);
  const delivery = await waitForDelivery(hook, 'the record', (one) => one.id === headers['webhook-id']);
  await waitFor('the end', async () => (await listDeliveries(hook, '?state=pending')).length === 0);
  assert.deepEqual([delivery.event_id, delivery.type], [events[0].id, 'sandbox.created']);
  assert.equal(receiver.received.length, 2);
  assert.deepEqual(await listDeliveries(unwanted), []);
  await remove(hook);
  await remove(unwanted);
});

test('a failed attempt is repeated with the same id and body, and the log shows each', async () => {
  await using receiver = await WebhookReceiver.start((response, count) =>
    count === 1 ? response.writeHead(500).end('busy \0') : response.writeHead(202).end('taken'),
  );
  const hook = await create(receiver.url());
  const { id } = await sendTest(hook);
  await waitFor('the failure', async () => (await get(hook)).failing_since !== null);
  const delivery = await waitForDelivery(hook, 'the success', ({ state }) => state === 'delivered');
  assert.deepEqual([delivery.id, delivery.next_attempt_at], [id, null]);
  assert.deepEqual(
    delivery.attempts.map(({ attempt, status, error, response }) => [attempt, status, error, response]),
    [
      [1, 500, 'the receiver answered 500', 'busy �'],
      [2, 202, null, 'taken'],
    ],
  );
  const [first, second] = receiver.received;
  assert.deepEqual(
    [first!.headers['webhook-id'], first!.body],
    [second!.headers['webhook-id'], second!.body],
  );
  assert.ok(second!.atMs - first!.atMs >= RETRY_DELAYS_MS[0]! * 0.8);
  assert.equal((await get(hook)).failing_since, null);
  await remove(hook);
});

test('after the last attempt it has failed, and can be sent once more by hand', async () => {
  let isWell = false;
  await using receiver = await WebhookReceiver.start((response) =>
    response.writeHead(isWell ? 200 : 503).end(),
  );
  const hook = await create(receiver.url());
  const { id } = await sendTest(hook);
  const failed = await waitForDelivery(hook, 'the last attempt', ({ state }) => state === 'failed');
  assert.deepEqual([failed.attempts.length, failed.next_attempt_at], [MAX_ATTEMPTS, null]);
  isWell = true;
  const retried = await harness.call('POST', path(hook, `/deliveries/${id}/retry`));
  assert.equal(retried.status, 200);
  assert.match(retried.body.state, /^(?:pending|delivered)$/u);
  const delivered = await waitForDelivery(hook, 'the success', ({ state }) => state === 'delivered');
  assert.equal(delivered.attempts.at(-1)!.attempt, MAX_ATTEMPTS + 1);
  const unknown = await harness.call('POST', path(hook, '/deliveries/msgnothing/retry'));
  assert.equal(unknown.status, 404);
  await remove(hook);
});

test('a receiver that hangs is left at the deadline, and delays no other webhook', async () => {
  await using hanging = await WebhookReceiver.start(() => undefined);
  await using receiver = await WebhookReceiver.start();
  const hook = await create(hanging.url(), { types: ['sandbox.created'] });
  for (let n = 0; n < 5; n += 1) await sendTest(hook);
  await waitFor('the requests', () => hanging.received.length >= 2);
  const other = await create(receiver.url());
  const startedAt = performance.now();
  await sendTest(other);
  await waitFor('the other webhook', () => receiver.received.length === 1);
  assert.ok(performance.now() - startedAt < DEADLINE_MS);
  const { attempts } = await waitForDelivery(hook, 'an attempt', (one) => one.attempts.length > 0);
  assert.deepEqual([attempts[0]!.status, attempts[0]!.error], [null, `no answer within ${DEADLINE_MS} ms`]);
  assert.ok(attempts[0]!.duration_ms < 3 * DEADLINE_MS);
  assert.equal(hanging.mostOpen, 2);
  await remove(hook);
  await remove(other);
  await waitFor('the connections to end', () => hanging.open === 0);
});

test('a redirect is not followed', async () => {
  await using target = await WebhookReceiver.start();
  const attempt = await tryOnce((response) =>
    response.writeHead(302, { location: target.url() }).end('moved'),
  );
  assert.deepEqual([attempt.status, attempt.response, attempt.state], [302, 'moved', 'pending']);
  assert.equal(target.connections, 0);
});

test('of an answer only the status and the first kilobyte are read, however long and slow it is', async () => {
  const huge = await tryOnce((response) => {
    response.writeHead(200);
    const write = (): boolean => response.write('x'.repeat(64 << 10));
    response.on('drain', () => {
      while (write()) continue;
    });
    write();
  });
  assert.deepEqual([huge.status, huge.state, huge.response], [200, 'delivered', 'x'.repeat(1024)]);
  let timer: NodeJS.Timeout | undefined;
  const slow = await tryOnce((response) => {
    response.writeHead(200);
    timer = setInterval(() => response.write('y'), 50);
  });
  clearInterval(timer);
  assert.deepEqual([slow.status, slow.state], [200, 'delivered']);
  assert.match(slow.response, /^y+$/u);
  assert.ok(slow.duration_ms < 3 * DEADLINE_MS);
  const endlessHead = await tryOnce((response) => {
    response.socket!.write(`HTTP/1.1 200 OK\r\nx: ${'z'.repeat(64 << 10)}\r\n\r\n`);
  });
  assert.deepEqual([endlessHead.status, endlessHead.state], [null, 'pending']);
});

test('a receiver that cannot be reached, or is none, is a failed attempt', async () => {
  const receiver = await WebhookReceiver.start();
  const refusing = await create(receiver.url());
  await receiver[Symbol.asyncDispose]();
  await sendTest(refusing);
  const { attempts } = await waitForDelivery(refusing, 'an attempt', (one) => one.attempts.length > 0);
  assert.match(attempts[0]!.error!, /ECONNREFUSED/u);
  await remove(refusing);
  const broken = await tryOnce((response) => response.socket!.destroy());
  assert.deepEqual([broken.status, broken.state], [null, 'pending']);
});

test('a certificate must be valid for the name; the judged address is dialled, and the name is verified', async () => {
  for (const [subjectAltName, host, problem] of [
    ['DNS:localhost', 'localhost', null],
    ['IP:127.0.0.1', '127.0.0.1', null],
    ['DNS:other.test', 'localhost', /altnames/u],
    ['DNS:localhost', '127.0.0.1', /altnames/u],
  ] as const) {
    await using receiver = await WebhookReceiver.start(
      undefined,
      authority.issue('server', { subjectAltName }),
    );
    const hook = await create(receiver.url(host));
    await sendTest(hook);
    const { attempts } = await waitForDelivery(hook, 'an attempt', (one) => one.attempts.length > 0);
    if (problem === null) assert.equal(attempts[0]!.status, 204, `${host}: ${attempts[0]!.error}`);
    else assert.match(attempts[0]!.error ?? '', problem);
    assert.equal(receiver.received.length, problem === null ? 1 : 0);
    await remove(hook);
  }
  using unknown = new TestAuthority();
  await using receiver = await WebhookReceiver.start(undefined, unknown.issue('server'));
  const hook = await create(receiver.url());
  await sendTest(hook);
  const { attempts } = await waitForDelivery(hook, 'an attempt', (one) => one.attempts.length > 0);
  assert.match(attempts[0]!.error!, /certificate/u);
  assert.equal(receiver.received.length, 0);
  await remove(hook);
});

test('a rotated secret signs along with the new one until the overlap ends', async () => {
  await using receiver = await WebhookReceiver.start();
  const hook = await create(receiver.url());
  const rotate = async (overlap_seconds?: number): Promise<CreatedWebhook> => {
    const body = overlap_seconds === undefined ? {} : { overlap_seconds };
    const answer = await harness.call('POST', path(hook, '/rotate'), { body });
    assert.equal(answer.status, 200);
    return answer.body;
  };
  const receive = async (): Promise<{ body: string; headers: Record<string, string> }> => {
    const count = receiver.received.length;
    await sendTest(hook);
    await waitFor('a webhook', () => receiver.received.length > count);
    return receiver.received.at(-1)!;
  };
  const accepts = (secret: string, { body, headers }: Awaited<ReturnType<typeof receive>>): boolean => {
    try {
      new Webhook(secret).verify(body, headers);
      return true;
    } catch {
      return false;
    }
  };
  const second = await rotate();
  assert.ok(Date.parse(second.old_secret_until!) > Date.now() + 23 * 3_600_000);
  const both = await receive();
  assert.deepEqual([accepts(hook.secret, both), accepts(second.secret, both)], [true, true]);
  const third = await rotate(1);
  const until = Date.parse(third.old_secret_until!);
  assert.ok(!accepts(hook.secret, await receive()));
  await waitFor('the end of the overlap', () => Date.now() > until);
  const later = await receive();
  assert.deepEqual([accepts(second.secret, later), accepts(third.secret, later)], [false, true]);
  const fourth = await rotate(0);
  const now = await receive();
  assert.deepEqual([accepts(third.secret, now), accepts(fourth.secret, now)], [false, true]);
  assert.ok(!('secret' in (await get(hook))));
  await remove(hook);
});

test('a receiver that answers 410 disables its webhook, which is an event, and enabling it sends what waits', async () => {
  let isGone = true;
  await using receiver = await WebhookReceiver.start((response) =>
    response.writeHead(isGone ? 410 : 200).end(),
  );
  const hook = await create(receiver.url());
  await sendTest(hook);
  await waitFor('the webhook to be disabled', async () => !(await get(hook)).enabled);
  assert.equal((await get(hook)).disabled_reason, 'gone');
  let events: { data: object }[] = [];
  await waitFor('the event', async () => {
    events = (await harness.call('GET', '/v1/events?type=webhook.disabled')).body;
    return events.length === 1;
  });
  assert.deepEqual(events[0]!.data, { webhook_id: hook.id, reason: 'gone' });
  for (const rest of ['/test', `/deliveries/${(await listDeliveries(hook))[0]!.id}/retry`]) {
    const refused = await harness.call('POST', path(hook, rest));
    assert.deepEqual([refused.status, refused.body.error.code], [409, 'invalid_state'], rest);
  }
  isGone = false;
  const enabled = await harness.call('PATCH', path(hook), { body: { enabled: true } });
  assert.deepEqual([enabled.body.enabled, enabled.body.disabled_reason], [true, null]);
  await sendTest(hook);
  await waitForDelivery(hook, 'the success', ({ state }) => state === 'delivered');
  await remove(hook);
});

test('a webhook whose receiver fails for too long is disabled', async () => {
  await using other = await startHarnessWith({
    ...OPENED,
    limits: { ...LIMITS, webhookFailingMs: FAILING_MS, webhookRetryDelaysMs: Array(60).fill(100) },
  });
  await using receiver = await WebhookReceiver.start((response) => response.writeHead(500).end());
  const hook = (await other.call('POST', '/v1/webhooks', { body: { url: receiver.url() } })).body;
  await other.call('POST', path(hook, '/test'));
  await waitFor('the webhook to be disabled', async () => {
    return (await other.call('GET', path(hook))).body.disabled_reason === 'failing';
  });
  const count = receiver.received.length;
  assert.ok(receiver.received.at(-1)!.atMs - receiver.received[0]!.atMs >= FAILING_MS * 0.9);
  await other.create();
  await waitFor('the event', async () => {
    return (await other.call('GET', '/v1/events?type=webhook.disabled')).body.length === 1;
  });
  assert.equal(receiver.received.length, count, 'nothing more is sent');
});

test('a webhook with too many deliveries that wait is disabled, and its organization keeps its events', async () => {
  await using receiver = await WebhookReceiver.start();
  const hook = await create(receiver.url());
  await using db = harness.openDatabase();
  await sql`
    INSERT INTO webhook_deliveries (id, webhook_id, type, payload, state, next_at, created_at)
    SELECT 'msgold' || n, ${hook.id}, 'webhook.test', '{}', 'pending', ${Date.now() + 3_600_000}, 1
    FROM generate_series(1, 10000) AS n`.execute(db);
  const { id } = await harness.create();
  // They are counted after each thousand.
  await sql`
    INSERT INTO pending_events (organization_id, type, at, data)
    SELECT organization_id, 'credit.exhausted', 1, '{}' FROM sandboxes, generate_series(1, 2500) WHERE id = ${id}
  `.execute(db);
  await waitFor('the webhook to be disabled', async () => (await get(hook)).disabled_reason === 'backlog');
  assert.equal((await harness.call('GET', `/v1/events?run_id=${id}`)).body.length, 1);
  await new DeliveryStore(db).purge(Date.now());
  const old = await sql`SELECT 1 FROM webhook_deliveries WHERE id LIKE 'msgold%'`.execute(db);
  assert.deepEqual(old.rows, []);
  await remove(hook);
});

test('a delivery that is pending when control stops is sent after the restart, with the same id', async () => {
  let isWell = false;
  await using receiver = await WebhookReceiver.start((response) => {
    if (isWell) response.writeHead(200).end();
  });
  const hook = await create(receiver.url());
  const { id } = await sendTest(hook);
  await waitFor('the request', () => receiver.received.length === 1);
  await harness.stopControl();
  isWell = true;
  await harness.startControl(OPENED);
  await waitForDelivery(hook, 'the success', ({ state }) => state === 'delivered');
  assert.deepEqual(
    receiver.received.map(({ headers }) => headers['webhook-id']),
    [id, id],
  );
  await remove(hook);
});

test('addresses of this host and of private networks are closed, whatever their spelling or name', async () => {
  await using closed = await startHarnessWith({ limits: LIMITS });
  const ask = async (url: string) => closed.call('POST', '/v1/webhooks', { body: { url } });
  for (const host of [
    '127.0.0.1',
    '0x7f000001',
    '2130706433',
    '10.1.2.3',
    '192.168.0.1',
    '169.254.169.254',
    '100.64.0.1',
    '0.0.0.0',
    '[::1]',
    '[::ffff:10.0.0.1]',
    '[fd00::1]',
    '[64:ff9b::a00:1]',
  ]) {
    const { status, body } = await ask(`https://${host}/hook`);
    assert.deepEqual([status, body.error?.code], [400, 'invalid_request'], host);
    assert.match(body.error.message, /^url: is private, reserved or of this host/u, host);
  }
  await using receiver = await WebhookReceiver.start(undefined, authority.issue('server'));
  const named = await ask(receiver.url('localhost'));
  assert.equal(named.status, 201, 'names are judged when they are resolved');
  await closed.call('POST', path(named.body, '/test'));
  let attempts: DeliveryRecord['attempts'] = [];
  await waitFor('an attempt', async () => {
    [{ attempts }] = (await closed.call('GET', path(named.body, '/deliveries'))).body;
    return attempts.length > 0;
  });
  assert.match(attempts[0]!.error!, /private, reserved or of this host/u);
  assert.equal(receiver.connections, 0);
  const absent = await ask('https://absent.invalid/');
  await closed.call('POST', path(absent.body, '/test'));
  await waitFor('an attempt', async () => {
    const [delivery] = (await closed.call('GET', path(absent.body, '/deliveries'))).body;
    return delivery.attempts[0]?.error === attempts[0]!.error;
  });
});

test('a field that is invalid is named, with the remedy', async () => {
  const valid = { url: 'https://example.test/hook' };
  for (const [body, message] of [
    [{}, /^url/u],
    [{ url: 'example.test' }, /^url: must be an address such as https/u],
    [{ url: 'ftp://example.test' }, /^url: must be an address such as https/u],
    [{ url: 'https://u:p@example.test' }, /^url: must not contain a user/u],
    [{ url: 'http://8.8.8.8/' }, /^url: is public, so the URL must begin with https/u],
    [{ url: `https://example.test/${'x'.repeat(2048)}` }, /^url/u],
    [{ ...valid, types: ['no.such'] }, /^types/u],
    [{ ...valid, types: 'sandbox.created' }, /^types/u],
    [{ ...valid, enabled: 1 }, /^enabled/u],
    [{ ...valid, description: 'x'.repeat(257) }, /^description/u],
    [{ ...valid, secret: 'whsec_x' }, /secret/u],
  ] as const) {
    const answer = await harness.call('POST', '/v1/webhooks', { body });
    assert.equal(answer.status, 400, JSON.stringify(body));
    assert.match(answer.body.error.message, message);
  }
  const hook = await create(valid.url, { types: ['disk.created', 'disk.created'] });
  assert.deepEqual([hook.types, hook.enabled, hook.description], [['disk.created'], true, '']);
  const changed = await harness.call('PATCH', path(hook), {
    body: { url: 'https://other.test/', types: [], description: 'd', enabled: false },
  });
  assert.deepEqual(
    [changed.body.url, changed.body.types, changed.body.description, changed.body.enabled],
    ['https://other.test/', [], 'd', false],
  );
  assert.equal((await harness.call('PATCH', path(hook), { body: { url: 'https://[::1]/' } })).status, 400);
  const rotated = await harness.call('POST', path(hook, '/rotate'), { body: { overlap_seconds: 604_801 } });
  assert.deepEqual([rotated.status, (await listDeliveries(hook)).length], [400, 0]);
  await remove(hook);
  assert.equal((await harness.call('GET', path(hook))).status, 404);
});

test('webhooks belong to the organization: a key of one team sees none, and a read-only key changes none', async () => {
  const hook = await create('https://example.test/hook');
  const owner = await AccountClient.signUp(harness, { invitation: INVITATION });
  const makeKey = async (limits: object): Promise<string> =>
    (await owner.call('POST', `${owner.team}/keys`, { name: 'a key', ...limits })).body.key;
  const theirs = await harness.addOrganization();
  const operations = [
    ['GET', path(hook)],
    ['PATCH', path(hook)],
    ['DELETE', path(hook)],
    ['POST', path(hook, '/rotate')],
    ['POST', path(hook, '/test')],
    ['GET', path(hook, '/deliveries')],
    ['POST', path(hook, '/deliveries/msg1/retry')],
  ] as const;
  for (const [apiKey, { reading, writing }] of [
    [await makeKey({ scope: 'read' }), { reading: 200, writing: 403 }],
    [await makeKey({ team_only: true }), { reading: 403, writing: 403 }],
    [theirs, { reading: 404, writing: 404 }],
  ] as const)
    for (const [method, url] of operations) {
      const answer = await harness.call(method, url, { apiKey, ...(method === 'PATCH' ? { body: {} } : {}) });
      assert.equal(answer.status, method === 'GET' ? reading : writing, `${method} ${url}`);
    }
  assert.deepEqual((await harness.call('GET', '/v1/webhooks', { apiKey: theirs })).body, []);
  assert.deepEqual(
    (await harness.call('GET', '/v1/webhooks')).body.map(({ id }: { id: string }) => id),
    [hook.id],
  );
  await remove(hook);
});

test('an organization has twenty webhooks at most', async () => {
  const apiKey = await harness.addOrganization();
  const body = { url: 'https://example.test/hook' };
  const ask = () => harness.call('POST', '/v1/webhooks', { apiKey, body });
  const statuses = (await Promise.all(Array.from({ length: 22 }, ask))).map(({ status }) => status);
  assert.equal(statuses.filter((status) => status === 201).length, 20);
  assert.equal((await ask()).body.error.code, 'capacity');
});
