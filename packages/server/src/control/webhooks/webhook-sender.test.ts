/** The senders of two controls on one database. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import pino from 'pino';
import { readTrust, SYSTEM_CERTIFICATES } from '../../lib/tls/trust.ts';
import { newId } from '../../lib/new-id.ts';
import { DEFAULT_CONTROL_LIMITS } from '../control-config.ts';
import type { Leadership } from '../ownership/leadership.ts';
import { SecretBox } from '../secrets/secret-box.ts';
import { waitFor } from '../testing/control-harness.ts';
import { startTwoLeases, type TwoLeases } from '../testing/controls/two-leases.ts';
import { DeliveryStore } from './delivery-store.ts';
import { Receivers } from './receivers.ts';
import { WebhookReceiver } from './testing/webhook-receiver.ts';
import { bindWebhookSecret, generateWebhookSecret } from './webhook-secret.ts';
import { WebhookSender } from './webhook-sender.ts';
import { WebhookStore } from './webhook-store.ts';

const secrets = new SecretBox(Buffer.alloc(32, 1));
const log = pino({ level: 'silent' });

let controls: TwoLeases;
let receiver: WebhookReceiver;
beforeEach(async () => {
  controls = await startTwoLeases();
  receiver = await WebhookReceiver.start();
});
afterEach(async () => {
  await receiver[Symbol.asyncDispose]();
  await controls[Symbol.asyncDispose]();
});

function openSender(leadership: Leadership): WebhookSender {
  const { db } = controls;
  const stores = { db, webhooks: new WebhookStore(db), deliveries: new DeliveryStore(db) };
  const sender = new WebhookSender({
    ...stores,
    leadership,
    receivers: new Receivers(['127.0.0.0/8']),
    secrets,
    trust: () => readTrust(SYSTEM_CERTIFICATES),
    clock: { wallMs: Date.now },
    limits: DEFAULT_CONTROL_LIMITS,
    log,
  });
  sender.start();
  return sender;
}

/** Adds a webhook of the receiver, and deliveries that are due, as the sequencer of any control does. */
async function deliver(count: number): Promise<void> {
  const { organizationId: organization_id } = controls.owner;
  const id = newId('hook');
  const sealed_secret = secrets.seal(generateWebhookSecret(), bindWebhookSecret(organization_id, id));
  const row = { id, organization_id, url: receiver.url(), types: [], description: '', enabled: true };
  await controls.db
    .transaction()
    .execute((transaction) =>
      new WebhookStore(transaction).insert({ ...row, sealed_secret, created_at: Date.now() }, 1),
    );
  const deliveries = Array.from({ length: count }, () => ({
    id: newId('msg'),
    webhook_id: id,
    event_id: null,
    type: 'webhook.test',
    payload: '{}',
    state: 'pending' as const,
    next_at: Date.now(),
    created_at: Date.now(),
  }));
  await new DeliveryStore(controls.db).insert(deliveries);
}

test('each delivery is sent once with two controls, soon after any of them has made it', async () => {
  await using _second = openSender({ isLeading: false });
  await using _first = openSender({ isLeading: true });
  await delay(300);
  await deliver(12);
  await waitFor('all deliveries', () => receiver.received.length === 12);
  await delay(1_200);
  assert.equal(receiver.received.length, 12);
  assert.equal(new Set(receiver.received.map(({ headers }) => headers['webhook-id'])).size, 12);
});

test('the control that leads next sends what waits', async () => {
  const second = { isLeading: false };
  await using _second = openSender(second);
  await deliver(3);
  await delay(1_200);
  assert.equal(receiver.received.length, 0);
  second.isLeading = true;
  await waitFor('all deliveries', () => receiver.received.length === 3);
});
