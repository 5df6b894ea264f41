import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ORGANIZATION_AUDIT_EVENT_NAMES } from '../../../../contract/src/audit/organization-audit.ts';
import type { OrganizationAuditEntry } from '../../../../sdk/src/index.ts';
import { gatherNames } from './names.ts';
import { describeActor, describeOrganizationEntry, nameEvent } from './organization-sentences.ts';
import { toPlainText } from './sentence.ts';

const entry = (event: string, data: Record<string, unknown>): OrganizationAuditEntry => ({
  seq: 1,
  ts: '2026-11-27T06:30:00.000Z',
  organizationId: 'org1',
  auditKeyId: 'ask1',
  event,
  actor: { type: 'user', id: 'user1', address: '203.0.113.7' },
  data,
  hmac: 'sha256:',
});

const LOG = [
  entry('member.joined', { user_id: 'user2', email: 'bob@example.com', role: 'member' }),
  entry('team.created', { team_id: 'team1', name: 'builders' }),
  entry('team.renamed', { team_id: 'team1', name: 'makers' }),
  entry('team.member_added', { team_id: 'team1', user_id: 'user2' }),
  entry('api_key.created', { id: 'key1', team_id: 'team1', name: 'ci' }),
  entry('api_key.revoked', { id: 'key1', team_id: 'team1', last4: 'x1Yz' }),
];
const nameOf = gatherNames(LOG, [{ id: 'user1', name: 'Ada' }]);
const describe = (event: string, data: Record<string, unknown> = {}): string =>
  toPlainText(describeOrganizationEntry({ event, data }, nameOf));

test('every event of the contract has a sentence of its own, also without its fields', () => {
  for (const event of ORGANIZATION_AUDIT_EVENT_NAMES) {
    const text = describe(event);
    assert.doesNotMatch(text, /undefined|\[object|NaN/u, event);
    assert.ok(!text.startsWith(event), `${event} has no sentence`);
  }
});

test('ids get the latest names that the log has, and present members theirs', () => {
  assert.deepEqual(['user1', 'user2', 'team1', 'key1', 'user9', null].map(nameOf), [
    'Ada',
    'bob@example.com',
    'makers',
    'ci',
    'user9',
    'null',
  ]);
});

test('sentences name what an entry is about', () => {
  const cases: readonly (readonly [string, Record<string, unknown>, string])[] = [
    [
      'api_key.created',
      {
        id: 'key1',
        team_id: 'team1',
        name: 'ci',
        last4: 'x1Yz',
        scope: 'read',
        team_only: true,
        expires_at: null,
      },
      'Created the API key ci (…x1Yz) of makers, which only reads, only for the team',
    ],
    ['api_key.revoked', { id: 'key1', last4: 'x1Yz' }, 'Revoked the API key ci (…x1Yz)'],
    [
      'member.role_changed',
      { email: 'b@x', role: 'owner', previous: 'member' },
      'Made b@x owner; before: member',
    ],
    ['team.member_added', { team_id: 'team1', user_id: 'user2' }, 'Added bob@example.com to the team makers'],
    [
      'session.failed',
      { user_id: 'user1', count: 3 },
      'Tried to sign in as Ada with a wrong password, 3 times',
    ],
    ['audit_secret.revealed', { id: 'ask1', team_id: null }, 'Read a secret of this log'],
    [
      'audit_secret.created',
      { id: 'ask2', team_id: 'team1' },
      'Made a new secret for the logs of the team makers',
    ],
    ['planet.moved', { to: 1 }, 'planet.moved {"to":1}'],
  ];
  for (const [event, data, text] of cases) assert.equal(describe(event, data), text);
});

test('actors have the name of the person or key, or say which part of the service it was', () => {
  const names = [
    { type: 'user', id: 'user1' },
    { type: 'api_key', id: 'key1' },
    { type: 'operator', id: null },
    { type: 'unknown', id: null },
    { type: 'robot', id: 'r2' },
  ].map((actor) => toPlainText(describeActor(actor, nameOf)));
  assert.deepEqual(names, ['Ada', 'Key ci', 'Operator of the service', 'Not signed in', 'r2']);
});

test('events have readable names', () => {
  assert.equal(nameEvent('api_key.created'), 'api key: created');
});
