/** A cache that is too small for all images and templates, on a separate service. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Api } from '../fixtures/api/api.ts';
import { startRegistry, type Registry } from '../fixtures/images/registry.ts';
import { Service } from '../fixtures/service/service.ts';
import { pushTinyImage } from '../fixtures/images/tiny-image.ts';

const INSTANCE = 7;
/**
 * An image and its template take 100 to 140 MiB, depending on the size of page cache pages in the host's kernel. The
 * limit fits two of them, or one besides those in use, but never six.
 */
const LIMIT_MIB = 300;
const FILLER_BYTES = 8_000_000;
const EVICTION_TIMEOUT_MS = 20_000;

function storedBytes(directory: string): number {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath, entry.name)).blocks * 512, 0);
}

class Site {
  readonly service: Service;
  readonly registry: Registry;
  readonly api: Api;

  constructor(service: Service, registry: Registry) {
    this.service = service;
    this.registry = registry;
    this.api = new Api(service);
  }

  async pushFiller(name: string): Promise<string> {
    // Incompressible, so that it takes its full size on disk.
    const content = randomBytes(FILLER_BYTES);
    return pushTinyImage(this.registry, {
      name,
      programs: ['/bin/sh', '/usr/bin/wc'],
      entries: [{ path: 'filler', content }],
    });
  }

  /** Creates a sandbox, so that image and template exist, and destroys it. */
  async use(image: string): Promise<void> {
    const { id } = await this.api.create({ image, mem_mib: 256 });
    await this.api.destroy(id);
  }

  async isListed(digest: string): Promise<boolean> {
    const { body } = await this.api.call('GET', '/v1/images');
    return (body as unknown as { digest: string }[]).some((image) => image.digest === digest);
  }

  /** Size of images and templates in bytes. */
  cacheBytes(): number {
    const runner = join(this.service.dataDir, 'runner');
    return storedBytes(join(runner, 'images', 'images')) + storedBytes(join(runner, 'templates'));
  }

  /** Returns log lines of evictions. A template may be evicted before its image, and may free enough. */
  evictions(what: 'image' | 'template'): string[] {
    return this.service.output.split('\n').filter((line) => line.includes(`"${what} evicted"`));
  }
}

test('the least recently used image is evicted, never one that a sandbox runs from', async () => {
  await using cleanup = new AsyncDisposableStack();
  const directory = mkdtempSync('/var/tmp/coppice-e2e-eviction-');
  cleanup.defer(() => rmSync(directory, { recursive: true, force: true }));
  const registry = cleanup.use(await startRegistry({ directory }));
  const env = {
    COPPICE_REGISTRY_MIRRORS: `docker.io=${registry.url}`,
    COPPICE_IMAGE_CACHE_MIB: String(LIMIT_MIB),
  };
  const service = cleanup.use(await Service.start({ instance: INSTANCE, env }));
  const site = new Site(service, registry);
  const { api } = site;

  const running = await site.pushFiller('evict/running:1');
  const sandbox = await api.create({ image: 'evict/running:1', mem_mib: 256 });
  const fillers: string[] = [];
  for (let index = 0; site.evictions('image').length === 0; index++) {
    assert.ok(index < 6, `no image was evicted at ${site.cacheBytes()} bytes`);
    fillers.push(await site.pushFiller(`evict/filler:${index}`));
    await site.use(`evict/filler:${index}`);
  }
  const first = fillers[0]!;
  await service.waitFor(
    'the first filler to be evicted',
    EVICTION_TIMEOUT_MS,
    async () => !(await site.isListed(first)),
  );
  await service.waitFor('the limit', EVICTION_TIMEOUT_MS, () => site.cacheBytes() <= LIMIT_MIB * 1024 ** 2);
  assert.equal(await site.isListed(running), true);
  assert.match(
    site.evictions('image').join('\n'),
    /"reason":"images and templates take \d+ bytes, \d+ are allowed"/u,
  );
  assert.equal((await api.exec(sandbox.id, 'wc -c < /filler')).exit_code, 0);

  // After a kill the runner leases everything its sandboxes use before it evicts again.
  await service.killRole('runner');
  await site.use('evict/filler:0');
  await service.waitFor(
    'the limit again',
    EVICTION_TIMEOUT_MS,
    () => site.cacheBytes() <= LIMIT_MIB * 1024 ** 2,
  );
  assert.deepEqual([await site.isListed(running), await site.isListed(first)], [true, true]);
  assert.equal((await api.exec(sandbox.id, 'wc -c < /filler')).stdout, `${FILLER_BYTES}\n`);
  const second = await api.create({ image: 'evict/running:1', mem_mib: 256 });
  assert.equal((await api.exec(second.id, 'echo here')).stdout, 'here\n');

  await Promise.all([api.destroy(second.id), api.destroy(sandbox.id)]);
  const staging = join(service.dataDir, 'runner', 'images', 'staging');
  assert.ok(existsSync(staging));
  await service.waitFor('removals to end', EVICTION_TIMEOUT_MS, () => readdirSync(staging).length === 0);
});
