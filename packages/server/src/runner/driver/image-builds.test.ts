import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AppError } from '@coppice/contract';
import type { PrepareImage, VmShape } from '../../lib/protocol/runner-protocol.ts';
import { CacheLeases } from '../cache/cache-leases.ts';
import { Admission } from '../capacity/admission.ts';
import { Capacity } from '../capacity/capacity.ts';
import { DiskGuard } from '../capacity/disk-guard.ts';
import { Turns } from '../capacity/turns.ts';
import type { StoredImage } from '../image/store/image-store.types.ts';
import { ImageBuilds, type ImageBuildOptions } from './image-builds.ts';
import type { TemplatePlan } from './template-plan.ts';
import type { TemplateBlueprint } from './vm-assembly.ts';

const REQUEST = { image: 'app:1', organization: 'org', shapes: [] } satisfies PrepareImage;
const DEFAULT = '1×1024×4096';
const STORED = { reference: 'app:1@sha256:aa' } as StoredImage;

function nameOf({ vcpus, mem_mib, disk_mib }: VmShape): string {
  return `${vcpus}×${mem_mib}×${disk_mib}`;
}

/** A machine whose templates are built when the test says so. */
class Site {
  readonly order: string[] = [];
  readonly ready = new Set<string>();
  readonly capacity: Capacity;
  readonly builds: ImageBuilds;
  /** Builds a template; the test replaces it. */
  make: (name: string, signal: AbortSignal) => Promise<void> = async () => undefined;

  constructor({ hostMemMiB = 10_240 } = {}) {
    const availableMiB = (): number => 8000;
    const limits = { hostMemMiB, cores: 4, memOvercommit: 1, cpuOvercommit: 1, overheadMiB: () => 64 };
    this.capacity = new Capacity({
      admission: new Admission({ ...limits, availableMiB }),
      turns: new Turns({ maxRunning: 1, maxWaiting: 1, maxWaitMs: 10_000 }),
      disk: new DiskGuard({ directory: '/data', reserveMiB: 1000, freeMiB: () => 10_000 }),
      maxVcpus: 8,
      availableMiB,
    });
    const plan = {
      prepareImage: async ({ image }: PrepareImage) => {
        this.order.push(`image ${image}`);
        return STORED;
      },
      blueprintOf: (_: StoredImage, shape: VmShape) => {
        const { vcpus, mem_mib: memMiB } = shape;
        return { templateKey: nameOf(shape), shape: { vcpus, memMiB } };
      },
      isReady: ({ templateKey }: TemplateBlueprint) => this.ready.has(templateKey),
      ensureTemplate: async (
        { templateKey }: TemplateBlueprint,
        { organization, signal }: { organization: string; signal: AbortSignal },
      ) => {
        this.order.push(
          `${templateKey} for ${organization}, ${this.capacity.status.vcpus.promised} vCPUs reserved`,
        );
        await this.make(templateKey, signal);
        this.ready.add(templateKey);
      },
    } as unknown as TemplatePlan;
    const giveWay = async (): Promise<boolean> => false;
    this.builds = new ImageBuilds({ plan, capacity: this.capacity, leases: new CacheLeases(), giveWay });
  }

  build(shapes: VmShape[], options: Partial<ImageBuildOptions> = {}): Promise<StoredImage> {
    const { signal } = new AbortController();
    return this.builds.build({ ...REQUEST, shapes }, { signal, ...options });
  }
}

const SHAPE = { vcpus: 2, mem_mib: 512, disk_mib: 256 };

test('without templates, only the image is prepared', async () => {
  const site = new Site();
  const { signal } = new AbortController();
  assert.equal(await site.builds.build({ ...REQUEST, templates: false }, { signal }), STORED);
  assert.deepEqual(site.order, ['image app:1']);
});

test('templates of the default and the given shapes are built one after another, each with a reservation', async () => {
  const site = new Site();
  const told: string[] = [];
  const image = await site.build([SHAPE], {
    onPrepared: ({ reference }) => told.push(reference),
    onTemplate: (shape) => told.push(nameOf(shape)),
  });
  assert.equal(image, STORED);
  assert.deepEqual(site.order, [
    'image app:1',
    `${DEFAULT} for org, 1 vCPUs reserved`,
    '2×512×256 for org, 2 vCPUs reserved',
  ]);
  assert.deepEqual(told, [STORED.reference, DEFAULT, '2×512×256']);
  assert.equal(site.capacity.status.vcpus.promised, 0);
});

test('at most two builds hold a reservation, of two organizations if possible', async () => {
  const site = new Site();
  const gate = Promise.withResolvers<void>();
  const two = Promise.withResolvers<void>();
  const most: number[] = [];
  site.make = async () => {
    most.push(site.capacity.status.vcpus.promised);
    if (most.length === 2) two.resolve();
    await gate.promise;
  };
  const { signal } = new AbortController();
  const ask = (organization: string, mem_mib: number) =>
    site.builds.build({ ...REQUEST, organization, shapes: [{ ...SHAPE, vcpus: 1, mem_mib }] }, { signal });
  site.ready.add(DEFAULT);
  const builds = [ask('greedy', 201), ask('greedy', 202), ask('greedy', 203), ask('other', 204)];
  await two.promise;
  gate.resolve();
  await Promise.all(builds);
  assert.deepEqual([Math.max(...most), most.length], [2, 4]);
  assert.match(site.order.filter((line) => line.includes(' for ')).at(2) ?? '', /1×204×256 for other/u);
});

test('a ready template is neither rebuilt nor reserved', async () => {
  const site = new Site();
  site.ready.add(DEFAULT);
  await site.build([SHAPE, SHAPE]);
  assert.deepEqual(site.order, ['image app:1', '2×512×256 for org, 2 vCPUs reserved']);
});

test('a shape that the machine can never provide is refused first, with its path in the request', async () => {
  const site = new Site();
  await assert.rejects(
    site.build([SHAPE, { ...SHAPE, vcpus: 5 }]),
    (error) =>
      error instanceof AppError &&
      error.code === 'invalid_request' &&
      error.message === 'shapes[1].vcpus: must be at most 4 on this machine',
  );
  assert.deepEqual(site.order, []);
});

test('a machine too small for the default shape builds only the requested templates', async () => {
  const site = new Site({ hostMemMiB: 1400 });
  await site.build([SHAPE]);
  assert.deepEqual(site.order, ['image app:1', '2×512×256 for org, 2 vCPUs reserved']);
});

test('a build without room is refused like a create and reserves nothing', async () => {
  const site = new Site();
  site.capacity.adopt('all', { vcpus: 4, memMiB: 64 });
  await assert.rejects(site.build([]), (error) => error instanceof AppError && error.code === 'capacity');
  site.capacity.release('all');
  assert.equal(site.capacity.status.vcpus.promised, 0);
});

test('if the caller leaves, the image is ready and no template is built', async () => {
  const site = new Site();
  const left = new AbortController();
  const prepared: string[] = [];
  const onPrepared = ({ reference }: StoredImage): void => {
    prepared.push(reference);
    left.abort(new Error('left'));
  };
  await assert.rejects(site.build([SHAPE], { signal: left.signal, onPrepared }), /left/u);
  assert.deepEqual([prepared, site.order], [[STORED.reference], ['image app:1']]);
});

test('a failed template build releases its reservation', async () => {
  const site = new Site();
  site.make = async () => Promise.reject(new Error('no boot'));
  await assert.rejects(site.build([]), /no boot/u);
  assert.equal(site.capacity.status.vcpus.promised, 0);
});
