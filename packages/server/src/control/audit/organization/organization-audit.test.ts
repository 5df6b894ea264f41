/** The audit log of an organization: what each change leaves in it, who may read it, and what cannot be hidden. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { OPERATOR_ACTOR } from '@coppice/contract';
import { sql } from 'kysely';
import type { OrganizationAuditEntry } from '../../../../../sdk/src/audit/organization-audit-entry.ts';
import { verifyOrganizationAudit } from '../../../../../sdk/src/audit/verify-organization-audit.ts';
import {
  INVITATION,
  startHarness,
  waitFor,
  type Answer,
  type ControlHarness,
} from '../../testing/control-harness.ts';
import {
  openOrganizationAudit,
  readOrganizationLog,
  readOrganizationSecrets,
  verifyOrganizationLog,
} from '../../testing/organization-log.ts';
import { AccountClient, PASSWORD } from '../../testing/requests/account-client.ts';
import { grantByOperator, setLimits } from '../../operator/organization-desk.ts';

let harness: ControlHarness;
let owner: AccountClient;
before(async () => {
  harness = await startHarness();
  owner = await AccountClient.signUp(harness, { invitation: INVITATION });
});
after(() => harness[Symbol.asyncDispose]());

const WEBHOOK = { url: 'https://hooks.example.com/secret-path?token=x', types: ['sandbox.created'] };

/** Verifies the log, and returns the entries that `work` has caused. */
async function record(work: () => Promise<unknown>): Promise<OrganizationAuditEntry[]> {
  const { body } = await harness.call('GET', '/v1/organization/audit?head=true');
  await work();
  return (await verifyOrganizationLog(harness)).slice(body.seq);
}

const kinds = (entries: readonly OrganizationAuditEntry[]): string[] => entries.map(({ event }) => event);

async function must(expected: number, answer: Promise<Answer>): Promise<Answer['body']> {
  const { status, body } = await answer;
  assert.equal(status, expected, JSON.stringify(body));
  return body;
}

test('the log begins with the first start: its organization, key and invitation', async () => {
  const entries = await verifyOrganizationLog(harness);
  assert.deepEqual(kinds(entries).slice(0, 5), [
    'organization.created',
    'api_key.created',
    'invitation.created',
    'member.joined',
    'session.started',
  ]);
  assert.deepEqual(entries[0]?.actor, { type: 'service', id: null, address: null });
  assert.deepEqual(entries[3]?.actor, { type: 'user', id: owner.id, address: '127.0.0.1' });
  assert.equal(entries[3]?.data['email'], owner.email);
});

test('keys: created, rotated and revoked, with who did it, and never the key', async () => {
  let id = '';
  let next = '';
  const keys: string[] = [];
  const entries = await record(async () => {
    const made = await must(201, owner.call('POST', `${owner.team}/keys`, { name: 'ci', scope: 'read' }));
    ({ id } = made);
    const change = { overlap_seconds: 60 };
    const rotated = await must(201, owner.call('POST', `${owner.team}/keys/${id}/rotate`, change));
    next = rotated.id;
    keys.push(made.key, rotated.key);
    await must(204, owner.call('DELETE', `${owner.team}/keys/${next}`));
    await must(204, owner.call('DELETE', `${owner.team}/keys/${next}`));
  });
  assert.deepEqual(kinds(entries), ['api_key.created', 'api_key.rotated', 'api_key.revoked']);
  const [created, rotated, revoked] = entries;
  assert.deepEqual([created?.data['id'], created?.data['scope'], created?.data['name']], [id, 'read', 'ci']);
  assert.deepEqual([rotated?.data['id'], rotated?.data['replaced']], [next, id]);
  assert.equal(revoked?.data['id'], next);
  for (const { actor } of entries) assert.equal(actor['id'], owner.id);
  for (const key of keys) assert.ok(!JSON.stringify(entries).includes(key));
});

test('members and teams: invited, joined, changed, removed', async () => {
  const entries = await record(async () => {
    const { id } = await must(201, owner.call('POST', `${owner.organization}/invitations`, {}));
    await must(204, owner.call('DELETE', `${owner.organization}/invitations/${id}`));
    const member = await owner.invite('member');
    const path = `${owner.organization}/members/${member.id}`;
    await must(204, owner.call('PATCH', path, { role: 'owner' }));
    await must(204, owner.call('PATCH', path, { role: 'owner' }));
    const team = await must(201, owner.call('POST', `${owner.organization}/teams`, { name: 'audited' }));
    const place = `${owner.organization}/teams/${team.id}`;
    await must(200, owner.call('PATCH', place, { name: 'renamed' }));
    await must(200, owner.call('PATCH', place, { name: 'renamed' }));
    await must(204, owner.call('PUT', `${place}/members/${member.id}`));
    await must(204, owner.call('PUT', `${place}/members/${member.id}`));
    await must(204, owner.call('DELETE', `${place}/members/${member.id}`));
    await must(204, owner.call('DELETE', path));
    await must(200, owner.call('PATCH', owner.organization, { name: 'another name' }));
    await must(200, owner.call('PATCH', owner.organization, { name: 'another name' }));
  });
  assert.deepEqual(kinds(entries), [
    'invitation.created',
    'invitation.revoked',
    'invitation.created',
    'member.joined',
    'session.started',
    'member.role_changed',
    'team.created',
    'team.renamed',
    'team.member_added',
    'team.member_removed',
    'member.removed',
    'organization.renamed',
  ]);
  const changed = entries.find(({ event }) => event === 'member.role_changed');
  assert.deepEqual([changed?.data['previous'], changed?.data['role']], ['member', 'owner']);
});

