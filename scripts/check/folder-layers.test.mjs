import assert from 'node:assert/strict';
import { test } from 'node:test';
import { findFaults } from './folder-layers.mjs';
import { listSpecifiers } from './value-imports.mjs';

const LAYERS = [['.'], ['http'], ['sandbox', 'billing', 'time'], ['db']];

/** @param {...[string, string]} links */
const imports = (...links) => links.map(([from, to]) => ({ from, to }));

test('what leads downward, or to a neighbour and not back, is no fault', () => {
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

test('what leads upward is named', () => {
  assert.deepEqual(findFaults(imports(['db/migrate.ts', 'http/app.ts']), LAYERS), [
    'db/migrate.ts loads http/app.ts, which is in a layer above it',
  ]);
});

test('neighbours that load each other are named once, also over others', () => {
  const links = imports(
    ['sandbox/a.ts', 'billing/b.ts'],
    ['billing/c.ts', 'time/d.ts'],
    ['time/e.ts', 'sandbox/f.ts'],
  );
  assert.deepEqual(findFaults(links, LAYERS), ['billing and sandbox and time load each other']);
});

test('a folder that no layer names is a fault', () => {
  assert.deepEqual(findFaults(imports(['new/a.ts', 'db/b.ts']), LAYERS), ['new is in no layer']);
});

test('only what is left when the program runs counts as loaded', () => {
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
});
