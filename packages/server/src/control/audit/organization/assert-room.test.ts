/** The limit on how fast the log of an organization grows. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { OPERATOR_ACTOR } from '@coppice/contract';
import { INVITATION, startHarness, type ControlHarness } from '../../testing/control-harness.ts';
import {
  openOrganizationAudit,
  readOrganizationLog,
  verifyOrganizationLog,
} from '../../testing/organization-log.ts';
import { AccountClient } from '../../testing/requests/account-client.ts';
import { openMasterKeys } from '../../secrets/master-key.ts';
import { SecretBox } from '../../secrets/secret-box.ts';
import { MAX_HOURLY_ENTRIES } from './assert-room.ts';
import { OrganizationAudit } from './organization-audit.ts';

const { api_key: OF_KEYS = NaN, user: OF_PEOPLE = NaN } = MAX_HOURLY_ENTRIES;
const HOUR_MS = 3_600_000;

let harness: ControlHarness;
before(async () => {
  harness = await startHarness();
});
after(() => harness[Symbol.asyncDispose]());

/** Adds entries by the operator, whom no limit concerns. */
async function fill(audit: OrganizationAudit, organizationId: string, count: number): Promise<void> {
  await using db = harness.openDatabase();
  const notes = Array.from({ length: count }, (_, cents) => ({
    event: 'credit.granted' as const,
    data: { cents },
  }));
  await db
    .transaction()
    .execute((transaction) => audit.write(transaction, { organizationId, by: OPERATOR_ACTOR, notes }));
}

/** Fills the log of a new organization by a clock that is wrong by `ms`. Returns the organization's key. */
async function fillByClock(ms: number): Promise<string> {
  const apiKey = await harness.addOrganization();
  await using db = harness.openDatabase();
  const { organization_id } = await db
    .selectFrom('api_keys')
    .select('organization_id')
    .where('last4', '=', apiKey.slice(-4))
    .executeTakeFirstOrThrow();
  const { current } = openMasterKeys(join(harness.directory, 'data', 'master.key'));
  const audit = new OrganizationAudit(new SecretBox(current), () => Date.now() + ms);
  await fill(audit, organization_id, OF_KEYS);
  return apiKey;
}

const put = (name: string, apiKey?: string) =>
  harness.call('PUT', `/v1/secrets/${name}`, { body: { value: 'v' }, ...(apiKey ? { apiKey } : {}) });

test('a flood by a key is refused before people are, and nobody is kept from taking access away', async () => {
  const owner = await AccountClient.signUp(harness, { invitation: INVITATION });
  const { organizationId } = owner;
  const audit = openOrganizationAudit(harness);
  assert.equal((await put('before')).status, 200);
  const makeKey = () => owner.call('POST', `${owner.team}/keys`, { name: 'k' });
  const { body: stolen } = await makeKey();
  const { body: ofSession } = await owner.call('POST', `${owner.team}/session-key`);
  await fill(audit, organizationId, OF_KEYS - (await readOrganizationLog(harness)).length - 1);

  assert.equal((await put('last')).status, 200);
  assert.equal((await put('beyond', ofSession.key)).status, 429);
  const refused = await put('beyond');
  assert.equal(refused.status, 429);
  assert.match(refused.body.error.message, /2000 changes .* limit for API keys; try again in 3\d\d\d s/u);
  assert.ok(Number(refused.headers.get('retry-after')) > HOUR_MS / 1000 - 120);
  assert.equal((await harness.call('GET', '/v1/secrets/beyond')).status, 404);
  assert.equal((await harness.call('DELETE', '/v1/secrets/before')).status, 204);
  assert.equal((await makeKey()).status, 201);

  await fill(audit, organizationId, OF_PEOPLE);
  const late = await makeKey();
  assert.equal(late.status, 429);
  assert.match(late.body.error.message, /4000 changes .* limit for people/u);
  assert.equal((await owner.call('POST', `${owner.organization}/audit-secrets`)).status, 429);
  assert.equal((await owner.call('DELETE', `${owner.team}/keys/${stolen.id}`)).status, 204);
  assert.equal(
    (await (await AccountClient.signIn(harness, owner.email)).call('GET', '/account/me')).status,
    200,
  );
  await verifyOrganizationLog(harness);
});

test('the limit is that of one organization, and of the last hour', async () => {
  assert.equal((await put('now', await fillByClock(0))).status, 429);
  assert.equal((await put('other', await harness.addOrganization())).status, 200);
  assert.equal((await put('old', await fillByClock(-HOUR_MS - 1))).status, 200);
});

test('a clock that was ahead does not close the log', async () => {
  assert.equal((await put('ahead', await fillByClock(HOUR_MS / 2))).status, 200);
});
