import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findFaults, findIntruders } from './folder-layers.mjs';
import { listSpecifiers } from './value-imports.mjs';

const LAYERS = [['.'], ['http'], ['sandbox', 'billing', 'time'], ['db']];

/** @param {...[string, string]} links */
const imports = (...links) => links.map(([from, to]) => ({ from, to }));

test('an import of a lower layer, or one way within a layer, is allowed', () => {
  const links = imports(
    ['control.ts', 'http/app.ts'],
    ['http/app.ts', 'db/tables.ts'],
    ['http/endpoints/exec.ts', 'sandbox/sandbox.ts'],
    ['sandbox/sandbox.ts', 'billing/billing.ts'],
    ['sandbox/sandbox.ts', 'sandbox/record.ts'],
    ['billing/billing.ts', 'time/clock.ts'],
  );
  assert.deepEqual(findFaults(links, LAYERS), []);
});

test('an import of a higher layer is named', () => {
  assert.deepEqual(findFaults(imports(['db/migrate.ts', 'http/app.ts']), LAYERS), [
    'db/migrate.ts loads http/app.ts, which is in a layer above it',
  ]);
});

test('a cycle within a layer is named once, also through other folders', () => {
  const links = imports(
    ['sandbox/a.ts', 'billing/b.ts'],
    ['billing/c.ts', 'time/d.ts'],
    ['time/e.ts', 'sandbox/f.ts'],
  );
  assert.deepEqual(findFaults(links, LAYERS), ['billing and sandbox and time load each other']);
});

test('a folder in no layer is a fault', () => {
  assert.deepEqual(findFaults(imports(['new/a.ts', 'db/b.ts']), LAYERS), ['new is in no layer']);
});

test('only named files and the folder itself import from a secluded folder', () => {
  const links = imports(
    ['open-vmm.ts', 'qemu/qemu.ts'],
    ['qemu/qemu.ts', 'qemu/qmp.ts'],
    ['qemu/qemu.ts', 'vm/vmm.ts'],
    ['driver/driver.ts', 'qemu/qmp.ts'],
  );
  assert.deepEqual(findIntruders(links, { folder: 'qemu', importers: ['open-vmm.ts'] }), [
    'driver/driver.ts imports qemu/qmp.ts, which only open-vmm.ts may',
  ]);
});

test('imports of types alone do not count as loads, but as imports', () => {
  const text = `
    import type { A } from './a.ts';
    import { type B } from './b.ts';
    import { type C, c } from './c.ts';
    import './d.ts';
    export * from './e.ts';
    export type { F } from './f.ts';
    export { g } from './g.ts';
    const h = await import('./h.ts');
    type I = import('./i.ts').I;
  `;
  assert.deepEqual(listSpecifiers(text, 'a.ts'), ['./c.ts', './d.ts', './e.ts', './g.ts', './h.ts']);
  const all = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'].map((name) => `./${name}.ts`);
  assert.deepEqual(listSpecifiers(text, 'a.ts', { withTypes: true }), all);
});
