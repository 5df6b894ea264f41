/** Receivers that misbehave, callers that interfere with attempts, and a database that does not accept their outcome. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { CreatedWebhook, DeliveryRecord, WebhookRecord } from '@coppice/contract';
import { sql } from 'kysely';
import { Webhook } from 'standardwebhooks';
import { startHarnessWith, waitFor, type ControlHarness } from '../testing/control-harness.ts';
import { DeliveryStore } from './delivery-store.ts';
import { WebhookReceiver } from './testing/webhook-receiver.ts';

const DEADLINE_MS = 500;
const RETRY_DELAYS_MS = [50, 100];

let harness: ControlHarness;
before(async () => {
  harness = await startHarnessWith({
    webhookOpenRanges: ['127.0.0.0/8'],
    limits: {
      reconcileIntervalMs: 100,
      webhookDeadlineMs: DEADLINE_MS,
      webhookRetryDelaysMs: RETRY_DELAYS_MS,
      webhookFailingMs: 60_000,
    },
  });
});
after(() => harness[Symbol.asyncDispose]());

const path = ({ id }: { id: string }, rest = ''): string => `/v1/webhooks/${id}${rest}`;

/** A webhook that is removed at the end of its test. */
async function create(url: string): Promise<CreatedWebhook & AsyncDisposable> {
  const { status, body } = await harness.call('POST', '/v1/webhooks', {
    body: { url, types: ['disk.deleted'] },
  });
  assert.equal(status, 201, JSON.stringify(body));
  const remove = async (): Promise<void> => void (await harness.call('DELETE', path(body)));
  return { ...body, [Symbol.asyncDispose]: remove };
}

const sendTest = async (hook: { id: string }): Promise<DeliveryRecord> =>
  (await harness.call('POST', path(hook, '/test'))).body;
const get = async (hook: { id: string }): Promise<WebhookRecord> =>
  (await harness.call('GET', path(hook))).body;

async function waitForDelivery(
  hook: { id: string },
  fits: (delivery: DeliveryRecord) => boolean,
): Promise<DeliveryRecord> {
  let found: DeliveryRecord | undefined;
  await waitFor('the delivery', async () => {
    const listed: DeliveryRecord[] = (await harness.call('GET', path(hook, '/deliveries'))).body;
    found = listed.find(fits);
    return found !== undefined;
  });
  return found!;
}

test('a receiver that switches to another protocol has failed, and occupies nothing', async () => {
  await using receiver = await WebhookReceiver.start((response) => {
    const head = 'HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: other\r\n\r\n';
    response.socket!.write(head);
  });
  await using hook = await create(receiver.url());
  await sendTest(hook);
  const { attempts } = await waitForDelivery(hook, ({ state }) => state === 'failed');
  assert.equal(attempts.length, RETRY_DELAYS_MS.length + 1);
  assert.deepEqual(
    [attempts[0]!.status, attempts[0]!.error],
    [null, 'the connection ended without an answer'],
  );
});

test('webhooks can be deleted while their attempts end', async () => {
  await using receiver = await WebhookReceiver.start((response) => response.writeHead(500).end());
  const statuses = await Promise.all(
    Array.from({ length: 15 }, async (_, n) => {
      const { body } = await harness.call('POST', '/v1/webhooks', { body: { url: receiver.url() } });
      await Promise.all([sendTest(body), sendTest(body)]);
      await delay(n * 10);
      return (await harness.call('DELETE', path(body))).status;
    }),
  );
  assert.deepEqual(new Set(statuses), new Set([204]));
});

test('while outcomes cannot be written, nothing is sent again and again', async () => {
  await using receiver = await WebhookReceiver.start();
  await using hook = await create(receiver.url());
  await using db = harness.openDatabase();
  await sql`
    CREATE FUNCTION refuse_attempts() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'the disk is full'; END $$`.execute(db);
  await sql`
    CREATE TRIGGER refused BEFORE INSERT ON webhook_attempts
    FOR EACH ROW EXECUTE FUNCTION refuse_attempts()`.execute(db);
  await sendTest(hook);
  await waitFor('the request', () => receiver.received.length > 0);
  await delay(1_500);
  assert.equal(receiver.received.length, 1);
  await sql`DROP FUNCTION refuse_attempts CASCADE`.execute(db);
  const { attempts } = await waitForDelivery(hook, ({ state }) => state === 'delivered');
  assert.deepEqual([attempts.length, receiver.received.length], [1, 1]);
});

test('a fault of the service is not shown, and does not count against the receiver', async () => {
  await using receiver = await WebhookReceiver.start();
  await using hook = await create(receiver.url());
  await using db = harness.openDatabase();
  await sql`UPDATE webhooks SET sealed_secret = '\\x00' WHERE id = ${hook.id}`.execute(db);
  await sendTest(hook);
  const { attempts } = await waitForDelivery(hook, (one) => one.attempts.length > 0);
  assert.match(attempts[0]!.error!, /^the service could not send it/u);
  assert.deepEqual([(await get(hook)).failing_since, receiver.received.length], [null, 0]);
});

test('a delivery that is asked for during its last attempt is sent again', async () => {
  let isWell = false;
  await using receiver = await WebhookReceiver.start((response) => {
    if (isWell) response.writeHead(204).end();
  });
  await using hook = await create(receiver.url());
  const { id } = await sendTest(hook);
  await waitFor('the last attempt', () => receiver.received.length === RETRY_DELAYS_MS.length + 1);
  isWell = true;
  const asked = await harness.call('POST', path(hook, `/deliveries/${id}/retry`));
  assert.equal(asked.status, 200);
  assert.match(asked.body.state, /^(?:pending|delivered)$/u);
  const { attempts } = await waitForDelivery(hook, ({ state }) => state === 'delivered');
  assert.equal(attempts.length, RETRY_DELAYS_MS.length + 2);
});