test('webhooks, secrets, registries and limits: never a value, nor the path of a webhook', async () => {
  await using db = harness.openDatabase();
  const audit = openOrganizationAudit(harness);
  const { organizationId } = owner;
  const entries = await record(async () => {
    const { id } = await must(201, harness.call('POST', '/v1/webhooks', { body: WEBHOOK }));
    await must(200, harness.call('PATCH', `/v1/webhooks/${id}`, { body: { enabled: false } }));
    await must(200, harness.call('POST', `/v1/webhooks/${id}/rotate`, { body: {} }));
    await must(204, harness.call('DELETE', `/v1/webhooks/${id}`));
    await must(200, harness.call('PUT', '/v1/secrets/audited', { body: { value: 'sk-private' } }));
    await must(200, harness.call('PUT', '/v1/secrets/audited', { body: { value: 'sk-private-2' } }));
    await must(204, harness.call('DELETE', '/v1/secrets/audited'));
    const login = { username: 'u', password: 'pw-private' };
    await must(200, harness.call('PUT', '/v1/registries/ghcr.io', { body: login }));
    await must(204, harness.call('DELETE', '/v1/registries/ghcr.io'));
    await grantByOperator({ db, audit }, { organizationId, cents: 500, note: 'private note' });
    await setLimits({ db, audit }, organizationId, { vcpus: 64 });
  });
  assert.deepEqual(kinds(entries), [
    'webhook.created',
    'webhook.changed',
    'webhook.rotated',
    'webhook.deleted',
    'secret.stored',
    'secret.stored',
    'secret.deleted',
    'registry.stored',
    'registry.deleted',
    'credit.granted',
    'limits.changed',
  ]);
  assert.deepEqual(entries[5]?.data, { name: 'audited', version: 2 });
  assert.deepEqual(entries.at(-2)?.data, { cents: 500 });
  assert.deepEqual(entries.at(-1)?.actor, OPERATOR_ACTOR);
  assert.equal(entries[0]?.actor['type'], 'api_key');
  assert.doesNotMatch(JSON.stringify(entries), /private|secret-path|token=/u);
});

test('sign-ins and sign-outs, and a password that is changed', async () => {
  const member = await owner.invite('member');
  const entries = await record(async () => {
    const again = await AccountClient.signIn(harness, member.email);
    await must(204, again.call('POST', '/account/sign-out'));
    const change = { current_password: PASSWORD, new_password: `${PASSWORD} 2` };
    await must(204, member.call('POST', '/account/password', change));
  });
  assert.deepEqual(kinds(entries), ['session.started', 'session.ended', 'password.changed']);
  assert.doesNotMatch(JSON.stringify(entries), /horse/u);
});

test('failed sign-ins of a member are counted in few entries, those of strangers are in no log', async () => {
  const member = await owner.invite('member');
  const attempt = (email: string) =>
    member.call('POST', '/account/sign-in', { email, password: 'not the password' });
  const entries = await record(async () => {
    await must(401, attempt('stranger@example.test'));
    for (let index = 0; index < 5; index += 1) await must(401, attempt(member.email));
    await AccountClient.signIn(harness, member.email);
    await waitFor('the counted attempts', async () => {
      const failed = await readOrganizationLog(harness, { query: '?event=session.failed' });
      return failed.reduce((sum, { data }) => sum + Number(data['count']), 0) === 5;
    });
  });
  assert.deepEqual(kinds(entries).toSorted(), ['session.failed', 'session.failed', 'session.started']);
  const failed = entries.filter(({ event }) => event === 'session.failed');
  for (const { actor, data } of failed) {
    assert.deepEqual(actor, { type: 'unknown', id: null, address: '127.0.0.1' });
    assert.equal(data['user_id'], member.id);
  }
});

