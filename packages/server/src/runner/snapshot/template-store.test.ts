import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { TemplateStore, type TemplateStoreOptions } from './template-store.ts';

const IMAGE = { digest: 'sha256:aa', preparedAt: new Date(0) };
const SHAPE = { accelerator: 'kvm', vcpus: 1, memMiB: 256, diskMiB: 64 } as const;

test('a template of another CPU has another key; one from before CPUs were recorded keeps its own', (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'templates-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const store = TemplateStore.open({
    directory: join(directory, 'templates'),
    socketDirectory: join(directory, 'sockets'),
    bindings: { versions: { machineKey: 'm' }, host: { tsc: '200' } },
    network: { absence: 'a test' },
  } as unknown as TemplateStoreOptions);
  const cpus = [undefined, { avx: true }, { avx: true, avx2: true }] as const;
  const keys = cpus.map((cpu) => store.keyOf(IMAGE, { ...SHAPE, cpu }));
  assert.equal(new Set(keys).size, keys.length);
  assert.equal(keys[0], store.keyOf(IMAGE, SHAPE));
  assert.equal(store.keyOf(IMAGE, { ...SHAPE, cpu: { avx: true } }), keys[1]);
});
