/** Damaged objects of persistent disks: the damage is reported, and nothing damaged is served. */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { findDisk } from '../fixtures/disks/disk-content.ts';
import { blockServerPids } from '../fixtures/disks/disk-crash.ts';
import { checkPieces, writePieces } from '../fixtures/disks/disk-pieces.ts';
import { listObjects, startWithStore, type DiskService } from '../fixtures/disks/disk-store.ts';

const SIZE_BYTES = 100_000;
const SETTLE_MS = 90_000;

describe('a persistent disk with a flipped byte in its store', { concurrency: false }, () => {
  let started: DiskService;
  before(async () => {
    started = await startWithStore('directory', { instance: 15 });
  });
  after(() => started[Symbol.asyncDispose]());

  for (const kind of ['manifest', 'root', 'leaf', 'segment'] as const)
    it(`a flipped byte in a ${kind} is reported, and nothing of it is served`, async () => {
      const name = `flip-${kind}`;
      const earlier = listObjects(started.objects);
      const { disks } = started;
      await disks.create(name);
      const first = await disks.attach(name);
      await writePieces(disks, first, 'file', { count: 20, sizeBytes: SIZE_BYTES });
      await disks.destroy(first, name);
      const paths = objectsOfKind(kind, name, earlier).map((key) => join(started.objects, key));
      assert.ok(paths.length > 0);
      for (const path of paths) flipByte(path);
      process.kill(blockServerPids(started.service).server, 'SIGKILL');

      const from = started.service.output.length;
      const body = { image: 'coppice/base:1', mem_mib: 256, timeout: 0, disk: name };
      const created = await disks.api.call('POST', '/v1/runs', { body });
      if (created.status === 201) {
        const sandbox = String(created.body['id']);
        const read = { body: { command: 'cat /workspace/file > /dev/null && echo served', timeout: 5 } };
        const answer = await disks.api.call('POST', `/v1/runs/${sandbox}/exec`, read);
        assert.doesNotMatch(answer.text, /served/u);
        await disks.api.destroy(sandbox);
      } else assert.ok(created.status >= 500, created.text);
      await started.service.waitFor('a report', SETTLE_MS, () =>
        /corrupt/u.test(started.service.output.slice(from)),
      );

      for (const path of paths) flipByte(path);
      process.kill(blockServerPids(started.service).server, 'SIGKILL');
      await disks.untilFree(name, SETTLE_MS);
      const last = await disks.attach(name);
      await checkPieces(disks, last, 'file', SIZE_BYTES);
      await disks.destroy(last, name);
    });

  /** Returns the keys of the objects of that kind that were made since `earlier`. */
  function objectsOfKind(
    kind: 'manifest' | 'root' | 'leaf' | 'segment',
    name: string,
    earlier: ReadonlyMap<string, number>,
  ): string[] {
    const { organization, disk } = findDisk(started.service, name);
    const made = [...listObjects(started.objects).keys()].filter((key) => !earlier.has(key));
    const folders = { root: 'roots', leaf: 'leaves', segment: 'segments' } as const;
    if (kind !== 'manifest')
      return made.filter((key) => key.startsWith(`blocks/${organization}/${folders[kind]}/`));
    const chain = made.filter((key) => key.startsWith(`disks/${organization}/${disk}/`)).toSorted();
    return chain.slice(-1);
  }
});

/** Called twice it restores the file. */
function flipByte(path: string): void {
  const content = readFileSync(path);
  const place = Math.floor(content.length / 2);
  content[place] = (content[place] ?? 0) ^ 0x10;
  writeFileSync(path, content);
}
