/** `coppice admin backup` and `coppice admin restore`, as an operator runs them. */
import assert from 'node:assert/strict';
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { gunzipSync, gzipSync } from 'node:zlib';
import { openDatabase } from '../db/database.ts';
import { assertRestored, configure, coppice, serve, serveUsed } from '../testing/operator-commands.ts';
import { prepareHarness, waitFor } from '../testing/control-harness.ts';
import { readDatabase } from '../testing/migrations/migration-database.ts';
import { findPostgresBin, makeDatabase } from '../testing/test-postgres.ts';

test('a backup of a service in use restores everything that was answered before it', async () => {
  await using harness = await prepareHarness({}, 'own');
  const change = configure(harness, await findPostgresBin());
  const id = await serveUsed(harness, change);
  const answered = [id];
  const during = new AbortController();
  const users = Array.from({ length: 4 }, async () => {
    while (!during.signal.aborted) answered.push((await harness.create({ timeout: 0 })).id);
  });
  await waitFor('some creates', () => answered.length > 20);
  const before = [...answered];
  const backup = join(harness.directory, 'backup');
  assert.match(await coppice(harness, change, ['backup', backup]), /holds the database.*master key/u);
  during.abort();
  await Promise.all(users);
  assert.ok(answered.length > before.length, 'the service was in use meanwhile');
  await harness.stopControl();
  await rm(join(harness.directory, 'control'), { recursive: true });
  const told = await coppice(harness, change, ['restore', backup]);
  assert.match(told, /^restored \d+ rows, as of .*The service can be started\.\n$/u);
  await serve(harness, change);
  for (const one of before) assert.equal((await harness.call('GET', `/v1/runs/${one}`)).status, 200, one);
  await assertRestored(harness, id);
});

test('a backup of a stopped service works and leaves PostgreSQL stopped', async () => {
  await using harness = await prepareHarness({}, 'own');
  const change = configure(harness, await findPostgresBin());
  const id = await serveUsed(harness, change);
  await harness.stopControl();
  const backup = join(harness.directory, 'backup');
  await coppice(harness, change, ['backup', backup]);
  await assert.rejects(readFile(join(harness.directory, 'control', 'postgres', 'postmaster.pid')), /ENOENT/u);
  await assert.rejects(
    coppice(harness, change, ['backup', backup]),
    /is there already: name a new directory/u,
  );
  await assert.rejects(coppice(harness, change, ['restore', backup]), /the database is in use/u);
  await serve(harness, change);
  await assert.rejects(coppice(harness, change, ['restore', backup]), /another control works in/u);
  await assertRestored(harness, id);
});

test('backups move a service from its own PostgreSQL to a shared one, and back', async () => {
  await using harness = await prepareHarness({}, 'own');
  const bin = await findPostgresBin();
  const [own, shared] = [configure(harness, bin), configure(harness, bin, await makeDatabase())];
  const id = await serveUsed(harness, own);
  await harness.stopControl();
  await coppice(harness, own, ['backup', join(harness.directory, 'one')]);
  await coppice(harness, shared, ['restore', join(harness.directory, 'one')]);
  await serve(harness, shared);
  assert.equal((await harness.call('GET', `/v1/runs/${id}`)).body.status, 'running');
  await coppice(harness, shared, ['backup', join(harness.directory, 'two')]);
  await harness.stopControl();
  await rm(join(harness.directory, 'control'), { recursive: true });
  await coppice(harness, own, ['restore', join(harness.directory, 'two')]);
  await serve(harness, own);
  await assertRestored(harness, id);
});

test('a restore asks for a master key that is stored elsewhere, and refuses another one', async () => {
  await using harness = await prepareHarness({}, 'own');
  const change = configure(harness, await findPostgresBin());
  const id = await serveUsed(harness, change);
  await harness.stopControl();
  const backup = join(harness.directory, 'backup');
  await coppice(harness, change, ['backup', backup]);
  const control = join(harness.directory, 'control');
  await rm(control, { recursive: true });
  await mkdir(control);
  await writeFile(join(control, 'master.key'), Buffer.alloc(32, 1));
  await assert.rejects(coppice(harness, change, ['restore', backup]), /another key than that of the backup/u);
  await rm(join(control, 'master.key'));
  const apart = join(harness.directory, 'kept-apart');
  await rename(join(backup, 'master.key'), apart);
  assert.match(await coppice(harness, change, ['restore', backup]), /There is no master key: put it back/u);
  await rename(apart, join(control, 'master.key'));
  await serve(harness, change);
  await assertRestored(harness, id);
});

test('a backup that is truncated, damaged or of a newer version restores nothing and says why', async () => {
  await using harness = await prepareHarness({}, 'own');
  const url = await makeDatabase();
  const change = configure(harness, await findPostgresBin(), url);
  await serveUsed(harness, change);
  await harness.stopControl();
  const backup = join(harness.directory, 'backup');
  await coppice(harness, change, ['backup', backup]);
  const file = join(backup, 'database.gz');
  const whole = await readFile(file);
  const lines = gunzipSync(whole).toString().split('\n');
  const damaged = Buffer.from(whole);
  damaged[damaged.length >> 1]! ^= 0xff;
  const without = (index: number): Buffer => gzipSync(lines.toSpliced(index, 1).join('\n'));
  const newer = lines.with(0, lines[0]!.replace(/"migration":"[^"]+"/u, '"migration":"9999_later"'));
  const empty = { ...change, databaseUrl: await makeDatabase() };
  for (const [content, message] of [
    [whole.subarray(0, whole.length >> 1), /damaged or breaks off/u],
    [damaged, /damaged or breaks off|neither a row|invalid input syntax/u],
    [without(lines.length - 2), /breaks off before its end/u],
    [without(lines.length - 3), /lacks rows/u],
    [gzipSync(newer.join('\n')), /which is newer \(its migration 9999_later/u],
    [gzipSync('something else'), /no backup of a Coppice database/u],
    [Buffer.from('plain'), /damaged or breaks off/u],
  ] as const) {
    await writeFile(file, content);
    await assert.rejects(coppice(harness, empty, ['restore', backup]), message);
    await using db = openDatabase({ connectionString: empty.databaseUrl }, harness.log);
    assert.deepEqual([...(await readDatabase(db)).keys()], [], String(message));
  }
  await rm(file);
  await assert.rejects(coppice(harness, empty, ['restore', backup]), /is no backup/u);
  await assert.rejects(coppice(harness, empty, ['restore']), /name one directory/u);
});
