/** The service on an external PostgreSQL, whose version differs from the installed one. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Api } from '../fixtures/api/api.ts';
import { assertConsistent } from '../fixtures/host/inventory.ts';
import { ExternalPostgres } from '../fixtures/service/external-postgres.ts';
import { startPrepared } from '../fixtures/service/prepared-service.ts';
import type { Service } from '../fixtures/service/service.ts';
import { kill } from '../fixtures/faults/victims.ts';

const IMAGE = { image: 'coppice/base:1', mem_mib: 256, timeout: 0 };
const DIRECTORY = '/var/tmp/coppice-e2e-postgres';
const AWAY_MS = 2000;
const MENDED_MS = 40_000;

describe('a shared PostgreSQL', { concurrency: false }, () => {
  let postgres: ExternalPostgres;
  let service: Service;
  let api: Api;

  before(async () => {
    postgres = await ExternalPostgres.create(DIRECTORY);
    service = await startPrepared({ instance: 7, env: { DATABASE_URL: postgres.url } });
    api = new Api(service);
  });
  after(async () => {
    await service[Symbol.asyncDispose]();
    await postgres[Symbol.asyncDispose]();
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
    await postgres.stop('SIGQUIT');
    assert.equal((await api.call('GET', '/v1/runs')).status, 503);
    await delay(AWAY_MS);
    postgres.start();
    await service.waitFor('/healthz', MENDED_MS, async () => (await service.health()) === 200);
    assert.equal((await api.exec(id, 'echo alive')).stdout, 'alive\n');
    assert.equal((await api.destroy(id)).status, 200);
    await assertConsistent(api);
  });
});
