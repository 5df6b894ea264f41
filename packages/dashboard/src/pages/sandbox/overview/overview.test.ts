import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SandboxInfo } from '../../../../../sdk/src/index.ts';
import { STATUS_REASONS } from '../../../../../contract/src/sandbox/lifecycle.ts';
import { ageOf, describeEnding, explainReason, findEnding } from './life-text.ts';

const CREATED = Date.parse('2026-11-27T12:00:00.000Z');

function record(part: Partial<SandboxInfo>): SandboxInfo {
  return {
    id: 'run1',
    status: 'running',
    vcpus: 1,
    memMiB: 1024,
    createdAt: new Date(CREATED).toISOString(),
    endedAt: null,
    endsAt: null,
    expiresAt: null,
    maxLifetime: null,
    autoHibernate: false,
    ...part,
  } as SandboxInfo;
}

function at(seconds: number): string {
  return new Date(CREATED + seconds * 1000).toISOString();
}

test('every reason of the contract has words of its own', () => {
  for (const reason of STATUS_REASONS) {
    const text = explainReason(reason) ?? '';
    assert.match(text, /^I.+\.$|^The .+\.$/u, reason);
    assert.ok(!text.includes('_'), text);
  }
  assert.equal(explainReason('moved_away'), 'moved away.');
  assert.equal(explainReason(null), undefined);
});

test('the next end names the limit that causes it', () => {
  assert.equal(findEnding(record({})), undefined);
  assert.equal(findEnding(record({ expiresAt: at(300) }))?.kind, 'idle');
  assert.equal(findEnding(record({ expiresAt: at(600), maxLifetime: 600 }))?.kind, 'lifetime');
  assert.equal(findEnding(record({ expiresAt: at(300), maxLifetime: 600 }))?.kind, 'idle');
  assert.equal(findEnding(record({ expiresAt: at(60), endsAt: at(60), maxLifetime: 600 }))?.kind, 'end');
  assert.equal(findEnding(record({ expiresAt: at(60), endedAt: at(10) })), undefined);
});

test('the countdown says what will happen, and when', () => {
  const idle = record({ expiresAt: at(300) });
  assert.equal(describeEnding(idle, CREATED), 'Is destroyed in 5 min unless it is used');
  assert.equal(describeEnding(idle, CREATED + 299_200), 'Is destroyed in 1 s unless it is used');
  assert.equal(describeEnding(idle, CREATED + 301_000), 'Is destroyed now unless it is used');
  assert.match(describeEnding({ ...idle, autoHibernate: true }, CREATED), /^Hibernates in 5 min/u);
  const limited = record({ expiresAt: at(600), maxLifetime: 600, autoHibernate: true });
  assert.equal(describeEnding(limited, CREATED), 'Is destroyed in 10 min');
  assert.equal(describeEnding(record({ timeout: 0 }), CREATED), 'Never');
  assert.equal(describeEnding(record({ timeout: 300 }), CREATED), 'Not while it is in use');
});

test('the age of a sandbox stops at its end', () => {
  assert.equal(ageOf(record({}), CREATED + 5000), 5000);
  assert.equal(ageOf(record({ endedAt: at(3) }), CREATED + 5000), 3000);
});
