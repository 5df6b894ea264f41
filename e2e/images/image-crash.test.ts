/** Kills the runner during an image preparation, on a separate service. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, readFileSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Api } from '../fixtures/api/api.ts';
import { listPids, readCommandLine } from '../fixtures/host/processes.ts';
import { startRegistry } from '../fixtures/images/registry.ts';
import { Service } from '../fixtures/service/service.ts';
import { pushTinyImage } from '../fixtures/images/tiny-image.ts';

const INSTANCE = 7;
/** Large enough that the test can see the packer at work. */
const CONTENT_BYTES = 400_000_000;
const STEP_TIMEOUT_MS = 60_000;

/** Counts packers that see a directory of the data directory: one path of its jail is a file of it. */
function countPackers(dataDir: string): number {
  // Mounts name paths below the root of a file system, which may begin below that of the host.
  const end = dataDir.split('/').slice(-2).join('/');
  return listPids().filter(
    (pid) => readCommandLine(pid).includes('tar2sqfs') && readMounts(pid).includes(`${end}/runner/images/`),
  ).length;
}

function readMounts(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/mountinfo`, 'utf8');
  } catch {
    return '';
  }
}

test('a runner killed during flattening leaves nothing of the image, which can be prepared again', async () => {
  await using cleanup = new AsyncDisposableStack();
  const directory = mkdtempSync('/var/tmp/coppice-e2e-crash-');
  cleanup.defer(() => rmSync(directory, { recursive: true, force: true }));
  const registry = cleanup.use(await startRegistry({ directory }));
  const env = { COPPICE_REGISTRY_MIRRORS: `docker.io=${registry.url}` };
  const service = cleanup.use(await Service.start({ instance: INSTANCE, env }));
  const api = new Api(service);
  const content = randomBytes(CONTENT_BYTES);
  const digest = await pushTinyImage(registry, { name: 'crash/big:1', entries: [{ path: 'big', content }] });

  const images = join(service.dataDir, 'runner', 'images');
  const build = api.call('POST', '/v1/images/build', { body: { image: 'crash/big:1' } });
  await service.waitFor('the packer to work', STEP_TIMEOUT_MS, () => countPackers(service.dataDir) > 0);
  await service.killRole('runner');
  const answer = await build;
  assert.ok(answer.status >= 500, answer.text);

  await service.waitFor('the packer to end', STEP_TIMEOUT_MS, () => countPackers(service.dataDir) === 0);
  assert.deepEqual([readdirSync(join(images, 'staging')), readdirSync(join(images, 'images'))], [[], []]);
  assert.doesNotMatch((await api.call('GET', '/v1/images')).text, new RegExp(digest, 'u'));
  const again = await api.call('POST', '/v1/images/build', { body: { image: 'crash/big:1' } });
  assert.deepEqual([again.status, again.body['digest']], [200, digest], again.text);
});
