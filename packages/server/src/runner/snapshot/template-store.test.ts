import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setImmediate as immediate } from 'node:timers/promises';
import { pino } from 'pino';
import { CacheLeases, templateKey } from '../cache/cache-leases.ts';
import type { StoredImage } from '../image/store/image-store.types.ts';
import { BootedGuestError } from './boot-in-time.ts';
import type { BootJob, TemplateJob } from './template-builder.ts';
import { TemplateStore, type TemplateStoreOptions } from './template-store.ts';

const IMAGE = { digest: 'sha256:aa', preparedAt: new Date(0) };
const SHAPE = { accelerator: 'kvm', vcpus: 1, memMiB: 256, diskMiB: 64 } as const;

/** Writes files in place of guests, and records the requests. */
class NotingBuilder {
  readonly asked: string[] = [];
  /** Errors of the next builds, in order. */
  readonly failures: Error[] = [];
  isInTime = true;
  leases = new CacheLeases();

  async boot({ key, shape, directory }: BootJob): Promise<void> {
    await this.#fill('boot', key, directory);
    assert.equal(shape.diskMiB, 0);
  }

  async build({ image, directory, booted }: TemplateJob): Promise<{ isInTime: boolean }> {
    const bootedKey = booted.ramPath.split('/').at(-2) ?? '';
    await this.#fill(`build ${image.digest}`, bootedKey, directory);
    const failure = this.failures.shift();
    if (failure !== undefined) throw failure;
    return { isInTime: this.isInTime };
  }

  /** Waits long enough for an eviction of anything that is not held. */
  async #fill(what: string, bootedKey: string, directory: string): Promise<void> {
    this.asked.push(what);
    writeFileSync(join(directory, 'devices'), '');
    await immediate();
    assert.ok(this.leases.isHeld(templateKey(bootedKey)), `${what}: the booted guest is held`);
  }
}

function setUp(t: TestContext) {
  const directory = mkdtempSync(join(tmpdir(), 'templates-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const builder = new NotingBuilder();
  const needs: number[] = [];
  const store = TemplateStore.open(
    {
      directory: join(directory, 'templates'),
      socketDirectory: join(directory, 'sockets'),
      bindings: { versions: { machineKey: 'm' }, host: { tsc: '200' } },
      network: { absence: 'a test' },
      leases: builder.leases,
      inTurn: async ({ diskMiB }: { diskMiB: number }, boot: () => Promise<void>) => {
        needs.push(diskMiB);
        await boot();
      },
      log: pino({ level: 'silent' }),
    } as unknown as TemplateStoreOptions,
    builder,
  );
  const ensure = (digest: string, shape: Partial<{ memMiB: number; diskMiB: number }> = {}) =>
    store.ensure({
      image: { ...IMAGE, digest } as StoredImage,
      shape: { ...SHAPE, ...shape },
      organization: 'org',
    });
  return { store, builder, needs, ensure };
}

test('a template of another CPU has another key; one without a recorded CPU keeps its key', (t) => {
  const { store } = setUp(t);
  const cpus = [undefined, { avx: true }, { avx: true, avx2: true }] as const;
  const keys = cpus.map((cpu) => store.keyOf(IMAGE, { ...SHAPE, cpu }));
  assert.equal(new Set(keys).size, keys.length);
  assert.equal(keys[0], store.keyOf(IMAGE, SHAPE));
  assert.equal(store.keyOf(IMAGE, { ...SHAPE, cpu: { avx: true } }), keys[1]);
});

test('a guest is booted once for all images and disk sizes, and is held while a template is made from it', async (t) => {
  const { store, builder, needs, ensure } = setUp(t);
  await ensure('sha256:aa');
  await ensure('sha256:bb');
  await ensure('sha256:aa', { diskMiB: 512 });
  await ensure('sha256:aa', { memMiB: 512 });
  await ensure('sha256:aa');
  const [a, b] = ['build sha256:aa', 'build sha256:bb'];
  assert.deepEqual(builder.asked, ['boot', a, b, a, 'boot', a]);
  const room = needs.map((diskMiB) => Math.floor(diskMiB / 256));
  assert.deepEqual(room, [2, 1, 1, 4], 'room for the files that do not exist yet');
  assert.deepEqual(store.listReady(IMAGE).length, 3);
});

test('a booted guest with unusable saved state is booted again once', async (t) => {
  const { builder, ensure } = setUp(t);
  await ensure('sha256:aa');
  builder.failures.push(new BootedGuestError(new Error('no state')));
  await ensure('sha256:bb');
  assert.deepEqual(builder.asked.slice(2), ['build sha256:bb', 'boot', 'build sha256:bb']);
  builder.asked.length = 0;
  builder.failures.push(new BootedGuestError(1), new BootedGuestError(2));
  await assert.rejects(ensure('sha256:cc'), BootedGuestError);
  assert.deepEqual(builder.asked, ['build sha256:cc', 'boot', 'build sha256:cc']);
});

test('a booted guest is kept if a template fails because of its image', async (t) => {
  const { builder, ensure } = setUp(t);
  await ensure('sha256:aa');
  builder.failures.push(new Error('its shell ends the guest'));
  await assert.rejects(ensure('sha256:bb'), /its shell/u);
  await ensure('sha256:cc');
  assert.deepEqual(builder.asked.slice(2), ['build sha256:bb', 'build sha256:cc']);
});

test('a booted guest with a wrong timer rate serves only the template that waits for it', async (t) => {
  const { builder, ensure } = setUp(t);
  builder.isInTime = false;
  await ensure('sha256:aa');
  builder.isInTime = true;
  await ensure('sha256:bb');
  await ensure('sha256:cc');
  assert.deepEqual(builder.asked, ['boot', 'build sha256:aa', 'boot', 'build sha256:bb', 'build sha256:cc']);
});
