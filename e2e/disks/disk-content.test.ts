/** A persistent disk as programs and callers see it: the same suite on a directory and on a real S3 server. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, describe, it } from 'node:test';
import type { DiskApi } from '../fixtures/disks/disk-api.ts';
import { askRunner, checkStoredDisk, findDisk } from '../fixtures/disks/disk-content.ts';
import { startWithStore, STORES, sumObjects, type DiskService } from '../fixtures/disks/disk-store.ts';

const GIB = 2 ** 30;
const MIB = 2 ** 20;
const TRIMMED_MIB = 48;
/** An object stays while a part of it is used. One of this file's at least has no other data. */
const SEGMENT_MIB = 15;
/** A pass of the collector deletes only what the pass before found unused, once the uploads of then have ended. */
const COLLECTED_WITHIN_MS = 60_000;
const FILES = readFileSync(new URL('../fixtures/guest/disk-files.py', import.meta.url), 'utf8');
const GIT = `
  set -e
  export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com
  git init -q /workspace/repository && cd /workspace/repository
  for number in 1 2 3; do seq $number 500 > file-$number; git add . && git commit -qm "commit $number"; done
  git checkout -qb other HEAD~1 && git gc -q && git rev-list --all --count`;
/** Appends without a pause until it is killed, with metadata changes and few syncs. */
const WRITER = `
  cd /workspace && mkdir -p busy && cd busy && sync .
  setsid sh -c 'n=0; while :; do n=$((n+1)); head -c 20000 /dev/urandom > f$((n % 50)); mv f$((n % 50)) g$((n % 37)); done' \
    > /dev/null 2>&1 &
  echo $! > /tmp/writer`;
const STOP_WRITER = 'kill -KILL -- -$(cat /tmp/writer); sync';

