/** Several installations on this machine, with their own list of installations. */
import assert from 'node:assert/strict';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { pino } from 'pino';
import { lockDirectory } from '../../lib/files/directory-lock.ts';
import { overlaps, parseCidr } from '../network/addresses/address-plan.ts';
import { idsOverlap, listAccountIds } from './account-ids.ts';
import { idsFrom } from './choose-ranges.ts';
import { claimRanges } from './claim-ranges.ts';
import { expectRanges, FIRST_RANGES, type HostRanges, type SetRanges } from './host-ranges.ts';

const log = pino({ level: 'silent' });
let root = '';
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'ranges-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

const dataDirOf = (slug: string): string => join(root, slug);
const installationsDir = (): string => join(root, 'installations');

function claim(slug: string, ranges: SetRanges = {}, installationDir = dataDirOf(slug)): Promise<HostRanges> {
  const tools = { nft: 'nft', ip: 'ip' };
  return claimRanges({ installationDir, installationsDir: installationsDir(), slug, ranges, tools }, log);
}

function assertApart(all: readonly HostRanges[]): void {
  for (const [index, a] of all.entries())
    for (const b of all.slice(index + 1)) {
      assert.ok(!overlaps(parseCidr('a', a.guestCidr), parseCidr('b', b.guestCidr)), JSON.stringify([a, b]));
      assert.ok(!idsOverlap(idsFrom(a.uidBase), idsFrom(b.uidBase)), JSON.stringify([a, b]));
    }
}

test('installations that start at once get different ranges, and keep them at their next start', async () => {
  const slugs = ['0001', '0002', '0003', '0004'];
  const first = await Promise.all(slugs.map((slug) => claim(slug)));
  assertApart(first);
  assert.deepEqual(await Promise.all(slugs.toReversed().map((slug) => claim(slug))), first.toReversed());
  for (const [index, slug] of slugs.entries()) {
    assert.equal(readlinkSync(join(installationsDir(), slug)), dataDirOf(slug));
    assert.deepEqual(expectRanges(dataDirOf(slug), {}), first[index]);
  }
});

test('ranges from a setting stay after the setting is removed', async () => {
  const set = { guestCidr: '10.99.0.0/20', uidBase: 1_900_000 };
  assert.deepEqual(await claim('0001', set), set);
  assert.deepEqual(await claim('0001'), set);
  await assert.rejects(claim('0002', { uidBase: 1_900_100 }), {
    code: 'invalid_request',
    message: new RegExp(`^uidBase: .* ${dataDirOf('0001')} `, 'u'),
  });
});

test('an installation whose data is gone frees its ranges and is removed from the list', async () => {
  const first = await claim('0001');
  rmSync(dataDirOf('0001'), { recursive: true });
  assert.deepEqual(await claim('0002'), first);
  assert.deepEqual(readdirSync(installationsDir()), ['0002']);
});

test('a moved data directory keeps its ranges', async () => {
  const kept = { guestCidr: '10.98.0.0/16', uidBase: 1_880_000 };
  await claim('0001', kept);
  mkdirSync(join(root, 'moved'));
  renameSync(join(dataDirOf('0001'), 'runner'), join(root, 'moved', 'runner'));
  assert.deepEqual(await claim('0009', {}, join(root, 'moved')), kept);
});

test('two data directories with one short name are refused', async () => {
  await claim('0001');
  await assert.rejects(
    claim('0001', {}, join(root, 'elsewhere')),
    /dataDir: .*elsewhere .*short name \(0001\)/u,
  );
});

test('a damaged record stops only its own installation, with an error that names the remedy', async () => {
  await claim('0001');
  writeFileSync(join(dataDirOf('0001'), 'runner', 'host-ranges.json'), '{');
  await assert.rejects(claim('0001'), /dataDir: .*host-ranges\.json is damaged; remove it/u);
  await claim('0002');
  assert.deepEqual(readdirSync(installationsDir()), ['0001', '0002']);
});

test('the wait for the lock is limited, and a lock counts only for the directory that exists now', async () => {
  const directory = installationsDir();
  const held = await lockDirectory(directory, 5_000);
  await assert.rejects(lockDirectory(directory, 50), /held the lock of .*installations for 50 ms/u);
  const waiting = lockDirectory(directory, 10_000);
  rmSync(directory, { recursive: true });
  held[Symbol.dispose]();
  using _next = await waiting;
  await assert.rejects(lockDirectory(directory, 50), /held the lock/u);
});

test('accounts, groups and subordinate ids of the machine are read, and malformed lines are skipped', () => {
  writeFileSync(join(root, 'passwd'), 'root:x:0:0:root:/root:/bin/sh\n+::::::\nbroken\n');
  writeFileSync(join(root, 'group'), 'staff:x:50:\n');
  writeFileSync(join(root, 'subuid'), 'ada:100000:65536\n');
  const ranges = listAccountIds(root).map(({ first, last }) => [first, last]);
  assert.deepEqual(ranges, [
    [0, 0],
    [50, 50],
    [100_000, 165_535],
  ]);
});

test('files in the list that are not links are left alone', async () => {
  mkdirSync(installationsDir());
  writeFileSync(join(installationsDir(), 'note'), '');
  symlinkSync(join(root, 'nowhere'), join(installationsDir(), '0005'));
  const { uidBase } = await claim('0001');
  assert.ok(uidBase >= FIRST_RANGES.uidBase);
  assert.deepEqual(readdirSync(installationsDir()).toSorted(), ['0001', 'note']);
});
