import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createSecureContext } from 'node:tls';
import { postWebhook } from './post-webhook.ts';
import { Receivers } from './receivers.ts';
import { WebhookReceiver } from './testing/webhook-receiver.ts';

const PUBLIC = '93.184.215.14';
const message = {
  headers: {},
  body: '{}',
  trust: () => createSecureContext(),
  deadlineMs: 5_000,
  signal: new AbortController().signal,
};
const withAddresses = (openRanges: readonly string[], ...addresses: string[]): Receivers =>
  new Receivers(openRanges, async () =>
    addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
  );

test('only judged addresses are dialled, one after the other until one answers', async () => {
  await using receiver = await WebhookReceiver.start();
  // Nothing listens at the first one; the name itself does not exist.
  const receivers = withAddresses(['127.0.0.0/8'], '127.0.0.99', '127.0.0.1');
  const found = await receivers.find(receiver.url('hook.invalid'));
  assert.equal((await postWebhook(found, message)).status, 204);
  assert.match(receiver.received[0]!.headers['host']!, /^hook\.invalid:/u);
});

test('one closed address closes the name', async () => {
  for (const closed of ['10.0.0.1', '127.0.0.1', '169.254.169.254', 'fd00::1', '::ffff:192.168.0.1'])
    for (const addresses of [[closed], [PUBLIC, closed], [closed, PUBLIC]])
      await assert.rejects(
        withAddresses([], ...addresses).find('https://example.test/'),
        /cannot be resolved, or is private/u,
      );
  assert.equal((await withAddresses([], PUBLIC).find('https://example.test/')).addresses.length, 1);
});
