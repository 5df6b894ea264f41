/** Audit logs of the real service: through every kind of copy and pause, and through kill -9. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import type { Api } from '../fixtures/api/api.ts';
import type { Service } from '../fixtures/service/service.ts';
import { shared } from '../fixtures/service/shared.ts';
import { readTeamSecret } from '../fixtures/accounts/team-secret.ts';

const COPPICE = fileURLToPath(new URL('../../packages/cli/bin/coppice.mjs', import.meta.url));
const IMAGE = { image: 'coppice/base:1', mem_mib: 256, timeout: 0 };

interface Entry {
  seq: number;
  event: string;
  data: Record<string, unknown>;
}

async function readLog(api: Api, id: string): Promise<Entry[]> {
  const { text } = await api.call('GET', `/v1/runs/${id}/audit`);
  return text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Entry);
}

/** Verifies the log with `coppice audit verify`, from files alone, against the head that the service reports. */
async function assertValid(service: Service, api: Api, id: string): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'cop-audit-'));
  try {
    const { audit_key_id } = await api.get(id);
    const file = (name: string, text: string): string => {
      writeFileSync(join(directory, name), text, { mode: 0o600 });
      return join(directory, name);
    };
    const log = file('log', (await api.call('GET', `/v1/runs/${id}/audit`)).text);
    const head = file('head', (await api.call('GET', `/v1/runs/${id}/audit?head=true`)).text);
    const secret = file('secret', readTeamSecret(service, String(audit_key_id)));
    const args = ['audit', 'verify', log, '--head', head, '--secret-file', secret];
    const output = await new Promise<string>((resolve) =>
      execFile(process.execPath, [COPPICE, ...args], (_, out, error) => resolve(out + error)),
    );
    assert.match(output, /^coppice audit: valid: \d+ entries, none missing\n$/u);
  } finally {
    rmSync(directory, { recursive: true });
  }
}

test('the logs of a sandbox and of its copies cover their whole life and verify offline', async () => {
  const { api, service } = await shared();
  const { id } = await api.create(IMAGE);
  await api.exec(id, 'exit 3');
  const [child] = (await api.call('POST', `/v1/runs/${id}/fork`)).body as unknown as [{ id: string }];
  const snapshot = (await api.call('POST', `/v1/runs/${id}/snapshot`)).body as { id: string };
  await api.call('POST', `/v1/runs/${id}/hibernate`);
  await api.call('POST', `/v1/runs/${id}/resume`);
  const restored = (await api.call('POST', '/v1/runs/restore', { body: { snapshot_id: snapshot.id } }))
    .body as { id: string };
  for (const one of [id, child.id, restored.id]) assert.equal((await api.destroy(one)).status, 200);
  const log = await readLog(api, id);
  assert.deepEqual(
    log.map(({ event }) => event),
    [
      'sandbox.created',
      'exec.start',
      'exec.exit',
      'sandbox.forked',
      'sandbox.snapshot',
      'sandbox.hibernated',
      'sandbox.resumed',
      'sandbox.destroyed',
    ],
  );
  assert.equal(log[2]?.data['exit_code'], 3);
  assert.equal(log[3]?.data['child'], child.id);
  assert.equal((await readLog(api, child.id))[0]?.data['parent'], id);
  assert.equal((await readLog(api, restored.id))[0]?.data['snapshot_id'], snapshot.id);
  for (const one of [id, child.id, restored.id]) await assertValid(service, api, one);
  await api.call('DELETE', `/v1/snapshots/${snapshot.id}`);
});

test('kill -9 of control during a burst leaves a valid log with every exec that was answered', async () => {
  const { api, service } = await shared();
  const { id } = await api.create(IMAGE);
  const answered: string[] = [];
  const over = new AbortController();
  const work = async (worker: number): Promise<void> => {
    for (let count = 0; !over.signal.aborted; count += 1) {
      const command = `echo ${worker}-${count}`;
      const isAnswered = await api.exec(id, command).then(
        ({ exit_code }) => exit_code === 0,
        () => false,
      );
      if (isAnswered) answered.push(command);
      else return;
    }
  };
  const burst = Array.from({ length: 8 }, (_, worker) => work(worker));
  await service.waitFor('some answers', 60_000, () => answered.length >= 20);
  await service.killRole('control');
  over.abort();
  await Promise.all(burst);
  await api.exec(id, 'echo afterwards');
  await api.destroy(id);
  const log = await readLog(api, id);
  for (const command of answered)
    for (const event of ['exec.start', 'exec.exit'])
      assert.equal(
        log.filter((entry) => entry.event === event && entry.data['command'] === command).length,
        1,
        `${event} of ${command}`,
      );
  assert.equal(log.at(-1)?.event, 'sandbox.destroyed');
  assert.deepEqual(
    log.map(({ seq }) => seq),
    log.map((_, index) => index + 1),
  );
  await assertValid(service, api, id);
});
