/** A new value of a named secret reaches the sandboxes at runners of other controls. */
import assert from 'node:assert/strict';
import { afterEach, beforeEach, test } from 'node:test';
import pino from 'pino';
import { SERVICE_ACTOR } from '@coppice/contract';
import { newId } from '../../../lib/new-id.ts';
import { OrganizationAudit } from '../../audit/organization/organization-audit.ts';
import { SecretBox } from '../../secrets/secret-box.ts';
import { insertSandbox } from '../../testing/sandbox-row.ts';
import { waitFor } from '../../testing/control-harness.ts';
import { startTwoLeases, type TwoLeases } from '../../testing/controls/two-leases.ts';
import { NamedSecretStore } from './named-secret-store.ts';
import { NamedSecrets } from './named-secrets.ts';
import { SecretWatch } from './secret-watch.ts';

const secrets = new SecretBox(Buffer.alloc(32, 1));
const log = pino({ level: 'silent' });

let controls: TwoLeases;
let store: NamedSecretStore;
beforeEach(async () => {
  controls = await startTwoLeases();
  store = new NamedSecretStore(controls.db);
});
afterEach(() => controls[Symbol.asyncDispose]());

const reach = () => ({ organizationId: controls.owner.organizationId, onlyTeamId: null });

/** The named secrets as callers of the first control change them. */
function openNamed(told: string[]): NamedSecrets {
  const { db, first } = controls;
  const audit = new OrganizationAudit(secrets);
  const tell = (ids: readonly string[]): Promise<void> => Promise.resolve(void told.push(...ids));
  return new NamedSecrets({ db, audit, store, secrets, tell, control: first.id });
}

async function addUser(runnerId: string): Promise<string> {
  const { organizationId: organization_id, teamId: team_id } = controls.owner;
  const id = newId('run');
  await insertSandbox(controls.db, { id, organization_id, team_id, runner_id: runnerId });
  const secret = await controls.db.selectFrom('named_secrets').select('id').executeTakeFirstOrThrow();
  const grant = { service: 'github', endpoints: null, sealed_secret: null, updated_at: Date.now() };
  await controls.db
    .insertInto('sandbox_credentials')
    .values({ ...grant, sandbox_id: id, secret_id: secret.id, secret_version: 1 })
    .execute();
  return id;
}

/** As the driver of the sandbox does when the runner has the value. */
async function recordVersion(id: string, secret_version: number): Promise<void> {
  const update = controls.db.updateTable('sandbox_credentials').set({ secret_version });
  await update.where('sandbox_id', '=', id).execute();
}

test('a value that is stored at one control reaches the sandboxes of another one before the caller is answered', async () => {
  const named = openNamed([]);
  const by = SERVICE_ACTOR;
  await named.put({ reach: reach(), by }, 'token', { value: 'first' });
  const id = await addUser(await controls.addRunner(controls.second));
  const ofFirst = await addUser(await controls.addRunner(controls.first));
  const told: string[] = [];
  const tell = async (ids: readonly string[]): Promise<void> => {
    told.push(...ids);
    for (const one of ids) await recordVersion(one, 2);
  };
  await using _watch = new SecretWatch({ store, control: controls.second.id, tell, log }, 20);
  await recordVersion(ofFirst, 2);
  const { outdated_sandboxes } = await named.put({ reach: reach(), by }, 'token', { value: 'second' });
  assert.equal(outdated_sandboxes, 0);
  assert.deepEqual(told, [id]);
});

test('the caller does not wait for a control that is gone', async () => {
  const named = openNamed([]);
  await named.put({ reach: reach(), by: SERVICE_ACTOR }, 'token', { value: 'first' });
  await addUser(await controls.addRunner(undefined));
  const beganAt = performance.now();
  const change = { reach: reach(), by: SERVICE_ACTOR };
  const { outdated_sandboxes } = await named.put(change, 'token', { value: 'second' });
  assert.equal(outdated_sandboxes, 1);
  assert.ok(performance.now() - beganAt < 3_000);
});

test('a value that cannot be sent is sent once, and a newer one again', async () => {
  const named = openNamed([]);
  const change = { reach: reach(), by: SERVICE_ACTOR };
  await named.put(change, 'token', { value: 'first' });
  await addUser(await controls.addRunner(controls.first));
  let rounds = 0;
  const tell = (): Promise<void> => Promise.resolve(void (rounds += 1));
  const counted = { listOutdated: (control: string) => ((looks += 1), store.listOutdated(control)) };
  let looks = 0;
  await using _watch = new SecretWatch({ store: counted, control: controls.first.id, tell, log }, 20);
  await named.put(change, 'token', { value: 'second' });
  await waitFor('it is sent', () => rounds === 1);
  const seen = looks;
  await waitFor('further looks', () => looks > seen + 3);
  assert.equal(rounds, 1);
  await named.put(change, 'token', { value: 'third' });
  await waitFor('it is sent again', () => rounds === 2);
});