for (const [index, store] of STORES.entries())
  describe(`persistent disks in the store: ${store}`, { concurrency: false }, () => {
    let started: DiskService;
    let disks: DiskApi;
    /** The sandbox that has the disk `data`. */
    let id = '';
    before(async () => {
      started = await startWithStore(store, { instance: 14 + index });
      ({ disks } = started);
      await disks.create('data');
      id = await disks.attach('data');
    });
    after(() => started[Symbol.asyncDispose]());

    const measure = async (name: string): Promise<number> => {
      const address = findDisk(started.service, name);
      return (await askRunner(started.service, (runner) => runner.measure(address))).stored_bytes;
    };

    it('is an ext4 file system on a block device of the size that was asked for', async () => {
      const [source, type] = (await disks.run(id, 'findmnt -no SOURCE,FSTYPE /workspace')).split(/\s+/u);
      assert.equal(type, 'ext4');
      assert.equal(await disks.run(id, `cat /sys/class/block/${source?.slice(5)}/size`), String(GIB / 512));
      const [size = 0, free = 0] = (await disks.run(id, 'df -B1 --output=size,avail /workspace | tail -n 1'))
        .split(/\s+/u)
        .map(Number);
      // Journal and tables of inodes take the rest.
      assert.ok(size > 0.93 * GIB && size <= GIB && free > 0.9 * GIB, `${size} ${free}`);
      assert.equal(await disks.run(id, 'ls -A /workspace'), '');
      assert.deepEqual((await disks.sandbox(id)).disk, {
        name: 'data',
        status: 'attached',
        dirty_bytes: null,
        waits_for: null,
        recovered: null,
      });
    });

    it('mmap, hard links, sparse files, extended attributes, SQLite and git work on it', async () => {
      await disks.run(id, 'mkdir /workspace/files');
      assert.equal(
        await disks.python(id, `import os; os.chdir('/workspace/files')\n${FILES}`, 'make'),
        'all made',
      );
      assert.equal(
        await disks.python(id, `import os; os.chdir('/workspace/files')\n${FILES}`, 'check'),
        'all there',
      );
      assert.equal(await disks.run(id, GIT), '3');
    });

    it('reports ENOSPC when it is full, and is usable again after files are deleted', async () => {
      const fill = await disks.run(
        id,
        `fallocate -l $(($(df -B1 --output=avail /workspace | tail -n 1) - 16777216)) /workspace/filler
         head -c 33554432 /dev/zero > /workspace/more; echo "exit $?"; stat -c %s /workspace/more`,
      );
      assert.match(fill, /^exit 1\n\d{7,8}$/u);
      await disks.run(
        id,
        'rm /workspace/filler /workspace/more; head -c 1000000 /dev/urandom > /workspace/again; sync',
      );
      await disks.run(id, 'dmesg | grep -i "i/o error" && exit 1; rm /workspace/again');
    });

    it('space of deleted files is free in the object store again', async () => {
      await disks.run(id, `head -c ${TRIMMED_MIB * MIB} /dev/urandom > /workspace/large`);
      await disks.flush('data');
      const [full, fullObjects] = [await measure('data'), sumObjects(started.objects)];
      assert.ok(full > TRIMMED_MIB * MIB, String(full));
      await disks.run(id, 'rm /workspace/large');
      await disks.flush('data');
      // The version before the newest one is kept, because the VM read from it until then.
      await disks.run(id, 'echo later > /workspace/later');
      await disks.flush('data');
      const trimmed = await measure('data');
      assert.ok(trimmed < full - 0.9 * TRIMMED_MIB * MIB, `${full} bytes, then ${trimmed}`);
      const { organization } = findDisk(started.service, 'data');
      await started.service.waitFor(
        `less than ${fullObjects} bytes of objects`,
        COLLECTED_WITHIN_MS,
        async () => {
          await disks.run(id, 'date >> /workspace/later');
          await disks.flush('data');
          await askRunner(started.service, (runner) => runner.collect(organization));
          return sumObjects(started.objects) < fullObjects - SEGMENT_MIB * MIB;
        },
      );
    });

    it('only one sandbox can have it', async () => {
      const answer = await disks.api.call('POST', '/v1/runs', {
        body: { image: 'coppice/base:1', disk: 'data' },
      });
      assert.equal(answer.status, 409, answer.text);
      assert.match(answer.text, /disk_in_use/u);
      assert.ok(answer.text.includes(id), answer.text);
      assert.equal((await disks.delete('data')).status, 409);
    });

    it('a snapshot of a disk under heavy writing is a crash-consistent disk', async () => {
      await disks.run(id, WRITER);
      await disks.snapshot('data', 'busy');
      await disks.fork('data', 'busy', 'of-busy');
      await checkStoredDisk(started.service, findDisk(started.service, 'of-busy'));
      await disks.run(id, STOP_WRITER);
      const fork = await disks.attach('of-busy');
      await disks.run(fork, 'ls /workspace/busy > /dev/null && cat /workspace/busy/* | wc -c');
      await disks.destroy(fork, 'of-busy');
    });

    it('a snapshot with sync has everything that was written before, in a clean file system', async () => {
      await disks.run(id, WRITER);
      await disks.run(
        id,
        'head -c 3000000 /dev/urandom > /workspace/unsynced; cd /workspace; sha256sum unsynced > sum',
      );
      await disks.snapshot('data', 'synced', true);
      await disks.run(id, STOP_WRITER);
      await disks.fork('data', 'synced', 'of-synced');
      const { asStored } = await checkStoredDisk(started.service, findDisk(started.service, 'of-synced'));
      assert.doesNotMatch(asStored, /recover|FILE SYSTEM WAS MODIFIED|\? no/u);
    });

    it('a fork and its source do not see the writes of each other', async () => {
      await disks.run(id, 'rm -r /workspace/busy; echo source > /workspace/whose');
      const fork = await disks.attach('of-synced');
      assert.match(
        await disks.run(fork, 'cd /workspace; sha256sum -c sum; ls whose || true'),
        /unsynced: OK/u,
      );
      await disks.run(fork, 'echo fork > /workspace/whose; rm /workspace/sum');
      assert.equal(await disks.run(id, 'cd /workspace; sha256sum -c sum; cat whose'), 'unsynced: OK\nsource');
      await disks.destroy(fork, 'of-synced');
      const again = await disks.attach('of-synced');
      assert.equal(
        await disks.run(again, 'cd /workspace; cat whose; ls sum 2> /dev/null || echo gone'),
        'fork\ngone',
      );
      await disks.destroy(again, 'of-synced');
    });

    it('another sandbox finds all files, also those that were not synced before the destroy', async () => {
      await disks.run(
        id,
        'head -c 9000000 /dev/urandom > /workspace/last; cd /workspace; sha256sum last > last.sum',
      );
      await disks.destroy(id, 'data');
      const { dirty_bytes, attached_to } = await disks.get('data');
      assert.deepEqual({ dirty_bytes, attached_to }, { dirty_bytes: 0, attached_to: null });
      await checkStoredDisk(started.service, findDisk(started.service, 'data'));
      id = await disks.attach('data');
      assert.equal(
        await disks.python(id, `import os; os.chdir('/workspace/files')\n${FILES}`, 'check'),
        'all there',
      );
      assert.equal(
        await disks.run(id, 'cd /workspace; sha256sum -c last.sum; cat whose'),
        'last: OK\nsource',
      );
      await disks.run(id, 'git -C /workspace/repository fsck --strict');
    });

    it('grows while a sandbox has it', async () => {
      const answer = await disks.api.call('PATCH', '/v1/disks/data', { body: { size_gb: 2 } });
      assert.equal(answer.status, 200, answer.text);
      const size = Number(await disks.run(id, 'df -B1 --output=size /workspace | tail -n 1'));
      assert.ok(size > 1.9 * GIB, String(size));
      await disks.run(id, 'fallocate -l 1200M /workspace/filler && rm /workspace/filler');
    });

    it('cannot be deleted while disks that were forked from it exist', async () => {
      await disks.destroy(id, 'data');
      const answer = await disks.delete('data');
      assert.equal(answer.status, 409, answer.text);
      assert.match(answer.text, /disk_has_forks.*of-/u);
      for (const name of ['of-busy', 'of-synced']) assert.equal((await disks.delete(name)).status, 204);
      assert.equal((await disks.delete('data')).status, 204);
      assert.equal((await disks.delete('data')).status, 404);
      const gone = await disks.api.call('POST', '/v1/runs', {
        body: { image: 'coppice/base:1', disk: 'data' },
      });
      assert.equal(gone.status, 404, gone.text);
    });
  });
