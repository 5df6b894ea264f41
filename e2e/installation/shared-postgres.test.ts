/** The service on an external PostgreSQL, whose version differs from the installed one. */
import assert from 'node:assert/strict';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { findPostgresBin } from '../../packages/server/src/control/testing/test-postgres.ts';
import { Api } from '../fixtures/api/api.ts';
import { assertConsistent } from '../fixtures/host/inventory.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';
import { kill } from '../fixtures/faults/victims.ts';

const IMAGE = { image: 'coppice/base:1', mem_mib: 256, timeout: 0 };
const DIRECTORY = '/var/tmp/coppice-e2e-postgres';
const ACCOUNT = process.env['COPPICE_USER'] ?? 'coppice';
const AWAY_MS = 2000;
const MENDED_MS = 40_000;

describe('a shared PostgreSQL', { concurrency: false }, () => {
  const data = join(DIRECTORY, 'data');
  let bin = '';
  let postgres: ChildProcess;
  let service: Service;
  let api: Api;

  const asAccount = (program: string, ...args: string[]): [string, string[]] => [
    'setpriv',
    [`--reuid=${ACCOUNT}`, `--regid=${ACCOUNT}`, '--clear-groups', '--', join(bin, program), ...args],
  ];
  const startPostgres = (): void => {
    const [command, args] = asAccount('postgres', '-D', data, '-k', DIRECTORY, '-c', 'listen_addresses=');
    postgres = spawn(command, args, { stdio: 'ignore' });
  };
  const stopPostgres = async (signal: NodeJS.Signals): Promise<void> => {
    const exited = once(postgres, 'exit');
    postgres.kill(signal);
    await exited;
  };

  before(async () => {
    bin = await findPostgresBin();
    rmSync(DIRECTORY, { recursive: true, force: true });
    mkdirSync(DIRECTORY, { mode: 0o755 });
    execFileSync('chown', [ACCOUNT, DIRECTORY]);
    const [command, args] = asAccount('initdb', '-D', data, '-U', 'coppice', '--auth=reject');
    execFileSync(command, args, { stdio: 'ignore', timeout: 120_000 });
    appendFileSync(join(data, 'pg_ident.conf'), `here ${ACCOUNT} coppice\n`);
    execFileSync('sh', ['-c', `echo 'local all all peer map=here' > ${join(data, 'pg_hba.conf')}`]);
    startPostgres();
    const url = `postgresql://coppice@/postgres?host=${DIRECTORY}`;
    service = await startPrepared({ instance: 7, env: { DATABASE_URL: url } });
    api = new Api(service);
  });
  after(async () => {
    await service[Symbol.asyncDispose]();
    await stopPostgres('SIGQUIT');
    rmSync(DIRECTORY, { recursive: true, force: true });
  });

  it('sandboxes work from create to destroy, across a restart of control', async () => {
    const { id } = await api.create(IMAGE);
    assert.equal((await api.exec(id, 'echo there')).stdout, 'there\n');
    assert.equal((await api.call('POST', `/v1/runs/${id}/hibernate`)).status, 200);
    await kill('control', service);
    assert.equal((await api.call('POST', `/v1/runs/${id}/resume`)).status, 200);
    assert.equal((await api.exec(id, 'echo back')).stdout, 'back\n');
    assert.equal((await api.destroy(id)).status, 200);
    await assertConsistent(api);
  });

  it('after an immediate shutdown of PostgreSQL callers get 503, nothing is lost, and everything recovers', async () => {
    const { id } = await api.create(IMAGE);
    await stopPostgres('SIGQUIT');
    assert.equal((await api.call('GET', '/v1/runs')).status, 503);
    await delay(AWAY_MS);
    startPostgres();
    await service.waitFor('/healthz', MENDED_MS, async () => (await service.health()) === 200);
    assert.equal((await api.exec(id, 'echo alive')).stdout, 'alive\n');
    assert.equal((await api.destroy(id)).status, 200);
    await assertConsistent(api);
  });
});
