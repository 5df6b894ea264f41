/** Server commands as an operator runs them, and a service whose data they work on. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import type { ControlConfig } from '../control-config.ts';
import { verifyOrganizationAudit } from '../../../../sdk/src/audit/verify-organization-audit.ts';
import { INVITATION, waitFor, type ControlHarness } from './control-harness.ts';
import { readOrganizationLog } from './organization-log.ts';
import { AccountClient } from './requests/account-client.ts';

const COMMANDS = {
  backup: 'commands/backup-command.ts',
  restore: 'commands/backup-command.ts',
  organization: 'commands/organization-command.ts',
  runner: 'commands/runner-command.ts',
  control: 'commands/control-command.ts',
};
const PASSWORD = 'a password of a registry';
const VALUE = 'sk-a-value-of-a-secret';
const CREDENTIALS = { openai: { secret: 'kept' } };
const run = promisify(execFile);

/** The PostgreSQL that the service uses, and the places of its files. */
export type Change = Pick<ControlConfig, 'postgresBin'> & Partial<ControlConfig>;

/** Places the files where the service has them under `COPPICE_DATA_DIR` and `COPPICE_RUN_DIR`. */
export function configure(harness: ControlHarness, postgresBin: string, databaseUrl?: string): Change {
  return {
    postgresBin,
    dataDir: join(harness.directory, 'control'),
    runDir: join(harness.directory, 'run', 'control'),
    ...(databaseUrl === undefined ? {} : { databaseUrl }),
  };
}

export async function serve(harness: ControlHarness, change: Change): Promise<void> {
  await harness.startControl(change);
  await waitFor('healthz', async () => (await harness.call('GET', '/healthz')).status === 200);
}

/** Runs a command with the configuration of the service, and returns its output. Rejects with the output on failure. */
export async function coppice(
  harness: ControlHarness,
  change: Change,
  [name, ...args]: [keyof typeof COMMANDS, ...string[]],
  settings: Record<string, string> = {},
): Promise<string> {
  const path = fileURLToPath(new URL(`../../${COMMANDS[name]}`, import.meta.url));
  const words = name === 'backup' || name === 'restore' ? [name, ...args] : args;
  const assets = join(harness.directory, 'assets');
  await mkdir(assets, { recursive: true });
  const tools = ['kernel', 'initramfs', 'jail', 'capture', 'hostctl', 'blocks', 'qemu', 'tar2sqfs', 'mke2fs'];
  const manifest = {
    version: 1,
    ...Object.fromEntries(tools.map((tool) => [tool, { path: tool }])),
    base_image: { layout_path: 'x', reference: 'coppice/base:1' },
    postgres_bin: { path: change.postgresBin },
  };
  await writeFile(join(assets, 'manifest.json'), JSON.stringify(manifest));
  await writeFile(join(harness.directory, 'coppice.env'), '');
  const env = {
    PATH: process.env['PATH'],
    COPPICE_CONFIG: join(harness.directory, 'coppice.env'),
    COPPICE_DATA_DIR: harness.directory,
    COPPICE_RUN_DIR: join(harness.directory, 'run'),
    COPPICE_ASSETS_DIR: assets,
    COPPICE_USER: 'root',
    ...settings,
    ...(change.databaseUrl === undefined ? {} : { DATABASE_URL: change.databaseUrl }),
  };
  const { stdout } = await run(process.execPath, [path, ...words], { env, timeout: 60_000 });
  return stdout;
}

/** Starts a service with a secret and some records. Returns the id of its running sandbox. */
export async function serveUsed(harness: ControlHarness, change: Change): Promise<string> {
  await harness.runner.start();
  await serve(harness, change);
  const body = { username: 'somebody', password: PASSWORD };
  const stored = await harness.call('PUT', '/v1/registries/registry.test', { body });
  assert.equal(stored.status, 200);
  assert.equal((await harness.call('PUT', '/v1/secrets/kept', { body: { value: VALUE } })).status, 200);
  const ended = await harness.create({ labels: { text: 'é\u2028' } });
  await harness.call('DELETE', `/v1/runs/${ended.id}`);
  return (await harness.create({ timeout: 0, credentials: CREDENTIALS })).id;
}

export async function assertRestored(harness: ControlHarness, id: string): Promise<void> {
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.status, 'running');
  assert.equal((await harness.call('GET', '/v1/runs?status=destroyed')).body.length, 1);
  await harness.create({ image: 'registry.test/some:1' });
  assert.equal(harness.runner.creates.at(-1)?.access?.credentials?.password, PASSWORD);
  const other = await harness.create({ credentials: CREDENTIALS });
  assert.equal(harness.runner.egress.get(other.id)?.grants[0]?.secret, VALUE);
  const { body: listed } = await harness.call('GET', `/v1/runs/${id}/credentials`);
  assert.equal(listed[0].secret, 'kept');
  assert.equal((await harness.call('DELETE', `/v1/runs/${id}`)).status, 200);
  await assertLogContinues(harness);
}

/** Entries from before the backup, and later ones, are one chain, keyed by the secret of the backup. */
async function assertLogContinues(harness: ControlHarness): Promise<void> {
  const owner = await AccountClient.signUp(harness, { invitation: INVITATION });
  const path = `${owner.organization}/audit-secrets`;
  const { body: listed } = await owner.call('GET', path);
  assert.equal(listed.length, 1);
  const { body: shown } = await owner.call('GET', `${path}/${listed[0].id}`);
  const { body: head } = await harness.call('GET', '/v1/organization/audit?head=true');
  const entries = await readOrganizationLog(harness);
  const verdict = await verifyOrganizationAudit(entries, { [shown.id]: shown.secret }, { head });
  assert.deepEqual(verdict, { valid: true, entries: entries.length, complete: true });
  const kinds = new Set(entries.map(({ event }) => event));
  for (const event of ['registry.stored', 'secret.stored', 'session.started'])
    assert.ok(kinds.has(event), `${event} is in the log`);
}
