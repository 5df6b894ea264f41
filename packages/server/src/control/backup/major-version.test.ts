import assert from 'node:assert/strict';
import { rename } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { assertRestored, configure, coppice, serve, serveUsed } from '../testing/operator-commands.ts';
import { prepareHarness } from '../testing/control-harness.ts';
import { findInstalledPostgres, findPostgresBin } from '../testing/test-postgres.ts';

const refusal = /made by PostgreSQL \d+, but .* is \d+: set COPPICE_POSTGRES_BIN.*"coppice admin backup"/u;

/** Moves the database of a control between two versions, and back to the first where the guide says that is possible. */
async function moveDatabase(from: string, to: string): Promise<void> {
  await using harness = await prepareHarness({}, 'own');
  const [first, second] = [configure(harness, from), configure(harness, to)];
  const id = await serveUsed(harness, first);
  await harness.stopControl();
  const backup = join(harness.directory, 'backup');
  if (from !== to) {
    await assert.rejects(harness.startControl(second), refusal);
    await assert.rejects(coppice(harness, second, ['backup', backup]), refusal);
    await assert.rejects(coppice(harness, second, ['restore', backup]), /is no complete backup/u);
    await serve(harness, first);
    await harness.stopControl();
  }
  await coppice(harness, first, ['backup', backup]);
  if (from !== to) await assert.rejects(coppice(harness, second, ['restore', backup]), refusal);
  const data = join(harness.directory, 'control', 'postgres');
  await rename(data, `${data}.before`);
  await coppice(harness, second, ['restore', backup]);
  await serve(harness, second);
  await assertRestored(harness, id);
}

test('a refused major version leaves the data usable, and backup and restore move it to a later one', async () => {
  await moveDatabase(await findInstalledPostgres(), await findPostgresBin());
});

test('they also move it to an earlier one, as from the npm package to that of the distribution', async () => {
  await moveDatabase(await findPostgresBin(), await findInstalledPostgres());
});
