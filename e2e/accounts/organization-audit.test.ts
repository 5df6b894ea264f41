/** The audit log of the organization at the real service: who changed what, verified offline, over kill -9 of control. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import {
  Coppice,
  verifyOrganizationAudit,
  type AuditHead,
  type OrganizationAuditEntry,
} from '../../packages/sdk/src/index.ts';
import { findFreePort } from '../../packages/server/src/control/testing/free-port.ts';
import { Api } from '../fixtures/api/api.ts';
import { Person } from '../fixtures/accounts/person.ts';
import { API_KEY, Service } from '../fixtures/service/service.ts';

const COPPICE = fileURLToPath(new URL('../../packages/cli/bin/coppice.mjs', import.meta.url));
const COMMAND_TIMEOUT_MS = 60_000;
const TIMEOUT_MS = 60_000;
const WORKERS = 8;
const ANSWERED = 40;
const run = promisify(execFile);

describe('the audit log of the organization', () => {
  let service: Service;
  let client: Coppice;
  let owner: Person;
  before(async () => {
    // The client finds the service again after a restart.
    const env = { COPPICE_LISTEN: `127.0.0.1:${await findFreePort()}` };
    service = await Service.start({ instance: 17, env });
    client = new Coppice({ baseUrl: service.address, apiKey: API_KEY });
    owner = await Person.operator(service);
  });
  after(() => service[Symbol.asyncDispose]());

  const coppice = async (...args: string[]): Promise<string> => {
    const env = {
      ...process.env,
      COPPICE_DATA_DIR: service.dataDir,
      COPPICE_RUN_DIR: service.runDir,
      SANDBOX_API_KEY: API_KEY,
      SANDBOX_BASE_URL: service.address,
    };
    return (await run(process.execPath, [COPPICE, ...args], { env, timeout: COMMAND_TIMEOUT_MS })).stdout;
  };

  const list = async (): Promise<OrganizationAuditEntry[]> => {
    const entries = [];
    for await (const entry of client.organization.audit()) entries.push(entry);
    return entries;
  };

  /** Returns the secrets of the log as an owner gets them. */
  const revealSecrets = async (): Promise<Record<string, string>> => {
    const path = `${owner.organization}/audit-secrets`;
    const { body } = await owner.call('GET', path);
    const secrets: Record<string, string> = {};
    for (const { id } of body as unknown as { id: string }[])
      secrets[id] = (await owner.ask('GET', `${path}/${id}`))['secret'] ?? '';
    return secrets;
  };

  const assertValid = async (
    entries: readonly OrganizationAuditEntry[],
    secrets: Record<string, string>,
    head: AuditHead,
  ): Promise<void> => {
    const verdict = await verifyOrganizationAudit(entries, secrets, { head });
    assert.deepEqual(verdict, { valid: true, entries: entries.length, complete: true });
  };

  it('has a key, a member, sign-ins and a limit with who caused them, in one chain over a kill of control', async () => {
    const key = await owner.ask('POST', `${owner.team}/keys`, { name: 'audited' });
    const invited = await owner.ask('POST', `${owner.organization}/invitations`, { role: 'member' });
    const member = await Person.signUp(service, invited['invitation'] ?? '');
    const kept = await client.organization.auditHead();
    await service.killRole('control');
    const organizationId = owner.organization.split('/').at(-1) ?? '';
    await coppice('admin', 'organization', 'limit', organizationId, '--sandboxes', '77');
    const again = await Person.operator(service);
    await again.ask('DELETE', `${again.team}/keys/${key['id']}`);
    assert.equal((await member.call('GET', `${owner.organization}/audit`)).status, 403);

    const secrets = await revealSecrets();
    const entries = await list();
    await assertValid(entries, secrets, await client.organization.auditHead());
    assert.equal(entries[kept.seq - 1]?.hmac, kept.hmac);
    const kinds = entries.map(({ event }) => event);
    assert.deepEqual(kinds.slice(0, 9), [
      'organization.created',
      'api_key.created',
      'invitation.created',
      'member.joined',
      'session.started',
      'api_key.created',
      'invitation.created',
      'member.joined',
      'session.started',
    ]);
    assert.deepEqual(kinds.slice(kept.seq), [
      'limits.changed',
      'session.started',
      'api_key.revoked',
      ...Object.keys(secrets).map(() => 'audit_secret.revealed'),
    ]);
    const ofOwner = entries[5]?.actor['id'];
    assert.deepEqual(entries[5]?.actor, { type: 'user', id: ofOwner, address: '127.0.0.1' });
    assert.equal(entries[kept.seq + 2]?.actor['id'], ofOwner);
    assert.notEqual(entries[7]?.actor['id'], ofOwner);
    assert.deepEqual(entries[kept.seq]?.actor, { type: 'operator', id: null, address: null });
    assert.deepEqual(entries[kept.seq]?.data, { sandboxes: 77 });
    assert.ok(!JSON.stringify(entries).includes(key['key'] ?? 'no key'));
  });

  it('is written and verified by the command line, which finds an entry that was changed', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'cop-audit-'));
    try {
      const path = (name: string): string => join(directory, name);
      const secrets = Object.entries(await revealSecrets());
      writeFileSync(path('secrets'), secrets.map((each) => each.join(' ')).join('\n'), { mode: 0o600 });
      writeFileSync(path('head'), await coppice('audit', 'organization', '--head'));
      const log = await coppice('audit', 'organization');
      writeFileSync(path('log'), log);
      writeFileSync(path('forged'), log.replace('"sandboxes":77', '"sandboxes":78'));
      const verify = (name: string): Promise<string> =>
        coppice('audit', 'verify', path(name), '--head', path('head'), '--secret-file', path('secrets'));
      assert.match(await verify('log'), /valid: \d+ entries, none missing/u);
      await assert.rejects(verify('forged'), /NOT VALID \(altered\)/u);
    } finally {
      rmSync(directory, { recursive: true });
    }
  });

  it('has each change of a burst that kill -9 of control cuts off, and no other', async () => {
    const api = new Api(service);
    const answered: string[] = [];
    const work = async (worker: number): Promise<void> => {
      for (let count = 0; ; count += 1) {
        const name = `burst-${worker}-${count}`;
        const { status } = await api.call('PUT', `/v1/secrets/${name}`, { body: { value: 'v' } });
        if (status !== 200) return;
        answered.push(name);
      }
    };
    const burst = Array.from({ length: WORKERS }, (_, worker) => work(worker).catch(() => undefined));
    await service.waitFor('some answers', TIMEOUT_MS, () => answered.length >= ANSWERED);
    await service.killRole('control');
    await Promise.all(burst);
    await client.secrets.set('afterwards', 'v');

    const secrets = await revealSecrets();
    const entries = await list();
    await assertValid(entries, secrets, await client.organization.auditHead());
    const logged = entries.flatMap(({ event, data }) =>
      event === 'secret.stored' ? [String(data['name'])] : [],
    );
    const stored = (await client.secrets.list()).map(({ name }) => name);
    assert.deepEqual(logged.toSorted(), stored.toSorted());
    for (const name of [...answered, 'afterwards']) assert.ok(logged.includes(name), `${name} is in the log`);
  });
});