test('the secret can be revealed and rotated, which the log records, and the whole log still verifies', async () => {
  const secrets = `${owner.organization}/audit-secrets`;
  const entries = await record(async () => {
    const [{ id }] = await must(200, owner.call('GET', secrets));
    const shown = await must(200, owner.call('GET', `${secrets}/${id}`));
    assert.match(shown.secret, /^cos_[A-Za-z0-9_-]{43}$/u);
    const rotated = await must(201, owner.call('POST', secrets));
    assert.notEqual(rotated.secret, shown.secret);
    const team = await must(201, owner.call('POST', `${owner.team}/audit-secrets`));
    await must(200, owner.call('GET', `${owner.team}/audit-secrets/${team.id}`));
    await must(404, owner.call('GET', `${secrets}/${team.id}`));
  });
  assert.deepEqual(kinds(entries), [
    'audit_secret.revealed',
    'audit_secret.created',
    'audit_secret.created',
    'audit_secret.revealed',
  ]);
  assert.deepEqual(
    entries.map(({ data }) => data['team_id']),
    [null, null, owner.teamId, owner.teamId],
  );
  assert.notEqual(entries[0]?.auditKeyId, entries[1]?.auditKeyId);
});

test('only owners, and keys with the scope full for the whole organization, read the log', async () => {
  const member = await owner.invite('member');
  const path = '/v1/organization/audit';
  const make = async (limits: object): Promise<string> =>
    (await must(201, owner.call('POST', `${owner.team}/keys`, { name: 'k', ...limits }))).key;
  await must(403, harness.call('GET', path, { apiKey: await make({ scope: 'read' }) }));
  await must(403, harness.call('GET', path, { apiKey: await make({ team_only: true }) }));
  await must(200, harness.call('GET', `${path}?head=true`, { apiKey: await make({}) }));
  await must(403, member.call('GET', `${owner.organization}/audit`));
  await must(403, member.call('GET', `${owner.organization}/audit-secrets`));
  const { seq } = await must(200, owner.call('GET', `${owner.organization}/audit?head=true`));
  assert.equal(seq, (await verifyOrganizationLog(harness)).length);
  for (const query of ['?hed=true', '?event=no', '?after=-1'])
    await must(400, harness.call('GET', path + query));
});

test('an organization sees its own log alone', async () => {
  const apiKey = await harness.addOrganization();
  assert.deepEqual(await readOrganizationLog(harness, { apiKey }), []);
  await must(200, harness.call('PUT', '/v1/secrets/own', { apiKey, body: { value: 'v' } }));
  const entries = await verifyOrganizationLog(harness, { apiKey });
  assert.deepEqual(kinds(entries), ['secret.stored']);
  const outsider = await AccountClient.signUp(harness, {
    invitation: (await must(201, owner.call('POST', `${owner.organization}/invitations`, {}))).invitation,
  });
  const other = entries[0]?.organizationId ?? '';
  await must(404, outsider.call('GET', `/account/organizations/${other}/audit`));
  await must(404, outsider.call('GET', `/account/organizations/${other}/audit-secrets`));
});

test('filters select entries by event, by actor and by place', async () => {
  const all = await readOrganizationLog(harness);
  const created = await readOrganizationLog(harness, { query: '?event=api_key.created' });
  assert.deepEqual(
    created,
    all.filter(({ event }) => event === 'api_key.created'),
  );
  const own = await readOrganizationLog(harness, { query: `?actor=${owner.id}&after=5` });
  assert.deepEqual(
    own,
    all.filter(({ seq, actor }) => seq > 5 && actor['id'] === owner.id),
  );
  assert.ok(own.length > 0);
});

test('filters need not read the whole log', async () => {
  await using db = harness.openDatabase();
  const plans = await db.transaction().execute(async (transaction) => {
    // The log of the test is so short that reading it all would cost less.
    await sql`SET LOCAL enable_seqscan = off`.execute(transaction);
    const plan = async (condition: ReturnType<typeof sql>): Promise<string> => {
      const { rows } = await sql<Record<string, string>>`
        EXPLAIN SELECT * FROM organization_audit_entries
        WHERE organization_id = 'org1' AND seq > 0 ${condition} ORDER BY seq LIMIT 500`.execute(transaction);
      return rows.map((row) => row['QUERY PLAN']).join('\n');
    };
    return [await plan(sql`AND event = 'a'`), await plan(sql`AND actor::jsonb ->> 'id' = 'a'`)];
  });
  assert.match(plans[0]!, /Index Cond: .*event = 'a'/u);
  assert.match(plans[1]!, /Index Cond: .*actor.*= 'a'/u);
});

