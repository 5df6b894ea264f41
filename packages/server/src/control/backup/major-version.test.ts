import assert from 'node:assert/strict';
import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { assertRestored, configure, coppice, serve, serveUsed } from '../testing/operator-commands.ts';
import { prepareHarness } from '../testing/control-harness.ts';
import { findInstalledPostgres, findPostgresBin } from '../testing/test-postgres.ts';

test('backup and restore move the own PostgreSQL to another major version', async () => {
  await using harness = await prepareHarness({}, 'own');
  const [from, to] = [await findInstalledPostgres(), await findPostgresBin()];
  const [earlier, later] = [configure(harness, from), configure(harness, to)];
  const id = await serveUsed(harness, earlier);
  const backup = join(harness.directory, 'backup');
  await coppice(harness, earlier, ['backup', backup]);
  await harness.stopControl();
  if (from !== to) {
    const refusal = /made by PostgreSQL \d+, but .*COPPICE_POSTGRES_BIN.*"coppice backup"/u;
    await assert.rejects(harness.startControl(later), refusal);
    await assert.rejects(coppice(harness, later, ['restore', backup]), refusal);
  }
  const data = join(harness.directory, 'control', 'postgres');
  await rename(data, `${data}.earlier`);
  await coppice(harness, later, ['restore', backup]);
  await serve(harness, later);
  await assertRestored(harness, id);
});
