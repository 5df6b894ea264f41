import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { AcceleratorChoice } from '../accelerator/accelerators.ts';
import { CacheLeases, templateKey } from '../cache/cache-leases.ts';
import type { ImageStore } from '../image/store/image-store.ts';
import type { StoredImage } from '../image/store/image-store.types.ts';
import type { TemplateRequest, TemplateStore } from '../snapshot/template-store.ts';
import { EMULATED_CPU } from '../vm/cpu.ts';
import type { TemplateShape } from '../vm/shape.ts';
import { TemplatePlan } from './template-plan.ts';

const IMAGE = {
  reference: 'app:1@sha256:aa',
  digest: 'sha256:aa',
  path: '/image',
  config: { env: { OWN: '1' }, user: '', workdir: '/' },
} as unknown as StoredImage;

const EMULATION: AcceleratorChoice = { accelerator: 'tcg', reason: 'a test' };

function openPlan(ready: TemplateShape[] = [], current: AcceleratorChoice = EMULATION) {
  const asked: TemplateRequest[] = [];
  const templates = {
    machine: 'm',
    keyOf: (_: StoredImage, { vcpus, memMiB, diskMiB }: TemplateShape) => `${vcpus}-${memMiB}-${diskMiB}`,
    filesOf: (key: string) => ({
      ramPath: `${key}/ram`,
      basePath: `${key}/base`,
      scratchPath: `${key}/scratch`,
    }),
    listReady: () => ready,
    ensure: async (request: TemplateRequest) => void asked.push(request),
  } as unknown as TemplateStore;
  const sharedImages = { ensure: async () => undefined };
  const plan = new TemplatePlan({
    accelerators: { current },
    images: {} as ImageStore,
    sharedImages,
    templates,
  });
  return { plan, asked };
}

test('a sandbox is made from the template of the next smaller disk, with a disk of its own size', async () => {
  const { plan, asked } = openPlan();
  const leases = new CacheLeases();
  using lease = leases.open();
  const blueprint = plan.blueprintOf(IMAGE, { vcpus: 2, mem_mib: 512, disk_mib: 5000 }, lease);
  assert.deepEqual(
    [blueprint.templateKey, blueprint.savedDiskMiB, blueprint.shape],
    ['2-512-4096', 4096, { accelerator: 'tcg', cpu: EMULATED_CPU, vcpus: 2, memMiB: 512, diskMiB: 5000 }],
  );
  assert.deepEqual(blueprint.files.scratch, {
    basePath: '2-512-4096/base',
    frozen: [],
    topPath: '2-512-4096/scratch',
  });
  assert.ok(leases.isHeld(templateKey('2-512-4096')));

  const { signal } = new AbortController();
  await plan.ensureTemplate(blueprint, { organization: 'org', signal });
  const shape = { accelerator: 'tcg', cpu: EMULATED_CPU, vcpus: 2, memMiB: 512, diskMiB: 4096 };
  assert.deepEqual(asked, [{ image: IMAGE, shape, organization: 'org', signal }]);
});

test('ready shapes of the current accelerator are listed in order, with the range of their disks', () => {
  const shape = { accelerator: 'tcg', cpu: EMULATED_CPU, vcpus: 1, memMiB: 1024, diskMiB: 4096 } as const;
  const { plan } = openPlan([
    { ...shape, vcpus: 2 },
    shape,
    { ...shape, memMiB: 256, diskMiB: 64 },
    { ...shape, accelerator: 'kvm', memMiB: 128 },
  ]);
  assert.deepEqual(plan.listReady(IMAGE), [
    { vcpus: 1, mem_mib: 256, disk_mib: 64, max_disk_mib: 511 },
    { vcpus: 1, mem_mib: 1024, disk_mib: 4096, max_disk_mib: 16_383 },
    { vcpus: 2, mem_mib: 1024, disk_mib: 4096, max_disk_mib: 16_383 },
  ]);
});

test('under KVM a sandbox has the CPU of new VMs, and a template of another CPU is not ready', () => {
  const chosen = { vendor: 'AuthenticAMD', avx: true } as const;
  const host = { ...chosen, avx2: true } as const;
  const shape = { accelerator: 'kvm', vcpus: 1, memMiB: 1024, diskMiB: 4096 } as const;
  const { plan } = openPlan(
    [shape, { ...shape, cpu: host, memMiB: 256 }, { ...shape, cpu: { avx: true, vendor: 'AuthenticAMD' } }],
    { accelerator: 'kvm', reason: 'a test', cpus: { host, chosen } },
  );
  using lease = new CacheLeases().open();
  const blueprint = plan.blueprintOf(IMAGE, { vcpus: 1, mem_mib: 1024, disk_mib: 4096 }, lease);
  assert.deepEqual(blueprint.shape, { ...shape, cpu: chosen });
  assert.deepEqual(
    plan.listReady(IMAGE).map(({ mem_mib }) => mem_mib),
    [1024],
  );
});
