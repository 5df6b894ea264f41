/** A real registry with an image of several kinds of layers, and stores that pull from it. */
import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseImageReference } from '@coppice/contract';
import { pino } from 'pino';
import {
  OciLayout,
  type Descriptor,
  type ImageSpec,
} from '../../../../../../e2e/fixtures/images/oci-layout.ts';
import { startRegistry, type Registry } from '../../../../../../e2e/fixtures/images/registry.ts';
import { CacheLeases } from '../../cache/cache-leases.ts';
import { makeUnpacking } from './unpacking.ts';
import { ImageStore, type ImageStoreOptions } from '../store/image-store.ts';
import type { StoredImage } from '../store/image-store.types.ts';

export const HELLO: ImageSpec = {
  layers: [
    { entries: [{ path: 'a/' }, { path: 'a/hello', content: 'hello' }, { path: 'gone', content: 'x' }] },
    { entries: [{ path: '.wh.gone' }], compression: 'zstd' },
    { entries: [{ path: 'plain', content: 'plain' }], compression: 'none' },
  ],
  config: { Env: ['PATH=/bin', 'LANG=C'], User: '1000', WorkingDir: '/srv' },
};

export class StoreSite {
  readonly root: string;
  readonly registry: Registry;
  readonly layout: OciLayout;

  private constructor(root: string, registry: Registry, layout: OciLayout) {
    this.root = root;
    this.registry = registry;
    this.layout = layout;
  }

  /** Starts a registry that has {@link HELLO} as `test/hello:1`. */
  static async start(): Promise<StoreSite> {
    const root = await mkdtemp(join(tmpdir(), 'coppice-store-'));
    const registry = await startRegistry({ directory: await mkdtemp(join(root, 'registry-')) });
    const site = new StoreSite(root, registry, await OciLayout.create(join(root, 'layout')));
    await site.push('test/hello:1', HELLO);
    return site;
  }

  async close(): Promise<void> {
    await this.registry.close();
    await rm(this.root, { recursive: true, force: true });
  }

  async push(name: string, image: ImageSpec | Descriptor): Promise<Descriptor> {
    const descriptor = 'digest' in image ? image : await this.layout.addImage(image);
    await this.layout.tag('pushed', descriptor);
    await this.registry.push(this.layout.directory, 'pushed', name);
    return descriptor;
  }

  /** Opens a store, by default in its own directory. */
  async openStore(change: Partial<ImageStoreOptions> = {}): Promise<ImageStore> {
    return ImageStore.open({
      directory: await mkdtemp(join(this.root, 'store-')),
      unpacking: await makeUnpacking(),
      mirrors: { 'docker.io': this.registry.url },
      insecureRegistries: [this.registry.name],
      builtin: [],
      localDirectory: join(this.root, 'local'),
      leases: new CacheLeases(),
      log: pino({ level: 'silent' }),
      ...change,
    });
  }
}

export function prepare(store: ImageStore, text: string): Promise<StoredImage> {
  return store.prepare(parseImageReference(text));
}

export async function assertNothingLeft(directory: string): Promise<void> {
  assert.deepEqual(await readdir(join(directory, 'staging')), []);
  assert.deepEqual(await readdir(join(directory, 'images')), []);
}