test('whatever is altered, removed or moved, the verifier finds it', async () => {
  const entries = await verifyOrganizationLog(harness);
  const { organizationId } = owner;
  const secrets = await readOrganizationSecrets(harness, organizationId);
  const head = { seq: entries.length, hmac: entries.at(-1)?.hmac ?? null };
  const judge = async (log: readonly OrganizationAuditEntry[]): Promise<string> => {
    const verdict = await verifyOrganizationAudit(log, secrets, { head, organizationId });
    return verdict.valid ? 'valid' : verdict.problem;
  };
  const change = (index: number, to: Partial<OrganizationAuditEntry>) =>
    entries.map((entry, place) => (place === index ? { ...entry, ...to } : entry));
  assert.equal(await judge(entries), 'valid');
  assert.equal(await judge(change(2, { data: {} })), 'altered');
  assert.equal(await judge(change(3, { actor: { type: 'service', id: null, address: null } })), 'altered');
  assert.equal(await judge(change(2, { auditKeyId: 'ask0' })), 'unknown_secret');
  assert.equal(await judge(change(2, { organizationId: 'org0' })), 'other_organization');
  assert.equal(await judge(entries.toSpliced(3, 1)), 'missing');
  assert.equal(await judge(entries.slice(0, -1)), 'missing');
  assert.equal(await judge([...entries.slice(0, 3), entries[4]!, entries[3]!]), 'reordered');
});

test('a change and its entry are stored together or not at all', async () => {
  await using db = harness.openDatabase();
  const before = await readOrganizationLog(harness);
  await sql`
    ALTER TABLE organization_audit_entries ADD CONSTRAINT none CHECK (event <> 'secret.stored') NOT VALID`.execute(
    db,
  );
  try {
    const { status } = await harness.call('PUT', '/v1/secrets/lost', { body: { value: 'v' } });
    assert.equal(status, 500);
  } finally {
    await sql`ALTER TABLE organization_audit_entries DROP CONSTRAINT none`.execute(db);
  }
  await must(404, harness.call('GET', '/v1/secrets/lost'));
  assert.deepEqual(await readOrganizationLog(harness), before);
});

test('writers at once, in two processes, leave one unbroken chain', async () => {
  await using db = harness.openDatabase();
  const audit = openOrganizationAudit(harness);
  const { organizationId } = owner;
  const entries = await record(() =>
    Promise.all([
      ...Array.from({ length: 20 }, (_, index) =>
        harness.call('PUT', `/v1/secrets/at-once-${index % 4}`, { body: { value: `${index}` } }),
      ),
      ...Array.from({ length: 10 }, (_, cents) =>
        grantByOperator({ db, audit }, { organizationId, cents: cents + 1, note: '' }),
      ),
    ]),
  );
  assert.equal(entries.length, 30);
  const versions = entries
    .filter(({ data }) => data['name'] === 'at-once-0')
    .map(({ data }) => data['version']);
  assert.deepEqual(versions, [1, 2, 3, 4, 5]);
});

test('the first entries of an organization, written at once, share one secret', async () => {
  const apiKey = await harness.addOrganization();
  await Promise.all(
    Array.from({ length: 12 }, (_, index) =>
      must(200, harness.call('PUT', `/v1/secrets/first-${index}`, { apiKey, body: { value: 'v' } })),
    ),
  );
  const entries = await verifyOrganizationLog(harness, { apiKey });
  assert.equal(entries.length, 12);
  assert.equal(new Set(entries.map(({ auditKeyId }) => auditKeyId)).size, 1);
});

test('no statement of the service can change or remove an entry', async () => {
  await using db = harness.openDatabase();
  await assert.rejects(db.deleteFrom('organization_audit_entries').execute(), /never changed/u);
  await assert.rejects(
    db.updateTable('organization_audit_entries').set({ event: 'team.created' }).execute(),
    /never changed/u,
  );
});

test('with another master key changes are still possible: the chain continues with another secret', async () => {
  await using other = await startHarness();
  await other.call('PUT', '/v1/secrets/before', { body: { value: 'v' } });
  const before = await verifyOrganizationLog(other);
  const known = await readOrganizationSecrets(other, before[0]?.organizationId ?? '');
  await using db = other.openDatabase();
  await sql`UPDATE organization_audit_secrets SET sealed_secret = '\\x00'::bytea`.execute(db);
  await other.stopControl();
  await other.startControl();
  await waitFor('healthz', async () => (await other.call('GET', '/healthz')).status === 200);
  const { status } = await other.call('PUT', '/v1/secrets/after', { body: { value: 'v' } });
  assert.equal(status, 200);
  const entries = await readOrganizationLog(other);
  assert.deepEqual(kinds(entries.slice(before.length)), ['audit_secret.created', 'secret.stored']);
  const { id } = await db
    .selectFrom('organization_audit_secrets')
    .select('id')
    .orderBy('created_at', 'desc')
    .limit(1)
    .executeTakeFirstOrThrow();
  const verdict = await verifyOrganizationAudit(entries, known);
  assert.ok(!verdict.valid);
  assert.deepEqual([verdict.problem, verdict.seq], ['unknown_secret', before.length + 1]);
  assert.equal(entries.at(-1)?.auditKeyId, id);
});
