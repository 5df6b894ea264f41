/** Disk images of other tools become persistent disks, and come back; those that are refused leave nothing. */
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { createWriteStream, openAsBlob, readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { DiskRecord } from '@coppice/contract';
import { Coppice, CoppiceError } from '../../packages/sdk/src/index.ts';
import type { Answer } from '../fixtures/api/api.ts';
import type { DiskApi } from '../fixtures/disks/disk-api.ts';
import { checkStoredDisk, findDisk } from '../fixtures/disks/disk-content.ts';
import { DiskImages } from '../fixtures/disks/disk-images.ts';
import { listObjects, startWithStore, type DiskService } from '../fixtures/disks/disk-store.ts';
import { API_KEY } from '../fixtures/service/service.ts';

const MIB = 2 ** 20;
const GIB = 2 ** 30;
/** Not a whole number of GB, nor of clusters of a qcow2 file. */
const IMAGE_BYTES = 96 * MIB + 20_480;
const LIMIT_GB = 3;
const GONE_WITHIN_MS = 60_000;
const RECEIVED_WITHIN_MS = 30_000;

const data = randomBytes(5 * MIB);
const sum = createHash('sha256').update(data).digest('hex');

describe('import of disk images', { concurrency: false }, () => {
  const images = new DiskImages();
  let started: DiskService;
  let disks: DiskApi;
  let raw = '';
  let qcow2 = '';
  before(async () => {
    started = await startWithStore('directory', {
      instance: 14,
      env: { COPPICE_ORG_DISK_GB: String(LIMIT_GB) },
    });
    ({ disks } = started);
    raw = images.makeFileSystem('raw', IMAGE_BYTES, { data, note: 'from elsewhere\n' });
    qcow2 = images.toQcow2(raw, 'qcow2');
  });
  after(async () => {
    await started[Symbol.asyncDispose]();
    images[Symbol.dispose]();
  });

  const put = (name: string, body: NonNullable<RequestInit['body']>, format?: string): Promise<Answer> => {
    const query = format === undefined ? '' : `?format=${format}`;
    return disks.api.call('PUT', `/v1/disks/${name}/content${query}`, { raw: body });
  };
  const connect = (): Coppice => new Coppice({ baseUrl: started.service.address, apiKey: API_KEY });
  /** Files of uploads. */
  const listReceived = (): number[] => {
    const directory = join(started.service.dataDir, 'runner', 'workspaces', 'new');
    return readdirSync(directory).map((name) => statSync(join(directory, name)).size);
  };
  const listDisks = async (): Promise<unknown> => (await disks.api.call('GET', '/v1/disks')).body;
  /** Disks with a chain in the object store: each that was made, as the last link of a deleted one stays. */
  const listChains = (): Set<string> => {
    const keys = [...listObjects(started.objects).keys()].filter((key) => key.startsWith('disks/'));
    return new Set(keys.map((key) => key.split('/').slice(0, 3).join('/')));
  };
  const assertNothingLeft = async (): Promise<void> => {
    assert.deepEqual(await listDisks(), []);
    await started.service.waitFor(
      'the uploads to be removed',
      GONE_WITHIN_MS,
      () => listReceived().length === 0,
    );
  };
  /** Reads the files of a new disk in a sandbox, writes one, and deletes the disk. */
  const assertUsable = async (name: string): Promise<void> => {
    const id = await disks.attach(name);
    assert.equal(
      await disks.run(id, 'sha256sum < /workspace/data; cat /workspace/note'),
      `${sum}  -\nfrom elsewhere`,
    );
    const size = Number(await disks.run(id, 'df -B1 --output=size /workspace | tail -n 1'));
    assert.ok(size > 0.9 * GIB && size <= GIB, `the file system has ${size} bytes`);
    await disks.run(id, 'head -c 200000000 /dev/urandom > /workspace/more && sync');
    await disks.destroy(id, name);
    await checkStoredDisk(started.service, findDisk(started.service, name));
    assert.equal((await disks.delete(name)).status, 204);
  };

  it('a raw image that was sent by HTTP is read by a sandbox, and exported as it was', async () => {
    const { status, body, text } = await put('by-http', await openAsBlob(raw));
    assert.equal(status, 201, text);
    const { name, size_gb, status: state, parent } = body as unknown as DiskRecord;
    assert.deepEqual([name, size_gb, state, parent], ['by-http', 1, 'available', null]);
    for (const format of ['raw', 'qcow2'] as const) {
      const exported = images.pathOf(`exported-${format}`);
      const answer = await disks.api.fetch('GET', `/v1/disks/by-http/content?format=${format}`);
      assert.equal(answer.status, 200);
      await pipeline(Readable.from(answer.body ?? []), createWriteStream(exported));
      images.assertEqual(raw, exported, format);
    }
    assert.equal(statSync(images.pathOf('exported-raw')).size, GIB);
    await assertUsable('by-http');
    await assertNothingLeft();
  });

  it('a qcow2 image that the client sends is read by a sandbox, and exported as it was', async () => {
    const client = connect();
    const made = await client.importDisk('by-client', await openAsBlob(qcow2), { format: 'qcow2' });
    assert.deepEqual([made.name, made.sizeGb], ['by-client', 1]);
    const exported = images.pathOf('exported-by-client');
    await pipeline(await client.exportDisk('by-client', { format: 'qcow2' }), createWriteStream(exported));
    images.assertEqual(raw, exported, 'qcow2');
    // The export can be imported again.
    await client.importDisk('again', await openAsBlob(exported), { format: 'qcow2' });
    await assertUsable('again');
    await assertUsable('by-client');
    await assertNothingLeft();
  });

  it('what is no image of the format with an ext4 file system is refused, and the message names the remedy', async () => {
    const before = listChains();
    const whole = readFileSync(qcow2);
    const tall = images.toQcow2(raw, 'tall');
    images.resize(tall, '10T');
    const partitioned = Buffer.alloc(4 * MIB);
    partitioned.set([0x55, 0xaa], 510);
    const refusals: [string, Buffer, string, RegExp][] = [
      ['qcow2 as raw', whole, 'raw', /^body: .*qcow2 file: give its format/u],
      ['raw as qcow2', readFileSync(raw), 'qcow2', /^body: .*not a qcow2 file; convert it with: qemu-img/u],
      ['qcow2 that is cut off', whole.subarray(0, MIB), 'qcow2', /^body: .*the qcow2 file is refused/u],
      ['half a header', whole.subarray(0, 50), 'qcow2', /^body: .*the file has 50 bytes/u],
      ['raw that is cut off', readFileSync(raw).subarray(0, 90 * MIB), 'raw', /^body: .*send all of it/u],
      [
        'no file system',
        randomBytes(4 * MIB),
        'raw',
        /^body: .*no ext4 file system; make one with mkfs\.ext4/u,
      ],
      ['partitions', partitioned, 'raw', /^body: .*without partitions/u],
      ['nothing', Buffer.alloc(0), 'raw', /^body: .*empty/u],
      ['compressed', readFileSync(images.toQcow2(raw, 'packed', '-c')), 'qcow2', /^body: .*compressed/u],
      [
        'file of the host',
        readFileSync(images.makeBacked('/etc/shadow', 'backed')),
        'qcow2',
        /^body: .*backing file/u,
      ],
    ];
    for (const [what, body, format, message] of refusals) {
      const answer = await put('refused', body, format);
      assert.equal(answer.status, 400, `${what}: ${answer.text}`);
      const { code, message: said } = errorOf(answer);
      assert.equal(code, 'invalid_request', what);
      assert.match(said, message, what);
    }
    const large = await put('refused', readFileSync(tall), 'qcow2');
    assert.equal(large.status, 429, large.text);
    assert.match(
      errorOf(large).message,
      /^body: .*more than the 3 GB .*the limit is 3 GB of disks; delete some/u,
    );
    const format = await put('refused', whole, 'vmdk');
    assert.match(errorOf(format).message, /^format: must be raw or qcow2/u);
    await assertNothingLeft();
    assert.deepEqual(
      [...listChains()].filter((chain) => !before.has(chain)),
      [],
    );
    await assert.rejects(
      connect().importDisk('refused', whole),
      (error) =>
        error instanceof CoppiceError &&
        error.code === 'invalid_request' &&
        error.message.includes('"body: the image'),
    );
  });

  it('an upload that exceeds the quota is refused before it ends, and leaves nothing', async () => {
    await disks.create('large', { size_gb: LIMIT_GB - 1 });
    let sentBytes = 0;
    const endless = async function* (): AsyncGenerator<Buffer> {
      const chunk = Buffer.alloc(MIB);
      for (; sentBytes < 100 * GIB; sentBytes += chunk.length) yield chunk;
    };
    const answer = await put('refused', Readable.toWeb(Readable.from(endless())));
    assert.equal(answer.status, 429, answer.text);
    assert.match(errorOf(answer).message, /^body: .*more than the 1 GB .*delete some/u);
    assert.ok(sentBytes < 3 * GIB, `${sentBytes} bytes were taken`);
    assert.equal((await disks.delete('large')).status, 204);
    await assertNothingLeft();
  });

  /** Sends half of the image, and resolves when the runner has most of it. */
  const sendHalf = async (signal?: AbortSignal): Promise<{ ended: Promise<unknown>; finish: () => void }> => {
    const content = readFileSync(raw);
    const half = content.length / 2;
    const { promise, resolve: finish } = Promise.withResolvers<void>();
    const body = async function* (): AsyncGenerator<Buffer> {
      yield content.subarray(0, half);
      await promise;
      yield content.subarray(half);
    };
    const options = signal === undefined ? {} : { signal };
    const ended = disks.api
      .call('PUT', '/v1/disks/half/content', { raw: Readable.toWeb(Readable.from(body())), ...options })
      .then(
        ({ status }) => status,
        () => undefined,
      );
    await started.service.waitFor('the first half', RECEIVED_WITHIN_MS, () =>
      listReceived().some((bytes) => bytes > half - MIB),
    );
    return { ended, finish };
  };

  for (const [what, cut] of [
    ['the client is gone', undefined],
    ['control is killed', 'control'],
    ['the runner is killed', 'runner'],
  ] as const)
    it(`an upload during which ${what} leaves nothing, and can be made again`, async () => {
      const before = listChains();
      const controller = new AbortController();
      const { ended, finish } = await sendHalf(controller.signal);
      if (cut === undefined) controller.abort();
      else await started.service.killRole(cut);
      finish();
      const status = await ended;
      assert.ok(status === undefined || status === 503, `answered ${String(status)}`);
      await assertNothingLeft();
      assert.deepEqual(
        [...listChains()].filter((chain) => !before.has(chain)),
        [],
      );
      await started.service.waitFor('the name to be free', GONE_WITHIN_MS, async () => {
        const { status: again } = await put('half', await openAsBlob(raw));
        return again === 201;
      });
      await assertUsable('half');
    });
});

function errorOf({ body }: Answer): { code: string; message: string } {
  return body['error'] as { code: string; message: string };
}