test('of two rotations at once, both secrets sign', async () => {
  await using receiver = await WebhookReceiver.start();
  await using hook = await create(receiver.url());
  const rotate = () => harness.call('POST', path(hook, '/rotate'), { body: {} });
  const rotated = await Promise.all([rotate(), rotate()]);
  await sendTest(hook);
  await waitFor('the message', () => receiver.received.length === 1);
  const { body, headers } = receiver.received[0]!;
  for (const answer of rotated) new Webhook(answer.body.secret).verify(body, headers);
});

test('ten tests may wait, and a URL that is new has not failed', async () => {
  await using receiver = await WebhookReceiver.start(() => undefined);
  await using hook = await create(receiver.url());
  const statuses = [];
  for (let n = 0; n < 14; n += 1) statuses.push((await harness.call('POST', path(hook, '/test'))).status);
  assert.ok(statuses.filter((status) => status === 201).length <= 11);
  assert.equal(statuses.at(-1), 429);
  await waitFor('a failure', async () => (await get(hook)).failing_since !== null);
  const body = { url: 'https://other.test/', enabled: false };
  const changed = await harness.call('PATCH', path(hook), { body });
  assert.equal(changed.body.failing_since, null);
});

test('the last attempts of a delivery, and the newest deliveries of a webhook, are kept', async () => {
  await using receiver = await WebhookReceiver.start((response) => response.writeHead(500).end());
  await using hook = await create(receiver.url());
  const { id } = await sendTest(hook);
  for (let round = 0; round < 5; round += 1) {
    await waitForDelivery(hook, ({ state }) => state === 'failed');
    await harness.call('POST', path(hook, `/deliveries/${id}/retry`));
  }
  const { attempts } = await waitForDelivery(hook, ({ state }) => state === 'failed');
  assert.ok(attempts.at(-1)!.attempt > 10);
  await using db = harness.openDatabase();
  const kept = await sql`SELECT 1 FROM webhook_attempts WHERE delivery_id = ${id}`.execute(db);
  assert.equal(kept.rows.length, 10);
  const far = Date.now() + 3_600_000;
  await sql`
    INSERT INTO webhook_deliveries (id, webhook_id, type, payload, state, next_at, created_at)
    SELECT 'msgkept' || n, ${hook.id}, 'webhook.test', '{}',
      CASE WHEN n <= 3 THEN 'pending' ELSE 'delivered' END, CASE WHEN n <= 3 THEN ${far}::bigint END, n
    FROM generate_series(1, 5000) AS n`.execute(db);
  await new DeliveryStore(db).trim(hook.id, 4);
  const { rows } = await sql<{ id: string }>`
    SELECT id FROM webhook_deliveries WHERE webhook_id = ${hook.id} ORDER BY created_at`.execute(db);
  assert.deepEqual(
    rows.map((row) => row.id),
    ['msgkept1', 'msgkept2', 'msgkept3', 'msgkept4998', 'msgkept4999', 'msgkept5000', id],
  );
});

test('organizations whose receivers do not keep up do not hold up the others', async () => {
  await using db = harness.openDatabase();
  const organizations = await Promise.all([0, 1, 2].map(() => harness.addOrganization()));
  const now = Date.now();
  const hooks: { id: string }[] = [];
  for (const [index, apiKey] of organizations.entries())
    for (let n = 0; n < (index === 2 ? 1 : 20); n += 1) {
      const body = { url: 'https://example.test/', enabled: false };
      const hook = (await harness.call('POST', '/v1/webhooks', { apiKey, body })).body;
      hooks.push(hook);
      await sql`
        INSERT INTO webhook_deliveries (id, webhook_id, type, payload, state, next_at, created_at)
        SELECT ${hook.id} || n, ${hook.id}, 'webhook.test', '{}', 'pending',
          ${index === 2 ? now : 1}::bigint, 1 FROM generate_series(1, 5) AS n`.execute(db);
    }
  const last = hooks.at(-1)!;
  const list = (open: Awaited<ReturnType<DeliveryStore['listDue']>>) =>
    // Control must not send them meanwhile.
    db
      .transaction()
      .execute(async (transaction) => {
        await sql`UPDATE webhooks SET enabled = true`.execute(transaction);
        const limits = { open, ofWebhook: 2, ofOrganization: 8, limit: 12 };
        throw new Listed(await new DeliveryStore(transaction).listDue(now, limits));
      })
      .catch((error: unknown) => {
        if (error instanceof Listed) return error.due;
        throw error;
      });
  const due = await list([]);
  assert.equal(due.length, 12);
  assert.equal(due.filter(({ webhook_id }) => webhook_id === last.id).length, 2);
  const next = await list(due.filter(({ webhook_id }) => webhook_id !== last.id));
  assert.equal(next.filter(({ webhook_id }) => webhook_id === last.id).length, 2);
  for (const counted of [due, [...due, ...next]]) {
    const ids = new Set(counted.map(({ id, organization_id }) => `${organization_id} ${id}`));
    for (const [organization, of] of Map.groupBy(ids, (id) => id.split(' ')[0]!))
      assert.ok(of.length <= 8, `${of.length} of ${organization}`);
  }
});

class Listed extends Error {
  readonly due;
  constructor(due: Awaited<ReturnType<DeliveryStore['listDue']>>) {
    super('rolled back');
    this.due = due;
  }
}
