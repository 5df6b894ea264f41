/** PostgreSQL with its data on a persistent disk. */
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { DATA_DIRECTORY, pushPostgresImage } from '../fixtures/clones/clone-postgres-image.ts';
import { DiskApi } from '../fixtures/disks/disk-api.ts';
import { shared } from '../fixtures/service/shared.ts';

const ON_DISK = '/workspace/postgres';
const MOVE = `cp -a ${DATA_DIRECTORY} ${ON_DISK} && sync`;
const START = `pg_ctl --wait --silent --timeout=60 --log=/tmp/log --pgdata=${ON_DISK} start`;
const TRANSACTIONS = 200;

describe('PostgreSQL on a persistent disk', { concurrency: false }, () => {
  let disks: DiskApi;
  let shape: Record<string, unknown>;
  before(async () => {
    const { service, registry } = await shared();
    disks = new DiskApi(service);
    // The shape of the tests of clones: its template exists.
    shape = { image: await pushPostgresImage(registry), mem_mib: 512, vcpus: 2, timeout: 0 };
  });

  const start = async (): Promise<string> => {
    const { id } = await disks.api.create({ ...shape, disk: 'rows' });
    return id;
  };
  const ask = (id: string, question: string): Promise<string> =>
    disks.run(id, "psql -qtAX -v ON_ERROR_STOP=1 -F ' '", { user: 'postgres', cwd: '/tmp', stdin: question });
  const asPostgres = (id: string, command: string): Promise<string> =>
    disks.run(id, command, { user: 'postgres', cwd: '/tmp' });

  it('every committed row is there after the VM was killed, and all checksums are right', async () => {
    await disks.create('rows');
    const before = disks.service.vmPids();
    const id = await start();
    await disks.run(id, MOVE);
    await asPostgres(id, START);
    const inserts = Array.from({ length: TRANSACTIONS }, (_, row) => `INSERT INTO rows VALUES (${row});`);
    await ask(id, inserts.join('\n'));
    for (const pid of disks.service.vmPids()) if (!before.includes(pid)) process.kill(pid, 'SIGKILL');
    await disks.untilFree('rows');

    const next = await start();
    await asPostgres(next, `rm -f ${ON_DISK}/postmaster.pid; ${START}`);
    assert.equal(
      await ask(next, 'SELECT count(*), max(id) FROM rows'),
      `${TRANSACTIONS} ${TRANSACTIONS - 1}`,
    );
    assert.equal(
      await ask(next, "SELECT count(bt_index_check(oid, true)) FROM pg_class WHERE relname = 'rows_pkey'"),
      '1',
    );
    await asPostgres(
      next,
      `pg_ctl --wait --mode=fast --pgdata=${ON_DISK} stop && pg_checksums --check --pgdata=${ON_DISK}`,
    );
    await disks.destroy(next, 'rows');
    assert.equal((await disks.delete('rows')).status, 204);
  });
});
