import assert from 'node:assert/strict';
import { test } from 'node:test';
import { DISABLED_REASONS, EVENT_TYPES } from '../../../../contract/src/events/events.ts';
import type { DeliveryInfo, WebhookInfo } from '../../../../sdk/src/index.ts';
import { describeState, describeTypes, EVENT_GROUPS, explainPause, findNextReadMs } from './webhook-words.ts';

const NOW = Date.parse('2026-11-27T12:00:00.000Z');

function webhook(fields: Partial<WebhookInfo>): WebhookInfo {
  return {
    id: 'hook1',
    url: 'https://example.com',
    types: [],
    description: '',
    enabled: true,
    disabledReason: null,
    failingSince: null,
    oldSecretUntil: null,
    createdAt: '2026-11-27T00:00:00.000Z',
    ...fields,
  };
}

function delivery(state: DeliveryInfo['state'], dueMs: number | null): DeliveryInfo {
  const nextAttemptAt = dueMs === null ? null : new Date(NOW + dueMs).toISOString();
  return {
    id: 'msg1',
    eventId: 1,
    type: 'sandbox.failed',
    state,
    createdAt: '',
    nextAttemptAt,
    attempts: [],
  };
}

test('the form offers exactly the types of events that the service has', () => {
  assert.deepEqual(EVENT_GROUPS.flatMap(([, types]) => types).sort(), [...EVENT_TYPES].sort());
});

test('each reason of a pause has words of its own', () => {
  const texts = DISABLED_REASONS.map((disabledReason) =>
    explainPause(webhook({ enabled: false, disabledReason })),
  );
  assert.equal(new Set(texts).size, DISABLED_REASONS.length);
  for (const [index, reason] of DISABLED_REASONS.entries())
    assert(!texts[index]?.endsWith(`${reason}.`), reason);
  assert.match(explainPause(webhook({ enabled: false })) ?? '', /by hand/u);
  assert.match(explainPause(webhook({ enabled: false, disabledReason: 'new' })) ?? '', /new/u);
  assert.equal(explainPause(webhook({})), undefined);
});

test('a webhook is active, failing, paused by hand or disabled by the service', () => {
  assert.equal(describeState(webhook({})).text, 'active');
  assert.equal(describeState(webhook({ failingSince: '2026-11-27T00:00:00.000Z' })).text, 'failing');
  assert.equal(describeState(webhook({ enabled: false })).text, 'paused');
  assert.equal(describeState(webhook({ enabled: false, disabledReason: 'gone' })).text, 'disabled');
  assert.equal(describeTypes([]), 'all events');
  assert.equal(describeTypes(['a', 'b', 'c']), '3 types of events');
});

test('deliveries are read again when the next attempt is over, and not without one', () => {
  assert.equal(findNextReadMs([], NOW), undefined);
  assert.equal(findNextReadMs([delivery('delivered', null), delivery('failed', null)], NOW), undefined);
  assert.equal(findNextReadMs([delivery('pending', 5000), delivery('pending', 60_000)], NOW), 6000);
  assert.equal(findNextReadMs([delivery('pending', -100)], NOW), 1000);
  assert.equal(findNextReadMs([delivery('pending', -60_000)], NOW), 15_000);
  assert.equal(findNextReadMs([delivery('pending', 7_200_000)], NOW), undefined);
});
