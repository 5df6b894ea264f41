/** Events and webhooks of real sandboxes: what a client learns while it loses connections and the service its control. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import {
  Coppice,
  verifyWebhook,
  type EventInfo,
  type LostEvents,
  type WebhookMessage,
} from '../../packages/sdk/src/index.ts';
import { findFreePort } from '../../packages/server/src/control/testing/free-port.ts';
import { WebhookReceiver } from '../../packages/server/src/control/webhooks/testing/webhook-receiver.ts';
import { pollUntil } from '../../packages/server/src/lib/waiting/deadline.ts';
import { SMALL } from '../fixtures/api/client.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import { API_KEY, type Service } from '../fixtures/service/service.ts';

const TIMEOUT_MS = 60_000;
/** An address that no host has (RFC 5737). */
const NOWHERE = '192.0.2.1';

const waitUntil = (step: string, holds: () => boolean): Promise<true> =>
  pollUntil({ step, timeoutMs: TIMEOUT_MS, intervalMs: 100 }, async () => (holds() ? true : undefined));

describe('events of real sandboxes', () => {
  let service: Service;
  let client: Coppice;
  before(async () => {
    // The client finds it again after a restart.
    const env = {
      COPPICE_LISTEN: `127.0.0.1:${await findFreePort()}`,
      COPPICE_WEBHOOK_OPEN_RANGES: '127.0.0.0/8',
    };
    service = await startPrepared({ instance: 8, env });
    client = new Coppice({ baseUrl: service.address, apiKey: API_KEY });
  });
  after(() => service[Symbol.asyncDispose]());

  test('a reader gets each event once and in order, though control is killed twice', async () => {
    const seen: (EventInfo | LostEvents)[] = [];
    const stop = new AbortController();
    const reading = (async () => {
      for await (const event of client.events({ after: 0, signal: stop.signal })) seen.push(event);
    })().catch(() => undefined);
    const types = (id: string): string[] =>
      seen.flatMap((event) => ('runId' in event && event.runId === id ? [event.type] : []));
    const sandbox = await client.sandboxes.create({
      ...SMALL,
      timeout: 0,
      labels: { job: 'events' },
      network: { deny: [NOWHERE] },
    });
    const { id } = sandbox;
    await waitUntil('the create', () => types(id).includes('sandbox.created'));
    const command = await sandbox.commands.start('sleep 2; exit 7');
    await service.killRole('control');
    await command.wait();
    const { exitCode } = await sandbox.exec(`curl -s -m 8 http://${NOWHERE}/`);
    // 127: there is no such program.
    assert.ok(exitCode !== 0 && exitCode !== 127, `curl ended with ${exitCode}`);
    await waitUntil('the refusal', () => types(id).includes('network.blocked'));
    await sandbox.hibernate();
    await service.killRole('control');
    await sandbox.resume();
    await sandbox.destroy();
    await waitUntil('the end', () => types(id).includes('sandbox.destroyed'));
    stop.abort();
    await reading;
    const ids = seen.map((event) => event.id);
    assert.deepEqual(
      ids,
      [...new Set(ids)].toSorted((one, other) => one - other),
    );
    assert.ok(seen.every(({ type }) => type !== 'lost'));
    const main = types(id).filter((type) => type.startsWith('sandbox.') || type === 'command.exited');
    assert.deepEqual(main, [
      'sandbox.created',
      'command.exited',
      'sandbox.hibernated',
      'sandbox.resumed',
      'sandbox.destroyed',
    ]);
    const exited = seen.find((event) => event.type === 'command.exited') as EventInfo;
    assert.deepEqual(
      [exited.data['command_id'], exited.data['exit_code'], exited.labels],
      [command.id, 7, { job: 'events' }],
    );
    const blocked = seen.find((event) => event.type === 'network.blocked') as EventInfo;
    assert.equal((blocked.data['refusals'] as { ip: string }[])[0]?.ip, NOWHERE);
    const listed = await client.listEvents({ runId: id });
    assert.deepEqual(
      listed.map((event) => event.type),
      types(id),
    );
  });

  test('a webhook that hangs while control is killed is delivered after the restart, signed', async () => {
    let isHanging = true;
    await using receiver = await WebhookReceiver.start((response) => {
      if (!isHanging) response.writeHead(204).end();
    });
    const webhook = await client.webhooks.create({ url: receiver.url(), types: ['sandbox.destroyed'] });
    const sandbox = await client.sandboxes.create({ ...SMALL });
    await sandbox.destroy();
    await waitUntil('the first attempt', () => receiver.received.length === 1);
    isHanging = false;
    await service.killRole('control');
    await waitUntil('the second attempt', () => receiver.received.length === 2);
    const messages: WebhookMessage[] = [];
    for (const { body, headers } of receiver.received)
      messages.push(await verifyWebhook(body, headers, webhook.secret));
    assert.deepEqual(messages[0], messages[1]);
    assert.deepEqual([messages[0]!.type, messages[0]!.payload['run_id']], ['sandbox.destroyed', sandbox.id]);
    const isDelivered = async (): Promise<true | undefined> => {
      const [delivery] = await client.webhooks.deliveries(webhook.id).then(
        (found) => found,
        () => [],
      );
      return delivery?.state === 'delivered' ? true : undefined;
    };
    await pollUntil({ step: 'the record', timeoutMs: TIMEOUT_MS, intervalMs: 200 }, isDelivered);
  });
});
