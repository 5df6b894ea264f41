import assert from 'node:assert/strict';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { AccountClient } from '../../testing/requests/account-client.ts';
import { startControl } from '../../control.ts';
import {
  API_KEY,
  INVITATION,
  prepareHarness,
  startHarness,
  type ControlHarness,
} from '../../testing/control-harness.ts';
import type { OrganizationAudit } from '../../audit/organization/organization-audit.ts';
import { openOrganizationAudit } from '../../testing/organization-log.ts';
import { bootstrapOrganization } from './bootstrap.ts';
import { bootstrapFile, type Bootstrapped } from './bootstrapped.ts';

let harness: ControlHarness;
let audit: OrganizationAudit;
before(async () => {
  harness = await startHarness();
  audit = openOrganizationAudit(harness);
});
after(() => harness[Symbol.asyncDispose]());

test('a start creates and shows an invitation while the first organization has no owner and no open invitation', async () => {
  await using db = harness.openDatabase();
  const start = () => bootstrapOrganization(db, audit, { region: 'us' });
  assert.deepEqual(await start(), {});
  await db.updateTable('invitations').set({ expires_at: 1 }).execute();
  const { invitation = '', ...rest } = await start();
  assert.match(invitation, /^inv_/);
  assert.deepEqual(rest, {});
  assert.deepEqual(await start(), {});
  await AccountClient.signUp(harness, { invitation });
  assert.deepEqual(await start(), {});
});

test('a configured invitation is created once, whatever happens to it later', async () => {
  await using db = harness.openDatabase();
  const given = `inv_${'g'.repeat(43)}`;
  const start = () =>
    bootstrapOrganization(db, audit, { region: 'us', bootstrapKey: API_KEY, bootstrapInvitation: given });
  assert.deepEqual(await start(), {});
  const owner = await AccountClient.signUp(harness, { invitation: given });
  const again = { email: 'again@example.test', invitation: given };
  assert.deepEqual(await start(), {});
  await assert.rejects(AccountClient.signUp(harness, again), /accepted before/);
  assert.equal((await owner.call('GET', '/account/me')).body.organizations[0].role, 'owner');
});

test('the next start does not recreate a configured invitation that an owner has revoked', async () => {
  await using db = harness.openDatabase();
  const given = `inv_${'h'.repeat(43)}`;
  const start = () => bootstrapOrganization(db, audit, { region: 'us', bootstrapInvitation: given });
  await start();
  const first = await db.selectFrom('organizations').select('id').where('is_first', '=', true).execute();
  assert.equal(first.length, 1);
  const { id } = await db
    .selectFrom('invitations')
    .select('id')
    .orderBy('created_at', 'desc')
    .executeTakeFirstOrThrow();
  const second = `inv_${'i'.repeat(42)}j`;
  await bootstrapOrganization(db, audit, { region: 'us', bootstrapInvitation: second });
  const owner = await AccountClient.signUp(harness, { invitation: second });
  assert.equal((await owner.call('DELETE', `${owner.organization}/invitations/${id}`)).status, 204);
  await start();
  await assert.rejects(AccountClient.signUp(harness, { invitation: given }), /expired, or was revoked/);
});

test('a configured invitation stops working once it has expired', async () => {
  await assert.rejects(AccountClient.signUp(harness, { invitation: INVITATION }), /expired, or was revoked/);
});

test('a start with a configured key still creates and shows an invitation, once', async () => {
  await using fresh = await prepareHarness();
  await fresh.runner.start();
  const { bootstrapInvitation: _, ...config } = fresh.config;
  const start = async (): Promise<Bootstrapped> => {
    fresh.control = await startControl(config, fresh.log);
    return fresh.control.bootstrap;
  };
  const { invitation = '', ...rest } = await start();
  assert.match(invitation, /^inv_/);
  assert.deepEqual(rest, {});
  await fresh.stopControl();
  assert.deepEqual(await start(), {});
  const owner = await AccountClient.signUp(fresh, { invitation });
  assert.equal((await owner.call('GET', '/account/me')).body.organizations[0].role, 'owner');
});

test('with a bootstrap directory, key and invitation are written to files that only their owner can read', async () => {
  await using fresh = await prepareHarness();
  await fresh.runner.start();
  const { bootstrapKey: _key, bootstrapInvitation: _invitation, ...config } = fresh.config;
  const bootstrapDir = config.dataDir;
  fresh.control = await startControl({ ...config, bootstrapDir }, fresh.log);
  const { directory, ...made } = fresh.control.bootstrap;
  assert.equal(directory, bootstrapDir);
  for (const name of ['apiKey', 'invitation'] as const) {
    const path = bootstrapFile(bootstrapDir, name);
    assert.equal(readFileSync(path, 'utf8'), `${made[name]}\n`);
    assert.equal(statSync(path).mode & 0o777, 0o600);
  }
  const { apiKey = '' } = made;
  assert.equal((await fresh.call('GET', '/v1/runs', { apiKey })).status, 200);
});

test('a start that cannot write the files creates no key, since nothing would show it', async () => {
  await using fresh = await prepareHarness();
  await fresh.runner.start();
  const { bootstrapKey: _key, bootstrapInvitation: _invitation, ...config } = fresh.config;
  const bootstrapDir = join(config.dataDir, 'absent');
  await assert.rejects(startControl({ ...config, bootstrapDir }, fresh.log), { code: 'ENOENT' });
  fresh.control = await startControl(config, fresh.log);
  assert.match(fresh.control.bootstrap.apiKey ?? '', /^cop_live_us_/);
});
